//! How many keys a single query sees: its mask says it, evaluated where all keys hold something.

use std::collections::BTreeMap;

use files::impossible;
use kernels::Array;
use plan::Cache;
use planner_ir::{DType, Graph, NodeId, Op, Output, Source, ValueId};

/// What is lower than another score by this leaves nothing of its key.
const APART: f64 = 8192.0;

/// Of attention with one query in a graph in named operations how many of the last keys it sees at most, its own
/// included, where nothing but the mask of a cache decides that.
pub(super) fn single_queries(graph: &Graph, cache: &Cache) -> BTreeMap<NodeId, u64> {
    // Blocks share their mask.
    let mut of_masks: BTreeMap<(ValueId, u64), Option<u64>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        let (Op::Attention(attention), [q, k, _, rest @ ..]) = (&node.op, &node.operands[..]) else {
            continue;
        };
        let extent = |it: &ValueId| graph.type_of(*it).shape.get(2).copied();
        let (Some(1), Some(keys)) = (extent(q), extent(k)) else { continue };
        let mask = attention.masks(rest).0.copied();
        let by_mask = mask.and_then(|mask| {
            *of_masks.entry((mask, keys)).or_insert_with(|| seen(&evaluated(graph, mask, cache)?, keys))
        });
        let said = attention.window.filter(|_| attention.causal);
        found.extend(said.into_iter().chain(by_mask).min().map(|it| (id, it)));
    }
    found
}

/// How many of the last keys a mask of one query shows at most.
fn seen(mask: &Array, keys: u64) -> Option<u64> {
    let count = usize::try_from(keys).ok().filter(|&it| it > 0)?;
    if mask.shape().last() != Some(&keys) {
        return None;
    }
    let numbers = mask.to_floats().ok()?;
    let is_truth = mask.dtype() == DType::Bool;
    let mut most = 0;
    for row in numbers.chunks(count) {
        let own = *row.last()?;
        let is_own_shown = if is_truth { own > 0.0 } else { own.is_finite() };
        is_own_shown.then_some(())?;
        let is_shown = |it: &f64| if is_truth { *it > 0.0 } else { it.is_nan() || own - it < APART };
        most = most.max(count - row.iter().position(is_shown)?);
    }
    u64::try_from(most).ok()
}

/// A value, if it is made of nothing that is given but a mask, which hides nothing.
fn evaluated(graph: &Graph, value: ValueId, cache: &Cache) -> Option<Array> {
    let mut is_needed = vec![false; graph.values.len()];
    is_needed[value.0] = true;
    for node in graph.nodes.iter().rev() {
        if node.results.iter().any(|it| is_needed[it.0]) {
            node.operands.iter().for_each(|it| is_needed[it.0] = true);
        }
    }
    let mut part = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut made = vec![value; graph.values.len()];
    let mut inputs = BTreeMap::new();
    for id in graph.value_ids().filter(|it| is_needed[it.0]) {
        let it = graph.value(id);
        match &it.source {
            Source::Result { .. } => continue,
            Source::Input(name) if cache.mask.as_ref() == Some(name) => {
                inputs.insert(name.clone(), impossible::filled(&it.type_, 1)?);
            }
            Source::Input(_) | Source::Weight(_) | Source::State(_) => return None,
        }
        made[id.0] = part.push_value(it.type_.clone(), it.source.clone());
    }
    for node in graph.nodes.iter().filter(|it| it.results.iter().any(|it| is_needed[it.0])) {
        let operands = node.operands.iter().map(|it| made[it.0]).collect();
        let results = part.push_node(node.op.clone(), operands, graph.types_of(&node.results), String::new());
        node.results.iter().zip(results).for_each(|(old, new)| made[old.0] = new);
    }
    part.outputs.push(Output { name: "mask".to_owned(), value: made[value.0] });
    let weights = &BTreeMap::<String, Array>::new();
    run::reference(&part, run::Sources { inputs: &inputs, weights }).ok()?.remove("mask")
}
