//! What states become, made where the states are.
//!
//! A copy into a state's place at the end is left out where the value can be made in that place
//! at once: nothing reads the state later, and what reads it while the value is made takes it
//! element by element. Sums of several addends, each made from the one before, move along. After
//! the micro-batches a sum's place is of no more use once the sum over devices that was owed is
//! being made: that goes into the same place.

use std::collections::BTreeSet;

use crate::action::{Action, Collective, CollectiveKind, Compute, Copied, Origin};
use crate::program::{Instruction, Port, Program};
use crate::storage::{Buffer, BufferId, Kind, Region, StorageId};

/// The program with as few copies and buffers for states as possible.
pub(crate) fn reduced(program: Program) -> Program {
    if program.states.is_empty() {
        return program;
    }
    let mut places = Places::of(program);
    let mut left_out = BTreeSet::new();
    for index in 0..places.program.instructions.len() {
        let Some((from, to)) = places.carried(index) else { continue };
        if places.join(from, to, index) {
            left_out.insert(index);
        }
    }
    for index in places.program.repetition().end..places.program.instructions.len() {
        places.pay(index);
    }
    without(places.program, &left_out)
}

/// A program, and who uses its storages.
struct Places {
    program: Program,
    /// For each storage its buffers.
    buffers: Vec<Vec<BufferId>>,
    /// For each buffer the instructions that read it, in order.
    reads: Vec<Vec<usize>>,
    /// For each buffer the instructions that write it, in order.
    writes: Vec<Vec<usize>>,
    /// The storages over which others lie.
    under: BTreeSet<StorageId>,
}

impl Places {
    fn of(program: Program) -> Self {
        let mut buffers = vec![Vec::new(); program.storages.len()];
        for (index, Buffer { storage, .. }) in program.buffers.iter().enumerate() {
            buffers[storage.0].push(BufferId(index));
        }
        let mut reads = vec![Vec::new(); program.buffers.len()];
        let mut writes = vec![Vec::new(); program.buffers.len()];
        for (index, Instruction { action, .. }) in program.instructions.iter().enumerate() {
            action.reads().into_iter().for_each(|it| reads[it.0].push(index));
            action.writes().into_iter().for_each(|it| writes[it.0].push(index));
        }
        let under = program.storages.iter().filter_map(|it| it.over).collect();
        Self { program, buffers, reads, writes, under }
    }

    /// From where to which state an instruction copies, if that is what it does.
    fn carried(&self, index: usize) -> Option<(BufferId, StorageId)> {
        let Instruction { action: Action::Copy(Copied { from, to, .. }), origin: Origin::State(_), .. } =
            &self.program.instructions[index]
        else {
            return None;
        };
        let storage = self.program.buffer(*to).storage;
        self.program.storages[storage.0].kind.state().map(|_| (*from, storage))
    }

    /// The instruction that makes a buffer that is alone in its storage, and neither returned nor at
    /// rest, nor lies over another or under one.
    fn maker(&self, buffer: BufferId) -> Option<usize> {
        let storage = self.program.buffer(buffer).storage;
        let own = &self.program.storages[storage.0];
        let free = own.kind == Kind::Activation && own.over.is_none() && !self.under.contains(&storage);
        let [write] = self.writes[buffer.0][..] else { return None };
        (free && self.buffers[storage.0] == [buffer]).then_some(write)
    }

    /// The last instruction up to some that reads what is in a storage.
    fn last_read(&self, storage: StorageId, end: usize) -> Option<usize> {
        let reads = self.buffers[storage.0].iter().flat_map(|it| &self.reads[it.0]);
        reads.copied().filter(|&it| it < end).max()
    }

    /// What an instruction may write a buffer over: buffers that it reads.
    fn written_over(&self, (index, made): (usize, BufferId)) -> Vec<BufferId> {
        let Some((compute, result)) = self.computed((index, made)) else { return vec![] };
        let over = |it: &usize| self.program.may_lie_over(compute, *it, result);
        (0..compute.operands.len()).filter(over).map(|it| compute.operands[it].buffer).collect()
    }

    /// Whether an instruction may write a buffer to a storage that it reads.
    fn writes_where_it_reads(&self, (index, made): (usize, BufferId), storage: StorageId) -> bool {
        let Some((compute, result)) = self.computed((index, made)) else { return false };
        let lies = |it: &usize| self.program.buffer(compute.operands[*it].buffer).storage == storage;
        (0..compute.operands.len()).filter(lies).all(|it| self.program.may_lie_over(compute, it, result))
    }

    /// The operation that makes a buffer, and which of its results that is.
    fn computed(&self, (index, made): (usize, BufferId)) -> Option<(&Compute, usize)> {
        let Action::Compute(compute) = &self.program.instructions[index].action else { return None };
        Some((compute, compute.results.iter().position(|it| it.buffer == made)?))
    }

    /// Whether an instruction may write a buffer to a storage that is read by none after it up to some.
    fn may_write(&self, (index, made): (usize, BufferId), storage: StorageId, end: usize) -> bool {
        self.last_read(storage, end).is_none_or(|last| {
            last < index || (last == index && self.writes_where_it_reads((index, made), storage))
        })
    }

