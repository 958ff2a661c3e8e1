//! A model as if its file were in f32.
//!
//! Files in f16 or bf16 say so of every value, and convert where they need more digits. In what a
//! training step computes is the recipe's to say: so everything becomes f32, and what the recipe
//! wants narrower is made so afterwards. Parameters are f32, as they start as weights converted;
//! inputs, constants and weights that are not trained are what they are, and converted once.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{DType, Emit, Graph, Op, Phase, Source, Type, ValueId};

use crate::TrainError;
use crate::ends::end;
use crate::precision::making;
use crate::step::trained;
use plan::Recipe;

/// The program with f32 wherever it had fewer bits.
pub(crate) fn in_f32(graph: Graph, recipe: &Recipe) -> Result<Graph, TrainError> {
    if !graph.values.iter().any(|value| value.type_.dtype.is_half()) {
        return Ok(graph);
    }
    let trained = trained(&graph, recipe)?;
    Ok(widened(&graph, &trained))
}

fn widened(graph: &Graph, trained: &BTreeSet<String>) -> Graph {
    let mut to = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut map = vec![ValueId(0); graph.values.len()];
    for (index, value) in graph.values.iter().enumerate() {
        let type_ = match &value.source {
            Source::Result { .. } => continue,
            Source::Weight(name) if trained.contains(name) => {
                Type::new(value.type_.dtype.accumulated(), &value.type_.shape[..])
            }
            _ => value.type_.clone(),
        };
        map[index] = to.push_value(type_, value.source.clone());
    }
    // What was converted: once for all that use it.
    let mut known: BTreeMap<(ValueId, DType), ValueId> = BTreeMap::new();
    for node in &graph.nodes {
        let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &node.origin };
        let mut operands = Vec::new();
        for &operand in &node.operands {
            let value = map[operand.0];
            let (is, said) = (emit.type_of(value).dtype, graph.type_of(operand).dtype);
            let into = match node.op {
                // It is a program of its own, of the types that it has.
                Op::Region(_) => said,
                _ => is.accumulated(),
            };
            let converted = match is == into {
                true => value,
                false => *known.entry((value, into)).or_insert_with(|| emit.one(Op::Cast(into), &[value])),
            };
            operands.push(converted);
        }
        let op = making(&node.op, DType::accumulated);
        let results = match op {
            Op::Cast(dtype) if emit.type_of(operands[0]).dtype == dtype => operands,
            _ => emit.all(op, &operands),
        };
        for (from, result) in node.results.iter().zip(results) {
            map[from.0] = result;
        }
    }
    end(&mut to, graph, &map);
    to
}
