//! Masks that say what attention can say itself: that queries see no later keys, or only so many.
//!
//! Exporters make such masks of ranges, comparisons, triangles and choices, add them to masks of
//! padding, and give them to attention as values. What is known of their elements, whatever the
//! program is given ([`form`]), is enough to see it: attention becomes causal, and what is left of
//! its mask is what it says of keys that are not later. A pass over the whole graph: the mask is made
//! once, and used in every block.
//!
//! Where a mask adds a number that is merely very low, a query that sees no key sees all of them
//! equally, later ones too. Unless each query is known to see its own key, attention says that such
//! queries get the mean of the values.

mod documents; // documents in place of masks
mod kind; // which keys queries see in the end
mod left; // what is left of masks, made in a new graph
mod reading; // what is known of values, and of those that models are usually given
mod related; // what masks say that depends on what is given
mod rows; // masks that are the same for all rows, heads or examples
mod truths; // truth values in place of numbers
mod sums; // masks that are added to each other, or to biases

use std::collections::BTreeMap;

use planner_ir::{Attention, Blind, DType, Graph, Node, Op, Real, Source, ValueId};

use super::form::bounds::{self, Bounds};
use super::form::{Bands, Form};
pub use kind::{AttentionKind, Sight, attentions, predicts_tokens};
use left::Saying;
use reading::{Reading, forms};

/// What is lower than another score by this leaves nothing of its key, however scores without masks
/// differ. The least that models add is -10000, as a bf16 -9984.
pub(super) const APART: f64 = 8192.0;
/// Scores of queries that see nothing are not larger than this, where a number that is added to them
/// leaves nothing of scores so small.
pub(super) const SLIGHT: f64 = 4.0;

/// The graph with what masks hide said by attention itself.
pub(super) fn said(graph: &Graph) -> Graph {
    rows::once(&documents::told(&said_itself(graph)))
}

fn said_itself(graph: &Graph) -> Graph {
    let alike = rows::alike(graph);
    let known = [Reading::Any, Reading::Usual].map(|reading| (reading, forms(graph, reading)));
    let wanted: BTreeMap<usize, Said> = graph
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(index, node)| Some((index, of_node(graph, &known, &alike, node)?)))
        .collect();
    let mut saying = Saying::new(graph, known.map(|it| it.1));
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            saying.outside(id);
            saying.leave(id, &wanted);
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        saying.node(node, wanted.get(&index));
        for &result in &node.results {
            saying.leave(result, &wanted);
        }
    }
    saying.end()
}

/// What attention can say of its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    attention: Attention,
    mask: Mask,
}

/// What is left of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    /// Nothing: it hides nothing else.
    Gone,
    /// What it says of some pairs.
    Of(Pairs),
}

/// What a mask says of pairs of these distances, from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pairs {
    mask: ValueId,
    first: i64,
    last: i64,
    /// How the values are read by which this is known.
    reading: Reading,
    /// What hides a key, if a query that sees none sees all equally; else a key is shown by 0.
    low: Option<Real>,
    /// What is added besides, which hides nothing.
    bias: Option<ValueId>,
}

/// What a mask says of pairs that are so far apart.
struct Seeing<'a> {
    bands: &'a Bands,
    dtype: DType,
}

impl Seeing<'_> {
    fn all(&self, first: i64, last: i64, holds: impl Fn(Option<Bounds>) -> bool) -> bool {
        let mut runs = self.bands.runs().peekable();
        while let Some((from, bounds)) = runs.next() {
            let meets = from <= last && runs.peek().is_none_or(|&(next, _)| next > first);
            if meets && !holds(bounds) {
                return false;
            }
        }
        true
    }

    fn is_truth(&self) -> bool {
        self.dtype == DType::Bool
    }

    /// Whether nothing of a key's value can be left beside that of another.
    fn hides(&self, bounds: Option<Bounds>, beside: Option<Bounds>) -> bool {
        let (Some(hidden), Some(shown)) = (bounds, beside) else { return false };
        if self.is_truth() {
            hidden.most <= 0.0 && shown.least >= 1.0
        } else {
            shown.least > f64::NEG_INFINITY && shown.least - hidden.most >= APART
        }
    }

    /// Whether a key is seen beside another.
    fn shows(&self, bounds: Option<Bounds>, beside: Option<Bounds>) -> bool {
        let (Some(bounds), Some(beside)) = (bounds, beside) else { return false };
        if self.is_truth() { bounds.least >= 1.0 } else { beside.most - bounds.least < APART }
    }

    /// Whether a key is out of sight even if no other is seen.
    fn removes(&self, bounds: Option<Bounds>) -> bool {
        let below = if self.is_truth() { 0.0 } else { f64::NEG_INFINITY };
        bounds.is_some_and(|it| it.most <= below)
    }

    /// Whether a score stays as it is.
    fn leaves(&self, bounds: Option<Bounds>) -> bool {
        bounds.and_then(Bounds::known) == Some(if self.is_truth() { 1.0 } else { 0.0 })
    }

    /// The number that hides every key after `own`, if a key before is hidden by the same number or
    /// shown by 0, and nothing is left of a score that it is added to.
    fn low(&self, own: i64, [nearest, farthest]: [i64; 2]) -> Option<f64> {
        let low = self.bands.at(own + 1).and_then(Bounds::known).filter(|_| !self.is_truth())?;
        let hides = low.is_finite() && low <= -APART && bounds::absorbed(low, self.dtype) >= SLIGHT;
        let is_low = |it: Option<Bounds>| it.and_then(Bounds::known) == Some(low);
        let either = |it: Option<Bounds>| is_low(it) || it.is_some_and(|it| it.either_of(low, 0.0));
        let right = self.all(own + 1, farthest, is_low) && self.all(nearest, own, either);
        (hides && right).then_some(low)
    }
}

