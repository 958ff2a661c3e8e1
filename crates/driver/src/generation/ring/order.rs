//! Values brought from the model's order of places into that of slots.

use planner_ir::{Binary, DType, Node, Op, Real, Source, Type, ValueId};

use super::sizes::reshaped;
use super::{Along, InSlots, Ring};

impl Ring<'_> {
    /// A value of the old graph with these dimensions in the order of slots.
    pub(super) fn in_slots(&mut self, old: ValueId, dims: &InSlots) -> Result<ValueId, String> {
        let is_missing = |it: &(usize, Along)| !self.slots[old.0].contains_key(&it.0);
        let missing: Vec<(usize, Along)> = dims.iter().map(|it| (*it.0, *it.1)).filter(is_missing).collect();
        match missing[..] {
            [(dim, along)] if self.slots[old.0].is_empty() => self.rolled(old, dim, along),
            _ => missing.into_iter().try_fold(self.made[old.0], |value, it| self.gathered(value, it, "")),
        }
    }

    /// A value in the model's order with a dimension in the order of slots. What is made element by element is made
    /// again of operands in that order, so that masks stay what they are known by, and one that many layers make
    /// something of is brought into it once.
    fn rolled(&mut self, old: ValueId, dim: usize, along: Along) -> Result<ValueId, String> {
        if let Some(&known) = self.rolled.get(&(old, dim, along)) {
            return Ok(known);
        }
        let graph = self.old;
        let rolled = match graph.value(old).source {
            Source::Result { node, .. } => {
                let node = graph.node(node);
                match (self.numbers(&node.op, dim, along)?, self.operands_along(node, dim)) {
                    (Some(op), _) => self.push(op, vec![], &node.origin)?,
                    (None, Some(operands)) => self.again(node, &operands, (dim, along))?,
                    (None, None) => self.gathered(self.made[old.0], (dim, along), &node.origin)?,
                }
            }
            Source::Input(_) | Source::Weight(_) | Source::State(_) => {
                self.gathered(self.made[old.0], (dim, along), "")?
            }
        };
        self.rolled.insert((old, dim, along), rolled);
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
    fn again(
        &mut self,
        node: &Node,
        dims: &[Option<usize>],
        (dim, along): (usize, Along),
    ) -> Result<ValueId, String> {
        let mut operands = Vec::new();
        for (&operand, of_operand) in node.operands.iter().zip(dims) {
            operands.push(match of_operand {
                Some(dim) => self.rolled(operand, *dim, along)?,
                None => self.made[operand.0],
            });
        }
        let mut type_ = self.old.type_of(node.results[0]).clone();
        type_.shape[dim] = along.size();
        self.push(reshaped(&node.op, &type_), operands, &node.origin)
    }

    /// A new value with a dimension in the order of slots.
    fn gathered(
        &mut self,
        value: ValueId,
        (dim, along): (usize, Along),
        origin: &str,
    ) -> Result<ValueId, String> {
        if self.slot.is_none() {
            return self.last(value, dim, along.size());
        }
        let order = self.order(along)?;
        self.push(Op::Gather { dim }, vec![value, order], origin)
    }

    /// For each slot its place in the model's order: of so many places the last ones, `(j − slot − 1) mod places` of
    /// them; and the numbers behind them as they are.
    pub(super) fn order(&mut self, along: Along) -> Result<ValueId, String> {
        if let Some(&known) = self.order.get(&along) {
            return Ok(known);
        }
        let order =
            if along.behind == 0 { self.order_of_slots(along.places)? } else { self.order_with(along)? };
        self.order.insert(along, order);
        Ok(order)
    }

    fn order_with(&mut self, along: Along) -> Result<ValueId, String> {
        let order = self.order(Along { behind: 0, ..along })?;
        let start = Real(self.real(self.capacity)?);
        let rest = Op::Iota { dtype: DType::I64, length: along.behind, start, step: Real(1.0) };
        let rest = self.push(rest, vec![], "")?;
        self.push(Op::Concat { dim: 0 }, vec![order, rest], "")
    }

    fn order_of_slots(&mut self, places: u64) -> Result<ValueId, String> {
        let (slot, _) = self.slot.ok_or("is in the model's order")?;
        let before = Op::Iota { dtype: DType::I64, length: places, start: Real(-1.0), step: Real(1.0) };
        let before = self.push(before, vec![], "")?;
        let from = self.push(Op::Binary(Binary::Sub), vec![before, slot], "")?;
        let count = self.number(places)?;
        let order = self.push(Op::Binary(Binary::Mod), vec![from, count], "")?;
        if places == self.capacity {
            return Ok(order);
        }
        let first = self.number(self.capacity - places)?;
        self.push(Op::Binary(Binary::Add), vec![order, first], "")
    }

    /// A number of places.
    pub(super) fn number(&mut self, number: u64) -> Result<ValueId, String> {
        let op = Op::Fill { result: Type::new(DType::I64, []), value: Real(self.real(number)?) };
        self.push(op, vec![], "")
    }

    pub(super) fn real(&self, number: u64) -> Result<f64, String> {
        let number = u32::try_from(number);
        number
            .map(f64::from)
            .map_err(|_| format!("there are {} places, expected at most {}", self.capacity, u32::MAX))
    }
}
