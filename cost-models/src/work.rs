//! The time of an operation on the blocks that a device holds.
//!
//! Every operation is a matrix product, some of them, or passes over memory: see [`crate::compute`]
//! for what those take.

mod least; // of all devices together
mod lying; // which way matrices lie
mod recurrence; // states that go from token to token

use planner_ir::{
    AttentionClass, Contract, Conv, ConvolutionClass, DType, ExpertsClass, GatherClass, Label, MovementClass,
    Op, OpClass, Type, numbers,
};

use crate::compute::{self, Attention, MatrixProduct, Seen, element_wise, matrix_product};
use crate::machine::{Device, Pace, Pass, Precision};
use crate::units::{Bytes, Flops, Seconds, exact};
pub use least::least;

/// An operation as one device does it, at once.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// What is computed.
    pub op: &'a Op,
    /// The types of the whole operands.
    pub whole: &'a [Type],
    /// The types of what the device uses of them.
    pub operands: &'a [Type],
    /// The types of what the device makes.
    pub results: &'a [Type],
    /// Which rows of what depends on positions the device has, of those it has a part of.
    pub rows: Rows,
}

/// Which rows a device has of what depends on positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Those of one stretch: of causal attention, some device has the last.
    Together,
    /// Every so many of the whole: all devices have about the same work.
    Spread,
}

/// Time of an operation.
#[must_use]
pub fn operation(device: &Device, work: &Work<'_>) -> Seconds {
    let Work { op, operands, results, .. } = *work;
    match op.class() {
        OpClass::MatrixProduct(contract) => {
            let [batch, m, n, k] = product_sizes(contract, operands);
            let turning = match lying::turned(contract, operands) {
                Some(turned) if m > 1 && n > 1 => compute::turning(device, turned.all, turned.row),
                _ => Seconds::ZERO,
            };
            let widening = widening(device, operands);
            let precision = match widening > Seconds::ZERO {
                true => Precision::of(results[0].dtype),
                false => Precision::of_op(op, operands[0].dtype),
            };
            let mut product = MatrixProduct::forward(batch, [m, n, k], precision);
            for (addend, sum) in op.addends(operands.len()) {
                product.per_result = added(&operands[addend], &results[sum]);
            }
            multiplied(device, &product) + turning + widening
        }
        OpClass::Attention(AttentionClass::Forward(attributes)) => {
            let it = attention(attributes, work);
            let [s, t, d, e] = [it.queries.min(QUERIES), keys_computed(&it), it.key_size, it.value_size];
            let computing = match device.passes.get(&Pass::Score) {
                None => compute::attention(device, &it),
                Some(pace) => in_products(device, &it, &[[s, t, d], [s, e, t]], 1.0, pace),
            };
            // Scores stay on the device's chip: only operands and the result are traffic.
            computing.max(touch(device, operands, results))
        }
        OpClass::Attention(AttentionClass::Gradient(attributes)) => {
            let it = attention(attributes, work);
            let [s, t, d, e] = [it.queries.min(QUERIES), keys_computed(&it), it.key_size, it.value_size];
            let computing = match device.passes.get(&Pass::Score) {
                None => compute::attention_gradient(device, &it),
                Some(pace) => {
                    // Scores again, their gradient by the values, and what follows for v, q and k.
                    let products = [[s, t, d], [s, t, e], [t, e, s], [s, d, t], [t, d, s]];
                    in_products(device, &it, &products, 2.0, pace)
                }
            };
            computing.max(touch(device, operands, results))
        }
        OpClass::Attention(AttentionClass::Merge) => pass(device, Pass::Softmax, operands, results),
        OpClass::Recurrence(it) => {
            recurrence::time(device, it, operands).max(touch(device, operands, results))
        }
        OpClass::Experts(class) => experts(device, class, work),
        OpClass::Convolution(ConvolutionClass::Forward(conv)) => {
            let [groups, points, made, window] = window_sizes(conv, &operands[1], &results[0]);
            product(device, groups, [points, made, window], Precision::of(operands[0].dtype))
        }
        OpClass::Convolution(ConvolutionClass::InputGradient(conv)) => {
            let [groups, points, made, window] = window_sizes(conv, &operands[0], &operands[1]);
            product(device, groups, [points, window, made], Precision::of(operands[0].dtype))
        }
        OpClass::Convolution(ConvolutionClass::WeightGradient(conv)) => {
            let [groups, points, made, window] = window_sizes(conv, &results[0], &operands[1]);
            product(device, groups, [made, window, points], Precision::of(operands[0].dtype))
        }
        // Zeros everywhere, and the rows that are looked up read and written.
        OpClass::Gather(GatherClass::RowsGradient { .. }) => {
            touch(device, &[operands, &operands[1..]].concat(), results)
        }
        // Only the rows that are looked up are read.
        OpClass::Gather(GatherClass::Rows | GatherClass::Elements) => {
            pass(device, Pass::Copy, &operands[1..], &[results, results].concat())
        }
        OpClass::Movement(MovementClass::Reorder) if op.keeps_order(&operands[0]) => Seconds::ZERO,
        OpClass::Movement(MovementClass::Reorder) => pass(device, Pass::Transpose, operands, results),
        OpClass::Movement(MovementClass::Copy | MovementClass::Pad) => {
            pass(device, Pass::Copy, operands, results)
        }
        // Only what is taken is read.
        OpClass::Movement(MovementClass::Slice) => pass(device, Pass::Copy, results, results),
        OpClass::Elementwise(class) => pass(device, Pass::of_elements(class), operands, results),
        OpClass::Optimizer => pass(device, Pass::Quotient, operands, results),
        OpClass::Softmax | OpClass::LogSoftmax | OpClass::CrossEntropy => {
            pass(device, Pass::Softmax, operands, results)
        }
        OpClass::Norm(_) => pass(device, Pass::Norm, operands, results),
        OpClass::Reduction | OpClass::Scan => pass(device, Pass::Reduce, operands, results),
        // Only what is written over something is read and written, and where.
        OpClass::Scatter if op.written().is_some() => {
            pass(device, Pass::Copy, &operands[1..], &operands[operands.len() - 1..])
        }
        OpClass::Constant
        | OpClass::Scatter
        | OpClass::Resampling
        | OpClass::Dequantization
        | OpClass::Quantization
        | OpClass::Region
        | OpClass::Dynamic => pass(device, Pass::Sum, operands, results),
    }
}

