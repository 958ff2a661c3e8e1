//! Norms in chains: with what is computed before them, and after.

use arbtest::arbitrary::Unstructured;
use planner_ir::{Binary, DType, Op, Real, Triangle, Type, Unary};

use super::emulator::{Trial, check};
use super::values::{many, numbers, tolerance};
use crate::array::{Array, Span};
use crate::cuda::{Chain, Input, Piece, Step, Uncovered, chained};

const EPSILON: Real = Real(0.1);

/// A chain that is put together.
struct Parts {
    chain: Chain,
    operands: Vec<Array>,
}

impl Parts {
    fn new(shape: &[u64]) -> Self {
        Self { chain: Chain::over(shape.to_vec()), operands: vec![] }
    }

    fn operand(&mut self, operand: Array) -> Input {
        self.chain.operands.push(Piece::whole(operand.type_().clone()));
        self.operands.push(operand);
        Input::Operand(self.operands.len() - 1)
    }

    fn step(&mut self, op: Op, inputs: &[Input], dtype: DType) -> Input {
        self.chain.steps.push(Step { op, inputs: inputs.to_vec(), results: vec![dtype] });
        Input::Step(self.chain.steps.len() - 1, 0)
    }

    /// The chain with these results, all of them steps.
    fn storing(mut self, results: &[Input]) -> (Chain, Vec<Array>) {
        self.chain.results = results.iter().filter_map(|it| place(*it)).collect();
        (self.chain, self.operands)
    }
}

fn place(input: Input) -> Option<(usize, usize)> {
    match input {
        Input::Step(step, result) => Some((step, result)),
        Input::Operand(_) => None,
    }
}

/// How far results may be off: what is handed on may be rounded to the next number, and grow.
fn near(dtype: DType) -> f64 {
    if dtype == DType::BF16 { 0.03 } else { 40.0 * tolerance(dtype) }
}

fn sum() -> Op {
    Op::Binary(Binary::Add)
}

fn some_norm(u: &mut Unstructured, dims: usize) -> arbtest::arbitrary::Result<Op> {
    Ok(if u.arbitrary()? {
        Op::LayerNorm { dims, epsilon: EPSILON }
    } else {
        Op::RmsNorm { dims, epsilon: EPSILON }
    })
}

/// Rows that a warp computes, in one step and in several, and rows that a block does.
fn some_shape(u: &mut Unstructured) -> arbtest::arbitrary::Result<Vec<u64>> {
    Ok(match u.int_in_range(0..=5)? {
        0 => vec![2, *u.choose(&[1000, 1024, 5000])?],
        1 => vec![17],
        _ => vec![*u.choose(&[1, 2, 3])?, *u.choose(&[1, 5, 9])?, *u.choose(&[3, 8, 33, 64])?],
    })
}

#[test]
fn a_sum_with_a_residual_and_its_norm_are_one_kernel() {
    let trials = many(60, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16, DType::F64])?;
        let shape = some_shape(u)?;
        let last = &shape[shape.len() - 1..];
        let mut parts = Parts::new(&shape);
        let residual = parts.operand(numbers(dtype, &shape, seed));
        let mut made = parts.operand(numbers(dtype, &shape, seed + 1));
        if u.arbitrary()? {
            // The bias of the product before it, or one number for each row.
            let columns = if u.arbitrary()? { last[0] } else { 1 };
            let mut bias = if columns == 1 { shape.clone() } else { vec![columns] };
            *bias.last_mut().unwrap() = columns;
            let bias = parts.operand(numbers(dtype, &bias, seed + 2));
            made = parts.step(sum(), &[made, bias], dtype);
        }
        let total = parts.step(sum(), &[residual, made], dtype);
        let mut inputs = vec![total, parts.operand(numbers(dtype, last, seed + 3))];
        let norm = some_norm(u, 1)?;
        if matches!(norm, Op::LayerNorm { .. }) && u.arbitrary()? {
            inputs.push(parts.operand(numbers(dtype, last, seed + 4)));
        }
        let normal = parts.step(norm, &inputs, dtype);
        let stores_total = u.arbitrary()?;
        let results = if stores_total { vec![total, normal] } else { vec![normal] };
        let (chain, operands) = parts.storing(&results);
        let mut trial = Trial::chained(chain, operands, near(dtype));
        if u.arbitrary()? {
            // The sum over the residual, or the norm over what was added.
            trial.in_place[0] = Some(0);
            if stores_total {
                trial.in_place[1] = u.arbitrary::<bool>()?.then_some(1);
            }
        }
        Ok(trial)
    });
    check(&trials);
}

