//! Operations added to a graph: experts, and the gates that say which rows are whose.

use planner_ir::{Binary, Edge, Graph, Op, Real, Scatter, Type, ValueId};

use super::masked::Mixture;
use super::origin::made;
use super::sorted::{Sorted, Step, Units};

/// A graph that operations are added to, each if its operands fit.
pub(super) struct Build<'a> {
    pub(super) graph: &'a mut Graph,
    pub(super) origin: &'a str,
}

impl Build<'_> {
    fn push(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        let types = op.infer(&self.graph.types_of(operands)).ok()?;
        self.graph.push_node(op, operands.to_vec(), types, self.origin.to_owned()).first().copied()
    }

    /// What a region over sorted rows computes from these operands.
    pub(super) fn sorted(&mut self, it: &Sorted, operands: &[ValueId]) -> Option<ValueId> {
        let those = |of: &[usize]| -> Vec<ValueId> { of.iter().map(|&operand| operands[operand]).collect() };
        let x = operands[it.rows];
        let gates = self.among(x, &those(&it.ends))?;
        let wide = self.stacked(&those(&it.wide))?;
        let down = self.stacked(&those(&it.down))?;
        let mut weights = match it.units {
            Units::Plain => vec![self.outward(wide)?],
            Units::Gated { activated } => {
                let halves = [self.half(wide, 0)?, self.half(wide, 1)?];
                vec![*halves.get(activated)?, *halves.get(1 - activated)?]
            }
        };
        weights.push(self.outward(down)?);
        let op = Op::Experts { activation: it.activation, limit: None, active: 1 };
        let mut made = self.push(op, &[vec![x, gates], weights].concat())?;
        for Step { op, other } in &it.tail {
            let operands: Vec<ValueId> =
                [Some(made), other.map(|it| operands[it])].into_iter().flatten().collect();
            made = self.push(op.clone(), &operands)?;
        }
        Some(made)
    }

    /// What a sum of regions over marked rows computes.
    pub(super) fn masked(&mut self, it: &Mixture) -> Option<ValueId> {
        let x = self.reshaped(it.rows, &[it.tokens, it.width])?;
        let shares = self.reshaped(it.shares, &[it.tokens, it.active])?;
        let gates = self.chosen(it.chosen, shares, it.weights.len())?;
        let first = it.weights.first()?;
        let mut operands = vec![x, gates];
        for which in 0..first.len() {
            let parts: Option<Vec<ValueId>> = it.weights.iter().map(|of| of.get(which).copied()).collect();
            operands.push(self.stacked_outward(&parts?)?);
        }
        self.push(Op::Experts { activation: it.activation, limit: None, active: it.active }, &operands)
    }

    /// For each row and each expert, the share of the expert if the row chose it, else 0: from
    /// the numbers of the chosen experts and their shares, both `[t, k]`.
    fn chosen(&mut self, chosen: ValueId, shares: ValueId, experts: usize) -> Option<ValueId> {
        let Type { dtype, shape } = self.graph.type_of(shares).clone();
        let result = Type::new(dtype, vec![*shape.first()?, u64::try_from(experts).ok()?]);
        let none = self.push(Op::Fill { result, value: Real(0.0) }, &[])?;
        self.push(Op::ScatterElements { dim: 1, scatter: Scatter::Add }, &[none, chosen, shares])
    }

    /// For each row of x and each expert, whether the row is among the expert's: 1 or 0.
    fn among(&mut self, x: ValueId, ends: &[ValueId]) -> Option<ValueId> {
        let Type { dtype, shape } = self.graph.type_of(x).clone();
        let length = *shape.first()?;
        let ends = self.stacked(ends)?;
        let integers = self.graph.type_of(ends).dtype;
        // Each expert starts where the one before ends, the first at 0.
        let moved = Op::Pad { before: vec![1], after: vec![-1], edge: Edge::Constant(Real(0.0)) };
        let starts = self.push(moved, &[ends])?;
        let numbers =
            self.push(Op::Iota { dtype: integers, length, start: Real(0.0), step: Real(1.0) }, &[])?;
        let numbers = self.push(Op::Reshape { shape: vec![length, 1] }, &[numbers])?;
        let started = self.push(Op::Binary(Binary::GreaterOrEqual), &[numbers, starts])?;
        let not_ended = self.push(Op::Binary(Binary::Less), &[numbers, ends])?;
        let among = self.push(Op::Binary(Binary::And), &[started, not_ended])?;
        self.push(Op::Cast(dtype), &[among])
    }

    /// One half of the units of `wide: [e, h, 2 f]`, as `[e, f, h]`.
    fn half(&mut self, wide: ValueId, half: u64) -> Option<ValueId> {
        let shape = &self.graph.type_of(wide).shape;
        let &[experts, hidden, units] = shape.as_slice() else {
            return None;
        };
        if !units.is_multiple_of(2) {
            return None;
        }
        let extent = units / 2;
        let (starts, sizes) = (vec![0, 0, half * extent], vec![experts, hidden, extent]);
        let part = self.push(Op::Slice { starts, steps: vec![1; 3], sizes }, &[wide])?;
        self.outward(part)
    }

    /// Weights `[e, in, out]` as `[e, out, in]`.
    fn outward(&mut self, weights: ValueId) -> Option<ValueId> {
        self.push(Op::Transpose { permutation: vec![0, 2, 1] }, &[weights])
    }

    /// Weights `[in, out]` of each expert as `[e, out, in]`: what they are transposed from, if
    /// they are.
    fn stacked_outward(&mut self, parts: &[ValueId]) -> Option<ValueId> {
        let untransposed = |&part: &ValueId| match made(self.graph, part) {
            Some((Op::Transpose { permutation }, &[weights])) if *permutation == [1, 0] => Some(weights),
            _ => None,
        };
        if let Some(parts) = parts.iter().map(untransposed).collect::<Option<Vec<ValueId>>>() {
            return self.stacked(&parts);
        }
        let inward = self.stacked(parts)?;
        self.outward(inward)
    }

    fn reshaped(&mut self, value: ValueId, shape: &[u64]) -> Option<ValueId> {
        if self.graph.type_of(value).shape == shape {
            return Some(value);
        }
        self.push(Op::Reshape { shape: shape.to_vec() }, &[value])
    }

    /// The values one after another along a new first dimension; the value that they are the
    /// elements of, if there is one.
    fn stacked(&mut self, parts: &[ValueId]) -> Option<ValueId> {
        let first = self.graph.type_of(*parts.first()?).clone();
        if parts.iter().any(|&part| *self.graph.type_of(part) != first) {
            return None;
        }
        let count = u64::try_from(parts.len()).ok()?;
        let all = Type::new(first.dtype, [vec![count], first.shape.clone()].concat());
        let mut wholes = (0..).zip(parts).map(|(index, &part)| self.whole(part, index));
        if let Some(Some(whole)) = wholes.next()
            && wholes.all(|it| it == Some(whole))
            && *self.graph.type_of(whole) == all
        {
            return Some(whole);
        }
        let shape = [vec![1], first.shape].concat();
        let rows: Option<Vec<ValueId>> =
            parts.iter().map(|&part| self.push(Op::Reshape { shape: shape.clone() }, &[part])).collect();
        self.push(Op::Concat { dim: 0 }, &rows?)
    }

    /// The value of which a part is the element of that index along the first dimension.
    fn whole(&self, part: ValueId, index: u64) -> Option<ValueId> {
        let (Op::Reshape { shape }, &[slice]) = made(self.graph, part)? else {
            return None;
        };
        let (Op::Slice { starts, steps, sizes }, &[whole]) = made(self.graph, slice)? else {
            return None;
        };
        let extents = self.graph.type_of(whole).shape.get(1..)?;
        let right = shape == extents
            && sizes.split_first() == Some((&1, extents))
            && starts.first() == Some(&index)
            && starts[1..].iter().all(|&start| start == 0)
            && steps.iter().all(|&step| step == 1);
        right.then_some(whole)
    }
}
