//! Who waits for whom over all turns: the exchanges of all ranks are done, one by one, for as long as
//! one of them can be.
//!
//! Serially, a rank does one after another, and what is sent is taken at once. Overlapped, each lane of
//! a rank does its own in order, as soon as turns and events allow, and what is sent is taken when it is
//! received: the weakest that a network promises. There is a lane for what ranks do together, and for
//! each other rank one for what is sent to it and one for what it sends: pairs do not wait for other
//! pairs. Where something is left that cannot be done, ranks wait for each other forever.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Report, Violation};
use crate::action::{Action, CommunicatorId, Remote, Way};
use crate::happens::Happens;
use crate::program::{Program, Stream};

pub(super) fn check(programs: &[Program], found: &mut Vec<Violation>) {
    for mode in [Mode::Serial, Mode::Overlapped] {
        let mut replay = Replay::new(programs, mode);
        while replay.advance() {}
        if let Some((rank, instruction, message)) = replay.stuck() {
            Report { rank, found: &mut *found }.at(instruction, "waiting", message);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Serial,
    Overlapped,
}

/// An exchange that a rank does.
#[derive(Clone, Debug)]
struct Item {
    instruction: usize,
    /// Which part of what is sent or received.
    part: usize,
    micro_batch: Option<u64>,
    /// For some lanes, how many of its exchanges have to be over before.
    after: Vec<(usize, usize)>,
}

/// A rank: its exchanges on each lane, in order, and how many of each are over.
struct Rank<'a> {
    program: &'a Program,
    lanes: Vec<Vec<Item>>,
    over: Vec<usize>,
    /// Whether what the next exchange of a lane gives is there for others already.
    offered: Vec<bool>,
    /// In how many meetings of each communicator the rank has been.
    met: BTreeMap<CommunicatorId, usize>,
}

struct Replay<'a> {
    mode: Mode,
    ranks: Vec<Rank<'a>>,
    /// How many messages have been sent, and received, from one rank to another.
    sent: BTreeMap<(u64, u64), usize>,
    received: BTreeMap<(u64, u64), usize>,
    /// How many ranks have come to the meeting under way, and how many meetings are over.
    meetings: BTreeMap<(CommunicatorId, &'a [u64]), (usize, usize)>,
}

impl<'a> Replay<'a> {
    fn new(programs: &'a [Program], mode: Mode) -> Self {
        let rank = |program: &'a Program| {
            let lanes = match mode {
                Mode::Serial => serial(program),
                Mode::Overlapped => overlapped(program),
            };
            let (over, offered) = (vec![0; lanes.len()], vec![false; lanes.len()]);
            Rank { program, lanes, over, offered, met: BTreeMap::new() }
        };
        let ranks = programs.iter().map(rank).collect();
        Self { mode, ranks, sent: BTreeMap::new(), received: BTreeMap::new(), meetings: BTreeMap::new() }
    }

    /// Does what can be done on each lane of each rank; whether something could.
    fn advance(&mut self) -> bool {
        let mut moved = false;
        for rank in 0..self.ranks.len() {
            for lane in 0..self.ranks[rank].lanes.len() {
                while self.step(rank, lane) {
                    moved = true;
                }
            }
        }
        moved
    }

    /// Does the next exchange of a lane, or offers what it gives, if that can be.
    fn step(&mut self, rank: usize, lane: usize) -> bool {
        let Rank { program, lanes, over, offered, .. } = &self.ranks[rank];
        let (program, offered) = (*program, offered[lane]);
        let Some(item) = lanes[lane].get(over[lane]) else { return false };
        if item.after.iter().any(|&(lane, needed)| needed > over[lane]) {
            return false;
        }
        let action = &program.instructions[item.instruction].action;
        let own = program.rank;
        let (over, offers) = match action.remotes().get(item.part) {
            Some(Remote { way: Way::To, rank: to, .. }) => {
                let sent = self.sent.entry((own, *to)).or_default();
                *sent += usize::from(!offered);
                let taken = self.received.get(&(own, *to)).copied().unwrap_or(0) >= *sent;
                (self.mode == Mode::Serial || taken, !offered)
            }
            Some(Remote { way: Way::From, rank: from, .. }) => {
                let received = self.received.entry((*from, own)).or_default();
                let there = self.sent.get(&(*from, own)).copied().unwrap_or(0) > *received;
                *received += usize::from(there);
                (there, false)
            }
            None => {
                let Some(communicator) = action.communicator() else { return false };
                let members = program.members(communicator);
                let (arrived, rounds) = self.meetings.entry((communicator, members)).or_default();
                if !offered {
                    *arrived += 1;
                    if *arrived == members.len() {
                        (*arrived, *rounds) = (0, *rounds + 1);
                    }
                }
                let met = self.ranks[rank].met.entry(communicator).or_default();
                let over = *rounds > *met;
                *met += usize::from(over);
                (over, !offered)
            }
        };
        let rank = &mut self.ranks[rank];
        rank.offered[lane] = !over;
        rank.over[lane] += usize::from(over);
        over || offers
    }

    /// What is left that cannot be done: of the first rank, with whom it waits for.
    fn stuck(&self) -> Option<(u64, usize, String)> {
        let mut waiting = Vec::new();
        for rank in &self.ranks {
            let next = |lane: usize| rank.lanes[lane].get(rank.over[lane]);
            let ready = |item: &&Item| item.after.iter().all(|&(lane, needed)| needed <= rank.over[lane]);
            let Some(item) = (0..rank.lanes.len()).filter_map(next).find(ready) else { continue };
            let what = show(rank.program, item.instruction, item.part, item.micro_batch);
            waiting.push((rank.program.rank, item.instruction, what));
        }
        let (rank, instruction, first) = waiting.first()?.clone();
        let others: Vec<String> = waiting[1..]
            .iter()
            .take(SHOWN)
            .map(|(rank, instruction, what)| format!("rank {rank}, instruction {instruction}: {what}"))
            .collect();
        let how = match self.mode {
            Mode::Serial => "one instruction after another",
            Mode::Overlapped => "with all that streams and events allow",
        };
        let others = if others.is_empty() { String::new() } else { format!("; so do {}", others.join("; ")) };
        Some((rank, instruction, format!("{how}, {first} waits forever{others}")))
    }
}

