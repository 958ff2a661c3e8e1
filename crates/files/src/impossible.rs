//! What no weights and no inputs can make right: outputs without elements, look-ups past the end of a table.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::Array;
use planner_ir::{DType, Graph, Node, Op, Output, Source, Type, ValueId};

use crate::failure::Failure;

/// The most elements of a value that is followed: positions of a sequence have fewer.
const MOST: u64 = 1 << 22;

/// Refuses a program that computes nothing for the sizes of dimensions that it was made for: outputs that have
/// elements are made of none, or no output that depends on inputs has any. What a file says of all sizes itself
/// is as it says.
pub fn refuse_empty(graph: &Graph, header: &plan::ModelFile) -> Result<(), String> {
    if header.dims.is_empty() {
        return Ok(());
    }
    let made = Made::of(graph);
    let is_empty = |it: &&Output| graph.type_of(it.value).elements() == 0;
    let shown = |it: &Output| format!("`{}` {}", it.name, graph.type_of(it.value));
    let help = "give the dimensions that they depend on a larger size (`--dim`, `--inputs`)";
    let of_nothing = graph.outputs.iter().filter(|it| !is_empty(it));
    if let Some((output, node)) = of_nothing.filter_map(|it| Some((it, made.of_nothing[it.value.0]?))).next()
    {
        let taken = node.operands.iter().map(|&it| graph.type_of(it)).find(|it| it.elements() == 0);
        let taken = taken.map_or_else(String::new, |it| format!(", which takes {it}"));
        let (output, origin) = (shown(output), &node.origin);
        return Err(format!("output {output} is made of no elements, by `{origin}`{taken}: {help}"));
    }
    let depends = |it: &&Output| made.of_inputs[it.value.0];
    let some = graph.outputs.iter().any(|it| depends(&it));
    let all = || graph.outputs.iter().filter(|it| depends(it) || !some);
    match all().next().filter(|_| all().all(|it| is_empty(&it))) {
        Some(output) => Err(format!("no output has elements, such as {}: {help}", shown(output))),
        None => Ok(()),
    }
}

/// What values are made of.
struct Made<'a> {
    /// For each value, the operation that made elements of none where it is made of these.
    of_nothing: Vec<Option<&'a Node>>,
    /// Whether it depends on an input.
    of_inputs: Vec<bool>,
}

impl<'a> Made<'a> {
    fn of(graph: &'a Graph) -> Self {
        let is_input = |it: ValueId| matches!(graph.value(it).source, Source::Input(_));
        let mut made = Self {
            of_nothing: vec![None; graph.values.len()],
            of_inputs: graph.value_ids().map(is_input).collect(),
        };
        for node in &graph.nodes {
            let nothing = made.nothing(graph, node);
            let of_inputs = node.operands.iter().any(|it| made.of_inputs[it.0]);
            for result in &node.results {
                made.of_nothing[result.0] = nothing;
                made.of_inputs[result.0] = of_inputs;
            }
        }
        made
    }

