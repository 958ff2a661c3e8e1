//! What other plans would cost: the search again, with prices that forbid some choices.

use std::fmt;

use files::Failure;
use plan::{Exchanged, Plan};
use planner_ir::{
    AxisId, Graph, Layout, LoopId, Loops, Move, NodeId, Op, OpClass, Partition, Phase, Role, State, Type,
    Ways,
};
use rewrite::{Offer, Steps};
use search::problem::SearchError;
use search::{PlanError, Prices, Rules, Work};

use crate::prepared::Prepared;
use crate::target::Target;

/// Prices by which what is not allowed takes for ever.
struct Restricted<'a> {
    inner: &'a dyn Prices,
    allows: &'a (dyn Fn(&Work<'_>) -> bool + Sync),
}

impl Prices for Restricted<'_> {
    fn ways(&self) -> Ways {
        self.inner.ways()
    }

    fn work(&self, work: &Work<'_>) -> f64 {
        if (self.allows)(work) { self.inner.work(work) } else { f64::INFINITY }
    }

    fn exchanged(&self, work: &Work<'_>) -> Exchanged {
        self.inner.exchanged(work)
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        self.inner.step(type_, step, before, after)
    }

    fn near(&self, axes: &[AxisId]) -> u64 {
        self.inner.near(axes)
    }

    fn beside(&self) -> Option<plan::Overlap> {
        self.inner.beside()
    }

    fn rules(&self) -> Option<&Rules> {
        self.inner.rules()
    }

    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        self.inner.rest(state, layout)
    }
}

/// What a plan of another kind comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Price {
    /// A step takes this long (seconds).
    Seconds(f64),
    /// It needs at least so much more memory than there is (bytes).
    Missing(u64),
    /// There is none, for this reason.
    Impossible(String),
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => f.write_str(&cost_models::quantity::seconds(*seconds)),
            Self::Missing(bytes) => {
                write!(f, "does not fit: {} too few", cost_models::quantity::bytes(*bytes))
            }
            Self::Impossible(why) => write!(f, "not possible here: {why}"),
        }
    }
}

/// A way to split programs by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Every device computes everything.
    Replicated,
    /// Only batches are split.
    Data,
    /// Products by columns, then by rows; heads; no batch and no sequence.
    ColumnRow,
}

impl Manner {
    /// Every manner.
    pub const ALL: [Self; 3] = [Self::Replicated, Self::Data, Self::ColumnRow];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replicated => "all computed whole (replicated)",
            Self::Data => "only batches split (data parallel)",
            Self::ColumnRow => "columns, rows and heads split (Megatron)",
        }
    }

    /// Whether an operation may be computed so, of so many examples.
    fn allows(self, op: &Op, loops: &Loops, partition: &Partition, examples: u64) -> bool {
        let split = || split_loops(loops, partition);
        match self {
            Self::Replicated => partition.axes().is_empty(),
            // Of fewer examples than parts a sequence is split too.
            Self::Data => {
                let is_of_batch = |it| is_batch(loops, it) && partition.parts(it) <= examples;
                partition.passed.is_empty() && split().all(is_of_batch)
            }
            Self::ColumnRow => split().all(|it| is_inner(op, loops, it)),
        }
    }
}

/// The loops that a partition splits.
fn split_loops<'a>(loops: &'a Loops, partition: &'a Partition) -> impl Iterator<Item = LoopId> + 'a {
    loops.ids().filter(|it| partition.loops[it.0].iter().any(|digit| !digit.is_free()))
}

/// Whether a loop runs over the outermost dimension of the first result, and sums nothing.
fn is_batch(loops: &Loops, it: LoopId) -> bool {
    loops.get(it).role != Role::Sum && place(&loops.results[0], it) == Some(0)
}

/// Whether a loop runs inside of samples: neither over a batch nor over a sequence.
fn is_inner(op: &Op, loops: &Loops, it: LoopId) -> bool {
    let result = (place(&loops.results[0], it), loops.results[0].len());
    match op {
        // A sum over the inner dimension, columns of the right operand, heads.
        Op::Contract(_) | Op::ScaledContract { .. } => {
            let (left, right) = (place(&loops.operands[0], it), place(&loops.operands[1], it));
            right.is_some() && left != Some(0)
        }
        Op::Attention(_) => result.0 == Some(1),
        _ => !matches!(result, (Some(0), 2..) | (Some(1), 3)),
    }
}

fn place(dims: &[Vec<LoopId>], it: LoopId) -> Option<usize> {
    dims.iter().position(|dim| dim.contains(&it))
}

