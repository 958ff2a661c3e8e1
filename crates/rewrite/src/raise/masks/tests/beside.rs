//! Masks that are no function of how far apart places are, and biases where they are not.

use kernels::Array;
use planner_ir::{Binary, Contract, DType, Graph, Label, Op, Output, Source, Type, Unary, ValueId};

use super::numbers::choice;
use super::{Dice, LOWEST, Sketch, difference, earlier, evaluate, same, says, tolerance};
use crate::raise::masks::{Sight, attentions};

/// Whether places lie in one block, in the spellings of exporters.
fn one_block(sketch: &mut Sketch, size: u64, spelling: usize) -> ValueId {
    let length = sketch.number(DType::I64, 3.0);
    let zero = sketch.number(DType::I64, 0.0);
    let [rows, columns] = [true, false].map(|rows| {
        let places = sketch.places(0, size, rows);
        let block = sketch.binary(Binary::Div, places, length);
        if spelling == 1 {
            // Rounded down where a place or the length is below 0, as TorchScript divides.
            let [below, also] = [places, length].map(|it| sketch.binary(Binary::Less, it, zero));
            let apart = sketch.binary(Binary::Xor, below, also);
            let rest = sketch.binary(Binary::Mod, places, length);
            let whole = sketch.binary(Binary::Equal, rest, zero);
            let broken = sketch.op(Op::Unary(Unary::Not), &[whole]);
            let fix = sketch.binary(Binary::And, apart, broken);
            let fix = sketch.op(Op::Cast(DType::I64), &[fix]);
            return sketch.binary(Binary::Sub, block, fix);
        }
        block
    });
    if spelling < 2 {
        return sketch.binary(Binary::Equal, rows, columns);
    }
    let apart = sketch.binary(Binary::Sub, columns, rows);
    let apart = sketch.op(Op::Unary(Unary::Abs), &[apart]);
    sketch.binary(Binary::Equal, apart, zero)
}

#[test]
fn chunks_are_causal_and_a_window() {
    for spelling in 0..3 {
        for low in [LOWEST, f64::NEG_INFINITY] {
            let mut sketch = Sketch::default();
            let block = one_block(&mut sketch, 8, spelling);
            let early = earlier(&mut sketch, 8, 8);
            let seen = sketch.binary(Binary::And, block, early);
            let mask = choice(&mut sketch, DType::F32, seen, [0.0, low]);
            let found = same(&sketch.attention(8, 8, mask));
            assert_eq!(says(&found), (true, Some(3), Some(vec![8, 8])), "{spelling}");
        }
    }
}

/// A mask that was folded to an array says what holds at each distance.
#[test]
fn constants_that_are_no_function_of_distance_are_causal() {
    let mut sketch = Sketch::default();
    let shown = |at: u32| at % 8 <= at / 8 && at % 8 / 3 == at / 8 / 3;
    let number = |at: u32| if shown(at) { 0.0f32 } else { f32::MIN };
    let data = (0..64).flat_map(|at| number(at).to_le_bytes()).collect();
    let mask = sketch.op(Op::Constant { result: Type::new(DType::F32, [8, 8]), data }, &[]);
    assert_eq!(says(&same(&sketch.attention(8, 8, mask))), (true, Some(3), Some(vec![8, 8])));
}

#[test]
fn a_prefix_is_seen_by_all_and_is_said_to_be() {
    let mut sketch = Sketch::default();
    let columns = sketch.places(0, 6, false);
    let length = sketch.number(DType::I64, 3.0);
    let prefix = sketch.binary(Binary::Less, columns, length);
    let early = earlier(&mut sketch, 6, 6);
    let seen = sketch.binary(Binary::Or, early, prefix);
    let mask = choice(&mut sketch, DType::F32, seen, [0.0, LOWEST]);
    assert_eq!(sights(&same(&sketch.attention(6, 6, mask))), [Sight::Some]);
    // Of what is given nothing is known.
    let mut sketch = Sketch::default();
    let seen = sketch.input("seen", DType::Bool, &[6, 6]);
    let mask = choice(&mut sketch, DType::F32, seen, [0.0, LOWEST]);
    assert_eq!(sights(&same(&sketch.attention(6, 6, mask))), [Sight::Unknown]);
}

fn sights(graph: &Graph) -> Vec<Sight> {
    attentions(graph).into_keys().map(|it| it.sight).collect()
}

