//! Graphs computed operation by operation with the kernels.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{Graph, Source, parse_graph, verify};

use crate::{Model, WeightData};

/// The graph, which obeys the rules and is what its text says.
pub(super) fn verified(graph: Graph) -> Result<Graph, String> {
    verify(&graph).map_err(|violations| violations.to_string())?;
    let again = parse_graph(&graph.to_string()).map_err(|error| error.to_string())?;
    if again != graph {
        return Err("its text says another graph".to_owned());
    }
    Ok(graph)
}

/// The outputs of a graph for these inputs.
pub(super) fn evaluate(
    graph: &Graph,
    model: &Model,
    inputs: &BTreeMap<String, Array>,
) -> Result<BTreeMap<String, Array>, String> {
    let mut values: Vec<Option<Array>> = Vec::new();
    for value in &graph.values {
        values.push(match &value.source {
            Source::Input(name) => {
                let array = inputs.get(name).ok_or_else(|| format!("no input `{name}`"))?;
                if *array.type_() != value.type_ {
                    return Err(format!("input `{name}` is {}, expected {}", array.type_(), value.type_));
                }
                Some(array.clone())
            }
            Source::Weight(name) => match model.weight(name) {
                Ok(WeightData::Bytes(bytes)) => Some(Array::from_bytes(value.type_.clone(), &bytes).unwrap()),
                other => return Err(format!("weight `{name}`: {other:?}")),
            },
            Source::State(_) | Source::Result { .. } => None,
        });
    }
    for node in &graph.nodes {
        let operands: Vec<&Array> = node.operands.iter().map(|it| values[it.0].as_ref().unwrap()).collect();
        let types: Vec<String> = operands.iter().map(|it| it.type_().to_string()).collect();
        let name = format!("{:.120}", format!("{:?}", node.op));
        let results = kernels::evaluate(&node.op, &operands)
            .map_err(|error| format!("{name} of {types:?} at {}: {error}", node.origin))?;
        for (result, array) in node.results.iter().zip(results) {
            let type_ = &graph.values[result.0].type_;
            if array.type_() != type_ {
                return Err(format!(
                    "{name} of {types:?} at {} is {}, expected {type_}",
                    node.origin,
                    array.type_()
                ));
            }
            values[result.0] = Some(array);
        }
    }
    let outputs = graph.outputs.iter();
    Ok(outputs.map(|output| (output.name.clone(), values[output.value.0].clone().unwrap())).collect())
}

/// The largest difference relative to the largest element; infinite if one is not a number where
/// the other is.
pub(super) fn difference(found: &Array, expected: &Array) -> f64 {
    let (found, expected) = (found.to_floats().unwrap(), expected.to_floats().unwrap());
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let finite = expected.iter().filter(|it| it.is_finite());
    let largest = finite.fold(1e-30f64, |largest, it| largest.max(it.abs()));
    let pairs = found.iter().zip(&expected);
    pairs.fold(0.0f64, |worst, (a, b)| {
        let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        let apart = if same { 0.0 } else { (a - b).abs() / largest };
        if apart.is_nan() { f64::INFINITY } else { worst.max(apart) }
    })
}
