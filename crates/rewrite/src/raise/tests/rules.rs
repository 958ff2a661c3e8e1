//! Every rule on numbers: both sides are equal, and where a condition fails they are not.

mod broad; // numbers that are broader than what they are put together with
mod needed; // matches that conditions refuse
use planner_ir::{Attention, Binary, Blind, Contract, DType, Label, Op, Pairing, Real, Reduction, Unary};

use super::proof::{Example, Outcome, outcome};
use crate::raise::rules::{Needed, all};
use crate::raise::term::{Head, Scores};

fn f32s(rule: &'static str, classes: &'static str, operations: Vec<Head>) -> Example {
    Example { rule, classes, operations, dtype: DType::F32 }
}

fn i64s(rule: &'static str, classes: &'static str, operations: Vec<Head>) -> Example {
    Example { rule, classes, operations, dtype: DType::I64 }
}

fn reshape(shape: &[u64]) -> Head {
    Head::Op(Op::Reshape { shape: shape.to_vec() })
}

fn expand(shape: &[u64]) -> Head {
    Head::Op(Op::Expand { shape: shape.to_vec() })
}

fn transpose(permutation: &[usize]) -> Head {
    Head::Op(Op::Transpose { permutation: permutation.to_vec() })
}

fn slice(starts: &[u64], steps: &[i64], sizes: &[u64]) -> Head {
    Head::Op(Op::Slice { starts: starts.to_vec(), steps: steps.to_vec(), sizes: sizes.to_vec() })
}

/// A contraction by letters.
fn contract(left: &str, right: &str, result: &str) -> Head {
    let labels = |text: &str| text.bytes().map(|it| Label(it - b'a')).collect();
    Head::Op(Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) }))
}

fn unary(unary: Unary) -> Head {
    Head::Op(Op::Unary(unary))
}

fn binary(binary: Binary) -> Head {
    Head::Op(Op::Binary(binary))
}

fn cast(dtype: DType) -> Head {
    Head::Op(Op::Cast(dtype))
}

fn softmax(dim: usize) -> Head {
    Head::Op(Op::Softmax { dim })
}

fn mean(dims: &[usize]) -> Head {
    Head::Op(Op::Reduce { reduction: Reduction::Mean, dims: dims.to_vec() })
}

fn rms(dims: usize) -> Head {
    Head::Op(Op::RmsNorm { dims, epsilon: Real(1e-3) })
}

fn layer(dims: usize) -> Head {
    Head::Op(Op::LayerNorm { dims, epsilon: Real(1e-3) })
}

fn concat(dim: usize) -> Head {
    Head::Op(Op::Concat { dim })
}

fn rotary() -> Head {
    Head::Op(Op::Rotary(Pairing::Halves))
}

fn scores(scale: f64, softcap: f64) -> Head {
    Head::Scores(Scores { scale: Real(scale), softcap: Real(softcap), blind: Blind::Zero })
}

fn attention() -> Head {
    let (scale, softcap) = (Real(0.5), Real(0.0));
    let (window, blind) = (None, Blind::Zero);
    Head::Op(Op::Attention(Attention {
        scale,
        causal: false,
        softcap,
        window,
        blind,
        sinks: false,
        statistics: false,
    }))
}

/// The same with sinks.
fn sunk() -> Head {
    match attention() {
        Head::Op(Op::Attention(attention)) => Head::Op(Op::Attention(Attention { sinks: true, ..attention })),
        other => other,
    }
}

/// The softmax of scores beside a sink, whose first columns are of this shape.
fn beside(shape: &[u64]) -> Vec<Head> {
    let pv = contract("abcd", "abde", "abce");
    vec![pv, slice(&[0; 4], &[1; 4], shape), softmax(3), concat(3), scores(0.5, 0.0)]
}

fn gather_nd() -> Head {
    Head::Op(Op::GatherNd { batch_dims: 0 })
}

/// Three tokens, each to two of two experts.
fn experts() -> Vec<Head> {
    vec![
        Head::Op(Op::Reduce { reduction: Reduction::Sum, dims: vec![1] }),
        reshape(&[3, 2, 4]),
        contract("ab", "acb", "ac"),
        Head::Op(Op::Gated(Unary::Silu)),
        contract("ab", "acb", "ac"),
        reshape(&[6, 4]),
        expand(&[3, 2, 4]),
        gather_nd(),
        contract("ab", "abc", "ac"),
    ]
}

