//! An operation with small random operands.

use kernels::Array;
use planner_ir::{DType, Op, parse_op};

/// An operation and what it is computed from.
pub(super) struct Case {
    pub(super) op: Op,
    pub(super) operands: Vec<Operand>,
}

/// An operand.
pub(super) struct Operand {
    pub(super) array: Array,
    pub(super) role: Role,
}

/// Whether there is a gradient towards an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// There is.
    Free,
    /// There is, and it is zero where the operand is zero.
    FreeUnlessZero,
    /// None is made: positions, conditions, tables.
    Fixed,
    /// None is asked for here.
    Unasked,
}

impl Case {
    pub(super) fn new(op: &str, operands: impl IntoIterator<Item = Operand>) -> Self {
        let op = parse_op(op).unwrap_or_else(|error| panic!("{op}: {error}"));
        Self { op, operands: operands.into_iter().collect() }
    }
}

impl Operand {
    /// One without a gradient.
    pub(super) fn fixed(array: Array) -> Self {
        Self { array, role: Role::Fixed }
    }

    /// Numbers (f64) with a gradient.
    pub(super) fn free(shape: &[u64], numbers: &[f64]) -> Self {
        Self { array: Array::of(shape, numbers).unwrap(), role: Role::Free }
    }

    /// Integers (i64), which have no gradient.
    pub(super) fn integers(shape: &[u64], numbers: &[i64]) -> Self {
        Self::fixed(Array::of(shape, numbers).unwrap())
    }

    /// The same, without its gradient asked for.
    pub(super) fn unasked(self) -> Self {
        Self { role: Role::Unasked, ..self }
    }

    /// The same numbers with other elements.
    pub(super) fn cast(self, dtype: DType) -> Self {
        let array = kernels::evaluate(&Op::Cast(dtype), &[&self.array]).unwrap().remove(0);
        Self { array, ..self }
    }
}

/// How many elements a shape has.
pub(super) fn count(shape: &[u64]) -> usize {
    usize::try_from(shape.iter().product::<u64>()).unwrap()
}

/// Numbers from a seed.
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits (`SplitMix64`).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    /// An integer from the first to the second, inclusive.
    pub(super) fn between(&mut self, least: i64, most: i64) -> i64 {
        least + i64::try_from(self.next() % (most - least + 1).unsigned_abs()).unwrap()
    }

    /// Such an extent.
    pub(super) fn extent(&mut self, least: i64, most: i64) -> u64 {
        self.between(least, most).unsigned_abs()
    }

    pub(super) fn flip(&mut self) -> bool {
        self.below(2) == 1
    }

    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A number from the first to below the second.
    pub(super) fn number(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * f64::from(u32::try_from(self.next() >> 32).unwrap()) / 4_294_967_296.0
    }

    /// So many extents from 1 to 3.
    pub(super) fn shape(&mut self, least: i64, most: i64) -> Vec<u64> {
        (0..self.between(least, most)).map(|_| self.extent(1, 3)).collect()
    }

    /// A shape that is repeated to this one: some extents 1, some leading ones missing.
    pub(super) fn repeated(&mut self, shape: &[u64]) -> Vec<u64> {
        let first = if self.flip() { 0 } else { self.below(shape.len() + 1) };
        shape[first..].iter().map(|&extent| if self.below(3) == 0 { 1 } else { extent }).collect()
    }

    /// Numbers up to 1.5, of both signs.
    pub(super) fn plain(&mut self, shape: &[u64]) -> Operand {
        let numbers: Vec<f64> = (0..count(shape)).map(|_| self.number(-1.5, 1.5)).collect();
        Operand::free(shape, &numbers)
    }

    /// Numbers above 0.
    pub(super) fn positive(&mut self, shape: &[u64]) -> Operand {
        let numbers: Vec<f64> = (0..count(shape)).map(|_| self.number(0.3, 2.0)).collect();
        Operand::free(shape, &numbers)
    }

    /// Numbers of both signs, none of them near 0.
    pub(super) fn nonzero(&mut self, shape: &[u64]) -> Operand {
        let number = |random: &mut Self| random.one_of(&[-1.0, 1.0]) * random.number(0.3, 2.0);
        let numbers: Vec<f64> = (0..count(shape)).map(|_| number(self)).collect();
        Operand::free(shape, &numbers)
    }

    /// The numbers from 0 to below a limit in a random order.
    pub(super) fn order(&mut self, limit: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..limit).collect();
        (1..limit).rev().for_each(|it| order.swap(it, self.below(it + 1)));
        order
    }

    /// Numbers of which no two are near each other: eighths of both signs.
    pub(super) fn distinct(&mut self, shape: &[u64]) -> Operand {
        let eighth = |it: usize| f64::from(u32::try_from(it).unwrap()) / 8.0 - 1.0;
        let numbers: Vec<f64> = self.order(count(shape)).into_iter().map(eighth).collect();
        Operand::free(shape, &numbers)
    }

    /// Indices into a dimension, some of them counted from the end.
    pub(super) fn indices(&mut self, extent: u64, shape: &[u64]) -> Operand {
        let extent = i64::try_from(extent).unwrap();
        let numbers: Vec<i64> = (0..count(shape)).map(|_| self.between(-extent, extent - 1)).collect();
        Operand::integers(shape, &numbers)
    }

    pub(super) fn truths(&mut self, shape: &[u64]) -> Operand {
        let truths: Vec<bool> = (0..count(shape)).map(|_| self.flip()).collect();
        Operand::fixed(Array::of_truths(shape, &truths).unwrap())
    }
}
