//! Reshapes, transposes, slices and repetitions.
//!
//! A reshape that merges dimensions floats up, toward the results; one that splits sinks down,
//! toward the weights. Where they meet they cancel.

use egg::Id;
use planner_ir::{Op, Type};

use super::{Condition, Needed, Rule};
use crate::raise::make::Make;
use crate::raise::pattern::Match;
use crate::raise::shape;

const SAME: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the result has the operand's type",
    holds: |make, found| make.type_of(found.class("x")) == make.type_of(found.root()),
};

const IDENTITY: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the dimensions stay in order",
    holds: |make, found| match make.op(found.operation("o")) {
        Op::Transpose { permutation } => permutation.iter().enumerate().all(|(index, &dim)| index == dim),
        _ => false,
    },
};

const FORWARD: Condition = Condition {
    needed: Needed::ForTruth,
    name: "every index is taken in order",
    holds: |make, found| match make.op(found.operation("o")) {
        Op::Slice { starts, steps, sizes } => (0..sizes.len()).all(|dim| {
            sizes[dim] == make.shape(found.class("x"))[dim]
                && (sizes[dim] <= 1 || (starts[dim] == 0 && steps[dim] == 1))
        }),
        _ => false,
    },
};

/// The reshape named `r` of `x` splits no dimension.
const MERGES: Condition = Condition {
    needed: Needed::ForUse,
    name: "the reshape only merges dimensions",
    holds: |make, found| merging(make, found).is_some(),
};

const PREPARED: Condition = Condition {
    needed: Needed::ForUse,
    name: "the other operand is prepared",
    holds: |make, found| make.prepared(found.class("y")) && make.number(found.class("y")).is_none(),
};

const LAST_KEPT: Condition = Condition {
    needed: Needed::ForUse,
    name: "the dimension of the softmax is kept by the reshape",
    holds: |make, found| kept_dim(make, found).is_some(),
};

