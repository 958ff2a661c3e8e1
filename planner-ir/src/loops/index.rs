//! Which loops index what, operation by operation.

use super::gradients::{
    attention_gradient_dims, conv_input_gradient_dims, conv_weight_gradient_dims, experts_gradient_dims,
    gather_gradient_dims,
};
use super::narrow::{
    amax_dims, quantize_blocks_dims, quantize_dims, quantize_nvfp4_dims, scaled_contract_dims,
};
use super::nest::{Dims, Index, Nest, gcd, repeated, same_dims};
use super::products::{attention_dims, contract_dims, conv_dims, experts_dims};
use super::recurrence::recurrence_dims;
use super::reshape::reshape_dims;
use super::{LoopId, Role, Routing};
use crate::data::Type;
use crate::op::{Attention, Interpolation, Op, Pairing, Reduction, Resize, Scatter};

impl Op {
    /// Declares the loops: which index what, for each operand and each result.
    pub(super) fn index(&self, nest: &mut Nest, operands: &[Type], results: &[Type]) -> (Index, Index) {
        let result = results.first().map_or(&[][..], |it| &it.shape);
        match self {
            Self::Constant { .. } | Self::Fill { .. } | Self::Iota { .. } => {
                (vec![], vec![nest.dims(result, Role::Map)])
            }
            Self::Unary(_)
            | Self::Binary(_)
            | Self::Select
            | Self::Cast(_)
            | Self::Gated(_)
            | Self::Expand { .. } => {
                let dims = nest.dims(result, Role::Map);
                (operands.iter().map(|it| repeated(&it.shape, &dims)).collect(), vec![dims])
            }
            Self::Dropout { .. } | Self::RoundStochastically { .. } => {
                let dims = nest.dims(result, Role::Map);
                let mut from = vec![dims.clone()];
                from.resize(operands.len(), vec![]);
                (from, vec![dims; results.len()])
            }
            Self::AttentionMerge => {
                let y = nest.dims(result, Role::Map);
                let mut statistics = y.clone();
                statistics[result.len() - 1] = vec![];
                let part = [y, statistics];
                ([part.clone(), part.clone()].concat(), part.to_vec())
            }
            Self::UnaryGradient(_) | Self::GatedGradient(_) | Self::Update(_) => {
                let dims = nest.dims(result, Role::Map);
                let from = operands.iter().map(|it| repeated(&it.shape, &dims)).collect();
                (from, vec![dims; results.len()])
            }
            Self::Triangle { .. } => same_dims(nest.dims(result, Role::Map)),
            Self::Softmax { dim } | Self::LogSoftmax { dim } | Self::CumSum { dim, .. } => {
                let whole = |it| it == *dim;
                same_dims(nest.dims_where(result, whole))
            }
            Self::SoftmaxGradient { dim } => {
                let dims = nest.dims_where(result, |it| it == *dim);
                (vec![dims.clone(); 2], vec![dims])
            }
            Self::LayerNorm { dims, .. }
            | Self::RmsNorm { dims, .. }
            | Self::LayerNormGradient { dims, .. }
            | Self::RmsNormGradient { dims, .. } => {
                let first = result.len() - dims;
                let dims = nest.dims_where(result, |it| it >= first);
                (operands.iter().map(|it| repeated(&it.shape, &dims)).collect(), vec![dims])
            }
            Self::Rotary(pairing) | Self::RotaryGradient(pairing) => {
                // Elements are rotated in pairs, so that pairs may be split and they may not.
                let (last, outer) = result.split_last().unwrap_or((&1, &[]));
                let mut dims = nest.dims(outer, Role::Map);
                let (pairs, pair) = (nest.dim(last / 2, Role::Map), nest.dim(2, Role::Whole));
                dims.push(match pairing {
                    Pairing::Halves => [pair, pairs].concat(),
                    Pairing::Neighbours => [pairs, pair].concat(),
                });
                (operands.iter().map(|it| repeated(&it.shape, &dims)).collect(), vec![dims])
            }
            Self::InstanceNorm { .. } => {
                let dims = nest.dims_where(result, |it| it >= 2);
                let channels = vec![dims[1].clone()];
                (vec![dims.clone(), channels.clone(), channels], vec![dims])
            }
            Self::Contract(contract) => contract_dims(nest, contract, operands),
            Self::ScaledContract { contract, .. } => scaled_contract_dims(nest, contract, operands),
            Self::Amax { parts, .. } => amax_dims(nest, parts, &operands[0].shape),
            Self::Quantize { parts, .. } => quantize_dims(nest, parts.as_deref(), operands),
            Self::Remember => {
                let all = operands.iter().map(|it| nest.dims(&it.shape, Role::Whole)).collect::<Vec<_>>();
                let history = vec![all[0].clone()];
                (all, history)
            }
            Self::QuantizeBlocks { dim, block, .. } => quantize_blocks_dims(nest, *dim, *block, result),
            Self::QuantizeNvfp4(it) => quantize_nvfp4_dims(nest, it, operands),
            Self::Reduce { reduction, dims } => {
                let sums = match reduction {
                    Reduction::Sum => operands[0].dtype.has_sums(),
                    Reduction::Mean => operands[0].dtype.is_float(),
                    Reduction::Max | Reduction::Min | Reduction::Product => false,
                };
                let role = if sums { Role::Sum } else { Role::Whole };
                reduced_dims(nest, &operands[0].shape, dims, role)
            }
            Self::ArgExtreme { dim, .. } => reduced_dims(nest, &operands[0].shape, &[*dim], Role::Whole),
            Self::Attention(attention) => attention_dims(nest, attention, operands),
            Self::AttentionGradient { mask, .. } => attention_gradient_dims(nest, *mask, operands),
            Self::Recurrence(it) => recurrence_dims(nest, *it, operands),
            Self::Reshape { .. } => {
                let (from, to) = reshape_dims(nest, &operands[0].shape, result);
                (vec![from], vec![to])
            }
            Self::Transpose { permutation } => {
                let from = nest.dims(&operands[0].shape, Role::Map);
                let to = permutation.iter().map(|&dim| from[dim].clone()).collect();
                (vec![from], vec![to])
            }
            Self::Concat { dim } => {
                let extents: Vec<u64> = operands.iter().map(|it| it.shape[*dim]).collect();
                let run = extents.iter().copied().fold(0, gcd);
                let mut dims = nest.dims(&kept(result, &[*dim]), Role::Map);
                let inner = nest.dim(run, Role::Map);
                let mut runs = |extent: u64| {
                    let outer = nest.dim(extent.checked_div(run).unwrap_or(0), Role::Whole);
                    dims[*dim] = [outer, inner.clone()].concat();
                    dims.clone()
                };
                let from = extents.into_iter().map(&mut runs).collect();
                (from, vec![runs(result[*dim])])
            }
            Self::Slice { starts, steps, sizes } => {
                slice_dims(nest, &operands[0].shape, starts, steps, sizes)
            }
            Self::Pad { before, after, .. } => {
                changed_dims(nest, &operands[0].shape, result, |it| before[it] == 0 && after[it] == 0)
            }
            Self::Resize(resize) => resize_dims(nest, resize, &operands[0].shape),
            Self::Gather { dim } => {
                let data = nest.dims(&operands[0].shape, Role::Map);
                nest.set_role(&data[*dim], sum_if(operands[0].dtype.has_sums()));
                let indices = nest.dims(&operands[1].shape, Role::Map);
                let mut to = data.clone();
                to.splice(*dim..=*dim, indices.iter().cloned());
                (vec![data, indices], vec![to])
            }
            Self::GatherGradient { dim, .. } => gather_gradient_dims(nest, *dim, operands, result),
            Self::GatherElements { dim } => {
                let (data, index) = elements_dims(nest, *dim, [&operands[0], &operands[1]]);
                nest.set_role(&data[*dim], sum_if(operands[0].dtype.has_sums()));
                nest.set_role(&index[*dim], Role::Map);
                (vec![data, index.clone()], vec![index])
            }
            Self::ScatterElements { dim, scatter } => {
                let (data, updates) = elements_dims(nest, *dim, [&operands[0], &operands[2]]);
                nest.set_role(&data[*dim], Role::Map);
                nest.set_role(&updates[*dim], sum_if(*scatter == Scatter::Add));
                let index = match operands[1].shape == operands[2].shape {
                    true => updates.clone(),
                    false => repeated(&operands[1].shape, &updates),
                };
                (vec![data.clone(), index, updates], vec![data])
            }
            Self::GatherNd { batch_dims } => {
                let (data, index, result) = slices_dims(nest, *batch_dims, operands);
                for dim in indexed(&data, &index, &result, *batch_dims) {
                    nest.set_role(dim, sum_if(operands[0].dtype.has_sums()));
                }
                (vec![data, index], vec![result])
            }
            Self::ScatterNd { scatter } => {
                let (data, index, updates) = slices_dims(nest, 0, operands);
                for dim in &index[..index.len() - 1] {
                    nest.set_role(dim, sum_if(*scatter == Scatter::Add));
                }
                (vec![data.clone(), index, updates], vec![data])
            }
            Self::TopK { dim, .. } => {
                let from = nest.dims_where(&operands[0].shape, |it| it == *dim);
                let mut to = from.clone();
                to[*dim] = nest.dim(result[*dim], Role::Whole);
                (vec![from], vec![to.clone(), to])
            }
            Self::Conv(conv) => conv_dims(nest, conv, operands, result),
            Self::CrossEntropy { .. } => {
                let last = operands[0].rank() - 1;
                let scores = nest.dims_where(&operands[0].shape, |it| it == last);
                let rows = scores[..last].to_vec();
                (vec![scores, rows.clone()], vec![rows])
            }
            Self::CrossEntropyGradient { .. } => {
                let last = operands[0].rank() - 1;
                let scores = nest.dims_where(&operands[0].shape, |it| it == last);
                let rows = scores[..last].to_vec();
                (vec![scores.clone(), rows.clone(), rows], vec![scores])
            }
            Self::ConvInputGradient { conv, .. } => conv_input_gradient_dims(nest, conv, operands, result),
            Self::ConvWeightGradient { conv, .. } => conv_weight_gradient_dims(nest, conv, operands, result),
            Self::Experts { .. } => experts_dims(nest, operands),
            Self::ExpertsGradient { adds, .. } => experts_gradient_dims(nest, adds, operands),
            Self::Dequantize { bits, block, columns } => {
                dequantize_dims(nest, *bits, *block, *columns, operands)
            }
            Self::Region(_) | Self::Dynamic(_) => {
                let mut whole = |it: &Type| nest.dims(&it.shape, Role::Whole);
                (operands.iter().map(&mut whole).collect(), results.iter().map(&mut whole).collect())
            }
        }
    }
    /// Which rows use which parts, if each row uses few.
    pub(super) fn routed(&self, operands: &[Dims]) -> Option<Routing> {
        let (Self::Experts { active: used, .. } | Self::ExpertsGradient { active: used, .. }) = *self else {
            return None;
        };
        let [ref rows, ref parts] = operands[1][..] else { return None };
        Some(Routing { rows: *rows.first()?, parts: *parts.first()?, used })
    }

