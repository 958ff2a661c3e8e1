//! Values brought from the model's order of places into that of slots.

use std::collections::BTreeSet;

use planner_ir::{Binary, DType, Node, Op, Real, Source, Type, ValueId};

use super::Ring;

impl Ring<'_> {
    /// A value of the old graph with these dimensions in the order of slots.
    pub(super) fn in_slots(&mut self, old: ValueId, dims: &BTreeSet<usize>) -> Result<ValueId, String> {
        let missing: Vec<usize> = dims.difference(&self.slots[old.0]).copied().collect();
        match missing[..] {
            [only] if self.slots[old.0].is_empty() => self.rolled(old, only),
            _ => missing.into_iter().try_fold(self.made[old.0], |value, dim| self.gathered(value, dim, "")),
        }
    }

    /// A value in the model's order with a dimension in the order of slots. What is made element by element is made
    /// again of operands in that order, so that masks stay what they are known by, and one that many layers make
    /// something of is brought into it once.
    fn rolled(&mut self, old: ValueId, dim: usize) -> Result<ValueId, String> {
        if let Some(&known) = self.rolled.get(&(old, dim)) {
            return Ok(known);
        }
        let graph = self.old;
        let rolled = match graph.value(old).source {
            Source::Result { node, .. } if matches!(graph.node(node).op, Op::Fill { .. }) => self.made[old.0],
            Source::Result { node, .. } => match self.operands_along(graph.node(node), dim) {
                Some(along) => self.again(graph.node(node), &along)?,
                None => self.gathered(self.made[old.0], dim, &graph.node(node).origin)?,
            },
            Source::Input(_) | Source::Weight(_) | Source::State(_) => {
                self.gathered(self.made[old.0], dim, "")?
            }
        };
        self.rolled.insert((old, dim), rolled);
        Ok(rolled)
    }

    /// Of an operation whose result is made element by element, for each operand the dimension that becomes this one
    /// of the result, if it is not repeated along it.
    fn operands_along(&self, node: &Node, dim: usize) -> Option<Vec<Option<usize>>> {
        let is_by_element = match node.op {
            Op::Unary(_)
            | Op::Binary(_)
            | Op::Select
            | Op::Cast(_)
            | Op::Gated(_)
            | Op::Expand { .. }
            | Op::Reshape { .. }
            | Op::Transpose { .. } => true,
            _ => false,
        };
        if !is_by_element {
            return None;
        }
        let loops = node.op.loops(&self.old.types_of(&node.operands), &self.old.types_of(&node.results));
        let [only] = loops.results.first()?[dim][..] else { return None };
        let along = |dims: &Vec<Vec<_>>| match dims.iter().position(|it| it.contains(&only)) {
            Some(found) if dims[found].len() == 1 => Some(Some(found)),
            Some(_) => None,
            None => Some(None),
        };
        loops.operands.iter().map(along).collect()
    }

    /// An operation again, of operands with such dimensions in the order of slots.
    fn again(&mut self, node: &Node, along: &[Option<usize>]) -> Result<ValueId, String> {
        let mut operands = Vec::new();
        for (&operand, along) in node.operands.iter().zip(along) {
            operands.push(match along {
                Some(dim) => self.rolled(operand, *dim)?,
                None => self.made[operand.0],
            });
        }
        self.push(node.op.clone(), operands, &node.origin)
    }

    /// A new value with a dimension in the order of slots.
    fn gathered(&mut self, value: ValueId, dim: usize, origin: &str) -> Result<ValueId, String> {
        let order = self.order()?;
        self.push(Op::Gather { dim }, vec![value, order], origin)
    }

    /// For each slot its place in the model's order: `(j − slot − 1) mod places`.
    pub(super) fn order(&mut self) -> Result<ValueId, String> {
        if let Some(known) = self.order {
            return Ok(known);
        }
        let before = Op::Iota { dtype: DType::I64, length: self.places, start: Real(-1.0), step: Real(1.0) };
        let before = self.push(before, vec![], "")?;
        let from = self.push(Op::Binary(Binary::Sub), vec![before, self.slot], "")?;
        let places = self.number(self.places)?;
        let order = self.push(Op::Binary(Binary::Mod), vec![from, places], "")?;
        self.order = Some(order);
        Ok(order)
    }

    /// A number of places.
    pub(super) fn number(&mut self, number: u64) -> Result<ValueId, String> {
        let places = i32::try_from(number).map_err(|_| format!("{number} places, expected at most {}", i32::MAX))?;
        let op = Op::Fill { result: Type::new(DType::I64, []), value: Real(f64::from(places)) };
        self.push(op, vec![], "")
    }
}
