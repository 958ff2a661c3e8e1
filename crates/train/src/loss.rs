//! Where the loss is a quotient: a mean over what counts.

use planner_ir::{Binary, DType, Emit, Graph, Op, Phase, Source, Type, ValueId};

use crate::TrainError;
use plan::Roles;

/// A loss: its sum over micro-batches, divided by the sum of the counts, is the mean. Both are f32
/// without dimensions.
pub(crate) struct Quotient {
    pub(crate) sum: ValueId,
    pub(crate) count: ValueId,
}

/// The loss that is the model's output of that name.
pub(crate) fn quotient(graph: &mut Graph, name: &str, roles: &Roles) -> Result<Quotient, TrainError> {
    let loss = output(graph, name)?;
    let type_ = graph.type_of(loss).clone();
    if !type_.dtype.is_float() || type_.elements() != 1 {
        return Err(TrainError::Loss(name.to_owned(), type_.to_string()));
    }
    let (sum, count) = divided(graph, loss, roles).unwrap_or((loss, None));
    let mut emit = Emit { graph, phase: Phase::Forward, origin: "loss" };
    let sum = number(&mut emit, sum);
    let count = match count {
        Some(count) => number(&mut emit, count),
        None => emit.filled(Type::new(DType::F32, []), 1.0),
    };
    Ok(Quotient { sum, count })
}

/// The two sides of a division by what no parameter leads to.
fn divided(graph: &Graph, loss: ValueId, roles: &Roles) -> Option<(ValueId, Option<ValueId>)> {
    let Source::Result { node, .. } = graph.value(loss).source else { return None };
    let node = graph.node(node);
    let reshaped = || divided(graph, node.operands[0], roles);
    match node.op {
        // One number in another shape, or as another type, is still that quotient.
        Op::Reshape { .. } => reshaped(),
        Op::Binary(Binary::Div) => {
            let [sum, count] = node.operands[..] else { return None };
            let numbers = [sum, count].iter().all(|&it| graph.type_of(it).elements() == 1);
            (numbers && !led_to_by_parameters(graph, count, roles)).then_some((sum, Some(count)))
        }
        _ => None,
    }
}

fn led_to_by_parameters(graph: &Graph, value: ValueId, roles: &Roles) -> bool {
    let mut led: Vec<bool> = graph
        .values
        .iter()
        .map(|it| match &it.source {
            Source::Weight(name) => it.type_.dtype.is_float() && !roles.keeps(name),
            _ => false,
        })
        .collect();
    for node in &graph.nodes {
        let any = node.operands.iter().any(|operand| led[operand.0]);
        for result in &node.results {
            led[result.0] = any;
        }
    }
    led[value.0]
}

fn number(emit: &mut Emit<'_>, value: ValueId) -> ValueId {
    let type_ = emit.type_of(value);
    let value = if type_.dtype == DType::F32 { value } else { emit.one(Op::Cast(DType::F32), &[value]) };
    if type_.rank() == 0 { value } else { emit.one(Op::Reshape { shape: vec![] }, &[value]) }
}

/// The value of an output.
pub(crate) fn output(graph: &Graph, name: &str) -> Result<ValueId, TrainError> {
    let found = graph.outputs.iter().find(|output| output.name == name);
    let names = || graph.outputs.iter().map(|output| format!("`{}`", output.name)).collect();
    found.map(|output| output.value).ok_or_else(|| TrainError::Output(name.to_owned(), names()))
}