/// Scores with biases, of which a number takes the place where they are hidden, as products and a softmax (MPT).
fn biased(dtype: DType, low: f64, padded: bool, turned: bool, bias: &Bias) -> Graph {
    let mut sketch = Sketch::default();
    let mut seen = earlier(&mut sketch, 6, 6);
    if padded {
        let there = sketch.input("there", DType::Bool, &[2, 1, 1, 6]);
        seen = sketch.binary(Binary::And, seen, there);
    }
    let [q, k, v] = ["q", "k", "v"].map(|name| sketch.input(name, dtype, &[2, 2, 6, 3]));
    let labels = |all: &str| all.bytes().map(|it| Label(it - b'a')).collect::<Vec<_>>();
    let contract = |left: &str, right: &str, result: &str| {
        let (left, right, result) = (labels(left), labels(right), labels(result));
        Op::Contract(Contract { left, right, result })
    };
    let scores = sketch.op(contract("abcd", "abed", "abce"), &[q, k]);
    let bias = match bias {
        Bias::Slopes => {
            let slopes = Source::Weight("slopes".to_owned());
            let slopes = sketch.0.push_value(Type::new(dtype, [2, 1, 1]), slopes);
            let places = sketch.places(-5, 6, false);
            let places = sketch.op(Op::Cast(dtype), &[places]);
            sketch.binary(Binary::Mul, slopes, places)
        }
        Bias::Padding => {
            let there = sketch.input("kept", DType::Bool, &[2, 1, 1, 6]);
            choice(&mut sketch, dtype, there, [0.0, low])
        }
        Bias::Given => sketch.input("bias", dtype, &[2, 1, 1, 6]),
    };
    let scores = sketch.binary(Binary::Add, scores, bias);
    let half = sketch.number(dtype, 0.5);
    let scores = if turned { sketch.binary(Binary::Mul, scores, half) } else { scores };
    let low = sketch.number(dtype, low);
    let scores = match turned {
        true => {
            let hidden = sketch.op(Op::Unary(Unary::Not), &[seen]);
            sketch.op(Op::Select, &[hidden, low, scores])
        }
        false => sketch.op(Op::Select, &[seen, scores, low]),
    };
    let weights = sketch.op(Op::Softmax { dim: 3 }, &[scores]);
    let y = sketch.op(contract("abce", "abed", "abcd"), &[weights, v]);
    sketch.0.outputs.push(Output { name: "y".to_owned(), value: y });
    sketch.0
}

enum Bias {
    Slopes,
    Padding,
    Given,
}

/// The graph raised, which computes the same; what is given is random, and once hides all keys.
fn raised(graph: &Graph, dtype: DType) -> Graph {
    let raised = crate::raise::raise(graph).unwrap().graph;
    for seed in 0..4 {
        let mut dice = Dice { state: seed, below: 2 };
        let outside = raised.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
        let arrays: Vec<Array> = outside
            .map(|it| match it.type_.dtype {
                DType::Bool if seed == 3 => {
                    let none = vec![false; usize::try_from(it.type_.elements()).unwrap()];
                    Array::of_truths(it.type_.shape.clone(), &none).unwrap()
                }
                _ => dice.array(&it.type_),
            })
            .collect();
        let [expected, found] = [graph, &raised].map(|it| evaluate(it, &arrays).unwrap().remove(0));
        let apart = difference(&found, &expected);
        assert!(apart < tolerance(dtype), "off by {apart:e}:\n{graph}\n{raised}");
    }
    raised
}

#[test]
fn biases_below_a_number_that_hides_stay_beside_padding() {
    let lowest = [(DType::F32, LOWEST), (DType::BF16, -3.389_531_389_251_535_5e38)];
    for (dtype, low) in [&lowest[..], &[(DType::F32, f64::NEG_INFINITY)]].concat() {
        for turned in [false, true] {
            for padded in [false, true] {
                let padded = padded && low.is_finite();
                let found = raised(&biased(dtype, low, padded, turned, &Bias::Slopes), dtype);
                let rows = says(&found).2.map(|it| it[it.len() - 2]);
                assert_eq!((says(&found).0, rows), (true, Some(1)), "{dtype} {low}:\n{found}");
            }
        }
    }
}

/// Padding below a mask of later keys: what both hide is as low as what one hides.
#[test]
fn padding_below_a_number_that_hides_is_kept() {
    for turned in [false, true] {
        let found = raised(&biased(DType::F32, LOWEST, false, turned, &Bias::Padding), DType::F32);
        assert!(says(&found).0, "{found}");
    }
    // What is given may be such a mask.
    let found = raised(&biased(DType::F32, LOWEST, false, false, &Bias::Given), DType::F32);
    assert!(!says(&found).0, "{found}");
}

/// Where something is left of scores, what is put in their place is not what is added to them.
#[test]
fn scores_that_are_not_found_to_be_attention_are_said_to_be_in_parts() {
    let found = raised(&biased(DType::F32, -10000.0, false, false, &Bias::Padding), DType::F32);
    assert_eq!(sights(&found), [Sight::Parts], "{found}");
    let found = raised(&biased(DType::F32, LOWEST, false, false, &Bias::Slopes), DType::F32);
    assert_eq!(sights(&found), [Sight::Earlier], "{found}");
}
