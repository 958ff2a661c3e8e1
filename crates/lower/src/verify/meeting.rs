//! What ranks do together: rank, communicator, collective-order, acyclic.
//!
//! A turn of what is repeated starts on a rank when the one before it is over there, and ranks enter
//! the same collectives in each. So what waits for itself in collectives does so within one turn, or
//! within what comes after the last together with it: looking at one is enough. What crosses between
//! stages may wait for itself over many turns: see [`replay`].

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use planner_ir::DType;

use super::{Report, Violation, crossing, issued, replay};
use crate::action::{Action, CollectiveKind, CommunicatorId, Message, Origin};
use crate::program::{Event, Program, Stream, Turn};
use crate::storage::BufferId;

pub(super) fn check_ranks(programs: &[Program], found: &mut Vec<Violation>) {
    for (index, program) in programs.iter().enumerate() {
        let right =
            u64::try_from(index) == Ok(program.rank) && u64::try_from(programs.len()) == Ok(program.ranks);
        let mut report = Report { rank: program.rank, found: &mut *found };
        if !right {
            let message = format!("it is program {index} of {}, for {} ranks", programs.len(), program.ranks);
            report.whole("rank", message);
        }
        let times = |program: &Program| program.repeated.as_ref().map_or(0, |repeated| repeated.times);
        let (ours, theirs) = (times(program), times(&programs[0]));
        if ours != theirs {
            let message = format!("it has {ours} repetitions, rank {} has {theirs}", programs[0].rank);
            report.whole("repetition", message);
        }
    }
}

pub(super) fn check(programs: &[Program], found: &mut Vec<Violation>) {
    let before = found.len();
    check_communicators(programs, found);
    if found.len() > before {
        return;
    }
    check_order(programs, found);
    check_messages(programs, found);
    if !is_in_step(programs) {
        check_acyclic(programs, Order::Overlapped, found);
        check_acyclic(programs, Order::Serial, found);
    }
    if programs.iter().any(crossing::crosses) {
        crossing::check_pairs(programs, found);
        let before = found.len();
        replay::check(programs, found);
        if found.len() == before {
            issued::check(programs, found);
        }
    }
}

fn check_communicators(programs: &[Program], found: &mut Vec<Violation>) {
    for program in programs {
        let mut report = Report { rank: program.rank, found: &mut *found };
        for (number, members) in program.communicators.iter().enumerate() {
            let mut sorted = members.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let right = sorted.len() == members.len()
                && sorted.last().is_none_or(|&last| last < program.ranks)
                && members.contains(&program.rank);
            if !right {
                report.whole("communicator", format!("c{number} of ranks {members:?} cannot be"));
                continue;
            }
            // Each has the list of the first one, and that one has that all have it.
            let first = members[0];
            let others = if first == program.rank { &members[..] } else { &members[..1] };
            for &member in others {
                let other = usize::try_from(member).ok().and_then(|it| programs.get(it));
                let theirs = other.and_then(|other| other.communicators.get(number));
                if theirs != Some(members) {
                    let message =
                        format!("c{number} is of ranks {members:?}, for rank {member} it is of {theirs:?}");
                    report.whole("communicator", message);
                }
            }
        }
    }
}

/// What has to agree between ranks that meet.
#[derive(Clone, PartialEq, Eq)]
struct Meeting {
    /// Which collective; a message if it is none.
    kind: Option<CollectiveKind>,
    name: &'static str,
    elements: u64,
    dtype: DType,
    origin: Origin,
    /// What else is exchanged at once.
    further: Vec<(u64, DType, Origin)>,
    /// Whether before, in or after the repetitions.
    part: Ordering,
    /// In which of their parts.
    number: Option<usize>,
}

/// The exchanges of a program on a communicator, in order.
fn exchanges(program: &Program, communicator: CommunicatorId) -> Vec<(usize, Meeting)> {
    let repetition = program.repetition();
    let part = |index: usize| match index {
        _ if repetition.contains(&index) => Ordering::Equal,
        _ if index < repetition.start => Ordering::Less,
        _ => Ordering::Greater,
    };
    let all = program.instructions.iter().enumerate();
    all.filter_map(|(index, instruction)| {
        let name = instruction.action.exchange()?;
        let (kind, elements, input) = match &instruction.action {
            Action::Collective(it) => (Some(it.kind), it.elements, it.input),
            Action::Message(it) => (None, program.buffer(it.input).type_.elements(), it.input),
            Action::Compute(_) | Action::Copy(_) | Action::Send(_) | Action::Receive(_) => return None,
        };
        let dtype_of = |buffer: BufferId| program.buffer(buffer).type_.dtype;
        let further = match &instruction.action {
            Action::Collective(it) => {
                it.further.iter().map(|it| (it.elements, dtype_of(it.input), it.origin)).collect()
            }
            _ => Vec::new(),
        };
        let dtype = dtype_of(input);
        let number = program.repeated.as_ref().and_then(|repeated| repeated.part_of(index));
        let (origin, part) = (instruction.origin, part(index));
        let meeting = Meeting { kind, name, elements, dtype, origin, further, part, number };
        (instruction.action.communicator() == Some(communicator)).then_some((index, meeting))
    })
    .collect()
}

