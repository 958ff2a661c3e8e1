//! Regions that are mixtures of experts over rows sorted by expert.
//!
//! Where each row belongs to one expert, gates are 0 and 1. That the ends of the experts' rows do
//! not decrease is what such a region presumes; that the last is the number of rows follows from
//! the static type of its result.

use planner_ir::{Binary, Dynamic, Op, Region, Unary};

use super::body::Body;

/// What a region computes: `tail(concat_e(u[rows_e] down_e))` with `u = units(concat_e(x[rows_e]
/// wide_e))`, where the rows of an expert are those from the end of the one before to its own.
///
/// Values are the numbers of the region's operands.
pub(super) struct Sorted {
    /// All rows: x.
    pub(super) rows: usize,
    /// For each expert, the number of the first row that is not its own.
    pub(super) ends: Vec<usize>,
    /// For each expert, the weights of its units, `[h, ..]`.
    pub(super) wide: Vec<usize>,
    /// For each expert, the weights of its result.
    pub(super) down: Vec<usize>,
    /// What the units are.
    pub(super) units: Units,
    /// The function of the units.
    pub(super) activation: Unary,
    /// What is done to the result, in order.
    pub(super) tail: Vec<Step>,
}

/// An operation on a result.
pub(super) struct Step {
    pub(super) op: Op,
    /// The operand that has a part in it.
    pub(super) other: Option<usize>,
}

/// What becomes of the products with the wide weights.
#[derive(Clone, Copy)]
pub(super) enum Units {
    /// The activation of each.
    Plain,
    /// The activation of one half times the other.
    Gated {
        /// Which half is activated: 0 or 1.
        activated: usize,
    },
}

/// The mixture of experts that a region is.
pub(super) fn sorted(region: &Region) -> Option<Sorted> {
    let body = Body::of(region);
    let &[result] = region.results.as_slice() else {
        return None;
    };
    let (last, tail) = body.tail(result)?;
    let second = body.products(last)?;
    let (units, activation, products) = body.units(second.source)?;
    let first = body.products(products)?;
    let right = first.ranges == second.ranges && body.is_operand(first.source);
    let ends = body.ends(&first.ranges)?;
    let (rows, wide, down) = (first.source, first.weights, second.weights);
    right.then_some(Sorted { rows, ends, wide, down, units, activation, tail })
}

/// A concatenation of products of ranges of rows with weights.
struct Products {
    /// What the rows are of.
    source: usize,
    ranges: Vec<usize>,
    weights: Vec<usize>,
}

impl Body<'_> {
    /// The conversions and products with operands that end in a value, and what they start from.
    fn tail(&self, result: usize) -> Option<(usize, Vec<Step>)> {
        let mut tail = Vec::new();
        let mut value = result;
        loop {
            let (op, operands) = self.made(value)?;
            let (other, next) = match (op, operands) {
                (Op::Cast(_), &[x]) => (None, x),
                (Op::Binary(Binary::Mul), &[x, other]) if self.is_operand(other) => (Some(other), x),
                (Op::Binary(Binary::Mul), &[other, x]) if self.is_operand(other) => (Some(other), x),
                _ => break,
            };
            tail.push(Step { op: op.clone(), other });
            value = next;
        }
        tail.reverse();
        Some((value, tail))
    }

    fn products(&self, value: usize) -> Option<Products> {
        let (Op::Concat { dim: 0 }, parts) = self.made(value)? else {
            return None;
        };
        let mut found = Vec::new();
        for &part in parts {
            let (rows, weights) = self.product(part)?;
            let [source, range] = self.operands(rows, &Op::Gather { dim: 0 })?;
            found.push((source, range, weights));
        }
        let source = found.first()?.0;
        let one = found.iter().all(|it| it.0 == source);
        let (ranges, weights) = found.into_iter().map(|it| (it.1, it.2)).unzip();
        one.then_some(Products { source, ranges, weights })
    }

    /// The ends of ranges that follow each other from 0.
    fn ends(&self, ranges: &[usize]) -> Option<Vec<usize>> {
        let mut ends: Vec<usize> = Vec::new();
        for &range in ranges {
            let [start, end, step] = self.operands(range, &Op::Dynamic(Dynamic::Range))?;
            let follows = match ends.last() {
                Some(&before) => start == before,
                None => self.is_number(start, 0.0),
            };
            if !follows || !self.is_number(step, 1.0) || !self.is_operand(end) {
                return None;
            }
            ends.push(end);
        }
        Some(ends)
    }

    /// Which units a value is, their activation, and the products that they are made of.
    fn units(&self, value: usize) -> Option<(Units, Unary, usize)> {
        if let Some([a, b]) = self.operands(value, &Op::Binary(Binary::Mul))
            && let Some(found) = self.gated(a, b).or_else(|| self.gated(b, a))
        {
            return Some(found);
        }
        let (activation, products) = self.activated(value)?;
        Some((Units::Plain, activation, products))
    }

    /// `activation(half) * other half`.
    fn gated(&self, hidden: usize, gate: usize) -> Option<(Units, Unary, usize)> {
        let (activation, half) = self.activated(hidden)?;
        let ((node, activated), (other_node, other)) = (self.maker(half)?, self.maker(gate)?);
        let split = &self.region.nodes[node];
        let (Op::Dynamic(Dynamic::Split { dim: 1 }), &[products, counts]) = (&split.op, &split.operands[..])
        else {
            return None;
        };
        // One number for both: the parts are halves.
        let halves = matches!(self.made(counts)?.0, Op::Fill { result, .. } if result.shape == [2]);
        let right = halves && node == other_node && activated != other;
        right.then_some((Units::Gated { activated }, activation, products))
    }
}
