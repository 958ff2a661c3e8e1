//! The loss as a sum and a count.

use plan::{Loss, Precision, Recipe};
use planner_ir::{Binary, DType, Emit, Graph, Op, Output, Phase, Real, Reduction, Source, Type, Unary};

use crate::dropout::with_seeds;
use crate::full::in_full;
use crate::loss::{Quotient, output, quotient};
use crate::precision::in_bf16;
use crate::wide::in_f32;
use crate::{RATE, ROUNDING, SEED, STEP, TrainError};

/// The label that does not count, as in PyTorch.
const IGNORED: i64 = -100;

/// The model up to its loss: the first output is a number to be summed over micro-batches, the
/// second the count by which the sum is to be divided.
///
/// Where the model divides a sum by a count that does not depend on parameters, these are the two:
/// so the mean is over what counts in all micro-batches together, as if they were one. Else the
/// count is one for each micro-batch.
pub fn forward(raised: &Graph, recipe: &Recipe) -> Result<Graph, TrainError> {
    let mut graph = raised.clone();
    for value in &graph.values {
        if let Source::Input(name) = &value.source
            && [RATE, STEP, SEED, ROUNDING].contains(&name.as_str())
        {
            return Err(TrainError::Reserved(name.clone()));
        }
    }
    let Quotient { sum, count } = match &recipe.loss {
        Loss::Output(name) => quotient(&mut graph, name, &recipe.roles)?,
        Loss::CrossEntropy { logits, labels } => cross_entropy(&mut graph, logits, labels)?,
    };
    graph.outputs = [("sum", sum), ("count", count)]
        .map(|(name, value)| Output { name: name.to_owned(), value })
        .to_vec();
    let graph = with_seeds(&graph);
    let graph = match recipe.precision {
        Precision::File => graph,
        Precision::F32 => in_f32(graph, recipe)?,
        Precision::Bf16
        | Precision::Bf16Stochastic
        | Precision::Fp8
        | Precision::Fp8Delayed
        | Precision::Mxfp8
        | Precision::Nvfp4 => in_bf16(&in_f32(graph, recipe)?, recipe)?,
    };
    in_full(graph, recipe)
}

/// The sum of cross-entropies of scores with labels, a new input, and how many labels count.
fn cross_entropy(graph: &mut Graph, logits: &str, labels: &str) -> Result<Quotient, TrainError> {
    let scores = output(graph, logits)?;
    let type_ = graph.type_of(scores).clone();
    let Some((_, rows)) = type_.shape.split_last().filter(|_| type_.dtype.is_float()) else {
        return Err(TrainError::Scores(logits.to_owned(), type_.to_string()));
    };
    let rows = rows.to_vec();
    let known = graph.value_ids().find(|it| graph.value(*it).source == Source::Input(labels.to_owned()));
    let right = Type::new(DType::I64, rows.clone());
    let labels = match known {
        Some(known) if *graph.type_of(known) == right => known,
        Some(_) => return Err(TrainError::Reserved(labels.to_owned())),
        None => graph.push_value(right, Source::Input(labels.to_owned())),
    };
    let mut emit = Emit { graph, phase: Phase::Forward, origin: "cross-entropy" };
    let scores = emit.one(Op::Cast(DType::F32), &[scores]);
    let each = emit.one(Op::CrossEntropy { ignored: IGNORED }, &[scores, labels]);
    let ignored = emit.one(Op::Fill { result: Type::new(DType::I64, []), value: Real(-100.0) }, &[]);
    let without = emit.one(Op::Binary(Binary::Equal), &[labels, ignored]);
    let counted = emit.one(Op::Unary(Unary::Not), &[without]);
    let counted = emit.one(Op::Cast(DType::F32), &[counted]);
    let [sum, count] = [each, counted].map(|it| {
        let dims = (0..rows.len()).collect();
        let sum = emit.one(Op::Reduce { reduction: Reduction::Sum, dims }, &[it]);
        emit.one(Op::Reshape { shape: vec![] }, &[sum])
    });
    Ok(Quotient { sum, count })
}