/// Time to make the operands of a product numbers of 16 bits where they have scales for blocks and the device
/// has no products of such.
fn widening(device: &Device, operands: &[Type]) -> Seconds {
    let [a, b, of_a, of_b, ..] = operands else { return Seconds::ZERO };
    if of_a.dtype == DType::F32 || device.scales_blocks() {
        return Seconds::ZERO;
    }
    let wide = [(a, of_a), (b, of_b)].map(|(it, of)| Type::new(DType::BF16, numbers(it, of).shape));
    touch(device, operands, &wide)
}

/// Time to copy so many bytes once: they are read and written.
#[must_use]
pub fn copy(device: &Device, held: Bytes) -> Seconds {
    element_wise(device, Bytes(2 * held.0), Flops(0.0))
}

/// Time of an operation that is no product, by the kind of pass where the device has a pace for that:
///
/// ```text
/// t = start + max(bytes/(e_mem · bandwidth), elements · pace)
/// ```
///
/// `elements` are those of the largest value that is touched.
fn pass(device: &Device, kind: Pass, operands: &[Type], results: &[Type]) -> Seconds {
    let Some(pace) = device.passes.get(&kind) else { return touch(device, operands, results) };
    let elements = operands.iter().chain(results).map(Type::elements).max().unwrap_or(0);
    let streaming = touch(device, operands, results) - device.launch.value;
    pace.start.value + streaming.max(exact(elements) * pace.element.value)
}

