//! Timelines as execution traces of Chakra: for each rank its instructions as nodes, with what each comes after,
//! when it starts and how long it takes.
//!
//! A file is a sequence of messages, each after its length: a `GlobalMetadata`, then a `Node` for each instruction as
//! often as it runs, and for each rank to which or from which one sends or receives. Times are whole microseconds in
//! the format: starts and ends are rounded, so that times do not drift, and the exact duration is an attribute
//! (`seconds`). The size of an exchange is that of what a rank has before it, as ASTRA-sim takes it: of an all-gather
//! one part (`astra-sim/system/collective/Ring.cc`, `ComType::All_Gather`).
//!
//! Source: MLCommons Chakra, `schema/protobuf/et_def.proto`; the types of attributes as in its
//! `src/generator/generator.py`.

mod message; // messages as protobuf writes them

use std::collections::BTreeMap;
use std::io::{self, Write};

use lower::{Action, CollectiveKind, CommunicatorId, Instruction, Program, Way};

use crate::crossings::Crossed;
use crate::precedence::{Precedence, Step, walk};
use crate::prices::Priced;
use crate::timeline::{Class, Span, Timeline};
use message::{Attribute, Message};

/// The version of the schema.
const SCHEMA: &str = "1.0.0";

const MICROSECONDS: f64 = 1e6;

/// `NodeType` of the schema.
#[derive(Clone, Copy)]
enum NodeType {
    Compute = 4,
    Send = 5,
    Receive = 6,
    Collective = 7,
}

