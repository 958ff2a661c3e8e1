//! What instructions take: the same prices by which plans are chosen.

use std::collections::BTreeMap;

use cost_models::machine::Machine;
use cost_models::topology::Group;
use cost_models::units::{Bytes, Seconds};
use cost_models::{collective, work, work::Rows};
use lower::{Action, Block, Collective, CollectiveKind, CommunicatorId, Compute, Copied, Program};
use planner_ir::{RoutedRows, Type};

/// An instruction that has a price.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Priced {
    /// It takes so long on its rank (seconds).
    Alone(f64),
    /// Ranks exchange a value of so many bytes.
    Together { what: Exchanged, communicator: CommunicatorId },
    /// Ranks give and get messages of so many bytes: which one of the program it is.
    Messages { number: usize, bytes: u64 },
    /// Ranks of different stages send it parts, or it sends them parts, each at a price of its own.
    Crossing,
}

/// What a collective exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchanged {
    pub(crate) kind: CollectiveKind,
    /// Of the whole value; of rows, those of all ranks.
    pub(crate) bytes: u64,
    /// Which rows go, where not all do.
    pub(crate) rows: Option<RoutedRows>,
}

/// The prices of a program's instructions.
pub(crate) fn priced<'a>(program: &'a Program, machine: &Machine) -> Vec<Priced> {
    let mut messages = 0;
    let mut known = Known::default();
    let one = |action: &'a Action| match action {
        Action::Compute(it) => Priced::Alone(known.price(program, machine, it)),
        Action::Copy(copy) => Priced::Alone(copying(program, machine, copy).0),
        Action::Collective(it) => {
            let ranks = program.members(it.communicator).len();
            let bytes = value(program, it, u64::try_from(ranks).unwrap_or(u64::MAX));
            let what = Exchanged { kind: it.kind, bytes, rows: it.rows.map(|rows| rows.routed) };
            Priced::Together { what, communicator: it.communicator }
        }
        Action::Message(it) => {
            messages += 1;
            Priced::Messages { number: messages - 1, bytes: program.buffer(it.input).type_.bytes() }
        }
        Action::Send(_) | Action::Receive(_) => Priced::Crossing,
    };
    program.instructions.iter().map(|it| &it.action).map(one).collect()
}

/// What each instruction takes on its own rank (seconds); nothing for those that ranks do together.
#[must_use]
pub fn alone(program: &Program, machine: &Machine) -> Vec<Option<f64>> {
    let alone = |priced| if let Priced::Alone(seconds) = priced { Some(seconds) } else { None };
    priced(program, machine).into_iter().map(alone).collect()
}

/// Computations that are priced: the blocks of a model repeat, and what is alike takes as long.
#[derive(Default)]
struct Known<'a> {
    /// By how much is read first and written first, so that few have to be compared.
    all: BTreeMap<[u64; 2], Vec<(&'a Compute, f64)>>,
}

impl<'a> Known<'a> {
    fn price(&mut self, program: &Program, machine: &Machine, compute: &'a Compute) -> f64 {
        let first =
            |blocks: &[Block]| blocks.first().map_or(0, |it| program.buffer(it.buffer).type_.elements());
        let near = self.all.entry([first(&compute.operands), first(&compute.results)]).or_default();
        if let Some((_, price)) = near.iter().find(|it| alike(program, it.0, compute)) {
            return *price;
        }
        let price = computing(program, machine, compute).0;
        near.push((compute, price));
        price
    }
}

/// Whether operations are the same, on the same parts of values of the same types.
fn alike(program: &Program, one: &Compute, other: &Compute) -> bool {
    let same = |(a, b): (&Block, &Block)| {
        a.spans == b.spans && program.buffer(a.buffer).type_ == program.buffer(b.buffer).type_
    };
    let all = |a: &[Block], b: &[Block]| a.len() == b.len() && a.iter().zip(b).all(same);
    one.op == other.op && all(&one.operands, &other.operands) && all(&one.results, &other.results)
}

fn computing(program: &Program, machine: &Machine, compute: &Compute) -> Seconds {
    let local = |block: &Block| program.buffer(block.buffer).type_.clone();
    let whole = |block: &Block| {
        let local = local(block);
        let extents = block.spans.iter().map(|span| span.extent).collect::<Vec<u64>>();
        if extents.is_empty() { local } else { Type::new(local.dtype, extents) }
    };
    let whole: Vec<Type> = compute.operands.iter().map(whole).collect();
    let operands: Vec<Type> = compute.operands.iter().map(local).collect();
    let results: Vec<Type> = compute.results.iter().map(local).collect();
    let op = &*compute.op;
    let rows =
        if compute.operands.iter().any(|it| is_spread(program, it)) { Rows::Spread } else { Rows::Together };
    work::operation(
        &machine.device,
        &work::Work { op, whole: &whole, operands: &operands, results: &results, rows },
    )
}

/// Whether a block is stripes of the whole of what it is a block of.
fn is_spread(program: &Program, block: &Block) -> bool {
    let extents = &program.buffer(block.buffer).type_.shape;
    let mut spans = block.spans.iter().zip(extents);
    spans.any(|(span, extent)| span.stride > 1 && extent / span.run * span.stride == span.extent)
}

fn copying(program: &Program, machine: &Machine, copy: &Copied) -> Seconds {
    let size = program.buffer(copy.to).type_.dtype.bytes();
    work::copy(&machine.device, Bytes(copy.strided.elements() * size))
}

/// The bytes of the value by which a collective is priced.
fn value(program: &Program, collective: &Collective, ranks: u64) -> u64 {
    let size = program.buffer(collective.input).type_.dtype.bytes();
    let elements = match collective.kind {
        CollectiveKind::AllGather
        | CollectiveKind::ReduceScatter
        | CollectiveKind::AllToAll
        | CollectiveKind::Dispatch
        | CollectiveKind::Combine => ranks * collective.all_elements(),
        CollectiveKind::AllReduce | CollectiveKind::Broadcast(_) | CollectiveKind::Reduce(_) => {
            collective.all_elements()
        }
    };
    elements * size
}

/// The time of a collective, with nobody else on the links.
pub(crate) fn together(machine: &Machine, group: &Group, what: Exchanged) -> Seconds {
    let bytes = Bytes(what.bytes);
    match what.kind {
        CollectiveKind::AllGather => collective::ring_all_gather(machine, group, bytes),
        CollectiveKind::AllReduce => collective::all_reduce(machine, group, bytes),
        CollectiveKind::ReduceScatter => collective::reduce_scatter(machine, group, bytes),
        CollectiveKind::AllToAll => collective::all_to_all(machine, group, bytes),
        // Which rows go is not known before they do. Without a word on them, all do.
        CollectiveKind::Dispatch | CollectiveKind::Combine => match &what.rows {
            Some(rows) => collective::routed(machine, group, bytes, rows),
            None => collective::all_to_all(machine, group, bytes),
        },
        // A reduction is a broadcast the other way.
        CollectiveKind::Broadcast(_) | CollectiveKind::Reduce(_) => {
            collective::broadcast(machine, group, bytes)
        }
    }
}
