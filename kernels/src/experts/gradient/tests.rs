//! Gradients of mixtures of experts against differences.

use arbtest::arbtest;
use planner_ir::{Binary, Contract, DType, Op, Real, Unary};

use crate::finite::{cast, check_gradients, check_narrow, smooth};
use crate::{Array, KernelError, add, compute, evaluate};

#[test]
fn tokens_gates_and_experts_have_gradients() {
    arbtest(|u| {
        let [t, h, f, e] = [u.int_in_range(1..=4)?, u.int_in_range(1..=3)?, u.int_in_range(1..=3)?, 2];
        let (x, gates, dy) = (smooth(u, &[t, h])?, smooth(u, &[t, e])?, smooth(u, &[t, h])?);
        let (up, gate, down) = (smooth(u, &[e, f, h])?, smooth(u, &[e, f, h])?, smooth(u, &[e, h, f])?);
        let activation = Unary::Silu;
        let (first, second) = (smooth(u, &[e, f])?, smooth(u, &[e, f])?);
        let plain = [&x, &gates, &up, &down];
        let all = [&x, &gates, &up, &gate, &down, &first, &second];
        // What is hidden at the limit has two slopes.
        let bounded = if is_apart(&all, LIMIT) { Some(Real(LIMIT)) } else { None };
        let cases = [(&plain[..], None), (&all[..5], None), (&all, None), (&all, bounded)];
        for (operands, limit) in cases {
            let (forward, op) = (
                Op::Experts { activation, limit, active: e },
                Op::ExpertsGradient { activation, limit, active: e, adds: vec![] },
            );
            let given = [operands, &[&dy]].concat();
            let found = evaluate(&op, &given).unwrap();
            let pairs: Vec<(usize, &Array)> = found.iter().enumerate().collect();
            check_gradients(&forward, operands, &dy, &pairs);
            if limit.is_none() {
                check_narrow(&op, &given);
            }
        }
        Ok(())
    });
}

/// What units are bounded by.
const LIMIT: f64 = 0.7;

/// Whether no product is so near a limit that a difference meets it.
fn is_apart([x, _, up, gate, _, first, second]: &[&Array; 7], limit: f64) -> bool {
    let label = |text: &str| text.bytes().map(planner_ir::Label).collect();
    let product = Op::Contract(Contract { left: label("th"), right: label("efh"), result: label("tef") });
    [(up, first), (gate, second)].into_iter().all(|(weights, bias)| {
        let made = evaluate(&product, &[x, weights]).unwrap().remove(0);
        let made = evaluate(&Op::Binary(Binary::Add), &[&made, bias]).unwrap().remove(0);
        made.to_floats().unwrap().iter().all(|it| (it.abs() - limit).abs() > 1e-3)
    })
}

#[test]
fn experts_that_no_token_uses_have_no_gradient() {
    let of = |shape: &[u64]| {
        let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
        Array::of(shape, &vec![0.5_f32; count]).unwrap()
    };
    let gates = Array::of([2, 2], &[0.0_f32, 1.0, 0.0, 2.0]).unwrap();
    let (x, w, down) = (of(&[2, 3]), of(&[2, 4, 3]), of(&[2, 3, 4]));
    let op = Op::ExpertsGradient { activation: Unary::Relu, limit: None, active: 1, adds: vec![] };
    let found = evaluate(&op, &[&x, &gates, &w, &down, &x]).unwrap();
    let of_gates = found[1].elements::<f32>().unwrap();
    assert!(of_gates[0].to_bits() == 0 && of_gates[2].to_bits() == 0 && of_gates[1] > 0.0);
    for weights in &found[2..] {
        let (unused, used) = weights.elements::<f32>().unwrap().split_at(12);
        assert!(unused.iter().all(|it| it.to_bits() == 0) && used.iter().all(|&it| it > 0.0));
    }
}