const SAMPLES_KEPT: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the normalised dimensions are kept by the reshape",
    holds: |make, found| {
        let dims = match make.op(found.operation("o")) {
            Op::LayerNorm { dims, .. } | Op::RmsNorm { dims, .. } => *dims,
            _ => return false,
        };
        merging(make, found)
            .is_some_and(|it| it.len() >= dims && it[it.len() - dims..].iter().all(shape::Group::is_same))
    },
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "reshape to the same shape",
            pattern: "(reshape:o ?x)",
            conditions: &[SAME],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "repetition to the same shape",
            pattern: "(expand:o ?x)",
            conditions: &[SAME],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "cast to the same elements",
            pattern: "(cast:o ?x)",
            conditions: &[SAME],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "transpose in order",
            pattern: "(transpose:o ?x)",
            conditions: &[IDENTITY],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "slice of everything",
            pattern: "(slice:o ?x)",
            conditions: &[FORWARD],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "reshape of reshape",
            pattern: "(reshape (reshape ?x))",
            conditions: &[],
            build: |make, found| {
                let shape = make.shape(found.root()).to_vec();
                make.reshape(found.class("x"), &shape)
            },
        },
        Rule {
            name: "transpose of transpose",
            pattern: "(transpose:o (transpose:i ?x))",
            conditions: &[],
            build: |make, found| {
                let (outer, inner) = (permutation(make, found, "o")?, permutation(make, found, "i")?);
                let both: Vec<usize> = outer.iter().map(|&dim| inner[dim]).collect();
                make.transpose(found.class("x"), &both)
            },
        },
        Rule {
            name: "slice of slice",
            pattern: "(slice:o (slice:i ?x))",
            conditions: &[],
            build: slice_of_slice,
        },
        Rule {
            name: "selection by number is a slice",
            pattern: "(gather:o ?x #i)",
            conditions: &[],
            build: gather_is_slice,
        },
        Rule {
            name: "transpose of merged dimensions",
            pattern: "(transpose:o (reshape:r ?x))",
            conditions: &[MERGES],
            build: transpose_of_merge,
        },
        Rule {
            name: "merged operand",
            pattern: "(unary:o (reshape:r ?x))",
            conditions: &[MERGES],
            build: |make, found| merged_later(make, found, &[]),
        },
        Rule {
            name: "merged operand of a cast",
            pattern: "(cast:o (reshape:r ?x))",
            conditions: &[MERGES],
            build: |make, found| merged_later(make, found, &[]),
        },
        Rule {
            name: "cast of repetition",
            pattern: "(cast:o (expand:e ?x))",
            conditions: &[],
            build: |make, found| {
                let (op, repetition) =
                    (make.op(found.operation("o")).clone(), make.op(found.operation("e")).clone());
                let cast = make.apply(op, &[found.class("x")])?;
                make.apply(repetition, &[cast])
            },
        },
        Rule {
            name: "merged operand of a softmax",
            pattern: "(softmax:o (reshape:r ?x))",
            conditions: &[LAST_KEPT],
            build: |make, found| {
                let dim = kept_dim(make, found)?;
                let inner = make.apply(Op::Softmax { dim }, &[found.class("x")])?;
                let shape = make.shape(found.root()).to_vec();
                make.reshape(inner, &shape)
            },
        },
        Rule {
            name: "merged operand of a layer norm",
            pattern: "(layernorm:o (reshape:r ?x) ?s)",
            conditions: &[MERGES, SAMPLES_KEPT],
            build: |make, found| merged_later(make, found, &[found.class("s")]),
        },
        Rule {
            name: "merged operand of a layer norm with bias",
            pattern: "(layernorm:o (reshape:r ?x) ?s ?b)",
            conditions: &[MERGES, SAMPLES_KEPT],
            build: |make, found| merged_later(make, found, &[found.class("s"), found.class("b")]),
        },
        Rule {
            name: "merged operand of an rms norm",
            pattern: "(rmsnorm:o (reshape:r ?x) ?s)",
            conditions: &[MERGES, SAMPLES_KEPT],
            build: |make, found| merged_later(make, found, &[found.class("s")]),
        },
        Rule {
            name: "merged left operand",
            pattern: "(binary:o (reshape:r ?x) ?y)",
            conditions: &[MERGES],
            build: |make, found| merged_binary(make, found, [true, false]),
        },
        Rule {
            name: "merged right operand",
            pattern: "(binary:o ?y (reshape:r ?x))",
            conditions: &[MERGES],
            build: |make, found| merged_binary(make, found, [false, true]),
        },
        Rule {
            name: "movement below a prepared right operand",
            pattern: "(movement:o (binary:b ?x ?y))",
            conditions: &[PREPARED],
            build: |make, found| below(make, found, [true, false]),
        },
        Rule {
            name: "movement below a prepared left operand",
            pattern: "(movement:o (binary:b ?y ?x))",
            conditions: &[PREPARED],
            build: |make, found| below(make, found, [false, true]),
        },
        Rule {
            name: "repeated left operand",
            pattern: "(binary:o (expand ?x) ?y)",
            conditions: &[],
            build: |make, found| unrepeated(make, found, &[found.class("x"), found.class("y")]),
        },
        Rule {
            name: "repeated right operand",
            pattern: "(binary:o ?y (expand ?x))",
            conditions: &[],
            build: |make, found| unrepeated(make, found, &[found.class("y"), found.class("x")]),
        },
        Rule {
            name: "repeated condition",
            pattern: "(select:o (expand ?x) ?y ?z)",
            conditions: &[],
            build: |make, found| {
                unrepeated(make, found, &[found.class("x"), found.class("y"), found.class("z")])
            },
        },
        Rule {
            name: "repeated choice",
            pattern: "(select:o ?y (expand ?x) ?z)",
            conditions: &[],
            build: |make, found| {
                unrepeated(make, found, &[found.class("y"), found.class("x"), found.class("z")])
            },
        },
        Rule {
            name: "repeated alternative",
            pattern: "(select:o ?y ?z (expand ?x))",
            conditions: &[],
            build: |make, found| {
                unrepeated(make, found, &[found.class("y"), found.class("z"), found.class("x")])
            },
        },
        Rule {
            name: "repeated mask",
            pattern: "(attention:o ?q ?k ?v (expand ?x))",
            conditions: &[],
            build: |make, found| {
                let operands = [found.class("q"), found.class("k"), found.class("v"), found.class("x")];
                unrepeated(make, found, &operands)
            },
        },
    ]
}

