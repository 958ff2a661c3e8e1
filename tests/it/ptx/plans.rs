//! What plans of the corpus launch: each different launch of each kernel once, on random operands, against the
//! operations that it is made for.

use std::collections::{BTreeMap, BTreeSet};

use device::{Task, orders, tasks};
use kernels::cuda::Work;
use kernels::{Array, Tensor, TensorMut, compute, evaluate};
use lower::{Action, Block, BufferId, Compute, Copied, Direction, Program};
use planner_ir::{DType, Op, Type};
use rayon::prelude::*;

use super::emulation::{Value, by_kernels, compiler, named};
use super::random;
use super::trial::{Trial, faults};
use crate::corpus::expect_none;
use crate::cuda::ALL_PROGRAMS;

/// How far results may be from those of processors, as a part of the largest number, by the narrowest type that
/// a task computes in: numbers of 32 bits are summed in another order, and what is rounded to 16 bits may be
/// rounded to the other side, once for each operation of the task.
const APART: [(DType, f64); 3] = [(DType::BF16, 2e-2), (DType::F16, 5e-3), (DType::F32, 1e-4)];

/// Values as operations of a task make them.
struct Values<'a> {
    program: &'a Program,
    arrays: BTreeMap<BufferId, Array>,
    /// What was there before the first of them.
    given: BTreeMap<BufferId, Array>,
    seed: u64,
}

impl Values<'_> {
    fn type_(&self, buffer: BufferId) -> &Type {
        &self.program.buffer(buffer).type_
    }

    /// What an operation reads that nothing has made yet.
    fn add_operands(&mut self, op: &Op, blocks: &[Block]) {
        let program = self.program;
        let placed: Vec<random::Placed<'_>> =
            blocks.iter().map(|it| (&program.buffer(it.buffer).type_, &it.spans[..])).collect();
        for (number, block) in blocks.iter().enumerate() {
            self.add(block.buffer, |seed| random::operand(op, number, &placed, seed));
        }
    }

    /// A value that is there before, if nothing has made it.
    fn add(&mut self, buffer: BufferId, made: impl Fn(u64) -> Array) {
        self.seed += 1;
        if !self.arrays.contains_key(&buffer) {
            let array = made(self.seed);
            self.given.insert(buffer, array.clone());
            self.arrays.insert(buffer, array);
        }
    }

    fn compute(&mut self, it: &Compute) -> Result<(), String> {
        let operands: Vec<Tensor<'_>> = it
            .operands
            .iter()
            .map(|block| Tensor { spans: &block.spans, ..self.arrays[&block.buffer].tensor() })
            .collect();
        let mut made: Vec<Array> =
            it.results.iter().map(|block| Array::zeros(self.type_(block.buffer).clone()).unwrap()).collect();
        let blocks = made.iter_mut().zip(&it.results);
        let mut targets: Vec<TensorMut<'_>> =
            blocks.map(|(array, block)| TensorMut { spans: &block.spans, ..array.tensor_mut() }).collect();
        compute(&it.op, &operands, &mut targets).map_err(|error| error.to_string())?;
        for (block, array) in it.results.iter().zip(made) {
            self.arrays.insert(block.buffer, array);
        }
        Ok(())
    }

    /// Copies elements as the strides say.
    fn copy(&mut self, it: &Copied) {
        let size = usize::try_from(self.type_(it.to).dtype.bytes()).unwrap();
        let mut places = vec![(it.strided.start, 0)];
        for one in &it.strided.loops {
            let around = |&(from, to): &(u64, u64)| {
                (0..one.count).map(move |index| (from + index * one.from, to + index * one.to))
            };
            places = places.iter().flat_map(around).collect();
        }
        let from = self.arrays[&it.from].clone();
        let to = self.arrays.get_mut(&it.to).unwrap().bytes_mut();
        for (source, target) in places {
            let (source, target) =
                if it.direction == Direction::Take { (source, target) } else { (target, source) };
            let [source, target] = [source, target].map(|it| usize::try_from(it).unwrap() * size);
            to[target..target + size].copy_from_slice(&from.bytes()[source..source + size]);
        }
    }
}

/// A value as it lies in memory in that order of its dimensions.
fn lying(array: &Array, order: Option<&Vec<usize>>) -> Array {
    let Some(order) = order else { return array.clone() };
    evaluate(&Op::Transpose { permutation: order.clone() }, &[array]).unwrap().remove(0)
}

/// In which order the dimensions of values lie.
type Orders = BTreeMap<BufferId, Vec<usize>>;

