//! The search over parts of its space: the plans that the papers' systems could make.

use cost_models::machine::Machine;
use plan::{MachineName, ModelFile, Plan};
use planner_ir::{AxisId, Binary, Layout, LoopId, Mesh, Move, Op, Partition, Type};
use rewrite::Steps;
use search::{MachinePrices, PlanError, Prices, Request, Work, plan};

use super::graph::{Sizes, Step};

/// What a plan may consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Megatron: the batch over the first axis; heads, and units of the MLP, over the second; all
    /// else on every device of it; the sums by all-reduce.
    Megatron,
    /// PrimePar: splits of every dimension and squares; sums where they arise, by all-reduce.
    PrimePar,
    /// PrimePar's without squares.
    Splits,
    /// Rotated tensor parallelism: every rank has its own sequences, and a part of the weights; none
    /// has a weight whole, or its gradient.
    Rotated,
    /// Everything that takes one time step.
    AtOnce,
    /// That, and time steps between which nothing is held skewed or in stripes.
    Rings,
    /// Everything.
    All,
}

impl Kind {
    /// Whether nothing is forbidden that a search finds.
    fn is_ours(self) -> bool {
        matches!(self, Self::AtOnce | Self::Rings | Self::All)
    }
}

/// What a move costs that no plan of the kind has (seconds).
const FORBIDDEN: f64 = 1e6;

/// The prices of a machine, and of what a kind of plan lacks.
struct Restricted<'a> {
    kind: Kind,
    prices: MachinePrices<'a>,
    mesh: &'a Mesh,
    sizes: &'a Sizes,
}

impl Restricted<'_> {
    /// Queries, keys and values are one product in the papers' layers, so that of the gradient of what
    /// they are made of one sum is owed, not three: their addends are added before it is made.
    fn allows(&self, work: &Work<'_>) -> bool {
        let Work { op, partition, loops, .. } = *work;
        let summed = partition.passed.is_empty() || matches!(op, Op::Binary(Binary::Add));
        let square = |it: &Partition| {
            it.streams.is_empty() && it.loops.iter().flatten().any(|digit| digit.terms.len() > 1)
        };
        match self.kind {
            Kind::AtOnce | Kind::Rings | Kind::All => true,
            Kind::Rotated => loops.ids().all(|it| {
                let digits = &partition.loops[it.0];
                let own = digits.len() == 1 && digits[0].plain() == Some(AxisId(0));
                loops.get(it).size != self.sizes.batch || own
            }),
            Kind::Splits => partition.steps == 1 && summed,
            Kind::PrimePar => summed && (partition.steps == 1 || square(partition)),
            Kind::Megatron => {
                // Activations have the batch as their first dimension, whatever else is as large.
                let tokens = work.whole.iter().any(|type_| type_.shape.contains(&self.sizes.sequence));
                let own = |axis: AxisId, it: LoopId| {
                    let (first, size) = (tokens && it.0 == 0, loops.get(it).size);
                    match axis.0 {
                        0 => first && size == self.sizes.batch,
                        _ => !first && (size == self.sizes.heads || size == 4 * self.sizes.hidden),
                    }
                };
                let simple = loops.ids().all(|it| {
                    let digits = partition.loops[it.0].iter();
                    let mut axes = digits.map(planner_ir::Digit::plain);
                    axes.all(|axis| axis.is_some_and(|axis| own(axis, it)))
                });
                partition.steps == 1 && summed && simple
            }
        }
    }
}

impl Prices for Restricted<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        if self.allows(work) { self.prices.work(work) } else { f64::INFINITY }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        // A weight of a product has at least so many elements.
        let is_large = type_.elements() >= self.sizes.hidden * self.sizes.hidden;
        match step {
            Move::Slice { .. } => self.prices.step(type_, step, before, after),
            _ if self.kind == Kind::Rotated && is_large => FORBIDDEN,
            // The papers' systems sum first and take their part of the sum then. So it does not pay
            // to keep parts of what is the same everywhere, either.
            Move::ReduceScatter { .. } if !self.kind.is_ours() => {
                let owed = before.owed.iter().copied().filter(|axis| !after.owed.contains(axis));
                let sum = Move::AllReduce { axes: owed.collect() };
                let summed = sum.apply(self.mesh, type_, before).unwrap();
                self.prices.step(type_, &sum, before, &summed) + self.prices.step(type_, step, before, after)
            }
            _ => self.prices.step(type_, step, before, after),
        }
    }
}

/// The best plan of a kind on a mesh.
pub(crate) fn planned(
    step: &Step,
    sizes: &Sizes,
    machine: &Machine,
    mesh: &Mesh,
    kind: Kind,
) -> Result<Plan, PlanError> {
    let prices = Restricted { kind, prices: MachinePrices::new(machine, mesh).unwrap(), mesh, sizes };
    let steps = match kind {
        Kind::PrimePar | Kind::Rotated | Kind::All => Steps::Offered,
        Kind::Rings => Steps::Unskewed,
        Kind::Megatron | Kind::Splits | Kind::AtOnce => Steps::One,
    };
    let found = plan(&Request {
        graph: &step.graph,
        sections: &step.sections,
        mesh,
        // Some of the papers' models do not fit the papers' machines whole: few layers were run.
        capacity: 1 << 60,
        prices: &prices,
        model: &ModelFile { path: "layers".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &MachineName { name: machine.full_name(), devices: mesh.devices(), sha256: None },
        live: search::Live::ONE,
        steps,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &search::counted,
        enough: &|_| false,
    })?;
    assert!(found.seconds() < FORBIDDEN, "{kind:?} has no plan on {mesh:?}");
    Ok(found)
}

/// What a device holds of a plan (bytes).
pub(crate) fn held(plan: &Plan) -> u64 {
    plan.memory.iter().map(|it| it.bytes).sum()
}
