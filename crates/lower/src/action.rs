//! What an instruction does: compute, copy, or exchange with other ranks.

use std::sync::Arc;

use kernels::Span;
use planner_ir::{NodeId, Op, Piece, RoutedRows, ValueId};

use crate::storage::BufferId;
use crate::strided::Strided;

/// What an instruction does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Computes a block of an operation.
    Compute(Compute),
    /// Copies elements within the rank.
    Copy(Copied),
    /// Exchanges with other ranks.
    Collective(Collective),
    /// Gives a block to other ranks and gets one.
    Message(Message),
    /// Gives parts of a block to ranks of other stages.
    Send(Sent),
    /// Gets the parts of a block from ranks of other stages.
    Receive(Received),
}

/// Which communicator of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommunicatorId(pub usize);

/// What an instruction is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// An operation of the graph.
    Node(NodeId),
    /// A move of a transfer of the plan.
    Move {
        /// Which transfer.
        transfer: usize,
        /// Which of its moves.
        step: usize,
    },
    /// What is brought, passed on or taken away between the time steps of an operation.
    Motion {
        /// Which operation of the graph.
        node: NodeId,
        /// Of which operand or result.
        moving: Moving,
        /// For the compute of which time step, or of a result after it.
        time: u64,
    },
    /// A state that is set to zero or to what it becomes.
    State(ValueId),
    /// A crossing of the plan, between stages.
    Crossing(usize),
}

/// What moves between time steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moving {
    /// The operand of that number.
    Operand(usize),
    /// The result of that number.
    Result(usize),
}

/// A block of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Compute {
    /// The operation, as the graph has it.
    pub op: Arc<Op>,
    /// What the model file calls it.
    pub name: Arc<str>,
    /// What it reads.
    pub operands: Vec<Block>,
    /// What it writes.
    pub results: Vec<Block>,
}

/// A block of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where it is.
    pub buffer: BufferId,
    /// Where it lies in the whole value, for each dimension, from 0 where the operation does not
    /// depend on the position; empty if it is the whole.
    pub spans: Vec<Span>,
}

/// A copy within a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What is read.
    pub from: BufferId,
    /// What is written.
    pub to: BufferId,
    /// Which element goes where.
    pub strided: Strided,
    /// On which side the strides are.
    pub direction: Direction,
}

/// Which side of a copy is strided. The other one is taken as it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// The source: part of it is read, and all of the target is written.
    Take,
    /// The target: part of it is written, and all of the source is read. Several such copies put
    /// a buffer together.
    Put,
}

/// An exchange between the ranks of a communicator.
///
/// What a rank gives is taken before it gets anything: a sum may be gotten where the addend was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Which.
    pub kind: CollectiveKind,
    /// Between whom.
    pub communicator: CommunicatorId,
    /// What a rank gives, contiguous.
    pub input: BufferId,
    /// What a rank gets, contiguous.
    pub output: BufferId,
    /// The elements that one rank gives to one other, or, of an all-reduce, gives and gets.
    pub elements: u64,
    /// What is exchanged in the same way at once, of the same element type.
    pub further: Vec<Further>,
    /// Which rows go, where not all do: of a dispatch and a combine.
    pub rows: Option<Rows>,
}

/// Which rows of blocks are exchanged: those of which the other side uses a part, or of whose parts this one has
/// made something. What says so are gates, which are 0 where a row does not use a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// How many there are in a block, and which parts of them go where.
    pub routed: RoutedRows,
    /// The gates of the own rows: for each member a block, of its parts.
    pub own: BufferId,
    /// The gates of all rows for the own parts: for each member a block, of its rows.
    pub others: BufferId,
}

/// One more exchange of a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Further {
    /// What a rank gives, contiguous.
    pub input: BufferId,
    /// What a rank gets, contiguous.
    pub output: BufferId,
    /// The elements that one rank gives to one other, or, of an all-reduce, gives and gets.
    pub elements: u64,
    /// Why.
    pub origin: Origin,
}