/// What running a task takes; an error if processors refuse it.
fn trial(title: &str, program: &Program, orders: &Orders, task: &Task, work: Work) -> Result<Trial, String> {
    let seed = u64::try_from(task.at).unwrap() * 1000;
    let mut values = Values { program, arrays: BTreeMap::new(), given: BTreeMap::new(), seed };
    let mut dtypes = BTreeSet::new();
    for &number in &task.instructions {
        match &program.instructions[number].action {
            Action::Compute(it) => {
                values.add_operands(&it.op, &it.operands);
                dtypes.extend(it.operands.iter().chain(&it.results).map(|it| values.type_(it.buffer).dtype));
                values.compute(it).map_err(|error| format!("{title}: {}: {error}", it.name))?;
            }
            Action::Copy(it) => {
                for buffer in [it.from, it.to] {
                    let placed = (&program.buffer(buffer).type_, &[][..]);
                    values.add(buffer, |seed| random::operand(&Op::Select, 0, &[placed], seed));
                }
                values.copy(it);
            }
            _ => unreachable!("tasks compute and copy"),
        }
    }
    let most = APART.iter().find(|it| dtypes.contains(&it.0)).map_or(0.0, |it| it.1);
    let bytes = |it: BufferId| usize::try_from(values.type_(it).bytes()).unwrap();
    let given =
        |it: &BufferId| values.given.get(it).map(|array| lying(array, orders.get(it)).bytes().to_vec());
    let value = |it: &BufferId| Value { given: given(it), bytes: bytes(*it), over: None };
    let operands: Vec<Value> = task.operands.iter().map(value).collect();
    let over = places(program, task);
    let results = task.results.iter().zip(over).map(|(it, over)| Value { over, ..value(it) }).collect();
    let expected = task.results.iter().map(|it| lying(&values.arrays[it], orders.get(it))).collect();
    let title = format!("{} in {title}: {}", task.what, named(&work));
    Ok(Trial { title, work, operands, results, expected, most })
}

/// For each result the operand in whose place it is made, if there is one there, and as long.
fn places(program: &Program, task: &Task) -> Vec<Option<usize>> {
    let place = |it: &BufferId| (program.storage(*it).kind.region(), program.storage(*it).offset);
    let mut taken = BTreeSet::new();
    let over = |it: &BufferId| {
        let alike = task.operands.iter().enumerate().filter(|(_, operand)| place(operand) == place(it));
        let alike: Vec<(usize, &BufferId)> = alike.collect();
        let [(number, operand)] = alike[..] else { return None };
        let is_as_long = program.buffer(*operand).type_.bytes() == program.buffer(*it).type_.bytes();
        (is_as_long && taken.insert(number)).then_some(number)
    };
    task.results.iter().map(over).collect()
}

/// What launches of a task differ in from those of others: the kernels, how they are started and with which
/// numbers, and where what they make lies.
fn launched(program: &Program, task: &Task, work: &Work) -> String {
    let launches = work.launches.iter();
    let launches: Vec<_> =
        launches.map(|it| (&it.kernel.name, it.blocks, it.threads, it.shared, &it.arguments)).collect();
    let values = task.operands.iter().chain(&task.results);
    let types: Vec<&Type> = values.map(|it| &program.buffer(*it).type_).collect();
    format!("{launches:?} {types:?} {:?}", places(program, task))
}

/// A trial for each different launch of all programs; what is wrong besides.
fn trials(faults: &mut Vec<String>) -> Vec<Trial> {
    let mut programs: Vec<(&str, &Program)> = Vec::new();
    for (title, made) in ALL_PROGRAMS.iter() {
        match made {
            Ok(all) => programs.extend(all.iter().map(|it| (title.as_str(), it))),
            Err(error) => faults.push(format!("{title}: {error}")),
        }
    }
    let every: Vec<Vec<(String, Task, Work)>> = programs
        .par_iter()
        .map(|(_, program)| {
            let works = tasks(program).into_iter().filter_map(|task| {
                let work = by_kernels(task.work.clone())?;
                Some((launched(program, &task, &work), task, work))
            });
            works.collect()
        })
        .collect();
    let mut seen = BTreeSet::new();
    let new: Vec<Vec<(Task, Work)>> = every
        .into_iter()
        .map(|works| {
            let new =
                works.into_iter().filter_map(|(key, task, work)| seen.insert(key).then_some((task, work)));
            new.collect()
        })
        .collect();
    let made: Vec<Result<Trial, String>> = programs
        .par_iter()
        .zip(new)
        .flat_map_iter(|((title, program), works)| {
            let orders = if works.is_empty() { Orders::new() } else { orders(program) };
            works.into_iter().map(move |(task, work)| trial(title, program, &orders, &task, work))
        })
        .collect();
    let mut trials = Vec::new();
    for one in made {
        match one {
            Ok(trial) => trials.push(trial),
            Err(error) => faults.push(error),
        }
    }
    trials
}

#[test]
fn what_plans_launch_computes_what_their_operations_do() {
    let Some(nvrtc) = compiler() else { return };
    let mut wrong = Vec::new();
    let all = trials(&mut wrong);
    wrong.extend(faults(&nvrtc, &all));
    expect_none(&wrong);
}
