//! By which base queries and keys are rotated, told from the frequencies that a model's file has.

use std::f64::consts::PI;

/// The frequencies of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rotation {
    /// `base^(-2 i / size)` of the numbers of a head that are rotated.
    Powers {
        /// The base.
        base: f64,
    },
    /// The same with long waves stretched by a factor, as of Llama 3.1.
    Stretched {
        /// The base.
        base: f64,
        /// The factor.
        factor: f64,
    },
    /// Others.
    Otherwise,
}

/// How Llama 3.1 stretches: waves longer than this part of the tokens that it was trained with first, and not those
/// shorter than that one.
///
/// Source: transformers, `modeling_rope_utils.py`, `_compute_llama3_parameters`; Megatron-LM,
/// `megatron/core/models/common/embeddings/rotary_pos_embedding.py`, which has the same numbers and takes no others.
const LENGTH: f64 = 8192.0;
const LOW: f64 = 1.0;
const HIGH: f64 = 4.0;

/// How far frequencies in f32 may be from what they are said to be, relative to it.
const NEAR: f64 = 1e-4;

impl Rotation {
    /// That of frequencies; nothing if there are too few.
    pub fn of(frequencies: &[f64]) -> Option<Self> {
        let (&[first, second, ..], Some(&last)) = (frequencies, frequencies.last()) else { return None };
        let count = f64::from(u32::try_from(frequencies.len()).ok()?);
        let base = rounded(second.powf(-count));
        let powers: Vec<f64> = (0..frequencies.len()).map(|it| power(base, it, count)).collect();
        let factor = rounded(powers.last()? / last);
        let stretched = |power: &f64| {
            let turns = LENGTH * power / (2.0 * PI);
            let kept = ((turns - LOW) / (HIGH - LOW)).clamp(0.0, 1.0);
            power * (kept + (1.0 - kept) / factor)
        };
        let are = |expected: &mut dyn Iterator<Item = f64>| {
            frequencies.iter().zip(expected).all(|(found, it)| (found - it).abs() <= NEAR * it)
        };
        Some(match () {
            // Frameworks take whole numbers.
            () if !(first > 0.0 && last > 0.0) || base.fract() != 0.0 => Self::Otherwise,
            () if are(&mut powers.iter().copied()) => Self::Powers { base },
            () if are(&mut powers.iter().map(stretched)) => Self::Stretched { base, factor },
            () => Self::Otherwise,
        })
    }
}

fn power(base: f64, number: usize, count: f64) -> f64 {
    base.powf(-f64::from(u32::try_from(number).unwrap_or(u32::MAX)) / count)
}

/// A number to the four digits that frequencies in f32 tell.
fn rounded(number: f64) -> f64 {
    let unit = 10_f64.powf(number.abs().log10().floor() - 3.0);
    (number / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::Rotation;

    fn check(base: f64, stretch: impl Fn(f64) -> f64, expected: &str) {
        let frequency = |it: u32| stretch(base.powf(-f64::from(it) / 64.0));
        // As a file has them, in f32.
        let digits = |it: f64| format!("{it:.7e}").parse::<f64>().unwrap();
        let frequencies: Vec<f64> = (0..64).map(|it| digits(frequency(it))).collect();
        let found = match Rotation::of(&frequencies).unwrap() {
            Rotation::Powers { base } => format!("{base}"),
            Rotation::Stretched { base, factor } => format!("{base} by {factor}"),
            Rotation::Otherwise => "otherwise".to_owned(),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn bases_are_told_from_frequencies() {
        for base in [10_000.0, 500_000.0, 1_000_000.0, 150_000.0] {
            check(base, |it| it, &format!("{base}"));
        }
        let of_llama = |factor: f64| {
            move |frequency: f64| {
                let wave = 2.0 * std::f64::consts::PI / frequency;
                if wave < 2048.0 {
                    frequency
                } else if wave > 8192.0 {
                    frequency / factor
                } else {
                    let smooth = (8192.0 / wave - 1.0) / 3.0;
                    (1.0 - smooth) * frequency / factor + smooth * frequency
                }
            }
        };
        check(500_000.0, of_llama(8.0), "500000 by 8");
        check(500_000.0, of_llama(32.0), "500000 by 32");
        check(500_000.0, |it| if it < 0.01 { it / 40.0 } else { it }, "otherwise");
        check(10_000.0, |it| it / 4.0, "otherwise");
        assert_eq!(Rotation::of(&[1.0, 0.1]), Some(Rotation::Powers { base: 100.0 }));
        assert_eq!(Rotation::of(&[1.0]), None);
    }
}
