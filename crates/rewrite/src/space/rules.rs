//! What is equal to what: the two families of rules, derived from loops.

use std::collections::BTreeSet;
use std::sync::Arc;

use egg::{Applier, EGraph, Id, PatternAst, Rewrite, SearchMatches, Searcher, Subst, Symbol, Var};
use planner_ir::{AxisId, Digit, Layout, Mesh, Move, NodeId, Partition, Routing, ValueId};

use super::alike::Passing;
use super::offsets::{self, Indexed};
use super::stripes;
use super::suited::{fits, is_skewed, splits};
use super::temporal::in_time;
use super::term::{Denoted, Facts, Moves, Term, compute};
use super::wide_axes;

type Space = EGraph<Term, Facts>;

/// An operation's work, split over one more axis.
///
/// ```text
/// work(op, P)(x..) makes y in layout(P)   =>   work(op, P + [loop split by axis])(x'..) makes y in layout(P')
/// work(op, P)(x..) makes y in layout(P)   =>   work(op, P + [loops split by axes and time])(x'..) ...
/// ```
///
/// The axis comes after all that `P` uses, so that every partition is made once, from one other.
/// It splits a loop that is mapped or summed, or the operation is linear in some operands and the
/// axis's sum is still owed by them.
pub(super) fn partition() -> Rewrite<Term, Facts> {
    rule("partition", |space, _, denoted| match denoted {
        Denoted::Held { value, layout } => {
            let facts = &mut space.analysis;
            let carried = carried(facts, value, facts.alike.layouts.get(layout)).into_iter();
            let carried: Vec<(NodeId, usize)> =
                carried.map(|(node, it)| (node, facts.alike.partitions.number(it))).collect();
            carried.into_iter().map(|(node, it)| compute(space, node, it)).collect()
        }
        Denoted::Work { node, partition } => {
            let more = split_further(&mut space.analysis, node, partition);
            more.iter().map(|&it| compute(space, node, it)).collect()
        }
        Denoted::Nothing => vec![],
    })
}

/// A value, moved.
///
/// ```text
/// held(v, L)   =>   held(v, L') = move(held(v, L))     where v is held in L' by something
/// ```
///
/// Of values that are held alike the first only: the moves of the others are the same.
pub(super) fn moves() -> Rewrite<Term, Facts> {
    rule("moves", |space, class, denoted| match denoted {
        Denoted::Held { value, layout } => {
            let facts = &mut space.analysis;
            if facts.held.get(value.0, layout).is_none() {
                return vec![];
            }
            let permuted = permutations(facts, value, layout);
            let kind = facts.kinds[value.0];
            let steps = match facts.steps.get(kind, layout) {
                Some(steps) => Moves::clone(steps),
                None => {
                    let moves = candidates(facts, value, facts.alike.layouts.get(layout));
                    let steps: Moves = numbered(facts, value, layout, moves).into();
                    facts.steps.insert(kind, layout, Moves::clone(&steps));
                    steps
                }
            };
            let wanted = |it: &&(usize, usize)| facts.held.get(value.0, it.1).is_some();
            let steps: Vec<usize> = steps.iter().chain(&permuted).filter(wanted).map(|it| it.0).collect();
            steps.into_iter().map(|step| space.add(Term::Move { step, from: class })).collect()
        }
        _ => vec![],
    })
}

/// Moves of a value in a layout, with the layout that each leads to, if anything is held in it.
fn numbered(facts: &mut Facts, value: ValueId, layout: usize, moves: Vec<Move>) -> Vec<(usize, usize)> {
    let before = facts.alike.layouts.get(layout);
    let type_ = &facts.types[value.0];
    let to = |step: Move| {
        let after = step.apply(&facts.mesh, type_, before).ok()?;
        Some((step, facts.alike.layouts.find(&after)?))
    };
    let found: Vec<(Move, usize)> = moves.into_iter().filter_map(to).collect();
    let number = |(step, after): (Move, usize)| (facts.moves.number(step), after);
    let found: Vec<(usize, usize)> = found.into_iter().map(number).collect();
    let kind = facts.kinds[value.0];
    let known = facts.moved.get(kind, layout).map_or(&[][..], Vec::as_slice);
    facts.moved.insert(kind, layout, [known, &found].concat());
    found
}

