//! Parameters that are kept in f32 alone.
//!
//! What the model computes with is converted where it is used. Each use has a conversion of its own, so that nothing
//! converted crosses between blocks. What is used in slices alone is converted once. And as whatever only takes parameters apart, it is done again for the gradients
//! (`recompute`): what is in fewer bits is there while it is used. Where parameters lie split it is converted before
//! it is gathered, if that is cheaper, as in PyTorch's FSDP with a `param_dtype`.

use std::collections::BTreeSet;

use plan::{Masters, Precision, Recipe};
use planner_ir::{DType, Emit, Graph, NodeId, Op, Phase, Source, Type, ValueId};

use crate::TrainError;
use crate::ends::end;
use crate::step::trained;

/// The program with its parameters in f32, if the recipe wants no others.
pub(crate) fn in_full(graph: Graph, recipe: &Recipe) -> Result<Graph, TrainError> {
    if recipe.masters == Masters::Beside || recipe.precision == Precision::Bf16Stochastic {
        return Ok(graph);
    }
    let trained = trained(&graph, recipe)?;
    Ok(full(&graph, &trained))
}

/// For each value, whether it is used in slices alone.
fn sliced(graph: &Graph) -> Vec<bool> {
    let is_slice = |user: &NodeId| matches!(graph.node(*user).op, Op::Slice { .. });
    graph.users().iter().map(|users| !users.is_empty() && users.iter().all(is_slice)).collect()
}

fn full(graph: &Graph, trained: &BTreeSet<String>) -> Graph {
    let mut to = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut map = vec![ValueId(0); graph.values.len()];
    // For each value that is a parameter, in what the program has it, if that is less than f32.
    let mut instead: Vec<Option<DType>> = vec![None; graph.values.len()];
    let mut parameter = vec![false; graph.values.len()];
    let sliced = sliced(graph);
    for (index, value) in graph.values.iter().enumerate() {
        let mut type_ = match &value.source {
            Source::Result { .. } => continue,
            _ => value.type_.clone(),
        };
        parameter[index] = matches!(&value.source, Source::Weight(name) if trained.contains(name));
        if parameter[index] && type_.dtype.is_half() {
            instead[index] = Some(type_.dtype);
            type_ = Type::new(type_.dtype.accumulated(), &type_.shape[..]);
        }
        map[index] = to.push_value(type_, value.source.clone());
    }
    for node in &graph.nodes {
        if let (&Op::Cast(dtype), &[x], &[y]) = (&node.op, &node.operands[..], &node.results[..])
            && dtype.is_half()
            && parameter[x.0]
            && instead[x.0].is_none()
        {
            map[y.0] = map[x.0];
            instead[y.0] = Some(dtype);
            continue;
        }
        let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &node.origin };
        let mut converted: Vec<(ValueId, ValueId)> = Vec::new();
        let mut operands = Vec::new();
        for operand in &node.operands {
            let known = converted.iter().find(|it| it.0 == *operand).map(|it| it.1);
            operands.push(match (known, instead[operand.0]) {
                (Some(known), _) => known,
                (None, Some(dtype)) => {
                    let value = emit.one(Op::Cast(dtype), &[map[operand.0]]);
                    if sliced[operand.0] {
                        (map[operand.0], instead[operand.0]) = (value, None);
                    }
                    converted.push((*operand, value));
                    value
                }
                (None, None) => map[operand.0],
            });
        }
        let results = emit.all(node.op.clone(), &operands);
        for (from, result) in node.results.iter().zip(results) {
            map[from.0] = result;
        }
    }
    end(&mut to, graph, &map);
    to
}
