//! Rows written at the places that a mask marks, as a choice between rows.
//!
//! What is written where depends on data, so that exporters' `NonZero` and `ScatterND` are a region,
//! which nobody can split and which has no gradient: features of images that are put into the
//! embeddings of a text are such. How many places are marked is all that is not known of it: the row
//! for a place is the one of the number of marked places before it, `y[p] = mask[p] ? rows[number[p]] :
//! data[p]`, whose shapes are known.
//!
//! Where more places are marked than there are rows, an index is beyond the last row, which is the
//! error that the region makes too; where fewer are, and the rows were not cut to their number, an index
//! is made to be so.

use planner_ir::{Binary, DType, Dynamic, Graph, Node, Op, Output, Real, Reduction, Region, Scatter, Source};
use planner_ir::{Type, ValueId};

/// The graph with choices for the regions that only write rows at marked places.
pub(super) fn marked(graph: &Graph) -> Graph {
    if !graph.nodes.iter().any(|node| matches!(node.op, Op::Region(_))) {
        return graph.clone();
    }
    let mut new = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut values: Vec<Option<ValueId>> = vec![None; graph.values.len()];
    for id in graph.value_ids() {
        let value = graph.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = Some(new.push_value(value.type_.clone(), value.source.clone()));
        }
    }
    let made =
        |values: &[Option<ValueId>], id: ValueId| values[id.0].expect("operands come before what uses them");
    for node in &graph.nodes {
        let operands: Vec<ValueId> = node.operands.iter().map(|&it| made(&values, it)).collect();
        let types = graph.types_of(&node.results);
        let results = match &node.op {
            Op::Region(region) => chosen(&mut new, node, region, &operands, &types),
            _ => None,
        };
        let results =
            results.unwrap_or_else(|| new.push_node(node.op.clone(), operands, types, node.origin.clone()));
        for (old, new) in node.results.iter().zip(results) {
            values[old.0] = Some(new);
        }
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: made(&values, it.value) };
    let outputs = graph.outputs.iter().map(output).collect();
    Graph { outputs, ..new }
}

/// What a value of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A value of known shape.
    Value(ValueId),
    /// The places that a mask marks, each a column, or each a row.
    Places { mask: ValueId, by_row: bool },
    /// The extents of such.
    Extents { mask: ValueId, by_row: bool },
    /// How many places a mask marks.
    Count(ValueId),
    /// The first rows of a value, as many as places are marked.
    First { rows: ValueId, mask: ValueId },
}

/// The results of a region that only writes rows at marked places. What an attempt leaves behind when it
/// fails, no output needs.
fn chosen(
    graph: &mut Graph,
    node: &Node,
    region: &Region,
    operands: &[ValueId],
    types: &[Type],
) -> Option<Vec<ValueId>> {
    let mut build = Build { graph, origin: &node.origin };
    let mut known: Vec<Known> = operands.iter().copied().map(Known::Value).collect();
    for node in &region.nodes {
        let of: Vec<Known> = node.operands.iter().map(|&it| known.get(it).copied()).collect::<Option<_>>()?;
        known.extend(build.known(&node.op, &of)?);
    }
    let value = |&result: &usize| match known.get(result)? {
        Known::Value(value) => Some(*value),
        _ => None,
    };
    let results: Vec<ValueId> = region.results.iter().map(value).collect::<Option<_>>()?;
    (build.graph.types_of(&results) == types).then_some(results)
}

/// A graph that operations are added to, each if its operands fit.
struct Build<'a> {
    graph: &'a mut Graph,
    origin: &'a str,
}

