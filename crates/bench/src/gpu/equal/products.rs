//! Sums of products: by the library, by plain kernels, in windows and of experts.

use files::Failure;
use planner_ir::{Contract, Conv, DType, Label, Op, Real, Unary};

use super::case::{Cases, cast, failed, made, whole};

/// Rows, columns and the length of sums.
const PRODUCT: [u64; 3] = [48, 64, 320];

/// Tokens, more than a block lists at a time; what they are long, units of an expert, experts.
const TOKENS: u64 = 300;
const HIDDEN: u64 = 48;
const UNITS: u64 = 40;
/// Units of an expert as tensor cores take them, more than a block makes at a time.
const WIDE_UNITS: u64 = 144;
const EXPERTS: u64 = 4;
/// How many experts a token uses.
const ACTIVE: u64 = 2;

/// Cases of products, of convolutions and of experts.
pub(super) fn of(cases: &mut Cases) -> Result<(), Failure> {
    let [m, n, k] = PRODUCT;
    let ways = [
        ("product", ["ik", "jk", "ij"], [[m, k], [n, k]]),
        ("product of an input's gradient", ["ik", "kj", "ij"], [[m, k], [k, n]]),
        ("product of a weight's gradient", ["ki", "kj", "ij"], [[k, m], [k, n]]),
    ];
    for (name, labels, shapes) in ways {
        let operands = vec![cases.numbers(&shapes[0], 0)?, cases.numbers(&shapes[1], 1)?];
        cases.op(name, contract(labels), operands)?;
    }
    let heads = vec![cases.numbers(&[6, 20, 32], 0)?, cases.numbers(&[6, 24, 32], 1)?];
    cases.op("products of heads", contract(["bik", "bjk", "bij"]), heads)?;
    let odd = vec![cases.numbers(&[9, 4, 11, 5], 0)?, cases.numbers(&[4, 5, 6], 1)?];
    cases.op("product that is no matrix product", contract(["aibj", "ijc", "cba"]), odd)?;
    convolutions(cases)?;
    squares(cases)?;
    experts(cases, UNITS, "")?;
    if cases.dtype.bytes() == 2 { experts(cases, WIDE_UNITS, " on tensor cores") } else { Ok(()) }
}

/// Whole numbers have no library.
pub(super) fn of_whole_numbers(cases: &mut Cases) -> Result<(), Failure> {
    let [m, n, k] = PRODUCT;
    let operands = vec![whole(cases.dtype, &[m, k], 0, 9, 0)?, whole(cases.dtype, &[n, k], 0, 9, 1)?];
    cases.exact("product", contract(["ik", "jk", "ij"]), operands)
}

