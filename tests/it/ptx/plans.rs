//! What plans of the corpus launch: each kernel of them once, on random operands, with the launch that its
//! plan has, against the operations that it is made for.

use std::collections::{BTreeMap, BTreeSet};

use device::{Task, orders, tasks};
use kernels::{Array, Tensor, TensorMut, compute, evaluate};
use lower::{Action, Block, BufferId, Compute, Copied, Direction, Program};
use planner_ir::{DType, Op, Type};
use rayon::prelude::*;

use super::emulation::{Value, by_kernels, compiler, named};
use super::random;
use super::trial::{Trial, faults};
use crate::corpus::expect_none;
use crate::cuda::all_programs;

/// How far results may be from those of processors, as a part of the largest number, by the narrowest type that
/// a task computes in: numbers of 32 bits are summed in another order, and what is rounded to 16 bits may be
/// rounded to the other side, once for each operation of the task.
const APART: [(DType, f64); 3] = [(DType::BF16, 2e-2), (DType::F16, 5e-3), (DType::F32, 1e-4)];

/// Values as operations of a task make them.
struct Values<'a> {
    program: &'a Program,
    arrays: BTreeMap<BufferId, Array>,
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
            self.seed += 1;
            let seed = self.seed;
            self.arrays.entry(block.buffer).or_insert_with(|| random::operand(op, number, &placed, seed));
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

/// The place of a value in the memory of its rank.
fn place(program: &Program, buffer: BufferId) -> (lower::Region, u64) {
    let storage = program.storage(buffer);
    (storage.kind.region(), storage.offset)
}

/// What running a task takes; none if no kernel does it, or if processors refuse it.
fn trial(title: &str, program: &Program, task: &Task) -> Result<Option<Trial>, String> {
    let Some(work) = by_kernels(task.work.clone()) else { return Ok(None) };
    let orders = orders(program);
    let seed = u64::try_from(task.at).unwrap() * 1000;
    let mut values = Values { program, arrays: BTreeMap::new(), seed };
    let mut dtypes = BTreeSet::new();
    let mut first: BTreeMap<BufferId, Array> = BTreeMap::new();
    for &number in &task.instructions {
        match &program.instructions[number].action {
            Action::Compute(it) => {
                values.add_operands(&it.op, &it.operands);
                dtypes.extend(it.operands.iter().chain(&it.results).map(|it| values.type_(it.buffer).dtype));
                for block in &it.operands {
                    first.entry(block.buffer).or_insert_with(|| values.arrays[&block.buffer].clone());
                }
                values.compute(it).map_err(|error| format!("{title}: {}: {error}", it.name))?;
            }
            Action::Copy(it) => {
                for buffer in [it.from, it.to] {
                    values.seed += 1;
                    let placed = (&program.buffer(buffer).type_, &[][..]);
                    let seed = values.seed;
                    let given = || random::operand(&Op::Select, 0, &[placed], seed);
                    let array = values.arrays.entry(buffer).or_insert_with(given);
                    first.entry(buffer).or_insert_with(|| array.clone());
                }
                values.copy(it);
            }
            _ => return Ok(None),
        }
    }
    let most = APART.iter().find(|it| dtypes.contains(&it.0)).map_or(0.0, |it| it.1);
    let is_made = |buffer: &BufferId| !first.contains_key(buffer);
    let operands: Vec<Value> = task
        .operands
        .iter()
        .map(|it| {
            let bytes = usize::try_from(values.type_(*it).bytes()).unwrap();
            first
                .get(it)
                .map_or(Value::made(bytes), |array| Value::given(lying(array, orders.get(it)).bytes()))
        })
        .collect();
    let places: Vec<_> = task.operands.iter().map(|&it| place(program, it)).collect();
    let mut taken = BTreeSet::new();
    let result = |it: &BufferId| {
        let bytes = usize::try_from(values.type_(*it).bytes()).unwrap();
        let here = place(program, *it);
        let alike: Vec<usize> = (0..places.len()).filter(|&number| places[number] == here).collect();
        // One value lies there, and is as long.
        let over = match alike[..] {
            [number] if operands[number].bytes == bytes && taken.insert(number) => Some(number),
            _ => None,
        };
        let given = (!is_made(it)).then(|| first[it].bytes().to_vec());
        Value { given, bytes, over }
    };
    let results: Vec<Value> = task.results.iter().map(result).collect();
    let expected = task.results.iter().map(|it| lying(&values.arrays[it], orders.get(it))).collect();
    let title = format!("{} in {title}: {}", task.what, named(&work));
    Ok(Some(Trial { title, work, operands, results, expected, most }))
}

/// How large the values of a task are (bytes).
fn size(program: &Program, task: &Task) -> u64 {
    task.operands.iter().chain(&task.results).map(|it| program.buffer(*it).type_.bytes()).sum()
}

/// The smallest task for each kernel of all programs; what is wrong, and the kernels of exchanges.
fn trials(faults: &mut Vec<String>) -> Vec<Trial> {
    let programs: Vec<(String, Vec<Program>)> = all_programs()
        .filter_map(|(title, programs)| match programs {
            Ok(programs) => Some((title, programs)),
            Err(error) => {
                faults.push(format!("{title}: {error}"));
                None
            }
        })
        .collect();
    let every: Vec<(usize, usize, Vec<Task>)> = programs
        .par_iter()
        .enumerate()
        .flat_map_iter(|(at, (_, programs))| {
            programs.iter().enumerate().map(move |(rank, program)| (at, rank, tasks(program)))
        })
        .collect();
    // Those that are chosen, by the smallest of each kernel.
    let mut smallest: BTreeMap<String, (u64, usize, usize)> = BTreeMap::new();
    for (number, (at, rank, tasks)) in every.iter().enumerate() {
        let program = &programs[*at].1[*rank];
        for (place, task) in tasks.iter().enumerate() {
            let Some(work) = by_kernels(task.work.clone()) else { continue };
            let this = (size(program, task), number, place);
            for launch in &work.launches {
                let known = smallest.entry(launch.kernel.name.clone()).or_insert(this);
                *known = this.min(*known);
            }
        }
    }
    let chosen: BTreeSet<(usize, usize)> = smallest.values().map(|it| (it.1, it.2)).collect();
    let of = |&(number, place): &(usize, usize)| {
        let (at, rank, tasks) = &every[number];
        let (title, programs) = &programs[*at];
        trial(title, &programs[*rank], &tasks[place]).transpose()
    };
    let chosen: Vec<(usize, usize)> = chosen.into_iter().collect();
    let made: Vec<Result<Trial, String>> = chosen.par_iter().filter_map(of).collect();
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
