//! Which part of a buffer an instruction uses.

use std::ops::Range;

use crate::action::{Action, CollectiveKind, Copied, Direction};
use crate::program::Program;
use crate::storage::{BufferId, StorageId};
use crate::strided::{Stride, Strided};

/// What an instruction sets of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// One of equal parts, all of which together are the buffer; it alone if there is one.
    Part {
        /// Which part.
        number: u64,
        /// How many there are.
        count: u64,
        /// The loops over its elements; none if it is the whole.
        loops: Vec<Stride>,
    },
    /// Nothing: another rank's buffer is.
    Nothing,
    /// A part of which is not known that the others do not have its elements.
    Strange,
}

impl Written {
    /// What parts have in common whose numbers say whether they are different.
    pub(super) fn shape(&self) -> Option<(u64, &[Stride])> {
        match self {
            Self::Part { count, loops, .. } => Some((*count, loops)),
            Self::Nothing | Self::Strange => None,
        }
    }
}

/// What an action sets of a buffer that it writes.
pub(super) fn written(program: &Program, action: &Action, buffer: BufferId) -> Written {
    let whole = Written::Part { number: 0, count: 1, loops: Vec::new() };
    match action {
        Action::Copy(Copied { strided, direction: Direction::Put, .. }) => {
            part(strided, program.buffer(buffer).type_.elements())
        }
        Action::Collective(collective) => match collective.kind {
            CollectiveKind::Reduce(root) => {
                let own = program.members(collective.communicator).get(root) == Some(&program.rank);
                if own { whole } else { Written::Nothing }
            }
            _ => whole,
        },
        Action::Compute(_) | Action::Copy(_) | Action::Message(_) | Action::Send(_) | Action::Receive(_) => {
            whole
        }
    }
}

/// Between which bytes of a storage an action reads or writes something, from the storage's start.
pub(super) fn touched(program: &Program, action: &Action, storage: StorageId) -> Range<u64> {
    let lies_there = |buffer: BufferId| program.buffer(buffer).storage == storage;
    let whole = 0..program.extent(storage);
    let Action::Copy(Copied { from, to, strided, direction }) = action else { return whole };
    let (in_part, other) = match direction {
        Direction::Take => (*from, *to),
        Direction::Put => (*to, *from),
    };
    if !lies_there(in_part) || lies_there(other) || program.storages[storage.0].places > 1 {
        return whole;
    }
    let bytes = program.buffer(in_part).type_.dtype.bytes();
    let end = strided.last_read().map_or(strided.start, |last| last.saturating_add(1));
    strided.start.saturating_mul(bytes)..end.saturating_mul(bytes)
}

fn part(strided: &Strided, elements: u64) -> Written {
    match (strided.part(elements), elements.checked_div(strided.elements())) {
        (Some(number), Some(count)) if count > 1 => {
            Written::Part { number, count, loops: strided.loops.clone() }
        }
        (Some(number), Some(count)) => Written::Part { number, count, loops: Vec::new() },
        _ => Written::Strange,
    }
}
