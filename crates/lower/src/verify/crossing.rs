//! What goes between stages: crossing, places, and sizes of what is sent and received.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use planner_ir::DType;

use super::{Report, Violation};
use crate::action::{Action, Origin, Received, Remote, Sent, Way};
use crate::program::{Program, Repeated};
use crate::storage::{Region, StorageId};
use crate::strided::Strided;

/// Whether a program sends or receives something.
pub(super) fn crosses(program: &Program) -> bool {
    program.instructions.iter().any(|it| matches!(it.action, Action::Send(_) | Action::Receive(_)))
}

pub(super) fn sent_fault(program: &Program, sent: &Sent) -> Option<String> {
    let elements = program.buffer(sent.input).type_.elements();
    if sent.parts.iter().any(|part| part.way == Way::From) {
        return Some(format!("b{} is sent, and parts of it are received", sent.input.0));
    }
    outside(program, &sent.parts, elements)
        .then(|| format!("b{} of {elements} elements is sent beyond its end", sent.input.0))
}

pub(super) fn received_fault(program: &Program, received: &Received) -> Option<String> {
    let elements = program.buffer(received.output).type_.elements();
    if outside(program, &received.parts, elements) {
        return Some(format!("b{} of {elements} elements is received beyond its end", received.output.0));
    }
    let came = |part: &&Remote| part.way == Way::From;
    let mut so_far: BTreeSet<(u64, u64)> = BTreeSet::new();
    for part in &received.parts {
        let there = |&(start, length): &(u64, u64)| {
            // What goes on lies within what has come, run by run.
            let before = so_far.range(..=(start, u64::MAX)).next_back();
            before.is_some_and(|&(from, count)| start + length <= from + count)
        };
        if part.way == Way::From {
            so_far.extend(runs(&part.strided));
        } else if !runs(&part.strided).iter().all(there) {
            return Some(format!("parts of b{} are passed on before they come", received.output.0));
        }
    }
    let mut runs: Vec<(u64, u64)> =
        received.parts.iter().filter(came).flat_map(|part| runs(&part.strided)).collect();
    runs.sort_unstable();
    let mut reached = 0;
    for (start, length) in runs {
        if start != reached {
            let how = if start < reached { "twice" } else { "not at all" };
            let place = start.min(reached);
            return Some(format!("element {place} of b{} is received {how}", received.output.0));
        }
        reached += length;
    }
    (reached != elements)
        .then(|| format!("element {reached} of b{} is received not at all", received.output.0))
}

/// Whether a part is of a rank that there is not, or reaches beyond the buffer.
fn outside(program: &Program, parts: &[Remote], elements: u64) -> bool {
    let beyond = |part: &Remote| part.strided.last_read().is_some_and(|last| last >= elements);
    parts.iter().any(|part| part.rank >= program.ranks || beyond(part))
}

/// The runs of elements that a nest reads: where each starts and how long it is.
fn runs(strided: &Strided) -> Vec<(u64, u64)> {
    let mut loops = &strided.loops[..];
    let mut length = 1;
    if let Some((last, rest)) = loops.split_last()
        && last.from == 1
    {
        (loops, length) = (rest, last.count);
    }
    let mut starts = vec![strided.start];
    for it in loops {
        starts = starts.iter().flat_map(|start| (0..it.count).map(move |at| start + at * it.from)).collect();
    }
    starts.into_iter().map(|start| (start, length)).collect()
}

/// What goes from one rank to another at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    origin: Origin,
    micro_batch: Option<u64>,
    elements: u64,
    dtype: DType,
}

/// For each pair of ranks, what goes from the first to the second as one of them says, in order;
/// with the instruction.
type Pairs = BTreeMap<(u64, u64), Vec<(usize, Message)>>;

