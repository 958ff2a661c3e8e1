//! What no weights and no inputs can make right: outputs without elements, look-ups past the end of a table.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::Array;
use planner_ir::{DType, Graph, Op, Output, Source, Type, ValueId};

use crate::failure::Failure;

/// The most elements of a value that is followed: positions of a sequence have fewer.
const MOST: u64 = 1 << 22;

/// Refuses sizes of dimensions, one of which is 0, by which no output has elements.
pub(crate) fn refuse_empty(path: &Path, graph: &Graph, sizes: &BTreeMap<String, u64>) -> Result<(), Failure> {
    if sizes.values().all(|it| *it > 0) {
        return Ok(());
    }
    let is_empty = |it: &Output| graph.type_of(it.value).elements() == 0;
    if let Some(output) = graph.outputs.first().filter(|_| graph.outputs.iter().all(is_empty)) {
        return Err(Failure::file(
            path,
            format!(
                "no output has elements, such as `{}` {}: give the dimensions that they depend on a size of at \
                 least 1 (`--dim`, `--inputs`)",
                output.name,
                graph.type_of(output.value)
            ),
        ));
    }
    Ok(())
}

/// Refuses a program of which it is known before it runs that it cannot. Of some inputs a number is known
/// that they will have.
pub(crate) fn refuse(path: &Path, graph: &Graph, mut known: BTreeMap<String, Array>) -> Result<(), Failure> {
    let mut values: BTreeMap<ValueId, Array> = BTreeMap::new();
    for value in graph.value_ids() {
        if let Source::Input(name) = &graph.value(value).source
            && let Some(array) = known.remove(name)
        {
            values.insert(value, array);
        }
    }
    for node in &graph.nodes {
        if let (Op::Gather { dim } | Op::GatherElements { dim }, [data, indices]) =
            (&node.op, &node.operands[..])
            && let Some(indices) = values.get(indices)
        {
            let rows = graph.type_of(*data).shape[*dim];
            let missing = integers(indices).into_iter().find(|&it| {
                let row = i128::from(it);
                row >= i128::from(rows) || row < -i128::from(rows)
            });
            if let Some(row) = missing {
                let of = match &graph.value(*data).source {
                    Source::Weight(name) => format!("`{name}`"),
                    _ => "a table".to_owned(),
                };
                return Err(Failure::file(
                    path,
                    format!(
                        "`{}` looks up row {row} of {of}, which has {rows}: the model knows as many positions as \
                         that, and a sequence is longer; give a shorter one",
                        node.origin
                    ),
                ));
            }
        }
        let is_small =
            |it: &ValueId| graph.type_of(*it).elements() <= MOST && !graph.type_of(*it).dtype.is_float();
        if !node.results.iter().chain(&node.operands).all(is_small) {
            continue;
        }
        let operands: Option<Vec<&Array>> = node.operands.iter().map(|it| values.get(it)).collect();
        // What fails here fails where it is run, and is said there.
        let made = operands.and_then(|operands| kernels::evaluate(&node.op, &operands).ok());
        values.extend(node.results.iter().copied().zip(made.into_iter().flatten()));
    }
    Ok(())
}

/// An array of integers that all are this one.
pub(crate) fn filled(type_: &Type, number: u64) -> Option<Array> {
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
