//! What repetitions, states and inputs that are written over add: repetition, cleared, carried, state-order, guard.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Op, Real};

use super::{Report, Violation};
use crate::action::{Action, Block, CollectiveKind};
use crate::happens::Happens;
use crate::program::{Program, Repeated, Turn};
use crate::storage::{BufferId, Kind, Region, Storage, StorageId};

pub(super) fn check(program: &Program, found: &mut Vec<Violation>) {
    let mut report = Report { rank: program.rank, found };
    let repetition = program.repetition();
    let length = program.instructions.len();
    if repetition.start > repetition.end || repetition.end > length {
        let message = format!("instructions {repetition:?} are repeated, there are {length}");
        report.whole("repetition", message);
        return;
    }
    check_repetition(program, &mut report);
    check_guard(program, &mut report);
    let happens = Happens::of(program);
    let ports = program.states.iter().chain(&program.inputs);
    let own: BTreeSet<BufferId> = ports.map(|port| port.buffer).collect();
    for uses in Uses::of(program).values() {
        if uses.kind.state().is_some() {
            check_cleared(program, (uses, &own), &mut report);
        }
        check_order(program, (uses, &own), &happens, &mut report);
    }
}

fn check_repetition(program: &Program, report: &mut Report) {
    let Some(repeated) = &program.repeated else { return };
    if repeated.times == 0 {
        report.whole("repetition", "nothing is repeated, expected at least one micro-batch".to_owned());
    }
    check_turns(repeated, report);
    let storage = |buffer: &BufferId| program.buffer(*buffer).storage;
    let inputs: BTreeSet<StorageId> = repeated.inputs.iter().map(|port| storage(&port.buffer)).collect();
    let given = |buffer: &BufferId| inputs.contains(&storage(buffer));
    for (index, instruction) in program.instructions.iter().enumerate() {
        let outside = !repeated.instructions.contains(&index);
        for buffer in instruction.action.reads().iter().filter(|it| outside && given(it)) {
            let message = format!("b{} is read, which is given for each repetition", buffer.0);
            report.at(index, "repetition", message);
        }
    }
}

/// Parts are all that is repeated, each has one turn for each micro-batch, and those of a stage come in
/// their order.
fn check_turns(repeated: &Repeated, report: &mut Report) {
    let mut end = repeated.instructions.start;
    for part in &repeated.parts {
        if part.instructions.start != end || part.instructions.end < end {
            let found = &part.instructions;
            report.whole("repetition", format!("a part is instructions {found:?}, expected some from {end}"));
            return;
        }
        end = part.instructions.end;
    }
    if end != repeated.instructions.end {
        let message = format!("parts end at instruction {end}, expected {}", repeated.instructions.end);
        report.whole("repetition", message);
        return;
    }
    let mut done: BTreeSet<(usize, u64)> = BTreeSet::new();
    for (number, turn) in repeated.turns.iter().enumerate() {
        let Turn { part, micro_batch } = *turn;
        let what = format!("turn {number}, part {part} for micro-batch {micro_batch},");
        if part >= repeated.parts.len() || micro_batch >= repeated.times {
            report.whole("repetition", format!("{what} is of none that there is"));
        } else if !done.insert((part, micro_batch)) {
            report.whole("repetition", format!("{what} comes again"));
        } else if part > 0
            && repeated.parts[part - 1].stage == repeated.parts[part].stage
            && !done.contains(&(part - 1, micro_batch))
        {
            report.whole("repetition", format!("{what} comes before the part before it"));
        }
    }
    let expected = u64::try_from(repeated.parts.len()).unwrap_or(u64::MAX).saturating_mul(repeated.times);
    if u64::try_from(done.len()) != Ok(expected) {
        let found = done.len();
        report.whole(
            "repetition",
            format!("{found} turns are done, expected {expected}: each part once for each micro-batch"),
        );
    }
}

fn check_guard(program: &Program, report: &mut Report) {
    let Some(guard) = program.guard else { return };
    if guard < program.repetition().end || guard > program.instructions.len() {
        report
            .whole("guard", format!("it stands before instruction {guard}, expected one after repetitions"));
        return;
    }
    let mut written = BTreeSet::new();
    for (index, instruction) in program.instructions[..guard].iter().enumerate() {
        for buffer in instruction.action.writes() {
            if program.storage(buffer).kind.lasts() {
                report.at(index, "guard", format!("b{} is a state, written before the guard", buffer.0));
            }
            written.insert(program.buffer(buffer).storage);
        }
    }
    for port in program.outputs.iter().filter(|port| port.is_checked()) {
        let at_rest = program.storage(port.buffer).kind.region() == Region::Resident;
        if !at_rest && !written.contains(&program.buffer(port.buffer).storage) {
            report.whole("guard", format!("output `{}` is not written before the guard", port.name));
        }
    }
}

/// Who uses a state or an input, instructions in order, and which buffer.
struct Uses {
    storage: StorageId,
    kind: Kind,
    /// Of the writes, those before the repetitions.
    clears: Vec<(usize, BufferId)>,
    writes: Vec<(usize, BufferId)>,
    reads: Vec<(usize, BufferId)>,
}

