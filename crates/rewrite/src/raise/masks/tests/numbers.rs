//! Masks of every type of number, by every number that hides, in the spellings of exporters.

use kernels::Array;
use planner_ir::{Binary, Blind, DType, Graph, Op, Real, Reduction, Triangle, Type, Unary, ValueId};

use super::{Dice, Sketch, difference, earlier, evaluate, same, says, tolerance};
use crate::raise::masks::{Sight, attentions, said};

const FLOATS: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

/// The numbers by which exporters hide keys of that type, as the type has them.
fn lows(dtype: DType) -> &'static [f64] {
    match dtype {
        DType::F32 => &[-3.402_823_466_385_288_6e38, -1e30, -1e9],
        DType::BF16 => &[-3.389_531_389_251_535_5e38, -1e9, -65504.0, -10000.0],
        _ => &[-65504.0, -60000.0, -10000.0],
    }
}

/// One number or another of that type, where a truth value is 1 or 0.
pub(super) fn choice(sketch: &mut Sketch, dtype: DType, truth: ValueId, [yes, no]: [f64; 2]) -> ValueId {
    let [yes, no] = [yes, no].map(|it| sketch.number(dtype, it));
    sketch.op(Op::Select, &[truth, yes, no])
}

/// Which keys are there, as models are given it: integers.
fn given(sketch: &mut Sketch, keys: u64) -> ValueId {
    let given = sketch.input("attention_mask", DType::I64, &[2, keys]);
    sketch.op(Op::Reshape { shape: vec![2, 1, 1, keys] }, &[given])
}

#[test]
fn later_keys_are_seen_to_be_hidden_in_every_type() {
    for dtype in FLOATS {
        for &low in lows(dtype).iter().chain(&[f64::NEG_INFINITY]) {
            for (queries, keys) in [(5, 5), (3, 7)] {
                let mut sketch = Sketch::default();
                let seen = earlier(&mut sketch, queries, keys);
                let mask = choice(&mut sketch, dtype, seen, [0.0, low]);
                let graph = sketch.attention(queries, keys, mask);
                assert_eq!(says(&same(&graph)), (true, None, None), "{dtype} {low}");
            }
        }
    }
}

/// Masks of padding and of later keys, in the spellings of several exporters, by a number that hides.
fn padded(dtype: DType, low: f64, spelling: usize) -> Graph {
    let mut sketch = Sketch::default();
    let given = given(&mut sketch, 6);
    let early = earlier(&mut sketch, 6, 6);
    let there = sketch.op(Op::Cast(DType::Bool), &[given]);
    let seen = sketch.binary(Binary::And, early, there);
    let mask = match spelling {
        0 => choice(&mut sketch, dtype, seen, [0.0, low]),
        1 => {
            let hidden = sketch.op(Op::Unary(Unary::Not), &[seen]);
            choice(&mut sketch, dtype, hidden, [low, 0.0])
        }
        2 => {
            let hidden = sketch.op(Op::Unary(Unary::Not), &[seen]);
            let hidden = sketch.op(Op::Cast(dtype), &[hidden]);
            let low = sketch.number(dtype, low);
            sketch.binary(Binary::Mul, hidden, low)
        }
        _ => {
            // A triangle, in which what is 0 and padding is made low.
            let full = sketch.op(Op::Fill { result: Type::new(dtype, [6, 6]), value: Real(low) }, &[]);
            let upper = sketch.op(Op::Triangle { triangle: Triangle::Upper, diagonal: 1 }, &[full]);
            let numbers = sketch.op(Op::Cast(dtype), &[given]);
            let sum = sketch.binary(Binary::Add, upper, numbers);
            let zero = sketch.number(dtype, 0.0);
            let padding = sketch.binary(Binary::Equal, sum, zero);
            let low = sketch.number(dtype, low);
            sketch.op(Op::Select, &[padding, low, upper])
        }
    };
    sketch.attention(6, 6, mask)
}

