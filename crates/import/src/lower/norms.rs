//! Normalisations, softmax and dropout.

use planner_ir::{Binary, DType, Op, Real, Reduction, Unary, ValueId};

use super::{Outputs, Result, dimension, dimensions, float, is_set, only, outputs};
use crate::builder::Builder;
use crate::node::OnnxNode;

/// Along one dimension; before opset 13 along that and all later ones together.
fn softmax_like(b: &mut Builder, n: &OnnxNode, op: fn(usize) -> Op) -> Result<ValueId> {
    let x = n.input(0)?;
    let rank = b.rank(x);
    if n.opset >= 13 {
        let dim = dimension(n, n.int("axis").unwrap_or(-1), rank)?;
        return b.emit1(op(dim), &[x]);
    }
    let dim = dimension(n, n.int("axis").unwrap_or(1), rank)?;
    if dim + 1 == rank {
        return b.emit1(op(dim), &[x]);
    }
    let shape = b.shape(x)?;
    let flat = b.reshape(x, &[shape[..dim].iter().product(), shape[dim..].iter().product()])?;
    let y = b.emit1(op(1), &[flat])?;
    b.reshape(y, &shape)
}

pub(super) fn softmax(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    softmax_like(b, n, |dim| Op::Softmax { dim })
}

pub(super) fn log_softmax(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    softmax_like(b, n, |dim| Op::LogSoftmax { dim })
}

/// How many trailing dimensions are normalised.
fn trailing(b: &Builder, n: &OnnxNode, x: ValueId) -> Result<usize> {
    let rank = b.rank(x);
    Ok(rank - dimension(n, n.int("axis").unwrap_or(-1), rank)?)
}

/// Normalised x, and where they are used its mean and the inverse of its standard deviation.
pub(super) fn layer_norm(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let x = n.input(0)?;
    let dims = trailing(b, n, x)?;
    let epsilon = float(n, "epsilon", 1e-5);
    let y = scaled_norm(b, x, (n.input(1)?, n.optional(2)), dims, epsilon)?;
    if !n.wants(1) && !n.wants(2) {
        return only(n, y);
    }
    let (mean, deviation) = moments(b, x, dims, epsilon)?;
    outputs(n, [Some(y), Some(mean), Some(deviation)])
}

/// The mean and the inverse standard deviation over the last dimensions, in f32 at least.
pub(super) fn moments(b: &mut Builder, x: ValueId, dims: usize, epsilon: f64) -> Result<(ValueId, ValueId)> {
    let rank = b.rank(x);
    let last: Vec<_> = (rank - dims..rank).collect();
    let wide = if b.dtype(x) == DType::F64 { DType::F64 } else { DType::F32 };
    let x = b.cast(x, wide)?;
    let mean = b.reduce(Reduction::Mean, x, &last)?;
    let centred = b.sub(x, mean)?;
    let square = b.mul(centred, centred)?;
    let variance = b.reduce(Reduction::Mean, square, &last)?;
    let variance = b.with_number(Binary::Add, variance, epsilon)?;
    let deviation = b.unary(Unary::Sqrt, variance)?;
    Ok((mean, b.unary(Unary::Reciprocal, deviation)?))
}

/// A layer norm whose scale and bias have any element type.
pub(super) fn scaled_norm(
    b: &mut Builder,
    x: ValueId,
    parameters: (ValueId, Option<ValueId>),
    dims: usize,
    epsilon: f64,
) -> Result<ValueId> {
    let (scale, bias) = parameters;
    let dtype = b.dtype(scale);
    let same = b.cast(scale, b.dtype(x))?;
    let mut operands = vec![x, same];
    if let Some(bias) = bias {
        operands.push(b.cast(bias, b.dtype(x))?);
    }
    let y = b.emit1(Op::LayerNorm { dims, epsilon: Real(epsilon) }, &operands)?;
    b.cast(y, dtype)
}

