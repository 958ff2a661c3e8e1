//! The plan of least time where seconds count as weights say, and choices written as plans.

use std::sync::Arc;

use plan::{Copy, Hidden, Overlap, Pin, Plan, SpaceSize};
use rayon::prelude::*;
use rewrite::{Offer, Space, Spaces};

use super::{Derive, Derived, trail, wanted};
use crate::bound::{Joints, Solver};
use crate::chain::{Chain, ChainChoices, Width};
use crate::clocks::{Taken, Weights};
use crate::compose::save;
use crate::compose::{Composed, Part, compose, estimate, join, memory, wait};
use crate::derive::stand;
use crate::manner::InPlace;
use crate::prepare::{Prepared, chain, forbid, kinds};
use crate::problem::{Place, Proof, SearchError};
use crate::request::{PlanError, Request, UNBOUNDED};
use crate::room::{NoRoom, Tried, within};
use crate::section::{Cut, Repetition, Section};

/// By what part a plan of other choices has to be faster to be worth counting what it holds, which takes long.
const WORTH: f64 = 1e-3;

/// Of how many of them that is counted.
const MOST_FITTED: usize = 2;

/// How many plans are made that a search has passed by, where they are small.
const PASSED: usize = 20;

/// How far times may differ that are the same sum in another order, relative to them.
const SAME: f64 = 1e-9;

/// What is asked for, whatever seconds count.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) pins: &'a [Pin],
    pub(super) cuts: &'a [Cut<'a>],
    /// The cuts that blocks may be of.
    pub(super) numbers: &'a [usize],
    pub(super) derive: Option<&'a Derive<'a>>,
    pub(super) offer: Offer,
    pub(super) width: Width,
    pub(super) spaces: &'a Spaces,
}

/// Sections whose seconds count as weights say.
pub(super) struct Weighed<'a> {
    asked: Asked<'a>,
    programs: Arc<[Prepared<'a>]>,
    /// For each section, the programs that its blocks may be of.
    kinds: Arc<[Vec<usize>]>,
    pub(super) chain: Arc<Chain>,
    /// How blocks of different choices are joined; nothing before anything was found.
    pub(super) joints: Option<Joints>,
}

/// A plan, and what was chosen.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) plan: Plan,
    /// The variant of each block.
    pub(super) variants: Vec<usize>,
    pub(super) choices: ChainChoices,
    /// For each operation, how it would be done with one slot for what rotates, if it can be.
    in_place: Vec<Option<InPlace>>,
    /// What it would say is hidden if gradients of parameters were a part of their own, and whether they are.
    apart: Hidden,
    splits: bool,
    /// How computing and exchanges run beside each other.
    overlap: Option<Overlap>,
}

/// The plan of least time by weights.
pub(super) struct Least {
    pub(super) made: Made,
    /// Whether it fits.
    pub(super) fits: bool,
    /// Choices that take little more than what was minimised.
    pub(super) near: Vec<ChainChoices>,
    /// No plan that fits takes less (seconds).
    pub(super) bound: f64,
    /// What of that between bound and plan the search has missed, and memory does not leave open (seconds).
    pub(super) missed: f64,
}

/// Why a search by weights ends.
enum Stop {
    /// For this reason nothing was made.
    Failed(PlanError),
    /// What was made first does not fit, and takes no less than what is known.
    Slow(Box<Made>),
}

/// What a plan holds: with two slots for what rotates and with what has to be there early; and where that is too much,
/// the same with one slot, or with exchanges that wait, where it fits.
struct Held {
    made: Made,
    bytes: u64,
    /// That without what has to be there early.
    late: u64,
    saved: Option<Made>,
}

impl Made {
    /// Says what of it is hidden.
    fn hide(&mut self, request: &Request<'_>) {
        let overlap = request.prices.beside();
        self.overlap = overlap;
        self.plan.hidden = self.plan.hidden_at(overlap);
        self.apart = if self.splits { self.plan.hidden_apart(overlap) } else { self.plan.hidden };
    }

    /// What it takes where it is searched for: by the schedule of its stage (seconds).
    pub(super) fn seconds(&self) -> f64 {
        self.plan.seconds() + self.plan.hidden_seconds() - self.plan.seconds_of(self.apart)
    }

    /// What is on its clocks.
    pub(super) fn taken(&self) -> Taken {
        Taken::of(&self.plan, self.seconds(), (self.overlap, self.splits))
    }
}

impl<'a> Weighed<'a> {
    pub(super) fn new(asked: Asked<'a>, weights: Weights) -> Result<Self, PlanError> {
        let Asked { request, pins, cuts, numbers, offer, spaces, .. } = asked;
        let Request { mesh, prices, pinned, live, .. } = *request;
        let prepare = |&number: &usize| {
            Prepared::new(cuts[number], mesh, (prices, spaces, weights), (offer, live), (pinned, pins))
        };
        let programs: Vec<Result<Prepared<'_>, PlanError>> = numbers.par_iter().map(prepare).collect();
        let mut programs: Vec<Prepared<'_>> = programs.into_iter().collect::<Result<_, _>>()?;
        forbid(&mut programs, mesh, pins).map_err(PlanError::Fixed)?;
        let kinds = kinds(&programs).into();
        Ok(Self::of(asked, (programs.into(), kinds), weights))
    }

