//! How many places what outlives a turn has.
//!
//! What one part of a micro-batch makes and another uses stays while other micro-batches have their
//! turns. Each then needs its own place: micro-batches use as many places in turn as there are, at
//! most, from the first micro-batch that needs one to the last. What is sent may be on its way while
//! the next is made, and what is received may come while the one before is used: two places at least.

use crate::action::Action;
use crate::program::{Program, Repeated, Turn};
use crate::storage::{Region, Storage};

/// The program whose storages have the places that they need.
pub(crate) fn counted(mut program: Program) -> Program {
    let Some(repeated) = program.repeated.take() else { return program };
    if repeated.parts.len() > 1 {
        let uses = uses(&program, &repeated);
        for (storage, uses) in program.storages.iter_mut().zip(uses) {
            if storage.kind.region() == Region::Step {
                storage.places = uses.places(&repeated);
            }
        }
    }
    program.repeated = Some(repeated);
    program
}

/// For each storage, whether turns of other micro-batches find something in it.
pub(crate) fn kept(program: &Program) -> Vec<bool> {
    let Some(repeated) = &program.repeated else { return vec![false; program.storages.len()] };
    let uses = uses(program, repeated);
    let kept = |(storage, uses): (&Storage, Uses)| {
        storage.places > 1 || uses.parts.is_some_and(|(first, last)| first != last)
    };
    program.storages.iter().zip(uses).map(kept).collect()
}

/// Which parts use a storage.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// The first and the last.
    parts: Option<(usize, usize)>,
    /// Whether its content is sent or received in one.
    crosses: bool,
}

impl Uses {
    fn places(&self, repeated: &Repeated) -> u64 {
        let Some((first, last)) = self.parts else { return 1 };
        let least = if self.crosses { 2 } else { 1 };
        if first == last { least } else { least.max(window(&repeated.turns, first, last)) }
    }
}

fn uses(program: &Program, repeated: &Repeated) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); program.storages.len()];
    for (number, part) in repeated.parts.iter().enumerate() {
        for instruction in &program.instructions[part.instructions.clone()] {
            let action = &instruction.action;
            for buffer in action.reads().into_iter().chain(action.writes()) {
                let uses = &mut uses[program.buffer(buffer).storage.0];
                let (first, last) = uses.parts.unwrap_or((number, number));
                uses.parts = Some((first.min(number), last.max(number)));
                uses.crosses |= matches!(action, Action::Send(_) | Action::Receive(_));
            }
        }
    }
    uses
}

/// How many places in turn keep what one part of each micro-batch makes until another has used it.
///
/// Of the micro-batches that need their place at a moment, the first and the last must not have the
/// same: their numbers differ by less than the places.
pub(crate) fn window(turns: &[Turn], first: usize, last: usize) -> u64 {
    let mut live = std::collections::BTreeSet::new();
    let mut most = 1;
    for turn in turns {
        if turn.part == first {
            live.insert(turn.micro_batch);
        }
        if let (Some(least), Some(greatest)) = (live.first(), live.last()) {
            most = most.max(greatest - least + 1);
        }
        if turn.part == last {
            live.remove(&turn.micro_batch);
        }
    }
    most
}
