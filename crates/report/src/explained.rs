//! A plan in words: what each operation of each block does, and what it waits for.

use std::collections::BTreeMap;

use plan::{Assignment, Copy, Plan, class_names, operation_in_words};
use planner_ir::{Graph, Node, NodeId, Source, ValueId};
use search::Section;

use crate::kept::{self, Kept};

/// A block, and where it stands.
#[derive(Debug)]
pub struct BlockStory {
    /// What it is called: `2`, and `2b` where block 2 is computed in a second way.
    pub name: String,
    /// Which section it is of.
    pub section: usize,
    /// How often it stands in the program, computed in this way.
    pub count: usize,
    /// Its operations, as in the first place where it stands.
    pub operations: Vec<OperationStory>,
    /// What it keeps for its gradients, if not all that they read.
    pub kept: Option<Kept>,
}

/// An operation of a block.
#[derive(Debug)]
pub struct OperationStory {
    /// Which one of the program it is, in the first place.
    pub node: NodeId,
    /// Which one of the block it is.
    pub local: NodeId,
    /// What the model file calls it.
    pub origin: String,
    /// The kind of operation.
    pub kind: &'static str,
    /// How it is computed.
    pub choice: String,
    /// The same as plans say it, and `--pin`.
    pub partition: String,
    /// What it takes (seconds).
    pub seconds: f64,
    /// What it waits for.
    pub moves: Vec<MoveStory>,
}

/// A value that is moved for an operation.
#[derive(Debug)]
pub struct MoveStory {
    /// What the value is called.
    pub value: String,
    /// The moves.
    pub moves: Vec<&'static str>,
    /// What all devices receive (bytes).
    pub bytes: u64,
    /// What it takes (seconds).
    pub seconds: f64,
}

/// The blocks of a plan's program, those that are computed alike told once.
pub fn blocks(plan: &Plan, sections: &[Section]) -> Vec<BlockStory> {
    let first = first_uses(plan);
    let mut stories: Vec<BlockStory> = Vec::new();
    for (index, section) in sections.iter().enumerate() {
        for repetition in &section.repetitions {
            let nodes = section.graph.node_ids().zip(&repetition.nodes);
            let one = |(local, &node)| operation(plan, &first, local, node);
            let operations: Vec<OperationStory> = nodes.filter_map(one).collect();
            let same =
                stories.iter_mut().find(|it| it.section == index && alike(&it.operations, &operations));
            match same {
                Some(story) => story.count += 1,
                None if operations.is_empty() => {}
                None => {
                    let before = stories.iter().filter(|it| it.section == index).count();
                    let name = format!("{}{}", index + 1, variant(before));
                    let kept = kept::of_block(plan, section, repetition);
                    stories.push(BlockStory { name, section: index, count: 1, operations, kept });
                }
            }
        }
    }
    stories
}

/// What a block's other ways are called: nothing for the first, then letters.
fn variant(before: usize) -> String {
    match before {
        0 => String::new(),
        _ => ('b'..='z').nth(before - 1).map_or_else(|| format!("-{}", before + 1), String::from),
    }
}

fn alike(one: &[OperationStory], other: &[OperationStory]) -> bool {
    let moves = |it: &OperationStory| -> Vec<(Vec<&'static str>, u64)> {
        it.moves.iter().map(|it| (it.moves.clone(), it.bytes)).collect()
    };
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(a, b)| a.local == b.local && a.choice == b.choice && moves(a) == moves(b))
}

/// For each transfer, the operation that reads it first.
fn first_uses(plan: &Plan) -> BTreeMap<usize, usize> {
    let mut first = BTreeMap::new();
    for (node, assignment) in plan.assignments.iter().enumerate() {
        let Assignment::Computed { operands, .. } = assignment else { continue };
        for &copy in operands {
            let mut copy = copy;
            while let Copy::Transferred(transfer) = copy {
                first.entry(transfer).or_insert(node);
                copy = plan.transfers[transfer].from;
            }
        }
    }
    first
}

/// An operation that is computed at every step; none for a constant.
fn operation(
    plan: &Plan,
    first: &BTreeMap<usize, usize>,
    local: NodeId,
    node: NodeId,
) -> Option<OperationStory> {
    let Assignment::Computed { seconds, ref partition, .. } = plan.assignments[node.0] else { return None };
    let it = plan.graph.node(node);
    let transfers = first.iter().filter(|(_, user)| **user == node.0).map(|(&transfer, _)| transfer);
    let moves = transfers.map(|transfer| {
        let transfer = &plan.transfers[transfer];
        MoveStory {
            value: value_name(&plan.graph, transfer.value),
            moves: transfer.moves.iter().map(planner_ir::Move::name).collect(),
            bytes: transfer.bytes.iter().sum(),
            seconds: transfer.takes(),
        }
    });
    Some(OperationStory {
        node,
        local,
        origin: it.origin.clone(),
        kind: class_names(&it.op).operation,
        choice: operation_in_words(plan, node.0),
        partition: partition.display(&plan.mesh).to_string(),
        seconds,
        moves: moves.collect(),
    })
}

/// What a user has fixed in plans of parts of a program, and of how many operations.
pub fn pinned<'a>(plans: impl Iterator<Item = &'a Plan>) -> Vec<String> {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for plan in plans {
        for pin in &plan.pins {
            let of = |(node, assignment): &(&Node, &Assignment)| match assignment {
                Assignment::Computed { partition, .. } => pin.is_of(node, partition.loops.len()),
                Assignment::Prepared => false,
            };
            let count = plan.graph.nodes.iter().zip(&plan.assignments).filter(of).count();
            *all.entry(pin.text(&plan.mesh)).or_default() += count;
        }
    }
    let line = |(text, count)| match count {
        1 => format!("{text}, 1 operation"),
        _ => format!("{text}, {count} operations"),
    };
    all.into_iter().map(line).collect()
}

/// The moves of outputs, which no operation waits for.
pub fn returned(plan: &Plan) -> Vec<MoveStory> {
    let first = first_uses(plan);
    let unused = plan.transfers.iter().enumerate().filter(|(index, _)| !first.contains_key(index));
    let story = |(_, transfer): (usize, &plan::Transfer)| MoveStory {
        value: value_name(&plan.graph, transfer.value),
        moves: transfer.moves.iter().map(planner_ir::Move::name).collect(),
        bytes: transfer.bytes.iter().sum(),
        seconds: transfer.takes(),
    };
    unused.map(story).collect()
}

/// What a value is called in the model file.
fn value_name(graph: &Graph, value: ValueId) -> String {
    match &graph.value(value).source {
        Source::Input(name) | Source::Weight(name) => name.clone(),
        Source::State(state) => format!("{} of {}", state.kind.name(), state.name),
        Source::Result { node, .. } => graph.node(*node).origin.clone(),
    }
}
