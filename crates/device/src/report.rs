//! What ranks on a device report of a step: what they receive from others is what their programs say.

use lower::{Action, BufferId, Collective, CollectiveKind, Program, Way};
use run::Report;

/// What a rank reports of a step: what it receives is what its program says.
pub(crate) fn report(program: &Program, complete: bool) -> Report {
    let repeated = program.repetition();
    let times = program.repeated.as_ref().map_or(1, |it| it.times);
    let guard = program.guard.unwrap_or(program.instructions.len());
    let bytes = |(number, instruction): (usize, &lower::Instruction)| {
        let times = if repeated.contains(&number) { times } else { 1 };
        let times = if complete || number < guard { times } else { 0 };
        received(program, &instruction.action) * times
    };
    Report {
        seconds: vec![0.0; program.instructions.len()],
        received: program.instructions.iter().enumerate().map(bytes).collect(),
        complete,
    }
}

/// What a rank receives from others in an instruction (bytes).
fn received(program: &Program, action: &Action) -> u64 {
    let size = |buffer: BufferId| program.buffer(buffer).type_.dtype.bytes();
    match action {
        Action::Compute(_) | Action::Copy(_) | Action::Send(_) => 0,
        Action::Message(it) if it.from == program.rank => 0,
        Action::Message(it) => program.buffer(it.output).type_.bytes(),
        Action::Receive(it) => {
            let from = it.parts.iter().filter(|it| it.way == Way::From && it.rank != program.rank);
            from.map(|part| part.strided.elements()).sum::<u64>() * size(it.output)
        }
        Action::Collective(it) => it.each().map(|it| collected(program, &it) * size(it.output)).sum(),
    }
}

/// The elements that a rank receives from others in a collective.
fn collected(program: &Program, collective: &Collective) -> u64 {
    let members = program.members(collective.communicator);
    let count = u64::try_from(members.len()).unwrap_or(1).max(1);
    let own = members.iter().position(|&it| it == program.rank).unwrap_or(0);
    let (others, elements) = (count - 1, collective.elements);
    match collective.kind {
        // All rows go, those too that are not used.
        CollectiveKind::AllGather
        | CollectiveKind::AllToAll
        | CollectiveKind::ReduceScatter
        | CollectiveKind::Dispatch
        | CollectiveKind::Combine => others * elements,
        CollectiveKind::Broadcast(root) if root == own => 0,
        CollectiveKind::Broadcast(_) => elements,
        CollectiveKind::Reduce(root) if root == own => others * elements,
        CollectiveKind::Reduce(_) => 0,
        CollectiveKind::AllReduce => {
            let number = u64::try_from(own).unwrap_or(0);
            let block = elements / count + u64::from(number < elements % count);
            others * block + (elements - block)
        }
    }
}
