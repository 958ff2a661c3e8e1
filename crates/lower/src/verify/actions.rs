//! One instruction at a time: reference, event, stream, size, type, port.

use std::collections::BTreeMap;

use planner_ir::{Op, RoutedRows, Type};

use super::{Report, Violation, crossing};
use crate::action::{
    Action, Block, Collective, CollectiveKind, CommunicatorId, Compute, Copied, Direction, Message,
};
use crate::program::{Port, Program, Stream};
use crate::storage::BufferId;

/// Whether all that is named exists.
pub(super) fn check_references(program: &Program, found: &mut Vec<Violation>) {
    let mut report = Report { rank: program.rank, found };
    for (index, buffer) in program.buffers.iter().enumerate() {
        if buffer.storage.0 >= program.storages.len() {
            report
                .whole("reference", format!("b{index} lies in storage {}, which is none", buffer.storage.0));
        }
    }
    for (index, storage) in program.storages.iter().enumerate() {
        // Those before it, so that no storage lies over itself.
        if let Some(over) = storage.over.filter(|over| over.0 >= index) {
            report.whole("reference", format!("storage {index} lies over {}, expected one before", over.0));
        }
    }
    let missing = |buffer: &BufferId| buffer.0 >= program.buffers.len();
    for (index, instruction) in program.instructions.iter().enumerate() {
        let action = &instruction.action;
        for buffer in action.reads().into_iter().chain(action.writes()).filter(missing) {
            report.at(index, "reference", format!("there is no b{}", buffer.0));
        }
        if let Some(communicator) = action.communicator()
            && communicator.0 >= program.communicators.len()
        {
            report.at(index, "reference", format!("there is no c{}", communicator.0));
        }
    }
    for port in ports(program).filter(|port| missing(&port.buffer)) {
        report.whole("reference", format!("`{}` is in b{}, which is none", port.name, port.buffer.0));
    }
}

fn ports(program: &Program) -> impl Iterator<Item = &Port> {
    let others = [&program.weights, &program.prepared, &program.states, &program.outputs];
    program.given().chain(others.into_iter().flatten())
}

/// Whether instructions and ports fit what they name.
pub(super) fn check(program: &Program, found: &mut Vec<Violation>) {
    let mut report = Report { rank: program.rank, found };
    check_events(program, &mut report);
    check_streams(program, &mut report);
    for (index, buffer) in program.buffers.iter().enumerate() {
        let bytes = program.storages[buffer.storage.0].bytes;
        if buffer.type_.bytes() > bytes {
            report
                .whole("size", format!("b{index} of {} is larger than its storage of {bytes}", buffer.type_));
        }
    }
    for port in ports(program) {
        check_port(program, port, &mut report);
    }
    for (index, instruction) in program.instructions.iter().enumerate() {
        let found = match &instruction.action {
            Action::Compute(compute) => compute_fault(program, compute).map(|it| ("type", it)),
            Action::Copy(copy) => copy_fault(program, copy).map(|it| ("size", it)),
            Action::Collective(it) => {
                it.each().find_map(|it| collective_fault(program, &it)).map(|it| ("size", it))
            }
            Action::Message(message) => message_fault(program, message).map(|it| ("size", it)),
            Action::Send(sent) => crossing::sent_fault(program, sent).map(|it| ("size", it)),
            Action::Receive(received) => crossing::received_fault(program, received).map(|it| ("size", it)),
        };
        if let Some((rule, message)) = found {
            report.at(index, rule, message);
        }
    }
}

fn check_events(program: &Program, report: &mut Report) {
    let mut signalled = std::collections::BTreeSet::new();
    for (index, instruction) in program.instructions.iter().enumerate() {
        for event in instruction.waits.iter().filter(|event| !signalled.contains(*event)) {
            report.at(index, "event", format!("e{} is waited for, not signalled before", event.0));
        }
        if let Some(event) = instruction.signals
            && !signalled.insert(event)
        {
            report.at(index, "event", format!("e{} is signalled twice", event.0));
        }
    }
}