/// The groups of ranks that exchange, each once. In all traces each is called by its place among these.
pub fn groups(timeline: &Timeline<'_>) -> Vec<Vec<u64>> {
    let mut all: Vec<Vec<u64>> = timeline.ranks.groups.iter().map(|it| it.1.clone()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Writes the trace of a rank of a class, whose groups these are.
pub fn chakra(
    timeline: &Timeline<'_>,
    (class, rank): (&Class, u64),
    groups: &[Vec<u64>],
    to: &mut dyn Write,
) -> io::Result<()> {
    let mut metadata = Message::default();
    metadata.text(1, SCHEMA);
    let about =
        [("source", Attribute::Text("Shardloom, simulated".into())), ("rank", Attribute::Integer(rank))];
    about.iter().for_each(|(name, value)| metadata.attribute(2, name, value));
    metadata.after_length(to)?;

    let program = timeline.program(class);
    let mut nodes = Nodes::of(timeline, class, rank, groups);
    let mut precedence: Precedence<'_, [u64; 2]> = Precedence::start(program, timeline.order);
    let mut spans = timeline.spans(class);
    let mut failed = Ok(());
    walk(program, &mut |step| match step {
        Step::Turn(turn) => {
            let over = precedence.turn(turn.as_ref());
            precedence.starts(over);
        }
        Step::Instruction(index, micro_batch) => {
            let instruction = &program.instructions[index];
            let Some(span) = spans.next() else { return };
            let before = precedence.before(instruction);
            let first = nodes.next;
            for node in nodes.of_instruction(index, instruction) {
                let mut after: Vec<u64> = before.iter().flat_map(|&[first, end]| first..end).collect();
                after.extend(
                    (first..)
                        .enumerate()
                        .take_while(|it| it.1 < nodes.next)
                        .filter_map(|it| node.after.contains(&it.0).then_some(it.1)),
                );
                if failed.is_ok() {
                    failed = nodes.put(&node, (&span, after), instruction, to);
                }
            }
            precedence.done(instruction, micro_batch, [first, nodes.next]);
        }
    });
    failed
}

/// The nodes of a rank.
struct Nodes<'a> {
    program: &'a Program,
    rank: u64,
    prices: &'a [Priced],
    /// For each message of the program whom it goes to, and whom it comes from.
    messages: Vec<(Vec<u64>, u64)>,
    /// What is sent and received between stages, by instruction: which way, to or from whom, and what.
    crossings: BTreeMap<usize, Vec<(&'a Crossed, u64)>>,
    /// The name of each communicator.
    names: BTreeMap<CommunicatorId, (String, &'a [u64])>,
    /// How many messages went to and came from each rank.
    tags: BTreeMap<(bool, u64), u64>,
    /// The number of the next node.
    next: u64,
}

/// A node, but for when it is.
struct Node<'a> {
    type_: NodeType,
    name: &'a str,
    attributes: Vec<(&'static str, Attribute<'a>)>,
    /// Which nodes of its instruction it comes after, by their places.
    after: &'a [usize],
}

impl<'a> Nodes<'a> {
    fn of(timeline: &'a Timeline<'_>, class: &Class, rank: u64, groups: &[Vec<u64>]) -> Self {
        let ranks = &timeline.ranks;
        let kind = &ranks.kinds[class.program];
        let place = usize::try_from(rank).unwrap_or(usize::MAX);
        let other = |it: &Crossed| {
            let pair = it.pair.and_then(|pair| ranks.pairs.get(pair));
            pair.map_or(rank, |pair| if it.way == Way::To { pair.to } else { pair.from })
        };
        let crossings = ranks.crossings.get(place).into_iter().flatten();
        let named = |(communicator, members): (CommunicatorId, &'a [u64])| {
            let number = groups.iter().position(|it| it == members).unwrap_or(0);
            (communicator, ((number + 1).to_string(), members))
        };
        Self {
            program: kind.program,
            rank,
            prices: &kind.prices,
            messages: kind.lists.iter().map(|&list| ranks.exchanges_of(list, rank)).collect(),
            crossings: crossings
                .map(|(&index, all)| (index, all.iter().map(|it| (it, other(it))).collect()))
                .collect(),
            names: ranks.groups_of(rank).into_iter().map(named).collect(),
            tags: BTreeMap::new(),
            next: 0,
        }
    }

    /// The nodes of an instruction.
    fn of_instruction(&mut self, index: usize, instruction: &'a Instruction) -> Vec<Node<'a>> {
        match &instruction.action {
            Action::Compute(_) | Action::Copy(_) => vec![self.computes(instruction)],
            Action::Collective(it) => vec![self.together(index, instruction, (it.kind, it.communicator))],
            Action::Message(_) => {
                let (number, bytes) = match self.prices[index] {
                    Priced::Messages { number, bytes } => (number, bytes),
                    _ => (0, 0),
                };
                let (to, from) = self.messages.get(number).cloned().unwrap_or_default();
                let mut nodes: Vec<Node<'a>> =
                    to.iter().map(|&to| self.message(instruction, (Way::To, to), bytes, &[])).collect();
                nodes.push(if from == self.rank {
                    self.computes(instruction)
                } else {
                    self.message(instruction, (Way::From, from), bytes, &[])
                });
                nodes
            }
            Action::Send(_) | Action::Receive(_) => {
                let parts = self.crossings.get(&index).cloned().unwrap_or_default();
                let buffers = instruction.action.reads().into_iter().chain(instruction.action.writes());
                let size: u64 = buffers.map(|it| self.program.buffer(it).type_.dtype.bytes()).sum();
                let one = |(it, other): (&'a Crossed, u64)| match it.pair {
                    None => self.computes(instruction),
                    Some(_) => self.message(instruction, (it.way, other), size * it.elements, &it.after),
                };
                parts.into_iter().map(one).collect()
            }
        }
    }

    fn computes(&self, instruction: &'a Instruction) -> Node<'a> {
        let buffers = instruction.action.reads().into_iter().chain(instruction.action.writes());
        let bytes = buffers.map(|it| self.program.buffer(it).type_.bytes()).sum();
        let attributes = vec![("tensor_size", Attribute::Unsigned(bytes))];
        Node { type_: NodeType::Compute, name: instruction.action.name(), attributes, after: &[] }
    }

    fn together(
        &self,
        index: usize,
        instruction: &'a Instruction,
        (kind, communicator): (CollectiveKind, CommunicatorId),
    ) -> Node<'a> {
        let (name_of_group, members) =
            self.names.get(&communicator).map_or_else(|| (String::new(), &[][..]), |it| (it.0.clone(), it.1));
        // What a rank has before it.
        let ranks = u64::try_from(members.len()).unwrap_or(u64::MAX).max(1);
        let size = match self.prices[index] {
            Priced::Together { what, .. } => match (kind, what.rows) {
                (CollectiveKind::AllGather, _) => what.bytes / ranks,
                (_, Some(rows)) => rows.of_device(what.bytes, ranks),
                (_, None) => what.bytes,
            },
            _ => 0,
        };
        let mut attributes = vec![
            ("comm_type", Attribute::Integer(comm_type(kind))),
            ("comm_size", Attribute::Integer(size)),
            ("pg_name", Attribute::Text(name_of_group.into())),
        ];
        attributes
            .extend(kind.root().and_then(|it| members.get(it)).map(|it| ("root", Attribute::Integer(*it))));
        Node { type_: NodeType::Collective, name: instruction.action.name(), attributes, after: &[] }
    }

    /// What goes to a rank or comes from one. Messages of two ranks are numbered in the order of sending, which is
    /// that of receiving.
    fn message(
        &mut self,
        instruction: &'a Instruction,
        (way, other): (Way, u64),
        bytes: u64,
        after: &'a [usize],
    ) -> Node<'a> {
        let goes = way == Way::To;
        let tag = self.tags.entry((goes, other)).or_default();
        let ends = if goes { [self.rank, other] } else { [other, self.rank] };
        let attributes = vec![
            ("comm_src", Attribute::Small(ends[0])),
            ("comm_dst", Attribute::Small(ends[1])),
            ("comm_tag", Attribute::Small(*tag)),
            ("comm_size", Attribute::Integer(bytes)),
        ];
        *tag += 1;
        let type_ = if goes { NodeType::Send } else { NodeType::Receive };
        Node { type_, name: instruction.action.name(), attributes, after }
    }

    /// Writes the next node, which comes after these.
    fn put(
        &mut self,
        node: &Node<'_>,
        (span, mut after): (&Span, Vec<u64>),
        instruction: &Instruction,
        to: &mut dyn Write,
    ) -> io::Result<()> {
        let [start, end] = [span.start, span.end].map(microseconds);
        after.sort_unstable();
        after.dedup();
        let mut message = Message::default();
        message.number(1, self.next);
        message.text(2, node.name);
        message.number(3, node.type_ as u64);
        message.numbers(5, &after);
        message.number(6, start);
        message.number(7, end - start);
        let about = [
            ("is_cpu_op", Attribute::Truth(false)),
            ("seconds", Attribute::Real(span.end - span.start)),
            ("phase", Attribute::Text(instruction.phase.name().into())),
            ("stream", Attribute::Text(instruction.stream.name().into())),
            ("micro_batch", Attribute::Integer(u64::from(span.repetition))),
        ];
        about.iter().chain(&node.attributes).for_each(|(name, value)| message.attribute(10, name, value));
        self.next += 1;
        message.after_length(to)
    }
}

/// `CollectiveCommType` of the schema.
fn comm_type(kind: CollectiveKind) -> u64 {
    match kind {
        CollectiveKind::AllReduce => 0,
        CollectiveKind::Reduce(_) => 1,
        CollectiveKind::AllGather => 2,
        CollectiveKind::Broadcast(_) => 5,
        // The schema has no kind for rows that are chosen as they go.
        CollectiveKind::AllToAll | CollectiveKind::Dispatch | CollectiveKind::Combine => 6,
        CollectiveKind::ReduceScatter => 7,
    }
}

/// Whole microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a step takes less than ages")]
fn microseconds(seconds: f64) -> u64 {
    (seconds * MICROSECONDS).round() as u64
}
