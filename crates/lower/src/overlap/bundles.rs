//! Small exchanges as one: what takes a rank as long to start as to do is done together with more.
//!
//! Exchanges of one kind between the same ranks, of gradients and in the update, are one if none of them
//! waits for another and most of what each takes is its start: that is found from what the largest and the
//! smallest of them take. They are exchanged when the last of them can be.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use planner_ir::{DType, Phase};

use super::depends::Depends;
use super::depends::stretches;
use crate::action::{Action, Collective, CollectiveKind, CommunicatorId, Further};
use crate::expected::number;
use crate::program::{Instruction, Program, Stream};
use crate::storage::ALIGNMENT;

/// How much longer than its start an exchange may take that is done together with others, and how much longer
/// all of them.
const SMALL: f64 = 2.0;
const BUNDLE: f64 = 5.0;

/// What exchanges have in common that can be one.
type Key = (CollectiveKind, CommunicatorId, DType);

/// Exchanges that are one.
struct Bundle {
    members: Vec<usize>,
    seconds: f64,
    /// What waits for one of them.
    after: Vec<bool>,
}

/// The program with small exchanges done together, and what each instruction takes then (seconds).
pub(super) fn bundled(mut program: Program, seconds: &[f64]) -> (Program, Vec<f64>) {
    let starts = starts(&program, seconds);
    let (mut instructions, mut taken) = (Vec::new(), Vec::new());
    // Where each stretch ends, before and after.
    let mut ends: BTreeMap<usize, usize> = [(0, 0)].into();
    for stretch in stretches(&program) {
        let depends = Depends::of(&program, &stretch);
        let bundles = bundles(&program, seconds, &starts, &stretch, &depends);
        for members in order(&depends, &bundles) {
            let all: Vec<&Instruction> =
                members.iter().map(|&it| &program.instructions[stretch.start + it]).collect();
            let key = key(&program, all[0]);
            let start = key.and_then(|key| starts.get(&key)).copied().unwrap_or(0.0);
            let each = members.iter().map(|&it| seconds[stretch.start + it]);
            let more: f64 = each.clone().skip(1).map(|it| (it - start).max(0.0)).sum();
            taken.push(seconds[stretch.start + members[0]] + more);
            instructions.push(together(&all));
        }
        ends.insert(stretch.end, instructions.len());
    }
    let moved = |at: &mut usize| *at = ends.get(at).copied().unwrap_or(*at);
    if let Some(repeated) = &mut program.repeated {
        let parts = repeated.parts.iter_mut().map(|part| &mut part.instructions);
        for range in parts.chain([&mut repeated.instructions]) {
            [&mut range.start, &mut range.end].into_iter().for_each(moved);
        }
    }
    program.guard.iter_mut().for_each(moved);
    program.instructions = instructions;
    (program, taken)
}

/// What an exchange has in common with those that it can be one with; nothing if it stays alone.
fn key(program: &Program, instruction: &Instruction) -> Option<Key> {
    let Action::Collective(it) = &instruction.action else { return None };
    // What is summed beside computing are gradients of parameters, in the backward part, too.
    let sums = matches!(it.kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter);
    let joins = sums || it.kind == CollectiveKind::AllGather;
    let late = match instruction.phase {
        Phase::Forward => false,
        Phase::Backward => sums && instruction.stream == Stream::Beside,
        Phase::Gradient | Phase::Update => true,
    };
    let key = (it.kind, it.communicator, program.buffer(it.input).type_.dtype);
    (late && joins && instruction.stream.exchanges()).then_some(key)
}

/// For exchanges of each kind what their start takes (seconds): by a line through the smallest and the largest.
fn starts(program: &Program, seconds: &[f64]) -> BTreeMap<Key, f64> {
    let mut all: BTreeMap<Key, Vec<(u64, f64)>> = BTreeMap::new();
    for (instruction, &seconds) in program.instructions.iter().zip(seconds) {
        if let (Some(key), Action::Collective(it)) = (key(program, instruction), &instruction.action) {
            let bytes = program.buffer(it.input).type_.bytes().max(program.buffer(it.output).type_.bytes());
            all.entry(key).or_default().push((bytes, seconds));
        }
    }
    let start = |mut points: Vec<(u64, f64)>| {
        points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let (Some(&(least, first)), Some(&(most, last))) = (points.first(), points.last()) else {
            return 0.0;
        };
        // Of what is no more than a cache line nothing but the start takes time.
        if least <= ALIGNMENT {
            return first;
        }
        if most == least {
            return 0.0;
        }
        (first - (last - first) * number(least) / number(most - least)).max(0.0)
    };
    all.into_iter().map(|(key, points)| (key, start(points))).collect()
}