    /// The same where seconds count as other weights say: choices mean the same.
    pub(super) fn at(&self, weights: Weights) -> Self {
        Self::of(self.asked, (Arc::clone(&self.programs), Arc::clone(&self.kinds)), weights)
    }

    fn of(
        asked: Asked<'a>,
        (programs, kinds): (Arc<[Prepared<'a>]>, Arc<[Vec<usize>]>),
        weights: Weights,
    ) -> Self {
        let chain = Arc::new(chain(&programs, &kinds, &weights));
        Self { asked, programs, kinds, chain, joints: None }
    }

    /// The plan of least time that fits. Where what was found first does not, and takes no less than `below` (seconds),
    /// nothing with less memory is looked for.
    pub(super) fn least(&mut self, below: f64) -> Result<Least, PlanError> {
        let Asked { request, width, .. } = self.asked;
        let known = trail(request).map(|mut it| std::mem::take(&mut *it)).unwrap_or_default();
        let mut solver = Solver::new(&self.chain, known, width);
        let more = if solver.is_large() { 0 } else { PASSED };
        let mut lower_bound = None;
        // The fastest that fits, and that with one slot or with exchanges that wait where it would not.
        let [mut fitting, mut saving]: [Option<Made>; 2] = [None, None];
        // What was made first that fits, though what is there longer for what is routed comes late.
        let mut late: Option<Made> = None;
        let mut nearest = u64::MAX;
        // What is not counted takes memory that the search does not know of.
        let mut fits_at_once = true;
        let is_faster = |made: &Made, than: &Option<Made>| {
            than.as_ref().is_none_or(|than| made.seconds() < than.seconds())
        };
        let room = within(request.capacity, more, |given| {
            let solution = solver.solve(given).map_err(|it| Stop::Failed(PlanError::Search(it)))?;
            let is_first = lower_bound.is_none();
            // Nothing that is counted to hold no more than what was given takes less.
            let least = match solution.proof {
                Proof::Optimal => solution.time,
                Proof::Gap { lower_bound } => lower_bound,
            };
            // The bound of the first solution holds for all: nothing that fits was left out of it.
            let bound = *lower_bound.get_or_insert(least);
            let mut made = self.written(&solution.choices).map_err(Stop::Failed)?;
            made.plan.proof = match solution.proof {
                Proof::Optimal if is_first => plan::Proof::Optimal,
                _ => plan::Proof::Gap { lower_bound: bound },
            };
            let Held { made, bytes: held, late: least_held, mut saved } =
                self.held(made).map_err(Stop::Failed)?;
            // What was proved is said of two slots, and of what does not wait.
            saved.iter_mut().for_each(|it| it.plan.proof = plan::Proof::Gap { lower_bound: bound });
            if saved.as_ref().is_some_and(|it| is_faster(it, &saving)) {
                saving = saved;
            }
            nearest = nearest.min(least_held);
            fits_at_once &= held <= request.capacity;
            if is_first && held > request.capacity && saving.is_none() && made.seconds() >= below {
                return Err(Stop::Slow(Box::new(made)));
            }
            // Copies and values on their way come on top of what the problem counts.
            let counted = self.chain.usage(&solution.choices).peak();
            if held <= request.capacity && is_faster(&made, &fitting) {
                fitting = Some(made);
            } else if held > request.capacity && least_held <= request.capacity && late.is_none() {
                late = Some(made);
            }
            let best = [&fitting, &saving].into_iter().flatten().map(Made::seconds).reduce(f64::min);
            let is_open = best.is_none_or(|best| least < best * (1.0 - SAME));
            Ok(Tried { counted, held, is_open })
        });
        self.joints = solver.joints();
        let near = solver.near().to_vec();
        let missed = if fits_at_once { solver.missed() } else { f64::INFINITY };
        if let Some(mut trail) = trail(request) {
            *trail = solver.into_trail();
        }
        let bound = lower_bound.unwrap_or(0.0);
        let best = match (fitting, saving) {
            (Some(two), Some(one)) if two.seconds() <= one.seconds() => Some(two),
            (fitting, saving) => saving.or(fitting),
        };
        let (made, fits) = match (room, best.or(late)) {
            (Err(NoRoom::Refused(Stop::Failed(error))), _) => return Err(error),
            (Err(NoRoom::Refused(Stop::Slow(made))), _) => (*made, false),
            (_, Some(made)) => (made, true),
            (_, None) => {
                return Err(PlanError::Search(SearchError::NothingFound {
                    place: Place { segment: 0, window: 0 },
                    found: nearest,
                    capacity: request.capacity,
                }));
            }
        };
        Ok(Least { made, fits, near, bound, missed })
    }

    /// A plan, or a faster one of choices that take a little more by weights: plans take more than what was minimised,
    /// and not all as much more.
    pub(super) fn or_near(&self, best: Made, near: &[ChainChoices]) -> Result<Made, PlanError> {
        let mut faster: Vec<Made> = Vec::new();
        for choices in near {
            let is_known = *choices == best.choices || faster.iter().any(|it| it.choices == *choices);
            if !is_known && self.chain.time(choices) < best.seconds() {
                let made = self.written(choices)?;
                if made.seconds() < best.seconds() * (1.0 - WORTH) {
                    faster.push(made);
                }
            }
        }
        faster.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
        for made in faster.into_iter().take(MOST_FITTED) {
            if let Some(made) = self.fitting(made)?
                && made.seconds() < best.seconds()
            {
                return Ok(made);
            }
        }
        Ok(best)
    }

    /// The plan if it fits, with one slot for what rotates where two are too many.
    pub(super) fn fitting(&self, made: Made) -> Result<Option<Made>, PlanError> {
        let Held { made, bytes, saved, .. } = self.held(made)?;
        Ok(if bytes <= self.asked.request.capacity { Some(made) } else { saved })
    }

    fn held(&self, mut made: Made) -> Result<Held, PlanError> {
        let request = self.asked.request;
        if request.capacity >= UNBOUNDED {
            return Ok(Held { made, bytes: 0, late: 0, saved: None });
        }
        let [bytes, late] = held_by(request, &mut made.plan)?;
        let mut saved = None;
        if bytes > request.capacity && made.in_place.iter().any(Option::is_some) {
            let mut other = made.clone();
            save(&mut other.plan, &made.in_place, bytes - request.capacity);
            saved = self.if_it_fits(other)?;
        }
        if saved.is_none() && bytes > request.capacity && late <= request.capacity {
            let mut other = made.clone();
            if wait(&mut other.plan, request.live, request.capacity - late) {
                saved = self.if_it_fits(other)?;
            }
        }
        Ok(Held { made, bytes, late, saved })
    }

    /// A plan that was changed, if it fits now.
    fn if_it_fits(&self, mut made: Made) -> Result<Option<Made>, PlanError> {
        let request = self.asked.request;
        made.plan.estimate = estimate(&made.plan, request.prices);
        made.hide(request);
        Ok((held_by(request, &mut made.plan)?[0] <= request.capacity).then_some(made))
    }

    /// Choices as a plan of which nothing is proven, and which does not say yet what it holds.
    pub(super) fn written(&self, choices: &ChainChoices) -> Result<Made, PlanError> {
        let Asked { request, numbers, derive, pins, .. } = self.asked;
        let blocks = self.blocks(choices);
        let variants: Vec<usize> = blocks.iter().map(|block| numbers[block.variant]).collect();
        let derived = derive.map(|derive| derive(&variants));
        let graph = derived.as_ref().map_or(request.graph, |derived| &derived.graph);
        let mut composed = self.composed(&blocks, derived.as_ref())?;
        let mut in_place = std::mem::take(&mut composed.in_place);
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
            proof: plan::Proof::Gap { lower_bound: 0.0 },
            space: size(&self.programs),
        };
        join(&mut plan, &mut in_place, (request.prices, &composed.places));
        plan.estimate = estimate(&plan, request.prices);
        let (apart, overlap, splits) = (Hidden::default(), None, request.live.splits());
        let mut made = Made { plan, variants, choices: choices.clone(), in_place, apart, overlap, splits };
        made.hide(request);
        Ok(made)
    }

    fn blocks(&self, choices: &ChainChoices) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (section, (segment, chosen)) in self.chain.segments.iter().zip(&choices.blocks).enumerate() {
            for (repetition, choices) in chosen.iter().enumerate() {
                let (variant, choices) = segment.variant(choices);
                let variant = self.kinds[section][variant];
                blocks.push(Block { place: (section, repetition), variant, choices });
            }
        }
        blocks
    }

    /// The blocks written as one program: the one derived for them, or the only one there is.
    fn composed(&self, blocks: &[Block], derived: Option<&Derived>) -> Result<Composed, PlanError> {
        let (request, programs) = (self.asked.request, &self.programs);
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
            parts.push(Part {
                kind: (block.variant, number),
                section,
                repetition,
                space,
                assembled,
                choices: &block.choices,
            });
        }
        let graph = derived.map_or(request.graph, |derived| &derived.graph);
        Ok(compose(graph, &parts, request.mesh, request.prices))
    }
}

/// A block of the chain as it was chosen.
struct Block {
    /// Where it stands: the section, and the repetition.
    place: (usize, usize),
    variant: usize,
    choices: Vec<usize>,
}

/// All that a plan holds (bytes): what it takes, and that without what has to be there early. What of it the search
/// counts, the plan then says.
fn held_by(request: &Request<'_>, plan: &mut Plan) -> Result<[u64; 2], PlanError> {
    plan.memory = memory(plan, request.live);
    let least = (request.memory)(plan).map_err(PlanError::Memory)?;
    Ok([wanted(plan, request.live, least), least])
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
        choices: total(&|space| space.choices.iter().map(|it| it.len()).sum()),
    }
}
