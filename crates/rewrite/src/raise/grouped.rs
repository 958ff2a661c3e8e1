//! Mixtures of experts that a region computes expert by expert, as one operation each.
//!
//! Some exporters sort the rows by expert and write, for each expert, a product with the rows
//! from where the expert before ended to where this one ends. How many they are is data, so that
//! it is a region, which nobody can split. Where each row belongs to one expert, the same is
//! `Op::Experts` with gates of 0 and 1, whose shapes are known.

mod body; // what a region computes, if it is such a mixture

use planner_ir::{Binary, Edge, Graph, Op, Output, Real, Source, Type, ValueId};

use body::{Grouped, Step, Units, grouped};

/// The graph with mixtures of experts for the regions that are such.
///
/// That the ends of the experts' rows do not decrease is what such a product presumes; that the
/// last is the number of rows follows from the static type of the region's result.
pub(super) fn ungrouped(graph: &Graph) -> Graph {
    let mut result = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values: Vec<ValueId> = vec![ValueId(usize::MAX); graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = result.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for node in &graph.nodes {
        let operands: Vec<ValueId> = node.operands.iter().map(|operand| values[operand.0]).collect();
        let types = graph.types_of(&node.results);
        let results = match &node.op {
            // What an attempt leaves behind when it fails, no output needs.
            Op::Region(region) => grouped(region)
                .and_then(|it| Build { graph: &mut result, origin: &node.origin }.mixture(&it, &operands))
                .filter(|&made| *result.type_of(made) == types[0])
                .map(|made| vec![made]),
            _ => None,
        };
        let results = results
            .unwrap_or_else(|| result.push_node(node.op.clone(), operands, types, node.origin.clone()));
        for (old, new) in node.results.iter().zip(results) {
            values[old.0] = new;
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[it.value.0] };
    result.outputs = graph.outputs.iter().map(output).collect();
    result
}

/// A graph that operations are added to, each if its operands fit.
struct Build<'a> {
    graph: &'a mut Graph,
    origin: &'a str,
}

impl Build<'_> {
    fn push(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        let types = op.infer(&self.graph.types_of(operands)).ok()?;
        self.graph.push_node(op, operands.to_vec(), types, self.origin.to_owned()).first().copied()
    }

    /// What the region computes from these operands.
    fn mixture(&mut self, it: &Grouped, operands: &[ValueId]) -> Option<ValueId> {
        let those = |of: &[usize]| -> Vec<ValueId> { of.iter().map(|&operand| operands[operand]).collect() };
        let x = operands[it.rows];
        let gates = self.gates(x, &those(&it.ends))?;
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
        let op = Op::Experts { activation: it.activation, active: 1 };
        let mut made = self.push(op, &[vec![x, gates], weights].concat())?;
        for Step { op, other } in &it.tail {
            let operands: Vec<ValueId> =
                [Some(made), other.map(|it| operands[it])].into_iter().flatten().collect();
            made = self.push(op.clone(), &operands)?;
        }
        Some(made)
    }

    /// For each row of x and each expert, whether the row is among the expert's: 1 or 0.
    fn gates(&mut self, x: ValueId, ends: &[ValueId]) -> Option<ValueId> {
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
        let (Op::Reshape { shape }, slice) = self.made(part)? else {
            return None;
        };
        let (Op::Slice { starts, steps, sizes }, whole) = self.made(slice)? else {
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

    /// The operation of one operand that made a value.
    fn made(&self, value: ValueId) -> Option<(&Op, ValueId)> {
        let Source::Result { node, .. } = self.graph.value(value).source else {
            return None;
        };
        let node = self.graph.node(node);
        let &[operand] = node.operands.as_slice() else {
            return None;
        };
        Some((&node.op, operand))
    }
}

#[cfg(test)]
mod tests;
