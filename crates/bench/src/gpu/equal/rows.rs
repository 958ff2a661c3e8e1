//! Softmax, losses and norms of rows, with what one kernel computes around them; sums, extremes and running
//! sums along dimensions.

use files::Failure;
use kernels::cuda::{Input, Piece, classified};
use kernels::{Array, Span};
use planner_ir::{DType, Extreme, Op, Real, Recurrence, Reduction, Unary};

use super::case::{Cases, Parts, computed, failed, made, numbers, positive, whole};

/// Rows that a warp computes, and some that a block of 256 threads and of 1024 does.
const SHORT: [[u64; 2]; 3] = [[48, 320], [5, 2051], [3, 8209]];

/// Rows of models: norms of 4096, and scores of GPT-2's and Llama's vocabularies.
const LONG: [[u64; 2]; 3] = [[2048, 4096], [64, 50_257], [16, 128_256]];

const EPSILON: Real = Real(1e-5);

/// The label that does not count.
const IGNORED: i64 = -1;

/// Cases of rows; of those of models too, if they are wanted.
pub(super) fn of(cases: &mut Cases, models: bool) -> Result<(), Failure> {
    let long = LONG.into_iter().filter(|_| models);
    for shape in SHORT.into_iter().chain(long) {
        softmax(cases, shape)?;
        losses(cases, shape)?;
        norms(cases, shape)?;
        residuals(cases, shape)?;
    }
    let x = cases.numbers(&[6, 33, 40], 0)?;
    cases.op("softmax along columns", Op::Softmax { dim: 1 }, vec![x.clone()])?;
    let scale = cases.numbers(&[33, 40], 1)?;
    let norm = Op::LayerNorm { dims: 2, epsilon: EPSILON };
    cases.op("layer norm of two dimensions", norm, vec![x.clone(), scale])?;
    let scales = [2, 3].map(|seed| cases.numbers(&[33], seed));
    let [scale, bias] = scales;
    cases.op("instance norm", Op::InstanceNorm { epsilon: EPSILON }, vec![x, scale?, bias?])?;
    reduced(cases)
}

fn named(what: &str, [rows, row]: [u64; 2]) -> String {
    format!("{what} of {rows} x {row},")
}

fn softmax(cases: &mut Cases, shape: [u64; 2]) -> Result<(), Failure> {
    let [x, dy] = [cases.numbers(&shape, 0)?, cases.numbers(&shape, 1)?];
    let made = computed(&Op::Softmax { dim: 1 }, &[&x])?;
    let back = made.into_iter().chain([dy]).collect();
    cases.op(&named("softmax", shape), Op::Softmax { dim: 1 }, vec![x.clone()])?;
    cases.op(&named("logarithm of softmax", shape), Op::LogSoftmax { dim: 1 }, vec![x])?;
    cases.op(&named("gradient of softmax", shape), Op::SoftmaxGradient { dim: 1 }, back)
}

/// A loss, its gradient towards scores, and both by one kernel.
fn losses(cases: &mut Cases, shape: [u64; 2]) -> Result<(), Failure> {
    let [rows, classes] = shape;
    let scores = cases.numbers(&shape, 0)?;
    let labels = whole(DType::I64, &[rows], IGNORED, i64::try_from(classes).unwrap_or(i64::MAX), 1)?;
    let dloss = cases.numbers(&[rows], 2)?;
    let loss = Op::CrossEntropy { ignored: IGNORED };
    let gradient = Op::CrossEntropyGradient { ignored: IGNORED };
    let operands = vec![scores, labels, dloss];
    let both: Vec<&Array> = operands.iter().collect();
    let expected: Vec<Array> =
        computed(&loss, &both[..2])?.into_iter().chain(computed(&gradient, &both)?).collect();
    let pieces = |arrays: &[Array]| -> Vec<Piece> {
        arrays.iter().map(|it| Piece::whole(it.type_().clone())).collect()
    };
    if let ([x, y, z], [losses, towards]) = (&pieces(&operands)[..], &pieces(&expected)[..]) {
        let work = classified(IGNORED, [x, y, z], [losses, towards]).map_err(failed)?;
        let name = named("cross entropy with its gradient", shape);
        cases.work(cases.most, &name, work, operands.clone(), expected);
    }
    cases.op(&named("cross entropy", shape), loss, operands[..2].to_vec())?;
    cases.op(&named("gradient of cross entropy", shape), gradient, operands)
}

