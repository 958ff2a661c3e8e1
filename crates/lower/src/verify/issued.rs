//! What ranks issue, one exchange after another: issue-order.
//!
//! An order is that of the program, in which what is sent may come later: not before what comes before
//! it in the program, for which it may wait, and before everything that waits for it, also where a
//! later micro-batch's turn writes where it is kept. What goes to one rank stays in its order. In such
//! orders all exchanges are done, each by all of its ranks at once: the next of one rank is the next of
//! all others in it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, Violation, crossing};
use crate::action::{Action, CommunicatorId, Way};
use crate::issue::{Issued, Stalled, issue_order, needed};
use crate::program::Program;

pub(super) fn check(programs: &[Program], found: &mut Vec<Violation>) {
    match issue_order(programs) {
        Ok(orders) => check_orders(programs, &orders, found),
        Err(Stalled(all)) => report_stalled(programs, &all, found),
    }
}

/// Whether ranks can issue what they exchange in these orders.
pub(crate) fn check_orders(programs: &[Program], orders: &[Vec<Issued>], found: &mut Vec<Violation>) {
    let before = found.len();
    for (program, order) in programs.iter().zip(orders) {
        check_order(program, order, &mut Report { rank: program.rank, found: &mut *found });
    }
    if found.len() == before {
        check_together(programs, orders, found);
    }
}

/// All exchanges in the order of the program.
pub(crate) fn natural(program: &Program) -> Vec<Issued> {
    let all = crossing::unrolled(program).into_iter().flat_map(|(instruction, micro_batch)| {
        let parts = program.instructions[instruction].action.exchanges();
        (0..parts).map(move |part| Issued { instruction, part, micro_batch })
    });
    all.collect()
}

fn sends(program: &Program, issued: &Issued) -> bool {
    matches!(program.instructions[issued.instruction].action, Action::Send(_))
}

fn check_order(program: &Program, order: &[Issued], report: &mut Report) {
    let natural = natural(program);
    let place: BTreeMap<Issued, usize> = order.iter().copied().zip(0..).collect();
    if place.len() != order.len() || place.len() != natural.len() {
        let message = format!("{} exchanges are issued, expected {}", order.len(), natural.len());
        report.whole("issue-order", message);
        return;
    }
    let waits = waits(program, &natural);
    // What all that follows comes after, and the last to each rank.
    let mut last: Option<(usize, Issued)> = None;
    let mut to: BTreeMap<u64, (usize, Issued)> = BTreeMap::new();
    for (issued, waits) in natural.iter().zip(waits) {
        let Some(&at) = place.get(issued) else {
            let message = format!("{} is never issued", show(program, issued));
            report.at(issued.instruction, "issue-order", message);
            continue;
        };
        let sends = sends(program, issued);
        let peer = program.instructions[issued.instruction].action.remotes().get(issued.part);
        let same = peer.filter(|_| sends).and_then(|part| to.insert(part.rank, (at, *issued)));
        let waited = waits.into_iter().filter_map(|it| Some((*place.get(&it)?, it)));
        let late = waited.chain(last).chain(same).find(|&(before, _)| before > at);
        if let Some((_, late)) = late {
            let (first, second) = (show(program, &late), show(program, issued));
            let message = format!(
                "{second} is issued before instruction {}, {first}, for which it waits",
                late.instruction
            );
            report.at(issued.instruction, "issue-order", message);
        }
        if !sends {
            last = Some((at, *issued));
        }
    }
}

/// For each exchange, what of what is sent is over before it.
fn waits(program: &Program, natural: &[Issued]) -> Vec<Vec<Issued>> {
    let needed = needed(program);
    let mut known: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    // By instruction, and by the place where it is kept, what has been sent last.
    let mut sent: BTreeMap<usize, Vec<Issued>> = BTreeMap::new();
    let mut kept: BTreeMap<(usize, u64), Vec<Issued>> = BTreeMap::new();
    let mut carried: Vec<Issued> = Vec::new();
    let mut turn = (None, None);
    let mut all = Vec::new();
    let mut turns = turns(program).into_iter().peekable();
    for issued in natural {
        let now = (issued.micro_batch, part(program, issued.instruction));
        if now != turn {
            // The turns until then, of which some may exchange nothing.
            while let Some((number, micro_batch, storages)) = turns.next_if(|_| now.1.is_some()) {
                for storage in storages {
                    let place = micro_batch % program.storages[storage].places.max(1);
                    carried.extend(kept.remove(&(storage, place)).unwrap_or_default());
                }
                if (Some(micro_batch), Some(number)) == now {
                    break;
                }
            }
            turn = now;
        }
        let own = known.entry(issued.instruction).or_insert_with(|| needed(issued.instruction));
        let mut waits = carried.clone();
        waits.extend(own.iter().filter_map(|it| sent.get(it)).flatten());
        if sends(program, issued) {
            let sent = sent.entry(issued.instruction).or_default();
            sent.retain(|it| it.micro_batch == issued.micro_batch);
            sent.push(*issued);
            if let (Action::Send(it), Some(micro_batch)) =
                (&program.instructions[issued.instruction].action, issued.micro_batch)
            {
                let storage = program.buffer(it.input).storage.0;
                let place = micro_batch % program.storages[storage].places.max(1);
                kept.entry((storage, place)).or_default().push(*issued);
            }
        } else {
            carried.clear();
        }
        all.push(waits);
    }
    all
}