/// The partitions that split further, by number: found once for operations that are partitioned alike.
fn split_further(facts: &mut Facts, node: NodeId, partition: usize) -> Arc<[usize]> {
    let kind = facts.alike(node);
    if let Some(known) = facts.alike.further.get(kind, partition) {
        return Arc::clone(known);
    }
    let base = facts.alike.partitions.get(partition);
    let found = match base.routed[..] {
        [] => [further(facts, node, base), in_time(facts, node, base), routed(facts, node, base)].concat(),
        _ => Vec::new(),
    };
    let more: Arc<[usize]> = found.into_iter().map(|it| facts.alike.partitions.number(it)).collect();
    facts.alike.further.insert(kind, partition, Arc::clone(&more));
    more
}

/// What comes of splitting an operation further and further.
pub(super) struct Split {
    /// How many partitions, the whole operation included.
    pub(super) partitions: usize,
    /// In how many layouts each of its operands and results is then.
    pub(super) layouts: Vec<usize>,
}

/// What comes of splitting an operation.
pub(super) fn split(facts: &mut Facts, node: NodeId, whole: Partition) -> Split {
    let mut found = vec![facts.alike.partitions.number(whole)];
    let mut known: BTreeSet<usize> = found.iter().copied().collect();
    let mut layouts: Vec<BTreeSet<usize>> = Vec::new();
    while let Some(base) = found.pop() {
        let ends = facts.ends(node, base);
        layouts.resize(ends.operands.len() + ends.results.len(), BTreeSet::new());
        for (layouts, &it) in layouts.iter_mut().zip(ends.operands.iter().chain(&ends.results)) {
            layouts.insert(it);
        }
        let more = split_further(facts, node, base);
        found.extend(more.iter().copied().filter(|it| known.insert(*it)));
    }
    Split { partitions: known.len(), layouts: layouts.iter().map(BTreeSet::len).collect() }
}

/// The partitions that split over one more axis.
fn further(facts: &Facts, node: NodeId, base: &Partition) -> Vec<Partition> {
    let Some(loops) = facts.loops(node) else { return vec![] };
    let operation: Indexed<'_> = (loops, facts.operands(node), facts.results(node));
    let last = base.axes().into_iter().chain(base.passed.iter().copied()).max();
    let mut partitions = Vec::new();
    for axis in wide_axes(&facts.mesh).filter(|&axis| last.is_none_or(|last| axis > last)) {
        for it in loops.ids().filter(|&it| loops.get(it).role.splits_at_once()) {
            let begin = offsets::of_loop(&operation, it, &facts.offsets).into_iter();
            let suits = |&it: &u64, size| stripes::suits(&facts.mesh, axis, size, it, facts.striped());
            for offset in begin.filter(|offset| suits(offset, loops.get(it).size)) {
                let mut split = base.clone();
                if extend(&mut split.loops[it.0], offset, Digit::axis(&facts.mesh, axis)) {
                    partitions.push(split);
                }
            }
        }
        if facts.passing(node) == Passing::Offered {
            for through in 0..loops.linear.len() {
                if base.passed.is_empty() || base.through == through {
                    let mut passed = base.clone();
                    passed.passed.push(axis);
                    passed.through = through;
                    partitions.push(passed);
                }
            }
        }
    }
    partitions.retain(|it| facts.splits().allow(splits(it)) && fits(facts, node, it));
    partitions
}

/// The same work where rows are routed to it: at rest they are split by the axes that split what they use,
/// too, wherever splits of rows may begin.
fn routed(facts: &Facts, node: NodeId, base: &Partition) -> Vec<Partition> {
    let Some(loops) = facts.loops(node) else { return vec![] };
    let Some(Routing { rows, parts, .. }) = loops.routed.filter(|_| base.steps == 1) else { return vec![] };
    let split: Option<Vec<AxisId>> = base.loops[parts.0].iter().map(Digit::plain).collect();
    let Some(axes) = split.filter(|axes| !axes.is_empty() && base.passed.is_empty()) else { return vec![] };
    let operation: Indexed<'_> = (loops, facts.operands(node), facts.results(node));
    let offsets = offsets::of_loop(&operation, rows, &facts.offsets);
    let own = base.loops[rows.0].len();
    let mut found = vec![base.loops[rows.0].clone()];
    for axis in axes {
        let digit = Digit::axis(&facts.mesh, axis);
        let longer = |digits: &Vec<Digit>| -> Vec<Vec<Digit>> {
            let one = |&offset: &u64| {
                let mut longer = digits.clone();
                extend(&mut longer, offset, digit.clone()).then_some(longer)
            };
            offsets.iter().filter_map(one).collect()
        };
        found = found.iter().flat_map(longer).collect();
    }
    let with = |digits: Vec<Digit>| Partition { routed: digits[own..].to_vec(), ..base.clone() };
    found.into_iter().map(with).filter(|it| fits(facts, node, it)).collect()
}