#[test]
fn padding_is_said_beside_in_every_type_and_spelling() {
    for dtype in FLOATS {
        for &low in lows(dtype) {
            for spelling in 0..4 {
                let graph = padded(dtype, low, spelling);
                let found = same(&graph);
                assert_eq!(says(&found), (true, None, Some(vec![2, 1, 1, 6])), "{dtype} {low} {spelling}");
                // Nothing that is as large as the scores is left.
                let large = found.values.iter().filter(|it| it.type_.elements() >= 2 * 6 * 6);
                assert_eq!(large.filter(|it| it.type_.rank() == 4 && it.type_.shape[3] == 6).count(), 0);
            }
        }
    }
}

#[test]
fn a_number_that_leaves_something_of_scores_says_nothing_of_queries_without_keys() {
    let graph = padded(DType::F32, -10000.0, 0);
    let found = same(&graph);
    assert!(!says(&found).0);
    let kinds: Vec<Sight> = attentions(&found).into_keys().map(|it| it.sight).collect();
    assert_eq!(kinds, [Sight::Masked]);
}

#[test]
fn a_window_and_padding_are_both_said() {
    for dtype in FLOATS {
        let low = lows(dtype)[0];
        let mut sketch = Sketch::default();
        let given = given(&mut sketch, 9);
        let there = sketch.op(Op::Cast(DType::Bool), &[given]);
        let mut seen = earlier(&mut sketch, 4, 9);
        let (rows, columns) = (sketch.places(5, 4, true), sketch.places(0, 9, false));
        let three = sketch.number(DType::I64, 3.0);
        let first = sketch.binary(Binary::Sub, rows, three);
        let near = sketch.binary(Binary::Greater, columns, first);
        seen = sketch.binary(Binary::And, seen, near);
        seen = sketch.binary(Binary::And, seen, there);
        let mask = choice(&mut sketch, dtype, seen, [0.0, low]);
        let found = same(&sketch.attention(4, 9, mask));
        assert_eq!(says(&found), (true, Some(3), Some(vec![2, 1, 1, 9])));
    }
}

#[test]
fn biases_of_positions_stay_and_later_keys_go() {
    for dtype in FLOATS {
        let low = lows(dtype)[0];
        let mut sketch = Sketch::default();
        let table = Type::new(dtype, [9, 2]);
        let table = sketch.0.push_value(table, planner_ir::Source::Weight("bias".to_owned()));
        let (rows, columns) = (sketch.places(0, 5, true), sketch.places(4, 5, false));
        let apart = sketch.binary(Binary::Sub, columns, rows);
        let bias = sketch.op(Op::Gather { dim: 0 }, &[table, apart]);
        let bias = sketch.op(Op::Transpose { permutation: vec![2, 0, 1] }, &[bias]);
        let seen = earlier(&mut sketch, 5, 5);
        let mask = choice(&mut sketch, dtype, seen, [0.0, low]);
        let mask = sketch.binary(Binary::Add, bias, mask);
        let found = same(&sketch.attention(5, 5, mask));
        assert_eq!(says(&found), (true, None, Some(vec![2, 5, 5])));
        let kinds: Vec<Sight> = attentions(&found).into_keys().map(|it| it.sight).collect();
        assert_eq!(kinds, [Sight::Earlier]);
    }
}

#[test]
fn keys_that_a_query_sees_are_counted_along_the_keys() {
    for reduction in [Reduction::Sum, Reduction::Max] {
        let mut sketch = Sketch::default();
        let given = given(&mut sketch, 7);
        let there = sketch.op(Op::Cast(DType::Bool), &[given]);
        let early = earlier(&mut sketch, 4, 7);
        let seen = sketch.binary(Binary::And, early, there);
        let numbers = sketch.op(Op::Cast(DType::BF16), &[seen]);
        let numbers = sketch.op(Op::Cast(DType::F32), &[numbers]);
        let count = sketch.op(Op::Reduce { reduction, dims: vec![3] }, &[numbers]);
        sketch.0.outputs.push(planner_ir::Output { name: "y".to_owned(), value: count });
        let found = same(&sketch.0);
        assert!(found.nodes.iter().all(|node| !matches!(node.op, Op::Reduce { .. })));
    }
}

