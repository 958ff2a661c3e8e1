//! Masks of two parts: sums of one mask and another, or of a mask and biases; biases with a number where a mask
//! hides.

use std::collections::BTreeSet;

use planner_ir::{Attention, Binary, Blind, DType, Graph, Op, Real, Source, ValueId};

use super::reading::Reading;
use super::{APART, Mask, Pairs, SLIGHT, Said, Seeing, rows, said_by};
use crate::raise::form::Form;
use crate::raise::form::bounds::{self, Bounds};

/// Biases that are added to scores are no larger than this, where a number beside them leaves nothing of
/// them.
const LARGE: f64 = 1_048_576.0;

/// Values that mask scores together.
#[derive(Clone, Copy)]
pub(super) struct Sum<'a> {
    graph: &'a Graph,
    parts: Parts,
}

/// Two values of which one is a mask.
#[derive(Clone, Copy)]
enum Parts {
    /// They are added.
    Added([ValueId; 2]),
    /// A number stands in place of the second where the first, truth values, is not true.
    Chosen([ValueId; 2], f64),
}

impl<'a> Sum<'a> {
    /// The values that a value is made of, or repeats.
    pub(super) fn of(graph: &'a Graph, value: ValueId) -> Option<Self> {
        let Source::Result { node, .. } = graph.value(value).source else { return None };
        let parts = match (&graph.node(node).op, &graph.node(node).operands[..]) {
            (Op::Expand { .. }, &[x]) => return Self::of(graph, x),
            (Op::Binary(Binary::Add), &[a, b]) => Parts::Added([a, b]),
            (Op::Select, &[seen, bias, low]) => Parts::Chosen([seen, bias], number(graph, low)?),
            _ => return None,
        };
        Some(Self { graph, parts })
    }

    /// What attention of so many queries and keys says of it.
    pub(super) fn said(
        self,
        known: &[(Reading, Vec<Form>); 2],
        alike: &[rows::Dims],
        attention: Attention,
        scores: [i64; 2],
    ) -> Option<Said> {
        if attention.causal || attention.window.is_some() {
            return None;
        }
        let parts = match self.parts {
            Parts::Added(parts) => parts,
            Parts::Chosen(parts, low) => {
                return known.iter().find_map(|known| self.chosen(known, attention, scores, parts, low));
            }
        };
        let turned = [parts, [parts[1], parts[0]]];
        let twice = known.iter().find_map(|known| {
            let mut both = turned.iter();
            both.find_map(|&parts| self.hidden_twice(known, alike, attention, scores, parts))
        });
        twice.or_else(|| {
            known.iter().find_map(|known| {
                turned.iter().find_map(|&parts| self.biased(known, attention, scores, parts))
            })
        })
    }

    /// Of a mask of later keys and one that is the same for all queries, if both hide by one low number: a key
    /// that both hide is lower still, and has no part in what a query gets that sees none.
    fn hidden_twice(
        self,
        (reading, forms): &(Reading, Vec<Form>),
        alike: &[rows::Dims],
        attention: Attention,
        [queries, keys]: [i64; 2],
        [order, padding]: [ValueId; 2],
    ) -> Option<Said> {
        let (own, nearest, farthest) = (keys - queries, 1 - queries, keys - 1);
        if own < 0 || own >= farthest || !alike[padding.0][rows::QUERIES] {
            return None;
        }
        let dtype = self.graph.type_of(order).dtype;
        let [order_bands, bands] = [order, padding].map(|it| forms[it.0].bands(self.graph.type_of(it)));
        let order = Seeing { bands: &order_bands, dtype };
        let low = order.low(own, [nearest, farthest])?;
        let known = |from, to, number| order.all(from, to, |it| it.and_then(Bounds::known) == Some(number));
        let starts = order_bands.runs().map(|it| it.0).chain([nearest]);
        let first = starts
            .filter(|first| (nearest..=own).contains(first))
            .filter(|&first| (first == nearest || known(nearest, first - 1, low)) && known(first, own, 0.0))
            .max()?;
        let either = |it: Option<Bounds>| it.is_some_and(|it| it.either_of(low, 0.0));
        if !(Seeing { bands: &bands, dtype }).all(nearest, farthest, either) {
            return None;
        }
        let window = if first > nearest { u64::try_from(own - first + 1).ok() } else { None };
        let attention = Attention { causal: true, window, blind: Blind::Once, ..attention };
        let (reading, low) = (*reading, Some(Real(low)));
        let pairs = Pairs { mask: padding, first, last: own, reading, low, bias: None };
        Some(Said { attention, mask: Mask::Of(pairs) })
    }

