//! What an operation takes of all devices together, however it is split among them.
//!
//! A product that is cut into pieces, each done by one device at once, has as many multiplications and
//! additions in all as it had, each at no more than the rate that the best tile reaches when all
//! processors have one; every byte is read or written by some device. So the times of all pieces
//! together are no less than
//!
//! ```text
//! max(work · min over tiles of step/(m_t n_t P sustained), bytes/(e_mem · bandwidth))
//! ```
//!
//! in the terms of [`crate::compute`].

use planner_ir::{AttentionClass, ConvolutionClass, GatherClass, MovementClass, Op, OpClass, Type};

use super::{expert_products, product_sizes, window_sizes};
use crate::compute::{self, Attention, Seen};
use crate::machine::{Device, Pass, Precision};
use crate::units::{Flops, Seconds, exact};

/// What an operation on whole values takes at least: the time of one device for all of it, which several
/// share.
#[must_use]
pub fn least(device: &Device, op: &Op, operands: &[Type], results: &[Type]) -> Seconds {
    let product = |sizes: [u64; 4]| {
        let work: f64 = 2.0 * sizes.into_iter().map(exact).product::<f64>();
        multiplied(device, Flops(work), Precision::of_op(op, operands[0].dtype))
            .max(touched(device, &[operands, results]))
    };
    let all = || touched(device, &[operands, results]);
    match op.class() {
        OpClass::MatrixProduct(contract) => product(product_sizes(contract, operands)),
        OpClass::Convolution(ConvolutionClass::Forward(conv)) => {
            product(window_sizes(conv, &operands[1], &results[0]))
        }
        OpClass::Convolution(ConvolutionClass::InputGradient(conv)) => {
            product(window_sizes(conv, &operands[0], &operands[1]))
        }
        OpClass::Convolution(ConvolutionClass::WeightGradient(conv)) => {
            product(window_sizes(conv, &results[0], &operands[1]))
        }
        OpClass::Attention(AttentionClass::Forward(attributes)) => {
            attended(device, attributes, operands, 1.0).max(all())
        }
        OpClass::Attention(AttentionClass::Gradient(attributes)) => {
            attended(device, attributes, operands, 2.5).max(all())
        }
        // Which bytes are read of weights depends on how rows fall to experts.
        OpClass::Experts(class) => {
            let (rows, up) = (operands[0].shape[0], &operands[2].shape);
            let addends = op.addends(operands.len()).len();
            let (active, products) = expert_products(class, &operands[..operands.len() - addends]);
            let work: f64 = 2.0 * [products, rows, active, up[1], up[2]].map(exact).iter().product::<f64>();
            multiplied(device, Flops(work), Precision::of(operands[0].dtype))
        }
        OpClass::Movement(MovementClass::Reorder) if op.keeps_order(&operands[0]) => Seconds::ZERO,
        OpClass::Movement(MovementClass::Slice) => touched(device, &[results, results]),
        OpClass::Gather(GatherClass::Rows | GatherClass::Elements) => {
            touched(device, &[&operands[1..], results, results])
        }
        OpClass::Attention(AttentionClass::Merge)
        | OpClass::Recurrence(_)
        | OpClass::Movement(MovementClass::Reorder | MovementClass::Copy | MovementClass::Pad)
        | OpClass::Gather(GatherClass::RowsGradient { .. })
        | OpClass::Constant
        | OpClass::Elementwise(_)
        | OpClass::Norm(_)
        | OpClass::Softmax
        | OpClass::LogSoftmax
        | OpClass::CrossEntropy
        | OpClass::Reduction
        | OpClass::Scan
        | OpClass::Scatter
        | OpClass::Resampling
        | OpClass::Dequantization
        | OpClass::Quantization
        | OpClass::Optimizer
        | OpClass::Region
        | OpClass::Dynamic => all(),
    }
}

/// So many multiplications and additions, as products of that arithmetic.
fn multiplied(device: &Device, work: Flops, precision: Precision) -> Seconds {
    let tiled = compute::fastest(device, precision) * work.0;
    // What has one row or column may go by elements.
    Seconds(tiled).min(work / device.vector_peak.value)
}

/// Attention in one kernel; nothing where scores go through memory.
fn attended(device: &Device, attributes: &planner_ir::Attention, operands: &[Type], passes: f64) -> Seconds {
    if device.passes.contains_key(&Pass::Score) {
        return Seconds::ZERO;
    }
    let [q, k, v] = [0, 1, 2].map(|it: usize| &operands[it].shape);
    let seen = if attributes.causal || attributes.window.is_some() {
        Seen::earlier([q[2], k[2]], k[2], attributes.window)
    } else {
        Seen::all(k[2])
    };
    let whole = Attention {
        heads: q[0] * q[1],
        queries: q[2],
        keys: k[2],
        seen,
        key_size: q[3],
        value_size: v[3],
        precision: Precision::of(operands[0].dtype),
    };
    let reached = if passes > 1.0 { &device.attention_backward } else { &device.attention_forward };
    let rate = reached.value.0 * device.matrix_peak.at(whole.precision).value.0;
    Seconds(passes * whole.work().0 / rate)
}

/// These values read or written once.
fn touched(device: &Device, values: &[&[Type]]) -> Seconds {
    let bytes = values.iter().copied().flatten().map(|it| exact(it.bytes())).sum::<f64>();
    Seconds(bytes / compute::memory_rate(device))
}

#[cfg(test)]
mod tests;
