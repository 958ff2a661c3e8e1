//! The rules that programs obey, trusting nothing that made them.
//!
//! - **rank**: the programs are those of ranks 0, 1, ... of as many.
//! - **reference**: what an instruction or a port names exists.
//! - **communicator**: its ranks differ, this rank is one of them, and each of them has the same
//!   list under the same number.
//! - **collective-order**: all ranks of a communicator enter the same collectives and messages
//!   (kind, elements and their type, for what) in the same order, as often before, in and after each
//!   repetition.
//! - **message**: a rank gives its block to exactly those ranks that get theirs from it.
//! - **acyclic-overlapped**: with everything at the same time that streams and events allow, no
//!   instruction waits for itself through others, a collective being one moment of all its ranks,
//!   and messages likewise.
//! - **acyclic-serial**: nor with each rank's instructions one after another.
//! - **event**: an event is signalled by one instruction, and waited for only after it.
//! - **stream**: ranks meet on the communication stream, send on the sending one and receive on the
//!   receiving one: what has to be in one order on all of them is.
//! - **place**: storages start at cache lines within their memory; those at rest share no bytes.
//! - **size**: buffers fit their storages, collectives, messages and copies fit their buffers, and
//!   copies set all of their target, or take all of what they put into a part of it.
//! - **type**: an operation's operands have the types of its results by inference, but for sums,
//!   which may be in wider elements, and blocks lie within values.
//! - **written-once**: what a step writes is written by one instruction, or put together of equal
//!   parts of which each is; nothing at rest is, but states, and inputs of a step that an operation writes
//!   its result over.
//! - **read-after-write**: what is read, or returned, has been written.
//! - **reuse**: bytes are written again only after everything that uses what they held, or by what has
//!   read them element by element.
//! - **crossing**: what a rank sends to another one that receives in that order: the same crossing,
//!   for the same micro-batch, as many elements of the same type.
//! - **waiting**: done turn by turn, no rank waits forever: neither one instruction after another,
//!   where what is sent waits nowhere, nor all that streams and events allow at the same time, where
//!   sending ends when it is received.
//! - **issue-order**: nor where a rank's exchanges are done one after another, all of them, and what is
//!   sent waits until it is received: they can be issued in the order of the program but for what is
//!   sent, which comes later, and before what waits for it.
//! - **places**: what one part of a micro-batch makes and another uses has places enough that no
//!   other micro-batch writes there meanwhile, and what is sent or received has two.
//! - **repetition**: what is repeated are instructions of the program, at least once and equally
//!   often on all ranks; parts are all of them, each has one turn for each micro-batch, and those of a
//!   stage come in their order; what is given for each repetition is read in it only.
//! - **cleared**: sums over micro-batches are set to zero once, before the first repetition; other
//!   states are not, nor what one micro-batch alone writes and does not add to.
//! - **carried**: each state is written: a sum in the repetition, any other after it.
//! - **state-order**: what reads a state reads what it is meant to: a buffer that an instruction
//!   writes, after that and before the next one that writes the state; the state's own buffer, or
//!   one that none writes, the state as it was found, before it is written, or after the last
//!   repetition what a sum has become. So it is with inputs that something is written over.
//!   An instruction that reads what it writes does so element by element, or sums over ranks.
//! - **guard**: before the guard no state that lasts is written, and all outputs are that it looks
//!   at.
//! - **port**: a port's pieces are factors of its value's shape, and its buffer is of their size.

use std::fmt;

use planner_ir::Violations;

use crate::program::Program;

mod actions; // one instruction at a time
mod meeting; // what ranks do together
mod crossing; // what goes between stages
mod replay; // who waits for whom over all turns
pub(crate) mod issued; // what ranks issue, one exchange after another
mod parts; // which part of a buffer is used
mod memory; // who uses which bytes when
mod states; // what repetitions and states add to that

/// Where programs break a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// In whose program.
    pub rank: u64,
    /// At which of its instructions, if it is one.
    pub instruction: Option<usize>,
}

/// A rule that programs break.
pub type Violation = planner_ir::Violation<Place>;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        self.instruction.map_or(Ok(()), |instruction| write!(f, ", instruction {instruction}"))
    }
}

/// Whether programs obey the rules; all violations if not.
///
/// If something named does not exist, only that is reported.
pub fn verify(programs: &[Program]) -> Result<(), Violations<Place>> {
    let mut found = Vec::new();
    meeting::check_ranks(programs, &mut found);
    for program in programs {
        actions::check_references(program, &mut found);
    }
    if found.is_empty() {
        for program in programs {
            actions::check(program, &mut found);
            memory::check(program, &mut found);
            states::check(program, &mut found);
            crossing::check_places(program, &mut found);
        }
        meeting::check(programs, &mut found);
    }
    Violations(found).none_or(())
}

/// Where violations of one program's rules are gathered.
struct Report<'a> {
    rank: u64,
    found: &'a mut Vec<Violation>,
}

impl Report<'_> {
    fn at(&mut self, instruction: usize, rule: &'static str, message: String) {
        let place = Place { rank: self.rank, instruction: Some(instruction) };
        self.found.push(Violation { place, rule, message });
    }

    fn whole(&mut self, rule: &'static str, message: String) {
        let place = Place { rank: self.rank, instruction: None };
        self.found.push(Violation { place, rule, message });
    }
}
