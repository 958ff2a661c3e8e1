//! Operations of which parts have fewer places than the model says.

use planner_ir::{Node, Op, Real, Type, ValueId};

use super::{Along, Ring};

impl Ring<'_> {
    /// An operation with what its operands have become, of results whose dimensions in the order of slots are known.
    pub(super) fn keep(&mut self, node: &Node, op: Op, operands: Vec<ValueId>) -> Result<(), String> {
        let mut types = self.old.types_of(&node.results);
        for (type_, result) in types.iter_mut().zip(&node.results) {
            for (&dim, along) in &self.slots[result.0] {
                type_.shape[dim] = along.size();
            }
        }
        let op = self.sized(node, &op, &types);
        if op.infer(&self.graph.types_of(&operands)).ok().as_ref() != Some(&types) {
            return Err("is of a number of places that cannot be another".to_owned());
        }
        self.push_as(node, op, operands, types);
        Ok(())
    }

    /// An operation whose results have these types: what it says of sizes is of these.
    fn sized(&self, node: &Node, op: &Op, types: &[Type]) -> Op {
        let (Op::Slice { starts, steps, sizes }, [operand]) = (op, &node.operands[..]) else {
            return types.first().map_or_else(|| op.clone(), |it| reshaped(op, it));
        };
        let (mut starts, mut sizes) = (starts.clone(), sizes.clone());
        for (&dim, along) in &self.slots[operand.0] {
            if starts[dim] >= self.capacity {
                starts[dim] = starts[dim] - self.capacity + along.places;
            }
            sizes[dim] = types[0].shape[dim];
        }
        Op::Slice { starts, steps: steps.clone(), sizes }
    }

    /// Numbers that are the same, or count up, where they are made for the last places; nothing of another operation.
    pub(super) fn numbers(&self, op: &Op, dim: usize, along: Along) -> Result<Option<Op>, String> {
        Ok(match op {
            Op::Fill { result, value } => {
                let mut result = result.clone();
                result.shape[dim] = along.size();
                Some(Op::Fill { result, value: *value })
            }
            Op::Iota { dtype, start, step, .. } if self.slot.is_none() && !dtype.is_float() => {
                let first = self.real(self.capacity - along.places)?;
                let start = Real(step.0.mul_add(first, start.0));
                Some(Op::Iota { dtype: *dtype, length: along.size(), start, step: *step })
            }
            _ => None,
        })
    }

    /// So many of the last numbers along a dimension.
    pub(super) fn last(&mut self, value: ValueId, dim: usize, count: u64) -> Result<ValueId, String> {
        let shape = &self.graph.type_of(value).shape;
        let Some(first) = shape[dim].checked_sub(count) else {
            return Err(format!("has {} places, expected {count}", shape[dim]));
        };
        if first == 0 {
            return Ok(value);
        }
        let (mut starts, mut sizes) = (vec![0; shape.len()], shape.clone());
        (starts[dim], sizes[dim]) = (first, count);
        let steps = vec![1; sizes.len()];
        self.push(Op::Slice { starts, steps, sizes }, vec![value], "")
    }
}

/// An operation that says the shape of its result, with that of this type.
pub(super) fn reshaped(op: &Op, type_: &Type) -> Op {
    match op {
        Op::Reshape { .. } => Op::Reshape { shape: type_.shape.clone() },
        Op::Expand { .. } => Op::Expand { shape: type_.shape.clone() },
        other => other.clone(),
    }
}
