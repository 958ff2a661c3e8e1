//! Steps of optimizers against PyTorch's formulas, in f64.

use planner_ir::{DType, Op, Optimizer, Real};

use crate::finite::{cast, check_near};
use crate::{Array, evaluate};

const COUNT: usize = 5000;

/// Numbers of both signs, others for each seed.
fn numbers(seed: usize) -> Vec<f64> {
    let number = |at: usize| f64::from(u8::try_from((at * (2 * seed + 7) + 31 * seed) % 251).unwrap());
    (0..COUNT).map(|at| number(at) / 125.0 - 1.0).collect()
}

fn scalar(number: f32) -> Array {
    Array::of(vec![], &[number]).unwrap()
}

/// One element's parameter and moments after a step: `torch.optim.SGD` and `torch.optim.AdamW`
/// (not fused, not capturable), as documented.
fn step(optimizer: Optimizer, [p, m, v]: [f64; 3], g: f64, rate: f64, step: i32) -> [f64; 3] {
    match optimizer {
        Optimizer::Sgd { decay } => [p - rate * (g + decay.0 * p), m, v],
        Optimizer::Momentum { momentum, decay } => {
            let m = momentum.0 * m + (g + decay.0 * p);
            [p - rate * m, m, v]
        }
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            let p = p - rate * decay.0 * p;
            let m = beta1.0 * m + (1.0 - beta1.0) * g;
            let v = beta2.0 * v + (1.0 - beta2.0) * g * g;
            let spread = (v / (1.0 - beta2.0.powi(step))).sqrt() + epsilon.0;
            [p - rate * (m / (1.0 - beta1.0.powi(step))) / spread, m, v]
        }
    }
}

const ALL: [Optimizer; 3] = [
    Optimizer::Sgd { decay: Real(0.1) },
    Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.1) },
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) },
];

#[test]
fn several_steps_are_those_of_the_formulas() {
    let (scale, rates) = (0.5, [0.125, 0.0625, 0.0625, 0.03125]);
    for optimizer in ALL {
        let mut expected: Vec<[f64; 3]> = numbers(0).into_iter().map(|p| [p, 0.0, 0.0]).collect();
        let of = |numbers: &[f64]| cast(&Array::of([50, 100], numbers).unwrap(), DType::F32);
        let mut kept = vec![of(&numbers(0))];
        kept.resize(1 + optimizer.moments(), of(&vec![0.0; COUNT]));
        for (index, rate) in (1_u8..).zip(rates) {
            let gradient = cast(&of(&numbers(usize::from(index))), DType::BF16);
            let given = cast(&gradient, DType::F64).to_floats().unwrap();
            for (kept, g) in expected.iter_mut().zip(given) {
                *kept = step(optimizer, *kept, scale * g, rate, i32::from(index));
            }
            #[expect(clippy::cast_possible_truncation, reason = "these are exact")]
            let mut others =
                vec![gradient, scalar(scale as f32), scalar(rate as f32), scalar(f32::from(index))];
            others.truncate(1 + optimizer.numbers());
            let moments = kept[1..].iter();
            let operands: Vec<&Array> =
                kept[..1].iter().chain(&others[..1]).chain(moments).chain(&others[1..]).collect();
            kept = evaluate(&Op::Update(optimizer), &operands).unwrap();
        }
        for (place, found) in kept.iter().enumerate() {
            let expected: Vec<f64> = expected.iter().map(|it| it[place]).collect();
            check_near(&found.to_floats().unwrap(), &expected, 2e-6, &format!("{optimizer:?} {place}"));
        }
    }
}

#[test]
fn narrow_parameters_and_moments_are_rounded_once() {
    let of = |seed, dtype| cast(&Array::of([COUNT as u64], &numbers(seed)).unwrap(), dtype);
    let optimizer = ALL[1];
    let numbers = [scalar(1.0), scalar(0.25)];
    let narrow = [0, 1, 2].map(|seed| of(seed, DType::BF16));
    let wide = narrow.clone().map(|it| cast(&it, DType::F32));
    let [narrow, wide] = [&narrow, &wide]
        .map(|[p, g, m]| evaluate(&Op::Update(optimizer), &[p, g, m, &numbers[0], &numbers[1]]).unwrap());
    for (narrow, wide) in narrow.iter().zip(&wide) {
        assert!(*narrow == cast(wide, DType::BF16));
    }
}
