//! The search: sections, their spaces and prices, the chain they form, its solution, the plan.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plan::{Copy, Hidden, Holding, MachineName, ModelFile, Pin, Plan, SpaceSize};
use planner_ir::{Graph, Layout, Mesh, Source, ValueId};
use rayon::prelude::*;
use rewrite::{Offer, Space, SpaceError, Spaces, Steps};

use crate::bound::{Solver, Trail};
use crate::chain::{Chain, ChainSolution, Width};
use crate::clocks::{Clocks, Weights};
use crate::compose::{Composed, Part, compose, estimate, memory};
use crate::derive::stand;
use crate::fixed::{Fixed, FixedError, apart, pins};
use crate::live::Live;
use crate::manner::save;
use crate::offers::Offers;
use crate::prepare::{Cut, Prepared, are_alike, chain, forbid};
use crate::prices::Prices;
use crate::problem::{Place, Proof, SearchError};
use crate::room::{NoRoom, Tried, within};
use crate::section::{Repetition, Section};

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
    /// Whether operations may be done in time steps.
    pub steps: Steps,
    /// What has its layout already, if something has.
    pub pinned: Option<&'a Pinned>,
    /// How operations are computed that the user has fixed; what is of none of the program's says nothing.
    pub fixed: &'a [Fixed],
    /// How many micro-batches are under way at once: more than one in a stage of a pipeline, which
    /// keeps for each of them what its gradients need.
    pub live: Live,
    /// What searches before have seen, from which this one starts and to which it adds: of the same
    /// program on the same mesh, or a waste of time.
    pub trail: Option<&'a Mutex<Trail>>,
    /// What a device holds of a plan.
    pub memory: &'a dyn Fn(&Plan) -> Result<Vec<Holding>, String>,
}

/// Inputs and outputs whose layout is not to be chosen: programs that hand them to one another without
/// a move hold them alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// The layout in which each is at rest, or returned; it owes nothing.
    pub layout: Layout,
    /// The names of inputs and outputs, all of them that equal blocks have.
    pub names: BTreeSet<String>,
}

impl Pinned {
    /// The values of a graph that have the layout.
    pub(crate) fn values(&self, graph: &Graph) -> BTreeSet<ValueId> {
        let is_pinned = |value: &ValueId| match &graph.value(*value).source {
            Source::Input(name) => self.names.contains(name),
            _ => false,
        };
        let outputs = graph.outputs.iter().filter(|it| self.names.contains(&it.name)).map(|it| it.value);
        graph.value_ids().filter(is_pinned).chain(outputs).collect()
    }
}

/// What a plan counts of the fullest device, and no more.
pub fn counted(plan: &Plan) -> Result<Vec<Holding>, String> {
    Ok(plan.memory.clone())
}

/// What a device holds of a plan with these micro-batches under way, by kind, as the search counts it.
pub fn held(plan: &Plan, live: Live) -> Vec<Holding> {
    memory(plan, live)
}

/// Why there is no plan.
#[derive(Debug)]
pub enum PlanError {
    /// The space was not built.
    Space(SpaceError),
    /// What the user has fixed cannot be.
    Fixed(FixedError),
    /// No choice was found.
    Search(SearchError),
    /// Programs to choose among differ in more than the insides of their sections.
    Unlike,
    /// What was derived is not made of the sections that were chosen; the first block that is not.
    Derived(usize),
    /// What a plan holds could not be told, for this reason.
    Memory(String),
    /// The space of the partitions that were asked for was too large, and there is no plan among fewer.
    Fewer {
        /// What was asked for.
        offer: Offer,
        /// By how much it was too large.
        large: Box<Self>,
        /// Why there is no plan among fewer.
        error: Box<Self>,
    },
}

impl PlanError {
    /// Whether there may be a plan among fewer partitions: the space of all of them outgrew its limit.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Space(SpaceError::Limit(_)))
    }

    /// Why there is no plan among the partitions that were looked at last.
    pub fn last(&self) -> &Self {
        match self {
            Self::Fewer { error, .. } => error.last(),
            other => other,
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Space(error) => error.fmt(f),
            Self::Fixed(error) => error.fmt(f),
            Self::Search(error) => error.fmt(f),
            Self::Unlike => f.write_str("the programs to choose among are not cut alike"),
            Self::Fewer { offer, large, error } => {
                let what = if offer.steps == Steps::One { "" } else { ", in time steps too," };
                write!(f, "the space of all partitions{what} is too large ({large}); among fewer: {error}")
            }
            Self::Memory(reason) => write!(f, "what the plan holds is not known: {reason}"),
            Self::Derived(block) => write!(f, "block {block} of the derived program is not the one chosen"),
        }
    }
}

