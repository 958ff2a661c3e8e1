//! What ends a command, and its exit code.

use std::fmt;
use std::path::Path;

/// Why a command did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Arguments that do not make sense together.
    Usage(String),
    /// Bad input, or a plan that was rejected.
    Input(String),
    /// An error of ours.
    Internal(String),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 1,
            Self::Input(_) => 2,
            Self::Internal(_) => 3,
        }
    }

    /// Bad input at a place.
    pub fn input(place: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::Input(format!("{place}: {error}"))
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
            Self::Usage(message) | Self::Input(message) | Self::Internal(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Failure {}