#[test]
fn rows_of_an_addend_come_again_for_each_example() {
    let trials = many(60, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F16, DType::F64])?;
        let (examples, places) = (*u.choose(&[1, 2, 3])?, *u.choose(&[1, 4, 9])?);
        let columns = *u.choose(&[1, 3, 8, 33, 64, 1024])?;
        let shape =
            if u.arbitrary()? { vec![examples, places, columns] } else { vec![examples, 2, places, columns] };
        let mut parts = Parts::new(&shape);
        let tokens = parts.operand(numbers(dtype, &shape, seed));
        // What is added to each example: a row for each place, or a number.
        let mut added = vec![places, *u.choose(&[1, columns])?];
        if u.arbitrary()? {
            added.insert(0, 1);
        }
        let added = parts.operand(numbers(dtype, &added, seed + 1));
        let mut total = parts.step(sum(), &[tokens, added], dtype);
        if u.arbitrary()? {
            let kind = parts.operand(numbers(dtype, &shape[1..], seed + 2));
            total = parts.step(sum(), &[total, kind], dtype);
        }
        let scale = parts.operand(numbers(dtype, &[columns], seed + 3));
        let normal = parts.step(some_norm(u, 1)?, &[total, scale], dtype);
        let results = if u.arbitrary()? { vec![total, normal] } else { vec![normal] };
        let (chain, operands) = parts.storing(&results);
        let mut trial = Trial::chained(chain, operands, near(dtype));
        // The sum, or the norm, over what is not added again.
        trial.in_place[0] = u.arbitrary::<bool>()?.then_some(0);
        Ok(trial)
    });
    check(&trials);
}

#[test]
fn a_norms_gradient_is_added_to_that_of_the_residual() {
    let trials = many(50, |u, seed| {
        let dtype = *u.choose(&[DType::F32, DType::BF16, DType::F64])?;
        let shape = some_shape(u)?;
        let last = &shape[shape.len() - 1..];
        let mut parts = Parts::new(&shape);
        let x = parts.operand(numbers(dtype, &shape, seed));
        let scale = parts.operand(numbers(dtype, last, seed + 1));
        let mut back = parts.operand(numbers(dtype, &shape, seed + 2));
        let mut results = vec![];
        if u.arbitrary()? {
            // Several products read the norm.
            let other = parts.operand(numbers(dtype, &shape, seed + 3));
            back = parts.step(sum(), &[back, other], dtype);
            results.extend(u.arbitrary::<bool>()?.then_some(back));
        }
        let op = if u.arbitrary()? {
            Op::LayerNormGradient { dims: 1, epsilon: EPSILON }
        } else {
            Op::RmsNormGradient { dims: 1, epsilon: EPSILON }
        };
        let towards = parts.step(op, &[x, scale, back], dtype);
        results.extend(u.arbitrary::<bool>()?.then_some(towards));
        let residual = parts.operand(numbers(dtype, &shape, seed + 4));
        let total = parts.step(sum(), &[residual, towards], dtype);
        results.push(total);
        let number = results.len() - 1;
        let (chain, operands) = parts.storing(&results);
        let residual = operands.len() - 1;
        let mut trial = Trial::chained(chain, operands, near(dtype));
        trial.in_place[number] = u.arbitrary::<bool>()?.then_some(residual);
        Ok(trial)
    });
    check(&trials);
}

#[test]
fn types_change_around_a_norm() {
    let trials = many(30, |u, seed| {
        let shape = some_shape(u)?;
        let last = &shape[shape.len() - 1..];
        let (narrow, wide) = (*u.choose(&[DType::BF16, DType::F16])?, DType::F32);
        let mut parts = Parts::new(&shape);
        let x = parts.operand(numbers(narrow, &shape, seed));
        let scale = parts.operand(numbers(wide, last, seed + 1));
        let x = parts.step(Op::Cast(wide), &[x], wide);
        let normal = parts.step(some_norm(u, 1)?, &[x, scale], wide);
        let narrowed = parts.step(Op::Cast(narrow), &[normal], narrow);
        // What stands before the norm is read after it too.
        let gated = parts.step(Op::Gated(Unary::Silu), &[normal, x], wide);
        let kept = u.arbitrary::<bool>()?.then_some(x);
        let results: Vec<Input> = kept.into_iter().chain([narrowed, gated]).collect();
        let (chain, operands) = parts.storing(&results);
        Ok(Trial::chained(chain, operands, near(DType::BF16)))
    });
    check(&trials);
}

#[test]
fn what_is_dropped_before_a_norm_depends_on_the_block() {
    let trials = many(20, |u, seed| {
        let shape = vec![2, 3, *u.choose(&[8, 31])?];
        let mut parts = Parts::new(&shape);
        // The third row of examples of a larger value.
        if u.arbitrary()? {
            let span = |dim: usize| {
                Span::contiguous(shape[dim] * if dim == 0 { 4 } else { 1 }, if dim == 0 { 2 } else { 0 })
            };
            parts.chain.spans = (0..3).map(span).collect();
        }
        let x = parts.operand(numbers(DType::F32, &shape, seed));
        let scale = parts.operand(numbers(DType::F32, &shape[2..], seed + 1));
        let step = Step {
            op: Op::Dropout { ratio: Real(0.25), seed: seed * 77 },
            inputs: vec![x],
            results: vec![DType::F32, DType::Bool],
        };
        parts.chain.steps.push(step);
        let normal = parts.step(some_norm(u, 1)?, &[Input::Step(0, 0), scale], DType::F32);
        let (chain, operands) = parts.storing(&[Input::Step(0, 0), Input::Step(0, 1), normal]);
        Ok(Trial::chained(chain, operands, near(DType::F32)))
    });
    check(&trials);
}

