//! What single things take: in parts of what a copy moves, in operations a second, and beside the prices of a
//! machine.

use calibrate::gpu::trials::{Price, Sizes, Timed, When, all};
use calibrate::gpu::{Care, failure, steady};
use cost_models::compute::Attention;
use cost_models::machine::Machine;
use cost_models::units::{Bytes, exact};
use device::{Bench, Sample, Trial};
use files::Failure;
use kernels::cuda::{Chain, Input, Piece, Step, chained};
use planner_ir::{Binary, DType, Op, Real, Type, Unary};

use super::goal::Bound;
use super::{Given, Row, Section};

const SECTION: Section =
    Section { name: "rates", beside: "the largest copy of this table, and the prices of the machine" };

/// What a gradient of attention computes more than attention.
///
/// Source: Dao, "FlashAttention-2", 2023, section 2.
const BACKWARD: f64 = 2.5;

/// What part of what a copy moves is wanted of kernels that read and write each number once.
const OF_A_COPY: f64 = 0.85;

/// What is wanted of attention, causal, of so many heads of so many queries (operations a second).
const ATTENTION: ([u64; 2], f64) = ([128, 4096], 300e12);

/// Something that is timed, and what it took, or why that is not known.
pub(super) struct Rate {
    pub(super) timed: Timed,
    pub(super) sample: Result<Sample, Unknown>,
}

/// Why it is not known what something takes.
pub(super) enum Unknown {
    /// It was not timed.
    LeftOut(String),
    /// It does not run, or takes another time each time.
    Failed(Failure),
}

/// Times everything.
pub(super) fn measured(given: &Given<'_>, bench: &mut Bench) -> Result<Vec<Rate>, Failure> {
    let sizes = if given.options.quick { Sizes::LITTLE } else { Sizes::FULL };
    let free = bench.free_memory().map_err(failure)?;
    let mut timed = all(&sizes);
    timed.push(fused(sizes.summed())?);
    timed.push(normalised(sizes.normalised())?);
    let mut care = Care::default();
    let rates = timed.into_iter().map(|timed| {
        if timed.bytes() > free / 2 {
            let why = format!("it takes {}", cost_models::quantity::bytes(timed.bytes()));
            return Rate { timed, sample: Err(Unknown::LeftOut(why)) };
        }
        (given.say)(timed.name.clone().into());
        let mut time = || match timed.when {
            When::Rested => bench.time(&timed.trial),
            When::Heated => bench.time_sustained(&timed.trial),
        };
        // What means nothing may be as far apart as it likes.
        let sample = match given.options.quick {
            true => time().map_err(failure),
            false => steady(&timed.name, &mut care, &mut time),
        };
        Rate { timed, sample: sample.map_err(Unknown::Failed) }
    });
    Ok(rates.collect())
}

/// A row for each, beside what it takes by a machine.
pub(super) fn rows(rates: &[Rate], machine: &Machine) -> Vec<Row> {
    // The largest copy is what others are parts of.
    let mut copied = None;
    let rows = rates.iter().map(|Rate { timed, sample }| {
        let row = Row::new(&SECTION, timed.name.clone());
        match sample {
            Ok(sample) => {
                if let Trial::Copy(bytes) = timed.trial {
                    copied = Some(2.0 * exact(bytes) / sample.seconds);
                }
                filled(row, machine, timed, sample.seconds, copied).with(
                    "spread",
                    format!("{:.1} %", 100.0 * sample.spread),
                    sample.spread,
                )
            }
            Err(Unknown::LeftOut(why)) => row.left_out(why),
            Err(Unknown::Failed(why)) => row.failed(why),
        }
    });
    rows.collect()
}

