//! What masks say of pairs that depends on what a program is given: documents, prefixes, images.
//!
//! A relation is a truth value of which a mask is made: that two places have the same number, or something
//! that is so of a key or of a query alone. What a mask is follows from what it hides if all of them are true,
//! or none.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Binary, DType, Graph, Op, Source, Type, Unary, ValueId};

use super::{APART, Seeing};
use crate::raise::form::Form;
use crate::raise::form::bounds::Bounds;

/// The pairs of a mask that differs from query to query.
pub(super) struct Scores<'a> {
    mask: ValueId,
    type_: &'a Type,
    /// How far a query's own key is from it, and how far the first and the last of all pairs are apart.
    own: i64,
    nearest: i64,
    farthest: i64,
}

impl<'a> Scores<'a> {
    pub(super) fn of(graph: &'a Graph, mask: ValueId, scores: [u64; 2]) -> Self {
        let [queries, keys] = scores.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
        let (own, nearest, farthest) = (keys - queries, 1 - queries, keys - 1);
        Self { mask, type_: graph.type_of(mask), own, nearest, farthest }
    }

    fn seeing<T>(&self, forms: &[Form], of: impl FnOnce(&Seeing<'_>) -> T) -> T {
        let bands = forms[self.mask.0].bands(self.type_);
        of(&Seeing { bands: &bands, dtype: self.type_.dtype })
    }

    /// Whether later keys are hidden, beside a query's own.
    pub(super) fn hides_later(&self, forms: &[Form]) -> bool {
        self.seeing(forms, |seeing| {
            let beside = seeing.bands.at(self.own);
            let is_hidden = |it| seeing.removes(it) || seeing.hides(it, beside);
            seeing.all(self.own + 1, self.farthest, is_hidden)
        })
    }

    /// Whether the first later key is seen, beside a query's own.
    pub(super) fn shows_next(&self, forms: &[Form]) -> bool {
        let next = self.own + 1;
        self.seeing(forms, |seeing| seeing.all(next, next, |it| seeing.shows(it, seeing.bands.at(self.own))))
    }

    /// Whether queries see their own key, and no later one.
    pub(super) fn is_causal(&self, forms: &[Form]) -> bool {
        self.hides_later(forms) && self.seeing(forms, |seeing| seeing.leaves(seeing.bands.at(self.own)))
    }

    /// Whether all keys are seen, or all up to a query's own.
    pub(super) fn shows_all(&self, forms: &[Form], earlier: bool) -> bool {
        let last = if earlier { self.own } else { self.farthest };
        self.seeing(forms, |seeing| seeing.all(self.nearest, last, |it| seeing.leaves(it)))
    }

    /// Whether all keys are hidden, or all up to a query's own.
    pub(super) fn hides_all(&self, forms: &[Form], earlier: bool) -> bool {
        let last = if earlier { self.own } else { self.farthest };
        let is_low = |it: Option<Bounds>| it.is_some_and(|it| it.most <= -APART);
        self.seeing(forms, |seeing| {
            let is_number = seeing.dtype != DType::Bool;
            seeing.all(self.nearest, last, |it| seeing.removes(it) || is_number && is_low(it))
        })
    }
}

/// The relations that a mask is made of.
#[derive(Default)]
pub(super) struct Relations {
    /// That two places have the same number.
    same: BTreeSet<ValueId>,
    /// What is so of a key.
    keys: BTreeSet<ValueId>,
    /// What is so of a query.
    queries: BTreeSet<ValueId>,
}

impl Relations {
    pub(super) fn of(graph: &Graph, mask: ValueId) -> Self {
        let mut relations = Self::default();
        let (mut open, mut seen) = (vec![mask], BTreeSet::new());
        while let Some(value) = open.pop() {
            if !seen.insert(value) || relations.add(graph, value) {
                continue;
            }
            let Source::Result { node, .. } = graph.value(value).source else { continue };
            let node = graph.node(node);
            let goes_on = match &node.op {
                Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) | Op::Expand { .. } => true,
                Op::Reshape { .. } => {
                    let [from, to] = [node.operands[0], value].map(|it| graph.type_of(it).shape.iter().rev());
                    from.take(2).eq(to.take(2))
                }
                _ => false,
            };
            if goes_on {
                open.extend(&node.operands);
            }
        }
        relations
    }

