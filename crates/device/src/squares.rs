//! Sums of squares of many values as one task: the norm of all gradients.
//!
//! A step that bounds the norm of gradients has, for each parameter, the product of its gradient with itself and a
//! sum with those before it. All of them that are added up where nothing else reads what they are in between are
//! one task, issued where the last sum stands, if they may be issued there ([`crate::order`]).

use std::collections::{BTreeMap, BTreeSet};

use kernels::cuda;
use lower::{Action, BufferId, Compute, Program, Stream};
use planner_ir::{Binary, DType, Op};

use crate::order::{Member, Order};
use crate::task::Task;
use crate::uses::Uses;

/// The sums of squares of a program, as tasks.
pub(crate) fn squares(program: &Program, uses: &Uses<'_>, order: &mut Order<'_>) -> Vec<Task> {
    let trees = Trees::of(program);
    let mut tasks: Vec<Task> = Vec::new();
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    // From the last sum to the first, so that one is not a task that is a part of another.
    for root in (0..program.instructions.len()).rev() {
        if taken.contains(&root) {
            continue;
        }
        let Some(task) = trees.task(root, uses, order) else { continue };
        order.join(&task.instructions, task.at);
        taken.extend(&task.instructions);
        tasks.push(task);
    }
    tasks
}

/// Which instruction makes a value.
struct Trees<'a> {
    program: &'a Program,
    /// For each value the instruction that makes it, if there is one alone.
    makers: BTreeMap<BufferId, Option<usize>>,
}

impl<'a> Trees<'a> {
    fn of(program: &'a Program) -> Self {
        let mut makers = BTreeMap::new();
        for (number, instruction) in program.instructions.iter().enumerate() {
            for buffer in instruction.action.writes() {
                makers.entry(buffer).and_modify(|it| *it = None).or_insert(Some(number));
            }
        }
        Self { program, makers }
    }

    fn computed(&self, number: usize) -> Option<&'a Compute> {
        let instruction = &self.program.instructions[number];
        match &instruction.action {
            Action::Compute(compute) if instruction.stream == Stream::Compute => Some(compute),
            _ => None,
        }
    }

    /// Whether an instruction makes one number.
    fn is_number(&self, compute: &Compute) -> bool {
        compute.results.iter().all(|it| self.program.buffer(it.buffer).type_.elements() == 1)
    }

    /// What an instruction reads if it is the sum of the squares of all elements of one value.
    fn squared(&self, number: usize) -> Option<BufferId> {
        let compute = self.computed(number)?;
        let Op::Contract(contract) = &*compute.op else { return None };
        let labels: BTreeSet<_> = contract.left.iter().collect();
        let is_square = contract.left == contract.right
            && contract.result.is_empty()
            && labels.len() == contract.left.len()
            && compute.operands[0].buffer == compute.operands[1].buffer;
        is_square.then(|| compute.operands[0].buffer)
    }

    /// What the sum of two numbers adds.
    fn added(&self, number: usize) -> Option<[BufferId; 2]> {
        let compute = self.computed(number)?;
        let is_sum = matches!(*compute.op, Op::Binary(Binary::Add)) && self.is_number(compute);
        match &compute.operands[..] {
            [a, b] if is_sum => Some([a.buffer, b.buffer]),
            _ => None,
        }
    }

    /// The sums and the products below a sum, if it is one of squares alone; that itself last.
    fn below(&self, root: usize) -> Option<Vec<usize>> {
        self.added(root)?;
        let (mut all, mut open) = (Vec::new(), vec![root]);
        while let Some(number) = open.pop() {
            all.push(number);
            if self.squared(number).is_some() {
                continue;
            }
            for buffer in self.added(number)? {
                let maker = (*self.makers.get(&buffer)?)?;
                (maker < number).then_some(())?;
                open.push(maker);
            }
        }
        all.sort_unstable();
        all.dedup();
        Some(all)
    }

    /// The task of a sum of squares, if it is one and may be issued where it stands.
    fn task(&self, root: usize, uses: &Uses<'_>, order: &Order<'_>) -> Option<Task> {
        let members = self.below(root)?;
        let made = |number: usize| self.computed(number).map(|it| it.results[0].buffer);
        let result = made(root)?;
        let storage = |buffer: BufferId| self.program.buffer(buffer).storage;
        // What others read where one of them left a number is what the last one left there.
        let is_within = |&number: &usize| {
            let Some(own) = made(number).map(storage) else { return false };
            let later = if own == storage(result) { root } else { usize::MAX };
            !uses.is_read(own, |reader| members.binary_search(&reader).is_ok() || reader > later)
                && (own == storage(result) || !uses.lasts(own))
        };
        if !members.iter().filter(|it| **it != root).all(is_within) {
            return None;
        }
        let at = order.at(root);
        let operands: Vec<BufferId> = members.iter().filter_map(|&it| self.squared(it)).collect();
        let member = |&number: &usize| Member {
            number,
            reads: self.squared(number).into_iter().collect(),
            handed: vec![],
            writes: if number == root { vec![result] } else { vec![] },
        };
        let all: Vec<Member> = members.iter().map(member).collect();
        order.allows(&all, at).then_some(())?;
        let type_ = |it: &BufferId| {
            let type_ = &self.program.buffer(*it).type_;
            (type_.dtype, type_.elements())
        };
        let values: Vec<(DType, u64)> = operands.iter().map(type_).collect();
        Some(Task {
            what: format!("the squares of {} values", values.len()),
            instructions: members,
            at,
            operands,
            results: vec![result],
            work: Ok(cuda::squares(&values, self.program.buffer(result).type_.dtype)?),
        })
    }
}