/// What a chain is refused for, if it is.
fn refused(chain: &Chain) -> Option<Uncovered> {
    chained(chain).err()
}

#[test]
fn chains_that_would_read_what_they_wrote_over_are_refused() {
    let mut parts = Parts::new(&[4, 8]);
    let (a, b) =
        (parts.operand(numbers(DType::F32, &[4, 8], 1)), parts.operand(numbers(DType::F32, &[4, 8], 2)));
    let scale = parts.operand(numbers(DType::F32, &[8], 3));
    let first = parts.step(Op::Binary(Binary::Mul), &[a, b], DType::F32);
    let second = parts.step(sum(), &[a, b], DType::F32);
    let both = parts.step(sum(), &[first, second], DType::F32);
    let normal = parts.step(Op::RmsNorm { dims: 1, epsilon: EPSILON }, &[both, scale], DType::F32);
    let (mut chain, _) = parts.storing(&[second, normal]);
    // A sum is stored, perhaps over an addend; what is normalised would be computed from that again.
    assert!(matches!(refused(&chain), Some(Uncovered::Missing(_))));
    chain.results = [second, both, normal].into_iter().filter_map(place).collect();
    assert_eq!(refused(&chain), None);
}

#[test]
fn rows_whose_elements_are_elsewhere_are_refused() {
    let norm = Op::RmsNorm { dims: 1, epsilon: EPSILON };
    let mut parts = Parts::new(&[3, 4, 8]);
    let x = parts.operand(numbers(DType::F32, &[3, 4, 8], 1));
    let other = parts.operand(numbers(DType::F32, &[3, 1, 8], 2));
    let scale = parts.operand(numbers(DType::F32, &[8], 3));
    let total = parts.step(sum(), &[x, other], DType::F32);
    let normal = parts.step(norm.clone(), &[total, scale], DType::F32);
    assert!(refused(&parts.storing(&[normal]).0).is_some());

    let mut parts = Parts::new(&[4, 8]);
    let x = parts.operand(numbers(DType::F32, &[4, 8], 1));
    let scale = parts.operand(numbers(DType::F32, &[8], 3));
    let triangle = Op::Triangle { triangle: Triangle::Lower, diagonal: 0 };
    let cut = parts.step(triangle, &[x], DType::F32);
    let normal = parts.step(norm.clone(), &[cut, scale], DType::F32);
    assert!(refused(&parts.storing(&[normal]).0).is_some());

    // Elements that are kept by chance depend on where the block lies: not at one distance in each row.
    let dropped = |spans: Vec<Span>| {
        let mut parts = Parts::new(&[2, 4, 8]);
        parts.chain.spans = spans;
        let x = parts.operand(numbers(DType::F32, &[2, 4, 8], 1));
        let scale = parts.operand(numbers(DType::F32, &[8], 3));
        let kept = parts.step(Op::RoundStochastically { seed: 5 }, &[x], DType::BF16);
        let normal = parts.step(norm.clone(), &[kept, scale], DType::BF16);
        refused(&parts.storing(&[normal]).0)
    };
    assert_eq!(dropped(vec![]), None);
    let spans = |extents: [u64; 3]| extents.map(|it| Span::contiguous(it, 0)).to_vec();
    assert_eq!(dropped(spans([6, 4, 8])), None);
    assert!(dropped(spans([2, 8, 8])).is_some());

    let mut parts = Parts::new(&[4, 8]);
    let x = parts.operand(numbers(DType::F32, &[4, 8], 1));
    let scale = parts.operand(numbers(DType::F32, &[8], 3));
    let once = parts.step(norm.clone(), &[x, scale], DType::F32);
    let twice = parts.step(norm, &[once, scale], DType::F32);
    assert!(refused(&parts.storing(&[twice]).0).is_some());
}

#[test]
fn rows_of_nothing_are_no_launch() {
    let mut parts = Parts::new(&[0, 8]);
    let x = parts.operand(Array::zeros(Type::new(DType::F32, vec![0, 8])).unwrap());
    let scale = parts.operand(numbers(DType::F32, &[8], 3));
    let total = parts.step(sum(), &[x, x], DType::F32);
    let normal = parts.step(Op::RmsNorm { dims: 1, epsilon: EPSILON }, &[total, scale], DType::F32);
    let work = chained(&parts.storing(&[total, normal]).0).unwrap();
    assert_eq!(work.launches.len(), 0);
}
