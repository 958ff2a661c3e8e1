//! Cross entropy with its gradient, by one kernel.

use planner_ir::{DType, Op, Type};

use super::emulator::{Trial, check_works};
use super::values::{FLOATS, many, numbers, shape, tolerance, whole};
use crate::array::Array;
use crate::cuda::{Piece, Uncovered, classified, kernels};

const IGNORED: i64 = -1;

/// Scores, some of which are no chance at all.
fn scores(dtype: DType, shape: &[u64], seed: u64, masked: bool) -> Array {
    let scores = numbers(DType::F64, shape, seed);
    let far = |(at, it): (usize, &f64)| match at % 7 {
        _ if !masked => *it,
        0..4 => f64::NEG_INFINITY,
        _ => it * 20.0,
    };
    let all: Vec<f64> = scores.elements::<f64>().unwrap().iter().enumerate().map(far).collect();
    super::values::cast(&Array::of(shape.to_vec(), &all).unwrap(), dtype)
}

#[test]
fn a_loss_and_its_gradient_are_one_kernel() {
    let mut works = vec![];
    let mut expected = vec![];
    let trials = many(50, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let rows = shape(u, 1)?;
        let classes = *u.choose(&[3, 32, 100, 1000, 9000])?;
        let mut full = rows.clone();
        full.push(classes);
        let labels = whole(DType::I64, &rows, IGNORED, i64::try_from(classes).unwrap(), seed);
        let given = scores(dtype, &full, seed, u.ratio(1, 3)?);
        let operands = vec![given, labels, numbers(dtype, &rows, seed + 1)];
        let losses =
            crate::evaluate(&Op::CrossEntropy { ignored: IGNORED }, &[&operands[0], &operands[1]]).unwrap();
        let gradient = Op::CrossEntropyGradient { ignored: IGNORED };
        let all: Vec<&Array> = operands.iter().collect();
        let gradients = crate::evaluate(&gradient, &all).unwrap();
        let made: Vec<Array> = losses.into_iter().chain(gradients).collect();
        let piece = |array: &Array| Piece::whole(array.type_().clone());
        let [x, label, back] = [0, 1, 2].map(|it| piece(&operands[it]));
        let [loss, towards] = [0, 1].map(|it| piece(&made[it]));
        works.push(classified(IGNORED, [&x, &label, &back], [&loss, &towards]).unwrap());
        let mut trial = Trial::whole(gradient, operands, 10.0 * tolerance(dtype));
        trial.results = made.iter().map(|it| (it.type_().clone(), vec![])).collect();
        trial.in_place = vec![None, u.arbitrary::<bool>()?.then_some(0)];
        expected.push(made);
        Ok(trial)
    });
    check_works(&trials, &works, &expected);
}

#[test]
fn scores_and_their_gradient_are_converted_on_the_way() {
    let mut works = vec![];
    let mut expected = vec![];
    let trials = many(50, |u, seed| {
        let narrow = *u.choose(&[DType::BF16, DType::F16])?;
        let [before, after] = *u.choose(&[[narrow; 2], [narrow, DType::F32], [DType::F32, narrow]])?;
        let rows = shape(u, 1)?;
        let classes = *u.choose(&[3, 32, 100, 1000, 9000])?;
        let mut full = rows.clone();
        full.push(classes);
        let labels = whole(DType::I64, &rows, IGNORED, i64::try_from(classes).unwrap(), seed);
        let given = scores(before, &full, seed, u.ratio(1, 3)?);
        let back = numbers(DType::F32, &rows, seed + 1);
        // One by one, in f32.
        let wide = super::values::cast(&given, DType::F32);
        let losses = crate::evaluate(&Op::CrossEntropy { ignored: IGNORED }, &[&wide, &labels]).unwrap();
        let gradient = Op::CrossEntropyGradient { ignored: IGNORED };
        let towards = crate::evaluate(&gradient, &[&wide, &labels, &back]).unwrap();
        let made = vec![losses[0].clone(), super::values::cast(&towards[0], after)];
        let piece = |array: &Array| Piece::whole(array.type_().clone());
        let (x, label, dloss) = (piece(&given), piece(&labels), piece(&back));
        let [loss, dx] = [0, 1].map(|it| piece(&made[it]));
        works.push(classified(IGNORED, [&x, &label, &dloss], [&loss, &dx]).unwrap());
        let mut trial = Trial::whole(gradient, vec![wide, labels, back], 10.0 * tolerance(DType::F32));
        trial.operands[0].0 = given;
        trial.results = made.iter().map(|it| (it.type_().clone(), vec![])).collect();
        trial.in_place = vec![None, (before == after && u.arbitrary::<bool>()?).then_some(0)];
        expected.push(made);
        Ok(trial)
    });
    check_works(&trials, &works, &expected);
}

