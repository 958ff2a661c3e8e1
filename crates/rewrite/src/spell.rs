//! Norms and cross-entropies spelled out, so that the rows that they are over may be split.
//!
//! ```text
//! y = layer_norm(x)       m = mean(x), c = x - m, v = mean(c c), y = c / sqrt(v + ε) scale + bias
//! y = rms_norm(x)         v = mean(x x), y = x / sqrt(v + ε) scale
//! l = cross_entropy(x, t) xp = x in p equal parts, lp = cross_entropy(xp, t in the part),
//!                         l = cross_entropy(logarithm of the sum of each part, the part of t) + lp there
//! ```
//!
//! As one operation each needs the whole of a row at once. Spelled out, means are sums that may be
//! owed: where a row is split over an axis, each device makes an addend of one number for each row,
//! and an all-reduce of these is all that moves. Sums of squares are of what was centred before, so
//! that nothing cancels where the mean is large (docs/decisions/0020-norms-are-spelled-out.md). Of a
//! loss, one number for each row and part is brought together. Gradients follow from those of the
//! operations: their sums over a row are owed in the same way.
//!
//! This reads and writes a value several times where one operation does it once, so that it is another
//! form of a block, which the search takes where the price of moving is higher.

use planner_ir::{
    Binary, DType, Emit, Extreme, Graph, Node, Op, Output, Phase, Real, Reduction, Source, Type, Unary,
    ValueId,
};

use crate::blocks::{Blocks, reformed, with_local_constants};

/// The most equal parts that a row of scores is cut into are its greatest common divisor with this
/// number: a row may then be split over every number of devices up to 10, and over 12, 14, 15 and 16,
/// that divides the number of classes.
const PARTS: u64 = 5040;

/// As low as a score can be that is a number: its exponential is nothing beside that of any other.
const LOWEST: f64 = f32::MIN as f64;

/// The program in which the segments that `which` accepts, by number, have their norms and
/// cross-entropies spelled out.
///
/// Its segments are those of the blocks, one by one; where nothing is spelled out they are equal. A
/// run of repetitions of which only some are is several blocks.
pub fn spelled(blocks: &Blocks, which: &dyn Fn(usize) -> bool) -> Blocks {
    reformed(blocks, which, &spelled_body)
}

/// The body with what can be spelled out spelled out; nothing if nothing can be.
fn spelled_body(body: &Graph) -> Option<Graph> {
    if !body.nodes.iter().any(|node| is_spelled(body, node)) {
        return None;
    }
    let mut to = Graph { name: body.name.clone(), ..Graph::default() };
    let mut values: Vec<Option<ValueId>> = vec![None; body.values.len()];
    for id in body.value_ids() {
        let value = body.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            values[id.0] = Some(to.push_value(value.type_.clone(), value.source.clone()));
        }
    }
    for node in &body.nodes {
        let operands: Option<Vec<ValueId>> = node.operands.iter().map(|it| values[it.0]).collect();
        let operands = operands.unwrap_or_else(|| unreachable!("operands are made before they are used"));
        let results = if is_spelled(body, node) {
            let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &node.origin };
            vec![spelled_node(&node.op, &operands, &mut emit)]
        } else {
            to.push_node(node.op.clone(), operands, body.types_of(&node.results), node.origin.clone())
        };
        for (old, new) in node.results.iter().zip(results) {
            values[old.0] = Some(new);
        }
    }
    let output = |it: &Output| Some(Output { name: it.name.clone(), value: values[it.value.0]? });
    to.outputs = body.outputs.iter().filter_map(output).collect();
    Some(with_local_constants(&to))
}

/// Whether an operation is spelled out. Not what prepares weights: that is computed once, whole.
fn is_spelled(body: &Graph, node: &Node) -> bool {
    let type_ = |operand: usize| body.type_of(node.operands[operand]);
    match node.op {
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => type_(0).dtype.is_float(),
        // A label that is ignored must not be one of a part.
        Op::CrossEntropy { ignored } => {
            ignored < 0 && wide(type_(0).dtype) == type_(0).dtype && parts(type_(0)) > 1
        }
        _ => false,
    }
}

