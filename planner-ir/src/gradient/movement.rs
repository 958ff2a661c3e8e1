//! Gradients of operations that move elements: the elements moved back, zeros elsewhere.

use super::{Emit, Gradients, NoGradient, Site};
use crate::data::{DType, Real};
use crate::graph::ValueId;
use crate::op::{Edge, Op, Scatter};

pub(super) fn reshape(site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, _, dy| {
        let shape = emit.type_of(site.operands[0]).shape;
        Ok(Some(emit.shaped(dy, &shape)))
    })
}

pub(super) fn transpose(permutation: &[usize], site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let mut inverse = vec![0; permutation.len()];
    for (to, &from) in permutation.iter().enumerate() {
        inverse[from] = to;
    }
    site.linear(emit, Op::Transpose { permutation: inverse })
}

pub(super) fn expand(site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, _, dy| {
        let shape = emit.type_of(site.operands[0]).shape;
        Ok(Some(emit.gathered(dy, &shape)))
    })
}

pub(super) fn concat(dim: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let mut first = vec![0];
    for operand in site.operands {
        let extent = emit.type_of(*operand).shape[dim];
        first.push(first[first.len() - 1] + extent);
    }
    site.each(emit, |emit, operand, dy| {
        let sizes = emit.type_of(site.operands[operand]).shape;
        let mut starts = vec![0; sizes.len()];
        starts[dim] = first[operand];
        let steps = vec![1; sizes.len()];
        Ok(Some(emit.one(Op::Slice { starts, steps, sizes }, &[dy])))
    })
}

pub(super) fn slice(starts: &[u64], steps: &[i64], site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, _, dy| {
        let shape = emit.type_of(site.operands[0]).shape;
        let mut gradient = dy;
        let mut starts = starts.to_vec();
        for dim in (0..shape.len()).filter(|&dim| steps[dim] != 1) {
            gradient = spread(emit, gradient, dim, [starts[dim], shape[dim]], steps[dim]);
            starts[dim] = 0;
        }
        let taken = emit.type_of(gradient).shape;
        let before: Vec<i64> = starts.iter().map(|&start| count(start)).collect();
        let after: Vec<i64> =
            (0..shape.len()).map(|dim| count(shape[dim]) - count(taken[dim]) - before[dim]).collect();
        if before.iter().chain(&after).all(|&it| it == 0) {
            return Ok(Some(gradient));
        }
        Ok(Some(emit.one(Op::Pad { before, after, edge: Edge::Constant(Real(0.0)) }, &[gradient])))
    })
}

/// Elements put at every `step`-th place from `start` along a dimension of that extent, zeros
/// elsewhere.
fn spread(emit: &mut Emit<'_>, value: ValueId, dim: usize, [start, extent]: [u64; 2], step: i64) -> ValueId {
    let type_ = emit.type_of(value);
    let length = type_.shape[dim];
    let [start, step] = [count(start), step].map(|it| Real(real(it)));
    let places = emit.one(Op::Iota { dtype: DType::I64, length, start, step }, &[]);
    let mut shape = vec![1; type_.shape.len()];
    shape[dim] = length;
    let places = emit.shaped(places, &shape);
    let places = emit.expanded(places, &type_.shape);
    let mut whole = type_;
    whole.shape[dim] = extent;
    let zeros = emit.filled(whole, 0.0);
    emit.one(Op::ScatterElements { dim, scatter: Scatter::Add }, &[zeros, places, value])
}

pub(super) fn pad(
    before: &[i64],
    after: &[i64],
    edge: Edge,
    site: &Site<'_>,
    emit: &mut Emit<'_>,
) -> Gradients {
    if !matches!(edge, Edge::Constant(_)) {
        return NoGradient::new("`pad` with elements of its operand has no gradient");
    }
    let negated = |counts: &[i64]| counts.iter().map(|it| -it).collect();
    let op = Op::Pad { before: negated(before), after: negated(after), edge: Edge::Constant(Real(0.0)) };
    site.linear(emit, op)
}

pub(super) fn gather(dim: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, operand, dy| {
        let extent = emit.type_of(site.operands[0]).shape[dim];
        let gradient = Op::GatherGradient { dim, extent };
        Ok((operand == 0).then(|| emit.one(gradient, &[site.operands[1], dy])))
    })
}

pub(super) fn gather_elements(dim: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    added_to_zeros(&Op::ScatterElements { dim, scatter: Scatter::Add }, site, emit)
}

pub(super) fn gather_nd(batch_dims: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    if batch_dims != 0 {
        return NoGradient::new(format!("`gather_nd` with {batch_dims} batch dimensions has no gradient"));
    }
    added_to_zeros(&Op::ScatterNd { scatter: Scatter::Add }, site, emit)
}

/// The gradient towards data of a look-up at indices, the second operand.
fn added_to_zeros(scatter: &Op, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, operand, dy| {
        if operand != 0 {
            return Ok(None);
        }
        let data = emit.type_of(site.operands[0]);
        let zeros = emit.filled(data, 0.0);
        Ok(Some(emit.one(scatter.clone(), &[zeros, site.operands[1], dy])))
    })
}

pub(super) fn scatter_elements(
    dim: usize,
    scatter: Scatter,
    site: &Site<'_>,
    emit: &mut Emit<'_>,
) -> Gradients {
    let replace = Op::ScatterElements { dim, scatter: Scatter::Replace };
    scattered(scatter, &replace, &Op::GatherElements { dim }, site, emit)
}

pub(super) fn scatter_nd(scatter: Scatter, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let replace = Op::ScatterNd { scatter: Scatter::Replace };
    scattered(scatter, &replace, &Op::GatherNd { batch_dims: 0 }, site, emit)
}

/// The gradients towards data (what was not replaced) and updates (what stands at the indices).
fn scattered(scatter: Scatter, replace: &Op, gather: &Op, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    if !matches!(scatter, Scatter::Add | Scatter::Replace) {
        return NoGradient::new("a scatter that multiplies, compares or writes in place has no gradient");
    }
    let indices = site.operands[1];
    site.each(emit, |emit, operand, dy| {
        Ok(match (operand, scatter) {
            (0, Scatter::Add) => Some(dy),
            (0, _) => {
                let updates = emit.type_of(site.operands[2]);
                let zeros = emit.filled(updates, 0.0);
                Some(emit.one(replace.clone(), &[dy, indices, zeros]))
            }
            (2, _) => Some(emit.one(gather.clone(), &[dy, indices])),
            _ => None,
        })
    })
}

pub(super) fn top_k(dim: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, _, dy| {
        let data = emit.type_of(site.operands[0]);
        let zeros = emit.filled(data, 0.0);
        let scatter = Op::ScatterElements { dim, scatter: Scatter::Add };
        Ok(Some(emit.one(scatter, &[zeros, site.results[1], dy])))
    })
}

fn count(it: u64) -> i64 {
    i64::try_from(it).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "no extent reaches 2^53")]
fn real(it: i64) -> f64 {
    it as f64
}