/// The messages of a program on each communicator, in order.
fn messages(program: &Program) -> Vec<Vec<(usize, &Message)>> {
    let mut messages = vec![Vec::new(); program.communicators.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        if let Action::Message(message) = &instruction.action {
            messages[message.communicator.0].push((index, message));
        }
    }
    messages
}

/// Whether ranks give to those that get from them.
fn check_messages(programs: &[Program], found: &mut Vec<Violation>) {
    let all: Vec<Vec<Vec<(usize, &Message)>>> = programs.iter().map(messages).collect();
    let of = |rank: u64| usize::try_from(rank).ok().and_then(|it| all.get(it));
    for (program, own) in programs.iter().zip(&all) {
        let mut report = Report { rank: program.rank, found: &mut *found };
        for (number, members) in program.communicators.iter().enumerate() {
            for (place, &(index, message)) in own[number].iter().enumerate() {
                if !members.contains(&message.from) {
                    report.at(index, "message", format!("rank {} is not in c{number}", message.from));
                }
                let gets = |member: &&u64| {
                    let theirs = of(**member).and_then(|it| it.get(number)?.get(place));
                    **member != program.rank && theirs.is_some_and(|it| it.1.from == program.rank)
                };
                let mut expected: Vec<u64> = members.iter().filter(gets).copied().collect();
                expected.sort_unstable();
                if message.to != expected {
                    let to = &message.to;
                    let said = format!("it gives to ranks {to:?}, and ranks {expected:?} get from it");
                    report.at(index, "message", said);
                }
            }
        }
    }
}

fn check_order(programs: &[Program], found: &mut Vec<Violation>) {
    for program in programs {
        for (number, members) in program.communicators.iter().enumerate() {
            let communicator = CommunicatorId(number);
            let first = members.first().and_then(|&it| programs.get(usize::try_from(it).ok()?));
            let Some(first) = first.filter(|first| first.rank != program.rank) else { continue };
            check_turns(program, first, communicator, found);
            let (theirs, ours) = (exchanges(first, communicator), exchanges(program, communicator));
            let mut report = Report { rank: program.rank, found: &mut *found };
            let agreed = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours.1 == theirs.1).count();
            match (ours.get(agreed), theirs.get(agreed)) {
                (None, None) => {}
                (Some((index, meeting)), Some((other, expected))) => report.at(
                    *index,
                    "collective-order",
                    format!(
                        "c{number} enters {}, rank {} at its instruction {other} {}",
                        show(meeting),
                        first.rank,
                        show(expected)
                    ),
                ),
                (Some((index, meeting)), None) => report.at(
                    *index,
                    "collective-order",
                    format!("c{number} enters {}, rank {} does not", show(meeting), first.rank),
                ),
                (None, Some((other, expected))) => report.whole(
                    "collective-order",
                    format!(
                        "c{number} never enters {}, rank {} does at its instruction {other}",
                        show(expected),
                        first.rank
                    ),
                ),
            }
        }
    }
}

/// Ranks that meet have the same turns.
fn check_turns(program: &Program, first: &Program, communicator: CommunicatorId, found: &mut Vec<Violation>) {
    let turns = |program: &Program| program.repeated.as_ref().map(|repeated| repeated.turns.clone());
    let (Some(ours), Some(theirs)) = (turns(program), turns(first)) else { return };
    let agreed = ours.iter().zip(&theirs).take_while(|(ours, theirs)| ours == theirs).count();
    if agreed == ours.len() && agreed == theirs.len() {
        return;
    }
    let show = |turns: &[Turn]| match turns.get(agreed) {
        Some(turn) => format!("part {} for micro-batch {}", turn.part, turn.micro_batch),
        None => "nothing".to_owned(),
    };
    let message = format!(
        "c{}: its turn {agreed} is {}, that of rank {} is {}",
        communicator.0,
        show(&ours),
        first.rank,
        show(&theirs)
    );
    Report { rank: program.rank, found }.whole("repetition", message);
}

