//! Contractions against their definition.

use arbtest::arbtest;
use half::f16;
use planner_ir::{Binary, Contract, DType, Label, Op, Unary};

use crate::naive::{Numbers, arbitrary, check, check_blocks, check_sum, every_index, one};
use crate::{Array, KernelError, Span, Tensor, add, compute, evaluate};

fn labels(text: &str) -> Vec<Label> {
    text.bytes().map(Label).collect()
}

fn op([left, right, result]: [&str; 3]) -> Op {
    Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
}

#[test]
fn every_arrangement_of_labels_is_the_sum_it_says() {
    arbtest(|u| {
        // Each label falls into one of the four groups and stands anywhere in its values.
        let count = u.int_in_range(0..=6)?;
        let mut lists: [Vec<(Label, u64)>; 3] = Default::default();
        for label in 0..count {
            let extent = u.int_in_range(1..=4)?;
            let members = u.choose(&[
                [true, true, true],
                [true, false, true],
                [false, true, true],
                [true, true, false],
            ])?;
            for (list, &is_member) in lists.iter_mut().zip(members) {
                if is_member {
                    let place = u.int_in_range(0..=list.len())?;
                    list.insert(place, (Label(label), extent));
                }
            }
        }
        let [left, right, result] = lists.clone().map(|list| list.into_iter().unzip());
        let _: [&(Vec<Label>, Vec<u64>); 3] = [&left, &right, &result];
        let (a, b) = (arbitrary(u, &left.1)?, arbitrary(u, &right.1)?);
        let op =
            Op::Contract(Contract { left: left.0.clone(), right: right.0.clone(), result: result.0.clone() });
        let found = one(&op, &[&a, &b]);
        let (a, b) = (Numbers::of(&a), Numbers::of(&b));
        let summed: Vec<(Label, u64)> =
            lists[0].iter().copied().filter(|(label, _)| !result.0.contains(label)).collect();
        let extents: Vec<u64> = summed.iter().map(|&(_, extent)| extent).collect();
        check(&found, |index| {
            let sum = every_index(&extents).into_iter().map(|inner| {
                let value = |label: &Label| match result.0.iter().position(|it| it == label) {
                    Some(dim) => index[dim],
                    None => inner[summed.iter().position(|(it, _)| it == label).unwrap()],
                };
                let at = |list: &[Label]| list.iter().map(value).collect::<Vec<_>>();
                a.at(&at(&left.0)) * b.at(&at(&right.0))
            });
            sum.sum()
        });
        Ok(())
    });
}

/// Values of that shape that are not all alike.
fn numbers(shape: &[u64], factor: u64) -> Array {
    let count: u64 = shape.iter().product();
    let number = |index: u64| f32::from(u8::try_from(index * factor % 17).unwrap()) / 8.0 - 1.0;
    Array::of(shape, &(0..count).map(number).collect::<Vec<_>>()).unwrap()
}

#[test]
fn large_products_are_the_sums_they_say() {
    for (text, a, b) in [
        (["mk", "kn", "mn"], [37, 65], [65, 51]),
        (["mk", "nk", "mn"], [37, 65], [51, 65]),
        (["km", "kn", "nm"], [65, 37], [65, 51]),
        (["km", "nk", "mn"], [65, 1], [51, 65]),
    ] {
        let (x, y) = (numbers(&a, 7), numbers(&b, 11));
        let found = one(&op(text), &[&x, &y]);
        let (x, y) = (Numbers::of(&x), Numbers::of(&y));
        let value = |letter: u8, m: u64, n: u64, k: u64| match letter {
            b'm' => m,
            b'n' => n,
            _ => k,
        };
        check(&found, |index| {
            let place = |letter: u8| text[2].bytes().position(|it| it == letter).unwrap();
            let (m, n) = (index[place(b'm')], index[place(b'n')]);
            let at = |letters: &str, k: u64| letters.bytes().map(|it| value(it, m, n, k)).collect::<Vec<_>>();
            (0..65).map(|k| x.at(&at(text[0], k)) * y.at(&at(text[1], k))).sum()
        });
    }
}

#[test]
fn half_precision_is_summed_in_single() {
    let count = 4096_u16;
    let ones = vec![f16::from_f32(1.0); count.into()];
    let x = Array::of([1, count.into()], &ones).unwrap();
    let found = one(&op(["mk", "nk", "mn"]), &[&x, &x]);
    assert_eq!(found.elements::<f16>().unwrap(), [f16::from_f32(4096.0)]);
}

