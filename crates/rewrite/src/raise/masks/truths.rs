//! Masks that choose between 0 and a number that hides: attention takes the truth values, a byte for each pair.

use planner_ir::{Attention, Blind, Graph, Op, Real, Source, ValueId};

use super::reading::Reading;
use super::sums::number;
use super::{APART, Mask, Pairs, SLIGHT, Said};
use crate::raise::form::bounds;

/// What attention of so many queries and keys says with truth values as its mask, if its mask is chosen by some.
/// Where the number that hides is finite, a query that sees no key sees all equally.
pub(super) fn instead(
    graph: &Graph,
    attention: Attention,
    mask: ValueId,
    [queries, keys]: [i64; 2],
) -> Option<Said> {
    if attention.causal || attention.window.is_some() || attention.blind != Blind::Zero {
        return None;
    }
    let low = chosen(graph, mask)?.low;
    let blind = if low.is_finite() { Blind::Mean } else { Blind::Zero };
    if low.is_finite() && (low > -APART || bounds::absorbed(low, graph.type_of(mask).dtype) < SLIGHT) {
        return None;
    }
    let (first, last) = (1 - queries, keys - 1);
    let pairs = Pairs { mask, first, last, reading: Reading::Any, low: Some(Real(low)), bias: None };
    Some(Said { attention: Attention { blind, ..attention }, mask: Mask::Of(pairs) })
}

/// The truth values by which a mask is chosen.
pub(super) struct Chosen {
    pub(super) truths: ValueId,
    /// Whether they are true where a key is seen.
    pub(super) seen: bool,
    /// What hides a key.
    pub(super) low: f64,
}

/// By what a mask chooses between 0 and a number below it.
pub(super) fn chosen(graph: &Graph, mask: ValueId) -> Option<Chosen> {
    let Source::Result { node, .. } = graph.value(mask).source else { return None };
    match (&graph.node(node).op, &graph.node(node).operands[..]) {
        (Op::Expand { .. }, &[x]) => chosen(graph, x),
        (Op::Select, &[truths, a, b]) => {
            let [a, b] = [number(graph, a)?, number(graph, b)?];
            let seen = a > b;
            let [low, high] = if seen { [b, a] } else { [a, b] };
            (low < 0.0 && high.total_cmp(&0.0).is_eq()).then_some(Chosen { truths, seen, low })
        }
        _ => None,
    }
}
