//! The search: sections, their spaces and prices, the chain they form, its solution, the plan.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plan::{Holding, LeftOut, MachineName, ModelFile, Pin, Plan};
use planner_ir::{Graph, Layout, Mesh, Source, ValueId};
use rewrite::{Offer, SpaceError, Steps};

use crate::bound::{Trail, is_far};
use crate::chain::Width;
use crate::clocks::{Clocks, Left, Taken};
use crate::compose::memory;
use crate::fixed::{Fixed, FixedError, apart, pins};
use crate::live::Live;
use crate::offers::Offers;
use crate::prepare::{Cut, are_alike};
use crate::prices::Prices;
use crate::problem::{SearchError, real};
use crate::section::Section;
use weighed::{Asked, Least, Weighed};

mod mixed; // blocks of several plans in one
mod weighed; // the plan of least time by weights

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
    pub memory: &'a Holds<'a>,
    /// Whether a plan, the best where nothing is hidden by what is longer, is enough: none by other weights of
    /// seconds is wanted then.
    pub enough: &'a dyn Fn(&Plan) -> bool,
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

/// What a device holds of a plan by kind, and what of it if nothing is exchanged ahead (bytes).
pub type Holds<'a> = dyn Fn(&Plan) -> Result<(Vec<Holding>, u64), String> + 'a;

/// More memory than any plan takes (bytes). Where there is so much, what plans hold is counted of the answer alone, as
/// the search counts it.
pub const UNBOUNDED: u64 = 1 << 52;

/// What a plan counts of the fullest device, and no more.
pub fn counted(plan: &Plan) -> Result<(Vec<Holding>, u64), String> {
    Ok((plan.memory.clone(), bytes(&plan.memory)))
}

/// What a plan takes if a device holds so much of it where nothing is exchanged ahead (bytes): with what has to be there
/// early for what it says is hidden.
pub fn wanted(plan: &Plan, live: Live, least: u64) -> u64 {
    bytes(&plan.memory).max(least.saturating_add(early(plan, live)))
}

/// What exchanges beside computing, which a plan says are hidden, hold besides (bytes): with these micro-batches under way.
pub fn early(plan: &Plan, live: Live) -> u64 {
    crate::compose::early(plan, live)
}

/// What a plan takes with these micro-batches under way, as the search counts it (bytes): with what has to be there early.
pub fn takes(plan: &Plan, live: Live) -> u64 {
    bytes(&memory(plan, live)).saturating_add(early(plan, live))
}