impl Uses {
    /// Of all states and inputs.
    fn of(program: &Program) -> BTreeMap<StorageId, Self> {
        let changes = |kind: Kind| kind == Kind::Input || kind.state().is_some();
        let states = program.storages.iter().enumerate().filter(|(_, it)| changes(it.kind));
        let unused = |(index, it): (usize, &Storage)| {
            let (storage, kind) = (StorageId(index), it.kind);
            (storage, Self { storage, kind, clears: Vec::new(), writes: Vec::new(), reads: Vec::new() })
        };
        let mut all: BTreeMap<StorageId, Self> = states.map(unused).collect();
        let start = program.repetition().start;
        for (index, instruction) in program.instructions.iter().enumerate() {
            for buffer in instruction.action.writes() {
                let Some(uses) = all.get_mut(&program.buffer(buffer).storage) else { continue };
                let writes = if index < start { &mut uses.clears } else { &mut uses.writes };
                writes.push((index, buffer));
            }
            for buffer in instruction.action.reads() {
                if let Some(uses) = all.get_mut(&program.buffer(buffer).storage) {
                    uses.reads.push((index, buffer));
                }
            }
        }
        all
    }

    /// What it is called in messages.
    fn name(&self, program: &Program) -> String {
        let named = |port: &&crate::Port| program.buffer(port.buffer).storage == self.storage;
        let name = program.states.iter().chain(&program.inputs).find(named).map_or("?", |port| &port.name);
        format!("{} `{name}`", self.kind.name())
    }
}

fn check_cleared(program: &Program, (uses, states): (&Uses, &BTreeSet<BufferId>), report: &mut Report) {
    let zeros = |&(index, buffer): &(usize, BufferId)| match &program.instructions[index].action {
        Action::Compute(compute) => {
            let whole = program.buffer(buffer).type_.bytes() == program.storages[uses.storage.0].bytes;
            whole && matches!(&*compute.op, Op::Fill { value, .. } if *value == Real(0.0))
        }
        _ => false,
    };
    let summed = uses.kind.is_summed();
    let repetition = program.repetition();
    let added =
        uses.reads.iter().any(|(index, buffer)| repetition.contains(index) && states.contains(buffer));
    let once = summed && (added || program.repeated.as_ref().is_some_and(|it| it.times > 1));
    let right = if once { uses.clears.len() == 1 && zeros(&uses.clears[0]) } else { uses.clears.is_empty() };
    if !right {
        let expected = if once { "once" } else { "never" };
        let message = format!("{} is not set to zero {expected} before the repetitions", uses.name(program));
        report.whole("cleared", message);
    }
    let made = |&&(index, _): &&(usize, BufferId)| repetition.contains(&index) == summed;
    if !uses.writes.iter().any(|it| made(&it)) {
        let part = if summed { "in the repetitions" } else { "after the repetitions" };
        report.whole("carried", format!("{} is not written {part}", uses.name(program)));
    }
    if !summed {
        for (index, buffer) in uses.writes.iter().filter(|it| repetition.contains(&it.0)) {
            report.at(
                *index,
                "carried",
                format!("b{} is a state that lasts, written in a repetition", buffer.0),
            );
        }
    }
}

fn check_order(
    program: &Program,
    (uses, states): (&Uses, &BTreeSet<BufferId>),
    happens: &Happens,
    report: &mut Report,
) {
    let mut wrong = |index: usize, buffer: BufferId, how: &str| {
        report.at(index, "state-order", format!("b{} of {} {how}", buffer.0, uses.name(program)));
    };
    for (place, &(write, buffer)) in uses.writes.iter().enumerate() {
        let before = place.checked_sub(1).map(|it| uses.writes[it].0);
        if before.is_some_and(|before| !happens.before(before, write)) {
            wrong(write, buffer, "is perhaps written before what is written first");
        }
        if uses.writes[..place].iter().any(|it| it.1 == buffer) {
            wrong(write, buffer, "is written twice");
        }
    }
    let end = program.repetition().end;
    for &(read, buffer) in &uses.reads {
        // The writes that are to be over, and the next one, which is not to have started.
        let own = states.contains(&buffer);
        let made = uses.writes.iter().position(|it| it.1 == buffer && !own).map(|it| it + 1);
        let over = made.unwrap_or_else(|| {
            let settled = uses.kind.is_summed() && read >= end;
            if settled { uses.writes.iter().filter(|it| it.0 < end).count() } else { 0 }
        });
        if over > 0 && !happens.before(uses.writes[over - 1].0, read) {
            wrong(read, buffer, "is read, perhaps before it is written");
        }
        if let Some(&(next, _)) = uses.writes.get(over)
            && !happens.before(read, next)
            && !(read == next && may_write_what_it_reads(program, read, uses.storage))
        {
            wrong(read, buffer, "is read, perhaps after it is written over");
        }
    }
}

/// Whether an instruction may write a storage where it reads it.
fn may_write_what_it_reads(program: &Program, index: usize, storage: StorageId) -> bool {
    match &program.instructions[index].action {
        Action::Compute(compute) => {
            let lies = |it: &Block| program.buffer(it.buffer).storage == storage;
            let of = |all: &[Block]| (0..all.len()).filter(|&it| lies(&all[it])).collect::<Vec<_>>();
            let (read, made) = (of(&compute.operands), of(&compute.results));
            made.iter().all(|&made| read.iter().all(|&it| program.may_lie_over(compute, it, made)))
        }
        Action::Collective(collective) => {
            matches!(collective.kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter)
        }
        Action::Copy(_) | Action::Message(_) | Action::Send(_) | Action::Receive(_) => false,
    }
}
