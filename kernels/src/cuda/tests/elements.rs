//! Functions of elements, alone and in chains.

use arbtest::arbitrary::Unstructured;
use planner_ir::{Binary, DType, Op, Optimizer, Real, Triangle, Type, Unary};

use super::emulator::{Trial, check};
use super::values::{COVERED, FLOATS, many, numbers, shape, smaller, tolerance, whole};
use crate::array::{Array, Span};
use crate::cuda::{Chain, Input, Piece, Step};

const UNARY: [Unary; 24] = [
    Unary::Abs,
    Unary::Ceil,
    Unary::Cos,
    Unary::Erf,
    Unary::Exp,
    Unary::Floor,
    Unary::Gelu,
    Unary::GeluTanh,
    Unary::GeluQuick,
    Unary::IsInf,
    Unary::IsNan,
    Unary::Log,
    Unary::Neg,
    Unary::Not,
    Unary::Reciprocal,
    Unary::Relu,
    Unary::Round,
    Unary::Sigmoid,
    Unary::Sign,
    Unary::Silu,
    Unary::Sin,
    Unary::Softplus,
    Unary::Sqrt,
    Unary::Tanh,
];

const BINARY: [Binary; 17] = [
    Binary::Add,
    Binary::And,
    Binary::Div,
    Binary::Equal,
    Binary::Greater,
    Binary::GreaterOrEqual,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::Max,
    Binary::Min,
    Binary::Mod,
    Binary::Fmod,
    Binary::Mul,
    Binary::Or,
    Binary::Pow,
    Binary::Sub,
    Binary::Xor,
];

fn is_logical(function: Binary) -> bool {
    matches!(function, Binary::And | Binary::Or | Binary::Xor)
}

#[test]
fn functions_of_one_element_are_computed() {
    let mut trials = Vec::new();
    for function in UNARY {
        for dtype in COVERED {
            let types = [Type::new(dtype, vec![3, 17])];
            let op = Op::Unary(function);
            let mut given = numbers(dtype, &[3, 17], 1);
            if matches!(function, Unary::Log | Unary::Sqrt) && dtype.is_float() {
                let zero = numbers(dtype, &[3, 17], 2);
                given = crate::evaluate(&Op::Binary(Binary::Mul), &[&zero, &zero]).unwrap().remove(0);
            }
            let defined = crate::evaluate(&op, &[&given]).is_ok();
            if op.infer(&types).is_ok() && defined {
                trials.push(Trial::whole(op, vec![given], tolerance(dtype)));
            }
        }
    }
    assert!(trials.len() > 100, "{} trials", trials.len());
    check(&trials);
}

#[test]
fn functions_of_two_elements_are_computed_and_broadcast() {
    let trials = many(120, |u, seed| {
        let function = *u.choose(&BINARY)?;
        let dtype = if is_logical(function) { DType::Bool } else { *u.choose(&COVERED[..12])? };
        let rank = u.int_in_range(0..=4)?;
        let shape = shape(u, rank)?;
        let (left, right) = (smaller(u, &shape)?, smaller(u, &shape)?);
        let mut a = numbers(dtype, &left, seed);
        let mut b = numbers(dtype, &right, seed + 1000);
        if matches!(function, Binary::Div | Binary::Mod | Binary::Fmod | Binary::Pow) {
            b = whole(dtype, &right, 1, 5, seed);
        }
        if function == Binary::Pow {
            a = whole(dtype, &left, 0, 6, seed);
            b = whole(*u.choose(&[dtype, DType::I64, DType::F32])?, &right, 0, 4, seed);
        }
        Ok(Trial::whole(Op::Binary(function), vec![a, b], tolerance(dtype)))
    });
    check(&trials);
}

#[test]
fn conversions_are_those_of_the_reference() {
    let extreme = [
        0.0,
        -0.0,
        0.5,
        1.5,
        -2.5,
        1e-8,
        6e-8,
        -3e-8,
        65_519.9,
        65_520.0,
        1e5,
        -1e20,
        3e38,
        1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        127.7,
        128.0,
        -129.0,
        255.9,
        2_147_483_648.0,
        9.3e18,
        1.000_000_059_604_644_8,
        1.003_906_25,
        1.003_906_250_001,
        0.000_061_035_1,
    ];
    let mut trials = Vec::new();
    for from in COVERED {
        for to in COVERED {
            let given = if from.is_float() {
                super::values::cast(&Array::of(vec![27], &extreme).unwrap(), from)
            } else if from == DType::Bool {
                numbers(from, &[27], 3)
            } else {
                whole(from, &[27], -70_000, 70_000, 7)
            };
            trials.push(Trial::whole(Op::Cast(to), vec![given], 0.0));
        }
    }
    check(&trials);
}

