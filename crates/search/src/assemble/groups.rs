//! Operations that are chosen together: a forward operation, and those of its gradients.
//!
//! A forward operation's partition says which blocks of its operands and results each device has
//! to do with; its gradients are computed on the same blocks. So the operations of a gradient have
//! no choice of their own where what they read of the forward operation, and the gradients of its
//! results, are in the layouts of its partition (whole where it owes a sum). Chosen together they
//! make the problem of a training step about as hard as that of its forward part.

use planner_ir::{Layout, Node, NodeId, Op, Phase, Source, ValueId};
use rewrite::{Added, Choice, Space};

use super::{is_prepared, sums};
use crate::section::Section;

/// Operations with one node.
pub(super) struct Group {
    pub(super) nodes: Vec<NodeId>,
    /// For each choice of the node, the choice of each operation.
    pub(super) choices: Vec<Vec<usize>>,
}

/// The operations of a section in groups, in order of their first operations; given the time of
/// each choice (seconds), and the products that may add to sums.
pub(super) fn groups(section: &Section, space: &Space, seconds: &[Vec<f64>], added: &[Added]) -> Vec<Group> {
    let graph = &section.graph;
    let (on_parameters, for_sums) = (graph.on_parameters(), graph.for_sums());
    let mut groups: Vec<Group> = Vec::new();
    // For each operation, the number of its group.
    let mut group_of = vec![None; graph.nodes.len()];
    for node in graph.node_ids().filter(|&node| !is_prepared(graph, node, &space.prepared)) {
        if added.iter().any(|it| it.widened == Some(node)) {
            continue;
        }
        if let Some(it) = added.iter().find(|it| it.sum == node) {
            let (nodes, choices) = sums::together(space, it);
            groups.push(Group { nodes, choices });
            continue;
        }
        // A gradient of what takes parameters apart has choices of its own: it is a sum over
        // micro-batches and devices, which may be owed until the update.
        let Node { phase, results, .. } = graph.node(node);
        let is_gradient = *phase == Phase::Gradient || results.iter().all(|it| for_sums[it.0]);
        let own = |forward: &NodeId| on_parameters[forward.0] && is_gradient;
        let forward = section.forward[node.0].filter(|forward| !own(forward));
        let group = forward.and_then(|forward| {
            let found: usize = group_of[forward.0]?;
            let chosen = together(section, space, &groups[found], node, seconds)?;
            Some((found, chosen))
        });
        if let Some((number, choices)) = group {
            groups[number].nodes.push(node);
            groups[number].choices = choices;
            group_of[node.0] = Some(number);
        } else {
            let choices = (0..space.choices[node.0].len()).map(|choice| vec![choice]).collect();
            group_of[node.0] = Some(groups.len());
            groups.push(Group { nodes: vec![node], choices });
        }
    }
    groups
}

/// The choices of a group with one more operation; nothing if some choice of the group leaves it
/// none, or if there would be more than before.
fn together(
    section: &Section,
    space: &Space,
    group: &Group,
    node: NodeId,
    seconds: &[Vec<f64>],
) -> Option<Vec<Vec<usize>>> {
    let mut all = Vec::new();
    for choices in &group.choices {
        let wanted = wanted(section, space, group, choices, node)?;
        let suits = |choice: &Choice| {
            let mut layouts = wanted.iter().zip(&choice.operands);
            layouts.all(|(wanted, layout)| wanted.is_none_or(|wanted| wanted == *layout))
        };
        let own = &space.choices[node.0];
        let suitable: Vec<usize> = (0..own.len()).filter(|&it| suits(&own[it])).collect();
        let only = one_of(section, space, (group, choices), node, suitable, seconds)?;
        all.push([&choices[..], &[only]].concat());
    }
    Some(all)
}

