//! Attention and rotation against their definitions.

use arbtest::arbitrary::{Result, Unstructured};
use arbtest::arbtest;
use planner_ir::{Attention, Blind, DType, Op, Pairing, Real};

use crate::Array;
use crate::naive::{Numbers, arbitrary, check, check_blocks, one};

mod blind; // rows that see no key

const PLAIN: Attention = Attention {
    scale: Real(0.5),
    causal: false,
    softcap: Real(0.0),
    window: None,
    blind: Blind::Zero,
    sinks: false,
    statistics: false,
};

/// What a query sees of its keys: the definition.
fn expected(
    attention: &Attention,
    [q, k, v]: [&Array; 3],
    hides: impl Fn(&[u64]) -> bool,
    adds: impl Fn(&[u64]) -> f64,
    index: &[u64],
) -> f64 {
    let &[batch, head, query, column] = index else { panic!("four dimensions") };
    let (heads, queries, size) = (q.shape()[1], q.shape()[2], q.shape()[3]);
    let (groups, keys) = (k.shape()[1], k.shape()[2]);
    let group = head / (heads / groups);
    let (q, k, v) = (Numbers::of(q), Numbers::of(k), Numbers::of(v));
    let mut weights = Vec::new();
    for key in 0..keys {
        let own = query + keys;
        let is_late = (attention.causal || attention.window.is_some()) && key + queries > own;
        let is_early = attention.window.is_some_and(|window| key + queries + window <= own);
        if is_late || is_early || hides(&[batch, head, query, key]) {
            continue;
        }
        let dot: f64 =
            (0..size).map(|i| q.at(&[batch, head, query, i]) * k.at(&[batch, group, key, i])).sum();
        let mut score = dot * attention.scale.0;
        if attention.softcap.0 != 0.0 {
            score = attention.softcap.0 * (score / attention.softcap.0).tanh();
        }
        weights.push((key, (score + adds(&[batch, head, query, key])).exp()));
    }
    let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.iter().map(|&(key, weight)| weight / total * v.at(&[batch, group, key, column])).sum()
}

#[test]
fn queries_see_what_they_should() {
    arbtest(|u| {
        let [b, g, each, s, t, d, e] = {
            let mut draw = |high| u.int_in_range(1..=high);
            [draw(2)?, draw(2)?, draw(2)?, draw(5)?, draw(6)?, draw(3)?, draw(3)?]
        };
        let q = arbitrary(u, &[b, g * each, s, d])?;
        let (k, v) = (arbitrary(u, &[b, g, t, d])?, arbitrary(u, &[b, g, t, e])?);
        let attention = Attention {
            scale: Real(0.25),
            causal: u.arbitrary()?,
            softcap: Real(if u.arbitrary()? { 1.5 } else { 0.0 }),
            window: if u.arbitrary()? { Some(u.int_in_range(1..=4)?) } else { None },
            blind: Blind::Zero,
            sinks: false,
            statistics: false,
        };
        let op = Op::Attention(attention);
        let nothing = |_: &[u64]| false;
        let found = one(&op, &[&q, &k, &v]);
        check(&found, |index| expected(&attention, [&q, &k, &v], nothing, |_| 0.0, index));

        let shape = [u.int_in_range(0..=1)? * (b - 1) + 1, 1, s, u.int_in_range(0..=1)? * (t - 1) + 1];
        let mask = arbitrary(u, &shape)?;
        let numbers = Numbers::of(&mask);
        let adds = |index: &[u64]| numbers.at(index);
        let found = one(&op, &[&q, &k, &v, &mask]);
        check(&found, |index| expected(&attention, [&q, &k, &v], nothing, adds, index));

        let truths: Vec<bool> = mask.to_floats().unwrap().iter().map(|&it| it > 0.0).collect();
        let mask = Array::of_truths(shape, &truths).unwrap();
        let found = one(&op, &[&q, &k, &v, &mask]);
        let hides = |index: &[u64]| numbers.at(index) <= 0.0;
        check(&found, |index| expected(&attention, [&q, &k, &v], hides, |_| 0.0, index));

        let numbered = |u: &mut Unstructured<'_>, shape: [u64; 4]| {
            let count = usize::try_from(shape.iter().product::<u64>()).unwrap();
            let numbers = (0..count).map(|_| u.int_in_range(-1..=1)).collect::<Result<Vec<i32>, _>>()?;
            Ok((Array::of(shape, &numbers).unwrap(), numbers))
        };
        let examples = if u.arbitrary()? { b } else { 1 };
        let (own, of_queries) = numbered(u, [examples, 1, s, 1])?;
        let (others, of_keys) = numbered(u, [examples, 1, 1, t])?;
        let number = |numbers: &[i32], length: u64, [example, place]: [u64; 2]| {
            numbers[usize::try_from((example % examples) * length + place).unwrap()]
        };
        let differ = |index: &[u64]| {
            number(&of_queries, s, [index[0], index[2]]) != number(&of_keys, t, [index[0], index[3]])
        };
        let found = one(&op, &[&q, &k, &v, &own, &others]);
        check(&found, |index| expected(&attention, [&q, &k, &v], differ, |_| 0.0, index));
        let found = one(&op, &[&q, &k, &v, &mask, &own, &others]);
        let both = |index: &[u64]| differ(index) || hides(index);
        check(&found, |index| expected(&attention, [&q, &k, &v], both, |_| 0.0, index));
        Ok(())
    });
}