fn norms(cases: &mut Cases, shape: [u64; 2]) -> Result<(), Failure> {
    let x = |cases: &Cases, seed: u64| cases.numbers(&shape, seed);
    let row = |cases: &Cases, seed: u64| cases.numbers(&shape[1..], seed);
    let epsilon = EPSILON;
    let given = vec![x(cases, 0)?, row(cases, 1)?, row(cases, 2)?];
    cases.op(&named("layer norm", shape), Op::LayerNorm { dims: 1, epsilon }, given)?;
    let given = vec![x(cases, 0)?, row(cases, 1)?];
    cases.op(&named("rms norm", shape), Op::RmsNorm { dims: 1, epsilon }, given)?;
    let given = vec![x(cases, 0)?, row(cases, 1)?, x(cases, 2)?];
    let name = named("gradient of layer norm", shape);
    cases.op(&name, Op::LayerNormGradient { dims: 1, epsilon }, given.clone())?;
    cases.op(&named("gradient of rms norm", shape), Op::RmsNormGradient { dims: 1, epsilon }, given)
}

/// Norms in one kernel with the sum with a residual before them, and their gradients with that after them.
fn residuals(cases: &mut Cases, shape: [u64; 2]) -> Result<(), Failure> {
    let (dtype, epsilon) = (cases.dtype, EPSILON);
    let x = |seed: u64| numbers(dtype, &shape, seed);
    let row = |seed: u64| numbers(dtype, &shape[1..], seed);
    // What is handed on is rounded, and may be to the other side.
    let most = 2.0 * cases.most;

    let mut parts = Parts::new(&shape);
    let [residual, made, bias] = [parts.operand(x(0)?), parts.operand(x(1)?), parts.operand(row(2)?)];
    let [scale, shift] = [parts.operand(row(3)?), parts.operand(row(4)?)];
    let made = parts.add([made, bias], dtype);
    let total = parts.add([residual, made], dtype);
    let normal = parts.step(Op::LayerNorm { dims: 1, epsilon }, &[total, scale, shift], dtype);
    let name = named("a bias, a residual and layer norm in one kernel", shape);
    cases.chain(most, &name, parts.storing(&[total, normal]))?;

    let mut parts = Parts::new(&shape);
    let [residual, made, scale] = [parts.operand(x(0)?), parts.operand(x(1)?), parts.operand(row(3)?)];
    let total = parts.add([residual, made], dtype);
    let normal = parts.step(Op::RmsNorm { dims: 1, epsilon }, &[total, scale], dtype);
    let name = named("a residual and rms norm in one kernel", shape);
    cases.chain(most, &name, parts.storing(&[total, normal]))?;

    for (name, op) in [
        ("gradients of layer norm and residual in one kernel", Op::LayerNormGradient { dims: 1, epsilon }),
        ("gradients of rms norm and residual in one kernel", Op::RmsNormGradient { dims: 1, epsilon }),
    ] {
        let mut parts = Parts::new(&shape);
        let [input, scale, back] = [parts.operand(x(0)?), parts.operand(row(1)?), parts.operand(x(2)?)];
        let [other, residual] = [parts.operand(x(3)?), parts.operand(x(4)?)];
        let back = parts.add([back, other], dtype);
        let towards = parts.step(op, &[input, scale, back], dtype);
        let total = parts.add([residual, towards], dtype);
        cases.chain(most, &named(name, shape), parts.storing(&[total]))?;
    }

    let mut parts = Parts::new(&shape).at(shape.map(|it| Span::contiguous(it, 0)).to_vec());
    let [input, scale] = [parts.operand(x(0)?), parts.operand(row(1)?)];
    let dropout = Op::Dropout { ratio: Real(0.25), seed: 7 };
    let kept = parts.steps(dropout, &[input], &[dtype, DType::Bool]);
    let kept = [Input::Step(kept, 0), Input::Step(kept, 1)];
    let normal = parts.step(Op::RmsNorm { dims: 1, epsilon }, &[kept[0], scale], dtype);
    let name = named("dropout and rms norm in one kernel", shape);
    cases.chain(most, &name, parts.storing(&[kept[0], kept[1], normal]))?;
    if dtype == DType::F32 {
        return Ok(());
    }

    // As in training steps: narrow, wide around the norm, narrow again.
    let (mut parts, wide) = (Parts::new(&shape), DType::F32);
    let [input, scale] = [parts.operand(x(0)?), parts.operand(numbers(wide, &shape[1..], 1)?)];
    let input = parts.step(Op::Cast(wide), &[input], wide);
    let normal = parts.step(Op::LayerNorm { dims: 1, epsilon }, &[input, scale], wide);
    let narrow = parts.step(Op::Cast(dtype), &[normal], dtype);
    let gated = parts.step(Op::Gated(Unary::Silu), &[normal, input], wide);
    let name = named("layer norm in f32 in one kernel with its casts", shape);
    cases.chain(most, &name, parts.storing(&[narrow, gated]))
}