#[test]
fn choices_gated_units_and_gradients_are_computed() {
    let smooth: Vec<Unary> = UNARY.into_iter().filter(|it| it.is_smooth()).collect();
    let trials = many(90, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let rank = u.int_in_range(1..=4)?;
        let shape = shape(u, rank)?;
        let function = *u.choose(&smooth)?;
        let function = if matches!(function, Unary::Log | Unary::Sqrt) { Unary::Silu } else { function };
        let near = if function == Unary::Reciprocal { 1e-3 } else { tolerance(dtype) };
        let x = |more: u64| numbers(dtype, &shape, seed + more);
        Ok(match u.int_in_range(0..=3)? {
            0 => {
                let condition = numbers(DType::Bool, &smaller(u, &shape)?, seed);
                let b = numbers(dtype, &smaller(u, &shape)?, seed + 9);
                Trial::whole(Op::Select, vec![condition, x(1), b], 0.0)
            }
            1 => Trial::whole(
                Op::Gated(function),
                vec![x(1), numbers(dtype, &smaller(u, &shape)?, seed)],
                near,
            ),
            2 => Trial::whole(Op::UnaryGradient(function), vec![x(1), x(2)], near),
            _ => Trial::whole(Op::GatedGradient(function), vec![x(1), x(2), x(3)], near),
        })
    });
    check(&trials);
}

/// A block of a value: spans that hold it.
fn block(shape: &[u64], before: &[u64], after: &[u64]) -> Vec<Span> {
    let span = |dim: usize| Span::contiguous(shape[dim] + before[dim] + after[dim], before[dim]);
    (0..shape.len()).map(span).collect()
}

#[test]
fn what_depends_on_places_is_that_of_the_block() {
    let trials = many(60, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let rank = u.int_in_range(2..=4)?;
        let shape = shape(u, rank)?;
        let around: Vec<u64> = (0..rank).map(|_| u.int_in_range(0..=5)).collect::<Result<_, _>>()?;
        let more: Vec<u64> = (0..rank).map(|_| u.int_in_range(0..=5)).collect::<Result<_, _>>()?;
        let spans = if u.ratio(1, 3)? { vec![] } else { block(&shape, &around, &more) };
        let x = numbers(dtype, &shape, seed);
        let type_ = Type::new(dtype, shape.clone());
        let mask = Type::new(DType::Bool, shape.clone());
        let trial = |op, operands: Vec<Array>, results: Vec<Type>, spans: Vec<Span>| Trial {
            op,
            operands: operands
                .into_iter()
                .map(|it| {
                    let spans = if it.shape().is_empty() { vec![] } else { spans.clone() };
                    (it, spans)
                })
                .collect(),
            in_place: vec![None; results.len()],
            chain: None,
            results: results.into_iter().map(|it| (it, spans.clone())).collect(),
            tolerance: tolerance(dtype),
        };
        Ok(match u.int_in_range(0..=5)? {
            0 => {
                let triangle = if u.arbitrary()? { Triangle::Upper } else { Triangle::Lower };
                let diagonal = u.int_in_range(-4..=4)?;
                trial(Op::Triangle { triangle, diagonal }, vec![x], vec![type_], spans)
            }
            1 => {
                let op = Op::Iota { dtype, length: 100, start: Real(2.0), step: Real(-1.5) };
                let length = shape[0];
                trial(
                    op,
                    vec![],
                    vec![Type::new(dtype, vec![length])],
                    block(&[length], &around[..1], &more[..1]),
                )
            }
            2 => {
                let op = Op::Fill { result: type_.clone(), value: Real(-1.25) };
                trial(op, vec![], vec![type_], spans)
            }
            3 => {
                let x = numbers(DType::F32, &shape, seed);
                let mut operands = vec![x];
                if u.arbitrary()? {
                    operands.push(Array::of::<i64>(vec![], &[-5]).unwrap());
                }
                let type_ = Type::new(DType::BF16, shape);
                let rounded =
                    trial(Op::RoundStochastically { seed: seed * 77 }, operands, vec![type_], spans);
                Trial { tolerance: 0.0, ..rounded }
            }
            _ => {
                let op = Op::Dropout { ratio: Real(0.25), seed: seed * 77 };
                let mut operands = vec![x];
                if u.arbitrary()? {
                    operands.push(Array::of::<i64>(vec![], &[5]).unwrap());
                }
                trial(op, operands, vec![type_, mask], spans)
            }
        })
    });
    check(&trials);
}

