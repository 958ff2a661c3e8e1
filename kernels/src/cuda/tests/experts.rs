//! Mixtures of experts and their gradients.

use planner_ir::{DType, Op, Real, Unary};

use arbtest::arbitrary::{Result, Unstructured};

use super::emulator::{Trial, check, check_works, missing_barriers};
use super::values::{FLOATS, cast, entropy, many, numbers, tolerance};
use crate::array::Array;
use crate::cuda::{Piece, Work, kernels};

/// Gates of which each row has so many at most that are not 0.
fn gates(dtype: DType, [tokens, experts]: [u64; 2], active: u64, seed: u64) -> Array {
    let numbers = numbers(DType::F64, &[tokens, experts], seed);
    let mut numbers = numbers.elements::<f64>().unwrap().to_vec();
    let (experts_, active) = (usize::try_from(experts).unwrap(), usize::try_from(active).unwrap());
    for (token, row) in numbers.chunks_exact_mut(experts_).enumerate() {
        let used = (token + usize::try_from(seed % 7).unwrap()) % (active + 1);
        for (expert, gate) in row.iter_mut().enumerate() {
            let place = (expert + token * 3) % experts_;
            *gate = if place < used { *gate + 2.0 } else { 0.0 };
        }
    }
    cast(&Array::of([tokens, experts], &numbers).unwrap(), dtype)
}

/// Gradients of which some are added to something, perhaps where that lies.
fn gradients(
    u: &mut Unstructured,
    (activation, limit, active): (Unary, Option<Real>, u64),
    mut operands: Vec<Array>,
    near: f64,
    seed: u64,
) -> Result<Trial> {
    let mut adds = Vec::new();
    for result in 2..operands.len() - 1 {
        let type_ = operands[result].type_().clone();
        if type_.rank() == 3 && u.arbitrary()? {
            let dtype = if u.arbitrary()? { type_.dtype.accumulated() } else { type_.dtype };
            operands.push(numbers(dtype, &type_.shape, seed + 10));
            adds.push(result);
        }
    }
    let op = Op::ExpertsGradient { activation, limit, active, adds };
    let addends = op.addends(operands.len());
    let mut trial = Trial::whole(op, operands, near);
    for (operand, result) in addends {
        trial.in_place[result] = if u.arbitrary()? { Some(operand) } else { None };
    }
    Ok(trial)
}

#[test]
fn experts_compute_their_tokens() {
    let trials = many(24, |u, seed| {
        let dtype = *u.choose(&FLOATS)?;
        let [t, h] = [*u.choose(&[1, 3, 40, 270])?, *u.choose(&[4, 16, 37])?];
        let [f, e] = [*u.choose(&[5, 32, 35])?, *u.choose(&[1, 3, 4])?];
        let active = u.int_in_range(1..=e)?;
        let activation = *u.choose(&[Unary::Silu, Unary::Relu, Unary::GeluTanh, Unary::GeluQuick])?;
        let of = |shape: &[u64], more: u64| numbers(dtype, shape, seed + more);
        let mut operands = vec![of(&[t, h], 0), gates(dtype, [t, e], active, seed), of(&[e, f, h], 1)];
        let gated: bool = u.arbitrary()?;
        operands.extend(gated.then(|| of(&[e, f, h], 2)));
        operands.push(of(&[e, h, f], 3));
        if gated && u.arbitrary()? {
            operands.extend([5, 6].map(|it| of(&[e, f], it)));
        }
        let limit = if gated && u.arbitrary()? { Some(Real(0.7)) } else { None };
        // The processor rounds narrow numbers after each product.
        let near = match dtype {
            DType::BF16 => 0.5,
            DType::F16 => 0.05,
            _ => 100.0 * tolerance(dtype),
        };
        if u.arbitrary()? {
            return Ok(Trial::whole(Op::Experts { activation, limit, active }, operands, near));
        }
        operands.push(of(&[t, h], 4));
        gradients(u, (activation, limit, active), operands, near, seed)
    });
    check(&trials);
}

/// The families of what tensor cores multiply.
const TENSOR: &str = "experts_tensor";

