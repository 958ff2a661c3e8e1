//! Normalisations made of primitives. The bare form, with a scale of 1, is recognised first; then
//! it takes up scale, bias and casts.

use egg::Id;
use planner_ir::{Op, Real, Reduction, Type};

use super::{Condition, Needed, Rule};
use crate::raise::make::Make;
use crate::raise::pattern::Match;

/// The mean is over the last dimensions.
const TRAILING_MEAN: Condition = Condition {
    needed: Needed::ForUse,
    name: "a mean over the last dimensions",
    holds: |make, found| trailing(make, found.operation("m"), make.shape(found.class("x")).len()).is_some(),
};

const SMALL_EPSILON: Condition = Condition {
    needed: Needed::ForUse,
    name: "what is added to the mean square is positive",
    holds: |make, found| make.number(found.class("e")).is_some_and(|it| it > 0.0 && it < 1.0),
};

/// As many dimensions as `s` and `y` say: a number for each place in a sample.
const PER_PLACE: Condition = Condition {
    needed: Needed::ForUse,
    name: "the same number for every sample",
    holds: |make, found| {
        let Some(dims) = normalised(make, found) else {
            return false;
        };
        let shape = make.shape(found.class("y"));
        shape.iter().rev().skip(dims).all(|&extent| extent == 1)
            && make.type_of(found.root()) == make.type_of(found.class("x"))
    },
};

const NARROWER: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the normalised value was widened before and is narrowed after",
    holds: |make, found| {
        let (outer, inner) = (make.type_of(found.class("x")).dtype, make.type_of(found.class("n")).dtype);
        outer.is_float()
            && inner.is_float()
            && outer.bytes() <= inner.bytes()
            && make.type_of(found.root()).dtype == outer
    },
};

const SAME_TYPE: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the centre has the type of what is centred",
    holds: |make, found| {
        make.type_of(found.class("x")) == make.type_of(found.root()) && mean_matches_norm(make, found)
    },
};

const WIDE_INSIDE: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the same number for every sample, and elements are wider inside",
    holds: |make, found| {
        let (x, root) = (make.type_of(found.class("x")), make.type_of(found.root()));
        let Some(dims) = normalised(make, found) else {
            return false;
        };
        let shape = make.shape(found.class("y"));
        x.shape == root.shape
            && root.dtype.is_float()
            && root.dtype.bytes() <= x.dtype.bytes()
            && shape.iter().rev().skip(dims).all(|&extent| extent == 1)
    },
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "rms norm",
            pattern: "(div ?x (sqrt (add (reduce:m (mul ?x ?x)) #e)))",
            conditions: &[TRAILING_MEAN, SMALL_EPSILON],
            build: |make, found| {
                let x = found.class("x");
                let dims = trailing(make, found.operation("m"), make.shape(x).len())?;
                let epsilon = Real(make.number(found.class("e"))?);
                let ones = make.scalar(make.type_of(x).dtype, 1.0)?;
                make.apply(Op::RmsNorm { dims, epsilon }, &[x, ones])
            },
        },
        Rule {
            name: "layer norm",
            pattern: "(rmsnorm:o ?c=(sub ?x (reduce:m ?x)) ?s)",
            conditions: &[SAME_TYPE],
            build: |make, found| match *make.op(found.operation("o")) {
                Op::RmsNorm { dims, epsilon } => {
                    make.apply(Op::LayerNorm { dims, epsilon }, &[found.class("x"), found.class("s")])
                }
                _ => None,
            },
        },
        Rule {
            name: "rms norm takes a scale",
            pattern: "(mul (rmsnorm:o ?x 1) ?y)",
            conditions: &[PER_PLACE],
            build: |make, found| {
                let op = make.op(found.operation("o")).clone();
                make.apply(op, &[found.class("x"), found.class("y")])
            },
        },
        Rule {
            name: "rms norm takes a narrow scale",
            pattern: "(mul (cast (rmsnorm:o ?x 1)) ?y)",
            conditions: &[WIDE_INSIDE],
            build: |make, found| {
                let op = make.op(found.operation("o")).clone();
                let dtype = make.type_of(found.class("x")).dtype;
                let scale = make.cast(found.class("y"), dtype)?;
                let norm = make.apply(op, &[found.class("x"), scale])?;
                let dtype = make.type_of(found.root()).dtype;
                make.cast(norm, dtype)
            },
        },
        Rule {
            name: "layer norm takes a scale",
            pattern: "(mul (layernorm:o ?x 1) ?y)",
            conditions: &[PER_PLACE],
            build: |make, found| {
                let op = make.op(found.operation("o")).clone();
                make.apply(op, &[found.class("x"), found.class("y")])
            },
        },
        Rule {
            name: "layer norm takes a bias",
            pattern: "(add (layernorm:o ?x ?s) ?y)",
            conditions: &[PER_PLACE],
            build: |make, found| {
                let op = make.op(found.operation("o")).clone();
                make.apply(op, &[found.class("x"), found.class("s"), found.class("y")])
            },
        },
        Rule {
            name: "rms norm computes wide itself",
            pattern: "(cast (rmsnorm:o ?n=(cast ?x) ?s))",
            conditions: &[NARROWER],
            build: |make, found| narrowed(make, found, &["s"]),
        },
        Rule {
            name: "layer norm computes wide itself",
            pattern: "(cast (layernorm:o ?n=(cast ?x) ?s))",
            conditions: &[NARROWER],
            build: |make, found| narrowed(make, found, &["s"]),
        },
        Rule {
            name: "layer norm with bias computes wide itself",
            pattern: "(cast (layernorm:o ?n=(cast ?x) ?s ?b))",
            conditions: &[NARROWER],
            build: |make, found| narrowed(make, found, &["s", "b"]),
        },
    ]
}

/// Over how many last dimensions a reduction takes the mean.
fn trailing(make: &Make<'_>, reduction: usize, rank: usize) -> Option<usize> {
    match make.op(reduction) {
        Op::Reduce { reduction: Reduction::Mean, dims } if !dims.is_empty() => {
            let first = rank.checked_sub(dims.len())?;
            (*dims == (first..rank).collect::<Vec<_>>()).then_some(dims.len())
        }
        _ => None,
    }
}

fn normalised(make: &Make<'_>, found: &Match<'_>) -> Option<usize> {
    match make.op(found.operation("o")) {
        Op::RmsNorm { dims, .. } | Op::LayerNorm { dims, .. } => Some(*dims),
        _ => None,
    }
}

fn mean_matches_norm(make: &Make<'_>, found: &Match<'_>) -> bool {
    let mean = trailing(make, found.operation("m"), make.shape(found.class("x")).len());
    mean.is_some() && mean == normalised(make, found)
}

/// The normalisation on the narrow operand, with its other operands narrowed.
fn narrowed(make: &mut Make<'_>, found: &Match<'_>, others: &[&str]) -> Option<Id> {
    let op = make.op(found.operation("o")).clone();
    let x = found.class("x");
    let dtype = make.type_of(x).dtype;
    let mut operands = vec![x];
    for name in others {
        let operand = found.class(name);
        operands.push(match make.number(operand) {
            Some(number) => {
                let shape = make.shape(operand).to_vec();
                make.fill(Type::new(dtype, shape), number)?
            }
            None => make.cast(operand, dtype)?,
        });
    }
    make.apply(op, &operands)
}