/// Adds a digit that begins after `offset` blocks; whether it can.
fn extend(digits: &mut Vec<Digit>, offset: u64, digit: Digit) -> bool {
    let blocks: u64 = digits.iter().map(|it| it.size).product();
    // Splits with an offset of 1 go right after those that are there.
    let gap = if offset == 1 { 1 } else { offset / blocks };
    if gap == 0 || (offset != 1 && gap * blocks != offset) {
        return false;
    }
    if gap > 1 {
        digits.push(Digit::free(gap));
    }
    digits.push(digit);
    true
}

/// The single moves that may be made of a value in a layout.
fn candidates(facts: &Facts, value: ValueId, layout: &Layout) -> Vec<Move> {
    let split = layout.axes();
    let mut moves = Vec::new();
    for axis in wide_axes(&facts.mesh) {
        for dim in 0..layout.dims.len() {
            for &offset in &facts.offsets[value.0][dim] {
                let Some(digits) = gained(facts, &layout.dims[dim], offset, axis) else { continue };
                if layout.owed.contains(&axis) {
                    moves.push(Move::ReduceScatter { dim, digits });
                } else if !split.contains(&axis) {
                    moves.push(Move::Slice { dim, digits });
                } else {
                    let last = |digits: &Vec<Digit>| digits.last().and_then(Digit::plain) == Some(axis);
                    if let Some(from) = layout.dims.iter().position(last).filter(|&from| from != dim) {
                        moves.push(Move::AllToAll { from, to: dim, digits });
                    }
                }
            }
        }
    }
    let ends = layout.dims.iter().enumerate().filter(|(_, digits)| !digits.is_empty());
    moves.extend(ends.map(|(dim, _)| Move::AllGather { dim, digits: 1 }));
    moves.extend(subsets(&layout.owed).map(|axes| Move::AllReduce { axes }));
    moves
}

/// The permutations of a value that make a skewed layout plain, or a plain one skewed, with the layout
/// that each leads to: found once for values of a kind.
fn permutations(facts: &mut Facts, value: ValueId, layout: usize) -> Vec<(usize, usize)> {
    let other = |&(plain, skewed): &(usize, usize)| match layout {
        it if it == plain => Some(skewed),
        it if it == skewed => Some(plain),
        _ => None,
    };
    let others: Vec<usize> = facts.skewed[value.0].iter().filter_map(other).collect();
    let mut found = Vec::new();
    for to in others {
        let kind = (facts.kinds[value.0], layout, to);
        if !facts.permuted.contains_key(&kind) {
            let step = Move::Permute { dims: facts.alike.layouts.get(to).dims.clone() };
            let step = numbered(facts, value, layout, vec![step]).first().copied();
            facts.permuted.insert(kind, step);
        }
        found.extend(facts.permuted[&kind]);
    }
    found
}

/// Of these layouts those that are skewed, each after the plain one that it skews, if that is anything's.
pub(super) fn skews(facts: &Facts, layouts: &[usize]) -> Vec<(usize, usize)> {
    let skewed = layouts.iter().filter(|&&it| is_skewed(facts.alike.layouts.get(it)));
    let plain = |&it: &usize| facts.alike.layouts.find(&plain_of(&facts.mesh, facts.alike.layouts.get(it)));
    skewed.filter_map(|it| Some((plain(it)?, *it))).collect()
}

/// A skewed layout with each skew undone: numbered by the axis that no other digit names.
fn plain_of(mesh: &Mesh, layout: &Layout) -> Layout {
    let plain: Vec<AxisId> = layout.dims.iter().flatten().filter_map(Digit::plain).collect();
    let mut undone = layout.clone();
    for digit in undone.dims.iter_mut().flatten().filter(|it| !it.is_free() && it.plain().is_none()) {
        if let Some(&(axis, _)) = digit.terms.iter().find(|(axis, _)| !plain.contains(axis)) {
            *digit = Digit::axis(mesh, axis);
        }
    }
    undone
}