/// Of attention that is not causal nothing is said, whatever hides padding, and no later key is missed.
#[test]
fn attention_to_all_keys_is_not_causal() {
    for dtype in FLOATS {
        let low = lows(dtype)[0];
        let mut sketch = Sketch::default();
        let given = given(&mut sketch, 6);
        let numbers = sketch.op(Op::Cast(dtype), &[given]);
        let one = sketch.number(dtype, 1.0);
        let hidden = sketch.binary(Binary::Sub, one, numbers);
        let low = sketch.number(dtype, low);
        let mask = sketch.binary(Binary::Mul, hidden, low);
        let found = same(&sketch.attention(6, 6, mask));
        assert_eq!(says(&found), (false, None, Some(vec![2, 1, 1, 6])));
        let kinds: Vec<Sight> = attentions(&found).into_keys().map(|it| it.sight).collect();
        assert_eq!(kinds, [Sight::All]);
    }
}

/// What attention says by itself is what its mask says, for every band of distances that a mask shows.
#[test]
fn every_band_of_distances_is_said_as_it_is() {
    for (queries, keys) in [(4i32, 4i32), (2, 5), (1, 4)] {
        for first in -queries..=keys {
            for last in first - 1..=keys {
                let mut sketch = Sketch::default();
                let [s, t] = [queries, keys].map(|it| u64::try_from(it).unwrap());
                let (rows, columns) = (sketch.places(0, s, true), sketch.places(0, t, false));
                let [from, to] = [first, last].map(|it| sketch.number(DType::I64, f64::from(it)));
                let [from, to] = [from, to].map(|it| sketch.binary(Binary::Add, rows, it));
                let low = sketch.binary(Binary::GreaterOrEqual, columns, from);
                let high = sketch.binary(Binary::LessOrEqual, columns, to);
                let seen = sketch.binary(Binary::And, low, high);
                let own = keys - queries;
                let (causal, window, _) = says(&same(&sketch.attention(s, t, seen)));
                let hides_later = first.max(own + 1) > last.min(keys - 1) && own < keys - 1;
                assert_eq!(causal, hides_later, "{queries} {keys} {first} {last}");
                assert!(window.is_none() || (causal && first > 1 - queries));
            }
        }
    }
}

/// Keys before those of the sequence, such as a cache's, are put beside a mask.
#[test]
fn masks_that_are_put_beside_each_other_are_followed() {
    for dtype in FLOATS {
        let low = lows(dtype)[0];
        let mut sketch = Sketch::default();
        let seen = earlier(&mut sketch, 4, 4);
        let mask = choice(&mut sketch, dtype, seen, [0.0, low]);
        let past = sketch.op(Op::Fill { result: Type::new(dtype, [4, 3]), value: Real(0.0) }, &[]);
        let mask = sketch.op(Op::Concat { dim: 1 }, &[past, mask]);
        assert_eq!(says(&same(&sketch.attention(4, 7, mask))), (true, None, None));
    }
}

