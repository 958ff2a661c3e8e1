//! Where the elements of a block lie in a value, followed back through operations that move elements.

use lower::{Stride, Strided};
use planner_ir::{Op, Piece, Type};

/// A nest of loops over elements of a value, and where each goes in a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The first element, by dimension.
    start: Vec<u64>,
    /// Where it goes (elements).
    target: u64,
    /// The loops, outermost first: where their elements go ascends in this order.
    loops: Vec<Loop>,
}

/// One loop of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    count: u64,
    /// Along which dimension of the value.
    dim: usize,
    /// The distance in it (elements of the dimension); 0 where all are the same element.
    step: u64,
    /// The distance in the block (elements).
    target: u64,
}

/// A view of a value as copies, for the value and for the block: out of either to elements that follow
/// each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    pub(crate) from: Strided,
    pub(crate) to: Strided,
}

impl View {
    /// The block that has these factors of each dimension.
    pub(crate) fn of_pieces(pieces: &[Vec<Piece>]) -> Self {
        let mut start = vec![0; pieces.len()];
        let (mut loops, mut target) = (Vec::new(), 1);
        for (dim, pieces) in pieces.iter().enumerate().rev() {
            let mut step = 1;
            for &Piece { size, index } in pieces.iter().rev() {
                match index {
                    Some(index) => start[dim] += index * step,
                    None => {
                        loops.push(Loop { count: size, dim, step, target });
                        target *= size;
                    }
                }
                step *= size;
            }
        }
        loops.reverse();
        loops.retain(|it| it.count != 1);
        Self { start, target: 0, loops }
    }

    /// All of a value of that shape.
    pub(crate) fn all(shape: &[u64]) -> Self {
        let pieces: Vec<_> = shape.iter().map(|&size| vec![Piece { size, index: None }]).collect();
        Self::of_pieces(&pieces)
    }

    /// The copies, with a row-major value of that shape.
    pub(crate) fn copies(&self, shape: &[u64]) -> Copies {
        let strides = row_major(shape);
        let mut joined: Vec<(u64, u64, u64)> = Vec::new();
        for it in &self.loops {
            let (from, to) = (it.distance(&strides), it.target);
            match joined.last_mut() {
                Some(last) if last.1 == it.count * from && last.2 == it.count * to => {
                    *last = (last.0 * it.count, from, to);
                }
                _ => joined.push((it.count, from, to)),
            }
        }
        let (mut from, mut to, mut dense) = (Vec::new(), Vec::new(), 1);
        for &(count, distance, target) in joined.iter().rev() {
            from.push(Stride { count, from: distance, to: dense });
            to.push(Stride { count, from: target, to: dense });
            dense *= count;
        }
        from.reverse();
        to.reverse();
        let start = self.start.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
        Copies { from: Strided { start, loops: from }, to: Strided { start: self.target, loops: to } }
    }

    /// What an operation that makes one value takes for this part of it, by operand; nothing if it does
    /// not only move elements, or if what it takes is no nest of loops.
    pub(crate) fn before(&self, op: &Op, operands: &[Type], result: &Type) -> Option<Vec<(usize, Self)>> {
        let shape = &operands.first()?.shape;
        let view = match op {
            Op::Transpose { permutation } => self.transposed(permutation),
            Op::Reshape { .. } => self.reshaped(&result.shape, shape)?,
            Op::Expand { .. } => self.narrowed(&result.shape, shape),
            Op::Slice { starts, steps, .. } => self.within(starts, steps)?,
            Op::Concat { dim } => return Some(self.taken_apart(*dim, operands)),
            _ => return None,
        };
        Some(vec![(0, view)])
    }

    fn transposed(&self, permutation: &[usize]) -> Self {
        let mut view = self.clone();
        for (&dim, &start) in permutation.iter().zip(&self.start) {
            view.start[dim] = start;
        }
        for it in &mut view.loops {
            it.dim = permutation.get(it.dim).copied().unwrap_or(0);
        }
        view
    }

    fn within(&self, starts: &[u64], steps: &[i64]) -> Option<Self> {
        let steps: Vec<u64> = steps.iter().map(|&it| u64::try_from(it).ok()).collect::<Option<_>>()?;
        let mut view = self.clone();
        for (start, (first, step)) in view.start.iter_mut().zip(starts.iter().zip(&steps)) {
            *start = first + *start * step;
        }
        for it in view.loops.iter_mut().filter(|it| it.step > 0) {
            it.step *= steps[it.dim];
        }
        Some(view)
    }