/// Attention of the first three operands.
///
/// Of causal attention, some device has the last stretch of the queries, and the first of the keys,
/// which are seen by most. Stripes are all alike.
fn attention(attributes: &planner_ir::Attention, work: &Work<'_>) -> Attention {
    let [q, k, v] = [0, 1, 2].map(|it: usize| &work.operands[it].shape);
    let ([queries, keys], [all, of]) = ([q[2], k[2]], [0, 1].map(|it: usize| work.whole[it].shape[2]));
    let seen = match work.rows {
        _ if !attributes.causal && attributes.window.is_none() => Seen::all(keys),
        Rows::Together => Seen::earlier([queries, keys], of, attributes.window),
        Rows::Spread => {
            let whole = Seen::earlier([all, of], of, attributes.window);
            let part = exact(keys) / exact(of.max(1));
            Seen { average: whole.average * part, most: whole.most.min(keys) }
        }
    };
    Attention {
        heads: q[0] * q[1],
        queries,
        keys,
        seen,
        key_size: q[3],
        value_size: v[3],
        precision: Precision::of(work.operands[0].dtype),
    }
}

/// Queries that the kernel for threads does at a time.
///
/// Source: `kernels/src/attention.rs`, `ROWS`.
pub const QUERIES: u64 = 64;

/// With how many keys scores of a query are computed on average, where queries are done some at a time:
/// with all that any of those sees.
fn keys_computed(attention: &Attention) -> u64 {
    let beyond = attention.queries.min(QUERIES) / 2;
    (keys_seen(attention) + beyond).min(attention.keys)
}

/// How many keys a query sees on average, as a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not more than there are keys")]
fn keys_seen(attention: &Attention) -> u64 {
    attention.seen.average.ceil() as u64
}

/// Time of attention that is done by products for each head and some queries at a time, and so many passes
/// over the scores of each query.
fn in_products(
    device: &Device,
    attention: &Attention,
    products: &[[u64; 3]],
    passes: f64,
    pace: &Pace,
) -> Seconds {
    let calls = attention.heads * attention.queries.div_ceil(QUERIES);
    let one = |&sizes: &[u64; 3]| {
        matrix_product(device, &MatrixProduct::forward(calls, sizes, attention.precision))
    };
    // Of causal attention, queries skip what they do not see.
    let queries = exact(attention.heads * attention.queries);
    let row = pace.start.value + exact(keys_seen(attention)) * pace.element.value;
    products.iter().map(one).sum::<Seconds>() + passes * queries * row
}

/// Time of an operation that reads its operands and writes its results once.
#[must_use]
pub fn touch(device: &Device, operands: &[Type], results: &[Type]) -> Seconds {
    let bytes = operands.iter().chain(results).map(Type::bytes).sum();
    let elements: u64 = results.iter().map(Type::elements).sum();
    element_wise(device, Bytes(bytes), Flops(exact(elements)))
}

fn product(device: &Device, batch: u64, [m, n, k]: [u64; 3], precision: Precision) -> Seconds {
    multiplied(device, &MatrixProduct::forward(batch, [m, n, k], precision))
}

fn multiplied(device: &Device, product: &MatrixProduct) -> Seconds {
    let tiled = matrix_product(device, product);
    if product.m > 1 && product.n > 1 {
        return tiled;
    }
    // What has one row or column is no work for tiles: all processors read it as it lies.
    tiled.min(element_wise(device, product.traffic(), product.work()))
}

/// What passes of each element of a product that is added to something: what is there is read, and written again.
fn added(addend: &Type, sum: &Type) -> Bytes {
    Bytes(addend.dtype.bytes() + sum.dtype.bytes())
}