    /// Of a mask that attention says, and biases: slopes by the number of keys before, a table by distance.
    fn biased(
        self,
        (reading, forms): &(Reading, Vec<Form>),
        attention: Attention,
        scores: [i64; 2],
        [mask, bias]: [ValueId; 2],
    ) -> Option<Said> {
        // Which numbers biases are is not known: it is usual that they are not large.
        if *reading == Reading::Any {
            return None;
        }
        let type_ = self.graph.type_of(mask);
        let bands = forms[mask.0].bands(type_);
        let said =
            said_by(attention, &Seeing { bands: &bands, dtype: type_.dtype }, scores, (mask, *reading));
        if !said.attention.causal || self.least(forms, bias).is_none_or(|it| it < -LARGE) {
            return None;
        }
        let pairs = Pairs { bias: Some(bias), ..pairs_of(&said, (mask, *reading), scores) };
        // What is hidden is so for any such bias.
        let shown = pairs.first..=pairs.last;
        let is_deep = |it: Option<Bounds>| it.is_some_and(|it| it.most <= -4.0 * LARGE);
        let deep = bands.runs().zip(bands.runs().map(|it| it.0).skip(1).chain([i64::MAX]));
        let mut hidden = deep.filter(|((from, _), to)| !(shown.contains(from) || shown.contains(&(to - 1))));
        if !hidden.all(|((_, bounds), _)| is_deep(bounds)) {
            return None;
        }
        let absorbs = |low: Real| bounds::absorbed(low.0, type_.dtype) >= LARGE;
        pairs.low.is_none_or(absorbs).then_some(Said { mask: Mask::Of(pairs), ..said })
    }

    /// Of truth values that attention says, and biases where they are true, with a number elsewhere: a query
    /// that sees no key sees all equally if the number is finite.
    fn chosen(
        self,
        (reading, forms): &(Reading, Vec<Form>),
        attention: Attention,
        scores: [i64; 2],
        [seen, bias]: [ValueId; 2],
        low: f64,
    ) -> Option<Said> {
        let stays = low.is_infinite() || bounds::absorbed(low, self.graph.type_of(bias).dtype) >= SLIGHT;
        let least = match reading {
            Reading::Any => {
                let bands = forms[bias.0].bands(self.graph.type_of(bias));
                bands.runs().try_fold(f64::INFINITY, |least, (_, it)| Some(least.min(it?.least)))
            }
            Reading::Usual | Reading::Present => self.least(forms, bias),
        };
        least.filter(|it| stays && it - low >= APART)?;
        let bands = forms[seen.0].bands(self.graph.type_of(seen));
        let blind = if low.is_finite() { Blind::Mean } else { Blind::Zero };
        let attention = Attention { blind, ..attention };
        let said =
            said_by(attention, &Seeing { bands: &bands, dtype: DType::Bool }, scores, (seen, *reading));
        let mask = Mask::Of(Pairs { bias: Some(bias), ..pairs_of(&said, (seen, *reading), scores) });
        said.attention.causal.then_some(Said { mask, ..said })
    }

    /// What biases are not below, if they are what is usual: those of which nothing is known are not large,
    /// if they are no numbers that the program is given, which may be a mask.
    fn least(self, forms: &[Form], bias: ValueId) -> Option<f64> {
        let bands = forms[bias.0].bands(self.graph.type_of(bias));
        let small = (!is_given(self.graph, bias)).then_some(-LARGE);
        bands
            .runs()
            .try_fold(f64::INFINITY, |least, (_, it)| Some(least.min(it.map_or(small?, |it| it.least))))
    }
}

/// The pairs of which a mask that was said has to say more: all, if attention says all of it.
fn pairs_of(said: &Said, (mask, reading): (ValueId, Reading), [queries, keys]: [i64; 2]) -> Pairs {
    match said.mask {
        Mask::Of(pairs) => pairs,
        Mask::Gone => {
            Pairs { mask, first: 1 - queries, last: keys - queries, reading, low: None, bias: None }
        }
    }
}

/// The number that a value repeats.
pub(super) fn number(graph: &Graph, value: ValueId) -> Option<f64> {
    let Source::Result { node, .. } = graph.value(value).source else { return None };
    match (&graph.node(node).op, &graph.node(node).operands[..]) {
        (Op::Fill { value, .. }, _) => Some(value.0),
        (Op::Expand { .. } | Op::Reshape { .. }, &[x]) => number(graph, x),
        _ => None,
    }
}

/// Whether elements are numbers that a program is given, moved or changed one by one.
fn is_given(graph: &Graph, value: ValueId) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![value];
    while let Some(id) = open.pop() {
        if !graph.type_of(id).dtype.is_float() || !seen.insert(id) {
            continue;
        }
        match graph.value(id).source {
            Source::Input(_) => return true,
            Source::Result { node, .. } => match graph.node(node).op {
                Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Cast(_)
                | Op::Triangle { .. }
                | Op::Expand { .. }
                | Op::Reshape { .. }
                | Op::Transpose { .. }
                | Op::Slice { .. }
                | Op::Concat { .. }
                | Op::Gather { .. } => open.extend(&graph.node(node).operands),
                _ => {}
            },
            _ => {}
        }
    }
    false
}