/// The one of some choices of a gradient that goes with a group's choices; nothing if several do.
///
/// With partitions in time, several make other things of the same operands: the one that leaves
/// the gradient of an operand where the operand is goes with the forward operation. Of several that
/// differ in nothing else the fastest does.
fn one_of(
    section: &Section,
    space: &Space,
    (group, choices): (&Group, &[usize]),
    node: NodeId,
    mut suitable: Vec<usize>,
    seconds: &[Vec<f64>],
) -> Option<usize> {
    let graph = &section.graph;
    let (own, results) = (&space.choices[node.0], &graph.node(node).results);
    if suitable.len() > 1 {
        let forward = graph.node(group.nodes[0]);
        let first = &space.choices[group.nodes[0].0][choices[0]];
        let at_home = |&choice: &usize| {
            results.iter().zip(&own[choice].results).all(|(&result, &layout)| {
                let made = &space.layouts[result.0][layout];
                let same = |(&operand, &layout): (&ValueId, &usize)| {
                    graph.type_of(operand).shape == graph.type_of(result).shape
                        && space.layouts[operand.0][layout].dims == made.dims
                };
                forward.operands.iter().zip(&first.operands).any(same)
            })
        };
        if suitable.iter().any(at_home) {
            suitable.retain(at_home);
        }
    }
    let made = &own[*suitable.first()?].results;
    let alike = suitable.iter().all(|&it| own[it].results == *made);
    let by_time = |a: &usize, b: &usize| seconds[node.0][*a].total_cmp(&seconds[node.0][*b]);
    suitable.into_iter().min_by(by_time).filter(|_| alike)
}

/// For each operand of an operation, the number of the layout that the group's choices ask for, if they do;
/// nothing if it cannot be held in one of them.
fn wanted(
    section: &Section,
    space: &Space,
    group: &Group,
    choices: &[usize],
    node: NodeId,
) -> Option<Vec<Option<usize>>> {
    let graph = &section.graph;
    let layout_of = |value: ValueId, layout: usize| space.layouts[value.0][layout].clone();
    let forward = graph.node(group.nodes[0]);
    let first = &space.choices[group.nodes[0].0][choices[0]];
    let known = |value: ValueId| {
        let operands = forward.operands.iter().zip(&first.operands);
        let mut touched = operands.chain(forward.results.iter().zip(&first.results));
        touched.find(|(it, _)| **it == value).map(|(_, &layout)| whole(layout_of(value, layout)))
    };
    let gradient = |value: ValueId| {
        let shape = &graph.type_of(value).shape;
        let result = forward.results.iter().position(|it| graph.type_of(*it).shape == *shape)?;
        Some(whole(layout_of(forward.results[result], first.results[result])))
    };
    let wanted = |&value: &ValueId| {
        let original = original(section, value);
        let wanted = known(original).or_else(|| gradient(value).filter(|_| flows_back(section, original)));
        let number = |it: Layout| space.layouts[value.0].binary_search(&it).ok();
        wanted.map_or(Some(None), |it| number(it).map(Some))
    };
    let mut all: Vec<Option<usize>> = graph.node(node).operands.iter().map(wanted).collect::<Option<_>>()?;
    if let (Op::Quantize { .. } | Op::QuantizeNvfp4(_), [_, amax, ..]) = (&graph.node(node).op, &mut all[..])
    {
        // Every device needs all magnitudes, wherever they are found.
        *amax = None;
    }
    Some(all)
}

/// What a value is that was computed again; itself if it was not.
pub(super) fn original(section: &Section, value: ValueId) -> ValueId {
    let graph = &section.graph;
    let Source::Result { node, index } = graph.value(value).source else { return value };
    let again = graph.node(node);
    match section.forward[node.0].map(|forward| graph.node(forward)) {
        Some(first)
            if first.op == again.op && graph.types_of(&first.results) == graph.types_of(&again.results) =>
        {
            first.results[index]
        }
        _ => value,
    }
}

/// Whether a value is made by operations of gradients.
fn flows_back(section: &Section, value: ValueId) -> bool {
    match section.graph.value(value).source {
        Source::Result { node, .. } => section.graph.node(node).phase != Phase::Forward,
        _ => section.from_after.contains(&value),
    }
}

/// A layout whose sums have been made.
fn whole(layout: Layout) -> Layout {
    Layout { owed: vec![], ..layout }
}
