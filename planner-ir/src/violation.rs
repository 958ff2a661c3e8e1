//! Rules that are broken, as every verifier reports them.

use std::fmt;

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation<P = String> {
    /// Where.
    pub place: P,
    /// The rule's name.
    pub rule: &'static str,
    /// What is, and what should be.
    pub message: String,
}

/// Every rule that is broken, in the order in which they were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations<P = String>(pub Vec<Violation<P>>);

impl<P: fmt::Display> fmt::Display for Violation<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.rule)
    }
}

impl<P: fmt::Display> fmt::Display for Violations<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{violation}")?;
        }
        Ok(())
    }
}

impl<P: fmt::Debug + fmt::Display> std::error::Error for Violations<P> {}

impl Violations {
    /// Reports a rule that is broken at a place.
    pub fn add(&mut self, rule: &'static str, place: impl fmt::Display, message: impl fmt::Display) {
        self.0.push(Violation { place: place.to_string(), rule, message: message.to_string() });
    }
}

impl<P> Violations<P> {
    /// This, where no rule is broken.
    pub fn none_or<T>(self, it: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(it) } else { Err(self) }
    }
}