/// Whole buffers from rank to rank, one to each: one group of sends and one receive.
///
/// All ranks of the communicator take part at the same place of their programs, each by one such
/// instruction. A rank's input goes to any number of them, and its output comes from one, or from
/// its own input: then nothing is received and the input is copied. The input may be written
/// again when the instruction is over: everything has been sent then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Between whom.
    pub communicator: CommunicatorId,
    /// The ranks that the input goes to, ascending, without this one.
    pub to: Vec<u64>,
    /// The rank whose input is gotten; it may be this one.
    pub from: u64,
    /// What this rank gives, contiguous.
    pub input: BufferId,
    /// What it gets, contiguous, of the same elements.
    pub output: BufferId,
}

/// Parts of a buffer that are given to ranks of other stages.
///
/// What a rank sends to another it receives in the order of sending. The buffer may be written again
/// when the instruction is over: everything has been sent then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// What is given.
    pub input: BufferId,
    /// To whom, and which elements, in order.
    pub parts: Vec<Remote>,
}

/// Parts of a buffer, all of it together, that come from other ranks, and of which some are passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What is gotten.
    pub output: BufferId,
    /// From whom, and which elements, in order; and to whom what has come so far goes on.
    pub parts: Vec<Remote>,
}

/// A part of a buffer that goes to another rank, or comes from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Whether it goes or comes.
    pub way: Way,
    /// The other rank.
    pub rank: u64,
    /// The elements, from the buffer to a message in which they lie one after another.
    pub strided: Strided,
}

/// Whether something goes or comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// It goes to a rank.
    To,
    /// It comes from a rank.
    From,
}

/// A kind of exchange. Blocks stand in the order of the communicator's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveKind {
    /// Each gets the inputs of all.
    AllGather,
    /// Each gets the sum of the inputs.
    AllReduce,
    /// Each gets one block of the sum of the inputs.
    ReduceScatter,
    /// Each gets one block of each input.
    AllToAll,
    /// Each gets the rows of all inputs that use its parts, each where it is in an all-gather; what is in the
    /// places of other rows nobody looks at.
    Dispatch,
    /// Each gets one block of the sum of the inputs, of which only rows that use the parts of who gives them
    /// are not zero.
    Combine,
    /// Each gets the input of the member of that number; what others give is not looked at.
    Broadcast(usize),
    /// The member of that number gets the sum of the inputs; the others' outputs stay as they
    /// are.
    Reduce(usize),
}

impl CollectiveKind {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all-gather",
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Dispatch => "dispatch",
            Self::Combine => "combine",
            Self::Broadcast(_) => "broadcast",
            Self::Reduce(_) => "reduce",
        }
    }

    /// The member that alone gives, or alone gets.
    pub fn root(self) -> Option<usize> {
        match self {
            Self::Broadcast(root) | Self::Reduce(root) => Some(root),
            _ => None,
        }
    }
}

impl Block {
    /// The block of a value of that shape that has these pieces. Kernels are told where it lies in positional
    /// dimensions, where it is contiguous or in stripes; in others it may be anything, and starts at 0.
    pub(crate) fn of(buffer: BufferId, pieces: &[Vec<Piece>], shape: &[u64], positional: &[bool]) -> Self {
        if pieces.iter().flatten().all(|piece| piece.index.is_none_or(|_| piece.size == 1)) {
            return Self { buffer, spans: Vec::new() };
        }
        let dims = pieces.iter().zip(shape).zip(positional);
        let spans = dims.map(
            |((pieces, &extent), &positional)| {
                if positional { span(pieces, extent) } else { Span::contiguous(extent, 0) }
            },
        );
        Self { buffer, spans: spans.collect() }
    }
}

/// Where a block of these pieces lies: of stripes if some of its factors stands before others.
fn span(pieces: &[Piece], extent: u64) -> Span {
    let start = pieces.iter().fold(0, |start, it| start * it.size + it.index.unwrap_or(0));
    let outer = pieces.len().saturating_sub(1);
    match pieces[..outer].iter().position(|it| it.index.is_none() && it.size > 1) {
        None => Span::contiguous(extent, start),
        Some(free) => Span {
            extent,
            start,
            run: pieces[outer].size,
            stride: pieces[free + 1..].iter().map(|it| it.size).product(),
        },
    }
}

