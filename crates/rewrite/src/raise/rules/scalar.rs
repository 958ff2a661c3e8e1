//! Arithmetic with known numbers: one spelling of several, and factors moved outward until they
//! meet what absorbs them.

use egg::Id;
use planner_ir::{Binary, Op, Unary};

use super::{Condition, Needed, Rule};
use crate::raise::make::Make;
use crate::raise::pattern::Match;

const FLOAT: Condition = Condition {
    needed: Needed::ForTruth,
    name: "elements are floating-point numbers",
    holds: |make, found| make.type_of(found.root()).dtype.is_float(),
};

/// `#c` is finite and not so large that a product with it leaves the range.
const MODEST: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the factor is of modest size",
    holds: |make, found| make.number(found.class("c")).is_some_and(|it| (1e-8..=1e8).contains(&it.abs())),
};

const NOT_NUMBER: Condition = Condition {
    needed: Needed::ForUse,
    name: "the other factor is no number",
    holds: |make, found| make.number(found.class("y")).is_none(),
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "square is product",
            pattern: "(pow ?x 2)",
            conditions: &[FLOAT],
            build: |make, found| make.binary(Binary::Mul, found.class("x"), found.class("x")),
        },
        Rule {
            name: "cube is product",
            pattern: "(pow ?x 3)",
            conditions: &[FLOAT],
            build: |make, found| {
                let square = make.binary(Binary::Mul, found.class("x"), found.class("x"))?;
                make.binary(Binary::Mul, found.class("x"), square)
            },
        },
        Rule {
            name: "cube from the left",
            pattern: "(mul (mul ?x ?x) ?x)",
            conditions: &[FLOAT],
            build: |make, found| {
                let square = make.binary(Binary::Mul, found.class("x"), found.class("x"))?;
                make.binary(Binary::Mul, found.class("x"), square)
            },
        },
        Rule {
            name: "half power is root",
            pattern: "(pow ?x 0.5)",
            conditions: &[FLOAT],
            build: |make, found| make.unary(Unary::Sqrt, found.class("x")),
        },
        Rule {
            name: "power minus half is reciprocal root",
            pattern: "(pow ?x -0.5)",
            conditions: &[FLOAT],
            build: |make, found| {
                let root = make.unary(Unary::Sqrt, found.class("x"))?;
                make.unary(Unary::Reciprocal, root)
            },
        },
        Rule {
            name: "one over",
            pattern: "(div 1 ?x)",
            conditions: &[FLOAT],
            build: |make, found| make.unary(Unary::Reciprocal, found.class("x")),
        },
        Rule {
            name: "times reciprocal",
            pattern: "(mul ?x (reciprocal ?y))",
            conditions: &[FLOAT],
            build: |make, found| make.binary(Binary::Div, found.class("x"), found.class("y")),
        },
        Rule {
            name: "divided by number",
            pattern: "(div ?x #c)",
            conditions: &[FLOAT, MODEST],
            build: |make, found| {
                let divisor = make.number(found.class("c"))?;
                make.scaled(found.class("x"), 1.0 / divisor)
            },
        },
        Rule {
            name: "times one",
            pattern: "(mul ?x 1)",
            conditions: &[],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "plus zero",
            pattern: "(add ?x 0)",
            conditions: &[],
            build: |_, found| Some(found.class("x")),
        },
        Rule {
            name: "two factors",
            pattern: "(mul (mul ?x #c) #d)",
            conditions: &[FLOAT],
            build: |make, found| {
                let factor = make.number(found.class("c"))? * make.number(found.class("d"))?;
                make.scaled(found.class("x"), factor)
            },
        },
        Rule {
            name: "factor out of product",
            pattern: "(mul (mul ?x #c) ?y)",
            conditions: &[FLOAT, NOT_NUMBER],
            build: |make, found| {
                let product = make.binary(Binary::Mul, found.class("x"), found.class("y"))?;
                outward(make, found, product)
            },
        },
        Rule {
            name: "factor out of dividend",
            pattern: "(div (mul ?x #c) ?y)",
            conditions: &[FLOAT, NOT_NUMBER],
            build: |make, found| {
                let quotient = make.binary(Binary::Div, found.class("x"), found.class("y"))?;
                outward(make, found, quotient)
            },
        },
        Rule {
            name: "factor out of movement",
            pattern: "(movement:o (mul ?x #c))",
            conditions: &[FLOAT],
            build: |make, found| through(make, found, &[found.class("x")]),
        },
        Rule {
            name: "factor out of repetition",
            pattern: "(expand:o (mul ?x #c))",
            conditions: &[FLOAT],
            build: |make, found| through(make, found, &[found.class("x")]),
        },
        Rule {
            name: "factor out of left operand",
            pattern: "(contract:o (mul ?x #c) ?y)",
            conditions: &[FLOAT],
            build: |make, found| through(make, found, &[found.class("x"), found.class("y")]),
        },
        Rule {
            name: "factor out of right operand",
            pattern: "(contract:o ?y (mul ?x #c))",
            conditions: &[FLOAT],
            build: |make, found| through(make, found, &[found.class("y"), found.class("x")]),
        },
        Rule {
            name: "factor out of rotation",
            pattern: "(rotary:o (mul ?x #c) ?y ?z)",
            conditions: &[FLOAT],
            build: |make, found| {
                through(make, found, &[found.class("x"), found.class("y"), found.class("z")])
            },
        },
    ]
}

fn outward(make: &mut Make<'_>, found: &Match<'_>, inner: Id) -> Option<Id> {
    let factor = make.number(found.class("c"))?;
    make.scaled(inner, factor)
}

/// The operation on operands of which one lost a factor, times the factor.
fn through(make: &mut Make<'_>, found: &Match<'_>, operands: &[Id]) -> Option<Id> {
    let op: Op = make.op(found.operation("o")).clone();
    let inner = make.apply(op, operands)?;
    outward(make, found, inner)
}
