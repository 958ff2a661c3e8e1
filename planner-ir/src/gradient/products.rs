//! Gradients of contractions, norms, attention, convolutions and experts.

use super::{Emit, Gradients, NoGradient, Site};
use crate::data::{Real, Type};
use crate::graph::ValueId;
use crate::op::{Attention, Binary, Contract, Conv, Label, Op, Pairing, Recurrence, Reduction, Unary};

pub(super) fn contract(contract: &Contract, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let Contract { left, right, result } = contract;
    let (a, b) = (site.operands[0], site.operands[1]);
    site.each(emit, |emit, operand, dy| {
        if operand == 2 {
            return Ok(Some(dy));
        }
        // A sum that is wider than its operands has a gradient that is.
        let dtype = emit.type_of(a).dtype;
        let dy = if emit.type_of(dy).dtype == dtype { dy } else { emit.one(Op::Cast(dtype), &[dy]) };
        let (labels, operands) =
            if operand == 0 { ([result, right, left], [dy, b]) } else { ([left, result, right], [a, dy]) };
        let [left, right, result] = labels.map(Clone::clone);
        Ok(Some(emit.one(Op::Contract(Contract { left, right, result }), &operands)))
    })
}

pub(super) fn softmax(dim: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, _, dy| Ok(Some(emit.one(Op::SoftmaxGradient { dim }, &[site.results[0], dy]))))
}

pub(super) fn log_softmax(dim: usize, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    // dx = dy - exp(y) sum(dy).
    site.each(emit, |emit, _, dy| {
        let weights = emit.one(Op::Unary(Unary::Exp), &[site.results[0]]);
        let sum = emit.one(Op::Reduce { reduction: Reduction::Sum, dims: vec![dim] }, &[dy]);
        let share = emit.one(Op::Binary(Binary::Mul), &[weights, sum]);
        Ok(Some(emit.one(Op::Binary(Binary::Sub), &[dy, share])))
    })
}

/// Operands x, scale, and optionally bias.
pub(super) fn norm(norm: &Op, gradient: &Op, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let (x, scale) = (site.operands[0], site.operands[1]);
    site.each(emit, |emit, operand, dy| {
        let shape = emit.type_of(site.operands[operand]).shape;
        Ok(Some(match operand {
            0 => emit.one(gradient.clone(), &[x, scale, dy]),
            1 => {
                let ones = Type { dtype: emit.type_of(scale).dtype, shape: shape.clone() };
                let ones = emit.filled(ones, 1.0);
                let normal = emit.one(norm.clone(), &[x, ones]);
                products_summed(emit, [normal, dy], &shape)
            }
            _ => emit.gathered(dy, &shape),
        }))
    })
}

/// The sum of products of elements over what a value of this shape is repeated along.
fn products_summed(emit: &mut Emit<'_>, [a, b]: [ValueId; 2], shape: &[u64]) -> ValueId {
    let whole = emit.type_of(a).shape;
    let kept = whole.len().checked_sub(shape.len()).filter(|&first| whole[first..] == *shape);
    match (kept, u8::try_from(whole.len())) {
        (Some(first), Ok(rank)) => {
            let labels: Vec<Label> = (0..rank).map(Label).collect();
            let result = labels[first..].to_vec();
            emit.one(Op::Contract(Contract { left: labels.clone(), right: labels, result }), &[a, b])
        }
        _ => {
            let products = emit.one(Op::Binary(Binary::Mul), &[a, b]);
            emit.gathered(products, shape)
        }
    }
}

/// A layer norm over what follows the channels, with a scale for each channel.
pub(super) fn instance_norm(epsilon: Real, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let x = emit.type_of(site.operands[0]);
    let dims = x.rank() - 2;
    let channels = x.shape[1];
    let mut repeated = vec![1; dims + 1];
    repeated[0] = channels;
    site.each(emit, |emit, operand, dy| {
        Ok(Some(match operand {
            0 => {
                let scale = emit.shaped(site.operands[1], &repeated);
                emit.one(Op::LayerNormGradient { dims, epsilon }, &[site.operands[0], scale, dy])
            }
            1 => {
                let ones = emit.filled(Type { dtype: x.dtype, shape: repeated.clone() }, 1.0);
                let normal = emit.one(Op::LayerNorm { dims, epsilon }, &[site.operands[0], ones]);
                let products = emit.one(Op::Binary(Binary::Mul), &[normal, dy]);
                let sum = emit.gathered(products, &repeated);
                emit.shaped(sum, &[channels])
            }
            _ => {
                let sum = emit.gathered(dy, &repeated);
                emit.shaped(sum, &[channels])
            }
        }))
    })
}

/// All gradients at once: they share the weights, which are recomputed.
pub(super) fn attention(attention: Attention, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    if !attention.statistics {
        return NoGradient::new("`attention` without its statistics has no gradient");
    }
    if site.gradients.get(1).is_some_and(Option::is_some) {
        return NoGradient::new("`attention` has no gradient through its statistics");
    }
    let Some(dy) = site.gradient() else { return Ok(vec![None; site.operands.len()]) };
    let (given, _) = attention.masks(&site.operands[3..]);
    let mask = given.is_some() && site.wanted.get(3).is_some_and(Option::is_some);
    let (y, statistics) = (site.results[0], site.results[1]);
    let operands =
        [&site.operands[..3], &[y, statistics, dy], attention.masking(&site.operands[3..])].concat();
    emit.phase = site.joint_phase();
    // The statistics have the sinks in them.
    let plain = Attention { statistics: false, sinks: false, ..attention };
    let results = emit.all(Op::AttentionGradient { attention: plain, mask }, &operands);
    let mut gradients = site.among(&[0, 1, 2, 3], &results);
    let last = site.operands.len() - 1;
    if let Some(phase) = site.wanted[last].filter(|_| attention.sinks) {
        emit.phase = phase;
        gradients[last] = Some(sinks(emit, site.operands[last], [y, statistics, dy]));
    }
    Ok(gradients)
}