/// Experts of 16 bits whose extents are multiples of 16, or their gradients.
fn narrow(u: &mut Unstructured, seed: u64) -> Result<Trial> {
    let dtype = *u.choose(&[DType::BF16, DType::F16])?;
    let [t, e] = *u.choose(&[[1, 3], [3, 40], [40, 3], [300, 2]])?;
    let [h, f] = [*u.choose(&[16, 48, 128, 272, 304])?, *u.choose(&[16, 32, 80, 144, 304])?];
    let active = u.int_in_range(1..=e.min(4))?;
    let activation = *u.choose(&[Unary::Silu, Unary::Relu, Unary::GeluTanh, Unary::GeluQuick])?;
    // Numbers of which products are about as large as they are.
    let of = |shape: &[u64], of: u64, more: u64| {
        let wide = numbers(DType::F64, shape, seed + more);
        let length: f64 = f64::from(u32::try_from(of).unwrap()).sqrt();
        let scaled: Vec<f64> = wide.elements::<f64>().unwrap().iter().map(|it| it / length).collect();
        cast(&Array::of(shape.to_vec(), &scaled).unwrap(), dtype)
    };
    let mut operands = vec![of(&[t, h], 1, 0), gates(dtype, [t, e], active, seed), of(&[e, f, h], h, 1)];
    let gated: bool = u.arbitrary()?;
    operands.extend(gated.then(|| of(&[e, f, h], h, 2)));
    operands.push(of(&[e, h, f], f, 3));
    if gated && u.arbitrary()? {
        operands.extend([5, 6].map(|it| of(&[e, f], 1, it)));
    }
    let limit = if gated && u.arbitrary()? { Some(Real(0.7)) } else { None };
    let near = if dtype == DType::BF16 { 0.02 } else { 0.004 };
    if u.arbitrary()? {
        return Ok(Trial::whole(Op::Experts { activation, limit, active }, operands, near));
    }
    operands.push(of(&[t, h], h, 4));
    gradients(u, (activation, limit, active), operands, near, seed)
}

/// What the same operation makes in 64 bits of the same numbers, each of its results rounded once.
fn precise(trial: &Trial) -> Vec<Array> {
    let wide: Vec<Array> = trial.operands.iter().map(|(it, _)| cast(it, DType::F64)).collect();
    let wide: Vec<&Array> = wide.iter().collect();
    let made = crate::evaluate(&trial.op, &wide).unwrap();
    made.iter().zip(&trial.results).map(|(it, (type_, _))| cast(it, type_.dtype)).collect()
}

/// What a trial launches.
fn work(trial: &Trial) -> Work {
    let operands: Vec<Piece> =
        trial.operands.iter().map(|(it, _)| Piece::whole(it.type_().clone())).collect();
    let results: Vec<Piece> = trial.results.iter().map(|(it, _)| Piece::whole(it.clone())).collect();
    kernels(&trial.op, &operands, &results).unwrap()
}

#[test]
fn experts_of_16_bits_are_as_precise_as_those_are() {
    let trials = many(16, narrow);
    let works: Vec<Work> = trials.iter().map(work).collect();
    for work in &works {
        let families = work.launches.iter().map(|it| it.kernel.family());
        assert!(families.clone().any(|it| it.starts_with(TENSOR)), "{:?}", families.collect::<Vec<_>>());
    }
    let expected: Vec<Vec<Array>> = trials.iter().map(precise).collect();
    check_works(&trials, &works, &expected);
}

#[test]
fn experts_of_16_bits_are_multiplied_by_tensor_cores_alone() {
    let piece = |dtype: DType, shape: &[u64]| Piece::whole(planner_ir::Type::new(dtype, shape));
    let families = |dtype: DType, [h, f]: [u64; 2]| {
        let (x, gates) = (piece(dtype, &[64, h]), piece(dtype, &[64, 4]));
        let [up, down] = [piece(dtype, &[4, f, h]), piece(dtype, &[4, h, f])];
        let forward = Op::Experts { activation: Unary::Silu, limit: None, active: 2 };
        let operands = [x.clone(), gates, up.clone(), up, down];
        let mut launches = kernels(&forward, &operands, std::slice::from_ref(&x)).unwrap().launches;
        let backward = Op::ExpertsGradient { activation: Unary::Silu, limit: None, active: 2, adds: vec![] };
        let given = [&operands[..], std::slice::from_ref(&x)].concat();
        launches.extend(kernels(&backward, &given, &operands).unwrap().launches);
        let names = launches.iter().map(|it| it.kernel.family().to_owned());
        names.collect::<std::collections::BTreeSet<String>>()
    };
    let is_plain = |it: &String| ["experts_rows", "experts_weights", "experts_list"].contains(&it.as_str());
    for dtype in [DType::BF16, DType::F16] {
        for extents in [[16, 16], [2880, 2880], [4096, 14336], [48, 80]] {
            let found = families(dtype, extents);
            assert!(!found.iter().any(is_plain), "{dtype} {extents:?}: {found:?}");
        }
        // Rows that do not begin where copies may.
        assert!(families(dtype, [40, 32]).iter().any(is_plain));
        assert!(families(dtype, [32, 40]).iter().any(is_plain));
    }
    for dtype in [DType::F32, DType::F64] {
        let found = families(dtype, [64, 64]);
        assert!(!found.iter().any(|it| it.starts_with(TENSOR)), "{found:?}");
    }
}

