//! The loops of contractions, attention, convolutions and experts.

use super::nest::{Dims, Index, Nest, repeated};
use super::{LoopId, Role};
use crate::data::Type;
use crate::op::{Attention, Contract, Conv, Label};

/// A loop for each label: summed if the result lacks it.
pub(super) fn contract_dims(nest: &mut Nest, contract: &Contract, operands: &[Type]) -> (Index, Index) {
    let mut known: Vec<(Label, Vec<LoopId>)> = Vec::new();
    let mut list = |nest: &mut Nest, labels: &[Label], shape: &[u64]| -> Dims {
        let mut dim = |(it, label): (usize, &Label)| {
            if let Some((_, dim)) = known.iter().find(|(known, _)| known == label) {
                return dim.clone();
            }
            let role = if contract.result.contains(label) { Role::Map } else { Role::Sum };
            let dim = nest.dim(shape[it], role);
            known.push((*label, dim.clone()));
            dim
        };
        labels.iter().enumerate().map(&mut dim).collect()
    };
    let left = list(nest, &contract.left, &operands[0].shape);
    let right = list(nest, &contract.right, &operands[1].shape);
    let result = list(nest, &contract.result, &[]);
    let mut from = vec![left, right];
    // What the sum is added to is indexed as the sum is.
    from.resize(operands.len(), result.clone());
    (from, vec![result])
}

/// Queries `[b, g r, s, d]`, keys `[b, g, t, d]`, values `[b, g, t, e]`, result `[b, g r, s, e]`,
/// statistics `[b, g r, s, 2]`, whose pairs every iteration makes; masks, documents and sinks are repeated to the
/// scores.
///
/// The keys are merged: of each block of them the statistics tell what its part of a row weighs.
pub(super) fn attention_dims(nest: &mut Nest, attention: &Attention, operands: &[Type]) -> (Index, Index) {
    let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
    let batch = nest.dim(q[0], Role::Map);
    let groups = nest.dim(k[1], Role::Map);
    let per_group = nest.dim(q[1] / k[1], Role::Map);
    let queries = nest.dim(q[2], Role::Map);
    let keys = nest.dim(k[2], Role::Merge);
    let size = nest.dim(q[3], Role::Whole);
    let value_size = nest.dim(v[3], Role::Map);
    let heads: Vec<LoopId> = groups.iter().chain(&per_group).copied().collect();
    let mut index = vec![
        vec![batch.clone(), heads.clone(), queries.clone(), size.clone()],
        vec![batch.clone(), groups.clone(), keys.clone(), size],
        vec![batch.clone(), groups, keys.clone(), value_size.clone()],
    ];
    let scores = [batch.clone(), heads.clone(), queries.clone(), keys];
    index.extend(operands[3..].iter().map(|it| repeated(&it.shape, &scores)));
    let mut results = vec![vec![batch.clone(), heads.clone(), queries.clone(), value_size]];
    if attention.statistics {
        results.push(vec![batch, heads, queries, vec![]]);
    }
    (index, results)
}

/// `x: [n, g c, ..]`, `w: [g m, c, ..]`, `y: [n, g m, ..]`.
pub(super) fn conv_dims(nest: &mut Nest, conv: &Conv, operands: &[Type], result: &[u64]) -> (Index, Index) {
    let (x, w) = (&operands[0].shape, &operands[1].shape);
    let batch = nest.dim(x[0], Role::Map);
    let groups = nest.dim(conv.groups, Role::Map);
    let channels = nest.dim(w[1], Role::Sum);
    let made = nest.dim(w[0] / conv.groups, Role::Map);
    let all_made: Vec<LoopId> = groups.iter().chain(&made).copied().collect();
    let mut index = vec![
        vec![batch.clone(), groups.iter().chain(&channels).copied().collect()],
        vec![all_made.clone(), channels],
    ];
    let mut to = vec![batch, all_made.clone()];
    for dim in 2..x.len() {
        let window = nest.dim(w[dim], Role::Whole);
        if are_apart(conv, dim, [x, w, result]) {
            let windows = nest.dim(result[dim], Role::Map);
            index[0].push([windows.clone(), window.clone()].concat());
            to.push(windows);
        } else {
            index[0].push(nest.dim(x[dim], Role::Whole));
            to.push(nest.dim(result[dim], Role::Whole));
        }
        index[1].push(window);
    }
    if operands.len() == 3 {
        index.push(vec![all_made]);
    }
    (index, vec![to])
}

/// Whether windows are side by side along a dimension of x, w and y, as in patches: they do not
/// share elements.
pub(super) fn are_apart(conv: &Conv, dim: usize, [x, w, y]: [&[u64]; 3]) -> bool {
    let apart = conv.strides[dim - 2] == w[dim] && x[dim] == y[dim] * w[dim];
    let padded = conv.before[dim - 2] > 0 || conv.after[dim - 2] > 0;
    let dense = conv.dilations[dim - 2] == 1 || w[dim] == 1;
    apart && dense && !padded
}

/// `x: [t, h]`, `gates: [t, e]`, `up, gate: [e, f, h]`, `down: [e, o, f]`, biases `[e, f]`, `y: [t, o]`.
pub(super) fn experts_dims(nest: &mut Nest, operands: &[Type]) -> (Index, Index) {
    let up = &operands[2].shape;
    let tokens = nest.dim(operands[0].shape[0], Role::Map);
    let experts = nest.dim(up[0], Role::Sum);
    let units = nest.dim(up[1], Role::Sum);
    let hidden = nest.dim(up[2], Role::Whole);
    let out = nest.dim(up[2], Role::Whole);
    let into = vec![experts.clone(), units.clone(), hidden.clone()];
    let mut index = vec![vec![tokens.clone(), hidden], vec![tokens.clone(), experts.clone()], into.clone()];
    if operands.len() > 4 {
        index.push(into);
    }
    index.push(vec![experts.clone(), out.clone(), units.clone()]);
    index.resize(operands.len(), vec![experts, units]);
    (index, vec![vec![tokens, out]])
}