#[test]
fn labels_that_are_no_class_make_no_number() {
    let shapes = [vec![4, 40], vec![4], vec![4]];
    let labels = Array::of::<i64>(vec![4], &[40, -5, 3, IGNORED]).unwrap();
    let operands = vec![numbers(DType::F32, &shapes[0], 1), labels, numbers(DType::F32, &[4], 2)];
    let right = Array::of::<i64>(vec![4], &[0, 0, 3, IGNORED]).unwrap();
    let gradient = Op::CrossEntropyGradient { ignored: IGNORED };
    let loss = crate::evaluate(&Op::CrossEntropy { ignored: IGNORED }, &[&operands[0], &right]).unwrap();
    let towards = crate::evaluate(&gradient, &[&operands[0], &right, &operands[2]]).unwrap();
    let without = |array: &Array, count: usize| {
        let mut all = array.elements::<f32>().unwrap().to_vec();
        all[..count].fill(f32::NAN);
        Array::of(array.shape().to_vec(), &all).unwrap()
    };
    let made = vec![without(&loss[0], 2), without(&towards[0], 80)];
    let piece = |array: &Array| Piece::whole(array.type_().clone());
    let [x, label, back] = [0, 1, 2].map(|it| piece(&operands[it]));
    let work = classified(IGNORED, [&x, &label, &back], [&piece(&made[0]), &piece(&made[1])]).unwrap();
    let mut trial = Trial::whole(gradient, operands, 1e-4);
    trial.results = made.iter().map(|it| (it.type_().clone(), vec![])).collect();
    trial.in_place = vec![None, None];
    check_works(&[trial], &[work], &[made]);
}

#[test]
fn types_that_do_not_go_together_are_refused() {
    let piece = |dtype, shape: &[u64]| Piece::whole(Type::new(dtype, shape));
    let (x, dx) = (piece(DType::BF16, &[4, 8]), piece(DType::BF16, &[4, 8]));
    let labels = piece(DType::I64, &[4]);
    let of = |labels: &Piece, dloss: DType, loss: DType| {
        classified(IGNORED, [&x, labels, &piece(dloss, &[4])], [&piece(loss, &[4]), &dx])
    };
    assert!(of(&labels, DType::BF16, DType::BF16).is_ok());
    assert!(of(&labels, DType::BF16, DType::F32).is_ok());
    assert!(of(&labels, DType::F32, DType::F32).is_ok());
    for refused in [
        of(&labels, DType::F64, DType::BF16),
        of(&labels, DType::I32, DType::BF16),
        of(&labels, DType::BF16, DType::F64),
        of(&piece(DType::F32, &[4]), DType::BF16, DType::BF16),
    ] {
        assert!(matches!(refused, Err(Uncovered::Missing(_))));
    }
    // By itself a gradient is of what scores and losses are of.
    let gradient = Op::CrossEntropyGradient { ignored: IGNORED };
    let alone = |dloss: DType| {
        kernels(&gradient, &[x.clone(), labels.clone(), piece(dloss, &[4])], std::slice::from_ref(&dx))
    };
    assert!(alone(DType::BF16).is_ok());
    for refused in [alone(DType::F32), alone(DType::F64), alone(DType::I32)] {
        assert!(matches!(refused, Err(Uncovered::Missing(_))));
    }
}
