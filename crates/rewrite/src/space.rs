//! The space of partitioned programs equal to a graph, built by e-graph.
//!
//! A class of the e-graph is *what each device holds*: a value in a layout, or the work of an
//! operation in a partition. Two families of rules make new terms equal to what is there:
//!
//! - **partition**: an operation, split further along one of its loops over one more axis, on
//!   operands held accordingly, makes its results in other layouts (`rules::partition`);
//! - **moves**: a value held in one layout, moved, is the value held in another (`rules::moves`).
//!
//! Both are derived from the operations' loops; none names an operation. The class analysis
//! carries what a class denotes, and a merge of classes that denote different things is reported
//! as an error of ours. The space handed on is plain data: which layouts a value may have, which
//! partitions an operation, and which single moves lead from layout to layout.

mod alike; // what operations have in common
mod known; // those that were built before
mod offsets; // where along a dimension a split may begin
mod once; // programs in which operations that are alike stand once
mod rules; // what is equal to what
mod suited; // whether a partition suits an operation
mod stripes; // sequences of which a device has every so many tokens
mod temporal; // partitions in time
mod tables; // what is numbered in the order it comes up
mod term; // the e-graph's language and what its classes denote

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use egg::{EGraph, Runner, SimpleScheduler, StopReason};
use planner_ir::{AxisId, Digit, Graph, Layout, Mesh, Move, Node, NodeId, Partition, Source, Type, ValueId};

use alike::Alike;
pub use known::Spaces;
use once::Once;
use rules::Split;
pub use stripes::{handed_layouts, striped_length};
use term::{Denoted, Facts, Term};

/// A space of partitioned programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// For each value of the graph, the layouts it may be held in: of values that are alike, one list.
    pub layouts: Vec<Arc<[Layout]>>,
    /// For each operation, how it may be computed; nothing for prepared ones. Of operations that are alike,
    /// one list.
    pub choices: Vec<Arc<[Choice]>>,
    /// For each value, the moves from one of its layouts to another: those of values that may be held
    /// alike are one list.
    pub moves: Vec<Arc<[Edge]>>,
    /// For each value, whether it is made once from weights and constants.
    pub prepared: Vec<bool>,
    /// How long the sequences are whose tokens may lie in stripes.
    pub striped: Option<u64>,
    /// How large the e-graph became.
    pub statistics: Statistics,
}

/// One way to compute an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which block each device computes.
    pub partition: Partition,
    /// For each operand, the number of the layout it is used in.
    pub operands: Vec<usize>,
    /// For each result, the number of the layout it is made in.
    pub results: Vec<usize>,
}

/// A move of a value from one of its layouts to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The number of the layout before.
    pub from: usize,
    /// The number of the layout after.
    pub to: usize,
    /// The move.
    pub step: Move,
}

/// Along how many loops at once an operation may be split, passing sums through counted as one.
///
/// Where a block has many operations of many loops, and a mesh many axes, an exact search over all
/// partitions needs tables that outgrow memory. Fewer splits at once make a smaller space, which
/// is then not all there is: it counts as not saturated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Splits {
    /// As many as there are axes.
    #[default]
    All,
    /// At most so many.
    AtMost(usize),
}

impl From<Splits> for Offer {
    fn from(splits: Splits) -> Self {
        Self { splits, ..Self::default() }
    }
}

impl Splits {
    /// Whether so many splits are allowed.
    pub(crate) fn allow(self, splits: usize) -> bool {
        match self {
            Self::All => true,
            Self::AtMost(most) => splits <= most,
        }
    }
}

/// Whether partitions in time are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Steps {
    /// On meshes of up to two axes of more than one device: with more, a search among them takes many times
    /// as long.
    #[default]
    Auto,
    /// Products and look-ups may be done in time steps.
    Offered,
    /// The same, of those between which nothing is held skewed: rings and streams, not squares whose blocks
    /// rotate.
    Unskewed,
    /// Every operation is done in one.
    One,
}

/// On how many axes time steps are offered where nothing is said.
const AUTO_AXES: usize = 2;

impl Steps {
    /// Whether there are any on a mesh.
    pub fn are_offered(self, mesh: &Mesh) -> bool {
        match self {
            Self::Auto => wide_axes(mesh).count() <= AUTO_AXES,
            Self::Offered | Self::Unskewed => true,
            Self::One => false,
        }
    }
}

/// Which partitions are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Offer {
    /// Along how many loops at once an operation may be split.
    pub splits: Splits,
    /// Whether in time.
    pub steps: Steps,
    /// How long the sequences are whose tokens may lie in stripes ([`striped_length`]), where time
    /// steps are offered.
    pub striped: Option<u64>,
}

