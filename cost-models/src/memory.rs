//! The bytes that a device holds, by kind.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::units::Bytes;

/// What bytes are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Parameters, and what training keeps for each: gradients and optimizer states.
    Weights,
    /// Values between operations.
    Activations,
    /// Values on their way between devices.
    Communication,
    /// What the driver and the communication library take.
    Reserved,
}

/// Bytes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Parameters, gradients and optimizer states (bytes).
    pub weights: Bytes,
    /// Values between operations (bytes).
    pub activations: Bytes,
    /// Values on their way between devices (bytes).
    pub communication: Bytes,
    /// Driver and communication library (bytes).
    pub reserved: Bytes,
}

impl MemoryKind {
    /// Every kind, in the order of text.
    pub const ALL: [Self; 4] = [Self::Weights, Self::Activations, Self::Communication, Self::Reserved];

    /// The kind in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Activations => "activations",
            Self::Communication => "communication buffers",
            Self::Reserved => "reserved",
        }
    }
}

impl Memory {
    /// The bytes of one kind.
    #[must_use]
    pub fn of(&self, kind: MemoryKind) -> Bytes {
        match kind {
            MemoryKind::Weights => self.weights,
            MemoryKind::Activations => self.activations,
            MemoryKind::Communication => self.communication,
            MemoryKind::Reserved => self.reserved,
        }
    }

    /// The bytes of all kinds.
    #[must_use]
    pub fn total(&self) -> Bytes {
        MemoryKind::ALL.iter().map(|&kind| self.of(kind)).sum()
    }
}

impl Add for Memory {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            weights: self.weights + other.weights,
            activations: self.activations + other.activations,
            communication: self.communication + other.communication,
            reserved: self.reserved + other.reserved,
        }
    }
}

impl AddAssign for Memory {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Add::add)
    }
}

/// `80 GB = 60 GB weights + 20 GB activations`; kinds of which there is nothing are left out.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.total())?;
        let held = MemoryKind::ALL.into_iter().filter(|&kind| self.of(kind) > Bytes::ZERO);
        for (place, kind) in held.enumerate() {
            let sign = if place == 0 { "=" } else { "+" };
            write!(f, " {sign} {} {}", self.of(kind), kind.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