fn spelled_node(op: &Op, operands: &[ValueId], emit: &mut Emit<'_>) -> ValueId {
    match *op {
        Op::LayerNorm { dims, epsilon } => norm(emit, operands, dims, epsilon, Centre::Mean),
        Op::RmsNorm { dims, epsilon } => norm(emit, operands, dims, epsilon, Centre::Zero),
        Op::CrossEntropy { ignored } => cross_entropy(emit, operands[0], operands[1], ignored),
        _ => unreachable!("`{}` is not spelled out", op.name()),
    }
}

/// What is subtracted from a row before it is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Centre {
    Mean,
    Zero,
}

/// Operands x, scale, and optionally bias: computed in f32 at least, as the operation is.
fn norm(emit: &mut Emit<'_>, operands: &[ValueId], dims: usize, epsilon: Real, centre: Centre) -> ValueId {
    let narrow = emit.type_of(operands[0]).dtype;
    let dtype = wide(narrow);
    let operands: Vec<ValueId> = operands.iter().map(|&it| cast(emit, it, dtype)).collect();
    let rank = emit.type_of(operands[0]).rank();
    let mean = Op::Reduce { reduction: Reduction::Mean, dims: (rank - dims..rank).collect() };
    let centred = match centre {
        Centre::Mean => {
            let mean = emit.one(mean.clone(), &operands[..1]);
            binary(emit, Binary::Sub, operands[0], mean)
        }
        Centre::Zero => operands[0],
    };
    let squares = binary(emit, Binary::Mul, centred, centred);
    let variance = emit.one(mean, &[squares]);
    let epsilon = emit.number(dtype, epsilon.0);
    let variance = binary(emit, Binary::Add, variance, epsilon);
    let deviation = emit.one(Op::Unary(Unary::Sqrt), &[variance]);
    let inverse = emit.one(Op::Unary(Unary::Reciprocal), &[deviation]);
    let normal = binary(emit, Binary::Mul, centred, inverse);
    let mut result = binary(emit, Binary::Mul, normal, operands[1]);
    if let Some(&bias) = operands.get(2) {
        result = binary(emit, Binary::Add, result, bias);
    }
    cast(emit, result, narrow)
}

/// `-log softmax(scores)[label]` of each row, from its parts.
///
/// With s the logarithm of the sum of the exponentials of a part, and p the part of the label: the
/// loss is that of p among the s, and that of the label in its part. The loss of a part's largest score
/// and that score make s, as neither is far from s, however low other scores are; what the largest score
/// is above that of the label makes the loss of the largest that of the label.
///
/// A score of −∞ is as low as can be within a part, which may have no other where the row has some. s is
/// −∞ there. That nothing comes of ∞ − ∞, the score that is told of such a part is the label's, if it has
/// the label.
fn cross_entropy(emit: &mut Emit<'_>, scores: ValueId, labels: ValueId, ignored: i64) -> ValueId {
    let type_ = emit.type_of(scores);
    let rows = type_.shape[..type_.rank() - 1].to_vec();
    let parts = parts(&type_);
    let width = type_.shape[rows.len()] / parts;
    let label = emit.type_of(labels).dtype;
    let shape = |last: &[u64]| [&rows[..], last].concat();
    let zero = emit.number(label, 0.0);
    let one_width = emit.number(label, real(width));

    let starts = Op::Iota { dtype: label, length: parts, start: Real(0.0), step: Real(real(width)) };
    let starts = emit.one(starts, &[]);
    let column = reshape(emit, labels, shape(&[1]));
    let inner = binary(emit, Binary::Sub, column, starts);
    let from = binary(emit, Binary::GreaterOrEqual, inner, zero);
    let below = binary(emit, Binary::Less, inner, one_width);
    let inside = binary(emit, Binary::And, from, below);

    let lowest = emit.number(type_.dtype, LOWEST);
    let apart = reshape(emit, scores, shape(&[parts, width]));
    // A maximum of equal numbers would halve the gradient of a score that is the lowest number itself.
    let infinite = binary(emit, Binary::Less, apart, lowest);
    let bounded = emit.one(Op::Select, &[infinite, lowest, apart]);
    let largest = Op::ArgExtreme { extreme: Extreme::Largest, dim: rows.len() + 1 };
    let largest = emit.one(largest, &[bounded]);
    let index = cast(emit, largest, label);
    let largest = reshape(emit, index, shape(&[parts]));
    let index = reshape(emit, index, shape(&[parts, 1]));
    let gather = Op::GatherElements { dim: rows.len() + 1 };
    let most = emit.one(gather.clone(), &[apart, index]);
    let most = reshape(emit, most, shape(&[parts]));
    let hidden = binary(emit, Binary::Less, most, lowest);

    let known = binary(emit, Binary::And, inside, hidden);
    let told = emit.one(Op::Select, &[known, inner, largest]);
    let own = emit.one(Op::Select, &[inside, inner, largest]);
    // Both at once, so that there is one gradient as large as scores.
    let both = [told, own].map(|it| reshape(emit, it, shape(&[parts, 1])));
    let both = emit.one(Op::Concat { dim: rows.len() + 1 }, &both);
    let both = emit.one(gather, &[apart, both]);
    let [top, own] = [0, 1].map(|at| {
        let starts = [vec![0; rows.len() + 1], vec![at]].concat();
        let sizes = shape(&[parts, 1]);
        let slice = Op::Slice { steps: vec![1; sizes.len()], starts, sizes };
        let one = emit.one(slice, &[both]);
        reshape(emit, one, shape(&[parts]))
    });
    let losses = emit.one(Op::CrossEntropy { ignored }, &[bounded, told]);
    let sums = binary(emit, Binary::Add, losses, top);

    // What is ignored, or no label at all, stays what it is.
    let part = binary(emit, Binary::Div, labels, one_width);
    let none = binary(emit, Binary::Less, labels, zero);
    let part = emit.one(Op::Select, &[none, labels, part]);
    let outer = emit.one(Op::CrossEntropy { ignored }, &[sums, part]);

    let nothing = emit.number(type_.dtype, 0.0);
    let above = binary(emit, Binary::Sub, top, own);
    let above = emit.one(Op::Select, &[hidden, nothing, above]);
    let own = binary(emit, Binary::Add, losses, above);
    let own = emit.one(Op::Select, &[inside, own, nothing]);
    let own = emit.one(Op::Reduce { reduction: Reduction::Sum, dims: vec![rows.len()] }, &[own]);
    let own = reshape(emit, own, rows.clone());
    binary(emit, Binary::Add, outer, own)
}