#[test]
fn optimizers_step_in_place() {
    let optimizers = [
        Optimizer::Sgd { decay: Real(0.1) },
        Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.01) },
        Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.999), epsilon: Real(1e-8), decay: Real(0.01) },
    ];
    let trials = many(40, |u, seed| {
        let optimizer = *u.choose(&optimizers)?;
        let dtypes: [DType; 3] =
            [*u.choose(&[DType::F32, DType::BF16])?, *u.choose(&[DType::F32, DType::BF16])?, DType::F32];
        let shape = shape(u, 2)?;
        let mut operands = vec![numbers(dtypes[0], &shape, seed), numbers(dtypes[1], &shape, seed + 1)];
        for moment in 0..optimizer.moments() {
            let moment = numbers(dtypes[2], &shape, seed + 2 + u64::try_from(moment).unwrap());
            operands.push(crate::evaluate(&Op::Binary(Binary::Mul), &[&moment, &moment]).unwrap().remove(0));
        }
        let steps = [0.5_f32, 0.01, 3.0];
        operands.extend(steps[..optimizer.numbers()].iter().map(|it| Array::of(vec![], &[*it]).unwrap()));
        let mut trial = Trial::whole(Op::Update(optimizer), operands, 1e-5);
        if u.arbitrary()? {
            trial.in_place = [0, 2, 3][..=optimizer.moments()].iter().map(|it| Some(*it)).collect();
        }
        Ok(trial)
    });
    check(&trials);
}

/// An operation of a chain, and how many operands it has.
fn some_step(u: &mut Unstructured) -> arbtest::arbitrary::Result<(Op, usize)> {
    Ok(match u.int_in_range(0..=4)? {
        0 => (Op::Unary(*u.choose(&[Unary::Silu, Unary::Gelu, Unary::Tanh, Unary::Neg])?), 1),
        1 => (Op::Gated(Unary::Sigmoid), 2),
        2 => (Op::GatedGradient(Unary::Silu), 3),
        3 => (Op::Triangle { triangle: Triangle::Lower, diagonal: 1 }, 1),
        _ => (Op::Binary(*u.choose(&[Binary::Add, Binary::Mul, Binary::Sub])?), 2),
    })
}

#[test]
fn chains_compute_what_their_operations_do_one_by_one() {
    let trials = many(60, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F64])?;
        let rank = u.int_in_range(2..=3)?;
        let shape = shape(u, rank)?;
        let operands = vec![
            numbers(dtype, &shape, seed),
            numbers(dtype, &shape, seed + 1),
            numbers(dtype, &smaller(u, &shape)?, seed + 2),
        ];
        let mut made: Vec<Input> = vec![Input::Operand(0), Input::Operand(1)];
        let mut steps: Vec<Step> = vec![];
        for number in 0..u.int_in_range(2..=5)? {
            let (op, count) = some_step(u)?;
            let mut inputs = vec![*made.last().unwrap()];
            while inputs.len() < count {
                let broadcast = matches!(op, Op::Binary(_) | Op::Gated(_)) && u.ratio(1, 3)?;
                inputs.push(if broadcast { Input::Operand(2) } else { *u.choose(&made)? });
            }
            let results = if matches!(op, Op::GatedGradient(_)) { 2 } else { 1 };
            made.extend((0..results).map(|result| Input::Step(number, result)));
            steps.push(Step { op, inputs, results: vec![dtype; results] });
        }
        let all = made.iter().filter_map(|it| match *it {
            Input::Step(step, result) => Some((step, result)),
            Input::Operand(_) => None,
        });
        let mut results: Vec<(usize, usize)> = all.collect();
        results.retain(|&(step, _)| step + 1 == steps.len() || u.arbitrary().unwrap_or(true));
        let pieces = operands.iter().map(|it| Piece::whole(it.type_().clone())).collect();
        let chain = Chain { operands: pieces, steps, results, ..Chain::over(shape) };
        // What is handed on may be rounded to the next number, and grow.
        let near = if dtype == DType::BF16 { 0.02 } else { 20.0 * tolerance(dtype) };
        Ok(Trial::chained(chain, operands, near))
    });
    check(&trials);
}