    /// Whether blocks may be stripes along the loops in which this operation depends on the
    /// position: in attention a query sees the keys before its own.
    pub(super) fn takes_stripes(&self) -> bool {
        matches!(self, Self::Attention(_) | Self::AttentionGradient { .. })
    }

    /// The loops in which this operation depends on the position.
    pub(super) fn positional(&self, operands: &[Dims], results: &[Dims]) -> Vec<LoopId> {
        let dims = match self {
            Self::Constant { .. }
            | Self::Iota { .. }
            | Self::Dropout { .. }
            | Self::RoundStochastically { .. } => &results[0][..],
            Self::Triangle { .. } => &results[0][results[0].len() - 2..],
            // Queries and keys.
            Self::Attention(Attention { causal, window, .. })
            | Self::AttentionGradient { attention: Attention { causal, window, .. }, .. }
                if *causal || window.is_some() =>
            {
                return positions(&[&operands[0][2], &operands[1][2]]);
            }
            Self::GatherGradient { dim, .. } => &results[0][*dim..=*dim],
            Self::Gather { dim } | Self::GatherElements { dim } | Self::ScatterElements { dim, .. } => {
                &operands[0][*dim..=*dim]
            }
            Self::GatherNd { batch_dims } => indexed(&operands[0], &operands[1], &results[0], *batch_dims),
            Self::ScatterNd { .. } => indexed(&operands[0], &operands[1], &operands[2], 0),
            _ => &[],
        };
        positions(&dims.iter().collect::<Vec<_>>())
    }
}

