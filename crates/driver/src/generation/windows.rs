//! How many places of each part of a cache attention sees.
//!
//! Masks say it, so it is read off steps in named operations, where attention says it itself, or its mask does for a
//! single query ([`rewrite::raise`]). Every step that is planned has to say it: a model may
//! mask a single token otherwise than several.

mod single; // how many keys a single query sees

use std::collections::{BTreeMap, BTreeSet};

use plan::{Cache, Kept};
use planner_ir::{Attention, Graph, Node, NodeId, Op, Role, Source, ValueId};

use super::ring;

/// The fewest keys of a window: with one, nothing of the past would be seen.
const LEAST: u64 = 2;

/// The parts of a cache with the windows of which all steps can be made.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) kept: Vec<Kept>,
    /// Why parts have all places of which attention does not see all, if there are any.
    pub(super) why: Option<String>,
}

/// A part of which attention never sees all places.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Windowed {
    past: String,
    /// How many it sees at most, a query's own included.
    seen: u64,
    /// The attention that sees it.
    by: BTreeSet<NodeId>,
}

/// The windows of a cache of the model's steps: that of one token, and that of several with their number, if there is one.
pub(super) fn windows(cache: &Cache, one: &Graph, prompts: Option<(&Graph, u64)>) -> Windows {
    let mut cache = cache.clone();
    cache.slot = None;
    let none = Windows { kept: cache.kept.clone(), why: None };
    if cache.entries().next().is_none() {
        return none;
    }
    let of_several = prompts.map(|(graph, width)| (of_step(graph, &cache), width));
    if of_several.as_ref().is_some_and(|it| it.0.is_empty()) {
        return none;
    }
    let mut found = of_step(one, &cache);
    let mut why = None;
    if let Some((of_several, width)) = of_several {
        (found, why) = of_both(found, &of_several, width);
    }
    if found.is_empty() {
        return Windows { why, ..none };
    }
    cache.slot = ring::ring(one, &cache, ring::SLOT).is_ok().then(|| ring::SLOT.to_owned());
    let can = |cache: &Cache| {
        let mut steps = prompts.into_iter().chain([(one, 1)]);
        steps.try_for_each(|(graph, width)| ring::planned(graph.clone(), cache, width).map(drop))
    };
    let Err(refused) = can(&given(&cache, &found)) else {
        return Windows { kept: given(&cache, &found).kept, why };
    };
    let fitting = |it: &Vec<Windowed>| can(&given(&cache, it)).is_ok();
    let apart: Vec<Windowed> = groups(&found).into_iter().filter(fitting).flatten().collect();
    let kept = Some(given(&cache, &apart)).filter(|it| !apart.is_empty() && can(it).is_ok());
    Windows { kept: kept.map_or(none.kept, |it| it.kept), why: Some(refused) }
}

/// A cache whose parts have these windows.
fn given(cache: &Cache, found: &[Windowed]) -> Cache {
    let mut cache = cache.clone();
    for part in &mut cache.kept {
        part.window = found.iter().find(|it| it.past == part.past).map(|it| it.seen);
    }
    cache
}

/// What has a window in both steps, the wider one; and why others have none, if there are any.
fn of_both(one: Vec<Windowed>, several: &[Windowed], width: u64) -> (Vec<Windowed>, Option<String>) {
    let in_one: BTreeSet<String> = one.iter().map(|it| it.past.clone()).collect();
    let all = |past: &str, seen: u64, of: String, not: String| {
        format!(
            "attention of {of} sees {seen} places of `{past}`, and that of {not} was not found to see so few"
        )
    };
    let (single, tokens) = ("a single token".to_owned(), format!("{width} tokens"));
    let missing = several.iter().find(|it| !in_one.contains(&it.past));
    let mut why = missing.map(|it| all(&it.past, it.seen, tokens.clone(), single.clone()));
    let mut both = Vec::new();
    for mut part in one {
        if let Some(it) = several.iter().find(|it| it.past == part.past) {
            part.seen = part.seen.max(it.seen);
            both.push(part);
        } else {
            why = why.or_else(|| Some(all(&part.past, part.seen, single.clone(), tokens.clone())));
        }
    }
    (both, why)
}

