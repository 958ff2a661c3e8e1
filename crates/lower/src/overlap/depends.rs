//! Which instructions have to come before which.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use planner_ir::NodeId;

use crate::action::{Action, Origin};
use crate::program::Program;
use crate::storage::{Kind, Region, StorageId};

/// For each instruction of a stretch those of it that come before it and after it, directly.
pub(super) struct Depends {
    pub(super) before: Vec<Vec<usize>>,
    pub(super) after: Vec<Vec<usize>>,
    /// Whether it stays behind all that it is behind: what is done in time steps, and what crosses between
    /// stages.
    pub(super) stays: Vec<bool>,
    /// Whether it is computed of nothing but what is at rest, such as a weight that is converted: it can be as early as
    /// what reads it asks for.
    pub(super) known: Vec<bool>,
}

/// Who used a storage last.
#[derive(Default)]
struct Uses {
    write: Option<usize>,
    reads: Vec<usize>,
}

impl Depends {
    /// What a stretch of a program asks for, counted from its start: what is read has been written, what
    /// is written is written over nothing that is read later, and what stays keeps its order.
    pub(super) fn of(program: &Program, stretch: &Range<usize>) -> Self {
        let instructions = &program.instructions[stretch.clone()];
        let in_steps = in_steps(program, stretch);
        let mut uses: BTreeMap<StorageId, Uses> = BTreeMap::new();
        let mut before: Vec<Vec<usize>> = Vec::with_capacity(instructions.len());
        let mut stays = Vec::with_capacity(instructions.len());
        let mut known: Vec<bool> = Vec::with_capacity(instructions.len());
        let mut stayed: Option<usize> = None;
        for (index, instruction) in instructions.iter().enumerate() {
            let lowest = |buffer| program.lowest(program.buffer(buffer).storage);
            let reads: BTreeSet<StorageId> = instruction.action.reads().into_iter().map(lowest).collect();
            let writes: BTreeSet<StorageId> = instruction.action.writes().into_iter().map(lowest).collect();
            let mut needed = BTreeSet::new();
            for storage in &reads {
                needed.extend(uses.entry(*storage).or_default().write);
            }
            for storage in &writes {
                let uses = uses.entry(*storage).or_default();
                needed.extend(uses.write);
                needed.extend(uses.reads.iter().copied());
            }
            let stay = match (&instruction.action, instruction.origin) {
                (Action::Message(_) | Action::Send(_) | Action::Receive(_), _) => true,
                (_, Origin::Node(node) | Origin::Motion { node, .. }) => in_steps.contains(&node),
                _ => false,
            };
            if stay {
                needed.extend(stayed.replace(index));
            }
            // What is read is at rest, or made here of what is.
            let kind = |it: &StorageId| program.storages[it.0].kind;
            let rests = |it: &StorageId| kind(it).region() == Region::Resident && kind(it) != Kind::Input;
            let made = |it: &StorageId| uses.get(it).is_some_and(|it| it.write.is_some());
            known.push(
                matches!(instruction.action, Action::Compute(_) | Action::Copy(_))
                    && !stay
                    && writes.iter().all(|it| kind(it).region() == Region::Step)
                    && reads.iter().all(|it| rests(it) || made(it))
                    && needed.iter().all(|&it| known[it]),
            );
            for storage in writes {
                uses.insert(storage, Uses { write: Some(index), reads: Vec::new() });
            }
            for storage in reads {
                uses.entry(storage).or_default().reads.push(index);
            }
            stays.push(stay);
            before.push(needed.into_iter().filter(|&it| it != index).collect());
        }
        let mut after = vec![Vec::new(); before.len()];
        for (index, needed) in before.iter().enumerate() {
            needed.iter().for_each(|&it| after[it].push(index));
        }
        Self { before, after, stays, known }
    }
}

/// The operations of a stretch that are done in time steps, between which something moves: rows that are routed move
/// before one computation and after it.
fn in_steps(program: &Program, stretch: &Range<usize>) -> BTreeSet<NodeId> {
    let (mut moved, mut computed) = (BTreeSet::new(), BTreeMap::<NodeId, usize>::new());
    for it in &program.instructions[stretch.clone()] {
        match (it.origin, &it.action) {
            (Origin::Motion { node, .. }, _) => _ = moved.insert(node),
            (Origin::Node(node), Action::Compute(_)) => *computed.entry(node).or_default() += 1,
            _ => {}
        }
    }
    moved.retain(|node| computed.get(node).is_some_and(|&times| times > 1));
    moved
}

/// The parts of a step that instructions stay in.
pub(super) fn stretches(program: &Program) -> Vec<Range<usize>> {
    let mut cuts: BTreeSet<usize> = [0, program.instructions.len()].into();
    let repetition = program.repetition();
    cuts.extend([repetition.start, repetition.end]);
    cuts.extend(program.repeated.iter().flat_map(|it| &it.parts).map(|it| it.instructions.end));
    cuts.extend(program.guard);
    let cuts: Vec<usize> = cuts.into_iter().collect();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