/// The loops of these dimensions, ascending.
fn positions(dims: &[&Vec<LoopId>]) -> Vec<LoopId> {
    let mut loops: Vec<LoopId> = dims.iter().copied().flatten().copied().collect();
    loops.sort_unstable();
    loops
}

/// The dimensions of data that tuples of indices name, given what the slices are.
fn indexed<'a>(data: &'a Dims, index: &Dims, slices: &Dims, batch_dims: usize) -> &'a [Vec<LoopId>] {
    &data[batch_dims..index.len() - 1 + data.len() - slices.len()]
}

fn sum_if(right: bool) -> Role {
    if right { Role::Sum } else { Role::Whole }
}

/// The shape with extent 1 in these dimensions.
fn kept(shape: &[u64], dims: &[usize]) -> Vec<u64> {
    let mut shape = shape.to_vec();
    for &dim in dims {
        shape[dim] = 1;
    }
    shape
}

fn reduced_dims(nest: &mut Nest, shape: &[u64], reduced: &[usize], role: Role) -> (Index, Index) {
    let role_of = |it: usize| {
        if reduced.contains(&it) { role } else { Role::Map }
    };
    let from: Dims = shape.iter().enumerate().map(|(it, &size)| nest.dim(size, role_of(it))).collect();
    let mut to = from.clone();
    for &it in reduced {
        to[it] = vec![];
    }
    (vec![from], vec![to])
}