/// The labels of a cross-entropy that was spelled out, of which the parts are the labels of another, and
/// how many classes a part has; of other labels, these and 1.
pub fn spelled_labels(graph: &Graph, parts: ValueId) -> (ValueId, u64) {
    let made = |value: ValueId| match graph.value(value).source {
        Source::Result { node, .. } => Some(graph.node(node)),
        _ => None,
    };
    let of_part = || {
        let node = made(parts).filter(|it| it.op == Op::Select)?;
        let &[_, labels, part] = &node.operands[..] else { return None };
        let node = made(part).filter(|it| it.op == Op::Binary(Binary::Div) && it.operands[0] == labels)?;
        let Op::Fill { value, .. } = made(node.operands[1])?.op else { return None };
        Some((labels, whole(value)))
    };
    of_part().unwrap_or((parts, 1))
}

/// How many equal parts a row of scores is cut into.
fn parts(scores: &Type) -> u64 {
    let (mut a, mut b) = (PARTS, scores.shape.last().copied().unwrap_or(1));
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The elements in which norms are computed.
fn wide(dtype: DType) -> DType {
    if dtype.bytes() < DType::F32.bytes() { DType::F32 } else { dtype }
}

fn binary(emit: &mut Emit<'_>, binary: Binary, a: ValueId, b: ValueId) -> ValueId {
    emit.one(Op::Binary(binary), &[a, b])
}

fn cast(emit: &mut Emit<'_>, value: ValueId, dtype: DType) -> ValueId {
    if emit.type_of(value).dtype == dtype { value } else { emit.one(Op::Cast(dtype), &[value]) }
}

fn reshape(emit: &mut Emit<'_>, value: ValueId, shape: Vec<u64>) -> ValueId {
    if emit.type_of(value).shape == shape { value } else { emit.one(Op::Reshape { shape }, &[value]) }
}

#[expect(clippy::cast_precision_loss, reason = "no extent reaches 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was made of a count")]
fn whole(count: Real) -> u64 {
    count.0 as u64
}

#[cfg(test)]
mod tests;
