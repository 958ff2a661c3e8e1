//! Messages in the wire format of protocol buffers.

/// A message in the wire format of protocol buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    pub(super) fn number(self, field: u64, number: u64) -> Self {
        self.varint(field << 3).varint(number)
    }

    pub(super) fn float(self, field: u64, number: f32) -> Self {
        let mut message = self.varint(field << 3 | 5);
        message.0.extend(number.to_le_bytes());
        message
    }

    pub(super) fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let mut message = self.varint(field << 3 | 2).varint(length);
        message.0.extend(bytes);
        message
    }

    pub(super) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn varint(mut self, mut number: u64) -> Self {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.0.push(low & 0x7f);
                return self;
            }
            self.0.push(low | 0x80);
        }
    }
}
