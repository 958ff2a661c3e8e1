//! Rotary position embedding, in its spellings.

use egg::Id;
use planner_ir::{Op, Pairing};

use super::{Condition, Needed, Rule};
use crate::raise::make::Make;
use crate::raise::pattern::Match;

/// `h` takes the second half of the last dimension of x, `l` the first, and `c` joins them there.
const HALVES: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the slices are the second and the first half",
    holds: |make, found| {
        let half = make.shape(found.class("x")).last().copied().unwrap_or(0) / 2;
        takes(make, found, "h", half, 1) && takes(make, found, "l", 0, 1) && joins_last(make, found)
    },
};

const NEIGHBOURS: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the slices are the odd and the even elements",
    holds: |make, found| {
        let rank = make.shape(found.class("x")).len();
        let pairs = |class: &str| {
            let shape = make.shape(found.class(class));
            shape.len() == rank + 1 && shape.last() == Some(&1)
        };
        takes(make, found, "h", 1, 2)
            && takes(make, found, "l", 0, 2)
            && pairs("a")
            && pairs("b")
            && matches!(make.op(found.operation("c")), Op::Concat { dim } if *dim == rank)
    },
};

/// As `HALVES`, of every second element from the second and from the first.
const APART: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the slices are every second element from the second and from the first",
    holds: |make, found| {
        takes(make, found, "h", 1, 2) && takes(make, found, "l", 0, 2) && joins_last(make, found)
    },
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "rotary of halves",
            pattern: "(add (mul ?x ?cos) (mul (concat:c (neg (slice:h ?x)) (slice:l ?x)) ?sin))",
            conditions: &[HALVES],
            build: |make, found| rotary(make, found, Pairing::Halves),
        },
        Rule {
            name: "rotary of neighbours",
            pattern: "(add (mul ?x ?cos) (mul (reshape (concat:c ?a=(reshape (neg (slice:h ?x))) \
                      ?b=(reshape (slice:l ?x)))) ?sin))",
            conditions: &[NEIGHBOURS],
            build: |make, found| rotary(make, found, Pairing::Neighbours),
        },
        Rule {
            name: "rotary of halves, half tables",
            pattern: "(concat:c (sub (mul (slice:l ?x) ?cos) (mul (slice:h ?x) ?sin)) \
                      (add (mul (slice:h ?x) ?cos) (mul (slice:l ?x) ?sin)))",
            conditions: &[HALVES],
            build: |make, found| half_tables(make, found, found.class("x")),
        },
        Rule {
            name: "rotary of neighbours, half tables, taken apart",
            pattern: "(concat:c (sub (mul (slice:l ?x) ?cos) (mul (slice:h ?x) ?sin)) \
                      (add (mul (slice:h ?x) ?cos) (mul (slice:l ?x) ?sin)))",
            conditions: &[APART],
            build: |make, found| {
                let x = apart(make, found.class("x"))?;
                half_tables(make, found, x)
            },
        },
    ]
}

fn rotary(make: &mut Make<'_>, found: &Match<'_>, pairing: Pairing) -> Option<Id> {
    let operands = [found.class("x"), found.class("cos"), found.class("sin")];
    make.apply(Op::Rotary(pairing), &operands)
}

/// The rotation of x's halves by tables that are as wide as a half.
fn half_tables(make: &mut Make<'_>, found: &Match<'_>, x: Id) -> Option<Id> {
    let mut doubled = |name: &str| {
        let table = found.class(name);
        let dim = make.shape(table).len().checked_sub(1)?;
        make.apply(Op::Concat { dim }, &[table, table])
    };
    let operands = [x, doubled("cos")?, doubled("sin")?];
    make.apply(Op::Rotary(Pairing::Halves), &operands)
}

/// The even elements of the last dimension, then the odd ones.
fn apart(make: &mut Make<'_>, x: Id) -> Option<Id> {
    let shape = make.shape(x).to_vec();
    let (&last, rest) = shape.split_last()?;
    let pairs = make.reshape(x, &[rest, &[last / 2, 2]].concat())?;
    let rank = rest.len();
    let permutation: Vec<usize> = (0..rank).chain([rank + 1, rank]).collect();
    let transposed = make.transpose(pairs, &permutation)?;
    make.reshape(transposed, &shape)
}

/// Whether a slice takes half of the last dimension, from `start` by `step`, and all of the others.
fn takes(make: &Make<'_>, found: &Match<'_>, name: &str, start: u64, step: i64) -> bool {
    let shape = make.shape(found.class("x"));
    let Op::Slice { starts, steps, sizes } = make.op(found.operation(name)) else {
        return false;
    };
    let Some(last) = shape.len().checked_sub(1) else {
        return false;
    };
    let whole =
        |dim: usize| sizes[dim] == shape[dim] && (sizes[dim] <= 1 || (starts[dim], steps[dim]) == (0, 1));
    (0..last).all(whole)
        && 2 * sizes[last] == shape[last]
        && starts[last] == start
        && (steps[last] == step || sizes[last] == 1)
}

fn joins_last(make: &Make<'_>, found: &Match<'_>) -> bool {
    let last = make.shape(found.class("x")).len() - 1;
    matches!(make.op(found.operation("c")), Op::Concat { dim } if *dim == last)
}
