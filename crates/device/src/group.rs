//! Operations that one kernel computes, and what they hand to each other without memory.
//!
//! Operations element by element that follow each other are one kernel, and what they hand on is not
//! written to memory where nothing else reads it. That holds of operations on the compute stream of
//! one shape, each of which reads what one before it makes, if nothing is waited for or signalled
//! between them, and if what is written lies where nothing that is read lies, or exactly there. One
//! of them may be a norm of rows, or the gradient of one: a sum with a residual and the norm of it
//! are one kernel.
//!
//! Groups of operations that follow each other are one kernel likewise where one reads what an earlier one
//! makes, if one of them may be issued where the other is ([`crate::order`]): between the gradient of a
//! norm and the sum with the residual's gradient stand gradients of weights.

use std::collections::{BTreeMap, BTreeSet};

use kernels::cuda::{self, Chain, Input, Step};
use lower::{Action, Block, BufferId, Compute, Program, StorageId};
use planner_ir::Op;

use crate::order::{Member, Order};
use crate::orders::Orders;
use crate::places::{is_same_place, meet};
use crate::task::{Task, buffers, is_cut, named};
use crate::uses::Uses;

/// How many operations one kernel has at most.
const STEPS: usize = 8;

/// How many values one kernel reads at most.
const OPERANDS: usize = 12;

/// How far apart what is issued together stands at most (instructions): so what a program takes to be made
/// ready grows as its length does.
const FAR: usize = 64;

/// Operations that one kernel computes: functions of elements, and perhaps a norm.
#[derive(Clone)]
pub(crate) struct Group<'a> {
    program: &'a Program,
    uses: &'a Uses<'a>,
    orders: &'a Orders<'a>,
    numbers: Vec<usize>,
    computes: Vec<&'a Compute>,
    chain: Chain,
    operands: Vec<BufferId>,
    /// The results of each step.
    made: Vec<Vec<BufferId>>,
}

/// Groups made one where they may be, of all of a program in order.
pub(crate) fn joined<'a>(groups: Vec<Group<'a>>, order: &mut Order<'_>) -> Vec<Group<'a>> {
    let mut all: Vec<Group> = Vec::with_capacity(groups.len());
    // Which group made a value last.
    let mut makers: BTreeMap<BufferId, usize> = BTreeMap::new();
    for group in groups {
        let earlier: BTreeSet<usize> =
            group.operands.iter().filter_map(|it| makers.get(it)).copied().collect();
        let found = earlier.iter().rev().find_map(|&it| Some((it, all[it].with(&group, order)?)));
        let place = match found {
            Some((place, more)) => {
                all[place] = more;
                place
            }
            None => {
                all.push(group);
                all.len() - 1
            }
        };
        makers.extend(all[place].made.iter().flatten().map(|&it| (it, place)));
    }
    all
}

impl<'a> Group<'a> {
    /// The group of an operation, if a kernel may compute it with others.
    pub(crate) fn of(
        program: &'a Program,
        uses: &'a Uses<'a>,
        orders: &'a Orders<'a>,
        number: usize,
    ) -> Option<Self> {
        let Action::Compute(compute) = &program.instructions[number].action else { return None };
        let first = compute.results.first()?.buffer;
        let shape = program.buffer(first).type_.shape.clone();
        let order = orders.order(first).to_vec();
        let chain = Chain { order, ..Chain::over(shape) };
        let mut group = Self {
            program,
            uses,
            orders,
            numbers: vec![],
            computes: vec![],
            chain,
            operands: vec![],
            made: vec![],
        };
        let fits = group.has_shape(compute) && group.has_kind(compute);
        fits.then(|| {
            group.add(number, compute);
            group
        })
    }

    /// The group with the instruction that follows it, if that belongs to it.
    pub(crate) fn followed(&self, number: usize) -> Option<Self> {
        let last = *self.numbers.last()?;
        let waits = !self.program.instructions[number].waits.is_empty();
        if waits || self.signals() || is_cut(self.program, last + 1..number + 1) {
            return None;
        }
        self.with_all(&[number])
    }

