//! Copies between two orders of the same elements.

use planner_ir::{Piece, Type};

/// A nest of loops over elements: `to[Σ i · to] = from[start + Σ i · from]`.
///
/// The loops' `to` strides are those of a row-major array: every element of the target is set
/// once, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strided {
    /// The first element read.
    pub start: u64,
    /// The loops, outermost first.
    pub loops: Vec<Stride>,
}

/// One loop of a strided copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stride {
    /// How many iterations there are.
    pub count: u64,
    /// The distance of elements read (elements).
    pub from: u64,
    /// The distance of elements written (elements).
    pub to: u64,
}

/// A factor of an array's dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor {
    /// What it is called: the same in both orders.
    pub(crate) name: usize,
    /// How many blocks it numbers.
    pub(crate) size: u64,
}

impl Strided {
    /// The copy from a whole value to the block that has these factors of each dimension.
    pub fn of_pieces(pieces: &[Vec<Piece>]) -> Self {
        let factors: Vec<(Factor, Option<u64>)> = pieces
            .iter()
            .flatten()
            .enumerate()
            .map(|(name, piece)| (Factor { name, size: piece.size }, piece.index))
            .collect();
        let whole: Vec<Factor> = factors.iter().map(|(factor, _)| *factor).collect();
        let held: Vec<Factor> =
            factors.iter().filter(|(_, index)| index.is_none()).map(|(factor, _)| *factor).collect();
        let fixed: Vec<(usize, u64)> =
            factors.iter().filter_map(|(factor, index)| Some((factor.name, (*index)?))).collect();
        Self::between(&whole, &held, &fixed)
    }

    /// The copy from factors in one order, outermost first, to another order. Factors that the
    /// target lacks have the value that `fixed` gives by name.
    pub(crate) fn between(from: &[Factor], to: &[Factor], fixed: &[(usize, u64)]) -> Self {
        let from_strides = row_major(from);
        let stride_of = |name: usize| {
            from.iter().position(|factor| factor.name == name).map_or(0, |place| from_strides[place])
        };
        let start = fixed.iter().map(|&(name, value)| value * stride_of(name)).sum();
        let loops = to
            .iter()
            .zip(row_major(to))
            .map(|(factor, to)| Stride { count: factor.size, from: stride_of(factor.name), to })
            .collect();
        Self { start, loops: joined(loops) }
    }

    /// The copy from a row-major array of that shape to the box of it that starts there and has
    /// these lengths.
    pub fn of_box(shape: &[u64], start: &[u64], lengths: &[u64]) -> Self {
        let factor = |(name, &size): (usize, &u64)| Factor { name, size };
        let [whole, part] = [shape, lengths].map(|it| it.iter().enumerate().map(factor).collect::<Vec<_>>());
        let (from, to) = (row_major(&whole), row_major(&part));
        let stride = |((&count, &from), &to): ((&u64, &u64), &u64)| Stride { count, from, to };
        let loops = lengths.iter().zip(&from).zip(&to).map(stride).collect();
        Self {
            start: start.iter().zip(&from).map(|(start, stride)| start * stride).sum(),
            loops: joined(loops),
        }
    }

    /// How many elements are copied.
    pub fn elements(&self) -> u64 {
        self.loops.iter().map(|it| it.count).product()
    }

    /// Whether the target is the source from its first element on.
    pub fn is_identity(&self) -> bool {
        self.start == 0 && matches!(self.loops[..], [] | [Stride { from: 1, to: 1, .. }])
    }

    /// The largest index read, if any is.
    pub fn last_read(&self) -> Option<u64> {
        let reach = self.loops.iter().try_fold(self.start, |last, it| {
            it.count.checked_sub(1)?.checked_mul(it.from)?.checked_add(last)
        });
        reach.filter(|_| self.elements() > 0)
    }

    /// Which part of an array of so many elements this reads, if the array falls into equal parts
    /// that shifts of the same nest read: those of all numbers below `elements / self.elements()`
    /// read each element once.
    pub fn part(&self, elements: u64) -> Option<u64> {
        let (mut unit, mut rest, mut number) = (elements, self.start, 0_u64);
        let innermost = Stride { count: 1, from: 1, to: 1 };
        for it in self.loops.iter().chain([&innermost]) {
            let span = it.count.checked_mul(it.from).filter(|&span| span > 0)?;
            if !unit.is_multiple_of(span) || rest >= unit {
                return None;
            }
            number = number.checked_mul(unit / span)?.checked_add(rest / span)?;
            rest %= span;
            if rest >= it.from {
                return None;
            }
            unit = it.from;
        }
        Some(number)
    }

    /// Whether the first `elements` elements of the target are each set once, in order.
    pub fn covers(&self, elements: u64) -> bool {
        let mut stride = 1u64;
        for it in self.loops.iter().rev() {
            if it.to != stride {
                return false;
            }
            let Some(next) = stride.checked_mul(it.count) else { return false };
            stride = next;
        }
        stride == elements
    }
}

/// The strides of row-major order.
fn row_major(factors: &[Factor]) -> Vec<u64> {
    let mut strides = vec![1; factors.len()];
    for place in (1..factors.len()).rev() {
        strides[place - 1] = strides[place] * factors[place].size;
    }
    strides
}

/// The same nest with as few loops as possible.
fn joined(loops: Vec<Stride>) -> Vec<Stride> {
    let mut joined: Vec<Stride> = Vec::new();
    for it in loops.into_iter().filter(|it| it.count != 1) {
        match joined.last_mut() {
            Some(last) if last.from == it.count * it.from && last.to == it.count * it.to => {
                *last = Stride { count: last.count * it.count, ..it };
            }
            _ => joined.push(it),
        }
    }
    joined
}

/// The copy of all elements in their order.
pub(crate) fn all_of(type_: &Type) -> Strided {
    let all = [Factor { name: 0, size: type_.elements() }];
    Strided::between(&all, &all, &[])
}
