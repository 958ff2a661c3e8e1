//! A quantity together with where it comes from.

use std::fmt;
use std::ops::RangeInclusive;

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

const TIME: &str = "a number from 1e-13 to 10";
const RATE: &str = "a number from 1e6 to 1e15";
const WORK_RATE: &str = "a number from 1e6 to 1e19";
const WORK: &str = "a finite number above 0";
const WHOLE: &str = "a whole number from 1 to 2^53";
const PART: &str = "a number from 1e-4 to 1";

/// The largest number up to which every whole number is representable.
const EXACT_LIMIT: f64 = 9_007_199_254_740_992.0;

/// What a time in a machine file may be (seconds): light goes a thirtieth of a millimetre in the
/// least, far less than the way across a chip, and nobody waits for a message as long as the most.
const TIMES: RangeInclusive<f64> = 1e-13..=10.0;
/// What a rate may be (bytes per second). The slowest Ethernet over twisted pairs carries 1.25e6
/// (IEEE 802.3i, 1990: 10 Mb/s), and every memory is faster; no memory of a chip reaches the most.
const RATES: RangeInclusive<f64> = 1e6..=1e15;
/// What a device may compute (operations per second). The Cray-1 of 1976 has 1.6e8 at its peak
/// (R. M. Russell, "The CRAY-1 computer system", CACM 21(1), 1978); a processor of one MHz that
/// emulates what it lacks is below the least. No single device reaches the most.
const WORK_RATES: RangeInclusive<f64> = 1e6..=1e19;
/// What a part may be: of a peak of which less than one in ten thousand is reached, the number is
/// not the peak of that device.
const PARTS: RangeInclusive<f64> = 1e-4..=1.0;

/// A number in a range; none if it is not, or is no number.
fn within(number: f64, range: &RangeInclusive<f64>) -> Option<f64> {
    range.contains(&number).then_some(number)
}

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
        within(number, &TIMES).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for BytesPerSecond {
    const UNIT: &'static str = "B/s";
    const EXPECTED: &'static str = RATE;
    fn from_number(number: f64) -> Option<Self> {
        within(number, &RATES).map(Self)
    }
    fn number(self) -> f64 {
        self.0
    }
}

impl Quantity for FlopsPerSecond {
    const UNIT: &'static str = "FLOP/s";
    const EXPECTED: &'static str = WORK_RATE;
    fn from_number(number: f64) -> Option<Self> {
        within(number, &WORK_RATES).map(Self)
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
        within(number, &PARTS).map(Self)
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