    /// The group with a later one, if they may be one; they are issued together then.
    fn with(&self, later: &Self, order: &mut Order<'_>) -> Option<Self> {
        let is_near = later.numbers.last()? - self.numbers.first()? <= FAR;
        if !is_near || self.signals() {
            return None;
        }
        let more = self.with_all(&later.numbers)?;
        let members = more.members();
        let places = [self, later].map(|it| it.numbers.first().map(|&first| order.at(first)));
        let at = places.into_iter().flatten().find(|&at| order.allows(&members, at))?;
        order.join(&more.numbers, at);
        Some(more)
    }

    /// The group with more instructions, if all belong to it.
    fn with_all(&self, numbers: &[usize]) -> Option<Self> {
        let mut more = self.clone();
        for &number in numbers {
            let Action::Compute(compute) = &self.program.instructions[number].action else { return None };
            let belongs = more.numbers.len() < STEPS
                && more.reads_own(compute)
                && more.has_shape(compute)
                && more.has_kind(compute)
                && more.lies_with(compute);
            if !belongs {
                return None;
            }
            more.add(number, compute);
        }
        (more.operands.len() <= OPERANDS && more.is_sound() && more.is_covered()).then_some(more)
    }

    /// Whether the last one signals an event: nothing follows it, for others wait.
    fn signals(&self) -> bool {
        self.numbers.last().is_some_and(|&it| self.program.instructions[it].signals.is_some())
    }

    /// What each of them reads and leaves in memory.
    fn members(&self) -> Vec<Member> {
        let stored: Vec<BufferId> = self.stored().into_iter().map(|(_, buffer)| buffer).collect();
        let all = self.numbers.iter().zip(&self.computes).enumerate();
        all.map(|(step, (&number, compute))| {
            let mut member = Member { number, reads: vec![], handed: vec![], writes: vec![] };
            for (block, input) in compute.operands.iter().zip(&self.chain.steps[step].inputs) {
                match *input {
                    Input::Step(earlier, _) => member.handed.push((self.numbers[earlier], block.buffer)),
                    Input::Operand(_) => member.reads.push(block.buffer),
                }
            }
            let is_needed =
                |it: &BufferId| self.uses.is_needed(self.program.buffer(*it).storage, &self.numbers);
            let made = self.made[step].iter();
            member.writes = made.filter(|it| stored.contains(it) || is_needed(it)).copied().collect();
            member
        })
        .collect()
    }

    /// Whether all results are of the group's shape, and lie as it does.
    fn has_shape(&self, compute: &Compute) -> bool {
        let shape = |it: &Block| {
            self.program.buffer(it.buffer).type_.shape == self.chain.shape
                && self.orders.order(it.buffer) == self.chain.order
        };
        compute.results.iter().all(shape)
    }

    /// Whether a kernel may compute an operation with others.
    fn has_kind(&self, compute: &Compute) -> bool {
        cuda::is_pointwise(&compute.op) || self.norm().is_none() && cuda::is_norm(&compute.op)
    }

    /// Which step is a norm, if one is.
    fn norm(&self) -> Option<usize> {
        self.chain.steps.iter().position(|step| cuda::is_norm(&step.op))
    }

    /// Whether what an operation makes lies in the whole where that of the group does, if both depend
    /// on it.
    fn lies_with(&self, compute: &Compute) -> bool {
        let own = self.computes.iter().find_map(|it| placed(it));
        placed(compute).is_none_or(|spans| own.is_none_or(|own| own == spans))
    }

    /// Whether an operand is what the group makes, and what else lies there is not read.
    fn reads_own(&self, compute: &Compute) -> bool {
        let made: Vec<BufferId> = self.made.iter().flatten().copied().collect();
        let storages: Vec<StorageId> = made.iter().map(|&it| self.program.buffer(it).storage).collect();
        let is_own = |block: &Block| made.contains(&block.buffer);
        let is_near = |block: &Block| storages.contains(&self.program.buffer(block.buffer).storage);
        compute.operands.iter().any(is_own) && compute.operands.iter().all(|it| is_own(it) || !is_near(it))
    }