fn show(meeting: &Meeting) -> String {
    let Meeting { name, elements, dtype, origin, further, part, number, kind } = meeting;
    let part = match (part, number) {
        (Ordering::Less, _) => " before the repetitions".to_owned(),
        (Ordering::Equal, Some(number)) if *number > 0 => format!(" in part {number} of a repetition"),
        (Ordering::Equal, _) => " in a repetition".to_owned(),
        (Ordering::Greater, _) => String::new(),
    };
    let further: String = further.iter().map(|it| format!(", of {} {} for {}", it.0, it.1, it.2)).collect();
    let root = kind.and_then(CollectiveKind::root).map(|root| format!(" of member {root}"));
    format!("{name}{} of {elements} {dtype}{part} for {origin}{further}", root.unwrap_or_default())
}

/// Whether ranks meet at instructions of one number, and what is waited for comes before: then nothing
/// waits for anything of a higher number. Of a thousand ranks that do the same this is soon known.
fn is_in_step(programs: &[Program]) -> bool {
    let met: Vec<Vec<Vec<usize>>> = programs.iter().map(meetings).collect();
    let same = |(program, met_here): (&Program, &Vec<Vec<usize>>)| {
        program.communicators.iter().enumerate().all(|(number, members)| {
            let first = members.first().and_then(|&it| met.get(usize::try_from(it).ok()?)?.get(number));
            first == met_here.get(number)
        })
    };
    let is_ordered = |program: &Program| {
        let mut signalled = BTreeSet::new();
        program.instructions.iter().all(|it| {
            let known = it.waits.iter().all(|event| signalled.contains(event));
            signalled.extend(it.signals);
            known
        })
    };
    programs.iter().zip(&met).all(same) && programs.iter().all(is_ordered)
}

/// For each communicator of a program, the instructions at which ranks meet on it.
fn meetings(program: &Program) -> Vec<Vec<usize>> {
    let mut met = vec![Vec::new(); program.communicators.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        if let Some(communicator) = instruction.action.communicator() {
            met[communicator.0].push(index);
        }
    }
    met
}

/// How much happens at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// All that streams and events allow.
    Overlapped,
    /// One instruction of a rank after another.
    Serial,
}

/// Where an instruction stands: which program, which instruction.
type Place = (usize, usize);

fn check_acyclic(programs: &[Program], order: Order, found: &mut Vec<Violation>) {
    let mut graph: DiGraph<Place, ()> = DiGraph::new();
    let mut meetings: BTreeMap<(CommunicatorId, &[u64], usize), NodeIndex> = BTreeMap::new();
    for (number, program) in programs.iter().enumerate() {
        let mut met: BTreeMap<CommunicatorId, usize> = BTreeMap::new();
        let mut nodes: Vec<NodeIndex> = Vec::new();
        let mut last: BTreeMap<Stream, NodeIndex> = BTreeMap::new();
        let mut waiting: Vec<(Event, NodeIndex)> = Vec::new();
        let mut signalled: BTreeMap<Event, NodeIndex> = BTreeMap::new();
        for (index, instruction) in program.instructions.iter().enumerate() {
            let node = match instruction.action.communicator() {
                Some(communicator) => {
                    let times = met.entry(communicator).or_default();
                    *times += 1;
                    let key = (communicator, program.members(communicator), *times);
                    *meetings.entry(key).or_insert_with(|| graph.add_node((number, index)))
                }
                None => graph.add_node((number, index)),
            };
            let before = match order {
                Order::Overlapped => last.insert(instruction.stream, node),
                Order::Serial => nodes.last().copied(),
            };
            if let Some(before) = before {
                graph.add_edge(before, node, ());
            }
            nodes.push(node);
            waiting.extend(instruction.waits.iter().map(|&event| (event, node)));
            signalled.extend(instruction.signals.map(|event| (event, node)));
        }
        for (event, node) in waiting {
            if let Some(&before) = signalled.get(&event) {
                graph.add_edge(before, node, ());
            }
        }
    }
    let rule = match order {
        Order::Overlapped => "acyclic-overlapped",
        Order::Serial => "acyclic-serial",
    };
    let waits_for_itself = |component: &Vec<NodeIndex>| {
        component.len() > 1 || component.iter().any(|&node| graph.contains_edge(node, node))
    };
    for mut component in kosaraju_scc(&graph).into_iter().filter(waits_for_itself) {
        component.sort_unstable();
        let place = |node: &NodeIndex| graph[*node];
        let names: Vec<String> = component
            .iter()
            .map(place)
            .map(|(rank, it)| format!("{it} of rank {rank}"))
            .take(SHOWN)
            .collect();
        let (number, index) = place(&component[0]);
        let message = format!("it waits for itself; so do, together: {}", names.join(", "));
        Report { rank: programs[number].rank, found: &mut *found }.at(index, rule, message);
    }
}

/// How many instructions of a cycle are named.
const SHOWN: usize = 8;
