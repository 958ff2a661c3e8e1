//! Random programs, done task by task as they are issued, against one instruction after another.
//!
//! Values lie in any places that are free while they are needed, so that each comes over others that are
//! not; some are copied by another stream, with the events that its order needs and no more.

use std::collections::BTreeMap;

use kernels::Array;
use lower::{
    Action, BufferId, Copied, Direction, Event, Instruction, Kind, Origin, Program, Region, Stream, Stride,
    Strided,
};
use planner_ir::{Binary, DType, NodeId, Op, Phase, Real, Reduction, StateKind, Unary};

use super::script::Script;
use crate::places::meet;
use crate::task::Task;
use crate::tasks::tasks;

const ROWS: [u64; 2] = [4, 16];
const EPSILON: Real = Real(0.1);

/// Numbers by chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A program being made: values of rows that may be read, by type.
struct Sketch {
    script: Script,
    chance: Chance,
    rows: Vec<BufferId>,
    factors: BufferId,
    sum: BufferId,
}

impl Sketch {
    fn new(seed: u64) -> Self {
        let mut script = Script::new();
        let rows = [0, 1, 2].map(|it| script.value(Kind::Input, DType::F32, &ROWS, it * 256));
        let factors = script.value(Kind::Input, DType::F32, &[16], 768);
        let sum = script.value(Kind::State(StateKind::Gradient), DType::F32, &[1, 16], 832);
        Self { script, chance: Chance(seed), rows: rows.to_vec(), factors, sum }
    }

    /// A value of rows.
    fn any(&mut self) -> BufferId {
        // What has been made last is read more often.
        let recent = self.rows.len().saturating_sub(4);
        let from = if self.chance.below(3) > 0 { recent } else { 0 };
        let all = self.rows[from..].to_vec();
        self.chance.one_of(&all)
    }

    /// A value that is to be made, which is returned now and then.
    fn value(&mut self, dtype: DType, shape: &[u64]) -> BufferId {
        let kind = if self.chance.below(6) == 0 { Kind::Output } else { Kind::Activation };
        self.script.value(kind, dtype, shape, 0)
    }

    fn make(&mut self, op: Op, operands: &[BufferId], dtype: DType, shape: &[u64]) -> BufferId {
        let made = self.value(dtype, shape);
        self.script.op(op, operands, made);
        made
    }

    fn row(&mut self, op: Op, operands: &[BufferId]) {
        let made = self.make(op, operands, DType::F32, &ROWS);
        self.rows.push(made);
    }

    fn operation(&mut self) {
        let (a, b) = (self.any(), self.any());
        match self.chance.below(12) {
            0..2 => self.row(Op::Binary(Binary::Add), &[a, b]),
            2..4 => self.row(Op::Binary(Binary::Mul), &[a, b]),
            4 => self.row(Op::Unary(Unary::Silu), &[a]),
            5 => self.row(Op::RmsNorm { dims: 1, epsilon: EPSILON }, &[a, self.factors]),
            6 | 7 => self.row(Op::LayerNormGradient { dims: 1, epsilon: EPSILON }, &[a, self.factors, b]),
            8 => {
                let sum = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
                let made = self.make(sum, &[a], DType::F32, &[1, 16]);
                self.script.op(Op::Binary(Binary::Add), &[self.sum, made], self.sum);
            }
            9 => {
                let narrow = self.make(Op::Cast(DType::BF16), &[a], DType::BF16, &ROWS);
                self.row(Op::Cast(DType::F32), &[narrow]);
            }
            10 => self.row(Op::Transpose { permutation: vec![0, 1] }, &[a]),
            _ => {
                let to = self.value(DType::F32, &ROWS);
                let stream = self.chance.one_of(&[Stream::Compute, Stream::Communication, Stream::Beside]);
                self.copy(stream, a, to);
                self.rows.push(to);
            }
        }
    }

    fn copy(&mut self, stream: Stream, from: BufferId, to: BufferId) {
        let strided = Strided { start: 0, loops: vec![Stride { count: 64, from: 1, to: 1 }] };
        self.script.0.instructions.push(Instruction {
            stream,
            waits: vec![],
            signals: None,
            action: Action::Copy(Copied { from, to, strided, direction: Direction::Take }),
            origin: Origin::Node(NodeId(0)),
            phase: Phase::Forward,
        });
    }