/// Whether ranks receive what is sent to them, in the order in which it is sent.
pub(super) fn check_pairs(programs: &[Program], found: &mut Vec<Violation>) {
    let (mut sent, mut received) = (Pairs::new(), Pairs::new());
    for program in programs {
        for (index, micro_batch) in unrolled(program) {
            let instruction = &program.instructions[index];
            let (buffer, parts) = match &instruction.action {
                Action::Send(it) => (it.input, &it.parts),
                Action::Receive(it) => (it.output, &it.parts),
                _ => continue,
            };
            let (origin, dtype) = (instruction.origin, program.buffer(buffer).type_.dtype);
            for part in parts {
                let message = Message { origin, micro_batch, elements: part.strided.elements(), dtype };
                let (pairs, pair) = match part.way {
                    Way::To => (&mut sent, (program.rank, part.rank)),
                    Way::From => (&mut received, (part.rank, program.rank)),
                };
                pairs.entry(pair).or_default().push((index, message));
            }
        }
    }
    let pairs: BTreeSet<(u64, u64)> = sent.keys().chain(received.keys()).copied().collect();
    for (from, to) in pairs {
        let none = Vec::new();
        let (sent, received) =
            (sent.get(&(from, to)).unwrap_or(&none), received.get(&(from, to)).unwrap_or(&none));
        let agreed = sent.iter().zip(received).take_while(|(sent, received)| sent.1 == received.1).count();
        let (rank, index, message) = match (sent.get(agreed), received.get(agreed)) {
            (None, None) => continue,
            (Some(&(other, sent)), Some(&(index, received))) => {
                let what = format!("receives {} from rank {from}", show(received));
                (to, index, format!("{what}, which sends {} at its instruction {other}", show(sent)))
            }
            (Some(&(index, sent)), None) => {
                (from, index, format!("sends {} to rank {to}, which does not receive it", show(sent)))
            }
            (None, Some(&(index, received))) => {
                (to, index, format!("receives {} from rank {from}, which does not send it", show(received)))
            }
        };
        Report { rank, found: &mut *found }.at(index, "crossing", message);
    }
}

fn show(message: Message) -> String {
    let Message { origin, micro_batch, elements, dtype } = message;
    let of = micro_batch.map(|it| format!(" of micro-batch {it}")).unwrap_or_default();
    format!("{elements} {dtype} for {origin}{of}")
}

/// The instructions of a step in the order of turns, with the micro-batch that they are for.
pub(super) fn unrolled(program: &Program) -> Vec<(usize, Option<u64>)> {
    let repetition = program.repetition();
    let mut all: Vec<(usize, Option<u64>)> = (0..repetition.start).map(|it| (it, None)).collect();
    for turn in program.repeated.iter().flat_map(|repeated| &repeated.turns) {
        let part = program.repeated.as_ref().and_then(|repeated| repeated.parts.get(turn.part));
        let part = part.map_or(0..0, |part| part.instructions.clone());
        all.extend(part.map(|it| (it, Some(turn.micro_batch))));
    }
    all.extend((repetition.end..program.instructions.len()).map(|it| (it, None)));
    all
}

/// Whether what outlives a turn has places enough.
pub(super) fn check_places(program: &Program, found: &mut Vec<Violation>) {
    let Some(repeated) = program.repeated.as_ref().filter(|it| it.parts.len() > 1) else { return };
    let mut report = Report { rank: program.rank, found };
    let mut used: BTreeMap<usize, (BTreeSet<usize>, bool, usize)> = BTreeMap::new();
    for (number, part) in repeated.parts.iter().enumerate() {
        for index in part.instructions.clone() {
            let action = &program.instructions[index].action;
            let crosses = matches!(action, Action::Send(_) | Action::Receive(_));
            for buffer in action.reads().into_iter().chain(action.writes()) {
                if program.storage(buffer).kind.region() == Region::Step {
                    let entry = used.entry(program.buffer(buffer).storage.0);
                    let (parts, crossing, _) = entry.or_insert_with(|| (BTreeSet::new(), false, index));
                    parts.insert(number);
                    *crossing |= crosses;
                }
            }
        }
    }
    for (storage, (parts, crosses, index)) in &used {
        let places = program.storages[*storage].places;
        if *crosses && places < 2 {
            let message = format!("storage {storage} is sent or received and has one place, expected two");
            report.at(*index, "places", message);
        }
        if let Some([first, second]) = clash(repeated, parts, places) {
            report.at(
                *index,
                "places",
                format!(
                    "storage {storage} has {places} places, and micro-batches {first} and {second} need the \
                     same at a time"
                ),
            );
        }
    }
    check_between(program, repeated, &used, &mut report);
}

