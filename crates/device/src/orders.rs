//! In which order the dimensions of values lie in memory.
//!
//! A program has every value row-major. What only kernels read that take strides may lie otherwise: what
//! projections make of rows, by heads, lies row by row with all heads of a row together, so that each of
//! them is one product of matrices, and attention takes its heads from there. Values that are one place, or
//! that one operation makes element by element of each other, lie alike. An order is taken if fewer bytes
//! are copied around products by it, and every operation that reads or makes such a value has a kernel for
//! it.

use std::collections::{BTreeMap, BTreeSet};

use kernels::cuda::{self, Piece, Uncovered};
use lower::{Action, Block, BufferId, Compute, Kind, Program};
use planner_ir::Op;

/// How often all values are looked at: what one of them gains may depend on others.
const ROUNDS: usize = 2;

/// The orders of the dimensions of values, of those that do not lie row-major.
pub(crate) struct Orders<'a> {
    program: &'a Program,
    orders: BTreeMap<BufferId, Vec<usize>>,
}

/// Which values lie alike.
struct Alike {
    /// For each buffer one that lies as it does, in the end the same one for all of them.
    of: Vec<usize>,
    /// Those that lie row-major, whatever is gained.
    fixed: BTreeSet<usize>,
}

impl Alike {
    fn of(program: &Program) -> Self {
        let mut alike = Self { of: (0..program.buffers.len()).collect(), fixed: BTreeSet::new() };
        let mut first: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, buffer) in program.buffers.iter().enumerate() {
            let storage = &program.storages[buffer.storage.0];
            alike.join(program, number, *first.entry(buffer.storage.0).or_insert(number));
            if storage.kind != Kind::Activation {
                alike.fixed.insert(number);
            }
        }
        for (number, storage) in program.storages.iter().enumerate() {
            if let Some(over) = storage.over
                && let (Some(&one), Some(&other)) = (first.get(&number), first.get(&over.0))
            {
                alike.join(program, one, other);
            }
        }
        alike.fixed.extend(program.outputs.iter().map(|it| it.buffer.0));
        for instruction in &program.instructions {
            match &instruction.action {
                Action::Compute(compute) => alike.add(program, compute),
                other => alike.fixed.extend(other.reads().into_iter().chain(other.writes()).map(|it| it.0)),
            }
        }
        alike
    }

    /// Lets two values lie alike: row-major if they are not of one shape.
    fn join(&mut self, program: &Program, one: usize, other: usize) {
        let shape = |it: usize| &program.buffers[it].type_.shape;
        if shape(one) != shape(other) {
            self.fixed.extend([one, other]);
        }
        let (one, other) = (self.root(one), self.root(other));
        self.of[one.max(other)] = one.min(other);
    }

    fn add(&mut self, program: &Program, compute: &Compute) {
        let blocks = || compute.operands.iter().chain(&compute.results).map(|it| it.buffer.0);
        // Each of what these read and make lies by itself.
        let is_apart = matches!(
            *compute.op,
            Op::Contract(_) | Op::Reduce { .. } | Op::Attention(_) | Op::AttentionGradient { .. }
        );
        if is_apart {
            // But for what a product is added to, which lies as the sum does.
            for (addend, sum) in compute.op.addends(compute.operands.len()) {
                self.join(program, compute.operands[addend].buffer.0, compute.results[sum].buffer.0);
            }
            return;
        }
        let Some(made) =
            compute.results.first().map(|it| it.buffer.0).filter(|_| cuda::takes_orders(&compute.op))
        else {
            self.fixed.extend(blocks());
            return;
        };
        for block in blocks() {
            if program.buffers[block].type_.shape == program.buffers[made].type_.shape {
                self.join(program, block, made);
            } else {
                self.fixed.insert(block);
            }
        }
    }

    fn root(&self, mut it: usize) -> usize {
        while self.of[it] != it {
            it = self.of[it];
        }
        it
    }

    /// The values that lie alike and may lie in any order, by the first of them.
    fn free(&self) -> BTreeMap<usize, Vec<BufferId>> {
        let mut free: BTreeMap<usize, Vec<BufferId>> = BTreeMap::new();
        for number in 0..self.of.len() {
            free.entry(self.root(number)).or_default().push(BufferId(number));
        }
        free.retain(|_, members| !members.iter().any(|it| self.fixed.contains(&it.0)));
        free
    }
}