/// The exchanges of a stretch that are one, each time at least two.
fn bundles(
    program: &Program,
    seconds: &[f64],
    starts: &BTreeMap<Key, f64>,
    stretch: &Range<usize>,
    depends: &Depends,
) -> Vec<Vec<usize>> {
    let mut open: BTreeMap<Key, Bundle> = BTreeMap::new();
    let mut closed: Vec<Bundle> = Vec::new();
    for it in 0..stretch.len() {
        let taken = seconds[stretch.start + it];
        let Some(key) = key(program, &program.instructions[stretch.start + it]) else { continue };
        let start = starts.get(&key).copied().unwrap_or(0.0);
        if start <= 0.0 || taken > SMALL * start || depends.stays[it] {
            continue;
        }
        if open.get(&key).is_some_and(|bundle| bundle.after[it]) {
            closed.extend(open.remove(&key));
        }
        let bundle = open.entry(key).or_insert_with(|| Bundle {
            members: Vec::new(),
            seconds: start,
            after: vec![false; stretch.len()],
        });
        bundle.members.push(it);
        bundle.seconds += taken - start;
        mark(depends, it, &mut bundle.after);
        if bundle.seconds >= BUNDLE * start {
            closed.extend(open.remove(&key));
        }
    }
    closed.extend(open.into_values());
    without_rings(depends, closed.into_iter().map(|it| it.members).filter(|it| it.len() > 1).collect())
}

/// Marks all that waits for an instruction.
fn mark(depends: &Depends, from: usize, after: &mut [bool]) {
    let mut left = vec![from];
    while let Some(it) = left.pop() {
        for &next in &depends.after[it] {
            if !std::mem::replace(&mut after[next], true) {
                left.push(next);
            }
        }
    }
}

/// The bundles of which none waits for itself through others: taken one by one for as long as there is an order.
fn without_rings(depends: &Depends, bundles: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    if order(depends, &bundles).iter().map(Vec::len).sum::<usize>() == depends.before.len() {
        return bundles;
    }
    let mut kept: Vec<Vec<usize>> = Vec::new();
    for bundle in bundles {
        kept.push(bundle);
        if order(depends, &kept).iter().map(Vec::len).sum::<usize>() < depends.before.len() {
            kept.pop();
        }
    }
    kept
}

/// The instructions of a stretch in order, those of a bundle at once, where its last one stood.
fn order(depends: &Depends, bundles: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let count = depends.before.len();
    let mut of: Vec<usize> = (0..count).collect();
    let mut members: BTreeMap<usize, &Vec<usize>> = BTreeMap::new();
    for bundle in bundles {
        let last = bundle.iter().copied().max().unwrap_or(0);
        bundle.iter().for_each(|&it| of[it] = last);
        members.insert(last, bundle);
    }
    let mut left = vec![0_usize; count];
    for it in 0..count {
        left[of[it]] += depends.before[it].len();
    }
    let ready = (0..count).filter(|&it| of[it] == it && left[it] == 0).map(Reverse);
    let mut ready: BinaryHeap<Reverse<usize>> = ready.collect();
    let mut ordered = Vec::with_capacity(count);
    while let Some(Reverse(it)) = ready.pop() {
        let all = members.get(&it).map_or_else(|| vec![it], |members| (*members).clone());
        for &after in all.iter().flat_map(|&it| &depends.after[it]) {
            let of = of[after];
            left[of] -= 1;
            if left[of] == 0 {
                ready.push(Reverse(of));
            }
        }
        ordered.push(all);
    }
    ordered
}

/// Several exchanges as one.
fn together(all: &[&Instruction]) -> Instruction {
    let mut one = all[0].clone();
    if let Action::Collective(first) = &mut one.action {
        for instruction in &all[1..] {
            if let Action::Collective(it) = &instruction.action {
                let &Collective { input, output, elements, .. } = it;
                first.further.push(Further { input, output, elements, origin: instruction.origin });
            }
        }
    }
    one
}
