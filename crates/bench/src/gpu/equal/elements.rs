//! Functions of elements, alone and many in one kernel, and steps of optimizers.

use files::Failure;
use kernels::Span;
use kernels::cuda::Input;
use planner_ir::{Binary, DType, Op, Optimizer, Real, Triangle, Type, Unary};

use super::case::{Cases, Parts, cast, computed, counter, numbers, positive, single, whole};

/// A shape whose rows fall into no equal parts, and a smaller one that repeats to it.
const SHAPE: [u64; 2] = [37, 50];
const ROW: [u64; 1] = [50];

/// Functions of any number, and those of positive ones.
const OF_ANY: [Unary; 18] = [
    Unary::Abs,
    Unary::Ceil,
    Unary::Cos,
    Unary::Erf,
    Unary::Exp,
    Unary::Floor,
    Unary::Gelu,
    Unary::GeluTanh,
    Unary::GeluQuick,
    Unary::Neg,
    Unary::Relu,
    Unary::Round,
    Unary::Sigmoid,
    Unary::Sign,
    Unary::Silu,
    Unary::Sin,
    Unary::Softplus,
    Unary::Tanh,
];
const OF_POSITIVE: [Unary; 3] = [Unary::Log, Unary::Reciprocal, Unary::Sqrt];

/// Units of gates.
const GATES: [Unary; 4] = [Unary::Silu, Unary::Gelu, Unary::GeluTanh, Unary::Relu];

/// Functions of two numbers, and those that say something of them.
const OF_TWO: [Binary; 9] = [
    Binary::Add,
    Binary::Div,
    Binary::Fmod,
    Binary::Max,
    Binary::Min,
    Binary::Mod,
    Binary::Mul,
    Binary::Pow,
    Binary::Sub,
];
const COMPARING: [Binary; 5] =
    [Binary::Equal, Binary::Greater, Binary::GreaterOrEqual, Binary::Less, Binary::LessOrEqual];

/// The part that is dropped, and where randomness starts.
const RATIO: Real = Real(0.25);
const SEED: u64 = 77;

/// Cases of any type of fractions.
pub(super) fn of(cases: &mut Cases) -> Result<(), Failure> {
    functions(cases)?;
    gates(cases)?;
    let dtype = cases.dtype;
    let x = |seed: u64| numbers(dtype, &SHAPE, seed);
    cases.op("sum", Op::Binary(Binary::Add), vec![x(0)?, x(1)?])?;
    let condition = whole(DType::Bool, &SHAPE, 0, 2, 9)?;
    cases.exact("choice", Op::Select, vec![condition, x(0)?, numbers(dtype, &ROW, 1)?])?;
    let triangle = Op::Triangle { triangle: Triangle::Lower, diagonal: 3 };
    cases.exact("triangle", triangle, vec![x(0)?])?;
    let expanded = Op::Expand { shape: vec![3, 37, 50] };
    cases.exact("repetition", expanded, vec![numbers(dtype, &[37, 1], 0)?])?;
    let range = Op::Iota { dtype, length: 100, start: Real(2.0), step: Real(-1.5) };
    cases.op("range", range, vec![])?;
    let fill = Op::Fill { result: Type::new(dtype, SHAPE), value: Real(-1.25) };
    cases.exact("fill", fill, vec![])?;
    let mut casts = Parts::new(&SHAPE);
    let hundreds = computed(&Op::Binary(Binary::Mul), &[&x(3)?, &cast(&single(100.0)?, dtype)?])?;
    for from in hundreds.into_iter().map(|it| casts.operand(it)).collect::<Vec<_>>() {
        for to in [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8] {
            casts.step(Op::Cast(to), &[from], to);
        }
    }
    cases.chain(0.0, "other types", casts.storing_all())?;
    let mut fused = Parts::new(&SHAPE);
    let [a, b, c] = [0, 1, 2].map(|seed| numbers(dtype, &SHAPE, seed));
    let [a, b, c] = [fused.operand(a?), fused.operand(b?), fused.operand(c?)];
    let sum = fused.add([a, b], dtype);
    let bent = fused.step(Op::Unary(Unary::GeluTanh), &[sum], dtype);
    let last = fused.step(Op::Binary(Binary::Mul), &[bent, c], dtype);
    cases.chain(cases.most, "sum, gelu and product fused,", fused.storing(&[last]))?;
    by_chance(cases)?;
    merged(cases)
}