/// Operations that touch each element once, on what is held in a skewed layout.
///
/// ```text
/// held(v, L)   =>   work(op, P) where op touches v and P is what L makes of its loops
/// ```
fn carried(facts: &Facts, value: ValueId, layout: &Layout) -> Vec<(NodeId, Partition)> {
    if !is_skewed(layout) || !layout.owed.is_empty() {
        return vec![];
    }
    let mut found = Vec::new();
    for &node in &facts.touching[value.0] {
        let Some(loops) = facts.loops(node).filter(|_| facts.passing(node) == Passing::Offered) else {
            continue;
        };
        let operands = facts.operands(node).iter().zip(&loops.operands);
        let values = operands.chain(facts.results(node).iter().zip(&loops.results));
        for (_, dims) in values.filter(|(it, _)| **it == value) {
            let mut partition = Partition::replicated(loops);
            let mut simple = true;
            for (dim, digits) in dims.iter().zip(&layout.dims) {
                match dim[..] {
                    _ if digits.is_empty() => {}
                    [it] => partition.loops[it.0].clone_from(digits),
                    _ => simple = false,
                }
            }
            if simple && fits(facts, node, &partition) {
                found.push((node, partition));
            }
        }
    }
    found
}

/// The digits that a dimension gains when it is split by an axis after `offset` blocks.
fn gained(facts: &Facts, digits: &[Digit], offset: u64, axis: AxisId) -> Option<Vec<Digit>> {
    let mut longer = digits.to_vec();
    extend(&mut longer, offset, Digit::axis(&facts.mesh, axis)).then(|| longer.split_off(digits.len()))
}

/// The subsets of a list that are not empty.
fn subsets(axes: &[AxisId]) -> impl Iterator<Item = Vec<AxisId>> + '_ {
    (1u32..1 << axes.len()).map(|set| {
        let chosen = |(index, _): &(usize, &AxisId)| set & (1 << index) != 0;
        axes.iter().enumerate().filter(chosen).map(|(_, &axis)| axis).collect()
    })
}

/// A rule that adds terms to a class and what it denotes.
fn rule<F>(name: &'static str, add: F) -> Rewrite<Term, Facts>
where
    F: Fn(&mut Space, Id, Denoted) -> Vec<Id> + Send + Sync + 'static,
{
    #[expect(clippy::expect_used, reason = "the searcher binds no variable and the applier needs none")]
    Rewrite::new(name, EveryClass, AddTerms { add }).expect("no variable is unbound")
}

/// Matches every class that a rule has not been applied to: what comes of it depends on what it denotes alone.
struct EveryClass;

impl Searcher<Term, Facts> for EveryClass {
    fn search_eclass_with_limit(
        &self,
        space: &Space,
        eclass: Id,
        limit: usize,
    ) -> Option<SearchMatches<'_, Term>> {
        let [held, work] = &space.analysis.applied;
        let is_new = match space[eclass].data {
            Denoted::Held { value, layout } => held.get(value.0, layout).is_none(),
            Denoted::Work { node, partition } => work.get(node.0, partition).is_none(),
            Denoted::Nothing => false,
        };
        (is_new && limit > 0).then(|| SearchMatches { eclass, substs: vec![Subst::default()], ast: None })
    }

    fn vars(&self) -> Vec<Var> {
        vec![]
    }
}

struct AddTerms<F> {
    add: F,
}

impl<F> Applier<Term, Facts> for AddTerms<F>
where
    F: Fn(&mut Space, Id, Denoted) -> Vec<Id>,
{
    fn apply_one(
        &self,
        space: &mut Space,
        eclass: Id,
        _: &Subst,
        _: Option<&PatternAst<Term>>,
        _: Symbol,
    ) -> Vec<Id> {
        if space.total_size() >= space.analysis.most {
            space.analysis.is_full = true;
            return vec![];
        }
        let denoted = space[eclass].data;
        let [held, work] = &mut space.analysis.applied;
        match denoted {
            Denoted::Held { value, layout } => held.insert(value.0, layout, ()),
            Denoted::Work { node, partition } => work.insert(node.0, partition, ()),
            Denoted::Nothing => None,
        };
        let before = space.total_size();
        let added = (self.add)(space, eclass, denoted);
        // egg stops when no rule added anything.
        if space.total_size() > before { added } else { vec![] }
    }
}