/// A mask of later keys and one of padding that are added: a key that both hide is lower than one that one
/// hides, so that a query without keys sees those that are hidden once.
#[test]
fn keys_that_two_masks_hide_are_lower_than_others() {
    for dtype in FLOATS {
        for &low in lows(dtype) {
            for (window, turned) in [(None, false), (None, true), (Some(2), false)] {
                let mut sketch = Sketch::default();
                let given = given(&mut sketch, 6);
                let mut seen = earlier(&mut sketch, 6, 6);
                if let Some(window) = window {
                    let (rows, columns) = (sketch.places(0, 6, true), sketch.places(0, 6, false));
                    let window = sketch.number(DType::I64, f64::from(window));
                    let first = sketch.binary(Binary::Sub, rows, window);
                    let near = sketch.binary(Binary::Greater, columns, first);
                    seen = sketch.binary(Binary::And, seen, near);
                }
                let order = choice(&mut sketch, dtype, seen, [0.0, low]);
                let numbers = sketch.op(Op::Cast(dtype), &[given]);
                let one = sketch.number(dtype, 1.0);
                let hidden = sketch.binary(Binary::Sub, one, numbers);
                let low_number = sketch.number(dtype, low);
                let padding = sketch.binary(Binary::Mul, hidden, low_number);
                let [a, b] = if turned { [padding, order] } else { [order, padding] };
                let mask = sketch.binary(Binary::Add, a, b);
                let found = same(&sketch.attention(6, 6, mask));
                let window = window.and_then(|it| u64::try_from(it).ok());
                assert_eq!(says(&found), (true, window, Some(vec![2, 1, 1, 6])), "{dtype} {low}");
                let once = |it: &Op| matches!(it, Op::Attention(attention) if attention.blind == Blind::Once);
                assert!(found.nodes.iter().any(|node| once(&node.op)));
            }
        }
    }
}

/// What is repeated for queries and heads before it is turned into numbers is not made for each of them.
#[test]
fn a_mask_that_is_the_same_for_all_queries_has_one_row() {
    for dtype in FLOATS {
        for shape in [vec![2, 1, 5, 6], vec![2, 2, 5, 6]] {
            let mut sketch = Sketch::default();
            let given = given(&mut sketch, 6);
            let numbers = sketch.op(Op::Cast(dtype), &[given]);
            let repeated = sketch.op(Op::Expand { shape }, &[numbers]);
            let one = sketch.number(dtype, 1.0);
            let hidden = sketch.binary(Binary::Sub, one, repeated);
            let truths = sketch.op(Op::Cast(DType::Bool), &[hidden]);
            let low = sketch.number(dtype, lows(dtype)[0]);
            let mask = sketch.op(Op::Select, &[truths, low, hidden]);
            let found = same(&sketch.attention(5, 6, mask));
            assert_eq!(says(&found), (false, None, Some(vec![2, 1, 1, 6])));
            assert!(found.values.iter().all(|it| it.type_.shape != [2, 1, 5, 6]));
        }
    }
    // A bias for each head and pair stays.
    let mut sketch = Sketch::default();
    let bias = sketch.input("bias", DType::F32, &[1, 2, 5, 6]);
    let given = given(&mut sketch, 6);
    let numbers = sketch.op(Op::Cast(DType::F32), &[given]);
    let repeated = sketch.op(Op::Expand { shape: vec![2, 1, 5, 6] }, &[numbers]);
    let mask = sketch.binary(Binary::Add, repeated, bias);
    assert_eq!(says(&same(&sketch.attention(5, 6, mask))).2, Some(vec![2, 2, 5, 6]));
}

/// Slopes by the number of keys before that are there, and a mask of padding and of later keys (ALiBi, as
/// BLOOM has it).
fn sloped(dtype: DType, low: f64, turned: bool) -> Graph {
    let mut sketch = Sketch::default();
    let given = given(&mut sketch, 6);
    let sums = Op::CumSum { dim: 3, exclusive: false, reverse: false };
    let before = sketch.op(sums, &[given]);
    let one = sketch.number(DType::I64, 1.0);
    let before = sketch.binary(Binary::Sub, before, one);
    let before = sketch.binary(Binary::Mul, before, given);
    let before = sketch.op(Op::Cast(dtype), &[before]);
    let slopes = Type::new(dtype, [2, 1, 1]);
    let slopes = sketch.0.push_value(slopes, planner_ir::Source::Weight("slopes".to_owned()));
    let bias = sketch.binary(Binary::Mul, slopes, before);
    let full = sketch.op(Op::Fill { result: Type::new(dtype, [6, 6]), value: Real(low) }, &[]);
    let upper = sketch.op(Op::Triangle { triangle: Triangle::Upper, diagonal: 1 }, &[full]);
    let numbers = sketch.op(Op::Cast(dtype), &[given]);
    let sum = sketch.binary(Binary::Add, upper, numbers);
    let zero = sketch.number(dtype, 0.0);
    let padding = sketch.binary(Binary::Equal, sum, zero);
    let low = sketch.number(dtype, low);
    let mask = sketch.op(Op::Select, &[padding, low, upper]);
    let [a, b] = if turned { [mask, bias] } else { [bias, mask] };
    let mask = sketch.binary(Binary::Add, a, b);
    sketch.attention(6, 6, mask)
}

