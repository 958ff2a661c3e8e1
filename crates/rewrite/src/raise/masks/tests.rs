//! What is known of values holds of them, and attention that says what its mask says is the same.

use std::collections::BTreeMap;

use arbtest::arbitrary::{Result, Unstructured};
use kernels::Array;
use planner_ir::{
    Attention, Binary, Blind, Contract, DType, Edge, Graph, Label, Op, Output, Real, Reduction, Source,
    Triangle, Type, Unary, ValueId,
};

use super::reading::{Reading, forms};
use super::said;
use crate::raise::form::Form;
use crate::raise::share::shared;
use crate::raise::tests::evaluate::{Dice, difference, evaluate, tolerance};

mod numbers; // masks of every type, in the spellings of exporters
mod beside; // masks that are no function of distance, and biases below masks
mod related; // masks that depend on what is given

/// A graph by hand.
#[derive(Default)]
struct Sketch(Graph);

impl Sketch {
    fn input(&mut self, name: &str, dtype: DType, shape: &[u64]) -> ValueId {
        self.0.push_value(Type::new(dtype, shape), Source::Input(name.to_owned()))
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.maybe(op, operands).unwrap()
    }

    fn maybe(&mut self, op: Op, operands: &[ValueId]) -> Option<ValueId> {
        let types = op.infer(&self.0.types_of(operands)).ok()?;
        Some(self.0.push_node(op, operands.to_vec(), types, String::new())[0])
    }

    fn number(&mut self, dtype: DType, value: f64) -> ValueId {
        self.op(Op::Fill { result: Type::new(dtype, []), value: Real(value) }, &[])
    }

    /// Integers from `start` on, as rows `[n, 1]` or columns `[n]`.
    fn places(&mut self, start: i32, length: u64, rows: bool) -> ValueId {
        let range = Op::Iota { dtype: DType::I64, length, start: Real(start.into()), step: Real(1.0) };
        let places = self.op(range, &[]);
        if rows { self.op(Op::Reshape { shape: vec![length, 1] }, &[places]) } else { places }
    }

    fn binary(&mut self, binary: Binary, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Binary(binary), &[a, b])
    }

    /// `yes` where a truth value is 1, `no` elsewhere.
    fn choice(&mut self, condition: ValueId, [yes, no]: [f64; 2]) -> ValueId {
        let [yes, no] = [yes, no].map(|it| self.number(DType::F32, it));
        self.op(Op::Select, &[condition, yes, no])
    }

    /// Attention of so many queries and keys, with what masks its scores.
    fn attention(mut self, queries: u64, keys: u64, mask: ValueId) -> Graph {
        let dtype = self.0.type_of(mask).dtype;
        let dtype = if dtype == DType::Bool { DType::F32 } else { dtype };
        let q = self.input("q", dtype, &[2, 2, queries, 3]);
        let [k, v] = ["k", "v"].map(|name| self.input(name, dtype, &[2, 1, keys, 3]));
        let op = Op::Attention(Attention {
            scale: Real(0.7),
            causal: false,
            softcap: Real(0.0),
            window: None,
            blind: Blind::Zero,
            sinks: false,
            statistics: false,
        });
        let y = self.op(op, &[q, k, v, mask]);
        self.0.outputs.push(Output { name: "y".to_owned(), value: y });
        self.0
    }
}

/// What attention says, and what is left of its mask.
fn says(graph: &Graph) -> (bool, Option<u64>, Option<Vec<u64>>) {
    let mut all = graph.nodes.iter().filter_map(|node| match &node.op {
        Op::Attention(attention) => {
            let mask = attention.masks(&node.operands[3..]).0.map(|&it| graph.type_of(it).shape.clone());
            Some((attention.causal, attention.window, mask))
        }
        _ => None,
    });
    all.next().unwrap()
}