/// What exchanges of a kind are done on, those of a communicator all on one: only then they have an
/// order.
fn check_streams(program: &Program, report: &mut Report) {
    let mut of: BTreeMap<CommunicatorId, Stream> = BTreeMap::new();
    for (index, instruction) in program.instructions.iter().enumerate() {
        let communicator = match &instruction.action {
            Action::Collective(it) => it.communicator,
            Action::Message(it) => it.communicator,
            _ => continue,
        };
        let first = *of.entry(communicator).or_insert(instruction.stream);
        if first != instruction.stream {
            let (found, first) = (instruction.stream.name(), first.name());
            let message = format!("it is of c{} on stream {found}, others on {first}", communicator.0);
            report.at(index, "stream", message);
        }
    }
    for (index, instruction) in program.instructions.iter().enumerate() {
        let expected = match &instruction.action {
            Action::Message(_) if instruction.stream == Stream::Contrary => continue,
            Action::Collective(_) | Action::Message(_) if instruction.stream == Stream::Beside => continue,
            Action::Collective(_) | Action::Message(_) => Stream::Communication,
            Action::Send(_) => Stream::Sending,
            Action::Receive(_) => Stream::Receiving,
            Action::Compute(_) | Action::Copy(_) => continue,
        };
        if instruction.stream != expected {
            let (found, expected) = (instruction.stream.name(), expected.name());
            report.at(index, "stream", format!("it exchanges on stream {found}, expected {expected}"));
        }
    }
}

fn check_port(program: &Program, port: &Port, report: &mut Report) {
    let factors: Vec<u64> =
        port.pieces.iter().map(|dim| dim.iter().map(|piece| piece.size).product()).collect();
    if factors != port.type_.shape {
        report.whole("port", format!("the pieces of `{}` make {factors:?}, not {}", port.name, port.type_));
        return;
    }
    let within = |piece: &planner_ir::Piece| piece.index.is_none_or(|index| index < piece.size);
    if !port.pieces.iter().flatten().all(within) {
        report.whole("port", format!("a piece of `{}` is none of its blocks", port.name));
    }
    let held = |dim: &Vec<planner_ir::Piece>| -> u64 {
        dim.iter().filter(|piece| piece.index.is_none()).map(|piece| piece.size).product()
    };
    let elements: u64 = port.pieces.iter().map(held).product();
    let buffer = &program.buffer(port.buffer).type_;
    if buffer.elements() != elements || buffer.dtype != port.type_.dtype {
        report.whole(
            "port",
            format!(
                "`{}` has pieces of {elements} {}, b{} is {buffer}",
                port.name, port.type_.dtype, port.buffer.0
            ),
        );
    }
}

/// The type of the whole value that a block is of.
fn whole_type(program: &Program, block: &Block) -> Result<Type, String> {
    let held = &program.buffer(block.buffer).type_;
    if block.spans.is_empty() {
        return Ok(held.clone());
    }
    let fits = block.spans.len() == held.rank()
        && held
            .shape
            .iter()
            .zip(&block.spans)
            .all(|(&extent, span)| span.start.checked_add(extent).is_some_and(|end| end <= span.extent));
    if !fits {
        return Err(format!("b{} of {held} does not lie within its value", block.buffer.0));
    }
    Ok(Type::new(held.dtype, block.spans.iter().map(|span| span.extent).collect::<Vec<_>>()))
}

fn compute_fault(program: &Program, compute: &Compute) -> Option<String> {
    let types = |blocks: &[Block]| -> Result<Vec<Type>, String> {
        blocks.iter().map(|block| whole_type(program, block)).collect()
    };
    let (operands, results) = match (types(&compute.operands), types(&compute.results)) {
        (Ok(operands), Ok(results)) => (operands, results),
        (Err(fault), _) | (_, Err(fault)) => return Some(fault),
    };
    if let Op::Region(region) = &*compute.op
        && region.operands != operands.len()
    {
        return Some(format!("`{}` has {} operands, not {}", compute.name, operands.len(), region.operands));
    }
    match compute.op.infer(&operands) {
        Err(error) => Some(format!("`{}`: {error}", compute.name)),
        Ok(types) if !may_be(&compute.op, &operands, &types, &results) => {
            let shown: Vec<String> = results.iter().map(ToString::to_string).collect();
            let right: Vec<String> = types.iter().map(ToString::to_string).collect();
            Some(format!("`{}` makes {}, not {}", compute.name, right.join(", "), shown.join(", ")))
        }
        Ok(_) => None,
    }
}