/// What attention with a mask can say itself; `None` if that is nothing.
fn of_node(
    graph: &Graph,
    known: &[(Reading, Vec<Form>); 2],
    alike: &[rows::Dims],
    node: &Node,
) -> Option<Said> {
    let mut said = of_mask(graph, known, alike, node)?;
    if said.attention.sinks {
        // What hides every key leaves the sink.
        said.attention.blind = Blind::Zero;
    }
    Some(said)
}

/// Attention that has a mask and no documents, with its queries, its keys and its mask.
fn masked(node: &Node) -> Option<(&Attention, [&ValueId; 3])> {
    let (Op::Attention(attention), [q, k, _, rest @ ..]) = (&node.op, &node.operands[..]) else {
        return None;
    };
    match attention.masking(rest) {
        [mask] => Some((attention, [q, k, mask])),
        _ => None,
    }
}

/// The same, where a query that sees no key may see all equally.
fn of_mask(
    graph: &Graph,
    known: &[(Reading, Vec<Form>); 2],
    alike: &[rows::Dims],
    node: &Node,
) -> Option<Said> {
    let (attention, [q, k, mask]) = masked(node)?;
    let extent = |it: &ValueId| i64::try_from(graph.type_of(*it).shape[2]).ok();
    let (queries, keys) = (extent(q)?, extent(k)?);
    let type_ = graph.type_of(*mask);
    let by = |(reading, forms): &(Reading, Vec<Form>)| {
        let bands = forms[mask.0].bands(type_);
        let seeing = Seeing { bands: &bands, dtype: type_.dtype };
        said_by(*attention, &seeing, [queries, keys], (*mask, *reading))
    };
    let [any, usual] = known.each_ref().map(by);
    let said = if usual.attention.causal && !any.attention.causal { usual } else { any };
    let sum = sums::Sum::of(graph, *mask).filter(|_| !said.attention.causal);
    if let Some(said) = sum.and_then(|sum| sum.said(known, alike, *attention, [queries, keys])) {
        return Some(said);
    }
    // Attention that is causal already may have a mask of padding that was made for every query.
    let each = type_.shape.iter().rev().nth(1).is_some_and(|&rows| rows > 1);
    let hidden = said.attention.causal && each;
    if said.attention != *attention || said.mask == Mask::Gone || hidden {
        return Some(said);
    }
    let differs = each && !alike[mask.0][rows::QUERIES];
    differs.then(|| truths::instead(graph, *attention, *mask, [queries, keys])).flatten()
}

/// What attention of so many queries and keys says if it says all that it can of a mask.
fn said_by(
    attention: Attention,
    seeing: &Seeing<'_>,
    [queries, keys]: [i64; 2],
    (mask, reading): (ValueId, Reading),
) -> Said {
    // A query's own key is this far from it, and the first and the last of all pairs are so far apart.
    let own = keys - queries;
    let (nearest, farthest) = (1 - queries, keys - 1);
    let later = own >= 0 && own < farthest;
    let mut attention = attention;
    let beside = seeing.bands.at(own);
    let hidden = |first, last| seeing.all(first, last, |it| seeing.removes(it) || seeing.hides(it, beside));
    let mut low = None;
    if later && hidden(own + 1, farthest) {
        attention.causal = true;
    } else if later && !attention.causal && attention.window.is_none() {
        low = seeing.low(own, [nearest, farthest]);
        attention.causal = low.is_some();
        attention.blind = if low.is_some() { Blind::Mean } else { Blind::Zero };
    }
    let last = if attention.causal { own } else { farthest };
    let starts = seeing.bands.runs().map(|it| it.0).filter(|&it| it > nearest && it <= own);
    let near = |first: &i64| match low {
        Some(low) => seeing.all(nearest, first - 1, |it| it.and_then(Bounds::known) == Some(low)),
        None => hidden(nearest, first - 1),
    };
    let first = match starts.filter(near).max() {
        Some(first) if attention.causal && attention.window.is_none() => {
            attention.window = u64::try_from(own - first + 1).ok();
            first
        }
        _ => nearest,
    };
    let mask = match low {
        None if seeing.all(first, last, |it| seeing.leaves(it)) => Mask::Gone,
        low => Mask::Of(Pairs { mask, first, last, reading, low: low.map(Real), bias: None }),
    };
    if mask == Mask::Gone && own >= 0 {
        // Each query sees its own key.
        attention.blind = Blind::Zero;
    }
    Said { attention, mask }
}

#[cfg(test)]
mod tests;
