//! Which nodes are needed, and in which order they can be translated.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::error::ImportError;
use crate::model::malformed;
use crate::proto::{GraphProto, NodeProto};

/// The nodes that these values need, each after those whose values it uses; those of the file in
/// its order as far as that allows. `known` are the names that are values already.
pub(crate) fn needed(
    nodes: &[NodeProto],
    wanted: &[&str],
    known: impl Fn(&str) -> bool,
) -> Result<Vec<usize>, ImportError> {
    let makers = makers(nodes, &known)?;
    let uses: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| captured(node).into_iter().filter_map(|name| makers.get(name).copied()).collect())
        .collect();
    let needed = reachable(&uses, wanted.iter().filter_map(|name| makers.get(*name).copied()));
    for (index, node) in nodes.iter().enumerate().filter(|(index, _)| needed[*index]) {
        let undefined = node
            .input
            .iter()
            .find(|name| !name.is_empty() && !makers.contains_key(name.as_str()) && !known(name));
        if let Some(name) = undefined {
            let node = title(&nodes[index]);
            return Err(malformed(format!("value `{name}`, which node {node} uses, is not defined")));
        }
    }
    sorted(nodes, &uses, &needed)
}

/// Which node makes each value.
fn makers<'a>(
    nodes: &'a [NodeProto],
    known: &impl Fn(&str) -> bool,
) -> Result<BTreeMap<&'a str, usize>, ImportError> {
    let mut makers = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            if makers.insert(name.as_str(), index).is_some() || known(name) {
                return Err(malformed(format!("value `{name}` is defined twice")));
            }
        }
    }
    Ok(makers)
}

fn reachable(uses: &[Vec<usize>], wanted: impl Iterator<Item = usize>) -> Vec<bool> {
    let mut reached = vec![false; uses.len()];
    let mut open: Vec<usize> = wanted.collect();
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut reached[index], true) {
            open.extend(&uses[index]);
        }
    }
    reached
}

fn sorted(nodes: &[NodeProto], uses: &[Vec<usize>], needed: &[bool]) -> Result<Vec<usize>, ImportError> {
    let mut waiting = vec![0usize; nodes.len()];
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, makers) in uses.iter().enumerate().filter(|(index, _)| needed[*index]) {
        waiting[index] = makers.len();
        for &maker in makers {
            users[maker].push(index);
        }
    }
    let all = needed.iter().filter(|&&needed| needed).count();
    let ready = (0..nodes.len()).filter(|&index| needed[index] && waiting[index] == 0);
    let mut ready: BinaryHeap<Reverse<usize>> = ready.map(Reverse).collect();
    let mut order = Vec::with_capacity(all);
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &user in &users[index] {
            waiting[user] -= 1;
            if waiting[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    if order.len() == all {
        return Ok(order);
    }
    let stuck = (0..nodes.len()).filter(|&index| needed[index]).find(|&index| waiting[index] > 0);
    let on_cycle = stuck.map_or_else(String::new, |index| title(&nodes[before(index, uses, &waiting)]));
    Err(malformed(format!("the graph has a cycle through node {on_cycle}")))
}

/// A node on the cycle that a waiting node waits for.
fn before(mut index: usize, uses: &[Vec<usize>], waiting: &[usize]) -> usize {
    for _ in 0..uses.len() {
        index = uses[index].iter().copied().find(|&maker| waiting[maker] > 0).unwrap_or(index);
    }
    index
}

fn title(node: &NodeProto) -> String {
    let name = if node.name.is_empty() { node.output.first() } else { Some(&node.name) };
    format!("`{}` ({})", name.map_or("", String::as_str), node.op_type)
}

/// The names that a node uses, those inside its graphs included; once each.
fn captured(node: &NodeProto) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> =
        node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        names.extend(free(graph));
    }
    names
}

/// The names that a graph uses and does not define.
fn free(graph: &GraphProto) -> BTreeSet<&str> {
    let mut names: BTreeSet<&str> = graph.output.iter().map(|output| output.name.as_str()).collect();
    names.extend(graph.node.iter().flat_map(captured));
    for proto in &graph.initializer {
        names.remove(proto.name.as_str());
    }
    for input in &graph.input {
        names.remove(input.name.as_str());
    }
    for name in graph.node.iter().flat_map(|node| &node.output) {
        names.remove(name.as_str());
    }
    names
}
