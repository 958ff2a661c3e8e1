//! Activations and gated units, in the spellings of the exporters. Numeric factors have been moved
//! outward before (`scalar`).

use planner_ir::{Op, Unary};

use super::{Condition, Needed, Rule};

const SAME_SHAPE: Condition = Condition {
    needed: Needed::ForUse,
    name: "both have the shape of the result",
    holds: |make, found| {
        let shape = make.shape(found.root());
        make.shape(found.class("x")) == shape && make.shape(found.class("y")) == shape
    },
};

const DIFFERENT: Condition = Condition {
    needed: Needed::ForUse,
    name: "the other factor is not the operand itself",
    holds: |_, found| found.class("x") != found.class("y"),
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "sigmoid",
            pattern: "(reciprocal (add (exp (neg ?x)) 1))",
            conditions: &[],
            build: |make, found| make.unary(Unary::Sigmoid, found.class("x")),
        },
        Rule {
            name: "silu",
            pattern: "(mul ?x (sigmoid ?x))",
            conditions: &[],
            build: |make, found| make.unary(Unary::Silu, found.class("x")),
        },
        Rule {
            name: "quick gelu",
            pattern: "(mul ?x (sigmoid (mul ?x 1.702)))",
            conditions: &[],
            build: |make, found| make.unary(Unary::GeluQuick, found.class("x")),
        },
        Rule {
            name: "gelu",
            pattern: "(mul (mul ?x (add (erf (mul ?x 0.7071067811865476)) 1)) 0.5)",
            conditions: &[],
            build: |make, found| make.unary(Unary::Gelu, found.class("x")),
        },
        Rule {
            name: "gelu, half inside",
            pattern: "(mul ?x (mul (add (erf (mul ?x 0.7071067811865476)) 1) 0.5))",
            conditions: &[],
            build: |make, found| make.unary(Unary::Gelu, found.class("x")),
        },
        Rule {
            name: "gelu by tanh",
            pattern: "(mul (mul ?x (add (tanh (mul (add ?x (mul (mul ?x (mul ?x ?x)) 0.044715)) \
                      0.7978845608028654)) 1)) 0.5)",
            conditions: &[],
            build: |make, found| make.unary(Unary::GeluTanh, found.class("x")),
        },
        Rule {
            name: "gelu by tanh, factored",
            pattern: "(mul (mul ?x (add (tanh (mul (mul ?x (add (mul (mul ?x ?x) 0.044715) 1)) \
                      0.7978845608028654)) 1)) 0.5)",
            conditions: &[],
            build: |make, found| make.unary(Unary::GeluTanh, found.class("x")),
        },
        Rule {
            name: "gated unit",
            pattern: "(mul (activation:a ?x) ?y)",
            conditions: &[SAME_SHAPE, DIFFERENT],
            build: |make, found| match make.op(found.operation("a")) {
                Op::Unary(unary) => {
                    let unary = *unary;
                    make.apply(Op::Gated(unary), &[found.class("x"), found.class("y")])
                }
                _ => None,
            },
        },
    ]
}