/// The best plan of a manner, or why there is none: products and attention split as far as the manner splits them,
/// everything else as is best within it.
pub fn plan_of(
    manner: Manner,
    prepared: &Prepared,
    header: &plan::ModelFile,
    target: &Target<'_>,
) -> Result<Result<Plan, Price>, Failure> {
    let widest = widest(manner, prepared, target)?;
    let examples = plan::examples(&prepared.graph);
    if manner != Manner::Replicated && widest.iter().all(|it| it.axes == 0) {
        let why = format!("nothing falls into {} parts", target.mesh.devices());
        return Ok(Err(Price::Impossible(why)));
    }
    let parts: Vec<(&Graph, Vec<bool>)> =
        prepared.sections.iter().map(|it| (&it.graph, it.graph.on_parameters())).collect();
    let allows = |work: &Work<'_>| {
        if !is_of_the_model(&parts, work) {
            return true;
        }
        let known =
            widest.iter().find(|it| it.node == work.node && *it.op == *work.op && it.operands == work.whole);
        let loops = work.op.loops(work.whole, &whole_results(work));
        manner.allows(work.op, &loops, work.partition, examples)
            && known.is_none_or(|it| work.partition.axes().len() == it.axes)
    };
    restricted(prepared, header, target, &allows)
}

/// Whether an operation is one of the model. In a training step those of gradients and updates are
/// not: they go with the model's, and parameters lie where is best.
fn is_of_the_model(parts: &[(&Graph, Vec<bool>)], work: &Work<'_>) -> bool {
    parts.iter().any(|(graph, on_parameters)| {
        let Some(node) = graph.nodes.get(work.node.0) else { return false };
        node.phase == Phase::Forward
            && node.op == *work.op
            && (graph.training.is_none() || !on_parameters[work.node.0])
            && graph.types_of(&node.operands) == work.whole
    })
}

/// Over how many axes an operation can be split in a manner.
struct Widest<'a> {
    node: NodeId,
    op: &'a Op,
    operands: Vec<Type>,
    axes: usize,
}

/// For each product and attention, over how many axes it can be split.
fn widest<'a>(
    manner: Manner,
    prepared: &'a Prepared,
    target: &Target<'_>,
) -> Result<Vec<Widest<'a>>, Failure> {
    let mut widest = Vec::new();
    let examples = plan::examples(&prepared.graph);
    for section in &prepared.sections {
        let graph = &section.graph;
        let space = rewrite::space(graph, target.mesh, &[], Offer { steps: Steps::One, ..Offer::default() })
            .map_err(|error| Failure::input("no space", error))?;
        for id in graph.node_ids() {
            let node = graph.node(id);
            let product = matches!(node.op.class(), OpClass::MatrixProduct(_) | OpClass::Attention(_));
            let counts = product && node.phase == Phase::Forward;
            if !counts || space.choices[id.0].is_empty() {
                continue;
            }
            let operands = graph.types_of(&node.operands);
            let loops = node.op.loops(&operands, &graph.types_of(&node.results));
            let allowed = space.choices[id.0]
                .iter()
                .filter(|it| manner.allows(&node.op, &loops, &it.partition, examples));
            let axes = allowed.map(|it| it.partition.axes().len()).max().unwrap_or(0);
            widest.push(Widest { node: id, op: &node.op, operands, axes });
        }
    }
    Ok(widest)
}

/// The types of whole results. An operation of a verified program has them.
fn whole_results(work: &Work<'_>) -> Vec<Type> {
    work.op.infer(work.whole).unwrap_or_default()
}

/// The best plan in which an operation of a block is not computed in that way, or why there is none.
pub fn without(
    forbidden: &Forbidden<'_>,
    prepared: &Prepared,
    header: &plan::ModelFile,
    target: &Target<'_>,
) -> Result<Result<Plan, Price>, Failure> {
    let allows = |work: &Work<'_>| {
        let same = work.node == forbidden.node && work.op == forbidden.op && work.whole == forbidden.operands;
        !same || work.partition != forbidden.partition
    };
    restricted(prepared, header, target, &allows)
}

/// A choice that is forbidden.
#[derive(Clone, Copy, Debug)]
pub struct Forbidden<'a> {
    /// Which operation of its block.
    pub node: NodeId,
    /// What it is.
    pub op: &'a Op,
    /// The types of its operands.
    pub operands: &'a [Type],
    /// How it must not be computed.
    pub partition: &'a Partition,
}

fn restricted(
    prepared: &Prepared,
    header: &plan::ModelFile,
    target: &Target<'_>,
    allows: &(dyn Fn(&Work<'_>) -> bool + Sync),
) -> Result<Result<Plan, Price>, Failure> {
    let inner = crate::target::prices(target)?;
    let prices = Restricted { inner: &inner, allows };
    let planned = crate::choice::planned(prepared, header, target, &prices);
    if let Ok(plan) = &planned {
        // What its programs place in memory counts, as it does where a plan is made.
        let held = lower::footprint(plan).map_err(|error| Failure::internal("lower", error))?;
        if held > target.capacity {
            return Ok(Err(Price::Missing(held - target.capacity)));
        }
    }
    Ok(planned.map_err(|error| match error.last() {
        PlanError::Search(
            SearchError::DoesNotFit { least, .. } | SearchError::DoesNotFitTogether { least, .. },
        ) => Price::Missing(least.saturating_sub(target.capacity)),
        PlanError::Search(SearchError::Contradiction) => {
            let pinned = if prepared.fixed.is_empty() { "" } else { " that has what is pinned" };
            Price::Impossible(format!("there is no other way{pinned}"))
        }
        other => Price::Impossible(other.to_string()),
    }))
}
