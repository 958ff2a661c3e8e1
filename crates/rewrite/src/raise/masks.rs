//! Masks that say what attention can say itself: that queries see no later keys, or only so many.
//!
//! Exporters make such masks of ranges, comparisons, triangles and choices, add them to masks of
//! padding, and give them to attention as values. What is known of their elements, whatever the
//! program is given ([`form`]), is enough to see it: attention becomes causal, and what is left of
//! its mask is what it says of keys that are not later. A pass over the whole graph: the mask is made
//! once, and used in every block.
//!
//! Where a mask adds a number that is merely very low, a query that sees no key sees all of them
//! equally, later ones too. Unless each query is known to see its own key, this is said apart: what
//! such queries get is the mean of the values.

mod bounds; // between which numbers an element lies
mod form; // what is known of a value's elements, by their places

use std::collections::BTreeMap;

use planner_ir::{Attention, Binary, DType, Graph, Node, Op, Output, Reduction, Source, Type, ValueId};

use bounds::Bounds;
use form::{Bands, Form};

/// What is so low that no score added to it shows.
const LOW: f64 = -1e30;
/// A score that this is added to leaves nothing of one so low.
const SEEN: f64 = -1e20;
/// What queries that see nothing get is worth being said apart where there are this many keys for each
/// element of a value: half of the scores, and all of the mask, are more than what is added.
const WORTH: u64 = 2;

/// The graph with what masks hide said by attention itself.
pub(super) fn said(graph: &Graph) -> Graph {
    let forms = forms(graph);
    let wanted: BTreeMap<usize, Said> = graph
        .nodes
        .iter()
        .enumerate()
        .filter_map(|(index, node)| Some((index, of_node(graph, &forms, node)?)))
        .collect();
    let new = Graph { name: graph.name.clone(), ..Graph::default() };
    let values = vec![ValueId(usize::MAX); graph.values.len()];
    let mut saying = Saying { old: graph, forms, new, values, left: BTreeMap::new(), any: BTreeMap::new() };
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            saying.values[id.0] = saying.new.push_value(value.type_.clone(), value.source.clone());
            saying.leave(id, &wanted);
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        saying.node(node, wanted.get(&index));
        for &result in &node.results {
            saying.leave(result, &wanted);
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: saying.values[it.value.0] };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..saying.new }
}

/// What is known of every value of a graph.
fn forms(graph: &Graph) -> Vec<Form> {
    let mut forms: Vec<Form> = graph.values.iter().map(|value| Form::any(&value.type_)).collect();
    for node in &graph.nodes {
        if let [result] = node.results[..] {
            let operands: Vec<(&Form, &Type)> =
                node.operands.iter().map(|&it| (&forms[it.0], graph.type_of(it))).collect();
            forms[result.0] = form::form(&node.op, &operands, graph.type_of(result));
        }
    }
    forms
}

/// What attention can say of its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    attention: Attention,
    mask: Mask,
    /// The truth values of which a query that has none sees all keys equally, if one may have none.
    seen: Option<ValueId>,
}

/// What is left of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    /// Nothing: it hides nothing else.
    Gone,
    /// What it says of pairs of these distances, from the first to the last.
    Of(ValueId, i64, i64),
}

/// What a mask says of pairs that are so far apart.
struct Seeing<'a> {
    bands: &'a Bands,
    is_truth: bool,
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

    /// Whether nothing of a key's value can be left where another is seen.
    fn hides(&self, bounds: Option<Bounds>) -> bool {
        let below = if self.is_truth { 0.0 } else { LOW };
        bounds.is_some_and(|it| it.most <= below)
    }

    /// Whether a key is out of sight even if no other is seen.
    fn removes(&self, bounds: Option<Bounds>) -> bool {
        let below = if self.is_truth { 0.0 } else { f64::NEG_INFINITY };
        bounds.is_some_and(|it| it.most <= below)
    }

    /// Whether a key is seen, and what is hidden beside it is not.
    fn shows(&self, bounds: Option<Bounds>) -> bool {
        let from = if self.is_truth { 1.0 } else { SEEN };
        bounds.is_some_and(|it| it.least >= from)
    }

    /// Whether a score stays as it is.
    fn leaves(&self, bounds: Option<Bounds>) -> bool {
        bounds.and_then(Bounds::known) == Some(if self.is_truth { 1.0 } else { 0.0 })
    }
}