/// A graph in which attention says what it can, if that computes the same; masks of padding are
/// random, and once hide all keys of a sequence.
fn same(graph: &Graph) -> Graph {
    let found = shared(&said(graph));
    let said = found.to_string();
    planner_ir::verify(&found).unwrap();
    for seed in 0..3 {
        let mut dice = Dice { state: seed, below: 2 };
        let mut arrays = Vec::new();
        for value in graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. })) {
            let hidden = seed == 2 && value.type_.dtype == DType::Bool;
            let none = vec![false; usize::try_from(value.type_.elements()).unwrap()];
            let array = if hidden {
                Array::of_truths(value.type_.shape.clone(), &none).unwrap()
            } else {
                dice.array(&value.type_)
            };
            arrays.push(array);
        }
        let dtype = graph.type_of(graph.outputs[0].value).dtype;
        let narrow = dtype.bytes() == 2;
        let expected = if narrow { &spelled(graph) } else { graph };
        let [expected, found] = [expected, &found].map(|it| evaluate(it, &arrays).unwrap().remove(0));
        let apart = difference(&found, &expected);
        let right = if narrow { tolerance(dtype) } else { 1e-5 };
        assert!(apart < right, "off by {apart:e}:\n{graph}\n{said}\n{found:?}");
    }
    found
}

/// The graph with attention as the products, the sum and the softmax that it is: in 16-bit numbers
/// nothing is left of a score that a very low number is added to.
fn spelled(graph: &Graph) -> Graph {
    let mut sketch = Sketch::default();
    for value in graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. })) {
        sketch.0.push_value(value.type_.clone(), value.source.clone());
    }
    let outside = graph.value_ids().filter(|it| !matches!(graph.value(*it).source, Source::Result { .. }));
    let mut values: BTreeMap<ValueId, ValueId> = outside.zip(sketch.0.value_ids()).collect();
    for node in &graph.nodes {
        let operands: Vec<ValueId> = node.operands.iter().map(|it| values[it]).collect();
        let result = match (&node.op, &operands[..]) {
            (Op::Attention(attention), &[q, k, v, mask]) => {
                let dtype = sketch.0.type_of(q).dtype;
                let heads = sketch.0.type_of(q).shape[1];
                let [k, v] = [k, v].map(|it| {
                    let mut shape = sketch.0.type_of(it).shape.clone();
                    shape[1] = heads;
                    sketch.op(Op::Expand { shape }, &[it])
                });
                let labels = |all: &str| all.bytes().map(|it| Label(it - b'a')).collect::<Vec<_>>();
                let contract = |left, right, result| {
                    let (left, right, result) = (labels(left), labels(right), labels(result));
                    Op::Contract(Contract { left, right, result })
                };
                let scores = sketch.op(contract("abcd", "abed", "abce"), &[q, k]);
                let scale = sketch.number(dtype, attention.scale.0);
                let scores = sketch.binary(Binary::Mul, scores, scale);
                let scores = sketch.binary(Binary::Add, scores, mask);
                let weights = sketch.op(Op::Softmax { dim: 3 }, &[scores]);
                sketch.op(contract("abce", "abed", "abcd"), &[weights, v])
            }
            _ => sketch.op(node.op.clone(), &operands),
        };
        values.insert(node.results[0], result);
    }
    let output = |it: &Output| Output { name: it.name.clone(), value: values[&it.value] };
    sketch.0.outputs = graph.outputs.iter().map(output).collect();
    sketch.0
}

const LOWEST: f64 = -3.402_823_466_385_288_6e38;

/// A mask of later keys as truth values, true where a key is seen.
fn earlier(sketch: &mut Sketch, queries: u64, keys: u64) -> ValueId {
    let past = i32::try_from(keys - queries).unwrap();
    let (rows, columns) = (sketch.places(past, queries, true), sketch.places(0, keys, false));
    sketch.binary(Binary::LessOrEqual, columns, rows)
}

#[test]
fn positions_that_are_compared_make_attention_causal() {
    for (queries, keys) in [(5, 5), (3, 7)] {
        let mut sketch = Sketch::default();
        let mask = earlier(&mut sketch, queries, keys);
        assert_eq!(says(&same(&sketch.attention(queries, keys, mask))), (true, None, None));
        for low in [LOWEST, f64::NEG_INFINITY] {
            let mut sketch = Sketch::default();
            let seen = earlier(&mut sketch, queries, keys);
            let mask = sketch.choice(seen, [0.0, low]);
            let mask = sketch.op(Op::Expand { shape: vec![2, 1, queries, keys] }, &[mask]);
            assert_eq!(says(&same(&sketch.attention(queries, keys, mask))), (true, None, None));
        }
    }
}