/// As if there was one key more before all others, of score `sink` and value 0.
#[test]
fn a_sink_is_a_key_whose_value_is_zero() {
    arbtest(|u| {
        let [b, g, each, s, d, e] = {
            let mut draw = |high| u.int_in_range(1..=high);
            [draw(2)?, draw(2)?, draw(2)?, draw(5)?, draw(3)?, draw(3)?]
        };
        let (h, t) = (g * each, s + u.int_in_range(0..=2)?);
        let q = arbitrary(u, &[b, h, s, d])?;
        let (k, v) = (arbitrary(u, &[b, g, t, d])?, arbitrary(u, &[b, g, t, e])?);
        let mut extent = |extent: u64| Ok(if u.arbitrary()? { extent } else { 1 });
        let shape = [extent(b)?, h, extent(s)?, 1];
        let sinks = arbitrary(u, &shape)?;
        let attention = Attention { causal: u.arbitrary()?, ..PLAIN };
        let mask = arbitrary(u, &[b, h, s, t])?;
        let found = one(&Op::Attention(Attention { sinks: true, ..attention }), &[&q, &k, &v, &mask, &sinks]);

        let zeros = |shape: &[u64]| Array::zeros(planner_ir::Type::new(DType::F32, shape)).unwrap();
        let before = |first: &Array, rest: &Array, dim| one(&Op::Concat { dim }, &[first, rest]);
        let (k, v) = (before(&zeros(&[b, g, 1, d]), &k, 2), before(&zeros(&[b, g, 1, e]), &v, 2));
        let sinks = one(&Op::Expand { shape: vec![b, h, s, 1] }, &[&sinks]);
        let numbers = Numbers::of(&before(&sinks, &mask, 3));
        let adds = |index: &[u64]| numbers.at(index);
        check(&found, |index| expected(&attention, [&q, &k, &v], |_| false, adds, index));
        Ok(())
    });
}

#[test]
fn rows_beyond_a_block_of_queries_are_done_as_well() {
    let numbers = |shape: &[u64], factor: u64| {
        let count: u64 = shape.iter().product();
        let number = |index: u64| f32::from(u8::try_from(index * factor % 23).unwrap()) / 16.0 - 0.5;
        Array::of(shape, &(0..count).map(number).collect::<Vec<_>>()).unwrap()
    };
    let (q, k, v) = (numbers(&[1, 2, 150, 8], 7), numbers(&[1, 1, 150, 8], 11), numbers(&[1, 1, 150, 4], 5));
    for window in [None, Some(40)] {
        let attention = Attention { causal: true, window, ..PLAIN };
        let found = one(&Op::Attention(attention), &[&q, &k, &v]);
        let last = Numbers::of(&found);
        for index in [[0, 0, 0, 0], [0, 1, 63, 1], [0, 1, 64, 2], [0, 0, 149, 3]] {
            let expected = expected(&attention, [&q, &k, &v], |_| false, |_| 0.0, &index);
            assert!((last.at(&index) - expected).abs() < 1e-5, "{index:?}");
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gives_zero() {
    let x = Array::of([1, 1, 2, 1], &[1.0_f32, 2.0]).unwrap();
    let mask = Array::of_truths([2, 2], &[false, false, true, false]).unwrap();
    let found = one(&Op::Attention(PLAIN), &[&x, &x, &x, &mask]);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 1.0]);
    let mask = Array::of([2, 2], &[f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY]).unwrap();
    let found = one(&Op::Attention(PLAIN), &[&x, &x, &x, &mask]);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 1.0]);
    // Queries longer than keys: the first sees none.
    let keys = Array::of([1, 1, 1, 1], &[3.0_f32]).unwrap();
    let found = one(&Op::Attention(Attention { causal: true, ..PLAIN }), &[&x, &keys, &keys]);
    assert_eq!(found.elements::<f32>().unwrap(), [0.0, 3.0]);
}

