//! What instructions compute that touch neither memory nor other lanes, by name.

use crate::bits::{double, extended, low, of_signed, of_single, short, signed, single};
use crate::numbers::{flushed, fused, fused_down, fused_toward_zero, fused_up, narrowed, power_of_2};

/// A function of the bits of registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    /// Of one.
    One(fn(u64) -> u64),
    /// Of two.
    Two(fn(u64, u64) -> u64),
    /// Of three.
    Three(fn(u64, u64, u64) -> u64),
    /// Of four.
    Four(fn(u64, u64, u64, u64) -> u64),
}

/// The function of that name, if it is known.
pub(crate) fn function(name: &str) -> Option<Function> {
    wholes(name).or_else(|| long_wholes(name)).or_else(|| bitwise(name)).or_else(|| floats(name))
}

/// Whole numbers of 16 and 32 bits.
fn wholes(name: &str) -> Option<Function> {
    use Function::{One, Three, Two};
    Some(match name {
        "add.s16" | "add.u16" => Two(|a, b| short(a).wrapping_add(short(b)).into()),
        "sub.s16" | "sub.u16" => Two(|a, b| short(a).wrapping_sub(short(b)).into()),
        "mul.lo.s16" | "mul.lo.u16" => Two(|a, b| short(a).wrapping_mul(short(b)).into()),
        "mul.wide.u16" => Two(|a, b| u64::from(short(a)) * u64::from(short(b))),
        "mul.wide.s16" => {
            Two(|a, b| of_signed(i32::from(short(a).cast_signed()) * i32::from(short(b).cast_signed())))
        }
        "min.u16" => Two(|a, b| short(a).min(short(b)).into()),
        "max.u16" => Two(|a, b| short(a).max(short(b)).into()),
        "min.s16" => Two(|a, b| short(a).cast_signed().min(short(b).cast_signed()).cast_unsigned().into()),
        "max.s16" => Two(|a, b| short(a).cast_signed().max(short(b).cast_signed()).cast_unsigned().into()),
        "add.s32" | "add.u32" => Two(|a, b| low(a).wrapping_add(low(b)).into()),
        "sub.s32" | "sub.u32" => Two(|a, b| low(a).wrapping_sub(low(b)).into()),
        "mul.lo.s32" | "mul.lo.u32" => Two(|a, b| low(a).wrapping_mul(low(b)).into()),
        "mul.hi.s32" => Two(|a, b| {
            let product = i64::from(signed(a)) * i64::from(signed(b));
            (product.cast_unsigned() >> 32) & 0xffff_ffff
        }),
        "mul.hi.u32" => Two(|a, b| (u64::from(low(a)) * u64::from(low(b))) >> 32),
        "mul.wide.s32" => Two(|a, b| (i64::from(signed(a)) * i64::from(signed(b))).cast_unsigned()),
        "mul.wide.u32" => Two(|a, b| u64::from(low(a)) * u64::from(low(b))),
        "mad.lo.s32" | "mad.lo.u32" => {
            Three(|a, b, c| low(a).wrapping_mul(low(b)).wrapping_add(low(c)).into())
        }
        "mad.wide.s32" => {
            Three(|a, b, c| (i64::from(signed(a)) * i64::from(signed(b))).cast_unsigned().wrapping_add(c))
        }
        "mad.wide.u32" => Three(|a, b, c| (u64::from(low(a)) * u64::from(low(b))).wrapping_add(c)),
        // Four products of bytes.
        "dp4a.u32.u32" => Three(|a, b, c| {
            let bytes = low(a).to_le_bytes().into_iter().zip(low(b).to_le_bytes());
            bytes.fold(low(c), |sum, (x, y)| sum.wrapping_add(u32::from(x) * u32::from(y))).into()
        }),
        // What a division by 0 gives is not said; it is this on GPUs.
        "div.u32" => Two(|a, b| low(a).checked_div(low(b)).unwrap_or(u32::MAX).into()),
        "div.s32" => {
            Two(|a, b| if low(b) == 0 { 0xffff_ffff } else { of_signed(signed(a).wrapping_div(signed(b))) })
        }
        "rem.u32" => Two(|a, b| low(a).checked_rem(low(b)).unwrap_or(u32::MAX).into()),
        "rem.s32" => {
            Two(|a, b| if low(b) == 0 { 0xffff_ffff } else { of_signed(signed(a).wrapping_rem(signed(b))) })
        }
        "min.s32" => Two(|a, b| of_signed(signed(a).min(signed(b)))),
        "max.s32" => Two(|a, b| of_signed(signed(a).max(signed(b)))),
        "min.u32" => Two(|a, b| low(a).min(low(b)).into()),
        "max.u32" => Two(|a, b| low(a).max(low(b)).into()),
        "neg.s32" => One(|a| low(a).wrapping_neg().into()),
        "abs.s32" => One(|a| of_signed(signed(a).wrapping_abs())),
        "popc.b32" => One(|a| low(a).count_ones().into()),
        "clz.b32" => One(|a| low(a).leading_zeros().into()),
        "brev.b32" => One(|a| low(a).reverse_bits().into()),
        _ => return None,
    })
}