    fn add(&mut self, number: usize, compute: &'a Compute) {
        if let Some(spans) = placed(compute) {
            self.chain.spans = spans.to_vec();
        }
        let pieces = self.orders.pieces(&compute.operands);
        let mut inputs = Vec::new();
        for (block, piece) in compute.operands.iter().zip(pieces) {
            // What was made last in a place is what is there.
            let own = self.made.iter().enumerate().rev().find_map(|(step, made)| {
                Some(Input::Step(step, made.iter().position(|it| *it == block.buffer)?))
            });
            let known = self.operands.iter().position(|it| *it == block.buffer);
            inputs.push(own.or(known.map(Input::Operand)).unwrap_or_else(|| {
                self.operands.push(block.buffer);
                self.chain.operands.push(piece);
                Input::Operand(self.operands.len() - 1)
            }));
        }
        let dtypes = compute.results.iter().map(|it| self.program.buffer(it.buffer).type_.dtype);
        self.chain.steps.push(Step { op: (*compute.op).clone(), inputs, results: dtypes.collect() });
        self.made.push(buffers(&compute.results));
        self.numbers.push(number);
        self.computes.push(compute);
    }

    /// What is read or returned elsewhere and so is stored: steps and results, and their buffers.
    fn stored(&self) -> Vec<((usize, usize), BufferId)> {
        let program = self.program;
        let all = self.made.iter().enumerate();
        let all = all.flat_map(|(step, made)| {
            made.iter().enumerate().map(move |(result, &buffer)| ((step, result), buffer))
        });
        let last = self.made.len() - 1;
        let lasts = |&((step, _), buffer): &((usize, usize), BufferId)| {
            // Of what lies in one place only the last stays there.
            let storage = program.buffer(buffer).storage;
            let later = self.made[step + 1..].iter().flatten();
            !later.into_iter().any(|&it| program.buffer(it).storage == storage)
        };
        let all: Vec<_> = all.filter(lasts).collect();
        let needed = |&((step, _), buffer): &((usize, usize), BufferId)| {
            step == last || self.uses.is_needed(program.buffer(buffer).storage, &self.numbers)
        };
        // Where something before a norm is stored, what is read in several passes over rows is read
        // from where it is stored: what it is computed from may be written over.
        let norm = self.norm().unwrap_or(0);
        let is_again = all.iter().any(|it| it.0.0 < norm && needed(it));
        let passes = self.chain.steps.iter().skip(norm).flat_map(|step| &step.inputs);
        let passes: Vec<&Input> = passes.collect();
        let again = |&((step, result), _): &((usize, usize), BufferId)| {
            is_again && step < norm && passes.contains(&&Input::Step(step, result))
        };
        all.into_iter().filter(|it| needed(it) || again(it)).collect()
    }

    /// Whether there is a kernel for it: there may be none for what is around a norm.
    fn is_covered(&self) -> bool {
        self.norm().is_none() || cuda::chained(&self.chain()).is_ok()
    }

    /// The chain with what is stored of it.
    fn chain(&self) -> Chain {
        let results = self.stored().into_iter().map(|(place, _)| place).collect();
        Chain { results, ..self.chain.clone() }
    }

    /// Whether what is stored lies where nothing else of the group lies, or exactly there.
    fn is_sound(&self) -> bool {
        let stored: Vec<BufferId> = self.stored().into_iter().map(|(_, buffer)| buffer).collect();
        let others = self.operands.iter().chain(&stored);
        let is_sound = |it: BufferId, other: BufferId| {
            it == other || !meet(self.program, it, other) || is_same_place(self.program, it, other)
        };
        others.into_iter().all(|&other| stored.iter().all(|&it| is_sound(it, other)))
    }

    /// The task of it, which is issued as the order says.
    pub(crate) fn task(self, order: &Order<'_>) -> Task {
        let names: Vec<String> = self.computes.iter().map(|it| named(&it.op)).collect();
        Task {
            work: cuda::chained(&self.chain()),
            results: self.stored().into_iter().map(|(_, buffer)| buffer).collect(),
            at: self.numbers.first().map_or(0, |&first| order.at(first)),
            instructions: self.numbers,
            what: names.join(", "),
            operands: self.operands,
        }
    }
}

/// Where what an operation makes lies in the whole, if its elements depend on that.
fn placed(compute: &Compute) -> Option<&[kernels::Span]> {
    let first = match &*compute.op {
        Op::Dropout { .. } | Op::RoundStochastically { .. } => compute.operands.first()?,
        Op::Triangle { .. } | Op::Iota { .. } => compute.results.first()?,
        _ => return None,
    };
    Some(&first.spans)
}
