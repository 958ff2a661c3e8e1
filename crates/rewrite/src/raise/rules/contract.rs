//! What movement around a contraction becomes: labels in another order, labels split, and slices
//! of one operand.

use egg::Id;
use planner_ir::{Contract, Label, Op};

use super::{Condition, Needed, Rule};
use crate::raise::make::Make;
use crate::raise::pattern::Match;
use crate::raise::shape;

const SPLITS: Condition = Condition {
    needed: Needed::ForUse,
    name: "the reshape splits a dimension",
    holds: |make, found| {
        shape::groups(make.shape(found.class("c")), make.shape(found.root()))
            .is_some_and(|groups| groups.iter().any(|group| group.from.len() == 1 && group.to.len() > 1))
    },
};

const MERGES: Condition = Condition {
    needed: Needed::ForUse,
    name: "the reshape only merges dimensions, and merges some",
    holds: |make, found| {
        let Op::Reshape { shape } = make.op(found.operation("r")) else {
            return false;
        };
        shape::groups(make.shape(found.class("x")), shape)
            .is_some_and(|groups| shape::merges(&groups) && !groups.iter().all(shape::Group::is_same))
    },
};

const SINGLE: Condition = Condition {
    needed: Needed::ForUse,
    name: "the reshape drops a dimension of extent 1 that only the right operand has, which is prepared",
    holds: |make, found| make.prepared(found.class("y")) && !single(make, found).is_empty(),
};

pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "left operand transposed",
            pattern: "(contract:c (transpose:t ?x) ?y)",
            conditions: &[],
            build: |make, found| {
                let Contract { left, right, result } = contract(make, found)?;
                let left = untransposed(make, found, &left)?;
                let op = Op::Contract(Contract { left, right, result });
                make.apply(op, &[found.class("x"), found.class("y")])
            },
        },
        Rule {
            name: "right operand transposed",
            pattern: "(contract:c ?y (transpose:t ?x))",
            conditions: &[],
            build: |make, found| {
                let Contract { left, right, result } = contract(make, found)?;
                let right = untransposed(make, found, &right)?;
                let op = Op::Contract(Contract { left, right, result });
                make.apply(op, &[found.class("y"), found.class("x")])
            },
        },
        Rule {
            name: "contraction transposed",
            pattern: "(transpose:t (contract:c ?x ?y))",
            conditions: &[],
            build: |make, found| {
                let Contract { left, right, result } = contract(make, found)?;
                let Op::Transpose { permutation } = make.op(found.operation("t")) else {
                    return None;
                };
                let result = permutation.iter().map(|&dim| result[dim]).collect();
                let op = Op::Contract(Contract { left, right, result });
                make.apply(op, &[found.class("x"), found.class("y")])
            },
        },
        Rule {
            name: "left operand merged",
            pattern: "(contract:c (reshape:r ?x) ?y)",
            conditions: &[MERGES],
            build: |make, found| {
                let contract = contract(make, found)?;
                operand_merged(make, found, contract)
            },
        },
        Rule {
            name: "right operand merged",
            pattern: "(contract:c ?y (reshape:r ?x))",
            conditions: &[MERGES],
            build: |make, found| {
                let contract = contract(make, found)?;
                operand_merged(make, found, swapped(contract))
            },
        },
        Rule {
            name: "contraction split",
            pattern: "(reshape ?c=(contract:c ?x ?y))",
            conditions: &[SPLITS],
            build: result_split,
        },
        Rule {
            name: "single index of a weight",
            pattern: "(reshape ?c=(contract:c ?x ?y))",
            conditions: &[SINGLE],
            build: |make, found| {
                let Contract { left, mut right, mut result } = contract(make, found)?;
                let (x, y) = (found.class("x"), found.class("y"));
                let gone = single(make, found);
                let extents = make.shape(y).iter().zip(&right);
                let shape: Vec<u64> = extents.filter(|(_, it)| !gone.contains(it)).map(|it| *it.0).collect();
                let y = make.reshape(y, &shape)?;
                right.retain(|it| !gone.contains(it));
                result.retain(|it| !gone.contains(it));
                let inner = make.apply(Op::Contract(Contract { left, right, result }), &[x, y])?;
                let shape = make.shape(found.root()).to_vec();
                make.reshape(inner, &shape)
            },
        },
        Rule {
            name: "slice of contraction",
            pattern: "(slice:s (contract:c ?x ?y))",
            conditions: &[],
            build: result_sliced,
        },
    ]
}