#[test]
fn integers_are_multiplied_exactly() {
    let a = Array::of([1, 2], &[1_i64 << 40, 3]).unwrap();
    let b = Array::of([2, 1], &[3_i64, -5]).unwrap();
    let found = one(&op(["mk", "kn", "mn"]), &[&a, &b]);
    assert_eq!(found.elements::<i64>().unwrap(), [(3 << 40) - 15]);
}

#[test]
fn a_sum_of_nothing_is_zero() {
    let a = Array::of::<f32>([2, 0], &[]).unwrap();
    let b = Array::of::<f32>([0, 3], &[]).unwrap();
    check(&one(&op(["mk", "kn", "mn"]), &[&a, &b]), |_| 0.0);
}

#[test]
fn blocks_give_blocks_or_addends() {
    let (a, b) = (numbers(&[4, 6, 8], 5), numbers(&[4, 8, 12], 3));
    let product = op(["bmk", "bkn", "bmn"]);
    check_blocks(&product, &[(&a, Some(0)), (&b, Some(0))], &[Some(0)], 2);
    check_blocks(&product, &[(&a, Some(1)), (&b, None)], &[Some(1)], 3);
    check_blocks(&product, &[(&a, None), (&b, Some(2))], &[Some(2)], 4);
    check_sum(&product, &[(&a, Some(2)), (&b, Some(1))], 4);
}

#[test]
fn bad_shapes_are_errors() {
    let (a, b) = (numbers(&[2, 3], 5), numbers(&[2, 3], 5));
    let product = op(["mk", "kn", "mn"]);
    assert!(evaluate(&product, &[&a, &b]).is_err());
    let spans: [Span; 0] = [];
    let mut y = numbers(&[2, 3], 5);
    let operands = [a.tensor(), Tensor { spans: &spans, ..b.tensor() }];
    let found = compute(&product, &operands, &mut [y.tensor_mut()]);
    assert!(matches!(found, Err(KernelError::Shape { .. })));
    let found = compute(&op(["mm", "mm", "mm"]), &operands, &mut [y.tensor_mut()]);
    assert!(matches!(found, Err(KernelError::Shape { .. })));
    let found = compute(&op(["mk", "nj", "mn"]), &operands, &mut [y.tensor_mut()]);
    assert!(matches!(found, Err(KernelError::Shape { .. })));
}

#[test]
fn a_product_is_added_to_what_is_wider_without_being_rounded() {
    for (text, a, b) in [
        (["mk", "kn", "mn"], [37, 65], [65, 51]),
        (["km", "kn", "nm"], [65, 37], [65, 51]),
        (["mk", "nk", "mn"], [2, 3], [3, 3]),
    ] {
        let (x, y) = (numbers(&a, 7), numbers(&b, 11));
        let (contract, cast) = (op(text), |to, it: &Array| one(&Op::Cast(to), &[it]));
        let product = one(&contract, &[&x, &y]);
        let addend = one(&Op::Unary(Unary::Exp), &[&product]);
        let sum = one(&Op::Binary(Binary::Add), &[&addend, &product]);
        // In f32 it is the sum of the two, to the bit.
        assert_eq!(one(&contract, &[&x, &y, &addend]).bytes(), sum.bytes());
        for narrow in [DType::BF16, DType::F16] {
            let [x, y] = [&x, &y].map(|it| cast(narrow, it));
            let wide = [&x, &y].map(|it| cast(DType::F32, it));
            let found = one(&contract, &[&x, &y, &addend]);
            assert_eq!(found.dtype(), DType::F32);
            let exact = one(&contract, &[&wide[0], &wide[1], &addend]);
            assert_eq!(found.bytes(), exact.bytes());
            // What is as narrow as the operands is rounded once.
            let addend = cast(narrow, &addend);
            let found = one(&contract, &[&x, &y, &addend]);
            let exact = one(&contract, &[&wide[0], &wide[1], &cast(DType::F32, &addend)]);
            assert_eq!(found.bytes(), cast(narrow, &exact).bytes());
        }
        // Over what it is added to.
        let mut there = Array::from_bytes(addend.type_().clone(), addend.bytes()).unwrap();
        add(&contract, &[x.tensor(), y.tensor()], &[None], &mut [there.tensor_mut()]).unwrap();
        assert_eq!(there.bytes(), sum.bytes());
    }
}
