//! Conversion of elements, those that several share a byte in files included.

use planner_ir::{Binary, DType, Unary, ValueId};

use super::Result;
use crate::builder::Builder;
use crate::node::OnnxNode;
use crate::packed::Packed;
use crate::tensor;

/// What elements are converted to.
#[derive(Clone, Copy)]
pub(super) enum Target {
    Whole(DType),
    Packed(Packed),
}

impl Target {
    /// That of a number of the format.
    pub(super) fn numbered(n: &OnnxNode, number: i64) -> Result<Self> {
        let number = i32::try_from(number).unwrap_or(0);
        match Packed::of(number) {
            Some(packed) => Ok(Self::Packed(packed)),
            None => tensor::dtype(number).map(Self::Whole).map_err(|message| n.unsupported(message)),
        }
    }

    /// The elements of a value.
    pub(super) fn of(b: &Builder, x: ValueId) -> Self {
        b.packed(x).map_or_else(|| Self::Whole(b.dtype(x)), Self::Packed)
    }

    /// The elements in the graph.
    pub(super) fn dtype(self) -> DType {
        match self {
            Self::Whole(dtype) => dtype,
            Self::Packed(packed) => packed.dtype,
        }
    }

    /// The least and the largest number of those that say how they end; others are infinite.
    pub(super) fn range(self) -> Option<[f64; 2]> {
        let ends = match self {
            Self::Packed(packed) => packed.range(),
            Self::Whole(DType::F8E4M3FN) => [-448.0, 448.0],
            Self::Whole(DType::F8E4M3FNUZ) => [-240.0, 240.0],
            Self::Whole(DType::F8E5M2 | DType::F8E5M2FNUZ) => [-57344.0, 57344.0],
            Self::Whole(DType::I8) => [-128.0, 127.0],
            Self::Whole(DType::U8) => [0.0, 255.0],
            Self::Whole(DType::I16) => [-32768.0, 32767.0],
            Self::Whole(DType::U16) => [0.0, 65535.0],
            Self::Whole(_) => return None,
        };
        Some(ends)
    }
}

pub(super) fn cast(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let to = Target::numbered(n, n.required_int("to")?)?;
    converted(b, n.input(0)?, to, n.int("saturate") != Some(0))
}

pub(super) fn cast_like(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let to = Target::of(b, n.input(1)?);
    converted(b, n.input(0)?, to, n.int("saturate") != Some(0))
}

/// The elements of x as others; where these are floating-point numbers of 8 bits, at most the outermost
/// number if `saturate`.
pub(super) fn converted(b: &mut Builder, x: ValueId, to: Target, saturate: bool) -> Result<ValueId> {
    let made = match to {
        Target::Whole(dtype) if dtype.is_f8() && saturate => {
            let x = if b.dtype(x).is_float() { x } else { b.cast(x, DType::F32)? };
            let x = clamped(b, x, to)?;
            b.cast(x, dtype)?
        }
        Target::Whole(dtype) => b.cast(x, dtype)?,
        Target::Packed(packed) if packed.dtype.is_float() => fraction(b, x, packed)?,
        Target::Packed(packed) => {
            let whole = if b.dtype(x).is_float() { rounded(b, x)? } else { x };
            let low = b.cast(whole, packed.dtype)?;
            packed.wrapped(b, low)?
        }
    };
    if let Target::Packed(packed) = to {
        b.set_packed(made, Some(packed));
    }
    Ok(made)
}

/// Not beyond the outermost numbers of these elements.
pub(super) fn clamped(b: &mut Builder, x: ValueId, to: Target) -> Result<ValueId> {
    let Some([least, largest]) = to.range() else { return Ok(x) };
    let x = b.with_number(Binary::Max, x, least)?;
    b.with_number(Binary::Min, x, largest)
}

/// The nearest integers; of two, the one further from zero.
fn rounded(b: &mut Builder, x: ValueId) -> Result<ValueId> {
    let x = b.cast(x, DType::F32)?;
    let whole = b.cast(x, DType::I32)?;
    let part = b.cast(whole, DType::F32)?;
    let rest = b.sub(x, part)?;
    let twice = b.add(rest, rest)?;
    let more = b.cast(twice, DType::I32)?;
    b.add(whole, more)
}

/// The nearest numbers of 4 bits with a fraction, whose steps are 0.5 below 2, 1 below 4, and 2; what is
/// not a number is -0.
fn fraction(b: &mut Builder, x: ValueId, packed: Packed) -> Result<ValueId> {
    let x = b.cast(x, DType::F32)?;
    let kept = clamped(b, x, Target::Packed(packed))?;
    let size = b.unary(Unary::Abs, kept)?;
    let mut step = b.number(x, 0.5)?;
    for least in [2.0, 4.0] {
        let above = b.with_number(Binary::GreaterOrEqual, size, least)?;
        let wider = b.number(x, least / 2.0)?;
        step = b.select(above, wider, step)?;
    }
    let steps = b.div(kept, step)?;
    let steps = b.unary(Unary::Round, steps)?;
    let nearest = b.mul(steps, step)?;
    let is_none = b.unary(Unary::IsNan, x)?;
    let zero = b.number(x, -0.0)?;
    let nearest = b.select(is_none, zero, nearest)?;
    b.cast(nearest, packed.dtype)
}
