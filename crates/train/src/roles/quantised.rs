//! Weights that only scale numbers which are quantised.
//!
//! A scale and the integers beside it were found together, from a parameter that is not in the file: the
//! integers have no gradient, and a step along the scales alone is another step than that of the parameter.

use std::collections::BTreeSet;

use planner_ir::{Binary, DType, Node, Op, Source, Unary, ValueId};

use super::uses::Uses;

/// How far is looked for what is quantised (operations).
const FAR: usize = 10;

/// Whether numbers of a type are never what a module has, but what its numbers were rounded to.
pub(crate) fn is_narrow(dtype: DType) -> bool {
    dtype.is_f8() || matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16)
}

impl Uses<'_> {
    /// Whether quantised numbers are multiplied by a weight, or it is added to them, and it is used for
    /// nothing else.
    pub(crate) fn scales_quantised(&self, weight: ValueId) -> bool {
        let mut scales = false;
        let mut seen = BTreeSet::from([weight]);
        let mut moved = vec![weight];
        while let Some(value) = moved.pop() {
            for &user in &self.users[value.0] {
                let node = self.graph.node(user);
                let place = node.operands.iter().position(|it| *it == value).unwrap_or(0);
                let others = || node.operands.iter().filter(|it| **it != value);
                match &node.op {
                    Op::Dequantize { .. } if place > 0 => scales = true,
                    Op::Binary(Binary::Mul | Binary::Div | Binary::Add | Binary::Sub)
                        if others().any(|&it| self.is_quantised(it, FAR)) =>
                    {
                        scales = true;
                    }
                    Op::Binary(Binary::Div) if place == 1 && self.is_rounded(node.results[0], FAR) => {
                        scales = true;
                    }
                    Op::Gather { .. } if place == 0 => {
                        moved.extend(node.results.iter().copied().filter(|it| seen.insert(*it)));
                    }
                    _ if node.results.iter().all(|it| self.prepared[it.0]) => {
                        moved.extend(node.results.iter().copied().filter(|it| seen.insert(*it)));
                    }
                    _ => return false,
                }
            }
        }
        scales
    }

    /// Whether a value is quantised numbers, as numbers of floating point perhaps, moved, shifted or scaled.
    fn is_quantised(&self, value: ValueId, far: usize) -> bool {
        let dtype = self.graph.type_of(value).dtype;
        let Some(far) = far.checked_sub(1) else { return false };
        match &self.graph.value(value).source {
            Source::Weight(_) => is_narrow(dtype) || dtype == DType::I32,
            Source::Result { node, .. } => self.makes_quantised(self.graph.node(*node), far),
            _ => false,
        }
    }

    fn makes_quantised(&self, node: &Node, far: usize) -> bool {
        let is_float = node.results.iter().any(|it| self.graph.type_of(*it).dtype.is_float());
        match &node.op {
            Op::Dequantize { .. } | Op::Unary(Unary::Round) => true,
            Op::Gather { .. } => self.is_quantised(node.operands[0], far),
            Op::Contract(_) | Op::Conv(_) if !is_float => {
                node.operands.iter().all(|&it| self.is_quantised(it, far))
            }
            Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Slice { .. }
            | Op::Expand { .. }
            | Op::Concat { .. }
            | Op::Cast(_)
            | Op::Binary(_)
            | Op::Select => match self.computed(node) {
                Some(computed) => self.is_quantised(computed, far),
                None => node.operands.iter().any(|&it| self.is_quantised(it, far)),
            },
            _ => false,
        }
    }

    /// Whether a value is rounded, with nothing but operations on elements between.
    fn is_rounded(&self, value: ValueId, far: usize) -> bool {
        let Some(far) = far.checked_sub(1) else { return false };
        self.users[value.0].iter().any(|&user| {
            let node = self.graph.node(user);
            match &node.op {
                Op::Unary(Unary::Round) => true,
                Op::Cast(to) if is_narrow(*to) => true,
                Op::Cast(_) | Op::Reshape { .. } | Op::Transpose { .. } | Op::Binary(_) | Op::Select => {
                    self.is_rounded(node.results[0], far)
                }
                _ => false,
            }
        })
    }
}
