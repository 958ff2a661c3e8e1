//! Machine files: reading, writing and everything that can be wrong with one.
//!
//! Every number in a file is `{ "value": …, "unit": "…", "source": "…" }`. Values are in the base
//! unit (`B`, `s`, `B/s`, `FLOP`, `FLOP/s`, `1` for parts, `count`), without prefixes.

use std::fmt;

use crate::machine::Machine;

mod file; // the form of a machine file
mod number; // a number, with its unit and its source
mod laws; // laws of operations
mod read; // what one says, or what is wrong with it
mod write; // machines as machine files

pub(super) use file::Number;
pub(super) use number::known as number;

use file::MachineFile;

/// The version of the format that this program reads and writes.
pub const FORMAT: u32 = 2;

/// Why a text is not a machine.
#[derive(Debug)]
pub struct ReadError {
    /// The file, as the caller calls it.
    pub file: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with a machine file.
#[derive(Debug)]
pub enum Fault {
    /// Not JSON, or fields that do not exist, or fields that are missing.
    Json(serde_json::Error),
    /// Another version of the format.
    Format(u32),
    /// A blank name.
    Name,
    /// A part of a number that is missing or not what it must be.
    Number {
        /// The field, with the names of the sections around it.
        field: String,
        /// `value`, `unit` or `source`.
        part: &'static str,
        /// What stands there.
        found: String,
        /// What must stand there.
        expected: String,
    },
    /// Two fields that do not go together.
    Together {
        /// The field to change.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

/// The machine in `text`: one node of it, or what there is of a node.
///
/// `file` is what errors call the text. The number of devices is set with
/// [`Machine::with_devices`].
pub fn read(file: &str, text: &str) -> Result<Machine, ReadError> {
    let parsed: Result<MachineFile, Fault> = serde_json::from_str(text).map_err(Fault::Json);
    let machine = parsed.and_then(read::machine);
    machine.map_err(|fault| ReadError { file: file.to_owned(), fault })
}

/// The text of `machine`, which [`read`] reads. The number of devices is not part of it.
#[must_use]
pub fn write(machine: &Machine) -> String {
    let file = MachineFile::from(machine);
    let mut text = serde_json::to_string_pretty(&file).expect("a machine file has string keys only");
    text.push('\n');
    text
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine file `{}`: {}", self.file, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(
                f,
                "{error}, expected the fields of a machine file; \
                 `cost-models/machines/h100-80g.json` has them all"
            ),
            Self::Format(format) => {
                write!(f, "has format {format}, this program reads {FORMAT}; calibrate anew")
            }
            Self::Name => write!(f, "`name` is blank, expected the name of a device type"),
            Self::Number { field, part, found, expected } => {
                write!(f, "`{field}.{part}` is {found}, expected {expected}")
            }
            Self::Together { field, message } => write!(f, "`{field}` {message}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Json(error) => Some(error),
            _ => None,
        }
    }
}