/// In which order the dimensions of values lie on a device, of those that do not lie row-major.
pub fn orders(program: &Program) -> BTreeMap<BufferId, Vec<usize>> {
    Orders::of(program).orders
}

impl<'a> Orders<'a> {
    pub(crate) fn of(program: &'a Program) -> Self {
        let mut orders = Self { program, orders: BTreeMap::new() };
        let alike = Alike::of(program);
        let free = alike.free();
        // What reads or makes one of the values that lie alike.
        let mut around: BTreeMap<usize, Vec<&Compute>> = BTreeMap::new();
        for instruction in &program.instructions {
            let Action::Compute(compute) = &instruction.action else { continue };
            let blocks = compute.operands.iter().chain(&compute.results);
            let roots: BTreeSet<usize> = blocks.map(|it| alike.root(it.buffer.0)).collect();
            for root in roots.into_iter().filter(|it| free.contains_key(it)) {
                around.entry(root).or_default().push(compute);
            }
        }
        for _ in 0..ROUNDS {
            for (root, around) in &around {
                orders.choose(&free[root], around);
            }
        }
        orders
    }

    /// Chooses the order in which values lie that lie alike, of which these are all operations.
    fn choose(&mut self, members: &[BufferId], around: &[&Compute]) {
        let Some(now) = self.copied(around) else { return };
        if now == 0 {
            return;
        }
        let before = self.orders.get(&members[0]).cloned();
        let mut best = (now, before.clone());
        for order in self.wished(members, around) {
            self.set(members, Some(&order));
            if let Some(copied) = self.copied(around).filter(|it| *it < best.0) {
                best = (copied, Some(order));
            }
        }
        self.set(members, best.1.as_ref());
    }

    fn set(&mut self, members: &[BufferId], order: Option<&Vec<usize>>) {
        for member in members {
            match order {
                Some(order) => self.orders.insert(*member, order.clone()),
                None => self.orders.remove(member),
            };
        }
    }

    /// How many bytes are copied around products; none if something has no kernel.
    fn copied(&self, around: &[&Compute]) -> Option<u64> {
        let mut copied = 0;
        for compute in around {
            match cuda::kernels(&compute.op, &self.pieces(&compute.operands), &self.pieces(&compute.results))
            {
                Ok(_) => {}
                Err(Uncovered::Library(product)) => copied += product.room,
                Err(_) => return None,
            }
        }
        Some(copied)
    }

    /// The orders in which groups of labels of contractions lie together.
    fn wished(&self, members: &[BufferId], around: &[&Compute]) -> BTreeSet<Vec<usize>> {
        let mut wished = BTreeSet::new();
        for compute in around {
            let Op::Contract(contract) = &*compute.op else { continue };
            let ([a, b, ..], [y]) = (&self.pieces(&compute.operands)[..], &self.pieces(&compute.results)[..])
            else {
                continue;
            };
            let blocks = compute.operands.iter().chain(&compute.results);
            for (value, _) in blocks.enumerate().filter(|it| members.contains(&it.1.buffer)) {
                // What the product is added to has the labels of the result.
                wished.extend(cuda::orders(contract, [a, b], y, value.min(2)));
            }
        }
        wished
    }

    /// Blocks as kernels are given them.
    pub(crate) fn pieces(&self, blocks: &[Block]) -> Vec<Piece> {
        let piece = |block: &Block| Piece {
            type_: self.program.buffer(block.buffer).type_.clone(),
            spans: block.spans.clone(),
            order: self.order(block.buffer).to_vec(),
        };
        blocks.iter().map(piece).collect()
    }

    /// Whether an operation writes its result over an operand where that is.
    pub(crate) fn writes_in_place(&self, compute: &Compute) -> bool {
        let storage = |block: &Block| self.program.buffer(block.buffer).storage;
        let over = compute.op.written().and_then(|it| compute.operands.get(it));
        over.zip(compute.results.first()).is_some_and(|(data, y)| storage(data) == storage(y))
    }

    /// The order of a value; empty if it lies row-major.
    pub(crate) fn order(&self, buffer: BufferId) -> &[usize] {
        self.orders.get(&buffer).map_or(&[], Vec::as_slice)
    }
}
