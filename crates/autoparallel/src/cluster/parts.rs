//! What the blocks of a model take on a mesh, by one plan of all of it.

use std::borrow::Cow;
use std::sync::Mutex;

use files::Failure;
use plan::Plan;
use planner_ir::Mesh;
use rewrite::{Steps, joined_as};
use search::cluster::BlockCost;
use search::{FixedError, Live, PlanError, Prices, Trail, UNBOUNDED};

use super::known::WholeStep;
use super::refused::Refusal;
use super::{Question, Setup, blocks};
use crate::choice::After;
use crate::choice::planned_after;
use crate::prepared::Prepared;
use crate::staged::message;
use crate::target::{Target, prices};

/// What blocks take on a mesh.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The mesh.
    pub(super) mesh: Mesh,
    /// The kind of nodes that it is on.
    pub(super) kind: usize,
    /// Each block of the model.
    pub(super) blocks: Vec<BlockCost>,
    /// A step of all of them together (seconds).
    pub(super) seconds: f64,
    /// What a message to the next stage takes (seconds).
    pub(super) message: f64,
    /// What is fixed that cannot be here.
    pub(super) refused: Option<Refusal>,
}

/// The memory for a plan.
#[derive(Clone, Copy, Debug)]
pub(super) enum Space {
    /// All that is wanted.
    Unbounded,
    /// So much (bytes), and so many micro-batches under way.
    Of(u64, u64),
}

/// A plan of the whole model and what blocks take by it; or what the nearest needs, where there is none for want of
/// memory (bytes).
pub(super) type Planned = Result<(Plan, Part), Option<u64>>;

/// What blocks take on the mesh of a setup, and the plan that says so.
pub(super) fn part(
    question: &Question<'_>,
    setup: &Setup,
    step: &WholeStep,
    space: Space,
    (trail, enough): After<'_, Part>,
) -> Result<Planned, Failure> {
    let WholeStep { prepared, homes, blocks, .. } = step;
    let machine = question.machine().clone().with_devices(setup.mesh.devices());
    let machine = machine.map_err(|error| Failure::Usage(error.to_string()))?;
    let header = (question.header)(setup.micro_batches);
    let (capacity, live) = match space {
        Space::Unbounded => (UNBOUNDED, Live::ONE),
        Space::Of(capacity, live) => (capacity, Live::of(live)),
    };
    let target = Target {
        machine: &machine,
        mesh: &setup.mesh,
        capacity,
        steps: Steps::One,
        live,
        rules: setup.rules.as_ref(),
    };
    let prices = prices(&target)?;
    let of = |plan: &Plan, errors: &[FixedError]| -> Result<Part, Failure> {
        let refused = Refusal::of(errors, &prepared.graph, (homes, *blocks));
        let of_plan = joined_as(&prepared.graph, &plan.graph).nodes;
        let homes: Vec<usize> = of_plan.iter().map(|it| homes[it.0]).collect();
        let blocks = blocks::costs(plan, &homes, *blocks, prices.beside().map(|it| it.cost));
        let bytes = blocks::crossing(plan, &homes, question.machine().devices_per_node());
        let message = message(question.machine(), setup.mesh.devices(), bytes)?;
        Ok(Part {
            mesh: setup.mesh.clone(),
            kind: question.kind,
            blocks,
            seconds: plan.seconds(),
            message,
            refused,
        })
    };
    let enough = |plan: &Plan| of(plan, &[]).is_ok_and(|part| enough(&part));
    match planned((trail, &enough), prepared, &header, &target, &prices) {
        Ok((plan, errors)) => {
            let part = of(&plan, &errors)?;
            Ok(Ok((plan, part)))
        }
        Err(needs) => Ok(Err(needs)),
    }
}

/// What blocks take with what memory there is while as many micro-batches are under way as half of the groups,
/// or all: where that is something else.
pub(super) fn tighter(
    question: &Question<'_>,
    setup: &Setup,
    step: &WholeStep,
    loose: &Part,
    trail: &Mutex<Trail>,
) -> Result<Vec<Part>, Failure> {
    let capacity = question.capacity().saturating_mul(u64::try_from(setup.groups).unwrap_or(u64::MAX));
    let mut under_way = setup.under_way().to_vec();
    under_way.dedup();
    let mut parts: Vec<Part> = Vec::new();
    for live in under_way {
        if let Ok((_, tight)) = part(question, setup, step, Space::Of(capacity, live), (trail, &|_| false))?
            && parts.iter().chain([loose]).all(|it| it.blocks != tight.blocks)
        {
            parts.push(tight);
        }
    }
    Ok(parts)
}

/// The plan with all that can be fixed, and why the rest cannot; or what the nearest needs (bytes).
fn planned(
    after: After<'_, Plan>,
    prepared: &Prepared,
    header: &plan::ModelFile,
    target: &Target<'_>,
    prices: &dyn Prices,
) -> Result<(Plan, Vec<FixedError>), Option<u64>> {
    let mut prepared = Cow::Borrowed(prepared);
    let mut errors: Vec<FixedError> = Vec::new();
    // Each error leaves less that is fixed.
    loop {
        // What programs place is told where stages are planned: here it would take longer than all else.
        match planned_after(after, false, &prepared, (header, target), prices) {
            Ok(plan) => return Ok((plan, errors)),
            Err(error) => {
                let PlanError::Fixed(error) = error.last() else { return Err(error.needs()) };
                let left = error.without(&prepared.fixed, &prepared.graph);
                if left == prepared.fixed {
                    return Err(None);
                }
                prepared.to_mut().fixed = left;
                errors.push(error.clone());
            }
        }
    }
}
