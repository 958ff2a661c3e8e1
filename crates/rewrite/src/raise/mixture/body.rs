//! A region, and which node makes each of its values.

use planner_ir::{Binary, Contract, Label, Op, Region, RegionNode, Unary};

use crate::raise::make::canonical;

/// A region, and which node makes each of its values.
pub(super) struct Body<'a> {
    pub(super) region: &'a Region,
    /// For each value that is not an operand, its node and which of the results it is.
    makers: Vec<(usize, usize)>,
}

impl<'a> Body<'a> {
    pub(super) fn of(region: &'a Region) -> Self {
        let results =
            |(index, node): (usize, &'a RegionNode)| (0..node.results).map(move |result| (index, result));
        Self { region, makers: region.nodes.iter().enumerate().flat_map(results).collect() }
    }

    pub(super) fn is_operand(&self, value: usize) -> bool {
        value < self.region.operands
    }

    /// The node that makes a value, and which of its results it is.
    pub(super) fn maker(&self, value: usize) -> Option<(usize, usize)> {
        self.makers.get(value.checked_sub(self.region.operands)?).copied()
    }

    /// The operation whose only result a value is, and what it is computed from.
    pub(super) fn made(&self, value: usize) -> Option<(&'a Op, &'a [usize])> {
        let node = &self.region.nodes[self.maker(value)?.0];
        (node.results == 1).then_some((&node.op, &node.operands))
    }

    /// The operands of a value that is made by that operation.
    pub(super) fn operands<const COUNT: usize>(&self, value: usize, op: &Op) -> Option<[usize; COUNT]> {
        let (made, operands) = self.made(value)?;
        if made == op { operands.try_into().ok() } else { None }
    }

    /// Whether all elements of a value are that number.
    pub(super) fn is_number(&self, value: usize, number: f64) -> bool {
        matches!(self.made(value), Some((Op::Fill { value, .. }, _)) if value.0.to_bits() == number.to_bits())
    }

    /// The rows and the weights, `[in, out]` and an operand, that a value is the product of.
    pub(super) fn product(&self, value: usize) -> Option<(usize, usize)> {
        match self.made(value)? {
            (Op::Contract(contract), &[rows, weights])
                if is_product(contract) && self.is_operand(weights) =>
            {
                Some((rows, weights))
            }
            _ => None,
        }
    }

    /// `activation(x)`: which, and x.
    pub(super) fn activated(&self, value: usize) -> Option<(Unary, usize)> {
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

/// Whether it is the product of two matrices, neither of them transposed.
pub(super) fn is_product(contract: &Contract) -> bool {
    let labels = |of: [u8; 2]| of.map(Label).to_vec();
    let product = Contract { left: labels([0, 1]), right: labels([1, 2]), result: labels([0, 2]) };
    canonical(contract) == product
}
