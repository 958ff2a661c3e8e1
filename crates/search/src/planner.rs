//! The search: sections, their spaces and prices, the chain they form, its solution, the plan.

use std::fmt;

use plan::{Copy, MachineName, ModelFile, Plan, SpaceSize};
use planner_ir::{Graph, Mesh, Phase, Source, ValueId};
use rayon::prelude::*;
use rewrite::{Space, SpaceError, Splits, space};

use crate::assemble::{Assembled, Counted, Held, assemble};
use crate::bound::solve_chain;
use crate::chain::{Chain, ChainSolution, Global, Segment, Shared};
use crate::compose::{Composed, Part, compose, estimate, memory};
use crate::prices::Prices;
use crate::problem::{Place, Proof, SearchError};
use crate::section::{Section, SharedValue};

/// What a plan is wanted for.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The program.
    pub graph: &'a Graph,
    /// Its blocks, in order.
    pub sections: &'a [Section],
    /// The devices' coordinates.
    pub mesh: &'a Mesh,
    /// What a device can hold (bytes).
    pub capacity: u64,
    /// What operations and moves take.
    pub prices: &'a dyn Prices,
    /// The model file.
    pub model: &'a ModelFile,
    /// The machine.
    pub machine: &'a MachineName,
}

/// Why there is no plan.
#[derive(Debug)]
pub enum PlanError {
    /// The space was not built.
    Space(SpaceError),
    /// No choice was found.
    Search(SearchError),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Space(error) => error.fmt(f),
            Self::Search(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

/// The plan of least time by these prices that fits.
///
/// Where the search over all partitions is too wide, it is one over those that split an operation
/// along fewer loops at once; the plan then says that its space is not saturated.
pub fn plan(request: &Request<'_>) -> Result<Plan, PlanError> {
    let wide = request.mesh.axes.iter().filter(|axis| axis.size > 1).count();
    // The whole space of a transformer block on four axes is always too wide.
    let first = if wide > FREE_AXES { Splits::AtMost(2) } else { Splits::All };
    let mut outcome = plan_in(request, first);
    for splits in [Splits::AtMost(2), Splits::AtMost(1)] {
        if !matches!(outcome, Err(PlanError::Search(SearchError::TooWide { .. }))) {
            break;
        }
        if splits != first {
            outcome = plan_in(request, splits);
        }
    }
    outcome
}

/// On meshes of up to this many axes all partitions are tried first.
const FREE_AXES: usize = 3;

/// The plan of least time among those with so many splits.
fn plan_in(request: &Request<'_>, splits: Splits) -> Result<Plan, PlanError> {
    let spaces = spaces(request, splits)?;
    let turn = turn(request);
    let assemble_one = |(index, (section, space)): (usize, (&Section, &Space))| {
        let counted = match turn {
            _ if request.graph.training.is_none() || request.sections.len() == 1 => Counted::Every,
            Some(turn) if turn == index => Counted::Turn,
            _ => Counted::Kept,
        };
        assemble(section, space, request.mesh, request.prices, counted)
    };
    let pairs = request.sections.par_iter().zip(&spaces).enumerate();
    let assembled: Vec<Assembled> = pairs.map(assemble_one).collect();
    let chain = chain(request, &spaces, &assembled);
    let mut capacity = request.capacity;
    let mut lower_bound = None;
    for _ in 0..ROUNDS {
        let solution = match (solve_chain(&chain, capacity), lower_bound) {
            (Ok(solution), _) => solution,
            (Err(refusal), None) => return Err(PlanError::Search(refusal)),
            (Err(_), Some(_)) => break,
        };
        let composed = composed(request, &spaces, &assembled, &solution);
        // The bound of the first solution holds for all: nothing that fits was left out of it.
        let proof = match lower_bound {
            None => solution.proof,
            Some(lower_bound) => Proof::Gap { lower_bound },
        };
        let plan = finish(request, composed, proof, size(request, &spaces));
        let held: u64 = plan.memory.iter().map(|it| it.bytes).sum();
        if held <= request.capacity {
            return Ok(plan);
        }
        // Copies and values on their way did not fit beside what the problem counts.
        capacity = capacity.saturating_sub(held - request.capacity);
        lower_bound = lower_bound.or(Some(match solution.proof {
            Proof::Optimal => solution.time,
            Proof::Gap { lower_bound } => lower_bound,
        }));
    }
    let place = Place { segment: 0, window: 0 };
    let found = request.capacity + (request.capacity - capacity);
    Err(PlanError::Search(SearchError::NothingFound { place, found, capacity: request.capacity }))
}

/// How often less memory is given to what the problem counts, until the whole plan fits.
const ROUNDS: usize = 8;

/// The section where a training step turns round, if it stands once and nothing of a micro-batch
/// comes between its operations: then what the others keep is there all the while.
fn turn(request: &Request<'_>) -> Option<usize> {
    let index = request.sections.len().checked_sub(1)?;
    let [only] = &request.sections[index].repetitions[..] else { return None };
    let updates = |node: usize| request.graph.nodes[node].phase == Phase::Update;
    let own: Vec<usize> = only.nodes.iter().map(|node| node.0).filter(|&node| !updates(node)).collect();
    let (first, last) = (*own.iter().min()?, *own.iter().max()?);
    let between = (first..=last).filter(|&node| !updates(node)).count();
    (between == own.len()).then_some(index)
}

fn composed(
    request: &Request<'_>,
    spaces: &[Space],
    assembled: &[Assembled],
    solution: &ChainSolution,
) -> Composed {
    let mut parts = Vec::new();
    for (index, section) in request.sections.iter().enumerate() {
        for (repetition, choices) in section.repetitions.iter().zip(&solution.choices.blocks[index]) {
            let (space, assembled) = (&spaces[index], &assembled[index]);
            parts.push(Part { section, repetition, space, assembled, choices });
        }
    }
    compose(request.graph, &parts, request.mesh, request.prices)
}

/// The space of each section, found in parallel.
fn spaces(request: &Request<'_>, splits: Splits) -> Result<Vec<Space>, PlanError> {
    let one = |section: &Section| {
        let shared = section.shared.iter().map(|it| it.value);
        let tied = section.tied.iter().map(|&(_, it)| it);
        let ends = section.entry.iter().chain(&section.exit).chain(&section.returned).copied();
        let boundary: Vec<ValueId> = ends.chain(tied).chain(shared).collect();
        space(&section.graph, request.mesh, &boundary, splits).map_err(PlanError::Space)
    };
    request.sections.par_iter().map(one).collect()
}

/// The sections as a chain.
fn chain(request: &Request<'_>, spaces: &[Space], assembled: &[Assembled]) -> Chain {
    let mut globals: Vec<Option<Global>> = Vec::new();
    let mut segments = Vec::new();
    for ((section, space), assembled) in request.sections.iter().zip(spaces).zip(assembled) {
        // What is handed on is at its delivery node; what comes from outside at its rest node.
        let node = |value: &ValueId| {
            let rest = assembled.rest[value.0].as_ref().filter(|_| section.is_outside(*value));
            rest.or(assembled.delivered[value.0].as_ref())
        };
        // What passes through is handed on as it is delivered.
        let exit = |value: &ValueId| {
            let delivered = assembled.delivered[value.0].as_ref();
            delivered.or(assembled.rest[value.0].as_ref()).map(|it| it.node)
        };
        let mut shared = Vec::new();
        for SharedValue { value, number: global, .. } in &section.shared {
            let Some(node) = node(value) else { continue };
            if globals.len() <= *global {
                globals.resize(global + 1, None);
            }
            // Several values may have one number: what is at rest counts.
            let it = global_of(request, section, space, *value, node);
            let before = globals[*global].take().filter(|before| before.resident.iter().any(|&it| it > 0));
            globals[*global] = before.or(Some(it));
            shared.push(Shared { node: node.node, global: *global });
        }
        segments.push(Segment {
            problem: assembled.problem.clone(),
            entry: section.entry.iter().filter_map(|value| node(value).map(|it| it.node)).collect(),
            exit: section.exit.iter().filter_map(exit).collect(),
            shared,
            count: section.repetitions.len(),
        });
    }
    let unused = || Global { times: vec![0.0], resident: vec![0] };
    Chain { globals: globals.into_iter().map(|it| it.unwrap_or_else(unused)).collect(), segments }
}

/// A shared value: resident, once, if it is at rest in the whole program too.
fn global_of(request: &Request<'_>, section: &Section, space: &Space, value: ValueId, held: &Held) -> Global {
    let whole = section.repetitions[0].values[value.0];
    let at_rest = !matches!(request.graph.value(whole).source, Source::Result { .. });
    let bytes = |&layout: &usize| {
        let local = space.layouts[value.0][layout].local_type(section.graph.type_of(value)).bytes();
        if at_rest { local } else { 0 }
    };
    let resident: Vec<u64> = held.layouts.iter().map(bytes).collect();
    Global { times: vec![0.0; resident.len()], resident }
}

fn finish(request: &Request<'_>, composed: Composed, proof: Proof, space: SpaceSize) -> Plan {
    let outputs = request.graph.outputs.iter();
    let outputs = outputs.map(|output| composed.returned[output.value.0].unwrap_or(Copy::Made)).collect();
    let mut plan = Plan {
        model: request.model.clone(),
        machine: request.machine.clone(),
        mesh: request.mesh.clone(),
        graph: request.graph.clone(),
        layouts: composed.layouts,
        assignments: composed.assignments,
        transfers: composed.transfers,
        outputs,
        carried: composed.carried,
        recipe: None,
        estimate: Vec::new(),
        memory: Vec::new(),
        capacity: request.capacity,
        proof: match proof {
            Proof::Optimal => plan::Proof::Optimal,
            Proof::Gap { lower_bound } => plan::Proof::Gap { lower_bound },
        },
        space,
    };
    plan.estimate = estimate(&plan, request.prices);
    plan.memory = memory(&plan);
    plan
}

fn size(request: &Request<'_>, spaces: &[Space]) -> SpaceSize {
    let total = |count: &dyn Fn(&Space) -> usize| -> u64 {
        spaces.iter().map(|space| u64::try_from(count(space)).unwrap_or(u64::MAX)).sum()
    };
    let blocks: usize = request.sections.iter().map(|section| section.repetitions.len()).sum();
    SpaceSize {
        unique_blocks: total(&|_| 1),
        blocks: u64::try_from(blocks).unwrap_or(u64::MAX),
        nodes: total(&|space| space.statistics.nodes),
        classes: total(&|space| space.statistics.classes),
        saturated: spaces.iter().all(|space| space.statistics.saturated),
        choices: total(&|space| space.choices.iter().map(Vec::len).sum()),
    }
}

#[cfg(test)]
mod tests;