fn contract(make: &Make<'_>, found: &Match<'_>) -> Option<Contract> {
    match make.op(found.operation("c")) {
        Op::Contract(contract) => Some(contract.clone()),
        _ => None,
    }
}

/// The labels of extent 1 that a reshape of the contraction drops, of those that only the right
/// operand has.
fn single(make: &Make<'_>, found: &Match<'_>) -> Vec<Label> {
    let Some(Contract { left, result, .. }) = contract(make, found) else {
        return Vec::new();
    };
    let groups = shape::groups(make.shape(found.class("c")), make.shape(found.root())).unwrap_or_default();
    let dropped = groups.into_iter().filter(|group| group.to.is_empty()).flat_map(|group| group.from);
    dropped.map(|dim| result[dim]).filter(|label| !left.contains(label)).collect()
}

/// The contraction of the operands in the other order.
fn swapped(contract: Contract) -> Contract {
    Contract { left: contract.right, right: contract.left, result: contract.result }
}

/// The labels of what the transpose `t` transposes.
fn untransposed(make: &Make<'_>, found: &Match<'_>, labels: &[Label]) -> Option<Vec<Label>> {
    let Op::Transpose { permutation } = make.op(found.operation("t")) else {
        return None;
    };
    let mut result = labels.to_vec();
    for (index, &dim) in permutation.iter().enumerate() {
        result[dim] = labels[index];
    }
    Some(result)
}

/// Labels that are not in use.
struct Fresh(u8);

impl Fresh {
    fn beside(contract: &Contract) -> Self {
        let used = contract.left.iter().chain(&contract.right).map(|label| label.0).max();
        Self(used.map_or(0, |it| it.saturating_add(1)))
    }

    fn next(&mut self) -> Option<Label> {
        let label = Label(self.0);
        self.0 = self.0.checked_add(1)?;
        Some(label)
    }
}

/// Labels with one of them replaced by several.
fn replaced(labels: &[Label], old: Label, new: &[Label]) -> Vec<Label> {
    let each = |&label: &Label| if label == old { new.to_vec() } else { vec![label] };
    labels.iter().flat_map(each).collect()
}

/// A shape with the extent of one label replaced by several.
fn split_extents(shape: &[u64], labels: &[Label], old: Label, extents: &[u64]) -> Vec<u64> {
    let each = |(&extent, &label): (&u64, &Label)| if label == old { extents.to_vec() } else { vec![extent] };
    shape.iter().zip(labels).flat_map(each).collect()
}

