//! The search: sections, their spaces and prices, the chain they form, its solution, the plan.

use std::borrow::Cow;
use std::sync::{MutexGuard, PoisonError};

use plan::{LeftOut, Pin, Plan};
use planner_ir::Graph;
use rewrite::Offer;

use crate::beside;
use crate::bound::Trail;
use crate::chain::Width;
use crate::clocks::{Clocks, Left};
use crate::compose::{early, memory};
use crate::fixed::{apart, pins};
use crate::live::Live;
use crate::offers::Offers;
use crate::prepare::are_alike;
use crate::problem::{SearchError, real};
use crate::request::{PlanError, Request, UNBOUNDED};
use crate::section::{Cut, Section};
use weighed::{Asked, Least, Weighed};

mod mixed; // blocks of several plans in one
mod weighed; // the plan of least time by weights

/// What a plan takes if a device holds so much of it where nothing is exchanged ahead (bytes): with what has to be there
/// early for what it says is hidden.
pub fn wanted(plan: &Plan, live: Live, least: u64) -> u64 {
    least.saturating_add(early(plan, live))
}

/// What a plan takes with these micro-batches under way, as the search counts it (bytes): with what has to be there early.
pub fn takes(plan: &Plan, live: Live) -> u64 {
    plan::held(&memory(plan, live)).saturating_add(early(plan, live))
}

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
    match offers.at_once.filter(|_| is_open(&found, request.live)) {
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
fn is_open(found: &Outcome, live: Live) -> bool {
    match found {
        Ok(Found { plan, missed, .. }) => match plan.proof {
            // What memory leaves open among all partitions, it leaves open among fewer.
            plan::Proof::Gap { lower_bound } if *missed <= MISSED * lower_bound => false,
            plan::Proof::Gap { lower_bound } if !plan.space.left_out.contains(&LeftOut::Steps) => {
                let is_full = real(takes(plan, live)) > NEARLY * real(plan.capacity);
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
    let graphs: Vec<&Graph> = cuts.iter().map(|cut| cut.graph).collect();
    let parts = beside::apart(&graphs, parts, request.pinned.map(|it| &it.beside));
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
    let overlap = request.prices.beside().map(|it| it.of(request.graph));
    let mut clocks = Clocks::new(overlap, request.live.splits());
    let mut weighed = Weighed::new(asked, clocks.weights())?;
    let Least { made, mut near, mut bound, mut missed, .. } = weighed.least(f64::INFINITY)?;
    let mut taken = made.taken();
    let mut seen = vec![(made.choices.clone(), taken)];
    let mut best = made;
    let enough = (request.enough)(&best.plan);
    while clocks.go_on(taken, bound) && !enough {
        // What fits by other weights is found, or is not needed.
        let mut other = weighed.at(clocks.weights());
        let Ok(found) = other.least(best.seconds()) else { break };
        (weighed, bound, taken) = (other, found.bound, found.made.taken());
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
