//! A quantity together with where it comes from.

use std::fmt;

use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Ratio, Seconds};

/// A value and its source: a data sheet, a published measurement or a measurement of one's own.
///
/// There is no way to make one without a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Known<T> {
    /// The value.
    pub value: T,
    source: String,
}

impl<T> Known<T> {
    /// `value`, as `source` says; `None` if `source` is blank.
    pub fn new(value: T, source: &str) -> Option<Self> {
        let source = source.trim();
        (!source.is_empty()).then(|| Self { value, source: source.to_owned() })
    }

    /// Where the value was read or how it was measured.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// How many of something (a node's devices, its network adapters).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a number in a machine file can stand for.
pub trait Quantity: Copy {
    /// The unit in which files state it.
    const UNIT: &'static str;
    /// What a number must be to stand for it.
    const EXPECTED: &'static str;

    /// The quantity of this many units; `None` if the number is not as [`Self::EXPECTED`] says.
    fn from_number(number: f64) -> Option<Self>;

    /// How many units it is.
    fn number(self) -> f64;
}

const TIME: &str = "a finite number above 0 and at most 10";
const RATE: &str = "a finite number above 0 and at most 1e15";
const WORK_RATE: &str = "a finite number above 0 and at most 1e19";
const WORK: &str = "a finite number above 0";
const WHOLE: &str = "a whole number from 1 to 2^53";
const PART: &str = "a number above 0 and at most 1";

/// The largest number up to which every whole number is representable.
const EXACT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// The longest time that anything in a machine file takes (seconds).
const LONGEST: f64 = 10.0;
/// Beyond every link and every memory (bytes per second).
const FASTEST_LINK: f64 = 1e15;
/// Beyond every device (operations per second).
const FASTEST_DEVICE: f64 = 1e19;

fn positive(number: f64) -> Option<f64> {
    (number.is_finite() && number > 0.0).then_some(number)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the number is whole, positive and below 2^53"
)]
fn whole(number: f64) -> Option<u64> {
    let fits = positive(number).is_some_and(|n| n <= EXACT_LIMIT && n.fract() == 0.0);
    fits.then_some(number as u64)
}

impl Quantity for Seconds {
    const UNIT: &'static str = "s";
    const EXPECTED: &'static str = TIME;
    fn from_number(number: f64) -> Option<Self> {
        positive(number).filter(|it| *it <= LONGEST).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for BytesPerSecond {
    const UNIT: &'static str = "B/s";
    const EXPECTED: &'static str = RATE;
    fn from_number(number: f64) -> Option<Self> {
        positive(number).filter(|it| *it <= FASTEST_LINK).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for FlopsPerSecond {
    const UNIT: &'static str = "FLOP/s";
    const EXPECTED: &'static str = WORK_RATE;
    fn from_number(number: f64) -> Option<Self> {
        positive(number).filter(|it| *it <= FASTEST_DEVICE).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for crate::units::Flops {
    const UNIT: &'static str = "FLOP";
    const EXPECTED: &'static str = WORK;
    fn from_number(number: f64) -> Option<Self> {
        positive(number).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for Ratio {
    const UNIT: &'static str = "1";
    const EXPECTED: &'static str = PART;
    fn from_number(number: f64) -> Option<Self> {
        positive(number).filter(|part| *part <= 1.0).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for Bytes {
    const UNIT: &'static str = "B";
    const EXPECTED: &'static str = WHOLE;
    fn from_number(number: f64) -> Option<Self> {
        whole(number).map(Self)
    }
    fn number(self) -> f64 {
        crate::units::exact(self.0)
    }
}

impl Quantity for Count {
    const UNIT: &'static str = "count";
    const EXPECTED: &'static str = WHOLE;
    fn from_number(number: f64) -> Option<Self> {
        whole(number).map(Self)
    }
    fn number(self) -> f64 {
        crate::units::exact(self.0)
    }
}