/// `contract(reshape(x), y) = reshape(contract'(x, y'))`: a merged dimension's label becomes the
/// labels of what was merged, in y and in the result too. `contract` has x on the left.
fn operand_merged(make: &mut Make<'_>, found: &Match<'_>, contract: Contract) -> Option<Id> {
    let Op::Reshape { shape } = make.op(found.operation("r")).clone() else {
        return None;
    };
    let (x, y) = (found.class("x"), found.class("y"));
    let from = make.shape(x).to_vec();
    let mut fresh = Fresh::beside(&contract);
    let Contract { left, mut right, mut result } = contract;
    let mut labels = Vec::new();
    let mut y_shape = make.shape(y).to_vec();
    for group in shape::groups(&from, &shape)? {
        match group.to.clone().next() {
            None => {
                // A dimension of extent 1 that the reshape dropped stays in the result.
                let label = fresh.next()?;
                labels.push(label);
                result.insert(0, label);
            }
            Some(dim) if group.from.is_empty() => {
                // A dimension of extent 1 that the reshape added goes.
                if right.contains(&left[dim]) {
                    return None;
                }
                result.retain(|label| *label != left[dim]);
            }
            Some(dim) if group.is_same() => labels.push(left[dim]),
            Some(dim) => {
                let new: Option<Vec<Label>> = group.from.clone().map(|_| fresh.next()).collect();
                let new = new?;
                y_shape = split_extents(&y_shape, &right, left[dim], &from[group.from]);
                right = replaced(&right, left[dim], &new);
                result = replaced(&result, left[dim], &new);
                labels.extend(new);
            }
        }
    }
    let y = make.reshape(y, &y_shape)?;
    let inner = make.apply(Op::Contract(Contract { left: labels, right, result }), &[x, y])?;
    let shape = make.shape(found.root()).to_vec();
    make.reshape(inner, &shape)
}

/// `reshape(contract(x, y)) = reshape'(contract'(x', y'))`: dimensions that the reshape splits are
/// split in the operands, which are weights as a rule.
fn result_split(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    let contract = contract(make, found)?;
    let (x, y) = (found.class("x"), found.class("y"));
    let target = make.shape(found.root()).to_vec();
    let groups = shape::groups(make.shape(found.class("c")), &target)?;
    let mut fresh = Fresh::beside(&contract);
    let Contract { mut left, mut right, result } = contract;
    let (mut x_shape, mut y_shape) = (make.shape(x).to_vec(), make.shape(y).to_vec());
    let mut labels = Vec::new();
    for group in groups {
        if group.from.len() != 1 || group.to.len() < 2 {
            labels.extend(result[group.from].iter().copied());
            continue;
        }
        let old = result[group.from.start];
        let new: Option<Vec<Label>> = group.to.clone().map(|_| fresh.next()).collect();
        let (new, extents) = (new?, &target[group.to]);
        x_shape = split_extents(&x_shape, &left, old, extents);
        y_shape = split_extents(&y_shape, &right, old, extents);
        left = replaced(&left, old, &new);
        right = replaced(&right, old, &new);
        labels.extend(new);
    }
    let x = make.reshape(x, &x_shape)?;
    let y = make.reshape(y, &y_shape)?;
    let inner = make.apply(Op::Contract(Contract { left, right, result: labels }), &[x, y])?;
    make.reshape(inner, &target)
}

/// `slice(contract(x, y)) = contract(slice(x), slice(y))`, each operand sliced in the dimensions it
/// has.
fn result_sliced(make: &mut Make<'_>, found: &Match<'_>) -> Option<Id> {
    let contract = contract(make, found)?;
    let Op::Slice { starts, steps, sizes } = make.op(found.operation("s")).clone() else {
        return None;
    };
    let mut operands = [found.class("x"), found.class("y")];
    for (operand, labels) in operands.iter_mut().zip([&contract.left, &contract.right]) {
        let shape = make.shape(*operand).to_vec();
        let place = |label: &Label| contract.result.iter().position(|it| it == label);
        let pick = |(label, &extent): (&Label, &u64)| match place(label) {
            Some(dim) => (starts[dim], steps[dim], sizes[dim]),
            None => (0, 1, extent),
        };
        let picks: Vec<(u64, i64, u64)> = labels.iter().zip(&shape).map(pick).collect();
        if picks
            .iter()
            .zip(&shape)
            .all(|(&(start, step, size), &extent)| (start, step, size) == (0, 1, extent))
        {
            continue;
        }
        let slice = Op::Slice {
            starts: picks.iter().map(|it| it.0).collect(),
            steps: picks.iter().map(|it| it.1).collect(),
            sizes: picks.iter().map(|it| it.2).collect(),
        };
        *operand = make.apply(slice, &[*operand])?;
    }
    make.apply(Op::Contract(contract), &operands)
}