/// Dimensions that are kept are mapped; of the others the operand's and the result's are whole.
fn changed_dims(nest: &mut Nest, from: &[u64], to: &[u64], kept: impl Fn(usize) -> bool) -> (Index, Index) {
    let from = nest.dims_where(from, |it| !kept(it));
    let mut result = from.clone();
    for (it, dim) in result.iter_mut().enumerate() {
        if !kept(it) {
            *dim = nest.dim(to[it], Role::Whole);
        }
    }
    (vec![from], vec![result])
}

/// Along each dimension, what is taken is every `step`-th of runs of elements. Where the extent
/// is a multiple of the step, and start and size are of some length, both consist of runs of that
/// length.
fn slice_dims(
    nest: &mut Nest,
    extents: &[u64],
    starts: &[u64],
    steps: &[i64],
    sizes: &[u64],
) -> (Index, Index) {
    let mut dim = |it: usize| {
        let step = u64::try_from(steps[it]).unwrap_or(0);
        if step == 0 || !extents[it].is_multiple_of(step) {
            return nest.runs_of(1, extents[it], sizes[it]);
        }
        let (count, first) = (extents[it] / step, starts[it] / step);
        let (mut from, to) = nest.runs_of(gcd(gcd(count, first), sizes[it]), count, sizes[it]);
        from.extend(nest.dim(step, Role::Whole));
        (from, to)
    };
    let (from, to) = (0..extents.len()).map(&mut dim).unzip();
    (vec![from], vec![to])
}

