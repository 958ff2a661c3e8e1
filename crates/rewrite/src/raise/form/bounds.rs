//! Between which numbers an element lies, whatever a program is given.

use planner_ir::{Binary, DType, Unary};

/// Numbers that an element may be.
///
/// Invariant: `least <= most`, neither is no number, and a zero has no sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::raise) struct Bounds {
    pub(in crate::raise) least: f64,
    pub(in crate::raise) most: f64,
    /// Whether an element is one of these two, and nothing between.
    pub(in crate::raise) ends: bool,
}

/// What a 16-bit number is made of: bits of its fraction, the exponent of its smallest normal
/// number, and from which number on it is infinite: half way from the largest finite one to the next
/// power of two.
const F16: (i32, i32, f64) = (10, -14, 65520.0);
const BF16: (i32, i32, f64) = (7, -126, 3.396_177_529_230_46e38);
/// Integers up to this are exact in an f64.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Bounds {
    /// One number; `None` if it is none.
    pub(in crate::raise) fn one(value: f64) -> Option<Self> {
        Self::between(value, value)
    }

    pub(in crate::raise) fn between(least: f64, most: f64) -> Option<Self> {
        (least <= most).then_some(Self { least: least + 0.0, most: most + 0.0, ends: least >= most })
    }

    /// One of two numbers.
    pub(in crate::raise) fn either(least: f64, most: f64) -> Option<Self> {
        Some(Self { ends: true, ..Self::between(least, most)? })
    }

    /// Whether an element is one of these, the lower of which is given first.
    pub(in crate::raise) fn either_of(self, low: f64, high: f64) -> bool {
        let is = |it: f64| it.total_cmp(&low).is_eq() || it.total_cmp(&high).is_eq();
        (self.ends || self.known().is_some()) && is(self.least) && is(self.most)
    }

    /// The same numbers, of which an element is the least or the most if that is so.
    fn with_ends(self, ends: bool) -> Self {
        Self { ends: ends || self.ends, ..self }
    }

    /// What an element of that type may be; `None` if it may be no number.
    pub(in crate::raise) fn any(dtype: DType) -> Option<Self> {
        let signed = |bits: i32| Self::between(-(2f64.powi(bits - 1)), 2f64.powi(bits - 1));
        let unsigned = |bits: i32| Self::between(0.0, 2f64.powi(bits));
        match dtype {
            DType::F64 | DType::F32 | DType::F16 | DType::BF16 => None,
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => None,
            DType::I64 => signed(64),
            DType::I32 => signed(32),
            DType::I16 => signed(16),
            DType::I8 => signed(8),
            DType::U64 => unsigned(64),
            DType::U32 => unsigned(32),
            DType::U16 => unsigned(16),
            DType::U8 => unsigned(8),
            DType::Bool => Self::either(0.0, 1.0),
        }
    }

    /// The number, if there is one.
    pub(in crate::raise) fn known(self) -> Option<f64> {
        (self.least >= self.most).then_some(self.least)
    }

    fn is(self, truth: bool) -> bool {
        self.known() == Some(f64::from(u8::from(truth)))
    }

    fn of_truth(known: Option<bool>) -> Option<Self> {
        known.map_or(Self::any(DType::Bool), |truth| Self::one(f64::from(u8::from(truth))))
    }

    /// As elements of that type: rounded, infinite where they are too large; of an integer too
    /// large to be one, any.
    fn stored(self, dtype: DType) -> Option<Self> {
        let Self { least, most, ends } = self;
        let stored = match dtype {
            DType::F64 => Some(self),
            DType::F32 => Self::between(single(least), single(most)),
            DType::BF16 => Self::between(narrow(least, BF16), narrow(most, BF16)),
            DType::F16 => Self::between(narrow(least, F16), narrow(most, F16)),
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => None,
            DType::Bool => Self::of_truth(match () {
                () if least > 0.0 || most < 0.0 => Some(true),
                () if self.known() == Some(0.0) => Some(false),
                () => None,
            }),
            _ => {
                let all = Self::any(dtype)?;
                let fits = least.abs().max(most.abs()) <= EXACT && least >= all.least && most < all.most;
                if !fits {
                    return Some(all);
                }
                Self::between(least.trunc(), most.trunc())
            }
        };
        stored.map(|it| it.with_ends(ends))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
fn single(number: f64) -> f64 {
    f64::from(number as f32)
}

/// The nearest number of a 16-bit type, to an even one from half way: rounded as a binary32 first, in
/// which such numbers are computed.
fn narrow(number: f64, (fraction, smallest, infinite): (i32, i32, f64)) -> f64 {
    let number = single(number);
    match () {
        () if number == 0.0 || !number.is_finite() => number,
        () if number.abs() >= infinite => f64::INFINITY.copysign(number),
        () => {
            let exponent = i32::try_from(number.to_bits() >> 52 & 0x7FF).unwrap_or(0) - 1023;
            let unit = 2f64.powi(exponent.max(smallest) - fraction);
            (number / unit).round_ties_even() * unit
        }
    }
}

/// How far a number that is added to one of that type may lie from 0 without a change.
pub(in crate::raise) fn absorbed(number: f64, dtype: DType) -> f64 {
    let bits = match dtype {
        DType::F16 => 10,
        DType::BF16 => 7,
        DType::F32 => 23,
        _ => 52,
    };
    let exponent = i32::try_from(number.to_bits() >> 52 & 0x7FF).unwrap_or(0) - 1023;
    2f64.powi(exponent - bits - 1)
}

/// What a conversion makes.
pub(in crate::raise) fn cast(dtype: DType, x: Option<Bounds>) -> Option<Bounds> {
    x.map_or_else(|| Bounds::any(dtype), |x| x.stored(dtype))
}

/// What a function makes of an element; the result is of that type.
pub(in crate::raise) fn unary(function: Unary, dtype: DType, x: Option<Bounds>) -> Option<Bounds> {
    let Some(Bounds { least, most, ends }) = x else { return Bounds::any(dtype) };
    match function {
        Unary::Not => Some(Bounds::between(1.0 - most, 1.0 - least)?.with_ends(ends)),
        Unary::Neg => Bounds::between(-most, -least)?.with_ends(ends).stored(dtype),
        Unary::Abs if least >= 0.0 => x,
        Unary::Abs if most <= 0.0 => Bounds::between(-most, -least)?.with_ends(ends).stored(dtype),
        Unary::Abs => Bounds::between(0.0, most.max(-least))?.stored(dtype),
        Unary::IsNan => Bounds::of_truth(Some(false)),
        _ => Bounds::any(dtype),
    }
}

/// What a function makes of two elements; the result is of that type.
pub(in crate::raise) fn binary(
    function: Binary,
    dtype: DType,
    a: Option<Bounds>,
    b: Option<Bounds>,
) -> Option<Bounds> {
    let (Some(a), Some(b)) = (a, b) else { return Bounds::any(dtype) };
    let less = || decided(a.most < b.least, a.least >= b.most);
    let at_most = || decided(a.most <= b.least, a.least > b.most);
    // What is computed of one of two numbers, and of a known one, is one of two numbers.
    let ends = (a.ends && b.known().is_some()) || (b.ends && a.known().is_some());
    let kept = |it: Bounds| it.with_ends(ends);
    match function {
        Binary::And | Binary::Min => {
            Bounds::between(a.least.min(b.least), a.most.min(b.most)).map(kept).map(|it| of(dtype, it))
        }
        Binary::Or | Binary::Max => {
            Bounds::between(a.least.max(b.least), a.most.max(b.most)).map(kept).map(|it| of(dtype, it))
        }
        Binary::Add => sum(a, b, dtype, ends),
        Binary::Sub => sum(a, Bounds { least: -b.most, most: -b.least, ends: b.ends }, dtype, ends),
        Binary::Mul => product(a, b, dtype, ends),
        Binary::Less => Bounds::of_truth(less()),
        Binary::LessOrEqual => Bounds::of_truth(at_most()),
        Binary::Greater => Bounds::of_truth(at_most().map(|it| !it)),
        Binary::GreaterOrEqual => Bounds::of_truth(less().map(|it| !it)),
        Binary::Xor => Bounds::of_truth(a.known().zip(b.known()).map(|(a, b)| (a > 0.0) != (b > 0.0))),
        Binary::Equal => {
            let apart = a.most < b.least || b.most < a.least;
            Bounds::of_truth(decided(a.known().is_some() && a.known() == b.known(), apart))
        }
        _ => Bounds::any(dtype),
    }
}

/// What one of two is; the result is of that type.
pub(in crate::raise) fn select(
    dtype: DType,
    condition: Option<Bounds>,
    a: Option<Bounds>,
    b: Option<Bounds>,
) -> Option<Bounds> {
    match condition {
        Some(condition) if condition.is(true) => a,
        Some(condition) if condition.is(false) => b,
        _ => match (a, b) {
            (Some(a), Some(b)) => {
                let hull = Bounds::between(a.least.min(b.least), a.most.max(b.most))?;
                let at_end = |it: f64| it <= hull.least || it >= hull.most;
                let ends = a.ends && b.ends && [a.least, a.most, b.least, b.most].into_iter().all(at_end);
                Some(hull.with_ends(ends))
            }
            _ => Bounds::any(dtype),
        },
    }
}

/// A truth value is one of two.
fn of(dtype: DType, it: Bounds) -> Bounds {
    it.with_ends(dtype == DType::Bool)
}

fn decided(yes: bool, no: bool) -> Option<bool> {
    if yes || no { Some(yes) } else { None }
}

/// Infinities of both signs have no sum.
fn sum(a: Bounds, b: Bounds, dtype: DType, ends: bool) -> Option<Bounds> {
    let opposite = |it: f64, other: f64| it.is_infinite() && other.is_infinite() && it * other < 0.0;
    if opposite(a.least, b.most) || opposite(a.most, b.least) {
        return Bounds::any(dtype);
    }
    Bounds::between(a.least + b.least, a.most + b.most)?.with_ends(ends).stored(dtype)
}

/// An infinity times zero is no number.
fn product(a: Bounds, b: Bounds, dtype: DType, ends: bool) -> Option<Bounds> {
    let infinite = |it: Bounds| it.least.is_infinite() || it.most.is_infinite();
    let zero = |it: Bounds| it.least <= 0.0 && it.most >= 0.0;
    if (infinite(a) && zero(b)) || (infinite(b) && zero(a)) {
        return Bounds::any(dtype);
    }
    let all = [a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most];
    let (least, most) =
        (all.into_iter().fold(f64::INFINITY, f64::min), all.into_iter().fold(f64::NEG_INFINITY, f64::max));
    Bounds::between(least, most)?.with_ends(ends).stored(dtype)
}