/// `RMSNormalization` and ONNX Runtime's `SimplifiedLayerNormalization`; the result has the
/// element type of the scale.
pub(super) fn rms_norm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let dims = trailing(b, n, x)?;
    let y = scaled_rms(b, x, n.input(1)?, dims, float(n, "epsilon", 1e-5))?;
    if n.optional(2).is_some() {
        return Err(n.unsupported("a bias"));
    }
    Ok(y)
}

pub(super) fn scaled_rms(
    b: &mut Builder,
    x: ValueId,
    scale: ValueId,
    dims: usize,
    epsilon: f64,
) -> Result<ValueId> {
    let dtype = b.dtype(scale);
    let same = b.cast(scale, b.dtype(x))?;
    let y = b.emit1(Op::RmsNorm { dims, epsilon: Real(epsilon) }, &[x, same])?;
    b.cast(y, dtype)
}

pub(super) fn instance_norm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let op = Op::InstanceNorm { epsilon: Real(float(n, "epsilon", 1e-5)) };
    b.emit1(op, &[n.input(0)?, n.input(1)?, n.input(2)?])
}

/// Instance normalisation of groups of channels, then the scale and bias of each channel, or of
/// each group before opset 21.
pub(super) fn group_norm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let shape = b.shape(x)?;
    let groups = u64::try_from(n.required_int("num_groups")?).unwrap_or(0);
    if shape.len() < 2 || groups == 0 || !shape[1].is_multiple_of(groups) {
        return Err(n.wrong(format!("{groups} groups of shape {shape:?}")));
    }
    let rest = shape[1] / groups * shape[2..].iter().product::<u64>();
    let grouped = b.reshape(x, &[shape[0], groups, rest])?;
    let op = Op::InstanceNorm { epsilon: Real(float(n, "epsilon", 1e-5)) };
    if n.opset < 21 && b.shape(scale)? == [groups] {
        let y = b.emit1(op, &[grouped, scale, bias])?;
        return b.reshape(y, &shape);
    }
    let dtype = b.dtype(x);
    let (one, zero) = (b.filled(dtype, [groups], 1.0)?, b.filled(dtype, [groups], 0.0)?);
    let y = b.emit1(op, &[grouped, one, zero])?;
    let y = b.reshape(y, &shape)?;
    let scale = for_channels(b, scale, y)?;
    let y = b.mul(y, scale)?;
    let bias = for_channels(b, bias, y)?;
    b.add(y, bias)
}

/// One number for each channel, so that it broadcasts to x.
fn for_channels(b: &mut Builder, numbers: ValueId, x: ValueId) -> Result<ValueId> {
    let mut shape = vec![1; b.rank(x) - 1];
    shape[0] = b.elements(numbers)?;
    b.reshape(numbers, &shape)
}

/// `(x - mean) / sqrt(variance + epsilon) scale + bias`, each a number for a channel; in training
/// with the moments of the batch, and the running moments are results.
pub(super) fn batch_norm(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let x = n.input(0)?;
    let rank = b.rank(x);
    if rank < 2 {
        return Err(n.wrong("an operand without channels"));
    }
    let training = is_set(n, "training_mode");
    let (mut mean, mut variance) = (n.input(3)?, n.input(4)?);
    let mut running = [None, None];
    if training {
        let rest: Vec<_> = (0..rank).filter(|&dim| dim != 1).collect();
        let batch_mean = b.reduce(Reduction::Mean, x, &rest)?;
        let centred = b.sub(x, batch_mean)?;
        let square = b.mul(centred, centred)?;
        let batch_variance = b.reduce(Reduction::Mean, square, &rest)?;
        let momentum = float(n, "momentum", 0.9);
        running = [
            Some(blended(b, mean, batch_mean, momentum)?),
            Some(blended(b, variance, batch_variance, momentum)?),
        ];
        (mean, variance) = (batch_mean, batch_variance);
    }
    let dtype = b.dtype(x);
    let channel = |b: &mut Builder, numbers: ValueId| {
        let numbers = b.cast(numbers, dtype)?;
        for_channels(b, numbers, x)
    };
    let (mean, variance) = (channel(b, mean)?, channel(b, variance)?);
    let (scale, bias) = (channel(b, n.input(1)?)?, channel(b, n.input(2)?)?);
    let variance = b.with_number(Binary::Add, variance, float(n, "epsilon", 1e-5))?;
    let deviation = b.unary(Unary::Sqrt, variance)?;
    let centred = b.sub(x, mean)?;
    let y = b.div(centred, deviation)?;
    let y = b.mul(y, scale)?;
    let y = b.add(y, bias)?;
    outputs(n, [Some(y), running[0], running[1]])
}