/// Whether an operation that makes values of these types may make them as those: addends, and parts
/// that are merged, may be in the elements in which they are accumulated.
fn may_be(op: &Op, operands: &[Type], types: &[Type], results: &[Type]) -> bool {
    if types == results {
        return true;
    }
    let loops = op.loops(operands, types);
    let parts = loops.ids().any(|it| loops.get(it).role.makes_parts());
    let wider = |type_: &Type| Type::new(type_.dtype.accumulated(), type_.shape.clone());
    let fits = |(type_, result): (&Type, &Type)| result == type_ || *result == wider(type_);
    parts && types.len() == results.len() && types.iter().zip(results).all(fits)
}

fn copy_fault(program: &Program, copy: &Copied) -> Option<String> {
    let (from, to) = (&program.buffer(copy.from).type_, &program.buffer(copy.to).type_);
    if from.dtype != to.dtype {
        return Some(format!("a copy from {from} to {to}"));
    }
    let (strided, packed) = match copy.direction {
        Direction::Take => ((copy.from, from), (copy.to, to)),
        Direction::Put => ((copy.to, to), (copy.from, from)),
    };
    if copy.strided.last_read().is_some_and(|last| last >= strided.1.elements()) {
        let what = if copy.direction == Direction::Take { "read" } else { "written" };
        return Some(format!("b{} of {} is {what} beyond its end", strided.0.0, strided.1));
    }
    let what = if copy.direction == Direction::Take { "set" } else { "taken" };
    (!copy.strided.covers(packed.1.elements()))
        .then(|| format!("b{} of {} is not {what} once", packed.0.0, packed.1))
}

fn message_fault(program: &Program, message: &Message) -> Option<String> {
    let (input, output) = (&program.buffer(message.input).type_, &program.buffer(message.output).type_);
    let same = input.dtype == output.dtype && input.elements() == output.elements();
    (!same).then(|| format!("{input} is given and {output} gotten"))
}

fn collective_fault(program: &Program, collective: &Collective) -> Option<String> {
    let ranks = u64::try_from(program.members(collective.communicator).len()).unwrap_or(u64::MAX);
    let (input, output) = (&program.buffer(collective.input).type_, &program.buffer(collective.output).type_);
    if input.dtype != output.dtype {
        return Some(format!("elements {} are given and {} gotten", input.dtype, output.dtype));
    }
    if let Some(root) = collective.kind.root()
        && root >= program.members(collective.communicator).len()
    {
        return Some(format!("c{} has no member {root}", collective.communicator.0));
    }
    if let Some(fault) = rows_fault(program, collective, ranks) {
        return Some(fault);
    }
    let (given, gotten) = (collective.given(ranks), collective.gotten(ranks));
    if input.elements() != given {
        return Some(format!("b{} of {input} is given, expected {given} elements", collective.input.0));
    }
    (output.elements() != gotten)
        .then(|| format!("b{} of {output} is gotten, expected {gotten} elements", collective.output.0))
}

/// What is wrong with the rows that a collective names: only those of which not all rows go name some.
fn rows_fault(program: &Program, collective: &Collective, ranks: u64) -> Option<String> {
    let named = matches!(collective.kind, CollectiveKind::Dispatch | CollectiveKind::Combine);
    let name = collective.kind.name();
    let rows = match collective.rows {
        None if named => return Some(format!("a {name} of no rows")),
        None => return None,
        Some(_) if !named => return Some(format!("rows of a {name}, expected a dispatch or a combine")),
        Some(rows) => rows,
    };
    let RoutedRows { count, parts, by, .. } = rows.routed;
    if !collective.elements.is_multiple_of(count.max(1)) || !parts.is_multiple_of(ranks.max(1)) {
        return Some(format!("{} elements in {count} rows, {parts} parts", collective.elements));
    }
    if by == 0 || by > 1 && by >= ranks || !ranks.is_multiple_of(by) {
        return Some(format!("one of {by} ranks passes rows on, expected a part of {ranks} below it"));
    }
    let expected = count * parts;
    let gates = [rows.own, rows.others].map(|it| &program.buffer(it).type_);
    let wrong = gates.into_iter().find(|it| it.elements() != expected || !it.dtype.is_float());
    wrong.map(|it| format!("gates are {it}, expected {expected} elements that may be 0"))
}
