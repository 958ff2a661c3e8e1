//! Numbers that look random, and are the same everywhere.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.

/// 2⁶⁴ by the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits that depend on a number alone: what `SplitMix64` makes of it.
#[must_use]
pub fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(STEP);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The generator `SplitMix64`, from its state on.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next bits.
    pub fn bits(&mut self) -> u64 {
        let bits = mixed(self.0);
        self.0 = self.0.wrapping_add(STEP);
        bits
    }
}