/// What attention with a mask can say itself; `None` if that is nothing.
fn of_node(graph: &Graph, forms: &[Form], node: &Node) -> Option<Said> {
    let (Op::Attention(attention), [q, k, v, mask]) = (&node.op, &node.operands[..]) else { return None };
    let extent = |it: &ValueId| i64::try_from(graph.type_of(*it).shape[2]).ok();
    let (queries, keys) = (extent(q)?, extent(k)?);
    let type_ = graph.type_of(*mask);
    let bands = forms[mask.0].bands(type_);
    let seeing = Seeing { bands: &bands, is_truth: type_.dtype == DType::Bool };
    let mut said = said_by(*attention, &seeing, queries, keys, *mask);
    if !said.attention.causal
        && let Some(seen) = chosen_by(graph, forms, *mask)
    {
        let bands = forms[seen.0].bands(graph.type_of(seen));
        let by_truth = said_by(*attention, &Seeing { bands: &bands, is_truth: true }, queries, keys, seen);
        let worth = graph.type_of(*v).shape[3].saturating_mul(WORTH) <= graph.type_of(*k).shape[2];
        if by_truth.attention.causal && worth {
            said = Said { seen: Some(seen), ..by_truth };
        }
    }
    (said.attention != *attention || said.mask == Mask::Gone).then_some(said)
}

/// The truth values of which a mask is made: 0 where they are true, a very low number elsewhere.
fn chosen_by(graph: &Graph, forms: &[Form], mask: ValueId) -> Option<ValueId> {
    let Source::Result { node, .. } = graph.value(mask).source else { return None };
    let node = graph.node(node);
    let number = |it: ValueId| match forms[it.0].bands(graph.type_of(it)).runs().collect::<Vec<_>>()[..] {
        [(_, bounds)] => bounds.and_then(Bounds::known),
        _ => None,
    };
    match (&node.op, &node.operands[..]) {
        (Op::Expand { .. }, &[x]) => chosen_by(graph, forms, x),
        (Op::Select, &[seen, shown, hidden]) => {
            let low = number(hidden).is_some_and(|it| it <= LOW && it.is_finite());
            (low && number(shown) == Some(0.0)).then_some(seen)
        }
        _ => None,
    }
}

/// What attention of so many queries and keys says if it says all that it can of a mask.
fn said_by(attention: Attention, seeing: &Seeing<'_>, queries: i64, keys: i64, mask: ValueId) -> Said {
    // A query's own key is this far from it, and the first and the last of all pairs are so far apart.
    let own = keys - queries;
    let (nearest, farthest) = (1 - queries, keys - 1);
    let mut said = Said { attention, mask: Mask::Of(mask, nearest, farthest), seen: None };
    let hidden = |first, last| {
        let alone = seeing.shows(seeing.bands.at(own));
        let hides = |it| if alone { seeing.hides(it) } else { seeing.removes(it) };
        seeing.all(first, last, hides)
    };
    let later = own >= 0 && own < farthest;
    said.attention.causal |= later && hidden(own + 1, farthest);
    let last = if said.attention.causal { own } else { farthest };
    let starts = seeing.bands.runs().map(|it| it.0).filter(|&it| it > nearest && it <= own);
    let near = starts.filter(|&first| hidden(nearest, first - 1)).max();
    let first = match near {
        Some(first) if said.attention.causal && attention.window.is_none() => {
            said.attention.window = u64::try_from(own - first + 1).ok();
            first
        }
        _ => nearest,
    };
    said.mask = match mask {
        _ if seeing.all(first, last, |it| seeing.leaves(it)) => Mask::Gone,
        mask => Mask::Of(mask, first, last),
    };
    said
}

/// One graph becoming another.
struct Saying<'a> {
    old: &'a Graph,
    forms: Vec<Form>,
    new: Graph,
    /// For each old value, the new one.
    values: Vec<ValueId>,
    /// What is left of masks: of an old value, between two distances, the new one.
    left: BTreeMap<(ValueId, i64, i64), ValueId>,
    /// Of truth values, an old value, which rows have one that is true: the new one.
    any: BTreeMap<ValueId, ValueId>,
}

