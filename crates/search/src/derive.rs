//! Where chosen sections stand in a program that was derived for them.

use std::collections::BTreeSet;

use planner_ir::{Graph, NodeId, Source, ValueId};

use crate::section::{Repetition, Section};

/// For each section, in order, its values and operations in a program of which it is a segment;
/// the number of the first that is not, if one is not.
///
/// A section is a segment of a program if the segment's operations, in order, are the section's,
/// and what they use stands at the same places.
pub(crate) fn stand(graph: &Graph, homes: &[usize], sections: &[&Section]) -> Result<Vec<Repetition>, usize> {
    let known: BTreeSet<usize> = homes.iter().copied().collect();
    let known: Vec<usize> = known.into_iter().collect();
    let mut segments: Vec<Vec<NodeId>> = vec![Vec::new(); known.len()];
    for (node, home) in graph.node_ids().zip(homes) {
        segments[known.binary_search(home).unwrap_or(0)].push(node);
    }
    if segments.len() != sections.len() {
        return Err(segments.len().min(sections.len()));
    }
    let mut found: Vec<Vec<Option<ValueId>>> = Vec::new();
    for (index, (section, nodes)) in sections.iter().zip(&segments).enumerate() {
        found.push(values(graph, section, nodes).ok_or(index)?);
    }
    // What only passes is known by the neighbour that makes it.
    for index in 1..sections.len() {
        for (left, right) in joint(sections[index - 1], sections[index]) {
            let value = found[index - 1][left.0].or(found[index][right.0]);
            found[index - 1][left.0] = value;
            found[index][right.0] = value;
        }
    }
    let stands = found.into_iter().zip(segments).enumerate().map(|(index, (values, nodes))| {
        let values: Option<Vec<ValueId>> = values.into_iter().collect();
        Ok(Repetition { values: values.ok_or(index)?, nodes })
    });
    stands.collect()
}

/// For each value of a section that its operations touch, the program's.
fn values(graph: &Graph, section: &Section, nodes: &[NodeId]) -> Option<Vec<Option<ValueId>>> {
    let body = &section.graph;
    let mut values: Vec<Option<ValueId>> = vec![None; body.values.len()];
    let mut agree = |own: &[ValueId], whole: &[ValueId]| {
        own.len() == whole.len()
            && own.iter().zip(whole).all(|(own, &value)| *values[own.0].get_or_insert(value) == value)
    };
    let same = body.nodes.len() == nodes.len()
        && body.nodes.iter().zip(nodes).all(|(own, &node)| {
            let node = graph.node(node);
            own.op == node.op
                && own.phase == node.phase
                && agree(&own.operands, &node.operands)
                && agree(&own.results, &node.results)
        });
    // A shared state may stand here for what becomes of it only.
    for it in body.training.iter().flat_map(|training| &training.carried) {
        let next = values[it.next.0]?;
        let whole = graph.training.iter().flat_map(|training| &training.carried);
        let state = whole.clone().find(|whole| whole.next == next)?.state;
        if *values[it.state.0].get_or_insert(state) != state {
            return None;
        }
    }
    let typed = values.iter().zip(&body.values).all(|(value, own)| {
        let Some(value) = value.map(|value| graph.value(value)) else { return true };
        let kind = |source: &Source| match source {
            Source::State(state) => Some(state.kind),
            _ => None,
        };
        let at_rest = !matches!(value.source, Source::Result { .. });
        value.type_ == own.type_ && (!at_rest || kind(&value.source) == kind(&own.source))
    });
    (same && typed).then_some(values)
}

/// What two neighbours have in common.
fn joint(left: &Section, right: &Section) -> Vec<(ValueId, ValueId)> {
    let ends = left.exit.iter().copied().zip(right.entry.iter().copied());
    let mut pairs: Vec<(ValueId, ValueId)> = ends.collect();
    for (exit, entry) in pairs.clone() {
        let tied = |section: &Section, end: ValueId, back: bool| {
            let goes_with = |it: &&(ValueId, ValueId)| it.0 == end && section.is_made(it.1) != back;
            section.tied.iter().find(goes_with).map(|it| it.1)
        };
        pairs.extend(tied(left, exit, true).zip(tied(right, entry, false)));
    }
    pairs
}
