//! A time as a sum of named terms.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::units::Seconds;

/// A time and what it is made of.
///
/// Terms stand in the order in which their names were first added; a name occurs once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    terms: Vec<Term>,
}

/// A part of a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// What takes the time.
    pub name: String,
    /// How long it takes (seconds).
    pub time: Seconds,
}

impl Estimate {
    /// No time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The estimate that has one term.
    #[must_use]
    pub fn term(name: &str, time: Seconds) -> Self {
        Self { terms: vec![Term { name: name.to_owned(), time }] }
    }

    /// Adds time to the term called `name`, after all others if there is none yet.
    pub fn add_term(&mut self, name: &str, time: Seconds) {
        match self.terms.iter_mut().find(|term| term.name == name) {
            Some(term) => term.time += time,
            None => self.terms.push(Term { name: name.to_owned(), time }),
        }
    }

    /// The terms.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The time of the term called `name`; zero if there is none.
    #[must_use]
    pub fn of(&self, name: &str) -> Seconds {
        self.terms.iter().find(|term| term.name == name).map_or(Seconds::ZERO, |term| term.time)
    }

    /// The sum of the terms.
    #[must_use]
    pub fn total(&self) -> Seconds {
        self.terms.iter().map(|term| term.time).sum()
    }

    /// The estimate of doing the same `count` times.
    #[must_use]
    pub fn times(mut self, count: f64) -> Self {
        for term in &mut self.terms {
            term.time = count * term.time;
        }
        self
    }
}

impl Add for Estimate {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Estimate {
    fn add_assign(&mut self, other: Self) {
        for term in other.terms {
            self.add_term(&term.name, term.time);
        }
    }
}

impl Sum for Estimate {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// The total, then a line for each term with its part of the total.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PERCENT: f64 = 100.0;
        let total = self.total();
        let longest = self.terms.iter().map(|term| term.name.chars().count()).max().unwrap_or(0);
        write!(f, "{total}")?;
        for Term { name, time } in &self.terms {
            let part = if total == Seconds::ZERO { 0.0 } else { PERCENT * (*time / total) };
            let time = time.to_string();
            write!(f, "\n  {name:longest$}  {time:>7}  {part:>5.1} %")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
