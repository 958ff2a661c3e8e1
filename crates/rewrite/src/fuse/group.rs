//! Which products of a block can be one product.

use std::collections::BTreeMap;

use planner_ir::{Contract, DType, Graph, Label, NodeId, Op, Source, ValueId};

/// Products of one value by several weights that are one product by the weights put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// What is multiplied.
    pub(super) x: ValueId,
    /// What each of them is, and all of them together are: x on the left, a weight on the right.
    pub(super) contract: Contract,
    /// The dimension of the weights along which they are put together.
    pub(super) along: usize,
    /// The products, in the order in which they are put together; at least two.
    pub(super) members: Vec<Member>,
    /// The value whose elements, in order, are the weights put together, if there is one.
    pub(super) stored: Option<ValueId>,
}

/// One of the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The contraction.
    pub(super) node: NodeId,
    /// Its weight: a prepared value.
    pub(super) weight: ValueId,
}

impl Group {
    /// The dimension of the result that the dimension `along` of the weights becomes.
    pub(super) fn result_dim(&self) -> usize {
        let label = self.contract.right[self.along];
        self.contract.result.iter().position(|it| *it == label).unwrap_or(0)
    }
}

/// The groups of a block, in order of their first products.
pub(super) fn groups(body: &Graph) -> Vec<Group> {
    let prepared = body.prepared();
    let mut found: BTreeMap<(ValueId, DType, Contract), Vec<Member>> = BTreeMap::new();
    for id in body.node_ids() {
        let node = body.node(id);
        let Op::Contract(contract) = &node.op else { continue };
        let [left, right] = node.operands[..] else { continue };
        let (x, weight, contract) = match (prepared[left.0], prepared[right.0]) {
            (false, true) => (left, right, contract.clone()),
            (true, false) => (right, left, swapped(contract)),
            _ => continue,
        };
        if let Some(contract) = canonical(&contract) {
            let known = found.entry((x, body.type_of(weight).dtype, contract)).or_default();
            known.push(Member { node: id, weight });
        }
    }
    let group = |((x, _, contract), members)| group(body, x, contract, members);
    let mut groups: Vec<Group> = found.into_iter().filter_map(group).collect();
    groups.sort_by_key(|group| group.members.iter().map(|member| member.node).min());
    groups
}

fn group(body: &Graph, x: ValueId, contract: Contract, mut members: Vec<Member>) -> Option<Group> {
    if members.len() < 2 {
        return None;
    }
    let shape = |member: &Member| &body.type_of(member.weight).shape;
    let differs = |dim: &usize| members.iter().any(|member| shape(member)[*dim] != shape(&members[0])[*dim]);
    let own = |dim: &usize| !contract.left.contains(&contract.right[*dim]);
    let dims = 0..contract.right.len();
    let differing: Vec<usize> = dims.clone().filter(differs).collect();
    // Where all are alike, along the outermost one: heads rather than elements of heads.
    let along = match differing[..] {
        [] => dims.clone().find(own)?,
        [dim] if own(&dim) => dim,
        _ => return None,
    };
    let stored = stored(body, &mut members, along);
    Some(Group { x, contract, along, members, stored })
}

/// The contraction of the operands in the other order.
fn swapped(contract: &Contract) -> Contract {
    Contract { left: contract.right.clone(), right: contract.left.clone(), result: contract.result.clone() }
}

/// The contraction with its labels numbered by where they stand: on the left, then in the result.
/// Nothing if the right operand has a label of its own that the result lacks.
fn canonical(contract: &Contract) -> Option<Contract> {
    let mut known: Vec<Label> = Vec::new();
    for label in contract.left.iter().chain(&contract.result) {
        if !known.contains(label) {
            known.push(*label);
        }
    }
    let number = |label: &Label| {
        let place = known.iter().position(|it| it == label)?;
        u8::try_from(place).ok().map(Label)
    };
    let numbers = |labels: &[Label]| labels.iter().map(number).collect::<Option<Vec<Label>>>();
    Some(Contract {
        left: numbers(&contract.left)?,
        right: numbers(&contract.right)?,
        result: numbers(&contract.result)?,
    })
}

/// The value of which the weights are slices, one after another, that together are all of it; the
/// members are then brought into the order of the slices.
///
/// A weight is `slice(w)` or `reshape(slice(w))`. Slices along a dimension, put together, are `w`
/// row by row; reshaped and put together along another one they are so too if as many elements
/// stand before that dimension as before the one that was sliced: each run of `w` between two of
/// these is then made of the same pieces in the same order.
fn stored(body: &Graph, members: &mut Vec<Member>, along: usize) -> Option<ValueId> {
    let mut pieces: Vec<(Piece, Member)> = Vec::new();
    for &member in members.iter() {
        pieces.push((Piece::of(body, member.weight)?, member));
    }
    pieces.sort_by_key(|(piece, member)| (piece.start, member.node));
    let whole = pieces[0].0.whole;
    let dim = pieces[0].0.dim;
    let before = |shape: &[u64], dim: usize| shape[..dim].iter().product::<u64>();
    let mut next = 0;
    for (piece, member) in &pieces {
        let shape = &body.type_of(member.weight).shape;
        let fits = before(shape, along) == before(&body.type_of(whole).shape, dim);
        if (piece.whole, piece.dim, piece.start) != (whole, dim, next) || !fits {
            return None;
        }
        next += piece.size;
    }
    if next != body.type_of(whole).shape[dim] {
        return None;
    }
    *members = pieces.into_iter().map(|(_, member)| member).collect();
    Some(whole)
}

/// A part of a value along one of its dimensions.
struct Piece {
    whole: ValueId,
    dim: usize,
    start: u64,
    size: u64,
}

impl Piece {
    /// What a weight is a piece of.
    fn of(body: &Graph, weight: ValueId) -> Option<Self> {
        let maker = |value: ValueId| match body.value(value).source {
            Source::Result { node, .. } => Some(body.node(node)),
            _ => None,
        };
        let mut node = maker(weight)?;
        if let Op::Reshape { .. } = node.op {
            node = maker(node.operands[0])?;
        }
        let Op::Slice { starts, steps, sizes } = &node.op else { return None };
        let whole = node.operands[0];
        let extents = &body.type_of(whole).shape;
        let cut: Vec<usize> = (0..extents.len()).filter(|&dim| sizes[dim] != extents[dim]).collect();
        let [dim] = cut[..] else { return None };
        let forward = steps.iter().all(|&step| step == 1);
        forward.then_some(Self { whole, dim, start: starts[dim], size: sizes[dim] })
    }
}
