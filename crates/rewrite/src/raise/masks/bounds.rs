//! Between which numbers an element lies, whatever a program is given.

use planner_ir::{Binary, DType, Unary};

/// Numbers that an element may be.
///
/// Invariant: `least <= most`, neither is no number, and a zero has no sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) least: f64,
    pub(super) most: f64,
}

/// How far the conversion to a 16-bit number may carry a number, relative to it.
const COARSE: f64 = 1.0 / 128.0;
/// From which numbers on a binary16 is infinite, and the upper half of a binary32: half way from the
/// largest finite one to the next power of two.
const F16_ENDS: f64 = 65520.0;
const BF16_ENDS: f64 = 3.396_177_529_230_46e38;
/// Integers up to this are exact in an f64.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Bounds {
    /// One number; `None` if it is none.
    pub(super) fn one(value: f64) -> Option<Self> {
        Self::between(value, value)
    }

    fn between(least: f64, most: f64) -> Option<Self> {
        (least <= most).then_some(Self { least: least + 0.0, most: most + 0.0 })
    }

    /// What an element of that type may be; `None` if it may be no number.
    pub(super) fn any(dtype: DType) -> Option<Self> {
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
            DType::Bool => Self::between(0.0, 1.0),
        }
    }

    /// The number, if there is one.
    pub(super) fn known(self) -> Option<f64> {
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
        let Self { least, most } = self;
        #[expect(clippy::cast_possible_truncation, reason = "rounded on purpose")]
        let single = |it: f64| f64::from(it as f32);
        match dtype {
            DType::F64 => Some(self),
            DType::F32 => Self::between(single(least), single(most)),
            DType::BF16 | DType::F16 => {
                let ends = if dtype == DType::F16 { F16_ENDS } else { BF16_ENDS };
                let apart = |it: f64, way: f64| match () {
                    () if it == 0.0 || it.is_infinite() => it,
                    () if it.abs() >= ends => f64::INFINITY.copysign(it),
                    () => it + way * COARSE * it.abs(),
                };
                Self::between(apart(least, -1.0), apart(most, 1.0))
            }
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => None,
            DType::Bool => Self::of_truth(match () {
                () if least > 0.0 || most < 0.0 => Some(true),
                () if self.known() == Some(0.0) => Some(false),
                () => None,
            }),
            _ => {
                let all = Self::any(dtype)?;
                let fits = least.abs().max(most.abs()) <= EXACT && least >= all.least && most < all.most;
                if fits { Self::between(least.trunc(), most.trunc()) } else { Some(all) }
            }
        }
    }
}

/// What a conversion makes.
pub(super) fn cast(dtype: DType, x: Option<Bounds>) -> Option<Bounds> {
    x.map_or_else(|| Bounds::any(dtype), |x| x.stored(dtype))
}

/// What a function makes of an element; the result is of that type.
pub(super) fn unary(function: Unary, dtype: DType, x: Option<Bounds>) -> Option<Bounds> {
    let Some(Bounds { least, most }) = x else { return Bounds::any(dtype) };
    match function {
        Unary::Not => Bounds::between(1.0 - most, 1.0 - least),
        Unary::Neg => Bounds::between(-most, -least)?.stored(dtype),
        Unary::IsNan => Bounds::of_truth(Some(false)),
        _ => Bounds::any(dtype),
    }
}

/// What a function makes of two elements; the result is of that type.
pub(super) fn binary(function: Binary, dtype: DType, a: Option<Bounds>, b: Option<Bounds>) -> Option<Bounds> {
    let (Some(a), Some(b)) = (a, b) else { return Bounds::any(dtype) };
    let less = || decided(a.most < b.least, a.least >= b.most);
    let at_most = || decided(a.most <= b.least, a.least > b.most);
    match function {
        Binary::And => Bounds::between(a.least.min(b.least), a.most.min(b.most)),
        Binary::Or => Bounds::between(a.least.max(b.least), a.most.max(b.most)),
        Binary::Min => Bounds::between(a.least.min(b.least), a.most.min(b.most)),
        Binary::Max => Bounds::between(a.least.max(b.least), a.most.max(b.most)),
        Binary::Add => sum(a, b, dtype),
        Binary::Sub => sum(a, Bounds { least: -b.most, most: -b.least }, dtype),
        Binary::Mul => product(a, b, dtype),
        Binary::Less => Bounds::of_truth(less()),
        Binary::LessOrEqual => Bounds::of_truth(at_most()),
        Binary::Greater => Bounds::of_truth(at_most().map(|it| !it)),
        Binary::GreaterOrEqual => Bounds::of_truth(less().map(|it| !it)),
        Binary::Equal => {
            let apart = a.most < b.least || b.most < a.least;
            Bounds::of_truth(decided(a.known().is_some() && a.known() == b.known(), apart))
        }
        _ => Bounds::any(dtype),
    }
}

/// What one of two is; the result is of that type.
pub(super) fn select(
    dtype: DType,
    condition: Option<Bounds>,
    a: Option<Bounds>,
    b: Option<Bounds>,
) -> Option<Bounds> {
    match condition {
        Some(condition) if condition.is(true) => a,
        Some(condition) if condition.is(false) => b,
        _ => match (a, b) {
            (Some(a), Some(b)) => Bounds::between(a.least.min(b.least), a.most.max(b.most)),
            _ => Bounds::any(dtype),
        },
    }
}

fn decided(yes: bool, no: bool) -> Option<bool> {
    if yes || no { Some(yes) } else { None }
}

/// Infinities of both signs have no sum.
fn sum(a: Bounds, b: Bounds, dtype: DType) -> Option<Bounds> {
    let opposite = |it: f64, other: f64| it.is_infinite() && other.is_infinite() && it * other < 0.0;
    if opposite(a.least, b.most) || opposite(a.most, b.least) {
        return Bounds::any(dtype);
    }
    Bounds::between(a.least + b.least, a.most + b.most)?.stored(dtype)
}

/// An infinity times zero is no number.
fn product(a: Bounds, b: Bounds, dtype: DType) -> Option<Bounds> {
    let infinite = |it: Bounds| it.least.is_infinite() || it.most.is_infinite();
    let zero = |it: Bounds| it.least <= 0.0 && it.most >= 0.0;
    if (infinite(a) && zero(b)) || (infinite(b) && zero(a)) {
        return Bounds::any(dtype);
    }
    let all = [a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most];
    let (least, most) =
        (all.into_iter().fold(f64::INFINITY, f64::min), all.into_iter().fold(f64::NEG_INFINITY, f64::max));
    Bounds::between(least, most)?.stored(dtype)
}