#[test]
fn triangles_make_attention_causal() {
    let mut sketch = Sketch::default();
    let full = sketch.op(Op::Fill { result: Type::new(DType::F32, [6, 6]), value: Real(LOWEST) }, &[]);
    let mask = sketch.op(Op::Triangle { triangle: Triangle::Upper, diagonal: 1 }, &[full]);
    assert_eq!(says(&same(&sketch.attention(6, 6, mask))), (true, None, None));
    let mut sketch = Sketch::default();
    let full = sketch.op(Op::Fill { result: Type::new(DType::Bool, [6, 6]), value: Real(1.0) }, &[]);
    let seen = sketch.op(Op::Triangle { triangle: Triangle::Lower, diagonal: 0 }, &[full]);
    // Of a larger mask, the last queries.
    let seen = sketch.op(Op::Slice { starts: vec![2, 0], steps: vec![1, 1], sizes: vec![4, 6] }, &[seen]);
    assert_eq!(says(&same(&sketch.attention(4, 6, seen))), (true, None, None));
    let mut sketch = Sketch::default();
    let data = (0..36).map(|it| u8::from(it % 6 <= it / 6)).collect();
    let seen = sketch.op(Op::Constant { result: Type::new(DType::Bool, [1, 1, 6, 6]), data }, &[]);
    assert_eq!(says(&same(&sketch.attention(6, 6, seen))), (true, None, None));
}

#[test]
fn what_hides_padding_stays_and_has_one_row() {
    let mut sketch = Sketch::default();
    let there = sketch.input("there", DType::Bool, &[2, 1, 1, 5]);
    let early = earlier(&mut sketch, 5, 5);
    let seen = sketch.binary(Binary::And, early, there);
    let seen = sketch.op(Op::Expand { shape: vec![2, 1, 5, 5] }, &[seen]);
    let mask = sketch.choice(seen, [0.0, f64::NEG_INFINITY]);
    assert_eq!(says(&same(&sketch.attention(5, 5, mask))), (true, None, Some(vec![2, 1, 1, 5])));
    // Numbers that are added: those of one mask may be anything but infinite.
    let mut sketch = Sketch::default();
    let there = sketch.input("there", DType::I64, &[2, 1, 1, 5]);
    let there = sketch.op(Op::Cast(DType::F32), &[there]);
    let early = earlier(&mut sketch, 5, 5);
    let early = sketch.choice(early, [0.0, f64::NEG_INFINITY]);
    let mask = sketch.binary(Binary::Add, early, there);
    assert_eq!(says(&same(&sketch.attention(5, 5, mask))), (true, None, Some(vec![2, 1, 1, 5])));
}

/// A mask of padding and of later keys that adds a very low number.
fn padded_by_numbers(sketch: &mut Sketch, length: u64) -> ValueId {
    let there = sketch.input("there", DType::Bool, &[2, 1, 1, length]);
    let early = earlier(sketch, length, length);
    let seen = sketch.binary(Binary::And, early, there);
    sketch.choice(seen, [0.0, LOWEST])
}

#[test]
fn a_query_that_may_see_nothing_sees_everything_equally() {
    let mut sketch = Sketch::default();
    let mask = padded_by_numbers(&mut sketch, 6);
    let mask = sketch.op(Op::Expand { shape: vec![2, 1, 6, 6] }, &[mask]);
    assert_eq!(says(&same(&sketch.attention(6, 6, mask))), (true, None, Some(vec![2, 1, 1, 6])));
    // A query that sees its own key in any case sees something.
    let mut sketch = Sketch::default();
    let there = sketch.input("there", DType::Bool, &[2, 1, 1, 5]);
    let early = earlier(&mut sketch, 5, 5);
    let (rows, columns) = (sketch.places(0, 5, true), sketch.places(0, 5, false));
    let own = sketch.binary(Binary::GreaterOrEqual, columns, rows);
    let there = sketch.binary(Binary::Or, own, there);
    let seen = sketch.binary(Binary::And, early, there);
    let mask = sketch.choice(seen, [0.0, LOWEST]);
    assert!(says(&same(&sketch.attention(5, 5, mask))).0);
}