impl Saying<'_> {
    /// Adds an old node to the new graph.
    fn node(&mut self, node: &Node, said: Option<&Said>) {
        let mut operands: Vec<ValueId> = node.operands.iter().map(|it| self.values[it.0]).collect();
        let mut op = node.op.clone();
        if let Some(said) = said {
            op = Op::Attention(said.attention);
            operands.truncate(3);
            if let Mask::Of(mask, first, last) = said.mask {
                operands.push(self.left[&(mask, first, last)]);
            }
        }
        let types = self.old.types_of(&node.results);
        let mut results = self.new.push_node(op, operands, types, node.origin.clone());
        if let Some(seen) = said.and_then(|it| it.seen) {
            let mean = self.mean(self.values[node.operands[2].0], results[0], &node.origin);
            results = vec![self.make(Op::Select, &[self.any[&seen], results[0], mean], &node.origin)];
        }
        for (old, new) in node.results.iter().zip(results) {
            self.values[old.0] = new;
        }
    }

    /// An operation on new values whose types suit it.
    fn make(&mut self, op: Op, operands: &[ValueId], origin: &str) -> ValueId {
        let types = op.infer(&self.new.types_of(operands)).expect("types of attention and its mask suit");
        self.new.push_node(op, operands.to_vec(), types, origin.to_owned())[0]
    }

    /// The mean of values `v: [b, G, t, e]` over their keys, for each head of `y: [b, H, s, e]`.
    fn mean(&mut self, v: ValueId, y: ValueId, origin: &str) -> ValueId {
        let op = Op::Reduce { reduction: Reduction::Mean, dims: vec![2] };
        let mean = self.make(op, &[v], origin);
        let ([b, heads, _, size], [_, all, ..]) = (self.extents(v), self.extents(y));
        if heads == all {
            return mean;
        }
        let apart = self.make(Op::Reshape { shape: vec![b, heads, 1, 1, size] }, &[mean], origin);
        let shape = vec![b, heads, all / heads.max(1), 1, size];
        let repeated = self.make(Op::Expand { shape }, &[apart], origin);
        self.make(Op::Reshape { shape: vec![b, all, 1, size] }, &[repeated], origin)
    }

    fn extents(&self, value: ValueId) -> [u64; 4] {
        let shape = &self.new.type_of(value).shape;
        std::array::from_fn(|dim| shape.get(dim).copied().unwrap_or(1))
    }

    /// Makes what is left of a value as a mask, beside it.
    fn leave(&mut self, value: ValueId, wanted: &BTreeMap<usize, Said>) {
        for said in wanted.values() {
            if said.seen == Some(value) && !self.any.contains_key(&value) {
                let dims = vec![self.old.type_of(value).rank() - 1];
                let numbers = self.make(Op::Cast(DType::F32), &[self.values[value.0]], "");
                let most = Op::Reduce { reduction: Reduction::Max, dims };
                let most = self.make(most, &[numbers], "");
                let any = self.make(Op::Cast(DType::Bool), &[most], "");
                self.any.insert(value, any);
            }
            if let Mask::Of(mask, first, last) = said.mask
                && mask == value
                && !self.left.contains_key(&(mask, first, last))
            {
                let left = self.of_pairs(mask, first, last);
                self.left.insert((mask, first, last), left);
            }
        }
    }

    /// A value that has the same elements as an old one at distances from the first to the last, or
    /// one that can be repeated to that.
    fn of_pairs(&mut self, value: ValueId, first: i64, last: i64) -> ValueId {
        let Source::Result { node, .. } = self.old.value(value).source else { return self.values[value.0] };
        let node = self.old.node(node);
        let known = |it: ValueId, number: f64| {
            let bands = self.forms[it.0].bands(self.old.type_of(it));
            let seeing = Seeing { bands: &bands, is_truth: false };
            seeing.all(first, last, |it| it.and_then(Bounds::known) == Some(number))
        };
        let kept = match (&node.op, &node.operands[..]) {
            (Op::Expand { .. }, &[x]) => Some(x),
            (Op::Binary(Binary::And), &[a, b]) => neutral([a, b], |it| known(it, 1.0)),
            (Op::Binary(Binary::Or | Binary::Add), &[a, b]) => neutral([a, b], |it| known(it, 0.0)),
            (Op::Select, &[c, a, _]) if known(c, 1.0) => Some(a),
            (Op::Select, &[c, _, b]) if known(c, 0.0) => Some(b),
            _ => None,
        };
        if let Some(kept) = kept {
            return self.of_pairs(kept, first, last);
        }
        if !matches!(node.op, Op::Binary(_) | Op::Unary(_) | Op::Select | Op::Cast(_)) {
            return self.values[value.0];
        }
        let operands: Vec<ValueId> = node.operands.iter().map(|&it| self.of_pairs(it, first, last)).collect();
        if operands.iter().zip(&node.operands).all(|(new, old)| *new == self.values[old.0]) {
            return self.values[value.0];
        }
        match node.op.infer(&self.new.types_of(&operands)) {
            Ok(types) => self.new.push_node(node.op.clone(), operands, types, node.origin.clone())[0],
            Err(_) => self.values[value.0],
        }
    }
}

/// The other of two operands, if one changes nothing.
fn neutral([a, b]: [ValueId; 2], is_neutral: impl Fn(ValueId) -> bool) -> Option<ValueId> {
    match (is_neutral(b), is_neutral(a)) {
        (true, _) => Some(a),
        (_, true) => Some(b),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