/// Functions of one element and of two, and their gradients, many in one kernel.
fn functions(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let any = |seed: u64| numbers(dtype, &SHAPE, seed);
    let mut one = Parts::new(&SHAPE);
    let x = one.operand(any(0)?);
    for it in OF_ANY {
        one.step(Op::Unary(it), &[x], dtype);
    }
    let x = one.operand(positive(dtype, &SHAPE, 1)?);
    for it in OF_POSITIVE {
        one.step(Op::Unary(it), &[x], dtype);
    }
    for it in [Unary::IsInf, Unary::IsNan] {
        one.step(Op::Unary(it), &[x], DType::Bool);
    }
    cases.chain(cases.most, "functions of one element", one.storing_all())?;
    let mut back = Parts::new(&SHAPE);
    let [x, dy, over] =
        [back.operand(any(0)?), back.operand(any(1)?), back.operand(positive(dtype, &SHAPE, 2)?)];
    for it in OF_ANY.into_iter().filter(|it| it.is_smooth()) {
        back.step(Op::UnaryGradient(it), &[x, dy], dtype);
    }
    for it in OF_POSITIVE {
        back.step(Op::UnaryGradient(it), &[over, dy], dtype);
    }
    cases.chain(cases.most, "gradients of functions of one element", back.storing_all())?;
    let mut two = Parts::new(&SHAPE);
    let [x, y] = [two.operand(positive(dtype, &SHAPE, 3)?), two.operand(positive(dtype, &ROW, 4)?)];
    for it in OF_TWO {
        two.step(Op::Binary(it), &[x, y], dtype);
    }
    let said: Vec<Input> =
        COMPARING.into_iter().map(|it| two.step(Op::Binary(it), &[x, y], DType::Bool)).collect();
    for it in [Binary::And, Binary::Or, Binary::Xor] {
        two.step(Op::Binary(it), &[said[0], said[1]], DType::Bool);
    }
    two.step(Op::Unary(Unary::Not), &said[..1], DType::Bool);
    cases.chain(cases.most, "functions of two elements", two.storing_all())
}

/// Gated units and their gradients.
fn gates(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let mut gates = Parts::new(&SHAPE);
    let [a, b, dy] = [0, 1, 2].map(|seed| numbers(dtype, &SHAPE, seed));
    let [a, b, dy] = [gates.operand(a?), gates.operand(b?), gates.operand(dy?)];
    for gate in GATES {
        gates.step(Op::Gated(gate), &[a, b], dtype);
        gates.steps(Op::GatedGradient(gate), &[a, b, dy], &[dtype; 2]);
    }
    cases.chain(cases.most, "gated units and their gradients", gates.storing_all())
}

/// A block of rows of a larger value.
fn held() -> Vec<Span> {
    vec![Span::contiguous(100, 20), Span::contiguous(50, 0)]
}

/// What is dropped and where is rounded up depends on seeds and counters, and on where a block lies.
fn by_chance(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let made = [Type::new(dtype, SHAPE), Type::new(DType::Bool, SHAPE)].map(|it| (it, held()));
    let dropout = Op::Dropout { ratio: RATIO, seed: SEED };
    let x = || numbers(dtype, &SHAPE, 5);
    cases.op("dropout", dropout.clone(), vec![x()?])?;
    cases.block(
        cases.most,
        "dropout of a block by a counter,",
        &dropout,
        vec![(x()?, held()), (counter(5)?, vec![])],
        &made,
    )?;
    if dtype != DType::F32 {
        return Ok(());
    }
    let rounding = Op::RoundStochastically { seed: SEED };
    cases.exact("rounding by chance", rounding.clone(), vec![x()?])?;
    let made = [(Type::new(DType::BF16, SHAPE), held())];
    let operands = vec![(x()?, held()), (counter(-5)?, vec![])];
    cases.block(0.0, "rounding of a block by a counter,", &rounding, operands, &made)
}

