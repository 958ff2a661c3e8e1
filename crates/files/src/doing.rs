//! What is being done, for who waits: words, and, where it is counted, which of how many it is.

use std::fmt;

/// Is told what is being done, also by threads that work beside each other.
pub type Say<'a> = dyn Fn(Doing) + Sync + 'a;

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doing {
    /// Of several that are done one after another what they have in common: `step`, `measuring`.
    pub what: String,
    /// Which of them this is.
    pub place: Option<Place>,
    /// What this one is.
    pub which: Option<String>,
}

/// Which one of several is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 1 on.
    pub number: usize,
    /// How many there are.
    pub of: Of,
}

/// How many are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// So many.
    All(usize),
    /// So many, or fewer where the rest turns out to be of no use.
    AtMost(usize),
}

impl Of {
    /// How many.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::All(count) | Self::AtMost(count) => count,
        }
    }
}

impl Doing {
    /// One of several that are done one after another.
    #[must_use]
    pub fn one(what: impl Into<String>, number: usize, of: Of) -> Self {
        Self { what: what.into(), place: Some(Place { number, of }), which: None }
    }

    /// The same, with what this one is.
    #[must_use]
    pub fn named(self, which: impl Into<String>) -> Self {
        Self { which: Some(which.into()), ..self }
    }

    /// The same as a part of something else.
    #[must_use]
    pub fn within(self, whole: &str) -> Self {
        Self { what: format!("{whole}: {}", self.what), ..self }
    }
}

impl From<String> for Doing {
    fn from(what: String) -> Self {
        Self { what, place: None, which: None }
    }
}

impl From<&str> for Doing {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match self.place {
            Some(Place { number, of: Of::All(count) }) => write!(f, " {number} of {count}")?,
            Some(Place { number, of: Of::AtMost(count) }) => write!(f, " {number} of at most {count}")?,
            None => {}
        }
        self.which.as_ref().map_or(Ok(()), |which| write!(f, ": {which}"))
    }
}
