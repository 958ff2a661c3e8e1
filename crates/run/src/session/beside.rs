//! What a session takes over from another one on the same ranks: blocks of weights, and of what is
//! computed from weights alone, that are the same in both.

use std::collections::BTreeMap;

use lower::{BufferId, Kind, Port, Preparation, Program, StorageId, Whole};
use planner_ir::ValueId;

use super::Session;
use crate::error::RunError;
use crate::rank::Rank;

/// What a block at rest is of: a weight, or what operations make of weights.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Weight(String),
    /// The number of its term, and which result of it.
    Made(usize, usize),
}

/// Computations on weights, each once: equal ones have one number, in whichever program they stand.
#[derive(Default)]
struct Terms(BTreeMap<(String, Vec<Of>), usize>);

impl Terms {
    /// For each value that a program prepares, what it is.
    fn of(&mut self, preparation: &[Preparation]) -> BTreeMap<ValueId, Of> {
        let mut known: BTreeMap<ValueId, Of> = BTreeMap::new();
        for step in preparation {
            let operand = |operand: &Whole| match operand {
                Whole::Weight(name) => Some(Of::Weight(name.clone())),
                Whole::Prepared(value) => known.get(value).cloned(),
            };
            let Some(operands) = step.operands.iter().map(operand).collect() else { continue };
            let next = self.0.len();
            let number = *self.0.entry((format!("{:?}", step.op), operands)).or_insert(next);
            known
                .extend(step.results.iter().zip(0..).map(|(value, index)| (*value, Of::Made(number, index))));
        }
        known
    }
}

/// What weights and prepared values of a program are, with their ports.
fn at_rest<'a>(
    program: &'a Program,
    prepared: &BTreeMap<ValueId, Of>,
) -> impl Iterator<Item = (Of, &'a Port)> {
    let weights = program.weights.iter().map(|port| (Of::Weight(port.name.clone()), port));
    let made = program.prepared.iter().filter_map(|port| Some((prepared.get(&port.value)?.clone(), port)));
    weights.chain(made.collect::<Vec<_>>())
}

/// The blocks at rest of two programs of one rank that are the same: buffers of the first, and of the
/// other one.
pub fn alike(first: &Program, other: &Program) -> Vec<(BufferId, BufferId)> {
    let mut terms = Terms::default();
    let (firsts, others) = (terms.of(&first.preparation), terms.of(&other.preparation));
    let there: BTreeMap<Of, &Port> = at_rest(first, &firsts).collect();
    let same = |(of, port): (Of, &Port)| {
        let it = there.get(&of).filter(|it| it.pieces == port.pieces && it.type_ == port.type_)?;
        Some((it.buffer, port.buffer))
    };
    at_rest(other, &others).filter_map(same).collect()
}

/// What a rank holds of two programs whose steps take turns (bytes): blocks at rest that are the same in
/// both are there once, and so are inputs, of which each step has its own, and the memory of a step.
pub fn held_beside(first: &Program, other: &Program) -> u64 {
    let shared = alike(first, other).into_iter().map(|(_, here)| other.extent(other.buffer(here).storage));
    let shared = shared.map(|bytes| bytes.next_multiple_of(lower::ALIGNMENT)).fold(0, u64::saturating_add);
    let shared = shared.saturating_add(inputs(first).min(inputs(other)));
    let resting = first.resident.saturating_add(other.resident).saturating_sub(shared);
    resting.saturating_add(first.arena.max(other.arena))
}

/// What a program's inputs take (bytes).
fn inputs(program: &Program) -> u64 {
    let all = (0..program.storages.len()).map(StorageId);
    let inputs = all.filter(|it| program.storages[it.0].kind == Kind::Input);
    inputs.map(|it| program.extent(it).next_multiple_of(lower::ALIGNMENT)).fold(0, u64::saturating_add)
}

impl Session {
    /// Takes the memory of a step from another session on the same ranks, if it has not enough of its own: the
    /// steps of both take turns, and the next one is of this. Inputs that the other one keeps are lost; those that this
    /// one keeps, and has lost so, are zeros.
    pub fn take_turn(&mut self, other: &mut Self) -> Result<(), RunError> {
        other.leave_inputs();
        self.make_room(Some(other))?;
        if self.has_lost_inputs() { self.clear() } else { Ok(()) }
    }

    /// Has no inputs at rest on ranks on processors; on devices those of others are written over them.
    pub(crate) fn leave_inputs(&mut self) {
        if self.engine.is_none() {
            self.ranks.iter_mut().for_each(Rank::leave_inputs);
        }
    }

    /// Whether an input that is kept is nowhere, of ranks on processors.
    fn has_lost_inputs(&self) -> bool {
        let here = self.ranks.iter().enumerate().filter(|(number, _)| self.is_here(*number));
        let lost = |rank: &Rank| {
            let mut kept = rank.program.inputs.iter().filter(|it| self.kept_inputs.contains(&it.name));
            kept.any(|it| rank.resting(it.buffer).is_none())
        };
        self.engine.is_none() && here.map(|(_, rank)| rank).any(lost)
    }

    /// Has memory for a step on the ranks that are here.
    pub(crate) fn make_room(&mut self, mut other: Option<&mut Self>) -> Result<(), RunError> {
        if self.engine.is_some() {
            return Ok(());
        }
        for number in 0..self.ranks.len() {
            if self.is_here(number) {
                let from = other.as_deref_mut().and_then(|it| it.ranks.get_mut(number));
                self.ranks[number].make_room(from)?;
            }
        }
        Ok(())
    }

    /// What each rank on a processor of this process holds of sessions whose steps take turns (bytes): blocks at
    /// rest that are the same in both are there once.
    pub fn held_together(&self, other: Option<&Self>) -> Vec<u64> {
        let held = |number: usize| {
            let ranks = [Some(self), other].into_iter().flatten().filter_map(|it| it.ranks.get(number));
            let (mut blocks, mut arenas) = (BTreeMap::new(), 0);
            for (own, arena) in ranks.map(Rank::held) {
                blocks.extend(own);
                arenas += arena;
            }
            blocks.values().sum::<u64>() + arenas
        };
        (0..self.ranks.len()).map(held).collect()
    }

    /// Puts at rest what another session on the same processors has: each rank the blocks that it has
    /// there.
    pub(crate) fn take_over(&mut self, other: &Self) {
        for (number, (rank, from)) in self.ranks.iter_mut().zip(&other.ranks).enumerate() {
            if !other.is_here(number) {
                continue;
            }
            for (there, here) in alike(&from.program, &rank.program) {
                if let Some(block) = from.resting(there) {
                    rank.put(here, block);
                }
            }
        }
    }
}
