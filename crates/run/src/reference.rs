//! A program on one device, operation by operation.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{Graph, Source, ValueId};

use crate::error::RunError;
use crate::source::{Sources, expect_type, weight};

/// The outputs of a program, each operation computed whole: what every plan has to compute.
pub fn reference(graph: &Graph, sources: Sources) -> Result<BTreeMap<String, Array>, RunError> {
    let mut last = vec![0; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        node.operands.iter().for_each(|operand| last[operand.0] = index);
    }
    for output in &graph.outputs {
        last[output.value.0] = graph.nodes.len();
    }
    let mut values: BTreeMap<ValueId, Array> = BTreeMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        for &operand in &node.operands {
            bring(graph, operand, sources, &mut values)?;
        }
        let operands: Vec<&Array> = node.operands.iter().map(|operand| &values[operand]).collect();
        let failed = |error| RunError::Whole(node.origin.clone(), error);
        let results = kernels::evaluate(&node.op, &operands).map_err(failed)?;
        for (&value, result) in node.results.iter().zip(results) {
            expect_type(&node.origin, result.type_(), graph.type_of(value))?;
            values.insert(value, result);
        }
        for &operand in node.operands.iter().filter(|operand| last[operand.0] == index) {
            values.remove(&operand);
        }
    }
    let mut outputs = BTreeMap::new();
    for output in &graph.outputs {
        bring(graph, output.value, sources, &mut values)?;
        outputs.insert(output.name.clone(), values[&output.value].clone());
    }
    Ok(outputs)
}

/// Makes an input or weight a value that is there.
fn bring(
    graph: &Graph,
    value: ValueId,
    sources: Sources,
    values: &mut BTreeMap<ValueId, Array>,
) -> Result<(), RunError> {
    if values.contains_key(&value) {
        return Ok(());
    }
    let (name, array) = match &graph.value(value).source {
        Source::Input(name) => {
            let given = sources.inputs.get(name).cloned();
            (name, given.ok_or_else(|| RunError::Missing(name.clone()))?)
        }
        Source::Weight(name) => (name, weight(sources, name)?),
        Source::State(state) => return Err(RunError::Missing(state.name.clone())),
        Source::Result { .. } => {
            return Err(RunError::Program("a result is used before it is made".to_owned()));
        }
    };
    expect_type(name, array.type_(), graph.type_of(value))?;
    values.insert(value, array);
    Ok(())
}