impl std::error::Error for PlanError {}

/// A program that was derived for the variants chosen.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The program.
    pub graph: Graph,
    /// For each operation the number of the segment it belongs to, as for [`crate::fold`].
    pub homes: Vec<usize>,
}

/// Makes the program in which each block, in order, is that of the variant of this number.
pub type Derive<'a> = dyn Fn(&[usize]) -> Derived + 'a;

/// The plan of least time by these prices that fits.
///
/// Where the space of all partitions is too large, it is one of fewer: without stripes of sequences, without time
/// steps, then of those that split an operation along fewer loops at once. The plan then says what was left out,
/// and that its space is not saturated. Blocks that are too wide to be eliminated are solved by message passing.
pub fn plan(request: &Request<'_>) -> Result<Plan, PlanError> {
    Ok(widely(request, &[], None)?.0)
}

/// The plan of least time where each block may be that of the request's program (variant 0) or of
/// another one (from 1), and which it is.
///
/// The other programs are cut as the first: into sections of the same boundaries.
pub fn plan_among(
    request: &Request<'_>,
    others: &[Cut<'_>],
    derive: &Derive<'_>,
) -> Result<(Plan, Vec<usize>), PlanError> {
    widely(request, others, Some(derive))
}

/// The plan of least time among as many partitions as can be listed.
fn widely(
    request: &Request<'_>,
    others: &[Cut<'_>],
    derive: Option<&Derive<'_>>,
) -> Result<(Plan, Vec<usize>), PlanError> {
    let first = Cut { graph: request.graph, sections: request.sections };
    let cuts: Vec<Cut<'_>> = std::iter::once(first).chain(others.iter().copied()).collect();
    let graphs: Vec<&Graph> = cuts.iter().map(|it| it.graph).collect();
    let pins = pins(request.fixed, &graphs, request.mesh).map_err(PlanError::Fixed)?;
    let offers = Offers::of(request, &cuts, &pins);
    offers.among(|offer| {
        let (mut plan, variants) = plan_in((request, &pins), &cuts, derive, (offer, Width::ANY))?;
        plan.space.left_out = offers.left_out(offer);
        plan.space.saturated &= plan.space.left_out.is_empty();
        Ok((plan, variants))
    })
}

/// The plan of least time among those offered, and the variant of each block.
fn plan_in(
    (request, pins): (&Request<'_>, &[Pin]),
    cuts: &[Cut<'_>],
    derive: Option<&Derive<'_>>,
    (offer, width): (Offer, Width),
) -> Result<(Plan, Vec<usize>), PlanError> {
    let parts: Vec<Cow<'_, [Section]>> = cuts.iter().map(|cut| apart(cut, pins)).collect();
    let cuts: Vec<Cut<'_>> =
        cuts.iter().zip(&parts).map(|(cut, sections)| Cut { graph: cut.graph, sections }).collect();
    let (first, others) = (cuts[0], &cuts[1..]);
    if !others.iter().all(|other| are_alike(&first, other)) {
        return Err(PlanError::Unlike);
    }
    // A variant that is another one again is never better; the numbers of the others.
    let is_new = |&number: &usize| {
        number == 0
            || others[number - 1].sections != first.sections
                && others[..number - 1].iter().all(|it| it.sections != others[number - 1].sections)
    };
    let numbers: Vec<usize> = (0..=others.len()).filter(is_new).collect();
    let spaces = trail(request).map(|it| it.spaces()).unwrap_or_default();
    let weigh = |weights: Weights| {
        weighed((request, pins), (&cuts, &numbers), derive, (offer, width), (&spaces, weights))
    };
    let mut clocks = Clocks::new(request.prices.beside());
    let Weighed { made: mut best, bound } = weigh(clocks.weights())?;
    let mut go_on = clocks.go_on(best.0.loads(), best.0.seconds(), bound);
    while go_on {
        // What fits by other weights is found, or is not needed.
        let Ok(Weighed { made, bound }) = weigh(clocks.weights()) else { break };
        go_on = clocks.go_on(made.0.loads(), made.0.seconds(), bound);
        if made.0.seconds() < best.0.seconds() {
            best = made;
        }
    }
    best.0.proof = clocks.proof(&best.0);
    Ok(best)
}

/// What searches before have seen, if the request is one of several.
fn trail<'a>(request: &Request<'a>) -> Option<MutexGuard<'a, Trail>> {
    request.trail.map(|it| it.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The plan of least time where seconds count as some weights say, and the variant of each block.
struct Weighed {
    made: (Plan, Vec<usize>),
    /// No plan that fits takes less (seconds).
    bound: f64,
}

fn weighed(
    (request, pins): (&Request<'_>, &[Pin]),
    (cuts, numbers): (&[Cut<'_>], &[usize]),
    derive: Option<&Derive<'_>>,
    (offer, width): (Offer, Width),
    (spaces, weights): (&Spaces, Weights),
) -> Result<Weighed, PlanError> {
    let Request { mesh, prices, pinned, live, .. } = *request;
    let prepare = |&number: &usize| {
        Prepared::new(cuts[number], mesh, (prices, spaces, weights), (offer, live), (pinned, pins))
    };
    let programs: Vec<Result<Prepared<'_>, PlanError>> = numbers.par_iter().map(prepare).collect();
    let mut programs: Vec<Prepared<'_>> = programs.into_iter().collect::<Result<_, _>>()?;
    forbid(&mut programs, mesh, pins).map_err(PlanError::Fixed)?;
    let chain = Arc::new(chain(&programs));
    let known = trail(request).map(|mut it| std::mem::take(&mut *it)).unwrap_or_default();
    let mut solver = Solver::new(&chain, known, width);
    let mut lower_bound = None;
    // The fastest that fits with one slot where two are too many.
    let mut saving: Option<(Plan, Vec<usize>)> = None;
    let made = within(request.capacity, |given| {
        let solution = solver.solve(given).map_err(PlanError::Search)?;
        let blocks = blocks(&chain, &solution);
        let variants: Vec<usize> = blocks.iter().map(|block| numbers[block.variant]).collect();
        let derived = derive.map(|derive| derive(&variants));
        let composed = composed(request, &programs, &blocks, derived.as_ref())?;
        let graph = derived.as_ref().map_or(request.graph, |derived| &derived.graph);
        // The bound of the first solution holds for all: nothing that fits was left out of it.
        let proof = lower_bound.map_or(solution.proof, |lower_bound| Proof::Gap { lower_bound });
        lower_bound = lower_bound.or(Some(match solution.proof {
            Proof::Optimal => solution.time,
            Proof::Gap { lower_bound } => lower_bound,
        }));
        let in_place = composed.in_place.clone();
        let mut plan = finish((request, pins), graph, composed, proof, size(&programs));
        let held = held_by(request, &mut plan)?;
        if held > request.capacity && in_place.iter().any(Option::is_some) {
            let mut other = plan.clone();
            save(&mut other, &in_place, held - request.capacity);
            other.estimate = estimate(&other, request.prices);
            other.hidden = other.hidden_at(request.prices.beside());
            other.memory = memory(&other, request.live);
            // What was proved is said of two slots.
            other.proof = plan::Proof::Gap { lower_bound: lower_bound.unwrap_or(0.0) };
            let fits = held_by(request, &mut other)? <= request.capacity;
            let faster = saving.as_ref().is_none_or(|(it, _)| other.seconds() < it.seconds());
            saving = if fits && faster { Some((other, variants.clone())) } else { saving.take() };
        }
        // Copies and values on their way come on top of what the problem counts.
        let counted = chain.usage(&solution.choices).peak();
        Ok(Tried { made: (plan, variants), counted, held })
    });
    if let Some(mut trail) = trail(request) {
        *trail = solver.into_trail();
    }
    let made = match (made, saving) {
        (Ok(two), Some(one)) if two.0.seconds() <= one.0.seconds() => Ok(two),
        (Ok(_) | Err(NoRoom::Nearest(_)), Some(one)) => Ok(one),
        (made, _) => made,
    };
    let made = made.map(|made| Weighed { made, bound: lower_bound.unwrap_or(0.0) });
    made.map_err(|error| match error {
        NoRoom::Refused(error) => error,
        NoRoom::Nearest(found) => PlanError::Search(SearchError::NothingFound {
            place: Place { segment: 0, window: 0 },
            found,
            capacity: request.capacity,
        }),
    })
}

/// All that a plan holds (bytes), which it then says.
fn held_by(request: &Request<'_>, plan: &mut Plan) -> Result<u64, PlanError> {
    plan.memory = (request.memory)(plan).map_err(PlanError::Memory)?;
    Ok(plan.memory.iter().map(|it| it.bytes).sum())
}

/// A block of the chain as it was chosen.
struct Block {
    /// Where it stands: the section, and the repetition.
    place: (usize, usize),
    variant: usize,
    choices: Vec<usize>,
}

fn blocks(chain: &Chain, solution: &ChainSolution) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (section, (segment, chosen)) in chain.segments.iter().zip(&solution.choices.blocks).enumerate() {
        for (repetition, choices) in chosen.iter().enumerate() {
            let (variant, choices) = segment.variant(choices);
            blocks.push(Block { place: (section, repetition), variant, choices });
        }
    }
    blocks
}

/// The blocks written as one program: the one derived for them, or the only one there is.
fn composed(
    request: &Request<'_>,
    programs: &[Prepared<'_>],
    blocks: &[Block],
    derived: Option<&Derived>,
) -> Result<Composed, PlanError> {
    let section = |block: &Block| &programs[block.variant].cut.sections[block.place.0];
    let stands: Option<Vec<Repetition>> = match derived {
        Some(derived) => {
            let sections: Vec<&Section> = blocks.iter().map(section).collect();
            Some(stand(&derived.graph, &derived.homes, &sections).map_err(PlanError::Derived)?)
        }
        None => None,
    };
    let mut parts = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let (number, repetition) = block.place;
        let (program, section) = (&programs[block.variant], section(block));
        let repetition = match &stands {
            Some(stands) => &stands[index],
            None => &section.repetitions[repetition],
        };
        let (space, assembled) = (&program.spaces[number], &program.assembled[number]);
        parts.push(Part { section, repetition, space, assembled, choices: &block.choices });
    }
    let graph = derived.map_or(request.graph, |derived| &derived.graph);
    Ok(compose(graph, &parts, request.mesh, request.prices))
}

fn finish(
    (request, pins): (&Request<'_>, &[Pin]),
    graph: &Graph,
    composed: Composed,
    proof: Proof,
    space: SpaceSize,
) -> Plan {
    let outputs = graph.outputs.iter();
    let outputs = outputs.map(|output| composed.returned[output.value.0].unwrap_or(Copy::Made)).collect();
    let mut plan = Plan {
        model: request.model.clone(),
        machine: request.machine.clone(),
        mesh: request.mesh.clone(),
        graph: graph.clone(),
        layouts: composed.layouts,
        assignments: composed.assignments,
        transfers: composed.transfers,
        outputs,
        carried: composed.carried,
        recipe: None,
        pins: pins.to_vec(),
        controls: Vec::new(),
        estimate: Vec::new(),
        hidden: Hidden::default(),
        memory: Vec::new(),
        capacity: request.capacity,
        proof: match proof {
            Proof::Optimal => plan::Proof::Optimal,
            Proof::Gap { lower_bound } => plan::Proof::Gap { lower_bound },
        },
        space,
    };
    plan.estimate = estimate(&plan, request.prices);
    plan.hidden = plan.hidden_at(request.prices.beside());
    plan.memory = memory(&plan, request.live);
    plan
}

fn size(programs: &[Prepared<'_>]) -> SpaceSize {
    let spaces = || programs.iter().flat_map(|program| &program.spaces);
    let total = |count: &dyn Fn(&Space) -> usize| -> u64 {
        spaces().map(|space| u64::try_from(count(space)).unwrap_or(u64::MAX)).sum()
    };
    let sections = programs.first().map_or(&[][..], |first| first.cut.sections);
    let blocks: usize = sections.iter().map(|section| section.repetitions.len()).sum();
    SpaceSize {
        unique_blocks: u64::try_from(sections.len()).unwrap_or(u64::MAX),
        blocks: u64::try_from(blocks).unwrap_or(u64::MAX),
        nodes: total(&|space| space.statistics.nodes),
        classes: total(&|space| space.statistics.classes),
        saturated: spaces().all(|space| space.statistics.saturated),
        left_out: vec![],
        choices: total(&|space| space.choices.iter().map(Vec::len).sum()),
    }
}

#[cfg(test)]
mod tests;
