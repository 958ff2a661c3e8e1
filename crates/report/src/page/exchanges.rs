//! Who exchanges with whom, as a page draws it.

use std::collections::BTreeMap;

use lower::{Action, Collective, CollectiveKind, Program, Stream};
use planner_ir::{AxisId, Mesh, Phase};
use serde_json::{Value, json};
use simulate::{Class, Span, common};

use super::spans::on;

/// The ranks of a mesh: all, or those of a stage.
#[derive(Clone, Debug)]
pub struct Ranks<'a> {
    /// Which one is first.
    pub first: u64,
    /// How they lie.
    pub mesh: &'a Mesh,
    /// Of which stages' programs they are.
    pub stage: usize,
}

/// What is exchanged with the same ranks, in the same way.
#[derive(Default)]
struct Exchange {
    count: usize,
    bytes: u64,
    spans: Vec<Span>,
}

/// What the first rank of a kind exchanges with others of its stage: with whom, how often, how much it receives
/// (bytes), how long that takes and how much of it nothing is computed beside (nanoseconds).
pub(super) fn exchanges(
    program: &Program,
    class: &Class,
    spans: &[Span],
    meshes: &[Ranks<'_>],
) -> Vec<Value> {
    let mut all: BTreeMap<(Vec<u64>, &'static str, Phase), Exchange> = BTreeMap::new();
    for span in on(program, spans, &Stream::exchanges) {
        let instruction = &program.instructions[span.instruction];
        let (Some(communicator), Some(kind)) =
            (instruction.action.communicator(), instruction.action.exchange())
        else {
            continue;
        };
        let members = program.members(communicator).to_vec();
        let exchange = all.entry((members, kind, instruction.phase)).or_default();
        exchange.count += 1;
        exchange.bytes = exchange.bytes.saturating_add(received(program, &instruction.action));
        exchange.spans.push(span);
    }
    let computing = on(program, spans, &|it| it == Stream::Compute);
    let first = class.ranks.first().copied().unwrap_or(0);
    let value = |((members, kind, phase), it): ((Vec<u64>, &'static str, Phase), Exchange)| {
        let time: f64 = it.spans.iter().map(|span| span.end - span.start).sum();
        let exposed = time - common(&it.spans, &computing);
        let placed = meshes.iter().find_map(|ranks| along(&members, first, ranks));
        json!({
            "kind": kind,
            "phase": phase.name(),
            "axes": placed.as_ref().map(|it| &it.0),
            "stage": placed.map(|it| it.1),
            "size": members.len(),
            "count": it.count,
            "bytes": it.bytes,
            "seconds": time,
            "exposed": exposed.max(0.0),
        })
    };
    all.into_iter().map(value).collect()
}

/// The axes of a mesh along which ranks lie, and of which stage it is; none if they are no group of it.
fn along(members: &[u64], rank: u64, ranks: &Ranks<'_>) -> Option<(Vec<String>, usize)> {
    let mesh: &Mesh = ranks.mesh;
    let within = |rank: u64| rank.checked_sub(ranks.first).filter(|it| *it < mesh.devices());
    let own = mesh.coordinates(within(rank)?);
    let others: Vec<Vec<u64>> =
        members.iter().map(|it| within(*it).map(|it| mesh.coordinates(it))).collect::<Option<_>>()?;
    let differs = |axis: &AxisId| others.iter().any(|it| it[axis.0] != own[axis.0]);
    let axes: Vec<AxisId> = mesh.axis_ids().filter(differs).collect();
    let size: u64 = axes.iter().map(|axis| mesh.size(*axis)).product();
    let whole = usize::try_from(size).is_ok_and(|it| it == members.len());
    whole.then(|| (axes.iter().map(|axis| mesh.axes[axis.0].name.clone()).collect(), ranks.stage))
}

/// What a rank receives in an exchange (bytes), by rings.
fn received(program: &Program, action: &Action) -> u64 {
    match action {
        Action::Collective(it) => of_collective(program, it),
        Action::Message(it) => program.buffer(it.output).type_.bytes(),
        Action::Compute(_) | Action::Copy(_) | Action::Send(_) | Action::Receive(_) => 0,
    }
}

fn of_collective(program: &Program, it: &Collective) -> u64 {
    let others = program.members(it.communicator).len().saturating_sub(1);
    let others = u64::try_from(others).unwrap_or(u64::MAX);
    let elements = it.elements + it.further.iter().map(|it| it.elements).sum::<u64>();
    let size = program.buffer(it.input).type_.dtype.bytes();
    let part = elements.saturating_mul(size);
    match it.kind {
        // A reduce-scatter and an all-gather of parts.
        CollectiveKind::AllReduce => part.saturating_mul(2).saturating_mul(others) / (others + 1),
        CollectiveKind::Broadcast(_) | CollectiveKind::Reduce(_) => part,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
            part.saturating_mul(others)
        }
        CollectiveKind::Dispatch | CollectiveKind::Combine => {
            let all = part.saturating_mul(others);
            it.rows.map_or(all, |rows| rows.routed.received(part, others + 1))
        }
    }
}
