//! Where instructions are issued, and where else they may be.
//!
//! Operations that one kernel computes need not follow each other in a program. The kernel is issued where
//! one of them stands; the others come earlier or later than in the program then. What is issued between
//! where an operation was and where it goes must neither make what it reads, nor read or make what lies
//! where it writes; and what one of them hands to another must not be written over in between. Operations
//! of other streams are in order by events: an operation does not go to before what waits for one, nor to
//! behind what signals one. Where turns begin, and at the guard of states, nothing passes.

use lower::{BufferId, Program, Stream};

use crate::places::meet;
use crate::task::is_cut;

/// One of the instructions that are to be issued together.
pub(crate) struct Member {
    pub(crate) number: usize,
    /// What it reads of memory.
    pub(crate) reads: Vec<BufferId>,
    /// What others of them hand to it, and which ones.
    pub(crate) handed: Vec<(usize, BufferId)>,
    /// What it leaves in memory.
    pub(crate) writes: Vec<BufferId>,
}

/// Where each instruction of a program is issued.
pub(crate) struct Order<'a> {
    program: &'a Program,
    /// For each instruction, the one where it is.
    at: Vec<usize>,
    /// For each instruction, those that are issued there.
    issued: Vec<Vec<usize>>,
}

impl<'a> Order<'a> {
    /// That of the program.
    pub(crate) fn of(program: &'a Program) -> Self {
        let all = 0..program.instructions.len();
        Self { program, at: all.clone().collect(), issued: all.map(|it| vec![it]).collect() }
    }

    /// Where an instruction is issued.
    pub(crate) fn at(&self, number: usize) -> usize {
        self.at[number]
    }

    /// Whether all of some instructions may be issued where one of them is.
    pub(crate) fn allows(&self, members: &[Member], at: usize) -> bool {
        members.iter().all(|it| self.may_go(it, members, at) && self.is_handed(it, members))
    }

    /// Issues instructions where one of them is.
    pub(crate) fn join(&mut self, members: &[usize], at: usize) {
        for &number in members {
            let from = std::mem::replace(&mut self.at[number], at);
            self.issued[from].retain(|&it| it != number);
            self.issued[at].push(number);
        }
    }

    /// What is issued between two places, but for some instructions.
    fn between<'b>(&'b self, (a, b): (usize, usize), but: &'b [Member]) -> impl Iterator<Item = usize> + 'b {
        let all = (a.min(b) + 1).min(a.max(b))..a.max(b);
        let all = self.issued[all].iter().flatten().copied();
        all.filter(move |&number| but.iter().all(|it| it.number != number))
    }

    /// Whether one of some instructions may be issued there.
    fn may_go(&self, member: &Member, members: &[Member], at: usize) -> bool {
        let from = self.at[member.number];
        let on_compute = |&number: &usize| self.program.instructions[number].stream == Stream::Compute;
        let is_apart = if at <= from {
            let mut passed = (at + 1..from + 1).filter(on_compute);
            passed.all(|it| self.program.instructions[it].waits.is_empty())
        } else {
            (from..at).filter(on_compute).all(|it| self.program.instructions[it].signals.is_none())
        };
        let meets = |ours: &[BufferId], theirs: &[BufferId]| {
            ours.iter().any(|&it| theirs.iter().any(|&other| meet(self.program, it, other)))
        };
        let mut others = self.between((from, at), members);
        is_apart
            && !is_cut(self.program, from.min(at) + 1..from.max(at) + 1)
            && others.all(|other| {
                let action = &self.program.instructions[other].action;
                let (reads, writes) = (action.reads(), action.writes());
                let over = meets(&member.writes, &reads) || meets(&member.writes, &writes);
                !over && !meets(&member.reads, &writes)
            })
    }

    /// Whether nothing is written over what others of some instructions hand to one before it reads that.
    fn is_handed(&self, member: &Member, members: &[Member]) -> bool {
        member.handed.iter().all(|&(from, buffer)| {
            let mut others = self.between((self.at[from], self.at[member.number]), members);
            others.all(|other| {
                let writes = self.program.instructions[other].action.writes();
                !writes.into_iter().any(|it| meet(self.program, it, buffer))
            })
        })
    }
}
