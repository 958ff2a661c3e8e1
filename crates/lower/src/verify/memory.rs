//! Who uses which bytes when: written-once, read-after-write, reuse, place.

use std::ops::Range;

use super::happens::Happens;
use super::parts::{Written, touched, written};
use super::{Report, Violation};
use crate::action::{Action, Block, Compute};
use crate::arena::ALIGNMENT;
use crate::program::{BufferId, Kind, Program, Region, StorageId};

/// How a step uses a storage.
#[derive(Clone, Default)]
struct Usage {
    /// Several if it is put together, each once; ascending.
    writers: Vec<(usize, BufferId, Written)>,
    readers: Vec<usize>,
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
    check_reuse(program, &usage, &happens, &mut report);
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
            if kind.state().is_some() {
                continue;
            }
            if kind.region() == Region::Resident {
                report.at(index, "written-once", format!("b{} is at rest and written", buffer.0));
            } else {
                let written = written(program, &instruction.action, buffer);
                usage[storage.0].writers.push((index, buffer, written));
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
            if let Some(writer) = usage.writes().find(|&writer| !happens.before(writer, index)) {
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

/// What is written must be written at once, or part by part and each part once.
fn check_parts(writers: &[(usize, BufferId, Written)], report: &mut Report) {
    let mut parts: Vec<(u64, usize)> = Vec::new();
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
                if let Some(&(_, other)) = parts.iter().find(|it| it.0 == *number) {
                    report.at(*index, "written-once", before("as by", other));
                } else if written.shape() != of.shape() {
                    report.at(*index, "written-once", before("in other parts than by", *model));
                }
                parts.push((*number, *index));
            }
        }
    }
    let (Written::Part { count, .. }, Some(&(index, buffer, _))) = (of, writers.last()) else { return };
    if parts.len() < usize::try_from(*count).unwrap_or(usize::MAX) {
        let message = format!("of {count} parts of b{} {} are written", buffer.0, parts.len());
        report.at(index, "written-once", message);
    }
}

/// Of two storages with common bytes, one has to be out of use when the other is written.
fn check_reuse(program: &Program, usage: &[Usage], happens: &Happens, report: &mut Report) {
    let mut sorted: Vec<usize> = (0..program.storages.len())
        .filter(|&it| program.storages[it].bytes > 0)
        .filter(|&it| program.storages[it].kind.region() == Region::Resident || !usage[it].writers.is_empty())
        .collect();
    let place = |it: usize| (program.storages[it].kind.region(), program.storages[it].offset);
    sorted.sort_by_key(|&it| place(it));
    let returned: Vec<usize> =
        program.outputs.iter().map(|port| program.buffer(port.buffer).storage.0).collect();
    // Or what is written of the second is out of use: it comes over the first part by part, or where the
    // instruction has read it.
    let replaces = |first: usize, second: usize, it: usize, write: usize| {
        let action = |it: usize| &program.instructions[it].action;
        let bytes = |it: usize, storage: usize| {
            let Range { start, end } = touched(program, action(it), StorageId(storage));
            let offset = program.storages[storage].offset;
            start.saturating_add(offset)..end.saturating_add(offset)
        };
        let (used, written) = (bytes(it, first), bytes(write, second));
        let apart = used.end <= written.start || written.end <= used.start;
        let at_once = it == write && place(first) == place(second);
        apart || (at_once && matches!(action(it), Action::Compute(it) if is_over(program, it, first, second)))
    };
    let ends_before = |first: usize, second: usize| {
        let mut uses = usage[first].writes().chain(usage[first].readers.iter().copied());
        !returned.contains(&first)
            && uses.all(|it| {
                let over = |write| happens.before(it, write) || replaces(first, second, it, write);
                usage[second].writes().all(over)
            })
    };
    for (index, &first) in sorted.iter().enumerate() {
        let (region, start) = place(first);
        let end = start.saturating_add(program.extent(StorageId(first)));
        let meets = |it: &&usize| place(**it).0 == region && place(**it).1 < end;
        for &second in sorted[index + 1..].iter().take_while(meets) {
            if region == Region::Resident {
                report.whole("place", format!("storages {first} and {second} at rest share bytes"));
            } else if !ends_before(first, second) && !ends_before(second, first) {
                let (first, second) = if usage[first].first() <= usage[second].first() {
                    (first, second)
                } else {
                    (second, first)
                };
                let message = format!(
                    "b{} is written over b{}, which may be in use",
                    buffer_of(program, second),
                    buffer_of(program, first)
                );
                report.at(usage[second].first().unwrap_or_default(), "reuse", message);
            }
        }
    }
    for port in &program.outputs {
        if program.storage(port.buffer).kind == Kind::Communication {
            report.whole("port", format!("output `{}` lies in a communication buffer", port.name));
        }
    }
}

/// Whether an operation makes each element of what it writes in one storage from the one at the same
/// place of what it reads in another.
fn is_over(program: &Program, compute: &Compute, first: usize, second: usize) -> bool {
    let size = |block: &Block| program.buffer(block.buffer).type_.bytes();
    let elements = |block: &Block| program.buffer(block.buffer).type_.elements();
    let lies_in = |block: &&Block, storage| program.buffer(block.buffer).storage.0 == storage;
    let mut read = compute.operands.iter().filter(|it| lies_in(it, first));
    let Some(made) = compute.results.iter().find(|it| lies_in(it, second)) else { return false };
    let same = |it: &Block| size(it) == size(made) && elements(it) == elements(made);
    program.is_elementwise(compute) && read.all(same)
}

/// The first buffer in a storage.
fn buffer_of(program: &Program, storage: usize) -> usize {
    program.buffers.iter().position(|buffer| buffer.storage.0 == storage).unwrap_or_default()
}
