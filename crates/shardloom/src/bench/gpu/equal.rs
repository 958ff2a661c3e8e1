//! Kernels on the GPU against the same operations on processors.

use device::Bench;
use kernels::{Array, evaluate};
use planner_ir::{Attention, Binary, Contract, DType, Label, Op, Real, Reduction, Type, Unary};

use super::{Given, Row};
use crate::failure::Failure;
use crate::inputs::Random;
use crate::measure::gpu::failure;

/// How far results in 32 bits and in 16 may be from the reference, as a part of the largest number: sums are
/// made in another order, and narrow ones are rounded once more.
const APART: [(DType, f64); 3] = [(DType::F32, 1e-4), (DType::BF16, 2e-2), (DType::F16, 5e-3)];

/// Rows and their length, heads and how long they are.
const ROWS: u64 = 48;
const ROW: u64 = 320;
const HEADS: [u64; 4] = [1, 4, 192, 64];

/// An operation with its operands.
struct Case {
    name: &'static str,
    op: Op,
    operands: Vec<Array>,
}

/// For each operation and each type of numbers, how far the GPU is from a processor.
pub(super) fn rows(given: &Given<'_>, bench: &mut Bench) -> Result<Vec<Row>, Failure> {
    let mut all = Vec::new();
    for (dtype, most) in APART {
        for Case { name, op, operands } in cases(dtype)? {
            let given: Vec<&Array> = operands.iter().collect();
            let expected = computed(&op, &given)?;
            all.push((format!("{name} of {dtype}"), op, operands, expected, most));
        }
    }
    let types = |arrays: &[Array]| arrays.iter().map(|it| it.type_().clone()).collect::<Vec<Type>>();
    let typed: Vec<[Vec<Type>; 2]> = all.iter().map(|it| [types(&it.2), types(&it.3)]).collect();
    (given.say)("compiling kernels".to_owned());
    let operations: Vec<_> =
        all.iter().zip(&typed).map(|(it, [from, to])| (&it.1, from.as_slice(), to.as_slice())).collect();
    bench.prepare(&operations).map_err(failure)?;
    let mut rows = Vec::new();
    for ((what, op, operands, expected, most), [_, results]) in all.iter().zip(&typed) {
        (given.say)(what.clone());
        let operands: Vec<&Array> = operands.iter().collect();
        let found = bench.compute(op, &operands, results).map_err(failure)?;
        let apart = found.iter().zip(expected).map(|(a, b)| apart(a, b)).fold(0.0, f64::max);
        rows.push(Row::new("kernels against processors", what.as_str()).apart(apart, *most));
    }
    Ok(rows)
}

/// The largest difference, as a part of the largest number; infinite where a number is none.
pub(super) fn apart(found: &Array, expected: &Array) -> f64 {
    let (Ok(found), Ok(expected)) = (found.to_floats(), expected.to_floats()) else { return f64::INFINITY };
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, it| most.max(it.abs()));
    let differences = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    let worst = differences.fold(0.0_f64, |most, it| if it.is_nan() { f64::INFINITY } else { most.max(it) });
    worst / largest
}

fn computed(op: &Op, operands: &[&Array]) -> Result<Vec<Array>, Failure> {
    evaluate(op, operands).map_err(|error| Failure::internal("bench gpu", error))
}

fn numbers(dtype: DType, shape: &[u64], seed: u64) -> Result<Array, Failure> {
    let count = usize::try_from(shape.iter().product::<u64>()).unwrap_or(0);
    let mut random = Random::new(seed, "bench gpu");
    let all: Vec<f64> = (0..count).map(|_| random.number()).collect();
    let array = Array::of::<f64>(shape, &all).map_err(|error| Failure::internal("bench gpu", error))?;
    Ok(computed(&Op::Cast(dtype), &[&array])?.swap_remove(0))
}

fn cases(dtype: DType) -> Result<Vec<Case>, Failure> {
    let x = |seed: u64| numbers(dtype, &[ROWS, ROW], seed);
    let factors = |seed: u64| numbers(dtype, &[ROW], seed);
    let epsilon = Real(1e-5);
    let case = |name: &'static str, op: Op, operands: Vec<Array>| Case { name, op, operands };
    let mut all = vec![
        case("sum", Op::Binary(Binary::Add), vec![x(0)?, x(1)?]),
        case("gelu", Op::Unary(Unary::Gelu), vec![x(0)?]),
        case("silu", Op::Unary(Unary::Silu), vec![x(0)?]),
        case("layer norm", Op::LayerNorm { dims: 1, epsilon }, vec![x(0)?, factors(1)?, factors(2)?]),
        case(
            "gradient of layer norm",
            Op::LayerNormGradient { dims: 1, epsilon },
            vec![x(0)?, factors(1)?, x(2)?],
        ),
        case("rms norm", Op::RmsNorm { dims: 1, epsilon }, vec![x(0)?, factors(1)?]),
        case("softmax", Op::Softmax { dim: 1 }, vec![x(0)?]),
        case("sum of rows", Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }, vec![x(0)?]),
        case("transpose", Op::Transpose { permutation: vec![1, 0] }, vec![x(0)?]),
        case("concatenation", Op::Concat { dim: 0 }, vec![x(0)?, x(1)?]),
    ];
    let [row, column, inner] = [0, 1, 2].map(Label);
    let ways = [
        ("product", [row, inner], [column, inner], [[ROWS, ROW], [64, ROW]]),
        ("product of an input's gradient", [row, inner], [inner, column], [[ROWS, ROW], [ROW, 64]]),
        ("product of a weight's gradient", [inner, row], [inner, column], [[ROW, ROWS], [ROW, 64]]),
    ];
    for (name, left, right, shapes) in ways {
        let op = Contract { left: left.to_vec(), right: right.to_vec(), result: vec![row, column] };
        let operands = vec![numbers(dtype, &shapes[0], 0)?, numbers(dtype, &shapes[1], 1)?];
        all.push(case(name, Op::Contract(op), operands));
    }
    all.extend(attention(dtype)?);
    Ok(all)
}

/// Causal attention, and its gradient by what it makes.
fn attention(dtype: DType) -> Result<[Case; 2], Failure> {
    let attention =
        Attention { scale: Real(0.125), causal: true, softcap: Real(0.0), window: None, statistics: true };
    let given = [0, 1, 2].map(|seed| numbers(dtype, &HEADS, seed));
    let mut operands = given.into_iter().collect::<Result<Vec<_>, _>>()?;
    let forward = Case { name: "causal attention", op: Op::Attention(attention), operands: operands.clone() };
    operands.extend(computed(&forward.op, &operands.iter().collect::<Vec<_>>())?);
    operands.push(numbers(dtype, &HEADS, 3)?);
    let op = Op::AttentionGradient { attention, mask: false };
    Ok([forward, Case { name: "gradient of causal attention", op, operands }])
}