fn permutation(make: &Make<'_>, found: &Match<'_>, name: &str) -> Option<Vec<usize>> {
    match make.op(found.operation(name)) {
        Op::Transpose { permutation } => Some(permutation.clone()),
        _ => None,
    }
}

/// The groups of the reshape `r` of `x`, if none splits or drops a dimension and one merges some.
///
/// Dimensions of extent 1 that are dropped stay where they are: they could float anywhere.
fn merging(make: &Make<'_>, found: &Match<'_>) -> Option<Vec<shape::Group>> {
    dropping(make, found).filter(|groups| groups.iter().all(|group| !group.to.is_empty()))
}

/// The same, where dimensions of extent 1 may be dropped.
fn dropping(make: &Make<'_>, found: &Match<'_>) -> Option<Vec<shape::Group>> {
    let Op::Reshape { shape } = make.op(found.operation("r")) else {
        return None;
    };
    shape::groups(make.shape(found.class("x")), shape)
        .filter(|groups| shape::merges(groups) && !groups.iter().all(shape::Group::is_same))
}

/// The dimension of `x` that the softmax `o` is along, if the reshape keeps it.
fn kept_dim(make: &Make<'_>, found: &Match<'_>) -> Option<usize> {
    let Op::Softmax { dim } = *make.op(found.operation("o")) else {
        return None;
    };
    let groups = dropping(make, found)?;
    let group = groups.into_iter().find(|group| group.to.contains(&dim))?;
    group.is_same().then_some(group.from.start)
}

/// The operation on what the reshape merges, then the reshape.
fn merged_later(make: &mut Make<'_>, found: &Match<'_>, others: &[Id]) -> Option<Id> {
    let op = make.op(found.operation("o")).clone();
    let dims = match op {
        Op::LayerNorm { dims, .. } | Op::RmsNorm { dims, .. } => dims,
        _ => 0,
    };
    if others.iter().any(|&it| make.shape(it).len() > dims) {
        return None;
    }
    let operands: Vec<Id> = [found.class("x")].into_iter().chain(others.iter().copied()).collect();
    let inner = make.apply(op, &operands)?;
    let shape = make.shape(found.root()).to_vec();
    make.reshape(inner, &shape)
}

/// `o(reshape(x), y) = reshape(o(x, y'))`; `sides` says on which side x is.
fn merged_binary(make: &mut Make<'_>, found: &Match<'_>, sides: [bool; 2]) -> Option<Id> {
    let op = make.op(found.operation("o")).clone();
    let (x, y) = (found.class("x"), found.class("y"));
    let merged = make.shape(found.root()).to_vec();
    let whole = make.shape(x).to_vec();
    if !matches!(make.op(found.operation("r")), Op::Reshape { shape } if *shape == merged) {
        return None;
    }
    let unmerged = shape::repeated(make.shape(y), &merged, &whole)?;
    let y = make.reshape(y, &unmerged)?;
    let inner = make.apply(op, &if sides[0] { [x, y] } else { [y, x] })?;
    make.reshape(inner, &merged)
}