/// Attention to some keys and to others.
fn merged(cases: &mut Cases) -> Result<(), Failure> {
    let dtype = cases.dtype;
    let statistics = |seed: u64| positive(DType::F32, &[37, 50, 2], seed);
    let of = |seed: u64| numbers(dtype, &[37, 50, 16], seed);
    let results =
        [Type::new(dtype, [37, 50, 16]), Type::new(DType::F32, [37, 50, 2])].map(|it| (it, Vec::new()));
    let operands = vec![of(0)?, statistics(1)?, of(2)?, statistics(3)?];
    let operands = operands.into_iter().map(|it| (it, vec![])).collect();
    cases.block(cases.most, "parts of attention merged,", &Op::AttentionMerge, operands, &results)
}

/// Steps of optimizers in f32 and in bf16, beside a copy in bf16, and rounded by chance.
pub(super) fn optimizers(cases: &mut Cases) -> Result<(), Failure> {
    let adam =
        Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) };
    let others = [
        ("descent", Optimizer::Sgd { decay: Real(0.1) }),
        ("momentum", Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.01) }),
        ("AdamW", adam),
    ];
    for (name, optimizer) in others {
        let operands = stepped(optimizer, DType::F32, DType::F32)?;
        cases.op(&format!("{name}, a step"), Op::Update(optimizer), operands)?;
    }
    let narrow = stepped(adam, DType::BF16, DType::BF16)?;
    // What is rounded to 8 bits may be rounded to the other side.
    cases.within(1e-2, "AdamW in bf16 with moments", Op::Update(adam), narrow)?;
    let made = [DType::F32; 3];
    let mut master = Parts::new(&SHAPE);
    let inputs = stepped(adam, DType::F32, DType::BF16)?;
    let inputs: Vec<Input> = inputs.into_iter().map(|it| master.operand(it)).collect();
    let step = master.steps(Op::Update(adam), &inputs, &made);
    master.step(Op::Cast(DType::BF16), &[Input::Step(step, 0)], DType::BF16);
    cases.chain(1e-2, "AdamW with a copy in bf16,", master.storing_all())?;
    let mut chance = Parts::new(&SHAPE).at(held());
    let inputs = stepped(adam, DType::BF16, DType::BF16)?;
    let mut inputs: Vec<Input> = inputs.into_iter().map(|it| chance.operand(it)).collect();
    inputs[0] = chance.step(Op::Cast(DType::F32), &inputs[..1], DType::F32);
    let count = chance.operand(counter(3)?);
    let step = chance.steps(Op::Update(adam), &inputs, &made);
    let rounding = Op::RoundStochastically { seed: SEED };
    let rounded = chance.step(rounding, &[Input::Step(step, 0), count], DType::BF16);
    let stored = [Input::Step(step, 1), Input::Step(step, 2), rounded];
    cases.chain(1e-2, "AdamW rounded by chance,", chance.storing(&stored))
}

/// A parameter, its gradient, moments that are not negative, the scale, the rate and the number of the step.
fn stepped(optimizer: Optimizer, parameter: DType, gradient: DType) -> Result<Vec<kernels::Array>, Failure> {
    let mut operands = vec![numbers(parameter, &SHAPE, 0)?, numbers(gradient, &SHAPE, 1)?];
    for seed in (2..).take(optimizer.moments()) {
        operands.push(positive(DType::F32, &SHAPE, seed)?);
    }
    for number in [0.5, 0.01, 3.0].into_iter().take(optimizer.numbers()) {
        operands.push(single(number)?);
    }
    Ok(operands)
}
