//! How many places of each part of a cache attention sees.
//!
//! Masks say it, so it is read off a step in named operations, where attention says it itself ([`rewrite::raise`]).

use std::collections::BTreeMap;

use plan::{Cache, Kept};
use planner_ir::{Attention, Graph, Node, Op, Source, ValueId};

/// The fewest keys of a window: with one, nothing of the past would be seen.
const LEAST: u64 = 2;

/// For each part of a cache of which attention never sees all places how many it sees at most, a query's own included.
/// By a step of several tokens in named operations: a single query sees all keys.
pub(super) fn windows(raised: &Graph, cache: &Cache) -> BTreeMap<String, u64> {
    let of = |part: &Kept| Some((part.past.clone(), window(raised, cache, part)?));
    let fewer = |it: &(String, u64)| (LEAST..cache.capacity).contains(&it.1);
    cache.entries().filter_map(of).filter(fewer).collect()
}

/// The window of a part, if all that is made of it are keys and values of attention that has one.
fn window(graph: &Graph, cache: &Cache, part: &Kept) -> Option<u64> {
    let is_it = |it: &ValueId| matches!(&graph.value(*it).source, Source::Input(name) if *name == part.past);
    let past = graph.value_ids().find(is_it)?;
    let mut made = vec![false; graph.values.len()];
    made[past.0] = true;
    let mut widest = None;
    for node in &graph.nodes {
        if !node.operands.iter().any(|it| made[it.0]) {
            continue;
        }
        if let Op::Attention(attention) = &node.op {
            widest = widest.max(Some(seen(graph, cache, node, attention, &made)?));
        } else if carries(&node.op) {
            node.results.iter().for_each(|it| made[it.0] = true);
        } else {
            return None;
        }
    }
    let is_left = graph.outputs.iter().any(|it| made[it.value.0] && it.name != part.present);
    widest.filter(|_| !is_left)
}

/// How many of the keys attention sees, if what is made of a part is its keys or values and nothing else of it.
fn seen(graph: &Graph, cache: &Cache, node: &Node, attention: &Attention, made: &[bool]) -> Option<u64> {
    let keys = graph.type_of(*node.operands.get(1)?);
    let is_other = |(at, it): (usize, &ValueId)| !(1..=2).contains(&at) && made[it.0];
    let is_apart = node.operands.iter().enumerate().any(is_other);
    let is_all = keys.shape.get(2) == Some(&cache.capacity);
    attention.window.filter(|_| attention.causal && is_all && !is_apart)
}

/// Whether an operation puts numbers elsewhere, or something of each of them alone, and asks for no other place.
fn carries(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Rotary(_)
            | Op::RmsNorm { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Concat { .. }
            | Op::Slice { .. }
    )
}

#[cfg(test)]
mod tests;