/// The same, bounded by one number.
fn bounded(most: &str, least: &str) -> Example {
    let [reduce, apart, down, gated, product, uses, repeat, gather, other] =
        <[Head; 9]>::try_from(experts()).unwrap_or_else(|_| panic!("nine"));
    let shapes = "x=f32[3,1,4] i=i64[6,1] up=f32[2,5,4] gate=f32[2,4,5] down=f32[2,4,5] w=f32[6,1]";
    let classes = format!("{shapes} b1=f32[2,5] b2=f32[2,5] b3=f32[2,4] l={most} k={least}");
    let (min, max) = (binary(Binary::Min), binary(Binary::Max));
    let operations = vec![reduce, apart, down, gated, min, product, uses, repeat, gather, max, other];
    f32s("bounded experts", Box::leak(classes.into_boxed_str()), operations)
}

/// For each rule, matches on which it must hold.
fn examples() -> Vec<Example> {
    let low_high = || vec![slice(&[0, 0], &[1, 1], &[3, 2]), slice(&[0, 2], &[1, 1], &[3, 2])];
    let halves = || vec![concat(1), slice(&[0, 2], &[1, 1], &[3, 2]), slice(&[0, 0], &[1, 1], &[3, 2])];
    let apart = vec![concat(1), slice(&[0, 0], &[1, 2], &[3, 2]), slice(&[0, 1], &[1, 2], &[3, 2])];
    let tables = "x=f32[3,4] cos=f32[3,2] sin=f32[3,2]";
    let heads = "q=f32[2,4,3,5] k=f32[2,2,1,6,5] v=f32[2,2,1,6,7] m=f32[3,6]";
    let repeats = || {
        vec![
            attention(),
            reshape(&[2, 4, 6, 5]),
            expand(&[2, 2, 2, 6, 5]),
            reshape(&[2, 4, 6, 7]),
            expand(&[2, 2, 2, 6, 7]),
        ]
    };
    let pv = || contract("abcd", "abde", "abce");
    let masked = "q=f32[2,4,3,5] k=f32[2,4,6,5] v=f32[2,4,6,7] m=f32[2,1,3,6]";
    let masked_and_sunk = "q=f32[2,4,3,5] k=f32[2,4,6,5] v=f32[2,4,6,7] m=f32[2,1,3,6] n=f32[2,4,3,1]";
    let with_sinks = "q=f32[2,4,3,5] k=f32[2,2,1,6,5] v=f32[2,2,1,6,7] m=f32[3,6] n=f32[4,1,1]";
    vec![
        f32s("square is product", "x=f32[2,3]", vec![]),
        f32s("cube is product", "x=f32[2,3]", vec![]),
        f32s("cube from the left", "x=f32[2,3]", vec![]),
        f32s("half power is root", "x=f32[2,3]", vec![]),
        f32s("power minus half is reciprocal root", "x=f32[2,3]", vec![]),
        f32s("one over", "x=f32[2,3]", vec![]),
        f32s("times reciprocal", "x=f32[2,3] y=f32[3]", vec![]),
        f32s("divided by number", "x=f32[2,3] c=3", vec![]),
        f32s("times one", "x=f32[2,3]", vec![]),
        f32s("plus zero", "x=f32[2,3]", vec![]),
        f32s("two factors", "x=f32[2,3] c=3 d=-0.7", vec![]),
        f32s("factor out of product", "x=f32[2,3] c=3 y=f32[2,1]", vec![]),
        f32s("factor out of dividend", "x=f32[2,3] c=3 y=f32[2,1]", vec![]),
        f32s("factor out of movement", "x=f32[2,3] c=3", vec![transpose(&[1, 0])]),
        f32s("factor out of movement", "x=f32[2,3] c=3", vec![reshape(&[6])]),
        f32s("factor out of repetition", "x=f32[2,1] c=3", vec![expand(&[2, 4])]),
        f32s("factor out of left operand", "x=f32[2,3] c=3 y=f32[3,4]", vec![contract("ab", "bc", "ac")]),
        f32s("factor out of right operand", "y=f32[2,3] c=3 x=f32[3,4]", vec![contract("ab", "bc", "ca")]),
        f32s("factor out of rotation", "x=f32[3,4] c=3 y=f32[3,4] z=f32[3,4]", vec![rotary()]),
        f32s("reshape to the same shape", "x=f32[2,3]", vec![reshape(&[2, 3])]),
        f32s("repetition to the same shape", "x=f32[2,3]", vec![expand(&[2, 3])]),
        f32s("cast to the same elements", "x=f32[2,3]", vec![cast(DType::F32)]),
        f32s("transpose in order", "x=f32[3,3]", vec![transpose(&[0, 1])]),
        f32s("slice of everything", "x=f32[3,3]", vec![slice(&[0, 0], &[1, 1], &[3, 3])]),
        f32s("reshape of reshape", "x=f32[2,6]", vec![reshape(&[3, 4]), reshape(&[12])]),
        f32s("transpose of transpose", "x=f32[2,3,4]", vec![transpose(&[1, 2, 0]), transpose(&[0, 2, 1])]),
        f32s("slice of slice", "x=f32[9]", vec![slice(&[1], &[2], &[2]), slice(&[8], &[-2], &[5])]),
        i64s("selection by number is a slice", "x=f32[2,4,3] i=-2", vec![Head::Op(Op::Gather { dim: 1 })]),
        f32s("transpose of merged dimensions", "x=f32[2,3,4]", vec![transpose(&[1, 0]), reshape(&[6, 4])]),
        f32s("merged operand", "x=f32[2,3,4]", vec![unary(Unary::Tanh), reshape(&[6, 4])]),
        f32s("merged operand of a cast", "x=f32[2,3,4]", vec![cast(DType::I64), reshape(&[6, 4])]),
        f32s("cast of repetition", "x=f32[2,1]", vec![cast(DType::I64), expand(&[2, 4])]),
        f32s("merged operand of a softmax", "x=f32[2,3,4]", vec![softmax(1), reshape(&[6, 4])]),
        f32s("merged operand of a layer norm", "x=f32[2,3,4] s=f32[4]", vec![layer(1), reshape(&[6, 4])]),
        f32s(
            "merged operand of a layer norm with bias",
            "x=f32[2,3,4] s=f32[4] b=f32[4]",
            vec![layer(1), reshape(&[6, 4])],
        ),
        f32s("merged operand of an rms norm", "x=f32[2,3,4] s=f32[4]", vec![rms(1), reshape(&[6, 4])]),
        f32s("merged left operand", "x=f32[2,3,4] y=f32[4]", vec![binary(Binary::Sub), reshape(&[6, 4])]),
        f32s("merged left operand", "x=f32[2,3,4] y=f32[6,1]", vec![binary(Binary::Sub), reshape(&[6, 4])]),
        f32s("merged right operand", "x=f32[2,3,4] y=f32[6,4]", vec![binary(Binary::Sub), reshape(&[6, 4])]),
        f32s(
            "movement below a prepared right operand",
            "x=f32[2,6] y=prepared:f32[6]",
            vec![reshape(&[2, 3, 2]), binary(Binary::Sub)],
        ),
        f32s(
            "movement below a prepared right operand",
            "x=f32[2,6] y=prepared:f32[6]",
            vec![transpose(&[1, 0]), binary(Binary::Sub)],
        ),
        f32s(
            "movement below a prepared right operand",
            "x=f32[2,6] y=prepared:f32[6]",
            vec![slice(&[0, 1], &[1, 2], &[2, 3]), binary(Binary::Sub)],
        ),
        f32s(
            "movement below a prepared left operand",
            "x=f32[2,6] y=prepared:f32[2,1]",
            vec![slice(&[1, 1], &[1, 2], &[1, 3]), binary(Binary::Sub)],
        ),
        f32s("repeated left operand", "x=f32[1,3] y=f32[2,3]", vec![binary(Binary::Sub), expand(&[2, 3])]),
        f32s("repeated right operand", "x=f32[1,3] y=f32[2,3]", vec![binary(Binary::Sub), expand(&[2, 3])]),
        f32s("repeated condition", "x=bool[1,3] y=f32[2,3] z=f32[3]", vec![expand(&[2, 3])]),
        f32s("repeated choice", "x=f32[1,3] y=bool[2,3] z=f32[3]", vec![expand(&[2, 3])]),
        f32s("repeated alternative", "x=f32[1,3] y=bool[2,3] z=f32[3]", vec![expand(&[2, 3])]),
        f32s(
            "repeated mask",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] v=f32[2,2,6,7] x=f32[2,1,3,6]",
            vec![attention(), expand(&[2, 4, 3, 6])],
        ),
        f32s(
            "left operand transposed",
            "x=f32[3,2] y=f32[3,4]",
            vec![contract("ab", "bc", "ac"), transpose(&[1, 0])],
        ),
        f32s(
            "right operand transposed",
            "y=f32[2,3] x=f32[4,3]",
            vec![contract("ab", "bc", "ac"), transpose(&[1, 0])],
        ),
        f32s(
            "contraction transposed",
            "x=f32[2,5,3] y=f32[3,4]",
            vec![transpose(&[2, 0, 1]), contract("abc", "cd", "abd")],
        ),
        f32s(
            "left operand merged",
            "x=f32[2,5,3] y=f32[3,4]",
            vec![contract("ab", "bc", "ac"), reshape(&[10, 3])],
        ),
        f32s(
            "left operand merged",
            "x=f32[2,5,3] y=f32[15,4]",
            vec![contract("ab", "bc", "ac"), reshape(&[2, 15])],
        ),
        f32s(
            "left operand merged",
            "x=f32[2,3,4,5] y=f32[6,5,2]",
            vec![contract("abc", "acd", "adb"), reshape(&[6, 4, 5])],
        ),
        f32s(
            "right operand merged",
            "y=f32[4,15] x=f32[3,5,2]",
            vec![contract("ab", "bc", "ac"), reshape(&[15, 2])],
        ),
        f32s(
            "contraction split",
            "x=f32[2,3] y=f32[3,8]",
            vec![reshape(&[2, 4, 2]), contract("ab", "bc", "ac")],
        ),
        f32s(
            "slice of contraction",
            "x=f32[2,3,5] y=f32[2,5,8]",
            vec![slice(&[1, 0, 1], &[1, 2, 3], &[1, 2, 3]), contract("abc", "acd", "abd")],
        ),
        f32s(
            "single index of a weight",
            "x=f32[2,3] y=prepared:f32[1,3,4]",
            vec![reshape(&[2, 4]), contract("ab", "cbd", "cad")],
        ),
        f32s("sigmoid", "x=f32[2,3]", vec![]),
        f32s("silu", "x=f32[2,3]", vec![]),
        f32s("quick gelu", "x=f32[2,3]", vec![]),
        f32s("gelu", "x=f32[2,3]", vec![]),
        f32s("gelu, half inside", "x=f32[2,3]", vec![]),
        f32s("gelu by tanh", "x=f32[2,3]", vec![]),
        f32s("gelu by tanh, factored", "x=f32[2,3]", vec![]),
        f32s("gated unit", "x=f32[2,3] y=f32[2,3]", vec![unary(Unary::Silu)]),
        f32s("rms norm", "x=f32[2,3,4] e=0.001", vec![mean(&[1, 2])]),
        f32s("layer norm", "x=f32[2,3,4] s=f32[4]", vec![rms(1), mean(&[2])]),
        f32s("rms norm takes a scale", "x=f32[2,3,4] y=f32[1,4]", vec![rms(1)]),
        Example {
            rule: "rms norm takes a narrow scale",
            classes: "x=f64[2,3,4] y=f32[4]",
            operations: vec![cast(DType::F32), rms(1)],
            dtype: DType::F64,
        },
        f32s(
            "slice of gathered rows",
            "w=f32[2,5,6] i=i64[7,1]",
            vec![slice(&[0, 1, 2], &[1, 1, 2], &[7, 3, 2]), gather_nd()],
        ),
        f32s(
            "experts",
            "x=f32[3,1,4] i=i64[6,1] up=f32[2,5,4] gate=f32[2,4,5] down=f32[2,4,5] w=f32[6,1]",
            experts(),
        ),
        bounded("0.5", "-0.5"),
        f32s("layer norm takes a scale", "x=f32[2,3,4] y=f32[3,4]", vec![layer(2)]),
        f32s("layer norm takes a bias", "x=f32[2,3,4] s=f32[4] y=f32[4]", vec![layer(1)]),
        f32s(
            "rms norm computes wide itself",
            "x=f32[2,3,4] s=f64[4]",
            vec![cast(DType::F32), rms(1), cast(DType::F64)],
        ),
        f32s(
            "layer norm computes wide itself",
            "x=f32[2,3,4] s=f64[4]",
            vec![cast(DType::F32), layer(1), cast(DType::F64)],
        ),
        f32s(
            "layer norm with bias computes wide itself",
            "x=f32[2,3,4] s=f64[4] b=f64[4]",
            vec![cast(DType::F32), layer(1), cast(DType::F64)],
        ),
        f32s("rotary of halves", "x=f32[3,4] cos=f32[3,4] sin=f32[1,4]", halves()),
        f32s(
            "rotary of neighbours",
            "x=f32[3,4] cos=f32[3,4] sin=f32[1,4]",
            vec![
                reshape(&[3, 4]),
                concat(2),
                reshape(&[3, 2, 1]),
                slice(&[0, 1], &[1, 2], &[3, 2]),
                reshape(&[3, 2, 1]),
                slice(&[0, 0], &[1, 2], &[3, 2]),
            ],
        ),
        f32s("rotary of halves, half tables", tables, [vec![concat(1)], low_high()].concat()),
        f32s("rotary of neighbours, half tables, taken apart", tables, apart),
        f32s("scores", "q=f32[2,4,3,5] k=f32[2,4,6,5]", vec![contract("abcd", "abed", "abce")]),
        f32s("scores", "q=f32[2,4,3,5] k=f32[2,6,5]", vec![contract("abcd", "aed", "abce")]),
        f32s("scores", "q=f32[6,5,2] k=f32[2,3,5]", vec![contract("edb", "bcd", "bce")]),
        f32s("scaled scores", "q=f32[2,4,3,5] k=f32[2,2,6,5] c=0.3", vec![scores(0.5, 0.0)]),
        f32s("bound scores", "q=f32[2,4,3,5] k=f32[2,2,6,5] c=2", vec![scores(0.5, 0.0)]),
        f32s("masked scores", "q=f32[2,4,3,5] k=f32[2,2,6,5] m=f32[2,1,3,6]", vec![scores(0.5, 3.0)]),
        f32s(
            "scores masked twice",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] m=f32[2,1,3,6] n=f32[4,1,1]",
            vec![scores(0.5, 0.0)],
        ),
        f32s(
            "scaled masked scores",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] m=f32[2,1,3,6] c=0.3",
            vec![scores(0.5, 0.0)],
        ),
        f32s("hidden scores", "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] n=-inf", vec![scores(0.5, 0.0)]),
        f32s(
            "hidden masked scores",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] b=f32[4,1,6] n=-3e38",
            vec![scores(0.5, 0.0)],
        ),
        f32s(
            "masked scores hidden where true",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] b=f32[4,1,6] n=-inf",
            vec![scores(0.5, 0.0)],
        ),
        f32s(
            "hidden scores",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] n=-3e38",
            vec![scores(0.5, 0.0)],
        ),
        f32s(
            "scores hidden where true",
            "q=f32[2,4,3,5] k=f32[2,2,6,5] m=bool[2,1,3,6] n=-inf",
            vec![scores(0.5, 0.0)],
        ),
        f32s(
            "scores of widened operands",
            "q=f32[2,4,3,5] k=f32[2,2,6,5]",
            vec![cast(DType::F64), scores(0.5, 0.0)],
        ),
        f32s(
            "softmax computes wide itself",
            "x=f32[2,3]",
            vec![cast(DType::F32), softmax(1), cast(DType::F64)],
        ),
        f32s("attention", masked, vec![pv(), softmax(3), scores(0.5, 0.0)]),
        f32s("masked attention", masked, vec![pv(), softmax(3), scores(0.5, 2.0)]),
        f32s(
            "guarded attention",
            "q=f32[2,4,3,5] k=f32[2,4,6,5] v=f32[2,6,4,7]",
            vec![contract("abcd", "adbe", "acbe"), softmax(3), scores(0.5, 0.0)],
        ),
        f32s("guarded masked attention", masked, vec![pv(), softmax(3), scores(0.5, 0.0)]),
        f32s("repeated heads", heads, repeats()),
        f32s("repeated heads, masked", heads, repeats()),
        f32s(
            "repeated heads, masked, with sinks",
            with_sinks,
            [vec![sunk()], repeats()[1..].to_vec()].concat(),
        ),
        f32s("attention with sinks", masked_and_sunk, beside(&[2, 4, 3, 6])),
        f32s("masked attention with sinks", masked_and_sunk, beside(&[2, 4, 3, 6])),
    ]
}

#[test]
fn every_rule_holds_on_numbers() {
    let rules = all();
    let examples = examples();
    let mut failures = Vec::new();
    for ready in &rules {
        let mut own = examples.iter().filter(|it| it.rule == ready.rule.name).peekable();
        if own.peek().is_none() {
            failures.push(format!("{}: no example", ready.rule.name));
        }
        for example in own {
            match outcome(ready, example, None) {
                Outcome::Apart(apart) if apart < 1e-5 => {}
                other => failures.push(format!("{} on {}: {other:?}", example.rule, example.classes)),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