/// The gradient of sinks: `-p (dy·y)` of each row, `p = exp(sink - largest) / sum` being the weight of a key whose
/// value is 0.
fn sinks(emit: &mut Emit<'_>, sinks: ValueId, [y, statistics, dy]: [ValueId; 3]) -> ValueId {
    let (own, wide) = (emit.type_of(sinks), emit.type_of(statistics));
    let mut sizes = wide.shape.clone();
    sizes[3] = 1;
    let part = |emit: &mut Emit<'_>, first| {
        let slice = Op::Slice { starts: vec![0, 0, 0, first], steps: vec![1; 4], sizes: sizes.clone() };
        emit.one(slice, &[statistics])
    };
    let [largest, sum] = [0, 1].map(|it| part(emit, it));
    let cast = |emit: &mut Emit<'_>, it: ValueId, dtype| {
        if emit.type_of(it).dtype == dtype { it } else { emit.one(Op::Cast(dtype), &[it]) }
    };
    let score = cast(emit, sinks, wide.dtype);
    let apart = emit.one(Op::Binary(Binary::Sub), &[score, largest]);
    let weight = emit.one(Op::Unary(Unary::Exp), &[apart]);
    let weight = emit.one(Op::Binary(Binary::Div), &[weight, sum]);
    let made = emit.one(Op::Binary(Binary::Mul), &[dy, y]);
    let made = cast(emit, made, wide.dtype);
    let made = emit.one(Op::Reduce { reduction: Reduction::Sum, dims: vec![3] }, &[made]);
    let share = emit.one(Op::Binary(Binary::Mul), &[weight, made]);
    let share = emit.one(Op::Unary(Unary::Neg), &[share]);
    let share = emit.gathered(share, &own.shape);
    cast(emit, share, own.dtype)
}

/// All gradients at once: they share the states, which are recomputed.
pub(super) fn recurrence(it: Recurrence, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let Some(gradient) = it.gradient() else {
        return NoGradient::new(format!("`{}` has no gradient", Op::Recurrence(it).name()));
    };
    emit.phase = site.joint_phase();
    let mut operands = site.operands.to_vec();
    for (&result, given) in site.results.iter().zip(site.gradients) {
        let type_ = emit.type_of(result);
        operands.push(given.unwrap_or_else(|| emit.filled(type_, 0.0)));
    }
    let results = emit.all(Op::Recurrence(gradient), &operands);
    let order: Vec<usize> = (0..site.operands.len()).collect();
    Ok(site.among(&order, &results))
}

/// Its tables have no gradient.
pub(super) fn rotary(pairing: Pairing, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, operand, dy| {
        let operands = [dy, site.operands[1], site.operands[2]];
        Ok((operand == 0).then(|| emit.one(Op::RotaryGradient(pairing), &operands)))
    })
}

pub(super) fn conv(conv: &Conv, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let (x, w) = (site.operands[0], site.operands[1]);
    site.each(emit, |emit, operand, dy| {
        let extents = emit.type_of(site.operands[operand]).shape;
        Ok(Some(match operand {
            0 => {
                let spatial = extents[2..].to_vec();
                emit.one(Op::ConvInputGradient { conv: conv.clone(), spatial }, &[w, dy])
            }
            1 => {
                let window = extents[2..].to_vec();
                emit.one(Op::ConvWeightGradient { conv: conv.clone(), window }, &[x, dy])
            }
            _ => {
                let mut repeated = vec![1; emit.type_of(dy).rank() - 1];
                repeated[0] = extents[0];
                let sum = emit.gathered(dy, &repeated);
                emit.shaped(sum, &extents)
            }
        }))
    })
}

/// A transposed convolution is linear in the windows and in what it takes.
pub(super) fn conv_input_gradient(conv: &Conv, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let (w, x) = (site.operands[0], site.operands[1]);
    site.each(emit, |emit, operand, dy| {
        let op = match operand {
            0 => {
                let window = emit.type_of(w).shape[2..].to_vec();
                Op::ConvWeightGradient { conv: conv.clone(), window }
            }
            _ => Op::Conv(conv.clone()),
        };
        Ok(Some(emit.one(op, &[dy, if operand == 0 { x } else { w }])))
    })
}

pub(super) fn cross_entropy(ignored: i64, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    site.each(emit, |emit, operand, dy| {
        let operands = [site.operands[0], site.operands[1], dy];
        Ok((operand == 0).then(|| emit.one(Op::CrossEntropyGradient { ignored }, &operands)))
    })
}

pub(super) fn experts(gradient: Op, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
    let Some(dy) = site.gradient() else { return Ok(vec![None; site.operands.len()]) };
    emit.phase = site.joint_phase();
    let operands = [site.operands, &[dy]].concat();
    let results = emit.all(gradient, &operands);
    let order: Vec<usize> = (0..site.operands.len()).collect();
    Ok(site.among(&order, &results))
}