/// `movement(b(x, y)) = b(movement(x), movement'(y))`, where y may be repeated to x.
fn below(make: &mut Make<'_>, found: &Match<'_>, sides: [bool; 2]) -> Option<Id> {
    let (op, binary) = (make.op(found.operation("o")).clone(), make.op(found.operation("b")).clone());
    let (x, y) = (found.class("x"), found.class("y"));
    let whole = make.shape(x).to_vec();
    let small = make.shape(y).to_vec();
    let missing = whole.len().checked_sub(small.len())?;
    if (missing..whole.len()).any(|dim| small[dim - missing] > whole[dim]) {
        return None;
    }
    let moved = match &op {
        Op::Reshape { shape } => {
            let target = shape::repeated(&small, &whole, shape)?;
            make.reshape(y, &target)?
        }
        Op::Transpose { permutation } => {
            if small.iter().product::<u64>() == 1 {
                y
            } else {
                let padded: Vec<u64> = std::iter::repeat_n(1, missing).chain(small).collect();
                let padded = make.reshape(y, &padded)?;
                make.transpose(padded, permutation)?
            }
        }
        Op::Slice { starts, steps, sizes } => {
            let part = |dim: usize| small[dim] == 1 && whole[missing + dim] != 1;
            let pick = |dim: usize| {
                if part(dim) {
                    (0, 1, 1)
                } else {
                    (starts[missing + dim], steps[missing + dim], sizes[missing + dim])
                }
            };
            let picks: Vec<(u64, i64, u64)> = (0..small.len()).map(pick).collect();
            let same = (0..small.len()).all(|dim| picks[dim].2 == small[dim]);
            if same && picks.iter().all(|&(start, step, size)| size == 1 || (start == 0 && step == 1)) {
                y
            } else {
                let op = Op::Slice {
                    starts: picks.iter().map(|it| it.0).collect(),
                    steps: picks.iter().map(|it| it.1).collect(),
                    sizes: picks.iter().map(|it| it.2).collect(),
                };
                make.apply(op, &[y])?
            }
        }
        _ => return None,
    };
    let x = make.apply(op, &[x])?;
    make.apply(binary, &if sides[0] { [x, moved] } else { [moved, x] })
}

/// The operation without a repetition that broadcasting does anyway.
fn unrepeated(make: &mut Make<'_>, found: &Match<'_>, operands: &[Id]) -> Option<Id> {
    let op = make.op(found.operation("o")).clone();
    let expected = make.type_of(found.root()).clone();
    let made = make.apply(op, operands)?;
    (*make.type_of(made) == expected).then_some(made)
}

fn transpose_of_merge(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    let groups = merging(make, found)?;
    let outer = permutation(make, found, "o")?;
    let mut all = Vec::new();
    for dim in outer {
        match groups.iter().find(|group| group.to.contains(&dim)) {
            Some(group) => all.extend(group.from.clone()),
            None => return None,
        }
    }
    let inner = make.transpose(found.class("x"), &all)?;
    let shape = make.shape(found.root()).to_vec();
    make.reshape(inner, &shape)
}

fn slice_of_slice(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    let parts = |name: &str| match make.op(found.operation(name)) {
        Op::Slice { starts, steps, sizes } => Some((starts.clone(), steps.clone(), sizes.clone())),
        _ => None,
    };
    let (outer, inner) = (parts("o")?, parts("i")?);
    let mut starts = Vec::new();
    let mut steps = Vec::new();
    for dim in 0..outer.0.len() {
        let start = i64::try_from(inner.0[dim]).ok()? + i64::try_from(outer.0[dim]).ok()? * inner.1[dim];
        starts.push(u64::try_from(start).ok()?);
        steps.push(outer.1[dim] * inner.1[dim]);
    }
    make.apply(Op::Slice { starts, steps, sizes: outer.2 }, &[found.class("x")])
}

fn gather_is_slice(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    let Op::Gather { dim } = *make.op(found.operation("o")) else {
        return None;
    };
    let (x, indices) = (found.class("x"), make.type_of(found.class("i")).clone());
    if indices.elements() != 1 {
        return None;
    }
    let number = make.number(found.class("i"))?;
    let extent = make.shape(x)[dim];
    let start = (0..extent).find(|&it| {
        let index = f64::from(u32::try_from(it).unwrap_or(u32::MAX));
        let count = f64::from(u32::try_from(extent).unwrap_or(u32::MAX));
        (number - index).abs() < 0.5 || (number + count - index).abs() < 0.5
    })?;
    let Type { shape, .. } = make.type_of(x).clone();
    let mut starts = vec![0; shape.len()];
    let mut sizes = shape;
    starts[dim] = start;
    sizes[dim] = 1;
    let steps = vec![1; starts.len()];
    let slice = make.apply(Op::Slice { starts, steps, sizes }, &[x])?;
    let shape = make.shape(found.root()).to_vec();
    make.reshape(slice, &shape)
}