    /// Makes a state's next value in its place, if that can be: the value that the copy of that
    /// number copies.
    fn join(&mut self, from: BufferId, state: StorageId, copy: usize) -> bool {
        let repetition = self.program.repetition();
        // What reads a sum after the micro-batches reads what it has become.
        let summed = self.program.storages[state.0].kind.is_summed();
        let end = if summed { repetition.end } else { self.program.instructions.len() };
        let Some(mut write) = self.maker(from) else { return false };
        let type_ = self.program.buffer(from).type_.clone();
        let same_type = |places: &Self, it: BufferId| places.program.buffer(it).type_ == type_;
        let at_rest = self.buffers[state.0].first().copied();
        let in_part = repetition.contains(&write) == repetition.contains(&copy);
        let fits = at_rest.is_some_and(|it| same_type(self, it));
        if !in_part || !fits || !self.may_write((write, from), state, end) {
            return false;
        }
        let mut made = from;
        let mut joined = vec![from];
        // Addends before the last: made from one another, each read for the last time there.
        loop {
            let before = self.written_over((write, made)).into_iter().find(|&operand| {
                let earlier = self.maker(operand).filter(|&earlier| {
                    repetition.contains(&earlier) == repetition.contains(&write)
                        && self.may_write((earlier, operand), state, end)
                });
                earlier.is_some()
                    && !joined.contains(&operand)
                    && same_type(self, operand)
                    && self.reads[operand.0].iter().all(|&it| it <= write)
                    && self.writes_where_it_reads((write, made), self.program.buffer(operand).storage)
            });
            let Some((operand, earlier)) = before.and_then(|it| Some((it, self.maker(it)?))) else { break };
            joined.push(operand);
            (write, made) = (earlier, operand);
        }
        for buffer in joined {
            self.put(buffer, state);
        }
        true
    }

    /// Makes a sum over devices in the place of the addend, if that is a sum over micro-batches
    /// that nothing reads later.
    fn pay(&mut self, index: usize) {
        let Action::Collective(Collective { kind, input, output, .. }) =
            self.program.instructions[index].action
        else {
            return;
        };
        if !matches!(kind, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter) {
            return;
        }
        let storage = |buffer: BufferId| self.program.buffer(buffer).storage;
        let packed =
            self.writes[input.0].iter().find_map(|&it| match &self.program.instructions[it].action {
                Action::Copy(copy) => Some(storage(copy.from)),
                _ => None,
            });
        let is_summed = |it: &StorageId| self.program.storages[it.0].kind.is_summed();
        let Some(state) = Some(storage(input)).into_iter().chain(packed).find(is_summed) else { return };
        let fits = self.program.buffer(output).type_.bytes() <= self.program.storages[state.0].bytes;
        let end = self.program.instructions.len();
        if self.maker(output) == Some(index)
            && fits
            && self.last_read(state, end).is_none_or(|it| it <= index)
        {
            self.put(output, state);
        }
    }

    /// Puts a buffer into another storage.
    fn put(&mut self, buffer: BufferId, storage: StorageId) {
        let before = std::mem::replace(&mut self.program.buffers[buffer.0].storage, storage);
        self.buffers[before.0].clear();
        self.buffers[storage.0].push(buffer);
    }
}

/// The program without some instructions and without storages in which nothing lies.
fn without(mut program: Program, left_out: &BTreeSet<usize>) -> Program {
    let before = |index: usize| index - left_out.range(..index).count();
    if let Some(repeated) = &mut program.repeated {
        let parts = repeated.parts.iter_mut().map(|part| &mut part.instructions);
        for range in parts.chain([&mut repeated.instructions]) {
            *range = before(range.start)..before(range.end);
        }
    }
    let mut index = 0;
    program.instructions.retain(|_| {
        index += 1;
        !left_out.contains(&(index - 1))
    });
    let used: BTreeSet<StorageId> = program.buffers.iter().map(|buffer| buffer.storage).collect();
    let mut numbers = vec![0; program.storages.len()];
    for (number, storage) in used.iter().enumerate() {
        numbers[storage.0] = number;
    }
    for buffer in &mut program.buffers {
        buffer.storage = StorageId(numbers[buffer.storage.0]);
    }
    for storage in &mut program.storages {
        storage.over = storage.over.map(|over| StorageId(numbers[over.0]));
    }
    let mut storage = 0;
    program.storages.retain(|_| {
        storage += 1;
        used.contains(&StorageId(storage - 1))
    });
    let lasts = |buffer: &BufferId| program.storage(*buffer).kind.lasts();
    let first = program.instructions.iter().position(|it| it.action.writes().iter().any(lasts));
    program.guard = first.filter(|&first| {
        let storage = |buffer: &BufferId| program.buffer(*buffer).storage;
        let writes = program.instructions[..first].iter().flat_map(|it| it.action.writes());
        let written: BTreeSet<StorageId> = writes.map(|it| storage(&it)).collect();
        let at_rest = |buffer: BufferId| program.storage(buffer).kind.region() == Region::Resident;
        let made = |port: &Port| at_rest(port.buffer) || written.contains(&storage(&port.buffer));
        program.outputs.iter().filter(|port| port.is_checked()).all(made)
    });
    program
}