impl Collective {
    /// Each exchange by itself, as a collective that is no other.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let Self { kind, communicator, rows, .. } = *self;
        let alone = move |input, output, elements| Self {
            kind,
            communicator,
            input,
            output,
            elements,
            further: Vec::new(),
            rows,
        };
        let further = self.further.iter().map(move |it| alone(it.input, it.output, it.elements));
        std::iter::once(alone(self.input, self.output, self.elements)).chain(further)
    }

    /// The elements of all exchanges together, each as [`Self::elements`] counts them.
    pub fn all_elements(&self) -> u64 {
        self.further.iter().map(|it| it.elements).fold(self.elements, u64::saturating_add)
    }

    /// The elements of the input, between so many ranks.
    pub fn given(&self, ranks: u64) -> u64 {
        match self.kind {
            CollectiveKind::ReduceScatter | CollectiveKind::AllToAll | CollectiveKind::Combine => {
                ranks * self.elements
            }
            CollectiveKind::AllGather
            | CollectiveKind::AllReduce
            | CollectiveKind::Broadcast(_)
            | CollectiveKind::Reduce(_)
            | CollectiveKind::Dispatch => self.elements,
        }
    }

    /// The elements of the output, between so many ranks.
    pub fn gotten(&self, ranks: u64) -> u64 {
        match self.kind {
            CollectiveKind::AllGather | CollectiveKind::AllToAll | CollectiveKind::Dispatch => {
                ranks * self.elements
            }
            CollectiveKind::AllReduce
            | CollectiveKind::ReduceScatter
            | CollectiveKind::Broadcast(_)
            | CollectiveKind::Reduce(_)
            | CollectiveKind::Combine => self.elements,
        }
    }
}

impl Action {
    /// The buffers that are read.
    pub fn reads(&self) -> Vec<BufferId> {
        match self {
            Self::Compute(compute) => compute.operands.iter().map(|it| it.buffer).collect(),
            Self::Copy(copy) => vec![copy.from],
            Self::Collective(it) => {
                let gates = it.rows.iter().flat_map(|rows| [rows.own, rows.others]);
                it.each().map(|it| it.input).chain(gates).collect()
            }
            Self::Message(message) => vec![message.input],
            Self::Send(sent) => vec![sent.input],
            Self::Receive(_) => vec![],
        }
    }

    /// The buffers that are written, or of which a part is; that of a reduce on all ranks.
    pub fn writes(&self) -> Vec<BufferId> {
        match self {
            Self::Compute(compute) => compute.results.iter().map(|it| it.buffer).collect(),
            Self::Copy(copy) => vec![copy.to],
            Self::Collective(it) => it.each().map(|it| it.output).collect(),
            Self::Message(message) => vec![message.output],
            Self::Send(_) => vec![],
            Self::Receive(received) => vec![received.output],
        }
    }

    /// What goes between stages in it, in order.
    pub fn remotes(&self) -> &[Remote] {
        match self {
            Self::Send(sent) => &sent.parts,
            Self::Receive(received) => &received.parts,
            Self::Compute(_) | Self::Copy(_) | Self::Collective(_) | Self::Message(_) => &[],
        }
    }

    /// How many exchanges with other ranks it is.
    pub fn exchanges(&self) -> usize {
        if self.communicator().is_some() { 1 } else { self.remotes().len() }
    }

    /// The communicator on which other ranks are met.
    pub fn communicator(&self) -> Option<CommunicatorId> {
        match self {
            Self::Collective(collective) => Some(collective.communicator),
            Self::Message(message) => Some(message.communicator),
            Self::Compute(_) | Self::Copy(_) | Self::Send(_) | Self::Receive(_) => None,
        }
    }

    /// What it is called: of an operation, what the model file calls that.
    pub fn name(&self) -> &str {
        match self {
            Self::Compute(compute) => &compute.name,
            Self::Copy(_) => "copy",
            Self::Collective(it) => it.kind.name(),
            Self::Message(_) => "message",
            Self::Send(_) => "send",
            Self::Receive(_) => "receive",
        }
    }

    /// What it is called, if other ranks are met in it.
    pub fn exchange(&self) -> Option<&'static str> {
        match self {
            Self::Collective(collective) => Some(collective.kind.name()),
            Self::Message(_) => Some("message"),
            Self::Compute(_) | Self::Copy(_) | Self::Send(_) | Self::Receive(_) => None,
        }
    }
}
