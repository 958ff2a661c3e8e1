//! Quantities that cannot be mixed up.
//!
//! Only operators that mean something exist: `Bytes / BytesPerSecond` is `Seconds`, and
//! `Bytes + Seconds` does not compile. Text uses decimal prefixes.

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A duration (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

/// An amount of memory or of data on a link (bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Floating-point operations; a multiply-add is two.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Flops(pub f64);

/// How fast data moves (bytes per second).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct BytesPerSecond(pub f64);

/// How fast a device computes (floating-point operations per second).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct FlopsPerSecond(pub f64);

/// A part of something, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Ratio(pub f64);

/// `count` as a factor in a formula.
///
/// Exact up to 2⁵³; beyond, rounded to the nearest representable number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts above 2^53 are rounded by less than 2e-16 of themselves, which no price shows"
)]
#[must_use]
pub fn exact(count: u64) -> f64 {
    count as f64
}

impl Seconds {
    /// No time.
    pub const ZERO: Self = Self(0.0);

    /// A total order, for sorting and comparing.
    #[must_use]
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }

    /// The longer of two durations.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if self.total_cmp(&other).is_lt() { other } else { self }
    }

    /// The shorter of two durations.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.total_cmp(&self).is_lt() { other } else { self }
    }
}

impl BytesPerSecond {
    /// A total order, for sorting and comparing.
    #[must_use]
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }

    /// The lower of two rates.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.total_cmp(&self).is_lt() { other } else { self }
    }
}

impl FlopsPerSecond {
    /// A total order, for sorting and comparing.
    #[must_use]
    pub fn total_cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// What is left after taking `other` away; nothing if `other` is more.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Seconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Seconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// The difference of two times; negative if the second is longer.
impl Sub for Seconds {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Seconds {
    fn sum<I: Iterator<Item = Self>>(durations: I) -> Self {
        durations.fold(Self::ZERO, Add::add)
    }
}

impl Mul<Seconds> for f64 {
    type Output = Seconds;
    fn mul(self, duration: Seconds) -> Seconds {
        Seconds(self * duration.0)
    }
}

/// How many times one duration is the other.
impl Div for Seconds {
    type Output = f64;
    fn div(self, other: Self) -> f64 {
        self.0 / other.0
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl Mul<Bytes> for u64 {
    type Output = Bytes;
    fn mul(self, amount: Bytes) -> Bytes {
        Bytes(self * amount.0)
    }
}

impl Div<BytesPerSecond> for Bytes {
    type Output = Seconds;
    fn div(self, rate: BytesPerSecond) -> Seconds {
        Seconds(exact(self.0) / rate.0)
    }
}

impl Div<Seconds> for Bytes {
    type Output = BytesPerSecond;
    fn div(self, duration: Seconds) -> BytesPerSecond {
        BytesPerSecond(exact(self.0) / duration.0)
    }
}

impl Add for Flops {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sum for Flops {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

impl Mul<Flops> for f64 {
    type Output = Flops;
    fn mul(self, work: Flops) -> Flops {
        Flops(self * work.0)
    }
}

impl Div<FlopsPerSecond> for Flops {
    type Output = Seconds;
    fn div(self, rate: FlopsPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}

impl Div<Seconds> for Flops {
    type Output = FlopsPerSecond;
    fn div(self, duration: Seconds) -> FlopsPerSecond {
        FlopsPerSecond(self.0 / duration.0)
    }
}

impl Add for BytesPerSecond {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Mul<BytesPerSecond> for f64 {
    type Output = BytesPerSecond;
    fn mul(self, rate: BytesPerSecond) -> BytesPerSecond {
        BytesPerSecond(self * rate.0)
    }
}

impl Mul<BytesPerSecond> for Ratio {
    type Output = BytesPerSecond;
    fn mul(self, rate: BytesPerSecond) -> BytesPerSecond {
        self.0 * rate
    }
}

impl Mul<FlopsPerSecond> for Ratio {
    type Output = FlopsPerSecond;
    fn mul(self, rate: FlopsPerSecond) -> FlopsPerSecond {
        FlopsPerSecond(self.0 * rate.0)
    }
}

impl Mul for Ratio {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }
}

/// Decimal prefixes with their factors, ascending.
const PREFIXES: [(f64, &str); 10] = [
    (1e-9, "n"),
    (1e-6, "µ"),
    (1e-3, "m"),
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
    (1e18, "E"),
];

/// Writes `value` with three significant digits and the prefix that leaves 1 to 999.
fn write_prefixed(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    if value == 0.0 || !value.is_finite() {
        return write!(f, "{value} {unit}");
    }
    // A value that three digits round up to 1000 takes the next prefix.
    const ROUNDS_UP: f64 = 999.5;
    let last = PREFIXES.len() - 1;
    let fitting = PREFIXES.iter().position(|(factor, _)| value.abs() / factor < ROUNDS_UP);
    let (factor, prefix) = PREFIXES[fitting.unwrap_or(last)];
    let scaled = value / factor;
    let decimals = match scaled.abs() {
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    let digits = format!("{scaled:.decimals$}");
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => &digits,
    };
    f.pad(&format!("{digits} {prefix}{unit}"))
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_prefixed(f, self.0, "s")
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_prefixed(f, exact(self.0), "B")
    }
}

impl fmt::Display for Flops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_prefixed(f, self.0, "FLOP")
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_prefixed(f, self.0, "B/s")
    }
}

impl fmt::Display for FlopsPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_prefixed(f, self.0, "FLOP/s")
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests;