/// A row hidden by the lowest number of a type has the mean of all values, in every type: nothing of a score is left.
#[test]
fn a_query_whose_keys_are_hidden_by_a_low_number_gets_the_mean() {
    for (dtype, low) in [(DType::F16, -65504.0), (DType::F16, -10000.0), (DType::BF16, -3.38e38)] {
        let cast = |x: &Array| one(&Op::Cast(dtype), &[x]);
        let x = cast(&Array::of([1, 1, 2, 1], &[1.0_f32, 4.0]).unwrap());
        let mask = cast(&Array::of([2, 2], &[low, low, 0.0_f32, low]).unwrap());
        let op = Op::Attention(Attention { statistics: true, ..PLAIN });
        let found = crate::evaluate(&op, &[&x, &x, &x, &mask]).unwrap();
        assert_eq!(found[0].to_floats().unwrap(), [2.5, 1.0], "{dtype} {low}");
        // Both keys count; of two that are seen one does.
        assert_eq!(found[1].elements::<f32>().unwrap()[1..2], [2.0], "{dtype} {low}");
        let dy = cast(&Array::of([1, 1, 2, 1], &[1.0_f32, 0.0]).unwrap());
        let op = Op::AttentionGradient { attention: PLAIN, mask: false };
        let gradients = crate::evaluate(&op, &[&x, &x, &x, &found[0], &found[1], &dy, &mask]).unwrap();
        assert_eq!(gradients[2].to_floats().unwrap(), [0.5, 0.5], "{dtype} {low}");
    }
}

#[test]
fn blocks_of_queries_and_heads_see_what_the_whole_sees() {
    arbtest(|u| {
        let (q, k) = (arbitrary(u, &[2, 4, 4, 2])?, arbitrary(u, &[2, 2, 6, 2])?);
        let v = arbitrary(u, &[2, 2, 6, 4])?;
        let attention = Attention { causal: true, window: Some(3), ..PLAIN };
        let op = Op::Attention(attention);
        check_blocks(&op, &[(&q, Some(0)), (&k, Some(0)), (&v, Some(0))], &[Some(0)], 2);
        check_blocks(&op, &[(&q, Some(1)), (&k, Some(1)), (&v, Some(1))], &[Some(1)], 2);
        let (one_key, one_value) = (arbitrary(u, &[2, 1, 6, 2])?, arbitrary(u, &[2, 1, 6, 4])?);
        check_blocks(&op, &[(&q, Some(1)), (&one_key, None), (&one_value, None)], &[Some(1)], 4);
        check_blocks(&op, &[(&q, Some(2)), (&k, None), (&v, None)], &[Some(2)], 4);
        check_blocks(&op, &[(&q, None), (&k, None), (&v, Some(3))], &[Some(3)], 2);
        Ok(())
    });
}

#[test]
fn pairs_are_rotated() {
    arbtest(|u| {
        let (b, s, d) = (u.int_in_range(1..=2)?, u.int_in_range(1..=3)?, 2 * u.int_in_range(1..=3)?);
        let x = arbitrary(u, &[b, 2, s, d])?;
        let shape = [u.int_in_range(0..=1)? * (b - 1) + 1, 1, s, d];
        let (cos, sin) = (arbitrary(u, &shape)?, arbitrary(u, &shape)?);
        let numbers = [&x, &cos, &sin].map(Numbers::of);
        for pairing in [Pairing::Halves, Pairing::Neighbours] {
            let op = Op::Rotary(pairing);
            check(&one(&op, &[&x, &cos, &sin]), |index| {
                let mut other = index.to_vec();
                let at = index[3];
                let is_first = match pairing {
                    Pairing::Halves => at < d / 2,
                    Pairing::Neighbours => at % 2 == 0,
                };
                let distance = if pairing == Pairing::Halves { d / 2 } else { 1 };
                other[3] = if is_first { at + distance } else { at - distance };
                let turned = numbers[0].at(&other) * if is_first { -1.0 } else { 1.0 };
                numbers[0].at(index) * numbers[1].at(index) + turned * numbers[2].at(index)
            });
            check_blocks(&op, &[(&x, Some(1)), (&cos, None), (&sin, None)], &[Some(1)], 2);
        }
        Ok(())
    });
}