/// How many others that wait are named.
const SHOWN: usize = 8;

/// What a rank does in an exchange.
pub(super) fn show(program: &Program, instruction: usize, part: usize, micro_batch: Option<u64>) -> String {
    let of = micro_batch.map(|it| format!(" of micro-batch {it}")).unwrap_or_default();
    let instruction = &program.instructions[instruction];
    let action = &instruction.action;
    let what = match (action.remotes().get(part), action.communicator()) {
        (Some(Remote { way: Way::To, rank, .. }), _) => format!("sending to rank {rank}"),
        (Some(Remote { way: Way::From, rank, .. }), _) => format!("receiving from rank {rank}"),
        (None, Some(it)) => format!("meeting ranks {:?}", program.members(it)),
        (None, None) => "nothing".to_owned(),
    };
    format!("{what} for {}{of}", instruction.origin)
}

/// How many exchanges an instruction is.
fn count(program: &Program, instruction: usize) -> usize {
    program.instructions[instruction].action.exchanges()
}

/// All exchanges on one lane.
fn serial(program: &Program) -> Vec<Vec<Item>> {
    let mut lane = Vec::new();
    for (instruction, micro_batch) in super::crossing::unrolled(program) {
        for part in 0..count(program, instruction) {
            lane.push(Item { instruction, part, micro_batch, after: Vec::new() });
        }
    }
    vec![lane]
}

/// Which lane an exchange is on: the stream, and of what goes between two ranks the other one.
type Lane = (Stream, Option<(Way, u64)>);

fn lane(program: &Program, instruction: usize, part: usize) -> Lane {
    let instruction = &program.instructions[instruction];
    (instruction.stream, instruction.action.remotes().get(part).map(|part| (part.way, part.rank)))
}

