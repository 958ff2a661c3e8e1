//! Documents told by attention: a mask that hides the keys of other documents becomes the numbers of documents,
//! one for each query and one for each key, and what is left of it is a mask of keys.
//!
//! It is proven of the mask's elements, whatever the program is given: they are false where two places have
//! different numbers, or where something is so of a key, and true elsewhere.

use std::collections::BTreeMap;

use planner_ir::{Attention, Binary, DType, Graph, Node, Op, Output, Source, Unary, ValueId};

use super::masked;
use super::reading::{Reading, forms_if};
use super::related::{Relations, Scores};

/// The graph with masks of documents as their numbers.
pub(super) fn told(graph: &Graph) -> Graph {
    let mut known = BTreeMap::new();
    let mut told = vec![None; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        let Some((attention, [&q, &k, &mask])) = masked(node) else { continue };
        let sizes = [q, k].map(|it| graph.type_of(it).shape[2]);
        let of_mask = known.entry((mask, attention.causal, sizes));
        told[index] = of_mask.or_insert_with(|| Documents::of(graph, attention, mask, sizes)).clone();
    }
    if told.iter().all(Option::is_none) {
        return graph.clone();
    }
    let mut telling = Telling {
        old: graph,
        new: Graph { name: graph.name.clone(), ..Graph::default() },
        values: vec![ValueId(usize::MAX); graph.values.len()],
        made: BTreeMap::new(),
    };
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            telling.values[id.0] = telling.new.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for (node, told) in graph.nodes.iter().zip(&told) {
        telling.node(node, told.as_ref());
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: telling.values[it.value.0] };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..telling.new }
}

/// What a mask says of documents and keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Documents {
    /// The numbers of the documents of queries and of keys.
    numbers: [ValueId; 2],
    /// Truth values of keys, each with the one by which it is seen.
    keys: Vec<(ValueId, bool)>,
    /// The extents of the mask before those of queries and keys.
    outer: [u64; 2],
}

impl Documents {
    fn of(graph: &Graph, attention: &Attention, mask: ValueId, sizes: [u64; 2]) -> Option<Self> {
        let type_ = graph.type_of(mask);
        let outer = match type_.shape[..] {
            [_, _] => [1, 1],
            [heads, _, _] => [1, heads],
            [examples, heads, _, _] => [examples, heads],
            _ => return None,
        };
        let relations = Relations::of(graph, mask);
        let (same, numbers) = relations.documents(graph)?;
        if type_.dtype != DType::Bool || type_.shape[type_.rank() - 2..] != sizes {
            return None;
        }
        let scores = Scores::of(graph, mask, sizes);
        let forms = |truths: &BTreeMap<ValueId, bool>| forms_if(graph, Reading::Any, truths);
        let hides = |it: ValueId, truth: bool| {
            scores.hides_all(&forms(&BTreeMap::from([(it, truth)])), attention.causal)
        };
        if !hides(same, false) {
            return None;
        }
        let seen_by =
            |it: ValueId| [true, false].into_iter().find(|&seen| hides(it, !seen)).map(|seen| (it, seen));
        let keys = relations.keys().map(seen_by).collect::<Option<Vec<_>>>()?;
        let all: BTreeMap<ValueId, bool> = keys.iter().copied().chain([(same, true)]).collect();
        let fits = |it: ValueId| fitted(graph, it, outer).is_some();
        let fit = numbers.iter().copied().chain(keys.iter().map(|it| it.0)).all(fits);
        (fit && scores.shows_all(&forms(&all), attention.causal)).then_some(Self { numbers, keys, outer })
    }
}

/// The outer extents of what is a value in the outer extents of a mask; `None` if it is repeated along one of
/// several.
fn fitted(graph: &Graph, value: ValueId, outer: [u64; 2]) -> Option<[u64; 2]> {
    let shape = &graph.type_of(value).shape;
    let own: u64 = shape[..shape.len().saturating_sub(2)].iter().product();
    match own {
        _ if own == outer.iter().product::<u64>() => Some(outer),
        1 => Some([1, 1]),
        _ => None,
    }
}

/// One graph becoming another.
struct Telling<'a> {
    old: &'a Graph,
    new: Graph,
    /// For each old value, the new one.
    values: Vec<ValueId>,
    /// The operands that stand in place of masks.
    made: BTreeMap<Documents, Vec<ValueId>>,
}

impl Telling<'_> {
    fn node(&mut self, node: &Node, told: Option<&Documents>) {
        let mut operands: Vec<ValueId> = node.operands.iter().map(|it| self.values[it.0]).collect();
        if let Some(documents) = told {
            let masks = self.made.get(documents).cloned().unwrap_or_else(|| self.masks(documents));
            self.made.insert(documents.clone(), masks.clone());
            operands.splice(3..4, masks);
        }
        let types = self.old.types_of(&node.results);
        let results = self.new.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (old, new) in node.results.iter().zip(results) {
            self.values[old.0] = new;
        }
    }

    /// The mask of keys that is left, if there is one, and the documents of queries and keys.
    fn masks(&mut self, documents: &Documents) -> Vec<ValueId> {
        let mut masks: Vec<ValueId> = Vec::new();
        for &(key, seen) in &documents.keys {
            let mut shown = self.placed(key, 1, documents.outer);
            if !seen {
                shown = self.make(Op::Unary(Unary::Not), &[shown]);
            }
            masks = vec![match masks[..] {
                [before] => self.make(Op::Binary(Binary::And), &[before, shown]),
                _ => shown,
            }];
        }
        for (number, along) in documents.numbers.into_iter().zip([0, 1]) {
            let mut placed = self.placed(number, along, documents.outer);
            if !matches!(self.new.type_of(placed).dtype, DType::I64 | DType::I32) {
                placed = self.make(Op::Cast(DType::I64), &[placed]);
            }
            masks.push(placed);
        }
        masks
    }

    /// An old value that differs along queries (0) or keys (1) alone, as `[examples, heads, queries, keys]`.
    fn placed(&mut self, value: ValueId, along: usize, outer: [u64; 2]) -> ValueId {
        let fitted = fitted(self.old, value, outer).unwrap_or(outer);
        let made = self.once(value, 1 - along);
        let shape = &self.new.type_of(made).shape;
        let inner = [2, 1].map(|it| shape.len().checked_sub(it).map_or(1, |at| shape[at]));
        let shape = [fitted, inner].concat();
        if self.new.type_of(made).shape == shape { made } else { self.make(Op::Reshape { shape }, &[made]) }
    }

    /// An old value of which all elements along queries (0) or keys (1) are the same, with one of them.
    fn once(&mut self, value: ValueId, dim: usize) -> ValueId {
        let mut type_ = self.old.type_of(value).clone();
        let at = (type_.rank() + dim).checked_sub(2).filter(|&at| type_.shape[at] > 1);
        let (Some(at), Source::Result { node, .. }) = (at, self.old.value(value).source.clone()) else {
            return self.values[value.0];
        };
        type_.shape[at] = 1;
        let node = self.old.node(node);
        let from = self.once(node.operands[0], dim);
        match &node.op {
            Op::Expand { .. } if *self.new.type_of(from) == type_ => from,
            Op::Expand { .. } => self.make(Op::Expand { shape: type_.shape }, &[from]),
            op => self.make(op.clone(), &[from]),
        }
    }

    fn make(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.new.types_of(operands)).expect("types of what masks are made of suit");
        self.new.push_node(op, operands.to_vec(), types, String::new())[0]
    }
}
