//! The regions that are mixtures of experts over sorted rows.

use planner_ir::{Binary, Contract, Dynamic, Label, Op, Region, Unary};

/// What a region computes: `tail(concat_e(u[rows_e] down_e))` with `u = units(concat_e(x[rows_e]
/// wide_e))`, where the rows of an expert are those from the end of the one before to its own.
///
/// Values are the numbers of the region's operands.
pub(super) struct Grouped {
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
pub(super) fn grouped(region: &Region) -> Option<Grouped> {
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
    right.then_some(Grouped { rows, ends, wide, down, units, activation, tail })
}

/// A concatenation of products of ranges of rows with weights.
struct Products {
    /// What the rows are of.
    source: usize,
    ranges: Vec<usize>,
    weights: Vec<usize>,
}

/// A region, and which node makes each of its values.
struct Body<'a> {
    region: &'a Region,
    /// For each value that is not an operand, its node and which of the results it is.
    makers: Vec<(usize, usize)>,
}

impl<'a> Body<'a> {
    fn of(region: &'a Region) -> Self {
        let results = |(index, node): (usize, &'a planner_ir::RegionNode)| {
            (0..node.results).map(move |result| (index, result))
        };
        Self { region, makers: region.nodes.iter().enumerate().flat_map(results).collect() }
    }

    fn is_operand(&self, value: usize) -> bool {
        value < self.region.operands
    }

    /// The node that makes a value, and which of its results it is.
    fn maker(&self, value: usize) -> Option<(usize, usize)> {
        self.makers.get(value.checked_sub(self.region.operands)?).copied()
    }

    /// The operation whose only result a value is, and what it is computed from.
    fn made(&self, value: usize) -> Option<(&'a Op, &'a [usize])> {
        let node = &self.region.nodes[self.maker(value)?.0];
        (node.results == 1).then_some((&node.op, &node.operands))
    }

    /// The operands of a value that is made by that operation.
    fn operands<const COUNT: usize>(&self, value: usize, op: &Op) -> Option<[usize; COUNT]> {
        let (made, operands) = self.made(value)?;
        if made == op { operands.try_into().ok() } else { None }
    }

    /// Whether all elements of a value are that number.
    fn is_number(&self, value: usize, number: f64) -> bool {
        matches!(self.made(value), Some((Op::Fill { value, .. }, _)) if value.0.to_bits() == number.to_bits())
    }

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
        let labels = |of: [u8; 2]| of.map(Label).to_vec();
        let product = Contract { left: labels([0, 1]), right: labels([1, 2]), result: labels([0, 2]) };
        let mut found = Vec::new();
        for &part in parts {
            let (Op::Contract(contract), &[rows, weights]) = self.made(part)? else {
                return None;
            };
            if crate::raise::make::canonical(contract) != product || !self.is_operand(weights) {
                return None;
            }
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

    /// `activation(x)`: which, and x.
    fn activated(&self, value: usize) -> Option<(Unary, usize)> {
        match self.made(value)? {
            (Op::Unary(activation), &[x]) if is_activation(*activation) => Some((*activation, x)),
            (Op::Binary(Binary::Mul), &[a, b]) => {
                let sigmoid = Op::Unary(Unary::Sigmoid);
                let x =
                    [(a, b), (b, a)].into_iter().find(|&(x, it)| self.operands(it, &sigmoid) == Some([x]))?.0;
                Some((Unary::Silu, x))
            }
            _ => None,
        }
    }
}

fn is_activation(unary: Unary) -> bool {
    use Unary::{Gelu, GeluQuick, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    matches!(unary, Gelu | GeluQuick | GeluTanh | Relu | Sigmoid | Silu | Tanh)
}