fn bytes(memory: &[Holding]) -> u64 {
    memory.iter().map(|it| it.bytes).sum()
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

    /// Whether nothing that was found comes near to fitting, though that nothing does is not proven.
    pub fn is_far(&self) -> bool {
        let Self::Search(SearchError::NothingFound { found, capacity, .. }) = self.last() else {
            return false;
        };
        is_far(*found, *capacity)
    }

    /// Whether it is proven that nothing fits.
    pub fn is_proven(&self) -> bool {
        use SearchError::{DoesNotFit, DoesNotFitTogether};
        matches!(self.last(), Self::Search(DoesNotFit { .. } | DoesNotFitTogether { .. }))
    }

    /// What the nearest plan needs on a device, as far as is known, where there is none for want of memory (bytes).
    pub fn needs(&self) -> Option<u64> {
        use SearchError::{DoesNotFit, DoesNotFitTogether, NothingFound};
        match self.last() {
            Self::Search(DoesNotFit { least, .. } | DoesNotFitTogether { least, .. }) => Some(*least),
            Self::Search(NothingFound { found, .. }) => Some(*found),
            _ => None,
        }
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
/// and that its space is not saturated. Where much is left open, what is found without time steps is looked at
/// besides. Blocks that are too wide to be eliminated are solved by message passing.
pub fn plan(request: &Request<'_>) -> Result<Plan, PlanError> {
    Ok(widely(request, &[], None)?.plan)
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
    let Found { plan, variants, .. } = widely(request, others, Some(derive))?;
    Ok((plan, variants))
}

/// The plan of least time among as many partitions as can be listed.
fn widely(request: &Request<'_>, others: &[Cut<'_>], derive: Option<&Derive<'_>>) -> Outcome {
    let first = Cut { graph: request.graph, sections: request.sections };
    let cuts: Vec<Cut<'_>> = std::iter::once(first).chain(others.iter().copied()).collect();
    let graphs: Vec<&Graph> = cuts.iter().map(|it| it.graph).collect();
    let pins = pins(request.fixed, &graphs, request.mesh).map_err(PlanError::Fixed)?;
    let offers = Offers::of(request, &cuts, &pins);
    let planned = |offer| {
        let mut found = plan_in((request, &pins), &cuts, derive, (offer, Width::ANY))?;
        let space = &mut found.plan.space;
        space.left_out = offers.left_out(offer);
        space.saturated &= space.left_out.is_empty();
        Ok(found)
    };
    let found = offers.among(planned);
    match offers.at_once.filter(|_| is_open(&found)) {
        Some(offer) => best_of(found, planned(offer)),
        None => found,
    }
}

/// A plan that was found.
struct Found {
    plan: Plan,
    /// The variant of each block.
    variants: Vec<usize>,
    /// What of that between bound and plan the search has missed, and memory does not leave open (seconds); all, if
    /// weights of seconds leave it open.
    missed: f64,
}

/// What was found; why nothing was.
type Outcome = Result<Found, PlanError>;

/// What part of its bound a search may have missed, and no other one is worth it.
const MISSED: f64 = 0.001;

/// How far above its bound a plan may be that is not looked for among fewer partitions (parts of the bound): where
/// there is memory left, and where there is not, which leaves much open among fewer too.
const OPEN: [f64; 2] = [0.001, 0.1];

/// What part of the memory a plan holds that has little left.
const NEARLY: f64 = 0.9;

/// Whether a search has left much open: among fewer partitions it may find what it has missed.
fn is_open(found: &Outcome) -> bool {
    match found {
        Ok(Found { plan, missed, .. }) => match plan.proof {
            // What memory leaves open among all partitions, it leaves open among fewer.
            plan::Proof::Gap { lower_bound } if *missed <= MISSED * lower_bound => false,
            plan::Proof::Gap { lower_bound } if !plan.space.left_out.contains(&LeftOut::Steps) => {
                let held: u64 = plan.memory.iter().map(|it| it.bytes).sum();
                let is_full = real(held) > NEARLY * real(plan.capacity);
                plan.seconds() > (1.0 + OPEN[usize::from(is_full)]) * lower_bound
            }
            _ => false,
        },
        Err(error) => matches!(error, PlanError::Search(SearchError::NothingFound { .. })) && !error.is_far(),
    }
}

/// The faster of what was found among all that is offered and among a part of it. What was proven of all holds
/// of both.
fn best_of(all: Outcome, part: Outcome) -> Outcome {
    match (all, part) {
        (Ok(Found { plan, .. }), Ok(other)) if other.plan.seconds() < plan.seconds() => {
            Ok(Found { plan: Plan { proof: plan.proof, space: plan.space, ..other.plan }, ..other })
        }
        (Err(_), part @ Ok(_)) => part,
        (all, _) => all,
    }
}

/// The plan of least time among those offered, and the variant of each block.
fn plan_in(
    (request, pins): (&Request<'_>, &[Pin]),
    cuts: &[Cut<'_>],
    derive: Option<&Derive<'_>>,
    (offer, width): (Offer, Width),
) -> Outcome {
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
    let asked =
        Asked { request, pins, cuts: &cuts, numbers: &numbers, derive, offer, width, spaces: &spaces };
    let mut clocks = Clocks::new(request.prices.beside());
    let mut weighed = Weighed::new(asked, clocks.weights())?;
    let Least { made, mut near, mut bound, mut missed, .. } = weighed.least(f64::INFINITY)?;
    let mut taken = Taken::of(&made.plan);
    let mut seen = vec![(made.choices.clone(), taken)];
    let mut best = made;
    let enough = (request.enough)(&best.plan);
    while clocks.go_on(taken, bound) && !enough {
        // What fits by other weights is found, or is not needed.
        let mut other = weighed.at(clocks.weights());
        let Ok(found) = other.least(best.seconds()) else { break };
        (weighed, bound, taken) = (other, found.bound, Taken::of(&found.made.plan));
        missed = missed.max(found.missed);
        seen.push((found.made.choices.clone(), taken));
        near.extend(found.near);
        if found.fits && found.made.seconds() < best.seconds() {
            best = found.made;
        }
    }
    if !enough {
        best = mixed::between(&mut weighed, (&seen, best), &mut clocks)?;
        if clocks.left() != Left::Weights && !clocks.is_settled() {
            best = weighed.or_near(best, &near)?;
            clocks.met(best.seconds());
        }
    }
    best.plan.proof = clocks.proof(&best.plan);
    if request.capacity >= UNBOUNDED {
        best.plan.memory = memory(&best.plan, request.live);
    }
    let missed = if clocks.left() == Left::Memory { missed } else { f64::INFINITY };
    Ok(Found { plan: best.plan, variants: best.variants, missed })
}

/// What searches before have seen, if the request is one of several.
fn trail<'a>(request: &Request<'a>) -> Option<MutexGuard<'a, Trail>> {
    request.trail.map(|it| it.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests;