#[test]
fn barriers_of_experts_on_tensor_cores_are_needed() {
    let mut found: Vec<bool> = Vec::new();
    let mut trials = (0..2_000)
        .map(|seed| narrow(&mut Unstructured::new(&entropy(seed)), seed).expect("there are bytes enough"));
    // Rows of several tiles, products of several steps, and both weights: what needs each barrier.
    let is_large = |it: &Trial| {
        let shape = |operand: usize| it.operands[operand].0.shape().to_vec();
        let given = it.operands.len() - it.op.addends(it.operands.len()).len();
        let is_backward = matches!(it.op, Op::ExpertsGradient { .. }) && given == 8;
        is_backward && shape(0)[0] == 300 && shape(0)[1] >= 272 && shape(2)[1] >= 144
    };
    let trial = trials.find(is_large).expect("some trial is large");
    found.extend(missing_barriers(&trial, 3));
    assert!(found.len() > 8 && found.iter().all(|it| *it), "{found:?}");
}

#[test]
fn launches_and_room_of_experts_on_tensor_cores_are_those_of_the_documentation() {
    let piece = |shape: &[u64]| Piece::whole(planner_ir::Type::new(DType::BF16, shape));
    let [t, e, f, h, active] = [4096, 8, 14336, 4096, 2];
    let [up, down, bias] = [piece(&[e, f, h]), piece(&[e, h, f]), piece(&[e, f])];
    let mut operands = vec![piece(&[t, h]), piece(&[t, e]), up.clone(), up, down];
    let x = piece(&[t, h]);
    let activation = Unary::Silu;
    let forward = |operands: &[Piece]| {
        let op = Op::Experts { activation, limit: None, active };
        kernels(&op, operands, std::slice::from_ref(&x)).unwrap()
    };
    let backward = |operands: &[Piece]| {
        let op = Op::ExpertsGradient { activation, limit: None, active, adds: vec![] };
        kernels(&op, &[operands, std::slice::from_ref(&x)].concat(), operands).unwrap()
    };
    let megabytes = |work: &Work| (work.room + 500_000) / 1_000_000;
    let works = [forward(&operands), backward(&operands)];
    assert_eq!(works.each_ref().map(|it| it.launches.len()), [5, 9]);
    assert_eq!(works.each_ref().map(megabytes), [302, 787]);
    // What is added to sums is so by what makes it: both first weights at once, if both are.
    let added = |adds: &[usize]| {
        let mut made = operands.clone();
        adds.iter().for_each(|&it| made[it].type_.dtype = DType::F32);
        let sums: Vec<Piece> = adds.iter().map(|&it| made[it].clone()).collect();
        let op = Op::ExpertsGradient { activation, limit: None, active, adds: adds.to_vec() };
        kernels(&op, &[&operands[..], std::slice::from_ref(&x), &sums].concat(), &made).unwrap()
    };
    for (adds, launches) in [(&[2, 3, 4][..], 9), (&[2, 3], 9), (&[4], 9), (&[2], 10), (&[3, 4], 10)] {
        let work = added(adds);
        assert_eq!((work.launches.len(), work.room), (launches, works[1].room), "{adds:?}");
    }
    operands.extend([bias.clone(), bias]);
    assert_eq!([forward(&operands), backward(&operands)].map(|it| it.launches.len()), [5, 10]);
}
