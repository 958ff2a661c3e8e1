//! An array as numpy writes it: a header of text, and the elements.
//!
//! Source: `numpy.lib.format`, "Format Version 1.0" to "3.0".

use std::io::{self, Read};

use planner_ir::{DType, Type};

/// What every array begins with.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The longest text that is read (bytes): numpy itself takes 10,000 to be too long.
const LONGEST: usize = 1 << 16;
/// What the bytes before the elements are a multiple of.
const ALIGNMENT: usize = 64;

/// What numpy calls element types.
const CODES: [(DType, &str); 12] = [
    (DType::F64, "f8"),
    (DType::F32, "f4"),
    (DType::F16, "f2"),
    (DType::I64, "i8"),
    (DType::I32, "i4"),
    (DType::I16, "i2"),
    (DType::I8, "i1"),
    (DType::U64, "u8"),
    (DType::U32, "u4"),
    (DType::U16, "u2"),
    (DType::U8, "u1"),
    (DType::Bool, "b1"),
];

/// What stands before the elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// What the elements are.
    pub(super) type_: Type,
    /// Whether they stand column by column.
    pub(super) turned: bool,
    /// How long it is itself (bytes).
    pub(super) length: u64,
}

impl Header {
    /// Reads one, up to the first element.
    pub(super) fn read(from: &mut dyn Read) -> Result<Self, String> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends within its header".to_owned(),
            _ => error.to_string(),
        };
        let mut start = [0; 8];
        from.read_exact(&mut start).map_err(failed)?;
        let [magic @ .., major, _] = &start;
        if magic != MAGIC {
            return Err("it does not begin as an array of numpy does".to_owned());
        }
        let mut length = [0; 4];
        let digits = match major {
            1 => 2,
            2 | 3 => 4,
            other => return Err(format!("its header has version {other}, expected 1, 2 or 3")),
        };
        from.read_exact(&mut length[..digits]).map_err(failed)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Err(format!("its header has {length} bytes, expected {LONGEST} at most"));
        }
        let mut text = vec![0; length];
        from.read_exact(&mut text).map_err(failed)?;
        let text = std::str::from_utf8(&text).map_err(|error| format!("its header is no text: {error}"))?;
        let (type_, turned) = said(text)?;
        let length = u64::try_from(start.len() + digits + length).unwrap_or(u64::MAX);
        Ok(Self { type_, turned, length })
    }
}

/// What stands before the elements of an array that is written, row by row.
pub(super) fn header(type_: &Type) -> Result<Vec<u8>, String> {
    let known = CODES.iter().find(|(dtype, _)| *dtype == type_.dtype);
    let (dtype, code) = known.ok_or_else(|| format!("numpy has no {}", type_.dtype))?;
    let order = if dtype.bytes() == 1 { '|' } else { '<' };
    let sizes: String = match type_.shape[..] {
        [only] => format!("{only},"),
        _ => type_.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let mut text = format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let before = MAGIC.len() + 4;
    let whole = (before + text.len() + 1).next_multiple_of(ALIGNMENT);
    text.push_str(&" ".repeat(whole - before - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).map_err(|_| format!("{type_} has too many dimensions"))?;
    Ok([MAGIC, &[1, 0][..], &length.to_le_bytes(), text.as_bytes()].concat())
}

/// The type that a header's text says, and whether elements stand column by column.
fn said(text: &str) -> Result<(Type, bool), String> {
    let mut rest = Text(text);
    let (mut code, mut turned, mut shape) = (None, None, None);
    rest.expect('{')?;
    while !rest.takes('}') {
        let key = rest.quoted()?;
        rest.expect(':')?;
        match key {
            "descr" if rest.starts('[') => return Err("has fields, expected plain numbers".to_owned()),
            "descr" => code = Some(rest.quoted()?),
            "fortran_order" => turned = Some(rest.truth()?),
            "shape" => shape = Some(rest.sizes()?),
            other => return Err(format!("its header says `{other}`, which is not known")),
        }
        if !rest.takes(',') {
            rest.expect('}')?;
            break;
        }
    }
    rest.end()?;
    let (Some(code), Some(turned), Some(shape)) = (code, turned, shape) else {
        return Err("its header lacks `descr`, `fortran_order` or `shape`".to_owned());
    };
    // `=` is the order of the host that wrote it, and all that are known are little-endian.
    let plain = code.strip_prefix(['<', '|', '=']).unwrap_or(code);
    let known = CODES.iter().find(|(_, it)| *it == plain).map(|(dtype, _)| *dtype);
    let dtype =
        known.ok_or_else(|| format!("elements `{code}`, expected numbers or truth values, little-endian"))?;
    let turned = turned && shape.len() > 1;
    Ok((super::typed(dtype, shape)?, turned))
}

/// What is left of a header's text.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    fn starts(&mut self, with: char) -> bool {
        self.0 = self.0.trim_start();
        self.0.starts_with(with)
    }

    fn takes(&mut self, expected: char) -> bool {
        let starts = self.starts(expected);
        if starts {
            self.0 = &self.0[expected.len_utf8()..];
        }
        starts
    }

    fn expect(&mut self, expected: char) -> Result<(), String> {
        if self.takes(expected) { Ok(()) } else { Err(self.wrong(&format!("`{expected}`"))) }
    }

    /// As far as a rule holds.
    fn run(&mut self, holds: impl Fn(char) -> bool) -> &'a str {
        self.0 = self.0.trim_start();
        let end = self.0.find(|it| !holds(it)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn quoted(&mut self) -> Result<&'a str, String> {
        let quote = if self.starts('"') { '"' } else { '\'' };
        self.expect(quote)?;
        let (taken, rest) = self.0.split_once(quote).ok_or_else(|| self.wrong("the end of a word"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn truth(&mut self) -> Result<bool, String> {
        match self.run(char::is_alphabetic) {
            "True" => Ok(true),
            "False" => Ok(false),
            _ => Err(self.wrong("`True` or `False`")),
        }
    }

    fn sizes(&mut self) -> Result<Vec<u64>, String> {
        let mut sizes = Vec::new();
        self.expect('(')?;
        while !self.takes(')') {
            let digits = self.run(|it| it.is_ascii_digit());
            sizes.push(digits.parse().map_err(|_| self.wrong("a size"))?);
            // Python 2 writes long numbers so.
            self.takes('L');
            if !self.takes(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(sizes)
    }

    fn end(&self) -> Result<(), String> {
        if self.0.trim().is_empty() { Ok(()) } else { Err(self.wrong("its end")) }
    }

    fn wrong(&self, expected: &str) -> String {
        let found: String = self.0.trim_start().chars().take(20).collect();
        format!("its header has `{found}`, expected {expected}")
    }
}