impl Build<'_> {
    /// What is known of an operation's results.
    fn known(&mut self, op: &Op, operands: &[Known]) -> Option<Vec<Known>> {
        let one = match (op, operands) {
            (Op::Dynamic(Dynamic::NonZero), &[Known::Value(mask)]) => Known::Places { mask, by_row: false },
            (Op::Transpose { permutation }, &[Known::Places { mask, by_row }]) if *permutation == [1, 0] => {
                Known::Places { mask, by_row: !by_row }
            }
            (Op::Cast(dtype), &[known]) if !dtype.is_float() && !matches!(known, Known::Value(_)) => known,
            (Op::Dynamic(Dynamic::Shape), &[Known::Places { mask, by_row }]) => {
                Known::Extents { mask, by_row }
            }
            (Op::Slice { starts, sizes, .. }, &[Known::Extents { mask, by_row }])
                if *sizes == [1] && *starts == [u64::from(!by_row)] =>
            {
                Known::Count(mask)
            }
            (Op::Gather { dim: 0 }, &[Known::Extents { mask, by_row }, Known::Value(index)])
                if self.integer(index)? == i64::from(!by_row) =>
            {
                Known::Count(mask)
            }
            (Op::Reshape { .. }, &[Known::Count(mask)])
            | (Op::Dynamic(Dynamic::Squeeze { .. } | Dynamic::Unsqueeze { .. }), &[Known::Count(mask)])
            | (Op::Concat { .. }, &[Known::Count(mask)]) => Known::Count(mask),
            (
                Op::Dynamic(Dynamic::Slice),
                &[
                    Known::Value(rows),
                    Known::Value(start),
                    Known::Count(mask),
                    Known::Value(axis),
                    Known::Value(step),
                ],
            ) if [start, axis, step].map(|it| self.integer(it)) == [Some(0), Some(0), Some(1)] => {
                Known::First { rows, mask }
            }
            (
                Op::ScatterNd { scatter: Scatter::Replace },
                &[Known::Value(data), Known::Places { mask, by_row: true }, rows],
            ) => match rows {
                Known::Value(rows) => Known::Value(self.written(data, mask, rows, true)?),
                Known::First { rows, mask: other } if other == mask => {
                    Known::Value(self.written(data, mask, rows, false)?)
                }
                _ => return None,
            },
            (Op::Dynamic(_) | Op::Region(_), _) => return None,
            _ => {
                let value = |known: &Known| match known {
                    Known::Value(value) => Some(*value),
                    _ => None,
                };
                let operands: Vec<ValueId> = operands.iter().map(value).collect::<Option<_>>()?;
                let types = op.infer(&self.graph.types_of(&operands)).ok()?;
                let made = self.graph.push_node(op.clone(), operands, types, self.origin.to_owned());
                return Some(made.into_iter().map(Known::Value).collect());
            }
        };
        Some(vec![one])
    }

    /// The only integer that a constant is.
    fn integer(&self, value: ValueId) -> Option<i64> {
        let Source::Result { node, .. } = self.graph.value(value).source else { return None };
        match super::mixture::integers(&self.graph.node(node).op, 1)?.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// Data with rows at the places that a mask marks, in order; all rows if `all`.
    fn written(&mut self, data: ValueId, mask: ValueId, rows: ValueId, all: bool) -> Option<ValueId> {
        let (shape, places) = (self.shape(data), self.shape(mask));
        let given = self.shape(rows);
        let (count, row) = given.split_first()?;
        let fits = *count > 0 && shape.get(..places.len()) == Some(&places) && shape[places.len()..] == *row;
        if !fits || places.is_empty() || shape.contains(&0) {
            return None;
        }
        let mask = self.push(Op::Cast(DType::Bool), &[mask])?;
        let marks = self.push(Op::Cast(DType::I64), &[mask])?;
        let marks = self.push(Op::Reshape { shape: vec![places.iter().product()] }, &[marks])?;
        let number = self.push(Op::CumSum { dim: 0, exclusive: true, reverse: false }, &[marks])?;
        // Where nothing is marked, any row will do: it is not taken.
        let mut number = self.push(Op::Binary(Binary::Mul), &[number, marks])?;
        if all {
            let marked = self.push(Op::Reduce { reduction: Reduction::Sum, dims: vec![0] }, &[marks])?;
            let count = self.integers(*count)?;
            let differs = self.push(Op::Binary(Binary::Equal), &[marked, count])?;
            let differs = self.push(Op::Unary(planner_ir::Unary::Not), &[differs])?;
            let differs = self.push(Op::Cast(DType::I64), &[differs])?;
            let beyond = self.push(Op::Binary(Binary::Mul), &[differs, count])?;
            number = self.push(Op::Binary(Binary::Add), &[number, beyond])?;
        }
        let taken = self.push(Op::Gather { dim: 0 }, &[rows, number])?;
        let taken = self.push(Op::Reshape { shape: shape.clone() }, &[taken])?;
        let mut repeated = places.clone();
        repeated.resize(shape.len(), 1);
        let mask = self.push(Op::Reshape { shape: repeated }, &[mask])?;
        self.push(Op::Select, &[mask, taken, data])
    }

    /// One whole number, with a dimension.
    #[expect(clippy::cast_precision_loss, reason = "no extent reaches 2^53")]
    fn integers(&mut self, number: u64) -> Option<ValueId> {
        let result = Type::new(DType::I64, [1]);
        self.push(Op::Fill { result, value: Real(number as f64) }, &[])
    }

    fn shape(&self, value: ValueId) -> Vec<u64> {
        self.graph.type_of(value).shape.clone()
    }

    fn push(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        let types = op.infer(&self.graph.types_of(operands)).ok()?;
        self.graph.push_node(op, operands.to_vec(), types, self.origin.to_owned()).first().copied()
    }
}

#[cfg(test)]
mod tests;