fn filled(row: Row, machine: &Machine, timed: &Timed, seconds: f64, copied: Option<f64>) -> Row {
    let row = row.taking("took", seconds);
    let moving = |row: Row, bytes: f64| {
        let rate = bytes / seconds;
        let row = row.with("rate", format!("{:.1} GB/s", rate / 1e9), rate);
        let part = copied.map(|copied| rate / copied);
        let Some(part) = part else { return row };
        let row = row.with("of a copy", format!("{:.1} %", 100.0 * part), part);
        if matches!(timed.trial, Trial::Copy(_)) {
            return row;
        }
        row.wanting("part of what the largest copy moves", part, Bound::Least(OF_A_COPY))
    };
    let computing = |row: Row, flops: f64| {
        let rate = flops / seconds;
        row.with("computes", format!("{:.1} TFLOP/s", rate / 1e12), rate)
    };
    let work = |attention: &Attention| attention.work().0;
    let row = match (&timed.price, &timed.trial) {
        (Price::Sum(bytes) | Price::Bytes(bytes), _) => moving(row, exact(bytes.0)),
        (_, Trial::Copy(bytes)) => moving(row, 2.0 * exact(*bytes)),
        (Price::Product(product), _) => computing(row, product.work().0),
        (Price::Attention(it), _) => {
            let row = computing(row, work(it));
            match [it.heads, it.queries] == ATTENTION.0 {
                true => row.wanting("operations a second", work(it) / seconds, Bound::Least(ATTENTION.1)),
                false => row,
            }
        }
        (Price::AttentionGradient(it), _) => computing(row, BACKWARD * work(it)),
        _ => row,
    };
    match timed.priced(machine) {
        Some(priced) => row.taking("by prices", priced),
        None => row,
    }
}

/// Three operations in one kernel: what a unit of a transformer does between its products.
fn fused(elements: u64) -> Result<Timed, Failure> {
    let name = format!("sum, gelu and product fused, of {elements} bf16");
    let whole = Type::new(DType::BF16, [elements]);
    let steps = vec![
        step(Op::Binary(Binary::Add), vec![Input::Operand(0), Input::Operand(1)]),
        step(Op::Unary(Unary::GeluTanh), vec![Input::Step(0, 0)]),
        step(Op::Binary(Binary::Mul), vec![Input::Step(1, 0), Input::Operand(2)]),
    ];
    in_one_kernel(name, vec![whole.clone(), whole.clone(), whole], steps, &[2])
}

/// A sum with a residual, which is stored, and its norm: what stands before each product of a transformer.
fn normalised([rows, row]: [u64; 2]) -> Result<Timed, Failure> {
    let name = format!("residual and rms norm fused, of {rows} x {row} bf16");
    let whole = Type::new(DType::BF16, [rows, row]);
    let norm = Op::RmsNorm { dims: 1, epsilon: Real(1e-5) };
    let steps = vec![
        step(Op::Binary(Binary::Add), vec![Input::Operand(0), Input::Operand(1)]),
        step(norm, vec![Input::Step(0, 0), Input::Operand(2)]),
    ];
    in_one_kernel(name, vec![whole.clone(), whole, Type::new(DType::BF16, [row])], steps, &[0, 1])
}

fn step(op: Op, inputs: Vec<Input>) -> Step {
    Step { op, inputs, results: vec![DType::BF16] }
}

/// Operations on operands, of the first one's shape, of which these steps are stored.
fn in_one_kernel(
    name: String,
    operands: Vec<Type>,
    steps: Vec<Step>,
    stored: &[usize],
) -> Result<Timed, Failure> {
    let chain = Chain {
        operands: operands.iter().cloned().map(Piece::whole).collect(),
        steps,
        results: stored.iter().map(|&step| (step, 0)).collect(),
        ..Chain::over(operands[0].shape.clone())
    };
    let work = chained(&chain).map_err(|why| Failure::internal("bench gpu", why))?;
    let results = vec![operands[0].clone(); stored.len()];
    let moved = operands.iter().chain(&results).map(Type::bytes).sum();
    let trial = Trial::Kernels { work, operands, results };
    Ok(Timed { name, trial, when: When::Rested, price: Price::Bytes(Bytes(moved)) })
}