/// Along the last dimension, along others, and of everything: few results are made in two passes.
fn reduced(cases: &mut Cases) -> Result<(), Failure> {
    let x = cases.numbers(&[12, 70, 40], 0)?;
    for (name, dims) in [("rows", vec![2]), ("columns", vec![0, 1]), ("everything", vec![0, 1, 2])] {
        for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Max, Reduction::Min] {
            let op = Op::Reduce { reduction, dims: dims.clone() };
            cases.op(&format!("{reduction:?} of {name}").to_lowercase(), op, vec![x.clone()])?;
        }
    }
    let few = positive(cases.dtype, &[12, 5], 1)?;
    cases.op("product of rows", Op::Reduce { reduction: Reduction::Product, dims: vec![1] }, vec![few])?;
    for extreme in [Extreme::Largest, Extreme::Smallest] {
        let word = format!("{extreme:?}").to_lowercase();
        let op = Op::ArgExtreme { extreme, dim: 2 };
        cases.exact(&format!("place of the {word}"), op, vec![x.clone()])?;
        let op = Op::TopK { dim: 2, k: 4, extreme };
        cases.exact(&format!("four {word}"), op, vec![x.clone()])?;
    }
    let running = Op::CumSum { dim: 1, exclusive: false, reverse: false };
    cases.op("running sum", running, vec![x.clone()])?;
    cases.op("running sum from the end", Op::CumSum { dim: 2, exclusive: true, reverse: true }, vec![x])?;
    recurrences(cases)
}

/// States that go from token to token: one decay for each head, and one for each row.
fn recurrences(cases: &mut Cases) -> Result<(), Failure> {
    let wide = cases.dtype.accumulated();
    for (decays, name) in [(1, "one decay"), (12, "a decay for each row")] {
        let keys = [2, 21, 3, 12];
        let [q, k] = [0, 1].map(|seed| cases.numbers(&keys, seed));
        let v = cases.numbers(&[2, 21, 6, 40], 2)?;
        let fading = positive(wide, &[2, 21, 6, decays], 3)?;
        let g = made(&Op::Unary(Unary::Neg), &[&fading])?;
        let state = numbers(wide, &[2, 6, 12, 40], 4)?;
        // Rows of modest length, as norms make them: states stay small.
        let [q, k] = [q?, k?].map(|it| made(&Op::Softmax { dim: 3 }, &[&it]));
        let (q, k) = (q?, k?);
        let scan = vec![q.clone(), k.clone(), v.clone(), g.clone(), state.clone()];
        cases.op(&format!("selective scan, {name}"), Op::Recurrence(Recurrence::SelectiveScan), scan)?;
        let rates = positive(wide, &[2, 21, 6], 5)?;
        let delta = vec![q, k, v, g, rates, state];
        cases.op(&format!("gated delta rule, {name}"), Op::Recurrence(Recurrence::GatedDelta), delta)?;
    }
    Ok(())
}