    /// A loss of converted scores, and its gradient, with other operations between.
    fn loss(&mut self) {
        let labels = self.script.value(Kind::Input, DType::I64, &[4], 896);
        let back = self.script.value(Kind::Input, DType::F32, &[4], 960);
        let from = self.any();
        let scores = self.make(Op::Cast(DType::BF16), &[from], DType::BF16, &ROWS);
        let others = |sketch: &mut Self| (0..sketch.chance.below(3)).for_each(|_| sketch.operation());
        others(self);
        let wide = self.make(Op::Cast(DType::F32), &[scores], DType::F32, &ROWS);
        others(self);
        let losses = self.make(Op::CrossEntropy { ignored: -1 }, &[wide, labels], DType::F32, &[4]);
        others(self);
        let sum = Op::Reduce { reduction: Reduction::Sum, dims: vec![0] };
        let total = self.script.value(Kind::Output, DType::F32, &[1], 0);
        self.script.op(sum, &[losses], total);
        others(self);
        let towards =
            self.make(Op::CrossEntropyGradient { ignored: -1 }, &[wide, labels, back], DType::F32, &ROWS);
        others(self);
        let narrow = self.make(Op::Cast(DType::BF16), &[towards], DType::BF16, &ROWS);
        others(self);
        self.row(Op::Cast(DType::F32), &[narrow]);
    }

    /// The program, every value in its place.
    fn program(mut self) -> Program {
        let before = self.chance.below(8);
        (0..before).for_each(|_| self.operation());
        if self.chance.below(2) == 0 {
            self.loss();
        }
        (0..12).for_each(|_| self.operation());
        // Something is left.
        let (a, b) = (self.any(), self.any());
        let last = self.script.value(Kind::Output, DType::F32, &ROWS, 0);
        self.script.op(Op::Binary(Binary::Add), &[a, b], last);
        let mut program = self.script.0;
        place(&mut program, &mut self.chance);
        order(&mut program);
        program
    }
}

/// Puts what a step makes anywhere where nothing is needed meanwhile.
fn place(program: &mut Program, chance: &mut Chance) {
    let end = program.instructions.len();
    let mut lives: BTreeMap<BufferId, (usize, usize)> = BTreeMap::new();
    for (number, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.writes().into_iter().chain(instruction.action.reads()) {
            let kind = program.storage(buffer).kind;
            let last = if kind == Kind::Output { end } else { number };
            lives.entry(buffer).or_insert((number, last)).1 = last;
        }
    }
    let made: Vec<BufferId> =
        lives.keys().copied().filter(|&it| program.storage(it).kind.region() == Region::Step).collect();
    let mut placed: Vec<BufferId> = vec![];
    for buffer in made {
        let (first, last) = lives[&buffer];
        // What is computed element by element comes where an operand was that is needed no more.
        let over: Vec<u64> = match &program.instructions[first].action {
            Action::Compute(compute) if program.is_elementwise(compute) => {
                let reads = compute.operands.iter().map(|it| it.buffer);
                let ends = reads.filter(|it| placed.contains(it) && lives[it].1 == first);
                ends.map(|it| program.storage(it).offset).collect()
            }
            _ => vec![],
        };
        let in_place = !over.is_empty() && chance.below(2) == 0;
        let places: Vec<u64> = if in_place { over } else { (0..40).map(|it| it * 64).collect() };
        let free = |&offset: &u64, program: &Program| {
            let mut moved = program.clone();
            moved.storages[program.buffer(buffer).storage.0].offset = offset;
            placed.iter().all(|&other| {
                let (begins, ends) = lives[&other];
                let apart = ends < first || last < begins || (in_place && ends == first);
                apart || !meet(&moved, buffer, other)
            })
        };
        let free: Vec<u64> = places.into_iter().filter(|it| free(it, program)).collect();
        let offset = if free.is_empty() {
            4096 + 256 * u64::try_from(placed.len()).unwrap()
        } else {
            // Places at the beginning are used most.
            chance.one_of(&free[..free.len().min(6)])
        };
        let storage = program.buffer(buffer).storage.0;
        program.storages[storage].offset = offset;
        placed.push(buffer);
    }
}