/// What is added to sums: those in f32 are the gradients' in f32 added to the bit, of gradients that are not rounded
/// before; the others are what they are without.
#[test]
fn gradients_of_weights_are_added_to_sums_without_being_rounded() {
    let numbers = |shape: &[u64], seed: u64| {
        let count = u32::try_from(shape.iter().product::<u64>()).unwrap();
        let seed = u32::try_from(seed).unwrap();
        let one = |it: u32| {
            f32::from(u16::try_from((it * 7_919 + seed * 104_729) % 4_001).unwrap()) / 2_000.0 - 1.0
        };
        Array::of(shape, &(0..count).map(one).collect::<Vec<_>>()).unwrap()
    };
    let one = |op: Op, operands: &[&Array]| evaluate(&op, operands).unwrap().remove(0);
    let [t, h, f, e] = [19, 6, 5, 3];
    let (x, gates, dy) = (numbers(&[t, h], 1), numbers(&[t, e], 2), numbers(&[t, h], 3));
    let (up, gate, down) = (numbers(&[e, f, h], 4), numbers(&[e, f, h], 5), numbers(&[e, h, f], 6));
    let bias = numbers(&[e, f], 7);
    let of = |adds: &[usize]| Op::ExpertsGradient {
        activation: Unary::Silu,
        limit: None,
        active: e,
        adds: adds.to_vec(),
    };
    let two = [&x, &gates, &up, &down, &dy];
    let gated = [&x, &gates, &up, &gate, &down, &dy];
    let biased = [&x, &gates, &up, &gate, &down, &bias, &bias, &dy];
    for (given, adds) in [
        (&two[..], &[2][..]),
        (&two, &[2, 3]),
        (&gated, &[4]),
        (&gated, &[2, 3, 4]),
        (&biased, &[3]),
        (&biased, &[2, 4]),
    ] {
        let sums: Vec<Array> = adds.iter().map(|&it| numbers(given[it].shape(), 40)).collect();
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let narrow: Vec<Array> = given.iter().map(|it| cast(it, dtype)).collect();
            let wide: Vec<Array> = narrow.iter().map(|it| cast(it, DType::F32)).collect();
            let narrow: Vec<&Array> = narrow.iter().collect();
            let (apart, exact) =
                (evaluate(&of(&[]), &narrow).unwrap(), evaluate(&of(&[]), &wide.iter().collect::<Vec<_>>()));
            let (exact, all) = (exact.unwrap(), [&narrow[..], &sums.iter().collect::<Vec<_>>()].concat());
            let together = evaluate(&of(adds), &all).unwrap();
            let is_right = |together: &[Array]| {
                for (result, (found, apart)) in together.iter().zip(&apart).enumerate() {
                    match adds.iter().position(|it| *it == result) {
                        None => assert_eq!(found.bytes(), apart.bytes(), "{result} of {dtype}"),
                        Some(sum) => {
                            let sum = one(Op::Binary(Binary::Add), &[&sums[sum], &exact[result]]);
                            assert_eq!(
                                (found.dtype(), found.bytes()),
                                (DType::F32, sum.bytes()),
                                "{result} of {dtype}"
                            );
                        }
                    }
                }
            };
            is_right(&together);
            // Where the first of the sums lies, and the others do not.
            let mut there: Vec<Array> =
                together.iter().map(|it| Array::zeros(it.type_().clone()).unwrap()).collect();
            there[adds[0]] = sums[0].clone();
            let factors: Vec<_> = narrow.iter().map(|it| it.tensor()).collect();
            let mut addends: Vec<_> = sums.iter().map(|it| Some(it.tensor())).collect();
            addends[0] = None;
            let mut targets: Vec<_> = there.iter_mut().map(Array::tensor_mut).collect();
            add(&of(adds), &factors, &addends, &mut targets).unwrap();
            is_right(&there);
            // Sums as narrow as gradients are rounded once.
            let short: Vec<Array> = sums.iter().map(|it| cast(it, dtype)).collect();
            let found =
                evaluate(&of(adds), &[&narrow[..], &short.iter().collect::<Vec<_>>()].concat()).unwrap();
            for (sum, &result) in short.iter().zip(adds) {
                let sum = one(Op::Binary(Binary::Add), &[&cast(sum, DType::F32), &exact[result]]);
                assert_eq!(found[result].bytes(), cast(&sum, dtype).bytes(), "{result} of {dtype}");
            }
        }
    }
    // Sums that are not there, and results that are not.
    let factors = two.map(Array::tensor);
    let mut made: Vec<Array> = two[..4].iter().map(|it| Array::zeros(it.type_().clone()).unwrap()).collect();
    let mut targets: Vec<_> = made.iter_mut().map(Array::tensor_mut).collect();
    let found = add(&of(&[2, 3]), &factors, &[None], &mut targets);
    assert!(matches!(found, Err(KernelError::Count { .. })), "{found:?}");
    let found = add(&of(&[3]), &factors, &[None], &mut targets[..3]);
    assert!(matches!(found, Err(KernelError::Count { .. })), "{found:?}");
    let found = compute(&of(&[2]), &[factors[0]], &mut targets);
    assert!(found.is_err(), "{found:?}");
}