/// For storages the parts that use them, whether they are sent or received, and the first instruction that uses them.
type Used = BTreeMap<usize, (BTreeSet<usize>, bool, usize)>;

/// Whether what outlives a turn is written over in one that comes before its last: the order of instructions says what
/// comes within a turn, and nothing of turns between.
fn check_between(program: &Program, repeated: &Repeated, used: &Used, report: &mut Report<'_>) {
    let bytes = |storage: usize| {
        let start = program.storages[storage].offset;
        start..start.saturating_add(program.extent(StorageId(storage)))
    };
    let mut written: Vec<BTreeMap<usize, usize>> = vec![BTreeMap::new(); repeated.parts.len()];
    for (written, part) in written.iter_mut().zip(&repeated.parts) {
        for index in part.instructions.clone() {
            for buffer in program.instructions[index].action.writes() {
                if program.storage(buffer).kind.region() == Region::Step {
                    written.entry(program.buffer(buffer).storage.0).or_insert(index);
                }
            }
        }
    }
    let all: BTreeSet<usize> = (0..repeated.parts.len()).collect();
    let mut known: BTreeMap<&BTreeSet<usize>, BTreeSet<usize>> = BTreeMap::new();
    for (&storage, (parts, crosses, _)) in used {
        let between = match crosses {
            true => &all,
            false => &*known.entry(parts).or_insert_with(|| between(repeated, parts)),
        };
        let own = bytes(storage);
        for (&other, &index) in between.iter().flat_map(|&part| &written[part]) {
            let its = bytes(other);
            if other != storage && its.start < own.end && own.start < its.end {
                let message = format!(
                    "storage {other} is written over storage {storage}, which may be in use in other turns"
                );
                report.at(index, "reuse", message);
            }
        }
    }
}

/// The parts that have a turn between the first and the last turn that one micro-batch has of some parts.
fn between(repeated: &Repeated, parts: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut spans: BTreeMap<u64, Range<usize>> = BTreeMap::new();
    for (at, turn) in repeated.turns.iter().enumerate().filter(|(_, turn)| parts.contains(&turn.part)) {
        spans.entry(turn.micro_batch).or_insert(at..at).end = at;
    }
    // What lies in several spans is looked at once.
    let mut seen = 0;
    let mut between = BTreeSet::new();
    let mut spans: Vec<Range<usize>> = spans.into_values().collect();
    spans.sort_by_key(|it| it.start);
    for span in spans {
        let from = seen.max(span.start + 1);
        between.extend(repeated.turns[from.min(span.end)..span.end].iter().map(|turn| turn.part));
        seen = from.max(span.end);
    }
    between
}

/// Two micro-batches that need the same place at a time, each from the first of its turns of these
/// parts to the last.
fn clash(repeated: &Repeated, parts: &BTreeSet<usize>, places: u64) -> Option<[u64; 2]> {
    let mut left: BTreeMap<u64, usize> = BTreeMap::new();
    let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
    for turn in repeated.turns.iter().filter(|turn| parts.contains(&turn.part)) {
        let place = turn.micro_batch % places.max(1);
        match taken.insert(place, turn.micro_batch) {
            Some(other) if other != turn.micro_batch => return Some([other, turn.micro_batch]),
            _ => {}
        }
        let left = left.entry(turn.micro_batch).or_insert(parts.len());
        *left = left.saturating_sub(1);
        if *left == 0 {
            taken.remove(&place);
        }
    }
    None
}