/// Gives instructions the events that they need: what is known to be over is not waited for.
fn order(program: &mut Program) {
    let count = program.instructions.len();
    // For each instruction, what is over on each of the two streams when it is done.
    let mut over: Vec<[usize; 2]> = vec![];
    let mut known = [[0; 2]; 2];
    let side = |it: &Instruction| usize::from(it.stream != Stream::Compute);
    for number in 0..count {
        let own = side(&program.instructions[number]);
        let action = &program.instructions[number].action;
        let meets = |ours: &[BufferId], theirs: &[BufferId]| {
            ours.iter().any(|&it| theirs.iter().any(|&other| meet(program, it, other)))
        };
        let needed = (0..number).rev().find(|&other| {
            let theirs = &program.instructions[other].action;
            side(&program.instructions[other]) != own
                && (meets(&action.reads(), &theirs.writes())
                    || meets(&action.writes(), &theirs.writes())
                    || meets(&action.writes(), &theirs.reads()))
        });
        if let Some(other) = needed.filter(|&it| it >= known[own][1 - own]) {
            program.instructions[other].signals = Some(Event(other));
            program.instructions[number].waits.push(Event(other));
            for side in 0..2 {
                known[own][side] = known[own][side].max(over[other][side]);
            }
        }
        known[own][own] = number + 1;
        over.push(known[own]);
    }
}

/// The two memories.
#[derive(Clone, PartialEq)]
struct Memory(BTreeMap<Region, Vec<u8>>);

impl Memory {
    fn new() -> Self {
        let bytes = |seed: u32| {
            let number = |it: u32| {
                let number = it.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 20;
                (f32::from(u16::try_from(number).unwrap()) / 1024.0 - 2.0).to_le_bytes()
            };
            (0..4096).flat_map(number).collect::<Vec<u8>>()
        };
        let mut memory = Self([(Region::Resident, bytes(1)), (Region::Step, bytes(7))].into());
        // Labels.
        let labels = [3_i64, -1, 15, 0].into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>();
        memory.0.get_mut(&Region::Resident).unwrap()[896..928].copy_from_slice(&labels);
        memory
    }

    fn range(program: &Program, buffer: BufferId) -> (Region, std::ops::Range<usize>) {
        let storage = program.storage(buffer);
        let start = usize::try_from(storage.offset).unwrap();
        let bytes = usize::try_from(program.buffer(buffer).type_.bytes()).unwrap();
        (storage.kind.region(), start..start + bytes)
    }

    fn read(&self, program: &Program, buffer: BufferId) -> Array {
        let (region, range) = Self::range(program, buffer);
        Array::from_bytes(program.buffer(buffer).type_.clone(), &self.0[&region][range]).unwrap()
    }

    /// Writes one of so many equal parts of a value.
    fn write(&mut self, program: &Program, buffer: BufferId, made: &Array, (part, parts): (usize, usize)) {
        let (region, range) = Self::range(program, buffer);
        let size = range.len() / parts;
        let (from, to) = (part * size..(part + 1) * size, range.start + part * size);
        self.0.get_mut(&region).unwrap()[to..to + size].copy_from_slice(&made.bytes()[from]);
    }
}

/// What some instructions make together of what lies in memory: what they hand on is not there.
fn computed(program: &Program, numbers: &[usize], memory: &Memory) -> BTreeMap<BufferId, Array> {
    let mut made: BTreeMap<BufferId, Array> = BTreeMap::new();
    for &number in numbers {
        let read =
            |buffer: BufferId| made.get(&buffer).cloned().unwrap_or_else(|| memory.read(program, buffer));
        let (result, array) = match &program.instructions[number].action {
            Action::Compute(compute) => {
                let operands: Vec<Array> = compute.operands.iter().map(|it| read(it.buffer)).collect();
                let result = compute.results[0].buffer;
                let mut array = Array::zeros(program.buffer(result).type_.clone()).unwrap();
                let operands: Vec<_> = operands.iter().map(Array::tensor).collect();
                kernels::compute(&compute.op, &operands, &mut [array.tensor_mut()]).unwrap();
                (result, array)
            }
            Action::Copy(copied) => (copied.to, read(copied.from)),
            _ => unreachable!("there are no others"),
        };
        made.insert(result, array);
    }
    made
}

