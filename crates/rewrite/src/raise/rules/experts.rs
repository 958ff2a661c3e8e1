//! Mixtures of experts, written as products with the weights gathered for each use.

use egg::Id;
use planner_ir::{Binary, Contract, Label, Op, Real, Reduction, Scatter, Type};

use super::{Condition, Needed, Rule};
use crate::raise::make::Make;
use crate::raise::pattern::Match;

const UNGATHERED: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the slice keeps the gathered dimension whole",
    holds: |make, found| {
        let rows = make.shape(found.class("i")).len() - 1;
        match make.op(found.operation("s")) {
            Op::Slice { starts, steps, sizes } => {
                let shape = make.shape(found.class("g"));
                (0..rows).all(|dim| {
                    sizes[dim] == shape[dim] && (sizes[dim] <= 1 || (starts[dim], steps[dim]) == (0, 1))
                })
            }
            _ => false,
        }
    },
};

const BY_ROW: Condition = Condition {
    needed: Needed::ForUse,
    name: "whole experts are gathered, one for each row",
    holds: |make, found| {
        matches!(make.op(found.operation("g")), Op::GatherNd { batch_dims: 0 })
            && make.shape(found.class("i")).last() == Some(&1)
    },
};

/// `xs` is `x: [t, 1, h]`, each row repeated as often as the sum has addends.
const SUMS_USES: Condition = Condition {
    needed: Needed::ForUse,
    name: "the sum is over the uses of each token",
    holds: |make, found| uses(make, found).is_some(),
};

const BOUNDED: Condition = Condition {
    needed: Needed::ForTruth,
    name: "the products are bounded by one number, the second from below by its negative too",
    holds: |make, found| {
        let [most, least] = ["l", "k"].map(|it| make.number(found.class(it)));
        *make.op(found.operation("n")) == Op::Binary(Binary::Min)
            && *make.op(found.operation("y")) == Op::Binary(Binary::Max)
            && most.zip(least).is_some_and(|(most, least)| most > 0.0 && most.total_cmp(&-least).is_eq())
    },
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "slice of gathered rows",
            pattern: "(slice:s ?g=(gathernd:g ?w ?i))",
            conditions: &[BY_ROW, UNGATHERED],
            build: |make, found| {
                let rows = make.shape(found.class("i")).len() - 1;
                let Op::Slice { starts, steps, sizes } = make.op(found.operation("s")).clone() else {
                    return None;
                };
                let gather = make.op(found.operation("g")).clone();
                let w = found.class("w");
                let experts = *make.shape(w).first()?;
                let inner = Op::Slice {
                    starts: [vec![0], starts[rows..].to_vec()].concat(),
                    steps: [vec![1], steps[rows..].to_vec()].concat(),
                    sizes: [vec![experts], sizes[rows..].to_vec()].concat(),
                };
                let sliced = make.apply(inner, &[w])?;
                make.apply(gather, &[sliced, found.class("i")])
            },
        },
        Rule {
            name: "experts",
            pattern: "(reduce:s (reshape:r (mul (contract:d (gated:a (contract:u ?xs=(reshape:m (expand:e ?x)) \
                      (gathernd:g ?up ?i)) (contract:v ?xs (gathernd:g ?gate ?i))) (gathernd:g ?down ?i)) ?w)))",
            conditions: &[BY_ROW, SUMS_USES],
            build: |make, found| experts(make, found, None),
        },
        Rule {
            name: "bounded experts",
            pattern: "(reduce:s (reshape:r (mul (add (contract:d (gated:a \
                      (binary:n (add (contract:u ?xs=(reshape:m (expand:e ?x)) (gathernd:g ?up ?i)) \
                      (gathernd:g ?b1 ?i)) #l) \
                      (add (binary:n (binary:y (add (contract:v ?xs (gathernd:g ?gate ?i)) (gathernd:g ?b2 ?i)) #k) \
                      #l) 1)) (gathernd:g ?down ?i)) (gathernd:g ?b3 ?i)) ?w)))",
            conditions: &[BY_ROW, SUMS_USES, BOUNDED],
            build: |make, found| experts(make, found, make.number(found.class("l"))),
        },
    ]
}

/// The shape `[t, k, h]` of the tokens, repeated for each use; the sum is over k.
fn uses(make: &Make<'_>, found: &Match<'_>) -> Option<[u64; 3]> {
    let Op::Expand { shape } = make.op(found.operation("e")) else {
        return None;
    };
    let [t, k, h] = shape[..] else {
        return None;
    };
    let sum = Op::Reduce { reduction: Reduction::Sum, dims: vec![1] };
    let summed = make.shape(found.root());
    let Op::Reshape { shape: apart } = make.op(found.operation("r")) else {
        return None;
    };
    let right = make.shape(found.class("x")) == [t, 1, h]
        && make.shape(found.class("xs")) == [t * k, h]
        && *make.op(found.operation("s")) == sum
        && apart.len() == 3
        && apart[..2] == [t, k]
        && summed.len() == 3
        && make.shape(found.class("w")) == [t * k, 1];
    right.then_some([t, k, h])
}

/// The experts; of bounded ones each adds numbers to its products, the last of which is a product of its own: of
/// gates and these numbers.
fn experts(make: &mut Make<'_>, found: &Match<'_>, limit: Option<f64>) -> Option<Id> {
    let [t, k, h] = uses(make, found)?;
    let Op::Gated(activation) = *make.op(found.operation("a")) else {
        return None;
    };
    let up = weights(make, found, "u", "up")?;
    let gate = weights(make, found, "v", "gate")?;
    let down = weights(make, found, "d", "down")?;
    let experts = *make.shape(up).first()?;
    let x = make.reshape(found.class("x"), &[t, h])?;
    let chosen = make.reshape(found.class("i"), &[t, k])?;
    let weights = make.reshape(found.class("w"), &[t, k])?;
    let dtype = make.type_of(weights).dtype;
    let none = make.fill(Type::new(dtype, vec![t, experts]), 0.0)?;
    let scatter = Op::ScatterElements { dim: 1, scatter: Scatter::Add };
    let gates = make.apply(scatter, &[none, chosen, weights])?;
    let mut operands = vec![x, gates, up, gate, down];
    if limit.is_some() {
        operands.extend(["b1", "b2"].map(|it| found.class(it)));
    }
    let op = Op::Experts { activation, limit: limit.map(Real), active: k };
    let mut made = make.apply(op, &operands)?;
    if limit.is_some() {
        let [token, expert, hidden] = [0, 1, 2].map(Label);
        let (left, right, result) = (vec![token, expert], vec![expert, hidden], vec![token, hidden]);
        let added =
            make.apply(Op::Contract(Contract { left, right, result }), &[gates, found.class("b3")])?;
        made = make.binary(Binary::Add, made, added)?;
    }
    let shape = make.shape(found.root()).to_vec();
    make.reshape(made, &shape)
}

/// The weights of a contraction of rows with gathered weights, as `[expert, out, in]`.
fn weights(make: &mut Make<'_>, found: &Match<'_>, contraction: &str, name: &str) -> Option<Id> {
    let Op::Contract(Contract { left, right, result }) = make.op(found.operation(contraction)).clone() else {
        return None;
    };
    let [row, input] = <[Label; 2]>::try_from(left).ok()?;
    let [also_row, output] = <[Label; 2]>::try_from(result).ok()?;
    if row != also_row || right.first() != Some(&row) || input == output {
        return None;
    }
    make.arranged(found.class(name), &right, &[row, output, input])
}