/// How large an e-graph became.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Its terms.
    pub nodes: usize,
    /// Its classes.
    pub classes: usize,
    /// Rounds of rule application.
    pub iterations: usize,
    /// Whether nothing new came of the rules in the end, and no splits were withheld.
    pub saturated: bool,
}

/// Why there is no space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceError {
    /// Two classes that denote different things were merged: a rule is unsound.
    Unsound(String),
    /// The e-graph outgrew the limit (nodes).
    Limit(usize),
}

impl fmt::Display for SpaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsound(message) => write!(f, "a rule merged different values: {message}"),
            Self::Limit(nodes) => write!(
                f,
                "the space of partitions has more than {nodes} terms; a mesh with fewer axes makes it smaller"
            ),
        }
    }
}

impl std::error::Error for SpaceError {}

/// How many terms an e-graph may have: several times as many as those of the largest blocks that are
/// planned, and of many operations so many for each ([`EACH`]). Rules look at it themselves, as one round of them
/// may add many times what there is.
const NODE_LIMIT: usize = 1_000_000;
/// See [`NODE_LIMIT`]: as many as element-wise operations have on meshes of few axes.
const EACH: usize = 32;
/// Of how many operations and more a graph is looked at with those that are alike once.
const MANY: usize = 4096;
/// How many rounds of rules there may be: an operation gains at least one axis in each.
const ROUND_LIMIT: usize = 64;

/// The space of a graph on a mesh.
///
/// Boundary values may be held in every plain layout of their type, whatever uses them here, and
/// in those in stripes, so that the graph can be joined to others. So may the states of a training step and what they
/// become; those that are summed over micro-batches may owe a sum besides ([`owing_layouts`]).
pub fn space(graph: &Graph, mesh: &Mesh, boundary: &[ValueId], offer: Offer) -> Result<Space, SpaceError> {
    built(graph, mesh, boundary, offer, &mut Alike::default())
}

/// The same, with what is known of operations that are alike, to which it adds.
fn built(
    graph: &Graph,
    mesh: &Mesh,
    boundary: &[ValueId],
    offer: Offer,
    known: &mut Alike,
) -> Result<Space, SpaceError> {
    if graph.nodes.len() < MANY {
        return saturated(graph, mesh, boundary, offer, known);
    }
    let once = Once::of(graph, boundary);
    let boundary: Vec<ValueId> = boundary.iter().map(|it| once.values[it.0]).collect();
    Ok(once.spread(&saturated(&once.graph, mesh, &boundary, offer, known)?))
}

/// The same, of every operation by itself.
fn saturated(
    graph: &Graph,
    mesh: &Mesh,
    boundary: &[ValueId],
    offer: Offer,
    known: &mut Alike,
) -> Result<Space, SpaceError> {
    let splits = offer.splits;
    let mut facts = Facts::new(graph, mesh, boundary, offer, std::mem::take(known));
    let most = NODE_LIMIT.max(EACH.saturating_mul(graph.nodes.len()));
    facts.most = most;
    if least_terms(graph, &mut facts) > most {
        *known = facts.alike;
        return Err(SpaceError::Limit(most));
    }
    let mut egraph = EGraph::new(facts);
    let striped = egraph.analysis.striped();
    for &value in boundary {
        for layout in handed_layouts(mesh, graph.type_of(value), splits, striped) {
            term::hold(&mut egraph, value, layout);
        }
    }
    for (value, layouts) in kept_layouts(graph, mesh, boundary, splits) {
        for layout in layouts {
            term::hold(&mut egraph, value, layout);
        }
    }
    for value in graph.value_ids() {
        if !matches!(graph.value(value).source, Source::Result { .. }) {
            term::hold(&mut egraph, value, Layout::replicated(graph.type_of(value).rank()));
        }
    }
    for node in graph.node_ids() {
        if let Some(whole) = egraph.analysis.replicated(node) {
            let whole = egraph.analysis.alike.partitions.number(whole);
            term::compute(&mut egraph, node, whole);
        }
    }
    let (mut egraph, first) = saturate(egraph, vec![rules::partition()])?;
    let held = layouts(graph, &egraph);
    let moved_as = moved_as(&egraph.analysis.kinds, &held);
    for (value, layouts) in held.iter().enumerate().filter(|it| moved_as[it.0] == it.0) {
        egraph.analysis.skewed[value] = rules::skews(&egraph.analysis, layouts);
        for &layout in layouts {
            egraph.analysis.held.insert(value, layout, ());
        }
    }
    egraph.analysis.applied = Default::default();
    let (egraph, second) = saturate(egraph, vec![rules::moves()])?;
    if let Some(fault) = egraph.analysis.faults.first() {
        return Err(SpaceError::Unsound(fault.clone()));
    }
    let statistics = Statistics {
        nodes: egraph.total_size(),
        classes: egraph.number_of_classes(),
        iterations: first.iterations + second.iterations,
        saturated: first.saturated && second.saturated && splits == Splits::All,
    };
    let (space, alike) = read_off(graph, egraph, &moved_as, statistics);
    *known = alike;
    Ok(space)
}

