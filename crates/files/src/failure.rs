//! What ends a command, and its exit code.

use std::fmt;
use std::io;
use std::path::Path;

use run::RunError;

/// Why a command did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Arguments that do not make sense together.
    Usage(String),
    /// Bad input, or a plan that was rejected.
    Input(String),
    /// What does not fit on a device.
    NoRoom {
        /// What the nearest needs, as far as is known (bytes).
        needs: Option<u64>,
        /// What is said.
        message: String,
    },
    /// An error of ours.
    Internal(String),
    /// Processes that have not found each other.
    Join(String),
    /// A file for which there is no room.
    Full(String),
    /// Processes that were started and have failed, with this exit code.
    Ended(u8, String),
}

impl Failure {
    /// One with an exit code.
    pub fn of_code(code: u8, message: String) -> Self {
        match code {
            1 => Self::Usage(message),
            2 => Self::Input(message),
            4 => Self::Join(message),
            7 => Self::Full(message),
            _ => Self::Internal(message),
        }
    }

    /// A file that cannot be written.
    pub fn unwritten(path: &Path, error: &io::Error) -> Self {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let message = format!("{}: cannot be written: {error}", path.display());
        match error.kind() {
            StorageFull | QuotaExceeded | FileTooLarge => Self::Full(message),
            _ => Self::Input(message),
        }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 1,
            Self::Input(_) | Self::NoRoom { .. } => 2,
            Self::Internal(_) => 3,
            Self::Join(_) => 4,
            Self::Full(_) => 7,
            Self::Ended(code, _) => *code,
        }
    }

    /// Programs that did not run to their end, made of this model.
    pub fn of_run(stage: &str, model: &Path, error: &RunError) -> Self {
        match error {
            RunError::Weight(..) => Self::file(model, error),
            RunError::Device(_) | RunError::Thread(..) => Self::Input(error.to_string()),
            error if error.is_of_input() => {
                Self::input("the model cannot be computed for what is given", error)
            }
            error => Self::internal(stage, error),
        }
    }

    /// Bad input at a place.
    pub fn input(place: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::Input(format!("{place}: {error}"))
    }

    /// What does not fit, at a place, and what it would need (bytes).
    pub fn no_room(place: impl fmt::Display, error: impl fmt::Display, needs: Option<u64>) -> Self {
        Self::NoRoom { needs, message: format!("{place}: {error}") }
    }

    /// The same of a place, where input is bad or there is no room.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        self.saying(|why| format!("{place}: {why}"))
    }

    /// The same in other words, where input is bad or there is no room.
    #[must_use]
    pub fn saying(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Input(message) => Self::Input(words(message)),
            Self::NoRoom { needs, message } => Self::NoRoom { needs, message: words(message) },
            other => other,
        }
    }

    /// Whether what was asked for is refused, where something else that is asked for may not be.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Input(_) | Self::NoRoom { .. })
    }

    /// Whether what was asked for does not fit.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::NoRoom { .. })
    }

    /// What would be needed on a device, as far as is known, where there is no room (bytes).
    pub fn needs(&self) -> Option<u64> {
        match self {
            Self::NoRoom { needs, .. } => *needs,
            _ => None,
        }
    }

    /// Bad input in a file.
    pub fn file(path: &Path, error: impl fmt::Display) -> Self {
        Self::input(path.display(), error)
    }

    /// An error of ours in a stage of the pipeline.
    pub fn internal(stage: &str, error: impl fmt::Display) -> Self {
        Self::Internal(format!("{stage}: {error}; this is an error of shardloom, not of its input"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message)
            | Self::Input(message)
            | Self::NoRoom { message, .. }
            | Self::Internal(message)
            | Self::Join(message)
            | Self::Full(message)
            | Self::Ended(_, message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}
