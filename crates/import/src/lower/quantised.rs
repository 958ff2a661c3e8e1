//! Numbers as integers, or narrow floating-point numbers, times a scale.

use planner_ir::{Binary, Conv, DType, Op, Reduction, Unary, ValueId};

use super::conversion::{Target, clamped, converted};
use super::{Result, conv, dimension, linear};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// `(x - zero) * scale`; the product in f32.
pub(super) fn dequantize(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let along = Along::of(n);
    let to = match n.int("output_dtype").filter(|&number| number != 0) {
        Some(number) => Target::numbered(n, number)?,
        None => Target::of(b, scale),
    };
    let mut number = b.cast(x, DType::F32)?;
    if let Some(zero) = n.optional(2) {
        let zero = along.spread(b, n, zero, x)?;
        number = without(b, number, zero)?;
    }
    let scale = along.spread(b, n, scale, x)?;
    let scale = b.cast(scale, DType::F32)?;
    let y = b.mul(number, scale)?;
    converted(b, y, to, true)
}

/// `x / scale + zero`, rounded to the even one of two, and at most the outermost number.
pub(super) fn quantize(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let along = Along::of(n);
    let to = match (n.optional(2), n.int("output_dtype").filter(|&number| number != 0)) {
        (Some(zero), _) => Target::of(b, zero),
        (None, Some(number)) => Target::numbered(n, number)?,
        (None, None) => Target::Whole(DType::U8),
    };
    let wide = b.cast(x, DType::F32)?;
    let scale = along.spread(b, n, scale, x)?;
    let scale = b.cast(scale, DType::F32)?;
    let y = b.div(wide, scale)?;
    let zero = n.optional(2).map(|zero| along.spread(b, n, zero, x)).transpose()?;
    if to.dtype().is_float() {
        return converted(b, y, to, n.int("saturate") != Some(0));
    }
    rounded(b, y, zero, to)
}

/// A number of f32 rounded to the even one of two, plus a zero point, at most the outermost number.
fn rounded(b: &mut Builder, y: ValueId, zero: Option<ValueId>, to: Target) -> Result<ValueId> {
    let mut y = b.unary(Unary::Round, y)?;
    if let Some(zero) = zero {
        let zero = b.cast(zero, DType::F32)?;
        y = b.add(y, zero)?;
    }
    let y = clamped(b, y, to)?;
    converted(b, y, to, true)
}

/// x less its zero points, which are often none.
fn without(b: &mut Builder, x: ValueId, zero: ValueId) -> Result<ValueId> {
    if b.known(zero).is_some_and(|it| it.bytes().iter().all(|&byte| byte == 0)) {
        return Ok(x);
    }
    let zero = b.cast(zero, b.dtype(x))?;
    b.sub(x, zero)
}

/// Which elements share a scale.
struct Along {
    axis: i64,
    /// How many along the axis; 0 if all.
    block: u64,
}

impl Along {
    fn of(n: &OnnxNode) -> Self {
        let block = n.int("block_size").and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
        Self { axis: n.int("axis").unwrap_or(1), block }
    }

    /// Scales or zero points in a shape that is broadcast to x.
    fn spread(&self, b: &mut Builder, n: &OnnxNode, scale: ValueId, x: ValueId) -> Result<ValueId> {
        let (shape, given) = (b.shape(x)?, b.shape(scale)?);
        if b.elements(scale)? == 1 && self.block == 0 {
            return b.reshape(scale, &[]);
        }
        let dim = dimension(n, self.axis, shape.len())?;
        let misfit = || n.wrong(format!("scales or zero points of shape {given:?} for {shape:?}"));
        if self.block == 0 {
            if given != [shape[dim]] {
                return Err(misfit());
            }
            let mut one = vec![1; shape.len()];
            one[dim] = shape[dim];
            return b.reshape(scale, &one);
        }
        let mut blocks = shape.clone();
        blocks[dim] = shape[dim].div_ceil(self.block);
        if given != blocks {
            return Err(misfit());
        }
        let spread = b.unsqueeze(scale, &[dim + 1])?;
        let mut repeated = blocks.clone();
        repeated.insert(dim + 1, self.block);
        let spread = b.expand(spread, &repeated)?;
        let mut whole = blocks;
        whole[dim] = whole[dim].saturating_mul(self.block);
        let spread = b.reshape(spread, &whole)?;
        b.slice(spread, dim, 0, shape[dim])
    }
}

/// x as unsigned bytes between its extremes, and the scale and the zero point that are found for it.
pub(super) fn dynamic(b: &mut Builder, x: ValueId) -> Result<[ValueId; 3]> {
    let dims: Vec<usize> = (0..b.rank(x)).collect();
    let mut extreme = |reduction, binary| {
        let one = b.reduce(reduction, x, &dims)?;
        let one = b.reshape(one, &[])?;
        b.with_number(binary, one, 0.0)
    };
    let (low, high) = (extreme(Reduction::Min, Binary::Min)?, extreme(Reduction::Max, Binary::Max)?);
    let range = b.sub(high, low)?;
    let step = b.with_number(Binary::Div, range, 255.0)?;
    // Of zeros only, any scale will do.
    let is_zero = b.with_number(Binary::Equal, range, 0.0)?;
    let one = b.number(x, 1.0)?;
    let scale = b.select(is_zero, one, step)?;
    let below = b.unary(Unary::Neg, low)?;
    let zero = b.div(below, scale)?;
    let byte = Target::Whole(DType::U8);
    let zero = clamped(b, zero, byte)?;
    let zero = rounded(b, zero, None, byte)?;
    let y = b.div(x, scale)?;
    Ok([rounded(b, y, Some(zero), byte)?, scale, zero])
}