#[test]
fn keys_further_back_than_a_window_are_said_too() {
    for padded in [false, true] {
        let mut sketch = Sketch::default();
        let mut seen = earlier(&mut sketch, 4, 9);
        let (rows, columns) = (sketch.places(5, 4, true), sketch.places(0, 9, false));
        let three = sketch.number(DType::I64, 3.0);
        let first = sketch.binary(Binary::Sub, rows, three);
        let near = sketch.binary(Binary::Greater, columns, first);
        seen = sketch.binary(Binary::And, seen, near);
        if padded {
            let there = sketch.input("there", DType::Bool, &[2, 1, 1, 9]);
            seen = sketch.binary(Binary::And, seen, there);
        }
        let left = padded.then(|| vec![2, 1, 1, 9]);
        assert_eq!(says(&same(&sketch.attention(4, 9, seen))), (true, Some(3), left));
    }
}

#[test]
fn masks_that_hide_less_or_other_keys_stay() {
    for (rows_from, columns_from) in [(1, 0), (-1, 0)] {
        let mut sketch = Sketch::default();
        let (rows, columns) = (sketch.places(rows_from, 5, true), sketch.places(columns_from, 5, false));
        let seen = sketch.binary(Binary::LessOrEqual, columns, rows);
        let (causal, window, mask) = says(&same(&sketch.attention(5, 5, seen)));
        // Where a query does not see its own key, it sees no later one either.
        assert_eq!((causal, window), (rows_from < 0, None));
        assert!(mask.is_some());
    }
    let mut sketch = Sketch::default();
    let slight = earlier(&mut sketch, 5, 5);
    let slight = sketch.choice(slight, [0.0, -2.0]);
    assert!(!says(&same(&sketch.attention(5, 5, slight))).0);
    // Lower by less than scores are apart, and padding too.
    let mut sketch = Sketch::default();
    let there = sketch.input("there", DType::Bool, &[2, 1, 1, 6]);
    let early = earlier(&mut sketch, 6, 6);
    let seen = sketch.binary(Binary::And, early, there);
    let slight = sketch.choice(seen, [0.0, -2.0]);
    assert!(!says(&same(&sketch.attention(6, 6, slight))).0);
    // Of all queries the first key, of query s those up to 2 s, of head h those up to s + h.
    let mut sketch = Sketch::default();
    let (row, columns) = (sketch.places(0, 1, true), sketch.places(0, 5, false));
    let seen = sketch.binary(Binary::LessOrEqual, columns, row);
    assert!(!says(&same(&sketch.attention(5, 5, seen))).0);
    let mut sketch = Sketch::default();
    let (rows, columns) = (sketch.places(0, 5, true), sketch.places(0, 5, false));
    let rows = sketch.binary(Binary::Add, rows, rows);
    let seen = sketch.binary(Binary::LessOrEqual, columns, rows);
    assert!(!says(&same(&sketch.attention(5, 5, seen))).0);
    let mut sketch = Sketch::default();
    let (rows, columns) = (sketch.places(0, 5, true), sketch.places(0, 5, false));
    let heads = sketch.places(0, 2, true);
    let heads = sketch.op(Op::Reshape { shape: vec![2, 1, 1] }, &[heads]);
    let rows = sketch.binary(Binary::Add, heads, rows);
    let seen = sketch.binary(Binary::LessOrEqual, columns, rows);
    assert!(!says(&same(&sketch.attention(5, 5, seen))).0);
    let mut sketch = Sketch::default();
    let there = sketch.input("there", DType::Bool, &[5, 5]);
    assert!(!says(&same(&sketch.attention(5, 5, there))).0);
}