/// How many terms the e-graph of a graph has at least: the work of each operation in each partition that comes of
/// splitting it, its results, and each value in the layouts that an operation asks for most of. Operations that
/// are partitioned alike are looked at once, so that what is too large is known before it is built.
fn least_terms(graph: &Graph, facts: &mut Facts) -> usize {
    let mut known: BTreeMap<usize, Split> = BTreeMap::new();
    let mut held = vec![0; graph.values.len()];
    let mut terms = 0_usize;
    for node in graph.node_ids() {
        let Some(whole) = facts.replicated(node) else { continue };
        let kind = facts.alike(node);
        let split = known.entry(kind).or_insert_with(|| rules::split(facts, node, whole));
        let Node { operands, results, .. } = graph.node(node);
        terms = terms.saturating_add(split.partitions.saturating_mul(1 + results.len()));
        for (value, &layouts) in operands.iter().chain(results).zip(&split.layouts) {
            held[value.0] = held[value.0].max(layouts);
        }
    }
    held.into_iter().fold(terms, usize::saturating_add)
}

/// Every layout of a type in which each axis splits one dimension or none, axes ascending along a
/// dimension, and nothing is owed; along no more dimensions than an operation may be split.
pub fn plain_layouts(mesh: &Mesh, type_: &Type, splits: Splits) -> Vec<Layout> {
    let mut layouts = vec![Layout::replicated(type_.rank())];
    for axis in wide_axes(mesh) {
        let split = |layout: &Layout| {
            let layout = layout.clone();
            (0..layout.dims.len()).map(move |dim| {
                let mut layout = layout.clone();
                layout.dims[dim].push(Digit::axis(mesh, axis));
                layout
            })
        };
        let more: Vec<Layout> =
            layouts.iter().flat_map(split).filter(|it| it.check(mesh, type_).is_ok()).collect();
        layouts.extend(more);
    }
    layouts.retain(|layout| splits.allow(layout.dims.iter().filter(|digits| !digits.is_empty()).count()));
    layouts
}

/// Every layout of a type in which each axis splits one dimension, or none, or is one over which a
/// sum is owed: the plain ones first.
pub fn owing_layouts(mesh: &Mesh, type_: &Type, splits: Splits) -> Vec<Layout> {
    let plain = plain_layouts(mesh, type_, splits);
    let axes: Vec<AxisId> = wide_axes(mesh).collect();
    let owing = |layout: &Layout| {
        let split = layout.axes();
        let free: Vec<AxisId> = axes.iter().copied().filter(|axis| !split.contains(axis)).collect();
        let layout = layout.clone();
        let owed = move |set: u32| {
            let chosen = |(index, &axis): (usize, &AxisId)| (set & (1 << index) != 0).then_some(axis);
            Layout { owed: free.iter().enumerate().filter_map(chosen).collect(), ..layout.clone() }
        };
        (1u32..1 << (axes.len() - split.len())).map(owed)
    };
    let more: Vec<Layout> = plain.iter().flat_map(owing).collect();
    plain.into_iter().chain(more).collect()
}

/// The layouts in which the states of a training step, and what they become, may be kept; and
/// boundary values that are summed.
fn kept_layouts(
    graph: &Graph,
    mesh: &Mesh,
    boundary: &[ValueId],
    splits: Splits,
) -> Vec<(ValueId, Vec<Layout>)> {
    let Some(training) = &graph.training else { return vec![] };
    let sums = graph.sums();
    let carried = training.carried.iter().flat_map(|it| [it.state, it.next]);
    let kept = carried.chain(boundary.iter().copied().filter(|value| sums[value.0].is_some()));
    let layouts = |value: ValueId| {
        let type_ = graph.type_of(value);
        let owing = sums[value.0].is_some();
        (value, if owing { owing_layouts(mesh, type_, splits) } else { plain_layouts(mesh, type_, splits) })
    };
    kept.map(layouts).collect()
}

fn saturate(
    egraph: EGraph<Term, Facts>,
    rules: Vec<egg::Rewrite<Term, Facts>>,
) -> Result<(EGraph<Term, Facts>, Statistics), SpaceError> {
    let most = egraph.analysis.most;
    // Bounded by counts: the time limit is there only because egg has one by default.
    let runner = Runner::<Term, Facts, ()>::new(Facts::default())
        .with_egraph(egraph)
        .with_scheduler(SimpleScheduler)
        .with_iter_limit(ROUND_LIMIT)
        .with_node_limit(most)
        .with_time_limit(std::time::Duration::MAX)
        .run(&rules);
    let saturated = matches!(runner.stop_reason, Some(StopReason::Saturated));
    if !saturated || runner.egraph.analysis.is_full {
        return Err(SpaceError::Limit(most));
    }
    let statistics = Statistics { iterations: runner.iterations.len(), saturated, ..Statistics::default() };
    Ok((runner.egraph, statistics))
}

