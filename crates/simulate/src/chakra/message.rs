//! Messages as protobuf writes them: fields by their numbers.

use std::borrow::Cow;
use std::io::{self, Write};

/// A message.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

/// The value of an `AttributeProto`, by its type there.
pub(super) enum Attribute<'a> {
    /// `double_val`.
    Real(f64),
    /// `int32_val`.
    Small(u64),
    /// `int64_val`.
    Integer(u64),
    /// `uint64_val`.
    Unsigned(u64),
    /// `bool_val`.
    Truth(bool),
    /// `string_val`.
    Text(Cow<'a, str>),
}

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 127 {
            self.bytes.push(number.to_le_bytes()[0] | 128);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    /// The number of a field and how its value is written.
    fn key(&mut self, field: u64, wire: u64) {
        self.varint((field << 3) | wire);
    }

    /// A whole number.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    /// Several of them.
    pub(super) fn numbers(&mut self, field: u64, values: &[u64]) {
        if !values.is_empty() {
            let mut packed = Self::default();
            values.iter().for_each(|&it| packed.varint(it));
            self.inside(field, &packed.bytes);
        }
    }

    fn real(&mut self, field: u64, value: f64) {
        self.key(field, 1);
        self.bytes.extend(value.to_le_bytes());
    }

    fn inside(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.bytes.extend(bytes);
    }

    /// A text.
    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.inside(field, text.as_bytes());
    }

    /// An `AttributeProto`.
    pub(super) fn attribute(&mut self, field: u64, name: &str, value: &Attribute<'_>) {
        let mut attribute = Self::default();
        attribute.text(1, name);
        match value {
            Attribute::Real(value) => attribute.real(3, *value),
            Attribute::Small(value) => attribute.number(7, *value),
            Attribute::Integer(value) => attribute.number(9, *value),
            Attribute::Unsigned(value) => attribute.number(13, *value),
            Attribute::Truth(value) => attribute.number(27, u64::from(*value)),
            Attribute::Text(text) => attribute.text(29, text),
        }
        self.inside(field, &attribute.bytes);
    }

    /// Writes it after its length.
    pub(super) fn after_length(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut length = Self::default();
        length.varint(u64::try_from(self.bytes.len()).unwrap_or(u64::MAX));
        to.write_all(&length.bytes)?;
        to.write_all(&self.bytes)
    }
}
