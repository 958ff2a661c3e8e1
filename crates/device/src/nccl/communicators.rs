//! The communicators of all programs, made once, by all ranks in the same order.
//!
//! One of all ranks is split for each list of members that programs have, in the order of its blocks; lists
//! that have no rank in common are made by one split. What goes between stages takes that of all ranks. What
//! runs beside computing has communicators of its own.
//! Programs of plans that take turns use the same ones.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use lower::{Action, CollectiveKind, CommunicatorId, Program, Way};
use planner_ir::DType;

use super::functions::{Handle, Unique};
use super::library::{Collected, Library, Passed};
use super::wires::Wires;
use crate::error::DeviceError;
use crate::gpu::Gpu;

/// The communicators of a rank.
pub(super) struct Communicators {
    library: Rc<Library>,
    limit: Duration,
    /// That of all ranks.
    pub(super) world: Handle,
    /// All that are there, in the order in which they were made.
    all: Vec<(Handle, Members)>,
}

/// What a communicator is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Members {
    /// The ranks, in the order of their blocks.
    pub(super) ranks: Vec<u64>,
    /// Whether it is of exchanges beside computing.
    pub(super) beside: bool,
}

impl Members {
    /// Those of the communicators of a program, by their numbers.
    pub(super) fn all(program: &Program) -> Vec<Self> {
        let beside = program.beside();
        let of = |(number, ranks): (usize, &Vec<u64>)| Self {
            ranks: ranks.clone(),
            beside: beside.contains(&CommunicatorId(number)),
        };
        program.communicators.iter().enumerate().map(of).collect()
    }

    /// Of all ranks.
    fn world(size: u64) -> Self {
        Self { ranks: (0..size).collect(), beside: false }
    }
}

/// What is connected of a communicator: which members this rank sends to, and receives from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Connected {
    to: BTreeSet<usize>,
    from: BTreeSet<usize>,
}

/// Lists of members, each once and not that of all ranks, in groups that have no rank in common.
fn rounds(lists: &[Members], size: u64) -> Vec<Vec<&Members>> {
    let world = Members::world(size);
    let mut known: BTreeSet<&Members> = BTreeSet::new();
    let mut rounds: Vec<Vec<&Members>> = Vec::new();
    for members in lists {
        if *members == world || !known.insert(members) {
            continue;
        }
        let meet = |other: &Members| other.ranks.iter().any(|it| members.ranks.contains(it));
        let apart = |round: &&mut Vec<&Members>| !round.iter().any(|it| meet(it));
        match rounds.iter_mut().find(apart) {
            Some(round) => round.push(members),
            None => rounds.push(vec![members]),
        }
    }
    rounds
}

/// With whom a rank exchanges messages on the communicator of these members, in all of its programs.
fn connected(own: &[Program], of: &Members, is_world: bool) -> Connected {
    let mut connected = Connected::default();
    let members = of.ranks.as_slice();
    let place = |rank: u64| members.iter().position(|it| *it == rank);
    let all = own.iter().flat_map(|program| program.instructions.iter().map(move |it| (program, it)));
    for (program, instruction) in all {
        let others = || (0..members.len()).filter(|&it| members[it] != program.rank);
        let same = (instruction.stream == lower::Stream::Beside) == of.beside;
        let on = instruction.action.communicator().map(|it| program.members(it)).filter(|_| same);
        match &instruction.action {
            Action::Collective(it) if on == Some(members) && it.kind == CollectiveKind::AllToAll => {
                connected.to.extend(others());
                connected.from.extend(others());
            }
            Action::Message(it) if on == Some(members) => {
                connected.to.extend(it.to.iter().filter_map(|&rank| place(rank)));
                connected.from.extend(place(it.from).filter(|_| it.from != program.rank));
            }
            _ if is_world => {
                for part in instruction.action.remotes() {
                    let side = if part.way == Way::To { &mut connected.to } else { &mut connected.from };
                    side.extend(place(part.rank));
                }
            }
            _ => {}
        }
    }
    connected
}

impl Communicators {
    /// Those of a rank among so many, of the lists of members that all programs have; nothing if making
    /// them takes longer than the limit.
    pub(super) fn make(
        library: &Rc<Library>,
        unique: Unique,
        lists: &[Members],
        [rank, size]: [u64; 2],
        limit: Duration,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(world) = library.join(unique, rank, size, limit)? else { return Ok(None) };
        let mut all = vec![(world, Members::world(size))];
        for round in rounds(lists, size) {
            let color = round.iter().position(|members| members.ranks.contains(&rank));
            let members = color.map(|it| round[it]);
            let place = |members: &Members| members.ranks.iter().position(|it| *it == rank);
            let key = members.and_then(place).unwrap_or(0);
            let Some(handle) = library.split(world, color, key, limit)? else { return Ok(None) };
            all.extend(members.map(|it| (handle, it.clone())));
        }
        Ok(Some(Self { library: Rc::clone(library), limit, world, all }))
    }

    /// Those of a program, by their numbers.
    pub(super) fn of(&self, program: &Program) -> Result<Vec<Handle>, DeviceError> {
        let of = |members: Members| {
            let missing = || DeviceError::Program(format!("no communicator has been made of {members:?}"));
            self.all.iter().find(|it| it.1 == members).map(|it| it.0).ok_or_else(missing)
        };
        Members::all(program).into_iter().map(of).collect()
    }

    /// Uses everything once, so that all connections are there before the first step: a sum on each
    /// communicator, and a message from each rank to each that it will send to in one of its programs.
    pub(super) fn warm(&self, gpu: &Rc<Gpu>, own: &[Program], wires: &Wires) -> Result<(), DeviceError> {
        const ROOM: u64 = 512;
        let ranks = self.all.iter().map(|it| it.1.ranks.len()).max().unwrap_or(0);
        let memory = gpu.memory(ROOM * (2 + u64::try_from(ranks).unwrap_or(u64::MAX - 2)))?;
        wires.waited.fill(memory.start, 0, memory.bytes)?;
        wires.synchronize()?;
        let place = |number: usize| memory.start + ROOM * (2 + u64::try_from(number).unwrap_or(0));
        for (handle, members) in &self.all {
            let sum = Collected { input: memory.start, output: memory.start, elements: 1, dtype: DType::F32 };
            let stream = wires.of(members.beside);
            self.library.all_reduce(*handle, &sum, stream)?;
            let Connected { to, from } = connected(own, members, *handle == self.world);
            let given = to.into_iter().map(|member| Passed::To(memory.start + ROOM, 1, member));
            let gotten = from.into_iter().map(|member| Passed::From(place(member), 1, member));
            self.library.pass(*handle, DType::U8, &given.chain(gotten).collect::<Vec<_>>(), stream)?;
            // One place is used by all.
            wires.synchronize()?;
        }
        Ok(())
    }
}

impl Drop for Communicators {
    fn drop(&mut self) {
        self.library.give_back(self.all.iter().map(|it| it.0), self.limit);
    }
}