/// Parts that the same attention sees, together: they have equally many places, or none can be made.
fn groups(found: &[Windowed]) -> Vec<Vec<Windowed>> {
    let mut groups: Vec<Vec<Windowed>> = Vec::new();
    for part in found {
        let meets = |group: &Vec<Windowed>| group.iter().any(|it| !it.by.is_disjoint(&part.by));
        let (mut together, apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(meets);
        together.push(vec![part.clone()]);
        groups = apart;
        groups.push(together.concat());
    }
    groups
}

/// The parts of which attention of a step never sees all places; none of a step that has no named operations.
fn of_step(graph: &Graph, cache: &Cache) -> Vec<Windowed> {
    let Ok(raised) = rewrite::raise(graph) else { return Vec::new() };
    let raised = raised.graph;
    let single = single::single_queries(&raised, cache);
    let of = |part: &Kept| window(&raised, cache, part, &single);
    let fewer = |it: &Windowed| (LEAST..cache.capacity).contains(&it.seen);
    cache.entries().filter_map(of).filter(fewer).collect()
}

/// The window of a part, if all that is made of it are keys and values of attention that has one.
fn window(graph: &Graph, cache: &Cache, part: &Kept, single: &BTreeMap<NodeId, u64>) -> Option<Windowed> {
    let is_it = |it: &ValueId| matches!(&graph.value(*it).source, Source::Input(name) if *name == part.past);
    let past = graph.value_ids().find(is_it)?;
    // Of what is made of it the dimension that has its places.
    let mut made: Vec<Option<usize>> = vec![None; graph.values.len()];
    made[past.0] = Some(cache.dim);
    let mut windowed = Windowed { past: part.past.clone(), seen: 0, by: BTreeSet::new() };
    for id in graph.node_ids() {
        let node = graph.node(id);
        if node.operands.iter().all(|it| made[it.0].is_none()) {
            continue;
        }
        if let Op::Attention(attention) = &node.op {
            let said = attention.window.filter(|_| attention.causal);
            let seen = said.into_iter().chain(single.get(&id).copied()).min()?;
            are_keys(graph, cache, (node, attention), &made).then_some(())?;
            windowed.seen = windowed.seen.max(seen);
            windowed.by.insert(id);
        } else {
            let dim = carried(graph, node, &made)?;
            node.results.iter().for_each(|it| made[it.0] = Some(dim));
        }
    }
    let is_left = graph.outputs.iter().any(|it| made[it.value.0].is_some() && it.name != part.present);
    (!is_left && !windowed.by.is_empty()).then_some(windowed)
}

/// Whether what is made of a part is the keys or values of attention and nothing else of it, all places in order.
fn are_keys(
    graph: &Graph,
    cache: &Cache,
    (node, attention): (&Node, &Attention),
    made: &[Option<usize>],
) -> bool {
    let is_one = node.operands.first().is_some_and(|it| graph.type_of(*it).shape.get(2) == Some(&1));
    let is_fit = |(at, it): (usize, &ValueId)| match made[it.0] {
        None => true,
        Some(dim) => {
            let is_all = graph.type_of(*it).shape.get(2) == Some(&cache.capacity);
            (1..=2).contains(&at) && dim == 2 && is_all
        }
    };
    (attention.causal || is_one) && node.operands.iter().enumerate().all(is_fit)
}

/// Of an operation that puts numbers elsewhere, or makes something of those of each place, the dimension of its result
/// that has the places; none of one that asks for other places.
fn carried(graph: &Graph, node: &Node, made: &[Option<usize>]) -> Option<usize> {
    let of_operand = |(at, it): (usize, &ValueId)| Some((at, made[it.0]?));
    let dims: Vec<(usize, usize)> = node.operands.iter().enumerate().filter_map(of_operand).collect();
    if !carries(&node.op) {
        return None;
    }
    if let (Op::Concat { dim }, &[(0, of_places)]) = (&node.op, &dims[..])
        && *dim == of_places
    {
        // Entries are put behind others.
        return Some(of_places);
    }
    let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
    let mut of_places = None;
    for (operand, dim) in dims {
        let [only] = loops.operands[operand][dim][..] else { return None };
        if *of_places.get_or_insert(only) != only {
            return None;
        }
    }
    let of_places = of_places?;
    let is_free = loops.loops[of_places.0].role == Role::Map && !loops.positional.contains(&of_places);
    let is_it = |it: &Vec<_>| it[..] == [of_places];
    loops.results.first()?.iter().position(is_it).filter(|_| is_free)
}

/// Whether an operation puts numbers elsewhere, or makes something of each or of those of rows.
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