#[test]
fn a_mask_that_hides_nothing_goes() {
    let mut sketch = Sketch::default();
    let (rows, columns) = (sketch.places(4, 1, true), sketch.places(0, 5, false));
    let seen = sketch.binary(Binary::LessOrEqual, columns, rows);
    assert_eq!(says(&same(&sketch.attention(1, 5, seen))), (false, None, None));
}

/// Which of the first values is the length of blocks.
const LENGTH: usize = 3;

/// A random operation as masks are made of, on earlier values.
fn operation(choices: &mut Unstructured<'_>, made: &[ValueId], graph: &Graph) -> Result<(Op, Vec<ValueId>)> {
    let value = |choices: &mut Unstructured<'_>| choices.choose(made).copied();
    let (a, b, c) = (value(choices)?, value(choices)?, value(choices)?);
    let shape = graph.type_of(a).shape.clone();
    Ok(match choices.int_in_range(0..=14)? {
        0 => (Op::Unary(*choices.choose(&[Unary::Not, Unary::Neg, Unary::IsNan, Unary::Abs])?), vec![a]),
        1 => (Op::Cast(*choices.choose(&[DType::Bool, DType::I64, DType::F32, DType::F16])?), vec![a]),
        2 => (Op::Select, vec![a, b, c]),
        3 => (
            Op::Triangle {
                triangle: *choices.choose(&[Triangle::Upper, Triangle::Lower])?,
                diagonal: choices.int_in_range(-2..=2)?,
            },
            vec![a],
        ),
        4 => {
            let at = choices.choose_index(shape.len() + 1)?;
            (Op::Reshape { shape: [&shape[..at], &[1], &shape[at..]].concat() }, vec![a])
        }
        12 => (Op::Reshape { shape: vec![shape.iter().product()] }, vec![a]),
        13 => (Op::Binary(Binary::Div), vec![a, made[LENGTH]]),
        5 => (Op::Reshape { shape: shape.iter().copied().filter(|&it| it != 1).collect() }, vec![a]),
        6 => (Op::Expand { shape: [&[2], &shape[..]].concat() }, vec![a]),
        7 => {
            let extents = shape.iter().map(|&it| if it == 1 { 4 } else { it }).collect();
            (Op::Expand { shape: extents }, vec![a])
        }
        8 => {
            let sizes: Vec<u64> = shape.iter().map(|it| it.div_ceil(2)).collect();
            let steps =
                shape.iter().map(|_| choices.choose(&[1, 1, 2]).copied()).collect::<Result<Vec<i64>>>()?;
            let starts = vec![u64::from(steps.iter().all(|&it| it == 1)); shape.len()];
            let starts = starts.iter().zip(&shape).map(|(&it, &extent)| it.min(extent / 2)).collect();
            (Op::Slice { starts, steps, sizes }, vec![a])
        }
        9 => {
            let mut permutation: Vec<usize> = (0..shape.len()).collect();
            permutation.reverse();
            (Op::Transpose { permutation }, vec![a])
        }
        10 => {
            let reduction = *choices.choose(&[Reduction::Max, Reduction::Min, Reduction::Sum])?;
            (Op::Reduce { reduction, dims: vec![choices.choose_index(shape.len().max(1))?] }, vec![a])
        }
        11 => {
            let edge = Edge::Constant(Real(1.0));
            (Op::Pad { before: vec![1; shape.len()], after: vec![0; shape.len()], edge }, vec![a])
        }
        _ => {
            let all = [
                Binary::Add,
                Binary::Sub,
                Binary::Mul,
                Binary::And,
                Binary::Or,
                Binary::Max,
                Binary::Min,
                Binary::Equal,
                Binary::Greater,
                Binary::GreaterOrEqual,
                Binary::Less,
                Binary::LessOrEqual,
                Binary::Xor,
            ];
            (Op::Binary(*choices.choose(&all)?), vec![a, b])
        }
    })
}

