//! Sequences of which a device has every so many tokens.
//!
//! Where a query sees what comes before it, equal stretches of a sequence are unequal work: who has
//! the last one sees everything, and others wait. Of n devices that have every n-th token each, all
//! see the same but for one key a query.
//!
//! A stripe is a digit that begins after so many blocks that nothing is left of them: `[*S/n.a]` of
//! S tokens. So it is offered as splits of packed dimensions are, by an offset ([`super::offsets`]):
//! it begins at the loops of causal attention, and at the dimensions of boundary values that are as
//! long, and is shared along what loops connect. The last dimension of a boundary value is not its
//! tokens' but their features', which may be as many.
//!
//! Source: Brandon et al., "Striped Attention: Faster Ring Attention for Causal Transformers",
//! arXiv 2311.09431, section 3.

use std::ops::Range;

use planner_ir::{AxisId, Digit, Graph, Layout, Mesh, Op, Type, ValueId};

use super::offsets::Offsets;
use super::{Splits, plain_layouts, wide_axes};

/// How many axes a mesh has at most that stripes are offered on: as rings are.
const STRIPED_AXES: usize = 2;

/// How long the sequences of a program's causal attention are, of as many queries as keys: the
/// longest, if stripes are offered on the mesh.
pub fn striped_length<'a>(graphs: impl IntoIterator<Item = &'a Graph>, mesh: &Mesh) -> Option<u64> {
    let few = wide_axes(mesh).count() <= STRIPED_AXES;
    graphs.into_iter().flat_map(causal).map(|(_, length)| length).max().filter(|_| few)
}

/// The values that are queries or keys of causal attention to itself, and how many there are.
fn causal(graph: &Graph) -> impl Iterator<Item = ([ValueId; 2], u64)> + '_ {
    graph.nodes.iter().filter_map(|node| {
        let (Op::Attention(attention) | Op::AttentionGradient { attention, .. }) = &node.op else {
            return None;
        };
        let values = [node.operands[0], node.operands[1]];
        let [queries, keys] = values.map(|it| graph.type_of(it).shape[2]);
        (attention.causal && queries == keys).then_some((values, queries))
    })
}

/// Adds where stripes begin: along queries, keys and what is as long of boundary values.
pub(super) fn seed(graph: &Graph, mesh: &Mesh, boundary: &[ValueId], length: u64, offsets: &mut Offsets) {
    let here = causal(graph).filter(|it| it.1 == length).flat_map(|it| it.0).map(|value| (value, 2));
    let along = |&value: &ValueId| of_tokens(graph.type_of(value)).map(move |dim| (value, dim));
    let there = boundary.iter().flat_map(along);
    for (value, dim) in here.chain(there).filter(|&(value, dim)| graph.type_of(value).shape[dim] == length) {
        offsets[value.0][dim].extend(wide_axes(mesh).filter_map(|axis| offset(mesh, axis, length)));
    }
}

/// The dimensions that tokens may number.
fn of_tokens(type_: &Type) -> Range<usize> {
    0..type_.rank().saturating_sub(1)
}

/// After how many blocks the stripes of an axis begin: as many as a device has tokens.
pub(super) fn offset(mesh: &Mesh, axis: AxisId, length: u64) -> Option<u64> {
    let size = mesh.size(axis);
    (length.is_multiple_of(size) && length > size).then(|| length / size)
}

/// Whether a split of a loop after so many blocks is in whole stripes, or in none: those of an axis
/// are no use to another.
pub(super) fn suits(mesh: &Mesh, axis: AxisId, size: u64, offset: u64, striped: Option<u64>) -> bool {
    offset == 1 || striped != Some(size) || self::offset(mesh, axis, size) == Some(offset)
}

/// The layouts in which a value may be handed from one part of a program to another: plain, or
/// with dimensions as long as striped sequences in stripes.
pub fn handed_layouts(mesh: &Mesh, type_: &Type, splits: Splits, striped: Option<u64>) -> Vec<Layout> {
    let plain = plain_layouts(mesh, type_, splits);
    let Some(length) = striped else { return plain };
    let in_stripes = |layout: &Layout| {
        let mut layout = layout.clone();
        let mut found = false;
        for dim in of_tokens(type_).filter(|&dim| type_.shape[dim] == length) {
            let digits = &mut layout.dims[dim];
            if let [digit] = &digits[..]
                && let Some(before) = digit.plain().and_then(|axis| offset(mesh, axis, length))
            {
                digits.insert(0, Digit::free(before));
                found = true;
            }
        }
        found.then_some(layout)
    };
    let striped: Vec<Layout> = plain.iter().filter_map(in_stripes).collect();
    plain.into_iter().chain(striped).collect()
}