/// For each value, the numbers of the layouts it is held in, those of the least layouts first.
fn layouts(graph: &Graph, egraph: &EGraph<Term, Facts>) -> Vec<Vec<usize>> {
    let mut held: Vec<Vec<usize>> = vec![Vec::new(); graph.values.len()];
    for class in egraph.classes() {
        if let Denoted::Held { value, layout } = class.data {
            held[value.0].push(layout);
        }
    }
    let rank = egraph.analysis.alike.layouts.ranks();
    held.iter_mut().for_each(|layouts| layouts.sort_unstable_by_key(|&it| rank[it]));
    held
}

/// For each value, the first one that is of its kind and held in the same layouts: its moves are made in the
/// e-graph, and those of the others are the same, as the rules look at nothing else.
fn moved_as(kinds: &[usize], held: &[Vec<usize>]) -> Vec<usize> {
    let mut first: BTreeMap<(usize, &[usize]), usize> = BTreeMap::new();
    let alike = kinds.iter().zip(held).enumerate();
    alike.map(|(value, (&kind, held))| *first.entry((kind, held)).or_insert(value)).collect()
}

/// The e-graph as plain data, in an order that depends on the terms alone.
fn read_off(
    graph: &Graph,
    mut egraph: EGraph<Term, Facts>,
    moved_as: &[usize],
    statistics: Statistics,
) -> (Space, Alike) {
    let held = layouts(graph, &egraph);
    let rank = egraph.analysis.alike.layouts.ranks();
    let number = |value: ValueId, layout: usize| {
        held[value.0].binary_search_by_key(&rank[layout], |&it| rank[it]).ok()
    };
    let mut facts = std::mem::take(&mut egraph.analysis);
    let mut work: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    let mut moves: Vec<Vec<Edge>> = vec![Vec::new(); graph.values.len()];
    for class in egraph.classes() {
        match class.data {
            Denoted::Work { node, partition } => work[node.0].push(partition),
            Denoted::Held { value, layout } => {
                let Some(to) = number(value, layout) else { continue };
                for term in &class.nodes {
                    let &Term::Move { step, from } = term else { continue };
                    let Denoted::Held { layout: before, .. } = egraph[from].data else { continue };
                    let Some(from) = number(value, before) else { continue };
                    moves[value.0].push(Edge { from, to, step: facts.moves.get(step).clone() });
                }
            }
            Denoted::Nothing => {}
        }
    }
    for list in &mut moves {
        list.sort_unstable_by(|a, b| (a.from, a.to, &a.step).cmp(&(b.from, b.to, &b.step)));
    }
    let lists: Vec<Arc<[Edge]>> = moves.into_iter().map(Arc::from).collect();
    let moves = moved_as.iter().map(|&it| Arc::clone(&lists[it])).collect();
    let mut choice = |node: NodeId, partition: usize| {
        let ends = facts.ends(node, partition);
        let Node { operands, results, .. } = graph.node(node);
        let all = |values: &[ValueId], layouts: &[usize]| -> Option<Vec<usize>> {
            values.iter().zip(layouts).map(|(&value, &layout)| number(value, layout)).collect()
        };
        let (operands, results) = (all(operands, &ends.operands)?, all(results, &ends.results)?);
        Some(Choice { partition: facts.alike.partitions.get(partition).clone(), operands, results })
    };
    let mut choices: Vec<Arc<[Choice]>> = Vec::new();
    for (node, partitions) in graph.node_ids().zip(&work) {
        let mut list: Vec<Choice> = partitions.iter().filter_map(|&it| choice(node, it)).collect();
        list.sort_unstable_by(|a, b| a.partition.cmp(&b.partition));
        choices.push(list.into());
    }
    let layout = |&it: &usize| facts.alike.layouts.get(it).clone();
    let layouts = held.iter().map(|layouts| layouts.iter().map(layout).collect()).collect();
    let striped = facts.striped();
    (Space { layouts, choices, moves, prepared: graph.prepared(), striped, statistics }, facts.alike)
}

/// The axes of a mesh that have more than one device.
fn wide_axes(mesh: &Mesh) -> impl Iterator<Item = AxisId> + '_ {
    mesh.axis_ids().filter(|&axis| mesh.size(axis) > 1)
}

#[cfg(test)]
mod tests;