    /// The elements of what is repeated.
    fn narrowed(&self, wide: &[u64], narrow: &[u64]) -> Self {
        let added = wide.len().saturating_sub(narrow.len());
        let kept = |dim: usize| {
            let dim = dim.checked_sub(added)?;
            (narrow[dim] == wide[dim + added]).then_some(dim)
        };
        let mut view = Self { start: vec![0; narrow.len()], ..self.clone() };
        for (dim, &start) in self.start.iter().enumerate() {
            if let Some(dim) = kept(dim) {
                view.start[dim] = start;
            }
        }
        for it in view.loops.iter_mut().filter(|it| it.step > 0) {
            match kept(it.dim) {
                Some(dim) => it.dim = dim,
                None => it.step = 0,
            }
        }
        view
    }

    /// The same elements in another shape, if loops fall into loops along its dimensions.
    fn reshaped(&self, from: &[u64], to: &[u64]) -> Option<Self> {
        let (before, after) = (row_major(from), row_major(to));
        let mut rest: u64 = self.start.iter().zip(&before).map(|(index, stride)| index * stride).sum();
        let mut view = Self { start: Vec::new(), target: self.target, loops: Vec::new() };
        for stride in &after {
            view.start.push(rest.checked_div(*stride)?);
            rest %= stride;
        }
        for it in &self.loops {
            let mut distance = it.distance(&before);
            if distance == 0 {
                view.loops.push(Loop { step: 0, ..*it });
                continue;
            }
            let (mut count, mut target, mut inner) = (it.count, it.target, Vec::new());
            while count > 1 {
                // The outermost dimension whose next element is no further.
                let dim = (0..to.len()).find(|&dim| after[dim] <= distance && to[dim] > 1)?;
                let step = distance.is_multiple_of(after[dim]).then(|| distance / after[dim])?;
                let room = if count <= to[dim].div_ceil(step) { count } else { to[dim] / step };
                if room < 2 || (room < count && room * step != to[dim]) || !count.is_multiple_of(room) {
                    return None;
                }
                inner.push(Loop { count: room, dim, step, target });
                (count, distance, target) = (count / room, distance * room, target * room);
            }
            view.loops.extend(inner.into_iter().rev());
        }
        // Where the loops along a dimension leave it they are not loops along it.
        (0..to.len()).all(|dim| view.last(dim) < to[dim]).then_some(view)
    }

    /// The parts that lie in each of several values one after another along a dimension.
    fn taken_apart(&self, dim: usize, values: &[Type]) -> Vec<(usize, Self)> {
        let (mut parts, mut rest, mut first) = (Vec::new(), vec![self.clone()], 0);
        for (number, value) in values.iter().enumerate() {
            let end = first + value.shape[dim];
            let mut beyond = Vec::new();
            for view in rest {
                view.split(dim, end, &mut |mut part, is_before| {
                    if is_before {
                        part.start[dim] -= first;
                        parts.push((number, part));
                    } else {
                        beyond.push(part);
                    }
                });
            }
            (rest, first) = (beyond, end);
        }
        parts
    }

    /// Hands over the parts that lie before a place of a dimension, and those that do not.
    fn split(&self, dim: usize, place: u64, visit: &mut dyn FnMut(Self, bool)) {
        if self.loops.iter().any(|it| it.count == 0) {
            return;
        }
        if self.last(dim) < place || self.start[dim] >= place {
            return visit(self.clone(), self.last(dim) < place);
        }
        let along = self.loops.iter().enumerate().filter(|(_, it)| it.dim == dim && it.step > 0);
        let Some((number, it)) = along.max_by_key(|(_, it)| it.step) else { return };
        let within = self.last(dim) - self.start[dim] - (it.count - 1) * it.step;
        // The iterations that lie before the place to their end, and those that begin before it.
        let whole = place.saturating_sub(self.start[dim] + within).div_ceil(it.step).min(it.count);
        let begun = (place - self.start[dim]).div_ceil(it.step).min(it.count);
        let some = |first: u64, count: u64| {
            let mut view = self.clone();
            view.start[dim] += first * it.step;
            view.target += first * it.target;
            view.loops[number].count = count;
            view
        };
        if whole > 0 {
            visit(some(0, whole), true);
        }
        for iteration in whole..begun {
            let mut one = some(iteration, 1);
            one.loops.remove(number);
            one.split(dim, place, visit);
        }
        if begun < it.count {
            visit(some(begun, it.count - begun), false);
        }
    }

    /// The last place along a dimension; if there are no elements, one that there could be.
    fn last(&self, dim: usize) -> u64 {
        let along = self.loops.iter().filter(|it| it.dim == dim && it.step > 0);
        self.start[dim] + along.map(|it| it.count.saturating_sub(1) * it.step).sum::<u64>()
    }
}

impl Loop {
    /// The distance in a value whose dimensions have these strides (elements).
    fn distance(&self, strides: &[u64]) -> u64 {
        if self.step == 0 { 0 } else { self.step * strides[self.dim] }
    }
}

/// The strides of row-major order.
fn row_major(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}