fn part(program: &Program, instruction: usize) -> Option<usize> {
    program.repeated.as_ref().and_then(|repeated| repeated.part_of(instruction))
}

/// For each turn its part, its micro-batch, and the storages that it writes.
fn turns(program: &Program) -> Vec<(usize, u64, BTreeSet<usize>)> {
    let Some(repeated) = &program.repeated else { return Vec::new() };
    let writes = |part: &crate::RepeatedPart| -> BTreeSet<usize> {
        let all = program.instructions[part.instructions.clone()].iter().flat_map(|it| it.action.writes());
        all.map(|buffer| program.buffer(buffer).storage.0).collect()
    };
    let written: Vec<BTreeSet<usize>> = repeated.parts.iter().map(writes).collect();
    let turn = |turn: &crate::Turn| (turn.part, turn.micro_batch, written[turn.part].clone());
    repeated.turns.iter().filter(|it| it.part < written.len()).map(turn).collect()
}

/// Whether all is done where each rank does one after another, and each exchange with all of its ranks.
fn check_together(programs: &[Program], orders: &[Vec<Issued>], found: &mut Vec<Violation>) {
    let mut next = vec![0; programs.len()];
    // Those whose next exchange may be possible.
    let mut waiting: Vec<usize> = (0..programs.len()).collect();
    let mut arrived: BTreeMap<(CommunicatorId, &[u64]), BTreeSet<usize>> = BTreeMap::new();
    let of = |rank: u64| usize::try_from(rank).ok().filter(|&it| it < programs.len());
    while let Some(rank) = waiting.pop() {
        let program = &programs[rank];
        let Some(issued) = orders[rank].get(next[rank]) else { continue };
        let action = &program.instructions[issued.instruction].action;
        let met: Vec<usize> = match (action.remotes().get(issued.part), action.communicator()) {
            // What a rank sends to itself it copies.
            (Some(part), _) if part.rank == program.rank => vec![rank],
            (Some(part), _) => {
                let Some(other) = of(part.rank) else { continue };
                let theirs = orders[other].get(next[other]);
                let theirs = theirs.and_then(|it| {
                    programs[other].instructions[it.instruction].action.remotes().get(it.part)
                });
                let way = if part.way == Way::To { Way::From } else { Way::To };
                if theirs.is_none_or(|it| it.rank != program.rank || it.way != way) {
                    continue;
                }
                vec![rank, other]
            }
            (None, Some(communicator)) => {
                let members = program.members(communicator);
                let there = arrived.entry((communicator, members)).or_default();
                there.insert(rank);
                if there.len() < members.len() {
                    continue;
                }
                std::mem::take(there).into_iter().collect()
            }
            (None, None) => continue,
        };
        met.iter().for_each(|&it| next[it] += 1);
        waiting.extend(met);
    }
    let left = |rank: usize| Some((programs[rank].rank, *orders[rank].get(next[rank])?));
    let stalled: Vec<(u64, Issued)> = (0..programs.len()).filter_map(left).collect();
    report_stalled(programs, &stalled, found);
}

/// How many others that wait are named.
const SHOWN: usize = 8;

fn report_stalled(programs: &[Program], stalled: &[(u64, Issued)], found: &mut Vec<Violation>) {
    let Some(((rank, first), others)) = stalled.split_first() else { return };
    let shown = |(rank, issued): &(u64, Issued)| {
        let program = usize::try_from(*rank).ok().and_then(|it| programs.get(it));
        program.map_or_else(String::new, |program| show(program, issued))
    };
    let names: Vec<String> = others
        .iter()
        .take(SHOWN)
        .map(|it| format!("rank {}, instruction {}: {}", it.0, it.1.instruction, shown(it)))
        .collect();
    let others = if names.is_empty() { String::new() } else { format!("; so do {}", names.join("; ")) };
    let what = shown(&(*rank, *first));
    let message =
        format!("issued one after another, sending until it is received, {what} waits forever{others}");
    Report { rank: *rank, found }.at(first.instruction, "issue-order", message);
}

fn show(program: &Program, issued: &Issued) -> String {
    super::replay::show(program, issued.instruction, issued.part, issued.micro_batch)
}