/// Whole numbers of 64 bits.
fn long_wholes(name: &str) -> Option<Function> {
    use Function::{One, Three, Two};
    Some(match name {
        "add.s64" | "add.u64" => Two(u64::wrapping_add),
        "sub.s64" | "sub.u64" => Two(u64::wrapping_sub),
        "mul.lo.s64" | "mul.lo.u64" => Two(u64::wrapping_mul),
        "mul.hi.u64" => Two(|a, b| u64::try_from((u128::from(a) * u128::from(b)) >> 64).unwrap_or(0)),
        "mad.lo.s64" | "mad.lo.u64" => Three(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "div.u64" => Two(|a, b| a.checked_div(b).unwrap_or(u64::MAX)),
        "div.s64" => {
            Two(
                |a, b| {
                    if b == 0 {
                        u64::MAX
                    } else {
                        a.cast_signed().wrapping_div(b.cast_signed()).cast_unsigned()
                    }
                },
            )
        }
        "rem.u64" => Two(|a, b| a.checked_rem(b).unwrap_or(u64::MAX)),
        "rem.s64" => {
            Two(
                |a, b| {
                    if b == 0 {
                        u64::MAX
                    } else {
                        a.cast_signed().wrapping_rem(b.cast_signed()).cast_unsigned()
                    }
                },
            )
        }
        "min.s64" => Two(|a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned()),
        "max.s64" => Two(|a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()),
        "min.u64" => Two(u64::min),
        "max.u64" => Two(u64::max),
        "neg.s64" => One(u64::wrapping_neg),
        "abs.s64" => One(|a| a.cast_signed().wrapping_abs().cast_unsigned()),
        "clz.b64" => One(|a| a.leading_zeros().into()),
        _ => return None,
    })
}

/// How far bits are moved: at most as many as there are.
fn distance(bits: u64, width: u32) -> u32 {
    low(bits).min(width)
}

fn bitwise(name: &str) -> Option<Function> {
    use Function::{Four, One, Three, Two};
    Some(match name {
        "and.b16" | "and.b32" | "and.b64" => Two(|a, b| a & b),
        "or.b16" | "or.b32" | "or.b64" => Two(|a, b| a | b),
        "xor.b16" | "xor.b32" | "xor.b64" => Two(|a, b| a ^ b),
        "not.b16" | "not.b32" | "not.b64" => One(|a| !a),
        "shl.b16" | "shl.b32" | "shl.b64" => Two(|a, b| a.checked_shl(distance(b, 64)).unwrap_or(0)),
        "shr.u16" | "shr.b16" => Two(|a, b| u64::from(short(a)).checked_shr(distance(b, 64)).unwrap_or(0)),
        "shr.u32" | "shr.b32" => Two(|a, b| u64::from(low(a)).checked_shr(distance(b, 64)).unwrap_or(0)),
        "shr.u64" | "shr.b64" => Two(|a, b| a.checked_shr(distance(b, 64)).unwrap_or(0)),
        "shr.s16" => Two(|a, b| (extended(a, 16).cast_signed() >> distance(b, 63)).cast_unsigned()),
        "shr.s32" => Two(|a, b| (extended(a, 32).cast_signed() >> distance(b, 63)).cast_unsigned()),
        "shr.s64" => Two(|a, b| (a.cast_signed() >> distance(b, 63)).cast_unsigned()),
        "shf.l.wrap.b32" => Three(|a, b, c| ((b << 32 | u64::from(low(a))) << (c & 31)) >> 32),
        "shf.r.wrap.b32" => Three(|a, b, c| (b << 32 | u64::from(low(a))) >> (c & 31)),
        "bfi.b32" => Four(|a, b, start, length| {
            let (start, length) = (start & 0xff, length & 0xff);
            let field = if length >= 32 { 0xffff_ffff } else { (1_u64 << length) - 1 };
            if start >= 32 { b } else { b & !(field << start) | (a & field) << start }
        }),
        "bfi.b64" => Four(|a, b, start, length| {
            let (start, length) = (start & 0xff, length & 0xff);
            let field = if length >= 64 { u64::MAX } else { (1_u64 << length) - 1 };
            if start >= 64 { b } else { b & !(field << start) | (a & field) << start }
        }),
        "bfe.u32" => Three(|a, start, length| {
            let (start, length) = (start & 0xff, length & 0xff);
            let field = if length >= 32 { 0xffff_ffff } else { (1_u64 << length) - 1 };
            if start >= 32 { 0 } else { u64::from(low(a)) >> start & field }
        }),
        "prmt.b32" => Three(|a, b, selection| {
            let bytes = b << 32 | u64::from(low(a));
            (0..4).fold(0, |made, number| {
                let one = selection >> (4 * number) & 0xf;
                let byte = bytes >> (8 * (one & 7)) & 0xff;
                let sign = if byte & 0x80 == 0 { 0 } else { 0xff };
                made | (if one & 8 == 0 { byte } else { sign }) << (8 * number)
            })
        }),
        _ => return None,
    })
}

/// Floating-point numbers of 32 and 64 bits.
fn floats(name: &str) -> Option<Function> {
    use Function::{One, Three, Two};
    Some(match name {
        "add.f32" | "add.rn.f32" => Two(|a, b| of_single(single(a) + single(b))),
        "sub.f32" | "sub.rn.f32" => Two(|a, b| of_single(single(a) - single(b))),
        "mul.f32" | "mul.rn.f32" => Two(|a, b| of_single(single(a) * single(b))),
        "add.ftz.f32" => Two(|a, b| of_single(flushed(flushed(single(a)) + flushed(single(b))))),
        "mul.ftz.f32" => Two(|a, b| of_single(flushed(flushed(single(a)) * flushed(single(b))))),
        "fma.rn.f32" => Three(|a, b, c| of_single(fused(single(a), single(b), single(c)))),
        "fma.rm.f32" => Three(|a, b, c| of_single(fused_down(single(a), single(b), single(c)))),
        "fma.rp.f32" => Three(|a, b, c| of_single(fused_up(single(a), single(b), single(c)))),
        "add.rz.f32" => Two(|a, b| of_single(fused_toward_zero(single(a), 1.0, single(b)))),
        "fma.rz.f32" => Three(|a, b, c| of_single(fused_toward_zero(single(a), single(b), single(c)))),
        "div.rn.f32" | "div.full.f32" | "div.approx.f32" => Two(|a, b| of_single(single(a) / single(b))),
        "rcp.rn.f32" | "rcp.approx.f32" => One(|a| of_single(1.0 / single(a))),
        "rcp.approx.ftz.f32" => One(|a| of_single(flushed(1.0 / flushed(single(a))))),
        "sqrt.rn.f32" | "sqrt.approx.f32" => One(|a| of_single(single(a).sqrt())),
        "rsqrt.approx.f32" => One(|a| of_single(narrowed(1.0 / f64::from(single(a)).sqrt()))),
        "rsqrt.approx.ftz.f32" => {
            One(|a| of_single(flushed(narrowed(1.0 / f64::from(flushed(single(a))).sqrt()))))
        }
        "ex2.approx.f32" => One(|a| of_single(power_of_2(single(a)))),
        "ex2.approx.ftz.f32" => One(|a| of_single(flushed(power_of_2(flushed(single(a)))))),
        "lg2.approx.f32" => One(|a| of_single(narrowed(f64::from(single(a)).log2()))),
        "lg2.approx.ftz.f32" => One(|a| of_single(narrowed(f64::from(flushed(single(a))).log2()))),
        "sin.approx.f32" => One(|a| of_single(narrowed(f64::from(single(a)).sin()))),
        "cos.approx.f32" => One(|a| of_single(narrowed(f64::from(single(a)).cos()))),
        "tanh.approx.f32" => One(|a| of_single(narrowed(f64::from(single(a)).tanh()))),
        "neg.f32" => One(|a| a ^ 0x8000_0000),
        "abs.f32" => One(|a| a & 0x7fff_ffff),
        // The sign of the first, the size of the second.
        "copysign.f32" => Two(|a, b| a & 0x8000_0000 | b & 0x7fff_ffff),
        // Of a number and none it is the number.
        "min.f32" => Two(|a, b| of_single(single(a).min(single(b)))),
        "max.f32" => Two(|a, b| of_single(single(a).max(single(b)))),
        "add.f64" | "add.rn.f64" => Two(|a, b| (double(a) + double(b)).to_bits()),
        "sub.f64" | "sub.rn.f64" => Two(|a, b| (double(a) - double(b)).to_bits()),
        "mul.f64" | "mul.rn.f64" => Two(|a, b| (double(a) * double(b)).to_bits()),
        "fma.rn.f64" => Three(|a, b, c| double(a).mul_add(double(b), double(c)).to_bits()),
        "div.rn.f64" => Two(|a, b| (double(a) / double(b)).to_bits()),
        "rcp.rn.f64" => One(|a| (1.0 / double(a)).to_bits()),
        "sqrt.rn.f64" => One(|a| double(a).sqrt().to_bits()),
        "neg.f64" => One(|a| a ^ 1 << 63),
        "abs.f64" => One(|a| a & !(1 << 63)),
        "copysign.f64" => Two(|a, b| a & 1 << 63 | b & !(1 << 63)),
        "min.f64" => Two(|a, b| double(a).min(double(b)).to_bits()),
        "max.f64" => Two(|a, b| double(a).max(double(b)).to_bits()),
        _ => return None,
    })
}