#[test]
fn slopes_by_the_keys_before_stay_beside_padding() {
    for (dtype, low) in [(DType::F32, lows(DType::F32)[0]), (DType::BF16, lows(DType::BF16)[0])] {
        for turned in [false, true] {
            let found = same(&sloped(dtype, low, turned));
            assert_eq!(says(&found), (true, None, Some(vec![2, 2, 1, 6])), "{dtype}");
        }
    }
    // Where something is left of slopes beside the number that hides, queries without keys see by them.
    for (dtype, low) in [(DType::F16, -65504.0), (DType::F32, -1e9)] {
        assert!(!says(&said(&sloped(dtype, low, false))).0, "{dtype}");
    }
}

/// Attention that is causal, and has a mask that hides later keys and padding, has one of padding.
#[test]
fn a_mask_beside_causal_attention_says_padding_alone() {
    let mut graph = padded(DType::F32, lows(DType::F32)[0], 2);
    for node in &mut graph.nodes {
        if let Op::Attention(attention) = &mut node.op {
            attention.causal = true;
        }
    }
    assert_eq!(says(&same(&graph)), (true, None, Some(vec![2, 1, 1, 6])));
}

/// Scores that are replaced by a number, as old GPT-2 has it: where a number is not so low that nothing is left
/// of what it is added to, too.
#[test]
fn scores_that_a_low_number_stands_for_are_hidden() {
    for (dtype, low) in [(DType::F32, -1e4), (DType::F32, -1e9), (DType::BF16, -1e4), (DType::F16, -65504.0)]
    {
        for padded in [false, true] {
            let mut sketch = Sketch::default();
            let mut seen = earlier(&mut sketch, 6, 6);
            if padded {
                let there = sketch.input("there", DType::Bool, &[2, 1, 1, 6]);
                seen = sketch.binary(Binary::And, seen, there);
            }
            let [q, k, v] = ["q", "k", "v"].map(|name| sketch.input(name, dtype, &[2, 2, 6, 3]));
            let labels = |all: &str| all.bytes().map(|it| planner_ir::Label(it - b'a')).collect::<Vec<_>>();
            let contract = |left: &str, right: &str, result: &str| {
                let (left, right, result) = (labels(left), labels(right), labels(result));
                Op::Contract(planner_ir::Contract { left, right, result })
            };
            let scores = sketch.op(contract("abcd", "abed", "abce"), &[q, k]);
            let low = sketch.number(dtype, low);
            let scores = sketch.op(Op::Select, &[seen, scores, low]);
            let weights = sketch.op(Op::Softmax { dim: 3 }, &[scores]);
            let y = sketch.op(contract("abce", "abed", "abcd"), &[weights, v]);
            sketch.0.outputs.push(planner_ir::Output { name: "y".to_owned(), value: y });
            let raised = crate::raise::raise(&sketch.0).unwrap().graph;
            let left = padded.then(|| vec![2, 1, 1, 6]);
            assert_eq!(says(&raised), (true, None, left), "{dtype}:\n{raised}");
            for seed in 0..3 {
                let mut dice = Dice { state: seed, below: 2 };
                let outside =
                    raised.values.iter().filter(|it| !matches!(it.source, planner_ir::Source::Result { .. }));
                let arrays: Vec<Array> = outside.map(|it| dice.array(&it.type_)).collect();
                let [expected, found] =
                    [&sketch.0, &raised].map(|it| evaluate(it, &arrays).unwrap().remove(0));
                let apart = difference(&found, &expected);
                assert!(apart < tolerance(dtype), "off by {apart:e}:\n{raised}");
            }
        }
    }
}
