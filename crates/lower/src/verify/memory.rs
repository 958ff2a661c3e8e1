//! Who uses which bytes when: written-once, read-after-write, reuse, place.

mod reuse; // what is written over what

use std::collections::BTreeMap;

use super::parts::{Written, written};
use super::{Report, Violation};
use crate::action::Action;
use crate::happens::Happens;
use crate::program::Program;
use crate::storage::{ALIGNMENT, BufferId, Kind, Region, StorageId};
use crate::users::Known;

/// How a step uses a storage.
#[derive(Clone, Default)]
struct Usage {
    /// Several if it is put together, each once; ascending.
    writers: Vec<(usize, BufferId, Written)>,
    readers: Vec<usize>,
    /// For each stream, one more than the last instruction that writes it.
    written: Known,
}

impl Usage {
    fn writes(&self) -> impl Iterator<Item = usize> {
        self.writers.iter().map(|it| it.0)
    }

    fn first(&self) -> Option<usize> {
        self.writes().next()
    }
}

pub(super) fn check(program: &Program, found: &mut Vec<Violation>) {
    let mut report = Report { rank: program.rank, found };
    check_places(program, &mut report);
    let happens = Happens::of(program);
    let usage = check_uses(program, &happens, &mut report);
    reuse::check(program, &usage, &happens, &mut report);
    check_ports(program, &mut report);
}

fn check_places(program: &Program, report: &mut Report) {
    for (index, storage) in program.storages.iter().enumerate() {
        let size = match storage.kind.region() {
            Region::Resident => program.resident,
            Region::Step => program.arena,
        };
        if storage.offset.checked_add(program.extent(StorageId(index))).is_none_or(|end| end > size) {
            report.whole(
                "place",
                format!(
                    "storage {index} of {} bytes at {} is outside its memory of {size}",
                    storage.bytes, storage.offset
                ),
            );
        }
        if storage.offset % ALIGNMENT != 0 {
            report
                .whole("place", format!("storage {index} starts at {}, not at a cache line", storage.offset));
        }
    }
}

/// Who writes and reads each storage; checks that reads follow the one write.
fn check_uses(program: &Program, happens: &Happens, report: &mut Report) -> Vec<Usage> {
    let mut usage = vec![Usage::default(); program.storages.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.writes() {
            let storage = program.buffer(buffer).storage;
            let kind = program.storages[storage.0].kind;
            // In which order those are written is looked at with states.
            if kind.state().is_some() || (kind == Kind::Input && is_written_over(program, index, storage)) {
                continue;
            }
            if kind.region() == Region::Resident {
                report.at(index, "written-once", format!("b{} is at rest and written", buffer.0));
            } else {
                let written = written(program, &instruction.action, buffer);
                let usage = &mut usage[storage.0];
                usage.writers.push((index, buffer, written));
                usage.written[instruction.stream.number()] = index + 1;
            }
        }
    }
    for usage in &usage {
        check_parts(&usage.writers, report);
    }
    let at_step = |buffer| program.storage(buffer).kind.region() == Region::Step;
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.reads().into_iter().filter(|&it| at_step(it)) {
            let usage = &mut usage[program.buffer(buffer).storage.0];
            usage.readers.push(index);
            if usage.writers.is_empty() {
                report.at(index, "read-after-write", format!("b{} is read, never written", buffer.0));
            }
            let writer = || usage.writes().find(|&writer| !happens.before(writer, index));
            if !happens.over(index, &usage.written)
                && let Some(writer) = writer()
            {
                report.at(
                    index,
                    "read-after-write",
                    format!("b{} is read, perhaps before instruction {writer} has written it", buffer.0),
                );
            }
        }
    }
    for port in program.outputs.iter().filter(|port| at_step(port.buffer)) {
        if usage[program.buffer(port.buffer).storage.0].writers.is_empty() {
            report.whole("read-after-write", format!("output `{}` is never written", port.name));
        }
    }
    usage
}

/// Whether an instruction writes over some of an input of a step what takes its place.
fn is_written_over(program: &Program, index: usize, storage: StorageId) -> bool {
    let Action::Compute(compute) = &program.instructions[index].action else { return false };
    let lies_there = |buffer: BufferId| program.buffer(buffer).storage == storage;
    let given = program.inputs.iter().any(|port| lies_there(port.buffer));
    let over = compute.op.written().and_then(|it| compute.operands.get(it));
    given && over.is_some_and(|it| lies_there(it.buffer))
}

/// What is written must be written at once, or part by part and each part once.
fn check_parts(writers: &[(usize, BufferId, Written)], report: &mut Report) {
    let mut parts: BTreeMap<u64, usize> = BTreeMap::new();
    let mut count_written = 0;
    let Some((model, _, of)) = writers.iter().find(|it| it.2 != Written::Nothing) else {
        if let Some((index, buffer, _)) = writers.first() {
            report.at(*index, "written-once", format!("b{} is never written by this rank", buffer.0));
        }
        return;
    };
    for (index, buffer, written) in writers {
        let before = |message: &str, before: usize| {
            format!("b{} is written, {message} instruction {before} before", buffer.0)
        };
        match written {
            Written::Nothing => {}
            Written::Strange => {
                report.at(*index, "written-once", format!("b{} is set in parts that are none", buffer.0));
            }
            Written::Part { number, .. } => {
                if let Some(&other) = parts.get(number) {
                    report.at(*index, "written-once", before("as by", other));
                } else if written.shape() != of.shape() {
                    report.at(*index, "written-once", before("in other parts than by", *model));
                }
                parts.entry(*number).or_insert(*index);
                count_written += 1;
            }
        }
    }
    let (Written::Part { count, .. }, Some(&(index, buffer, _))) = (of, writers.last()) else { return };
    if count_written < usize::try_from(*count).unwrap_or(usize::MAX) {
        let message = format!("of {count} parts of b{} {count_written} are written", buffer.0);
        report.at(index, "written-once", message);
    }
}

fn check_ports(program: &Program, report: &mut Report) {
    for port in &program.outputs {
        if program.storage(port.buffer).kind == Kind::Communication {
            report.whole("port", format!("output `{}` lies in a communication buffer", port.name));
        }
    }
}