/// A task as a kernel does it: rows in any order, each of what lies in memory then. What is no row comes
/// last.
fn issue(program: &Program, task: &Task, memory: &mut Memory, chance: &mut Chance) {
    let types = |it: BufferId| program.buffer(it).type_.clone();
    let is_rows = |it: &&BufferId| types(**it).shape == ROWS;
    let by_rows = task.results.iter().any(|it| is_rows(&it)) && task.instructions.iter().all(|&it| {
        // Others read elements of other rows, and write where nothing that they read lies.
        !matches!(&program.instructions[it].action, Action::Compute(it) if matches!(*it.op, Op::Transpose { .. }))
    });
    let all = computed(program, &task.instructions, memory);
    let parts = if by_rows { 4 } else { 1 };
    let first = chance.below(parts);
    for part in (0..parts).map(|it| (it + first) % parts) {
        let made = computed(program, &task.instructions, memory);
        for buffer in task.results.iter().filter(is_rows) {
            memory.write(program, *buffer, &made[buffer], (part, parts));
        }
    }
    for buffer in task.results.iter().filter(|it| !is_rows(it)) {
        memory.write(program, *buffer, &all[buffer], (0, 1));
    }
}

/// Does all tasks, each stream in its order.
fn run(program: &Program, tasks: &[Task], mut memory: Memory, chance: &mut Chance) -> Memory {
    let on = |compute: bool| -> Vec<usize> {
        let all = program.instructions.iter().enumerate();
        all.filter(|(_, it)| (it.stream == Stream::Compute) == compute).map(|(number, _)| number).collect()
    };
    let mut left = [on(true), on(false)];
    let mut signalled: Vec<Event> = vec![];
    while left.iter().any(|it| !it.is_empty()) {
        let side = chance.below(2);
        let Some(&next) = left[side].first() else { continue };
        if program.instructions[next].waits.iter().any(|it| !signalled.contains(it)) {
            continue;
        }
        left[side].remove(0);
        tasks.iter().filter(|it| it.at == next).for_each(|it| issue(program, it, &mut memory, chance));
        signalled.extend(program.instructions[next].signals);
    }
    memory
}

#[test]
fn tasks_make_what_instructions_one_by_one_make() {
    let (mut moved, mut put_off, mut converted) = (0, 0, 0);
    for seed in 0..300 {
        let program = Sketch::new(seed).program();
        let tasks = tasks(&program);
        for task in &tasks {
            let [first, .., last] = task.instructions[..] else { continue };
            moved += usize::from(last - first >= task.instructions.len());
            put_off += usize::from(task.at != first);
            converted += usize::from(task.what.starts_with("Cast, CrossEntropy"));
        }
        let mut expected = Memory::new();
        for number in 0..program.instructions.len() {
            for (buffer, array) in computed(&program, &[number], &expected) {
                expected.write(&program, buffer, &array, (0, 1));
            }
        }
        let kept = (0..program.buffers.len()).map(BufferId);
        let kept: Vec<BufferId> = kept
            .filter(|&it| matches!(program.storage(it).kind, Kind::Output | Kind::State(_)))
            .filter(|&it| program.instructions.iter().any(|made| made.action.writes().contains(&it)))
            .collect();
        let mut chance = Chance(seed);
        for _ in 0..3 {
            let found = run(&program, &tasks, Memory::new(), &mut chance);
            for &buffer in &kept {
                let (found, expected) = (found.read(&program, buffer), expected.read(&program, buffer));
                let tasks: Vec<_> = tasks.iter().map(|it| (it.at, &it.instructions)).collect();
                assert!(found == expected, "seed {seed}: b{} of\n{program}{tasks:?}", buffer.0);
            }
        }
    }
    assert!(moved > 50 && put_off > 10 && converted > 25, "{moved} moved, {put_off} put off, {converted}");
}
