//! Other numbers beside those of all places: sinks are a score more than there are keys.

use planner_ir::{Node, Op};

use super::{Along, InSlots, Ring};

impl Ring<'_> {
    /// Of an operation that puts other numbers behind those of all places, or takes them away again: the dimensions of
    /// its result that are in the order of slots. Nothing of another operation.
    pub(super) fn beside(&self, node: &Node) -> Option<InSlots> {
        match &node.op {
            Op::Concat { dim } => self.put_behind(node, *dim),
            Op::Slice { starts, steps, sizes } => self.taken(node, starts, steps, sizes),
            _ => None,
        }
    }

    fn put_behind(&self, node: &Node, dim: usize) -> Option<InSlots> {
        let (first, others) = node.operands.split_first()?;
        let along = *self.slots[first.0].get(&dim).filter(|_| self.slots[first.0].len() == 1)?;
        if others.iter().any(|it| !self.slots[it.0].is_empty()) {
            return None;
        }
        let more: u64 = others.iter().map(|it| self.old.type_of(*it).shape[dim]).sum();
        Some(InSlots::from([(dim, Along { behind: along.behind + more, ..along })]))
    }

    fn taken(&self, node: &Node, starts: &[u64], steps: &[i64], sizes: &[u64]) -> Option<InSlots> {
        let operand = *node.operands.first()?;
        let mut left = InSlots::new();
        for (&dim, &along) in &self.slots[operand.0] {
            let (start, size) = (starts[dim], sizes[dim]);
            if steps[dim] != 1 {
                return None;
            }
            if start == 0 && size >= self.capacity {
                let behind = (size - self.capacity).min(along.behind);
                left.insert(dim, Along { behind, ..along });
            } else if start < self.capacity {
                return None;
            }
        }
        Some(left)
    }
}