    /// The operation by which results of this one are made of nothing.
    fn nothing(&self, graph: &Graph, node: &'a Node) -> Option<&'a Node> {
        let of = |it: &ValueId| self.of_nothing[it.0];
        let is_empty = |it: &ValueId| graph.type_of(*it).elements() == 0;
        match node.op {
            // What is put beside elements, or into them, may be nothing.
            Op::Concat { .. } if node.operands.iter().all(|it| is_empty(it) || of(it).is_some()) => {
                node.operands.iter().find_map(of)
            }
            Op::Concat { .. } | Op::Pad { .. } | Op::Region(_) | Op::Dynamic(_) => None,
            Op::ScatterElements { .. } | Op::ScatterNd { .. } => node.operands.first().and_then(of),
            _ => {
                let makes = node.results.iter().any(|it| !is_empty(it)) && node.operands.iter().any(is_empty);
                node.operands.iter().find_map(of).or_else(|| makes.then_some(node))
            }
        }
    }
}

/// Refuses a program of which it is known before it runs that it cannot. Of some inputs a number is known
/// that they will have.
pub fn refuse(path: &Path, graph: &Graph, mut known: BTreeMap<String, Array>) -> Result<(), Failure> {
    let mut values: BTreeMap<ValueId, Array> = BTreeMap::new();
    for value in graph.value_ids() {
        if let Source::Input(name) = &graph.value(value).source
            && let Some(array) = known.remove(name)
        {
            values.insert(value, array);
        }
    }
    let looked_up = looked_up(graph);
    for node in &graph.nodes {
        if let Some((dim, data, indices)) = look_up(node)
            && let Some(indices) = values.get(&indices)
        {
            let rows = graph.type_of(data).shape[dim];
            let missing = integers(indices).into_iter().find(|&it| {
                let row = i128::from(it);
                row >= i128::from(rows) || row < -i128::from(rows)
            });
            if let Some(row) = missing {
                let (of, why) = match &graph.value(data).source {
                    Source::Weight(name) => (
                        format!("`{name}`"),
                        "the model knows as many positions as that, and a sequence is longer; give a shorter one",
                    ),
                    _ => (
                        "a table that it computes".to_owned(),
                        "the model was exported for other sizes; give those, often a batch of 1",
                    ),
                };
                return Err(Failure::file(
                    path,
                    format!("`{}` looks up row {row} of {of}, which has {rows}: {why}", node.origin),
                ));
            }
        }
        let is_small =
            |it: &ValueId| graph.type_of(*it).elements() <= MOST && !graph.type_of(*it).dtype.is_float();
        let matters = node.results.iter().any(|it| looked_up[it.0]);
        if !matters || !node.results.iter().chain(&node.operands).all(is_small) {
            continue;
        }
        let operands: Option<Vec<&Array>> = node.operands.iter().map(|it| values.get(it)).collect();
        // What fails here fails where it is run, and is said there.
        let made = operands.and_then(|operands| kernels::evaluate(&node.op, &operands).ok());
        values.extend(node.results.iter().copied().zip(made.into_iter().flatten()));
    }
    Ok(())
}

/// Along which dimension of which table an operation looks up which rows.
fn look_up(node: &Node) -> Option<(usize, ValueId, ValueId)> {
    match (&node.op, &node.operands[..]) {
        (Op::Gather { dim } | Op::GatherElements { dim }, &[data, indices]) => Some((*dim, data, indices)),
        _ => None,
    }
}

/// For each value, whether rows that are looked up depend on it.
fn looked_up(graph: &Graph) -> Vec<bool> {
    let mut matters = vec![false; graph.values.len()];
    for node in graph.nodes.iter().rev() {
        if let Some((_, _, indices)) = look_up(node) {
            matters[indices.0] = true;
        }
        if node.results.iter().any(|it| matters[it.0]) {
            node.operands.iter().for_each(|it| matters[it.0] = true);
        }
    }
    matters
}

/// An array of integers that all are this one.
pub fn filled(type_: &Type, number: u64) -> Option<Array> {
    let number = i64::try_from(number).ok()?;
    let count = usize::try_from(type_.elements()).ok()?;
    let bytes = match type_.dtype {
        DType::I64 => number.to_le_bytes().repeat(count),
        DType::I32 => i32::try_from(number).ok()?.to_le_bytes().repeat(count),
        _ => return None,
    };
    Array::from_bytes(type_.clone(), &bytes).ok()
}

/// The elements of an array of integers.
fn integers(array: &Array) -> Vec<i64> {
    let bytes = array.bytes();
    match array.dtype() {
        DType::I64 => bytes.as_chunks::<8>().0.iter().map(|it| i64::from_le_bytes(*it)).collect(),
        DType::I32 => bytes.as_chunks::<4>().0.iter().map(|it| i32::from_le_bytes(*it).into()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use planner_ir::parse_graph;

    use super::*;

    #[test]
    fn rows_that_a_table_lacks_are_refused_by_what_the_table_is() {
        let said = |table: &str, rows: &[i64]| {
            let text = format!(
                "graph \"g\" {{\n  %0 = input \"ids\" : i64[2]\n  %1 = {table} : f32[8,4]\n  \
                 %2 = exp %1 : f32[8,4]\n  %3 = gather dim=0 %{} %0 : f32[2,4]\n  return \"y\" %3\n}}\n",
                if table.starts_with("weight") { 1 } else { 2 }
            );
            let known = BTreeMap::from([("ids".to_owned(), Array::of([2], rows).unwrap())]);
            let refused = refuse(Path::new("m.onnx"), &parse_graph(&text).unwrap(), known);
            refused.err().map(|it| it.to_string())
        };
        let (weight, input) = ("weight \"wpe\"", "input \"x\"");
        assert_eq!((said(weight, &[-8, 7]), said(input, &[0, 7])), (None, None));
        let positions = said(weight, &[0, 8]).unwrap();
        assert!(
            positions.contains("row 8 of `wpe`, which has 8: the model knows as many positions"),
            "{positions}"
        );
        let sizes = said(input, &[-9, 0]).unwrap();
        assert!(
            sizes.contains("row -9 of a table that it computes, which has 8: the model was exported"),
            "{sizes}"
        );
    }
}