/// A convolution of integers less their zero points, in i32.
pub(super) fn conv_integer(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, w) = (n.input(0)?, n.input(1)?);
    convolved(b, n, [x, w], [n.optional(2), n.optional(3)])
}

/// What convolutions of integers less their zero points are; those of w may be one for each channel made.
fn convolved(
    b: &mut Builder,
    n: &OnnxNode,
    [x, w]: [ValueId; 2],
    zeros: [Option<ValueId>; 2],
) -> Result<ValueId> {
    let conv: Conv = conv::attributes(b, n, x, w)?;
    let mut operands = Vec::new();
    for (value, zero) in [x, w].into_iter().zip(zeros) {
        let wide = b.cast(value, DType::I32)?;
        operands.push(match zero {
            Some(zero) => {
                let zero = along_first(b, zero, value)?;
                without(b, wide, zero)?
            }
            None => wide,
        });
    }
    b.emit1(Op::Conv(conv), &operands)
}

/// One number, or one for each of the first dimension's elements.
fn along_first(b: &mut Builder, scale: ValueId, x: ValueId) -> Result<ValueId> {
    if b.elements(scale)? == 1 {
        return b.reshape(scale, &[]);
    }
    let mut shape = vec![1; b.rank(x)];
    shape[0] = b.elements(scale)?;
    b.reshape(scale, &shape)
}

/// A product of quantised matrices, quantised: a, its scale and zero point, b and its, those of the result.
pub(super) fn matmul(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let y = linear::integer_product(b, n, [n.input(0)?, n.input(3)?], [n.optional(2), n.optional(5)])?;
    let rows = linear::by_rows(b, n.input(1)?)?;
    let scale = product(b, rows, n.input(4)?)?;
    requantized(b, n, y, scale)
}

/// A convolution of quantised values, quantised: x, its scale and zero point, w and its, those of the
/// result, and a bias of i32 in the scale of the product.
pub(super) fn conv(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let mut y = convolved(b, n, [n.input(0)?, n.input(3)?], [n.optional(2), n.optional(5)])?;
    let by_channel = |b: &mut Builder, x: ValueId, y: ValueId| {
        let mut shape = vec![1; b.rank(y)];
        shape[1] = b.elements(x)?;
        b.reshape(x, &shape)
    };
    if let Some(bias) = n.optional(8) {
        let bias = by_channel(b, bias, y)?;
        y = b.add(y, bias)?;
    }
    let channels = by_channel(b, n.input(4)?, y)?;
    let scale = product(b, n.input(1)?, channels)?;
    requantized(b, n, y, scale)
}

fn product(b: &mut Builder, x: ValueId, y: ValueId) -> Result<ValueId> {
    let (x, y) = (b.cast(x, DType::F32)?, b.cast(y, DType::F32)?);
    b.mul(x, y)
}

/// Integers times a scale as numbers of the scale and the zero point of inputs 6 and 7.
fn requantized(b: &mut Builder, n: &OnnxNode, y: ValueId, scale: ValueId) -> Result<ValueId> {
    let zero = n.input(7)?;
    let to = Target::of(b, zero);
    let target = b.cast(n.input(6)?, DType::F32)?;
    let factor = b.div(scale, target)?;
    let y = b.cast(y, DType::F32)?;
    let y = b.mul(y, factor)?;
    rounded(b, y, Some(zero), to)
}

/// A product of numbers, quantised as they come, with quantised weights: ONNX Runtime's spelling of a
/// dynamically quantised product and its bias.
pub(super) fn dynamic_matmul(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let [x, scale, zero] = dynamic(b, n.input(0)?)?;
    let y = linear::integer_product(b, n, [x, n.input(1)?], [Some(zero), n.optional(3)])?;
    let scale = b.mul(scale, n.input(2)?)?;
    scaled(b, y, scale, n.optional(4))
}

/// A product of integers less their zero points, times the scales of both, plus a bias.
pub(super) fn matmul_to_float(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let y = linear::integer_product(b, n, [n.input(0)?, n.input(1)?], [n.optional(4), n.optional(5)])?;
    let rows = linear::by_rows(b, n.input(2)?)?;
    let scale = b.mul(rows, n.input(3)?)?;
    scaled(b, y, scale, n.optional(6))
}

fn scaled(b: &mut Builder, y: ValueId, scale: ValueId, bias: Option<ValueId>) -> Result<ValueId> {
    let y = b.cast(y, b.dtype(scale))?;
    let y = b.mul(y, scale)?;
    match bias {
        Some(bias) => b.add(y, bias),
        None => Ok(y),
    }
}