/// Exchanges by lane, with what turns and events ask for.
fn overlapped(program: &Program) -> Vec<Vec<Item>> {
    let happens = Happens::of(program);
    let repetition = program.repetition();
    let mut stretches = vec![(None, 0..repetition.start, None)];
    if let Some(repeated) = &program.repeated {
        let part = |part: usize| repeated.parts.get(part).map_or(0..0, |it| it.instructions.clone());
        let turns = repeated.turns.iter();
        stretches.extend(turns.map(|turn| (Some(turn.part), part(turn.part), Some(turn.micro_batch))));
    }
    stretches.push((None, repetition.end..program.instructions.len(), None));
    let mut numbers: BTreeMap<Lane, usize> = BTreeMap::new();
    for instruction in 0..program.instructions.len() {
        for part in 0..count(program, instruction) {
            let next = numbers.len();
            numbers.entry(lane(program, instruction, part)).or_insert(next);
        }
    }
    let sending: Vec<bool> = {
        let mut sending = vec![false; numbers.len()];
        numbers.iter().for_each(|((stream, _), &number)| sending[number] = *stream == Stream::Sending);
        sending
    };
    let mut lanes: Vec<Vec<Item>> = vec![Vec::new(); numbers.len()];
    // For each part, what had been sent when its last turn was over.
    let mut sent: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut known: BTreeMap<(usize, usize), Vec<Needs>> = BTreeMap::new();
    for (part, range, micro_batch) in stretches {
        let base: Vec<usize> = lanes.iter().map(Vec::len).collect();
        let before = part.and_then(|part| sent.get(&part));
        let start = |lane: usize| match sending[lane] {
            true => before.map_or(0, |before| before[lane]),
            false => base[lane],
        };
        let key = (range.start, range.end);
        for needs in known.entry(key).or_insert_with(|| needs(program, &happens, range, &numbers)) {
            let all = (0..lanes.len()).map(|lane| (lane, start(lane)));
            let own = needs.over.iter().map(|&(lane, over)| (lane, base[lane] + over));
            let after = all.chain(own).filter(|&(_, over)| over > 0).collect();
            let Needs { instruction, part, lane, .. } = *needs;
            lanes[lane].push(Item { instruction, part, micro_batch, after });
        }
        if let Some(part) = part {
            sent.insert(part, lanes.iter().map(Vec::len).collect());
        }
    }
    lanes
}

/// An exchange, and what has to be over before it of those at the same stretch.
struct Needs {
    instruction: usize,
    part: usize,
    lane: usize,
    /// For some lanes, how many of the stretch's exchanges.
    over: Vec<(usize, usize)>,
}

fn needs(
    program: &Program,
    happens: &Happens,
    stretch: Range<usize>,
    numbers: &BTreeMap<Lane, usize>,
) -> Vec<Needs> {
    let number = |instruction: usize, part: usize| numbers[&lane(program, instruction, part)];
    let here: Vec<usize> = stretch.filter(|&it| count(program, it) > 0).collect();
    let mut all = Vec::new();
    for &instruction in &here {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut over: BTreeMap<usize, usize> = BTreeMap::new();
        for &before in here.iter().take_while(|&&it| it < instruction) {
            for part in 0..count(program, before) {
                *counts.entry(number(before, part)).or_default() += 1;
            }
            if happens.before(before, instruction) && !is_in_stream(program, before, instruction) {
                for part in 0..count(program, before) {
                    let lane = number(before, part);
                    over.insert(lane, counts[&lane]);
                }
            }
        }
        let action = &program.instructions[instruction].action;
        for part in 0..count(program, instruction) {
            // What is passed on has come.
            let mut over = over.clone();
            let passes = action.remotes().get(part).is_some_and(|part| part.way == Way::To);
            if passes && matches!(action, Action::Receive(_)) {
                let came = |&it: &usize| action.remotes()[it].way == Way::From;
                for earlier in (0..part).filter(came) {
                    let lane = number(instruction, earlier);
                    let same = (0..=earlier).filter(|&it| number(instruction, it) == lane).count();
                    over.insert(lane, counts.get(&lane).copied().unwrap_or(0) + same);
                }
            }
            let over = over.into_iter().collect();
            all.push(Needs { instruction, part, lane: number(instruction, part), over });
        }
    }
    all
}

/// Whether two instructions are in an order only because they are sent, or received, one after another.
fn is_in_stream(program: &Program, first: usize, second: usize) -> bool {
    let stream = |instruction: usize| program.instructions[instruction].stream;
    stream(first) == stream(second) && matches!(stream(first), Stream::Sending | Stream::Receiving)
}
