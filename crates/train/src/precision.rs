//! A model that computes in bf16.
//!
//! What depends on parameters and leads to the loss's scores (or to the numbers that the loss
//! reduces to one) is computed in bf16. Tables, masks and positions are computed in f32 and
//! converted where they meet it, and so is the loss: rotary angles and sums over tokens need more
//! than eight bits.
//!
//! Parameters that are in bf16 alone are nowhere more than that: what is computed in f32 of one is
//! computed of the bf16 number.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Precision, Recipe};
use planner_ir::{DType, Emit, Graph, Op, Phase, Source, Type, ValueId};

use crate::TrainError;
use crate::ends::end;
use crate::step::trained;

/// The program with its model in bf16.
pub(crate) fn in_bf16(graph: &Graph, recipe: &Recipe) -> Result<Graph, TrainError> {
    let trained = trained(graph, recipe)?;
    let narrow = narrow(graph, &trained);
    // Parameters of which there is bf16 alone, whatever the file has.
    let mut alone: BTreeSet<ValueId> = BTreeSet::new();
    let mut to = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut map = vec![ValueId(0); graph.values.len()];
    // What was converted: once for all that use it.
    let mut known: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for (index, value) in graph.values.iter().enumerate() {
        if !matches!(value.source, Source::Result { .. }) {
            map[index] = to.push_value(value.type_.clone(), value.source.clone());
        }
        if recipe.precision == Precision::Bf16Stochastic && is_parameter(&value.source, &trained) {
            alone.insert(map[index]);
        }
    }
    for (index, node) in graph.nodes.iter().enumerate() {
        let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &node.origin };
        let from = if narrow[index] { DType::F32 } else { DType::BF16 };
        let into = if narrow[index] { DType::BF16 } else { DType::F32 };
        let mut operands = Vec::new();
        let state = if let Op::Recurrence(it) = &node.op { Some(it.state()) } else { None };
        for (place, operand) in node.operands.iter().enumerate() {
            let mut value = map[operand.0];
            let dtype = emit.type_of(value).dtype;
            let mut convert = |value: ValueId, into: DType| {
                if emit.type_of(value).dtype == into {
                    return value;
                }
                *known.entry(value).or_insert_with(|| match widened_from(emit.graph, value) {
                    Some(before) if emit.type_of(before).dtype == into => before,
                    _ => emit.one(Op::Cast(into), &[value]),
                })
            };
            if alone.contains(&value) {
                value = convert(value, DType::BF16);
            }
            let wanted = match state {
                Some(it) if it == place => DType::F32,
                _ if dtype == from => into,
                _ => dtype,
            };
            operands.push(convert(value, wanted));
        }
        let instead = |dtype| if narrow[index] && dtype == DType::F32 { DType::BF16 } else { dtype };
        let results = emit.all(making(&node.op, instead), &operands);
        for (from, result) in node.results.iter().zip(results) {
            map[from.0] = result;
        }
    }
    end(&mut to, graph, &map);
    Ok(to)
}

/// What a value in f32 was before, if it only was converted: a weight that is not trained.
fn widened_from(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let Source::Result { node, .. } = graph.value(value).source else { return None };
    let node = graph.node(node);
    matches!(node.op, Op::Cast(DType::F32)).then(|| node.operands[0])
}

/// The operation, making other types where it says of itself what it makes.
pub(crate) fn making(op: &Op, instead: impl Fn(DType) -> DType) -> Op {
    match op {
        Op::Cast(dtype) => Op::Cast(instead(*dtype)),
        Op::Fill { result, value } => {
            Op::Fill { result: Type::new(instead(result.dtype), &result.shape[..]), value: *value }
        }
        Op::Iota { dtype, length, start, step } => {
            Op::Iota { dtype: instead(*dtype), length: *length, start: *start, step: *step }
        }
        _ => op.clone(),
    }
}

/// For each operation, whether it computes in bf16.
fn narrow(graph: &Graph, trained: &BTreeSet<String>) -> Vec<bool> {
    let mut depends: Vec<bool> =
        graph.values.iter().map(|value| is_parameter(&value.source, trained)).collect();
    for node in &graph.nodes {
        let any = node.operands.iter().any(|operand| depends[operand.0]);
        for result in &node.results {
            depends[result.0] = any;
        }
    }
    let mut leads = vec![false; graph.values.len()];
    let mut narrow = vec![false; graph.nodes.len()];
    let loss = tail(graph);
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let ends = |operand: usize| loss[index] && graph.type_of(node.operands[operand]).dtype == DType::F32;
        let inside = !loss[index] && node.results.iter().any(|result| leads[result.0]);
        narrow[index] = inside && node.results.iter().any(|result| depends[result.0]);
        for (place, operand) in node.operands.iter().enumerate() {
            leads[operand.0] |= inside || ends(place);
        }
    }
    narrow
}

fn is_parameter(source: &Source, trained: &BTreeSet<String>) -> bool {
    matches!(source, Source::Weight(name) if trained.contains(name))
}

/// For each operation, whether it is of the loss: a cross-entropy, a reduction to one number, and
/// what follows on these.
fn tail(graph: &Graph) -> Vec<bool> {
    let mut follows = vec![false; graph.values.len()];
    let mut tail = Vec::new();
    for node in &graph.nodes {
        let one = node.results.iter().all(|result| graph.type_of(*result).elements() == 1);
        let starts = match node.op {
            Op::CrossEntropy { .. } => true,
            Op::Reduce { .. } => one,
            _ => false,
        };
        let is = starts || node.operands.iter().any(|operand| follows[operand.0]);
        for result in &node.results {
            follows[result.0] = is;
        }
        tail.push(is);
    }
    tail
}
