//! What `cvt` computes, by the names of its types.

use crate::bits::{double, extended, mask, of_single, short, single};
use crate::functions::Function;
use crate::numbers::{bf16, half, narrowed, of_bf16, of_half};

/// The function of a `cvt` whose name has these parts after it, if it is known.
pub(crate) fn conversion(parts: &[&str]) -> Option<Function> {
    let (types, ways) = (parts.get(parts.len().checked_sub(2)?..)?, &parts[..parts.len() - 2]);
    match types {
        [to, from] => wholes(ways, to, from).or_else(|| floats(&parts.join("."))),
        _ => None,
    }
}

/// A whole number and how long it is (bits).
fn whole(type_: &str) -> Option<(bool, u32)> {
    let width = match type_.get(1..)? {
        "8" => 8,
        "16" => 16,
        "32" => 32,
        "64" => 64,
        _ => return None,
    };
    match type_.get(..1)? {
        "s" => Some((true, width)),
        "u" => Some((false, width)),
        _ => None,
    }
}

/// Whole numbers to whole numbers: from a shorter one by its sign, to a shorter one its lower bits.
fn wholes(ways: &[&str], to: &str, from: &str) -> Option<Function> {
    let ((is_signed, width), (_, to)) = (whole(from)?, whole(to)?);
    if !ways.is_empty() {
        return None;
    }
    // What is shorter than its source has what fits; the register takes no more than that.
    Some(Function::One(match (is_signed, width.min(to)) {
        (true, 8) => |x| extended(x, 8),
        (true, 16) => |x| extended(x, 16),
        (true, 32) => |x| extended(x, 32),
        (false, 8) => |x| x & mask(8),
        (false, 16) => |x| x & mask(16),
        (false, 32) => |x| x & mask(32),
        _ => |x| x,
    }))
}

/// A number toward zero, or to the outermost one; what is no number to 0.
fn to_signed(number: f64, least: i64, most: i64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "casts of Rust end at the outermost numbers, as `cvt` does"
    )]
    let whole = number as i64;
    whole.clamp(least, most).cast_unsigned()
}

/// The same without a sign.
fn to_unsigned(number: f64, most: u64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of Rust end at the outermost numbers, as `cvt` does"
    )]
    let whole = number as u64;
    whole.min(most)
}

fn of_signed(bits: u64) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "rounded once, to the nearest")]
    let number = bits.cast_signed() as f32;
    number
}

fn of_unsigned(bits: u64) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "rounded once, to the nearest")]
    let number = bits as f32;
    number
}

fn double_of_signed(bits: u64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "rounded once, to the nearest")]
    let number = bits.cast_signed() as f64;
    number.to_bits()
}

fn double_of_unsigned(bits: u64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "rounded once, to the nearest")]
    let number = bits as f64;
    number.to_bits()
}

const LEAST: i64 = i32::MIN as i64;
const MOST: i64 = i32::MAX as i64;

fn floats(name: &str) -> Option<Function> {
    use Function::{One, Two};
    Some(match name {
        "f32.f16" => One(|x| of_single(of_half(short(x)))),
        "f32.bf16" => One(|x| of_single(of_bf16(short(x)))),
        "rn.f16.f32" => One(|x| half(single(x)).into()),
        "rn.bf16.f32" => One(|x| bf16(single(x)).into()),
        // The first is the upper one.
        "rn.f16x2.f32" => Two(|a, b| u64::from(half(single(a))) << 16 | u64::from(half(single(b)))),
        "rn.bf16x2.f32" => Two(|a, b| u64::from(bf16(single(a))) << 16 | u64::from(bf16(single(b)))),
        // To between 0 and 1, what is no number to 0.
        "sat.f32.f32" => One(|x| if single(x).is_nan() { 0 } else { of_single(single(x).clamp(0.0, 1.0)) }),
        "rzi.f32.f32" => One(|x| of_single(single(x).trunc())),
        "rni.f32.f32" => One(|x| of_single(single(x).round_ties_even())),
        "rmi.f32.f32" => One(|x| of_single(single(x).floor())),
        "rpi.f32.f32" => One(|x| of_single(single(x).ceil())),
        "rzi.f64.f64" => One(|x| double(x).trunc().to_bits()),
        "rni.f64.f64" => One(|x| double(x).round_ties_even().to_bits()),
        "rmi.f64.f64" => One(|x| double(x).floor().to_bits()),
        "rpi.f64.f64" => One(|x| double(x).ceil().to_bits()),
        "f64.f32" => One(|x| f64::from(single(x)).to_bits()),
        "rn.f32.f64" => One(|x| of_single(narrowed(double(x)))),
        "rn.f32.s16" => One(|x| of_single(of_signed(extended(x, 16)))),
        "rn.f32.u16" => One(|x| of_single(of_unsigned(x & mask(16)))),
        "rn.f32.u8" => One(|x| of_single(of_unsigned(x & mask(8)))),
        "rn.f32.s32" => One(|x| of_single(of_signed(extended(x, 32)))),
        "rn.f32.u32" => One(|x| of_single(of_unsigned(x & mask(32)))),
        "rn.f32.s64" => One(|x| of_single(of_signed(x))),
        "rn.f32.u64" => One(|x| of_single(of_unsigned(x))),
        "rn.f64.s32" => One(|x| double_of_signed(extended(x, 32))),
        "rn.f64.u32" => One(|x| double_of_unsigned(x & mask(32))),
        "rn.f64.s64" => One(double_of_signed),
        "rn.f64.u64" => One(double_of_unsigned),
        "rzi.s32.f32" => One(|x| to_signed(single(x).into(), LEAST, MOST)),
        "rni.s32.f32" => One(|x| to_signed(single(x).round_ties_even().into(), LEAST, MOST)),
        "rzi.u32.f32" => One(|x| to_unsigned(single(x).into(), u32::MAX.into())),
        "rzi.s64.f32" => One(|x| to_signed(single(x).into(), i64::MIN, i64::MAX)),
        "rzi.u64.f32" => One(|x| to_unsigned(single(x).into(), u64::MAX)),
        "rzi.s32.f64" => One(|x| to_signed(double(x), LEAST, MOST)),
        "rni.s32.f64" => One(|x| to_signed(double(x).round_ties_even(), LEAST, MOST)),
        "rzi.s64.f64" => One(|x| to_signed(double(x), i64::MIN, i64::MAX)),
        "rzi.u64.f64" => One(|x| to_unsigned(double(x), u64::MAX)),
        _ => return None,
    })
}
