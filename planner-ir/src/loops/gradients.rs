//! The loops of gradients.

use super::nest::{Dims, Index, Nest, repeated};
use super::products::are_apart;
use super::{LoopId, Role};
use crate::data::Type;
use crate::op::Conv;

/// Queries `[b, g r, s, d]`, keys `[b, g, t, d]`, values `[b, g, t, e]`, their results and the
/// gradient of those `[b, g r, s, e]`, statistics `[b, g r, s, 2]`, and gradients of the first three.
///
/// The weights are known from the statistics, so that only the size d of queries and keys, over
/// which scores are summed, has to be whole.
pub(super) fn attention_gradient_dims(nest: &mut Nest, mask: bool, operands: &[Type]) -> (Index, Index) {
    let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
    let batch = nest.dim(q[0], Role::Map);
    let groups = nest.dim(k[1], Role::Map);
    let per_group = nest.dim(q[1] / k[1], Role::Map);
    let queries = nest.dim(q[2], Role::Map);
    let keys = nest.dim(k[2], Role::Map);
    let size = nest.dim(q[3], Role::Whole);
    let value_size = nest.dim(v[3], Role::Map);
    let heads: Vec<LoopId> = groups.iter().chain(&per_group).copied().collect();
    let mut results = vec![
        vec![batch.clone(), heads.clone(), queries.clone(), size.clone()],
        vec![batch.clone(), groups.clone(), keys.clone(), size],
        vec![batch.clone(), groups, keys.clone(), value_size.clone()],
    ];
    let made = vec![batch.clone(), heads.clone(), queries.clone(), value_size];
    let mut index = results.clone();
    let statistics = vec![batch.clone(), heads.clone(), queries.clone(), vec![]];
    index.extend([made.clone(), statistics, made]);
    let scores = [batch, heads, queries, keys];
    index.extend(operands[6..].iter().map(|it| repeated(&it.shape, &scores)));
    if mask {
        results.push(index[6].clone());
    }
    nest.sum_where_missing(&results);
    (index, results)
}

/// Indices `[i..]`, the gradient of what was gathered `[.., i.., ..]`, of data `[.., j, ..]`.
pub(super) fn gather_gradient_dims(
    nest: &mut Nest,
    dim: usize,
    operands: &[Type],
    result: &[u64],
) -> (Index, Index) {
    let data = nest.dims(result, Role::Map);
    let indices = nest.dims(&operands[0].shape, Role::Sum);
    let mut made = data.clone();
    made.splice(dim..=dim, indices.iter().cloned());
    (vec![indices, made], vec![data])
}

/// `w: [g m, c, ..]`, `dy: [n, g m, ..]`, `dx: [n, g c, ..]`.
pub(super) fn conv_input_gradient_dims(
    nest: &mut Nest,
    conv: &Conv,
    operands: &[Type],
    dx: &[u64],
) -> (Index, Index) {
    let (w, dy) = (&operands[0].shape, &operands[1].shape);
    let [x, w, dy] = conv_gradient_dims(nest, conv, [dx, w, dy], [Role::Map, Role::Map, Role::Sum]);
    (vec![w, dy], vec![x])
}

/// `x: [n, g c, ..]`, `dy: [n, g m, ..]`, `dw: [g m, c, ..]`.
pub(super) fn conv_weight_gradient_dims(
    nest: &mut Nest,
    conv: &Conv,
    operands: &[Type],
    dw: &[u64],
) -> (Index, Index) {
    let (x, dy) = (&operands[0].shape, &operands[1].shape);
    let [x, w, dy] = conv_gradient_dims(nest, conv, [x, dw, dy], [Role::Sum, Role::Map, Role::Map]);
    (vec![x, dy], vec![w])
}

/// The dimensions of x, w and dy, given the roles of the loops over points (and samples), channels
/// of x and channels of y.
fn conv_gradient_dims(
    nest: &mut Nest,
    conv: &Conv,
    [x, w, dy]: [&[u64]; 3],
    [points, channels, made]: [Role; 3],
) -> [Dims; 3] {
    let samples = nest.dim(x[0], points);
    let groups = nest.dim(conv.groups, Role::Map);
    let channels = nest.dim(w[1], channels);
    let made = nest.dim(w[0] / conv.groups, made);
    let of_groups = |inner: &[LoopId]| [&groups[..], inner].concat();
    let mut dims = [
        vec![samples.clone(), of_groups(&channels)],
        vec![of_groups(&made), channels.clone()],
        vec![samples, of_groups(&made)],
    ];
    for dim in 2..x.len() {
        let window = nest.dim(w[dim], Role::Whole);
        let (read, made) = if are_apart(conv, dim, [x, w, dy]) {
            let windows = nest.dim(dy[dim], points);
            ([windows.clone(), window.clone()].concat(), windows)
        } else {
            (nest.dim(x[dim], Role::Whole), nest.dim(dy[dim], Role::Whole))
        };
        for (dims, it) in dims.iter_mut().zip([read, window, made]) {
            dims.push(it);
        }
    }
    dims
}

/// `x, dy: [t, h]`, `gates: [t, e]`, `up, gate: [e, f, h]`, `down: [e, h, f]`, biases `[e, f]`, and the
/// gradients of all but dy; what these results are added to is as they are.
pub(super) fn experts_gradient_dims(nest: &mut Nest, adds: &[usize], operands: &[Type]) -> (Index, Index) {
    let operands = &operands[..operands.len() - adds.len()];
    let up = &operands[2].shape;
    let tokens = nest.dim(operands[0].shape[0], Role::Map);
    let experts = nest.dim(up[0], Role::Map);
    let units = nest.dim(up[1], Role::Map);
    let hidden = nest.dim(up[2], Role::Whole);
    let into = vec![experts.clone(), units.clone(), hidden.clone()];
    let x = vec![tokens.clone(), hidden.clone()];
    let mut results = vec![x.clone(), vec![tokens, experts.clone()], into.clone()];
    if operands.len() > 5 {
        results.push(into);
    }
    results.push(vec![experts.clone(), hidden, units.clone()]);
    results.resize(operands.len() - 1, vec![experts, units]);
    nest.sum_where_missing(&results);
    let mut index = results.clone();
    index.push(x);
    index.extend(adds.iter().map(|&it| results[it].clone()));
    (index, results)
}