fn contract([left, right, result]: [&str; 3]) -> Op {
    let labels = |text: &str| text.bytes().map(Label).collect();
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

fn convolutions(cases: &mut Cases) -> Result<(), Failure> {
    let conv =
        Conv { strides: vec![2, 1], dilations: vec![1, 2], before: vec![1, 2], after: vec![0, 2], groups: 2 };
    let x = cases.numbers(&[2, 6, 12, 10], 0)?;
    let window = cases.numbers(&[4, 3, 3, 3], 1)?;
    let bias = cases.numbers(&[4], 2)?;
    let y = made(&Op::Conv(conv.clone()), &[&x, &window])?;
    let back = cases.numbers(y.shape(), 3)?;
    cases.op("convolution", Op::Conv(conv.clone()), vec![x.clone(), window.clone(), bias])?;
    let op = Op::ConvInputGradient { conv: conv.clone(), spatial: vec![12, 10] };
    cases.op("gradient of convolution towards its input", op, vec![window, back.clone()])?;
    let op = Op::ConvWeightGradient { conv, window: vec![3, 3] };
    cases.op("gradient of convolution towards its windows", op, vec![x, back])
}

/// The squares of more values than one launch reads, some in several parts, some with a rest that is not loaded
/// with others.
fn squares(cases: &mut Cases) -> Result<(), Failure> {
    if cases.dtype == DType::F64 {
        return Ok(());
    }
    let lengths = (0..18).map(|number| [1, 7, 2048, 4103, 300][number % 5]);
    let values = lengths.clone().zip(0..).map(|(length, seed)| cases.numbers(&[length], seed));
    let values: Vec<_> = values.collect::<Result<_, _>>()?;
    let mut sum = 0.0;
    for value in &values {
        sum += value.to_floats().map_err(failed)?.iter().map(|it| it * it).sum::<f64>();
    }
    let types: Vec<(DType, u64)> = lengths.map(|it| (cases.dtype, it)).collect();
    let work = kernels::cuda::squares(&types, DType::F32).ok_or_else(|| failed("no kernel for squares"))?;
    let expected = kernels::Array::of::<f64>(vec![], &[sum]).map_err(failed)?;
    let expected = cast(&expected, DType::F32)?;
    cases.work(1e-5, "squares of many values,", work, values, vec![expected]);
    Ok(())
}

/// Units with gates and without, and with biases and bounds; so many of each expert.
fn experts(cases: &mut Cases, units: u64, what: &str) -> Result<(), Failure> {
    let shapes: [&[u64]; 4] =
        [&[TOKENS, HIDDEN], &[EXPERTS, units, HIDDEN], &[EXPERTS, units, HIDDEN], &[EXPERTS, HIDDEN, units]];
    let given = shapes.iter().zip(0..).map(|(shape, seed)| cases.numbers(shape, seed));
    let given: Vec<_> = given.collect::<Result<_, _>>()?;
    let [x, up, gate, down] = <[_; 4]>::try_from(given).map_err(|_| failed("experts of other operands"))?;
    let gates = gates(cases)?;
    let back = cases.numbers(shapes[0], 5)?;
    // A processor rounds narrow numbers after each product.
    let most = 3.0 * cases.most;
    let activation = Unary::Silu;
    let biases = vec![cases.numbers(&[EXPERTS, units], 6)?, cases.numbers(&[EXPERTS, units], 7)?];
    let bounded = vec![gate.clone()];
    for (name, gate, biases, limit) in [
        ("experts", vec![gate], vec![], None),
        ("experts without gates in units,", vec![], vec![], None),
        ("experts with biases and bounds", bounded, biases, Some(Real(7.0))),
    ] {
        let weights = [vec![up.clone()], gate, vec![down.clone()], biases].concat();
        let mut operands = [vec![x.clone(), gates.clone()], weights].concat();
        let forward = Op::Experts { activation, limit, active: ACTIVE };
        let name = format!("{name}{what}");
        cases.within(most, &name, forward, operands.clone())?;
        operands.push(back.clone());
        let op = |adds: Vec<usize>| Op::ExpertsGradient { activation, limit, active: ACTIVE, adds };
        cases.within(most, &format!("gradients of {name}"), op(vec![]), operands.clone())?;
        let weights: Vec<usize> = (2..operands.len()).filter(|&it| operands[it].shape().len() == 3).collect();
        for &it in &weights {
            operands.push(cast(&operands[it], cases.dtype.accumulated())?);
        }
        cases.within(most, &format!("gradients of {name} that are added"), op(weights), operands)?;
    }
    Ok(())
}

/// Two experts of each token, its own.
fn gates(cases: &Cases) -> Result<kernels::Array, Failure> {
    let weighed = |token: u64, expert: u64| {
        let place = (expert + 3 * token) % EXPERTS;
        if place < ACTIVE { 0.3 + 0.2 * f64::from(u32::try_from(place).unwrap_or(0)) } else { 0.0 }
    };
    let all: Vec<f64> =
        (0..TOKENS).flat_map(|token| (0..EXPERTS).map(move |expert| weighed(token, expert))).collect();
    let gates = kernels::Array::of::<f64>([TOKENS, EXPERTS], &all).map_err(failed)?;
    cast(&gates, cases.dtype)
}