/// Whether what is known of a value holds of its elements.
fn holds(form: &Form, array: &Array) -> bool {
    let shape: Vec<usize> = array.shape().iter().map(|&it| usize::try_from(it).unwrap()).collect();
    let numbers = match array.dtype() {
        DType::Bool => array.to_truths().unwrap().into_iter().map(|it| f64::from(u8::from(it))).collect(),
        dtype if dtype.is_float() => array.to_floats().unwrap(),
        #[expect(clippy::cast_precision_loss, reason = "as bounds are")]
        _ => array.to_integers().unwrap().into_iter().map(|it| it as f64).collect(),
    };
    let mut index = vec![0usize; shape.len()];
    for number in numbers {
        let place = |from_end: usize| {
            shape.len().checked_sub(from_end).map_or(0, |dim| i64::try_from(index[dim]).unwrap())
        };
        let right = match form {
            Form::Even { start, steps } => {
                let along = index.iter().zip(steps).map(|(&at, step)| i64::try_from(at).unwrap() * step);
                i32::try_from(start + along.sum::<i64>()).is_ok_and(|it| (number - f64::from(it)).abs() < 0.5)
            }
            Form::Blocks(blocks) => {
                let along =
                    index.iter().zip(&blocks.steps).map(|(&at, step)| i64::try_from(at).unwrap() * step);
                let block = (blocks.start + along.sum::<i64>()).div_euclid(blocks.length);
                i32::try_from(block).is_ok_and(|it| (number - f64::from(it)).abs() < 0.5)
            }
            Form::Bands(bands) => match bands.at(place(1) - place(2)) {
                Some(bounds) => bounds.least <= number && number <= bounds.most,
                None => true,
            },
        };
        if !right {
            return false;
        }
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
    true
}

#[test]
fn what_is_known_of_random_values_holds_of_them() {
    arbtest::arbtest(|choices| {
        let mut sketch = Sketch::default();
        let mut made = vec![sketch.input("x", DType::F32, &[4, 4]), sketch.input("n", DType::I64, &[4])];
        made.push(sketch.input("b", DType::Bool, &[4, 1]));
        made.push(sketch.number(DType::I64, *choices.choose(&[1.0, 2.0, 3.0, 9.0])?));
        made.push(sketch.places(choices.int_in_range(-2..=2)?, 4, false));
        made.push(sketch.places(choices.int_in_range(-2..=2)?, 4, true));
        made.push(sketch.number(DType::F32, *choices.choose(&[0.0, 1.0, -1e30, LOWEST, f64::NEG_INFINITY])?));
        made.push(sketch.number(DType::I64, *choices.choose(&[-9e18, -1.0, 0.0, 2.0])?));
        let full = Op::Fill { result: Type::new(DType::Bool, [4, 4]), value: Real(1.0) };
        made.push(sketch.op(full, &[]));
        let data = (0..16).flat_map(|_| choices.int_in_range(0..=1i64).unwrap_or(0).to_le_bytes()).collect();
        made.push(sketch.op(Op::Constant { result: Type::new(DType::I64, [4, 4]), data }, &[]));
        for _ in 0..choices.int_in_range(1..=12)? {
            let (op, operands) = operation(choices, &made, &sketch.0)?;
            if let Some(new) = sketch.maybe(op, &operands).filter(|&it| sketch.0.type_of(it).elements() < 500)
            {
                made.push(new);
            }
        }
        let forms = forms(&sketch.0, Reading::Any);
        let output = |&value: &ValueId| Output { name: format!("%{}", value.0), value };
        sketch.0.outputs = made.iter().map(output).collect();
        let mut dice = Dice { state: choices.int_in_range(0..=9)?, below: 3 };
        let outside = sketch.0.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
        let arrays: Vec<Array> = outside.map(|it| dice.array(&it.type_)).collect();
        let Ok(found) = evaluate(&sketch.0, &arrays) else { return Ok(()) };
        for (value, array) in made.iter().zip(&found) {
            let form = &forms[value.0];
            assert!(holds(form, array), "%{} is not {form:?}: {array:?}\n{}", value.0, sketch.0);
        }
        Ok(())
    })
    .budget_ms(1500);
}