/// The time of the products of all experts that the device has: for each weight one product for all those that have
/// a token, each with its share of the rows. Where blocks are packed, one expert's product comes after another's.
///
/// A gradient of weights that is added to something takes as much longer as that product of each expert does, so that
/// what one takes does not depend on which others are added.
fn experts(device: &Device, class: ExpertsClass, work: &Work<'_>) -> Seconds {
    let Work { op, whole, operands, results, .. } = *work;
    let (x, up) = (&operands[0].shape, &operands[2].shape);
    let addends = op.addends(operands.len());
    let (active, products) = expert_products(class, &operands[..operands.len() - addends.len()]);
    let experts = whole[2].shape[0].max(1);
    let rows = (x[0] * active * up[0]).div_ceil(experts).max(1);
    let busy = match class {
        ExpertsClass::Forward { .. } => busy(up[0], x[0], exact(active) / exact(experts)),
        // Gradients of all weights are written.
        ExpertsClass::Gradient { .. } => up[0].max(1),
    };
    let each = rows.div_ceil(busy);
    let [times, together] = if device.products.packing.is_some() { [busy, 1] } else { [1, busy] };
    let precision = Precision::of(operands[0].dtype);
    let longer = |&(addend, sum): &(usize, usize)| {
        let alone = MatrixProduct::forward(together, [up[1], up[2], each], precision);
        let adds = MatrixProduct { per_result: added(&operands[addend], &results[sum]), ..alone };
        exact(times) * (multiplied(device, &adds) - multiplied(device, &alone))
    };
    exact(products * times) * product(device, together, [each, up[1], up[2]], precision)
        + addends.iter().map(longer).sum::<Seconds>()
}

/// Of so many experts, how many have a token, where each of so many tokens goes to one with this probability: the
/// expected number, rounded up.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and all")]
fn busy(experts: u64, tokens: u64, probability: f64) -> u64 {
    let idle = (1.0 - probability.clamp(0.0, 1.0)).powf(exact(tokens));
    ((exact(experts) * (1.0 - idle)).ceil() as u64).clamp(1, experts.max(1))
}

/// How many experts a row goes to, and how many products each of them is.
fn expert_products(class: ExpertsClass, operands: &[Type]) -> (u64, u64) {
    let weights = expert_weights(operands);
    match class {
        ExpertsClass::Forward { active } => (active, weights),
        // Two products for each of the forward ones, and the hidden units again.
        ExpertsClass::Gradient { active } => (active, 3 * weights - 1),
    }
}

/// How many products the experts have whose operands these are: biases are none.
pub(crate) fn expert_weights(operands: &[Type]) -> u64 {
    let weights = operands[2..].iter().filter(|it| it.rank() == 3).count();
    u64::try_from(weights).unwrap_or(u64::MAX)
}

/// A contraction as a matrix product: batch, m, n, k. Operands with scales may have two numbers in a byte.
pub(crate) fn product_sizes(contract: &Contract, operands: &[Type]) -> [u64; 4] {
    let mut sizes = [1; 4];
    let both = |label: &Label| contract.left.contains(label) && contract.right.contains(label);
    let shape = |it: usize| match operands {
        [_, _, _, _, ..] => numbers(&operands[it], &operands[it + 2]).shape,
        _ => operands[it].shape.clone(),
    };
    for (labels, shape, alone) in [(&contract.left, shape(0), 1), (&contract.right, shape(1), 2)] {
        for (label, &extent) in labels.iter().zip(&shape) {
            let place = match (both(label), contract.result.contains(label)) {
                (false, _) => alone,
                (true, true) => 0,
                (true, false) => 3,
            };
            // Labels of both operands are counted with the left one.
            if alone == 1 || !both(label) {
                sizes[place] *= extent;
            }
        }
    }
    sizes
}

/// A convolution as matrix products over windows: how many groups, points, channels made of each
/// group, and elements of a window.
pub(crate) fn window_sizes(conv: &Conv, w: &Type, y: &Type) -> [u64; 4] {
    let (w, y) = (&w.shape, &y.shape);
    let positions: u64 = y[2..].iter().product::<u64>() * y[0];
    let window: u64 = w[1..].iter().product();
    let groups = conv.groups.min(y[1].max(1));
    [groups, positions, y[1] / groups, window]
}

#[cfg(test)]
mod tests;