/// A dimension is kept, or each of its elements is repeated, or it is whole.
fn resize_dims(nest: &mut Nest, resize: &Resize, from: &[u64]) -> (Index, Index) {
    let repeats = match (resize.interpolation, resize.half_pixel) {
        (Interpolation::NearestFloor, half_pixel) => !half_pixel,
        (Interpolation::NearestPreferFloor, half_pixel) => half_pixel,
        (Interpolation::Linear, _) => false,
    };
    let mut dim = |it: usize| {
        let (extent, made) = (from[it], resize.shape[it]);
        let times = made.checked_div(extent).filter(|times| times * extent == made).unwrap_or(0);
        let scale = resize.scales[it].0;
        let exact = (0..=16)
            .any(|whole: u32| u64::from(whole) == times && f64::from(whole).to_bits() == scale.to_bits());
        if !exact || (times != 1 && !repeats) {
            return (nest.dim(extent, Role::Whole), nest.dim(made, Role::Whole));
        }
        let read = nest.dim(extent, Role::Map);
        let repeated = [read.clone(), nest.dim(times, Role::Whole)].concat();
        (read, repeated)
    };
    let (from, to) = (0..from.len()).map(&mut dim).unzip();
    (vec![from], vec![to])
}

/// The loops of data and indices: whole along `dim`, and in runs of both along the others.
fn elements_dims(nest: &mut Nest, dim: usize, of: [&Type; 2]) -> (Dims, Dims) {
    let mut loops = |it: usize| {
        let [data, index] = of.map(|of| of.shape[it]);
        if it == dim {
            (nest.dim(data, Role::Whole), nest.dim(index, Role::Whole))
        } else {
            nest.runs(data, index)
        }
    };
    (0..of[0].rank()).map(&mut loops).unzip()
}

/// The loops of data, of tuples of indices, and of the slices that they name.
fn slices_dims(nest: &mut Nest, batch_dims: usize, operands: &[Type]) -> (Dims, Dims, Dims) {
    let (data, indices) = (&operands[0].shape, &operands[1].shape);
    let last = indices.len() - 1;
    let depth = usize::try_from(indices[last]).unwrap_or(0);
    let data = nest.dims(data, Role::Map);
    let mut index = data[..batch_dims].to_vec();
    index.extend(nest.dims(&indices[batch_dims..last], Role::Map));
    let mut slices = index.clone();
    slices.extend_from_slice(&data[batch_dims + depth..]);
    index.push(nest.dim(indices[last], Role::Whole));
    (data, index, slices)
}

/// Packed `[rows, blocks, bytes]`, scales `[rows, blocks]` and zero points `[rows, bytes]`, of
/// which the latter two may be flat, and the result `[rows, blocks columns]`.
fn dequantize_dims(
    nest: &mut Nest,
    bits: u64,
    block: u64,
    columns: u64,
    operands: &[Type],
) -> (Index, Index) {
    let (count, zero_points) = (columns.div_ceil(block), operands.get(2));
    let rows = nest.dim(operands[0].shape[0], Role::Map);
    // Zero points of several blocks share a byte, and the last block of a row may be cut.
    let together = if zero_points.is_some() { 8 / bits } else { 1 };
    let apart = columns.is_multiple_of(block) && count.is_multiple_of(together);
    let (outer, inner) = if apart { (count / together, together) } else { (1, count) };
    let bytes = nest.dim(outer, Role::Map);
    let in_byte = nest.dim(inner, Role::Whole);
    let blocks: Vec<LoopId> = bytes.iter().chain(&in_byte).copied().collect();
    let packed = vec![rows.clone(), blocks.clone(), nest.dim(operands[0].shape[2], Role::Whole)];
    let per_row = |it: &Type, per_row: &[LoopId]| match it.rank() {
        1 => vec![[&rows[..], per_row].concat()],
        rank => [vec![rows.clone(), per_row.to_vec()], vec![vec![]; rank - 2]].concat(),
    };
    let mut index = vec![packed, per_row(&operands[1], &blocks)];
    if let Some(zero_points) = zero_points {
        let of_row = (count * bits).div_ceil(8);
        let zero_bytes = if apart { bytes.clone() } else { nest.dim(of_row, Role::Whole) };
        index.push(per_row(zero_points, &zero_bytes));
    }
    let in_block =
        if apart { [blocks, nest.dim(block, Role::Whole)].concat() } else { nest.dim(columns, Role::Whole) };
    (index, vec![vec![rows, in_block]])
}
