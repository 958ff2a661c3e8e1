//! Why a text is not a plan file.

use std::fmt;

use planner_ir::ParseError;
use serde_json::error::Category;

use super::FORMAT;

/// Why a text is not a plan file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It ends too early: in that line, at that column (from 1).
    Truncated(usize, usize),
    /// Not JSON, or not of the right form.
    Form {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What stands there and what should.
        message: String,
    },
    /// It does not say that it is a plan; what it says instead.
    Format(Option<String>),
    /// Another version of the form, or none.
    Version {
        /// What the file says.
        found: String,
        /// What is read.
        expected: u64,
    },
    /// Its content is not what was written.
    Checksum {
        /// What the file says.
        found: String,
        /// What its content hashes to.
        expected: String,
    },
    /// A text form that cannot be read.
    Text {
        /// The field.
        place: String,
        /// Where in the text and why.
        error: ParseError,
    },
    /// A number or a name that stands for nothing.
    Field {
        /// The field.
        place: String,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const AGAIN: &str = "make the plan again with `shardloom plan`";
        match self {
            Self::Truncated(line, column) => write!(
                f,
                "line {line}, column {column}: the file ends here, expected the rest of a plan: copy the \
                 whole file, or {AGAIN}"
            ),
            Self::Form { line, column, message } => {
                write!(f, "line {line}, column {column}: {message}: {AGAIN}")
            }
            Self::Format(found) => {
                let found = found.as_deref().unwrap_or("nothing that names a format");
                write!(f, "field `format`: found {found}, expected `\"{FORMAT}\"`: this is no plan; {AGAIN}")
            }
            Self::Version { found, expected } => write!(
                f,
                "field `version`: found {found}, expected {expected}: use the version of shardloom that \
                 wrote the plan, or {AGAIN}"
            ),
            Self::Checksum { found, expected } => write!(
                f,
                "field `checksum`: found `{}`, expected `{}` for this content: the plan was changed after \
                 it was written; {AGAIN}",
                shown(found),
                shown(expected)
            ),
            Self::Text { place, error } => write!(f, "field `{place}`, {error}: {AGAIN}"),
            Self::Field { place, found, expected } => {
                write!(f, "field `{place}`: found {found}, expected {expected}: {AGAIN}")
            }
        }
    }
}

impl std::error::Error for ReadError {}

impl ReadError {
    /// Of a text that was to be a file.
    pub(super) fn form(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        if error.classify() == Category::Eof {
            return Self::Truncated(line, column);
        }
        let place = format!(" at line {line} column {column}");
        let message = error.to_string();
        Self::Form { line, column, message: message.strip_suffix(&place).unwrap_or(&message).to_owned() }
    }

    /// Of a text that was to be an object with a header.
    pub(super) fn header(error: &serde_json::Error, text: &[u8]) -> Self {
        let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
        match first {
            Some(b'{') => Self::form(error),
            Some(_) => Self::Format(Some("a file that is no JSON object".to_owned())),
            None => Self::Format(Some("an empty file".to_owned())),
        }
    }
}

/// How much of a text an error shows (characters).
const SHOWN: usize = 64;

/// The beginning of a text.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