/// `momentum old + (1 - momentum) new`.
fn blended(b: &mut Builder, old: ValueId, new: ValueId, momentum: f64) -> Result<ValueId> {
    let new = b.reshape(new, &b.shape(old)?)?;
    let new = b.cast(new, b.dtype(old))?;
    let new = b.with_number(Binary::Mul, new, 1.0 - momentum)?;
    let old = b.with_number(Binary::Mul, old, momentum)?;
    b.add(old, new)
}

/// x divided by its L1 or L2 norm along a dimension; 0 where that is 0.
pub(super) fn lp_norm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    let x = n.input(0)?;
    let dim = dimension(n, n.int("axis").unwrap_or(-1), b.rank(x))?;
    let norm = match n.int("p").unwrap_or(2) {
        1 => {
            let size = b.unary(Unary::Abs, x)?;
            b.reduce(Reduction::Sum, size, &[dim])?
        }
        2 => {
            let square = b.mul(x, x)?;
            let sum = b.reduce(Reduction::Sum, square, &[dim])?;
            b.unary(Unary::Sqrt, sum)?
        }
        p => return Err(n.unsupported(format!("an L{p} norm"))),
    };
    let quotient = b.div(x, norm)?;
    let none = b.with_number(Binary::Equal, norm, 0.0)?;
    let zero = b.number(x, 0.0)?;
    b.select(none, zero, quotient)
}

/// Mean 0 and variance 1 over the axes.
pub(super) fn mean_variance_norm(b: &mut Builder, n: &OnnxNode) -> Result<ValueId> {
    const EPSILON: f64 = 1e-9;
    let x = n.input(0)?;
    let axes = n.ints("axes").unwrap_or(&[0, 2, 3]);
    let dims = dimensions(n, axes, b.rank(x))?;
    let mean = b.reduce(Reduction::Mean, x, &dims)?;
    let centred = b.sub(x, mean)?;
    let square = b.mul(centred, centred)?;
    let variance = b.reduce(Reduction::Mean, square, &dims)?;
    let deviation = b.unary(Unary::Sqrt, variance)?;
    let deviation = b.with_number(Binary::Add, deviation, EPSILON)?;
    b.div(centred, deviation)
}

/// x itself unless it is trained; and which elements are kept.
///
/// A node without a seed has one made of its name.
pub(super) fn dropout(b: &mut Builder, n: &OnnxNode) -> Outputs {
    let x = n.input(0)?;
    let ratio = match n.optional(1) {
        Some(ratio) => b.real(ratio)?,
        None => float(n, "ratio", 0.5),
    };
    let training = match n.optional(2) {
        Some(training) => b.real(training)? > 0.5,
        None => false,
    };
    if training && ratio > 0.0 {
        let seed = match n.int("seed") {
            Some(seed) => u64::from_le_bytes(seed.to_le_bytes()),
            None => name_hash(n.name),
        };
        let results = b.emit(Op::Dropout { ratio: Real(ratio), seed }, &[x])?;
        return outputs(n, results.into_iter().map(Some));
    }
    let mask = match n.wants(1) {
        true => Some(b.filled(DType::Bool, b.shape(x)?, 1.0)?),
        false => None,
    };
    outputs(n, [Some(x), mask])
}

/// A number that tells names apart.
///
/// Source: Fowler, Noll, Vo, "FNV hash", variant 1a of 64 bits.
fn name_hash(name: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    name.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