    /// Adds a value if it is a relation.
    fn add(&mut self, graph: &Graph, value: ValueId) -> bool {
        if graph.type_of(value).dtype != DType::Bool || !depends_on_outside(graph, value) {
            return false;
        }
        let set = match varies(graph, value) {
            [false, _] => &mut self.keys,
            [true, false] => &mut self.queries,
            [true, true] if is_same(graph, value) => &mut self.same,
            [true, true] => return false,
        };
        set.insert(value)
    }

    /// Those of two places, if there are any, all true or all false.
    pub(super) fn if_same(&self, truth: bool) -> Option<BTreeMap<ValueId, bool>> {
        (!self.same.is_empty()).then(|| self.same.iter().map(|&it| (it, truth)).collect())
    }

    /// All of them, if there are any, as false.
    pub(super) fn if_none(&self) -> Option<BTreeMap<ValueId, bool>> {
        let all: BTreeMap<ValueId, bool> =
            [&self.same, &self.keys, &self.queries].into_iter().flatten().map(|&it| (it, false)).collect();
        (!all.is_empty()).then_some(all)
    }

    /// The one that says that two places have the same number, if there is one, and the numbers of queries and of
    /// keys; none where something is so of queries alone.
    pub(super) fn documents(&self, graph: &Graph) -> Option<(ValueId, [ValueId; 2])> {
        let mut same = self.same.iter();
        let (Some(&same), None, true) = (same.next(), same.next(), self.queries.is_empty()) else {
            return None;
        };
        let Source::Result { node, .. } = graph.value(same).source else { return None };
        let &[a, b] = &graph.node(node).operands[..] else { return None };
        let is_whole = graph.type_of(a).dtype != DType::U64;
        is_whole.then(|| (same, if varies(graph, a)[0] { [a, b] } else { [b, a] }))
    }

    /// Those that are so of keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.keys.iter().copied()
    }

    /// Whether all are of keys alone.
    pub(super) fn are_of_keys(&self) -> bool {
        self.same.is_empty() && self.queries.is_empty()
    }
}

/// Whether a value differs along queries, and along keys: what is repeated does not.
fn varies(graph: &Graph, value: ValueId) -> [bool; 2] {
    if let Source::Result { node, .. } = graph.value(value).source
        && let (Op::Expand { .. } | Op::Cast(_) | Op::Unary(Unary::Not), &[x]) =
            (&graph.node(node).op, &graph.node(node).operands[..])
    {
        return varies(graph, x);
    }
    let mut sizes = graph.type_of(value).shape.iter().rev().map(|&it| it > 1);
    let keys = sizes.next().unwrap_or(false);
    [sizes.next().unwrap_or(false), keys]
}

/// Whether a value says of pairs that query and key have the same of some integers.
fn is_same(graph: &Graph, value: ValueId) -> bool {
    let Source::Result { node, .. } = graph.value(value).source else { return false };
    let (Op::Binary(Binary::Equal), &[a, b]) = (&graph.node(node).op, &graph.node(node).operands[..]) else {
        return false;
    };
    let apart = matches!(
        [varies(graph, a), varies(graph, b)],
        [[true, false], [false, true]] | [[false, true], [true, false]]
    );
    apart && !graph.type_of(a).dtype.is_float() && moved(graph, a) == moved(graph, b)
}

/// The value whose elements another one has elsewhere.
fn moved(graph: &Graph, value: ValueId) -> ValueId {
    let Source::Result { node, .. } = graph.value(value).source else { return value };
    let node = graph.node(node);
    match node.op {
        Op::Expand { .. } | Op::Reshape { .. } | Op::Transpose { .. } | Op::Cast(_) => {
            moved(graph, node.operands[0])
        }
        _ => value,
    }
}

/// Whether a value depends on something that is given, or on a weight.
pub(super) fn depends_on_outside(graph: &Graph, value: ValueId) -> bool {
    let mut open = vec![value];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        match graph.value(id).source {
            Source::Result { node, .. } if seen.insert(id) => open.extend(&graph.node(node).operands),
            Source::Result { .. } => {}
            _ => return true,
        }
    }
    false
}
