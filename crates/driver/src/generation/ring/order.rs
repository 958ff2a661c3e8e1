//! Values brought from the model's order of places into that of slots.

use planner_ir::{Binary, DType, Node, Op, Real, Source, Type, ValueId};

use super::{InSlots, Ring};

impl Ring<'_> {
    /// A value of the old graph with these dimensions in the order of slots.
    pub(super) fn in_slots(&mut self, old: ValueId, dims: &InSlots) -> Result<ValueId, String> {
        let is_missing = |it: &(usize, u64)| !self.slots[old.0].contains_key(&it.0);
        let missing: Vec<(usize, u64)> = dims.iter().map(|it| (*it.0, *it.1)).filter(is_missing).collect();
        match missing[..] {
            [(dim, behind)] if self.slots[old.0].is_empty() => self.rolled(old, dim, behind),
            _ => missing.into_iter().try_fold(self.made[old.0], |value, it| self.gathered(value, it, "")),
        }
    }

    /// A value in the model's order with a dimension in the order of slots. What is made element by element is made
    /// again of operands in that order, so that masks stay what they are known by, and one that many layers make
    /// something of is brought into it once.
    fn rolled(&mut self, old: ValueId, dim: usize, behind: u64) -> Result<ValueId, String> {
        if let Some(&known) = self.rolled.get(&(old, dim, behind)) {
            return Ok(known);
        }
        let graph = self.old;
        let rolled = match graph.value(old).source {
            Source::Result { node, .. } if matches!(graph.node(node).op, Op::Fill { .. }) => self.made[old.0],
            Source::Result { node, .. } => match self.operands_along(graph.node(node), dim) {
                Some(along) => self.again(graph.node(node), &along, behind)?,
                None => self.gathered(self.made[old.0], (dim, behind), &graph.node(node).origin)?,
            },
            Source::Input(_) | Source::Weight(_) | Source::State(_) => {
                self.gathered(self.made[old.0], (dim, behind), "")?
            }
        };
        self.rolled.insert((old, dim, behind), rolled);
        Ok(rolled)
    }

    /// Of an operation whose result is made element by element, for each operand the dimension that becomes this one
    /// of the result, if it is not repeated along it.
    fn operands_along(&self, node: &Node, dim: usize) -> Option<Vec<Option<usize>>> {
        let is_by_element = matches!(
            node.op,
            Op::Unary(_)
                | Op::Binary(_)
                | Op::Select
                | Op::Cast(_)
                | Op::Gated(_)
                | Op::Expand { .. }
                | Op::Reshape { .. }
                | Op::Transpose { .. }
        );
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
    fn again(&mut self, node: &Node, along: &[Option<usize>], behind: u64) -> Result<ValueId, String> {
        let mut operands = Vec::new();
        for (&operand, along) in node.operands.iter().zip(along) {
            operands.push(match along {
                Some(dim) => self.rolled(operand, *dim, behind)?,
                None => self.made[operand.0],
            });
        }
        self.push(node.op.clone(), operands, &node.origin)
    }

    /// A new value with a dimension in the order of slots.
    fn gathered(&mut self, value: ValueId, along: (usize, u64), origin: &str) -> Result<ValueId, String> {
        let (dim, behind) = along;
        let order = self.order(behind)?;
        self.push(Op::Gather { dim }, vec![value, order], origin)
    }

    /// For each slot its place in the model's order: `(j − slot − 1) mod places`; and so many numbers behind them as
    /// they are.
    pub(super) fn order(&mut self, behind: u64) -> Result<ValueId, String> {
        if let Some(&known) = self.order.get(&behind) {
            return Ok(known);
        }
        let order = if behind == 0 { self.order_of_slots()? } else { self.order_with(behind)? };
        self.order.insert(behind, order);
        Ok(order)
    }

    fn order_with(&mut self, behind: u64) -> Result<ValueId, String> {
        let order = self.order(0)?;
        let start = Real(self.real(self.places)?);
        let rest = Op::Iota { dtype: DType::I64, length: behind, start, step: Real(1.0) };
        let rest = self.push(rest, vec![], "")?;
        self.push(Op::Concat { dim: 0 }, vec![order, rest], "")
    }

    fn order_of_slots(&mut self) -> Result<ValueId, String> {
        let before = Op::Iota { dtype: DType::I64, length: self.places, start: Real(-1.0), step: Real(1.0) };
        let before = self.push(before, vec![], "")?;
        let from = self.push(Op::Binary(Binary::Sub), vec![before, self.slot], "")?;
        let places = self.number(self.places)?;
        self.push(Op::Binary(Binary::Mod), vec![from, places], "")
    }

    /// A number of places.
    pub(super) fn number(&mut self, number: u64) -> Result<ValueId, String> {
        let op = Op::Fill { result: Type::new(DType::I64, []), value: Real(self.real(number)?) };
        self.push(op, vec![], "")
    }

    fn real(&self, number: u64) -> Result<f64, String> {
        let number = u32::try_from(number);
        number
            .map(f64::from)
            .map_err(|_| format!("there are {} places, expected at most {}", self.places, u32::MAX))
    }
}
