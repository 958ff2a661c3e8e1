//! The cheapest plan among all that the blocks of a program may be.
//!
//! A training step that keeps everything is the fastest. Where the fastest plan of it fits, that is
//! the answer; where it does not, it says what each value takes and what each operation, and blocks
//! choose what they keep.

use std::sync::Mutex;

use files::Failure;
use lower::{Least, LowerError};
use plan::{MachineName, Plan};
use search::{Beside, Cut, PlanError, Prices, Request, Trail, UNBOUNDED};

use crate::prepared::Prepared;
use crate::rows::{brings_together, may_be_split};
use crate::target::{Target, refusal};
use crate::variants::{Decisions, Norms, Products, Variants};

/// What searches before have met, and whether what is found is enough to know.
pub(crate) type After<'a, T> = (&'a Mutex<Trail>, &'a dyn Fn(&T) -> bool);

/// What a search is told besides what it chooses among.
#[derive(Clone)]
struct Question<'a> {
    prepared: &'a Prepared,
    file: &'a plan::ModelFile,
    machine: MachineName,
    target: Target<'a>,
    prices: &'a dyn Prices,
    /// Whether what programs place is held against the memory, and not what the search counts.
    places: bool,
    /// What a device holds of a plan.
    holds: &'a search::Holds<'a>,
    /// What searches before have seen.
    trail: Option<&'a Mutex<Trail>>,
    /// Whether the program is planned for itself, and not as one of many stages or setups.
    is_alone: bool,
    /// Whether a plan is enough where none by other weights of seconds was looked for.
    enough: &'a dyn Fn(&Plan) -> bool,
}

/// The cheapest plan whose programs fit, with all that they place in memory: alignment, and values
/// on their way, come on top of what a plan counts.
pub fn placed(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    prices: &dyn Prices,
) -> Result<Plan, Failure> {
    planned(prepared, file, target, prices).map_err(|error| refusal(target, &error))
}

/// What the programs of a plan place on a device if nothing is exchanged ahead of its use (bytes).
pub fn least(plan: &Plan) -> Result<u64, String> {
    Ok(apart(plan)?.bytes())
}

/// The same, by region.
fn apart(plan: &Plan) -> Result<Least, String> {
    lower::least(plan).map_err(|error| of_lowering(plan, &error))
}

/// What a device then holds of a plan and of what another program holds beside it: what is at rest in both alike is
/// there once, and so is the memory of a step (bytes).
pub fn least_beside(plan: &Plan, beside: &Beside) -> Result<u64, String> {
    let Least { resident, arena } = apart(plan)?;
    let shared = beside.shared(plan).into_iter().map(|it| it.next_multiple_of(lower::ALIGNMENT)).sum::<u64>();
    Ok(beside.resident + resident.saturating_sub(shared) + arena.max(beside.arena))
}

/// What is wrong with a plan that has no programs.
fn of_lowering(plan: &Plan, error: &LowerError) -> String {
    match plan::check(plan) {
        Ok(()) => error.to_string(),
        Err(violations) => format!("{error}; the plan is rejected:\n{violations}"),
    }
}

/// The cheapest plan by some prices, not checked.
pub fn planned(
    prepared: &Prepared,
    file: &plan::ModelFile,
    target: &Target<'_>,
    prices: &dyn Prices,
) -> Result<Plan, PlanError> {
    let seen = Mutex::default();
    let question = Question::new(prepared, file, target, prices);
    let beside = prepared.pinned.as_ref().map(|it| &it.beside);
    let both = |plan: &Plan| beside.map_or_else(|| least(plan), |beside| least_beside(plan, beside));
    let holds: &search::Holds<'_> = if question.places { &both } else { &search::counted };
    Question { trail: Some(&seen), is_alone: true, holds, ..question }.answered()
}

/// The same, from what searches of the same program on the same mesh have seen, to which this one adds, unless less is
/// enough ([`Request::enough`]). What programs place is looked at where that is asked for and they show it; the plan says
/// what the search counts.
pub(crate) fn planned_after(
    (trail, enough): After<'_, Plan>,
    places: bool,
    prepared: &Prepared,
    (file, target): (&plan::ModelFile, &Target<'_>),
    prices: &dyn Prices,
) -> Result<Plan, PlanError> {
    let question = Question::new(prepared, file, target, prices);
    let places = places && question.places;
    let holds: &search::Holds<'_> = if places { &least } else { &search::counted };
    Question { trail: Some(trail), enough, places, holds, ..question }.found()
}

/// What blocks may be.
#[derive(Clone, Debug)]
struct Among {
    variants: Variants,
    /// The numbers of those that are offered.
    offered: Vec<usize>,
    /// The numbers of those among which there is less to choose.
    fewer: Vec<usize>,
    /// The numbers of those that are offered besides, where rows may be split.
    spelled: Vec<usize>,
}

impl<'a> Question<'a> {
    fn new(
        prepared: &'a Prepared,
        file: &'a plan::ModelFile,
        target: &Target<'a>,
        prices: &'a dyn Prices,
    ) -> Self {
        let machine = files::machine::called(std::slice::from_ref(target.machine));
        Self {
            prepared,
            file,
            machine,
            target: *target,
            prices,
            // The programs of one plan do not show what other micro-batches under way take.
            places: target.live == search::Live::ONE,
            holds: &search::counted,
            trail: None,
            is_alone: false,
            enough: &|_| false,
        }
    }

    /// The same with this much memory (bytes).
    fn with(&self, capacity: u64) -> Self {
        Self { target: Target { capacity, ..self.target }, ..self.clone() }
    }

    fn answered(&self) -> Result<Plan, PlanError> {
        let mut plan = self.found()?;
        if self.places && self.target.capacity < UNBOUNDED {
            let memory = lower::memory(&plan);
            plan.memory = memory.map_err(|error| PlanError::Memory(of_lowering(&plan, &error)))?;
        }
        Ok(plan)
    }

    fn found(&self) -> Result<Plan, PlanError> {
        let capacity = self.target.capacity;
        let mut whole = self.keeping_all();
        let mut wanted = u64::MAX;
        if let Some(plan) = whole.as_mut().filter(|_| capacity < UNBOUNDED) {
            // How far exchanges go ahead depends on what memory there is.
            plan.capacity = capacity;
            let least = (self.holds)(plan).map_err(PlanError::Memory)?;
            wanted = search::wanted(plan, self.target.live, least);
        }
        match whole {
            Some(plan) if wanted <= capacity || capacity >= UNBOUNDED => Ok(self.or_spelled(plan)),
            whole => {
                let missing = wanted.saturating_sub(capacity) / self.target.live.gradients.max(1);
                self.chosen(self.variants(whole.as_ref(), missing).as_ref())
            }
        }
    }

    /// The fastest plan that keeps everything, however much that is: its programs are not placed. Nothing where
    /// what is kept is no choice.
    fn keeping_all(&self) -> Option<Plan> {
        let variants = self.prepared.variants.as_ref()?;
        if matches!(variants.decisions(), Decisions::Only(_)) {
            return None;
        }
        self.with(UNBOUNDED).among(variants, &[0]).ok()
    }

    /// This plan, which keeps everything, or a faster one that does in which norms and losses are spelled out.
    fn or_spelled(&self, plan: Plan) -> Plan {
        let Some(variants) = &self.prepared.variants else { return plan };
        let numbers = variants.keeping_all();
        if numbers.len() < 2 || !self.may_spell() {
            return plan;
        }
        self.or_among(plan, variants, &numbers)
    }

    /// This plan, whose rows are whole, or a faster one among these variants, if rows cost it something. What
    /// is spelled out makes a search wider, so that it may miss what was found without.
    fn or_among(&self, plan: Plan, variants: &Variants, numbers: &[usize]) -> Plan {
        if !brings_together(&plan) {
            return plan;
        }
        match self.among(variants, numbers) {
            Ok(other) => or_of_more(plan, other),
            Err(_) => plan,
        }
    }

    /// Whether norms and losses that are spelled out are worth a search of their own. For stages, of which
    /// many are planned one after the other, they are not.
    fn may_spell(&self) -> bool {
        self.is_alone && may_be_split(&self.prepared.graph, self.target.mesh, self.prices)
    }

    /// What blocks may be, where this is the fastest plan that keeps everything, for which so much memory is missing
    /// (bytes, of each micro-batch under way).
    fn variants(&self, whole: Option<&Plan>, missing: u64) -> Option<Among> {
        let variants = self.prepared.variants.as_ref()?;
        let apart = variants.of_forms(Products::Apart, Norms::Whole);
        let Target { mesh, .. } = self.target;
        let spelled = match self.may_spell() {
            true => variants.of_forms(Products::Apart, Norms::Spelled),
            false => vec![],
        };
        if let (Some(plan), Decisions::Values) = (whole, variants.decisions()) {
            let variants = variants.finer(plan, missing);
            let offered = variants.of_forms(Products::Apart, Norms::Whole);
            return Some(Among { offered, variants, fewer: apart, spelled });
        }
        let wide = mesh.axes.iter().filter(|axis| axis.size > 1).count();
        let products = if wide > FUSED_AXES { Products::Apart } else { Products::Fused };
        let offered = variants.of_forms(products, Norms::Whole);
        Some(Among { variants: variants.clone(), offered, fewer: apart, spelled })
    }

    /// The cheapest plan where blocks may be these.
    fn chosen(&self, among: Option<&Among>) -> Result<Plan, PlanError> {
        let Some(among) = among else { return search::plan(&self.request()) };
        let whole = self.of_whole_rows(among);
        if among.spelled.len() <= among.fewer.len() {
            return whole;
        }
        match whole {
            Ok(plan) => Ok(self.or_among(plan, &among.variants, &among.spelled)),
            Err(error) if error.is_far() => Err(error),
            Err(error) => self.among(&among.variants, &among.spelled).map_err(|_| error),
        }
    }

    /// The cheapest plan in which norms are of whole rows.
    fn of_whole_rows(&self, among: &Among) -> Result<Plan, PlanError> {
        let Among { variants, offered, fewer, .. } = among;
        if *variants.decisions() == Decisions::Values && !self.is_alone {
            // Among more a search may miss what it finds where all is kept.
            return match (self.among(variants, offered), self.among(variants, &[0])) {
                (Ok(plan), Ok(other)) => Ok(faster(plan, other)),
                (Ok(plan), Err(_)) | (Err(_), Ok(plan)) => Ok(plan),
                (Err(error), Err(_)) => Err(error),
            };
        }
        if *variants.decisions() == Decisions::Values && offered != fewer {
            // Among more a search may miss what it finds among fewer, where it leaves much open.
            return match self.among(variants, offered) {
                Ok(plan) if is_open(&plan) => match self.among(variants, fewer) {
                    Ok(other) => Ok(faster(plan, other)),
                    Err(_) => Ok(plan),
                },
                Err(error) if !error.is_far() && !error.is_proven() => {
                    self.among(variants, fewer).map_err(|_| error)
                }
                outcome => outcome,
            };
        }
        match self.among(variants, offered) {
            // Blocks may hand on other values when products are fused.
            Err(error)
                if offered != fewer
                    && (error.last().is_too_large() || matches!(error.last(), PlanError::Unlike)) =>
            {
                self.among(variants, fewer)
            }
            // More to choose from may leave room for fewer partitions, or for less of a proof.
            Ok(plan) if offered != fewer && is_weak(&plan) => Ok(match self.among(variants, fewer) {
                Ok(other) if !is_weak(&other) || other.seconds() <= plan.seconds() => other,
                _ => plan,
            }),
            outcome => outcome,
        }
    }

    /// The cheapest plan among the variants of these numbers, of which the first is 0.
    fn among(&self, variants: &Variants, numbers: &[usize]) -> Result<Plan, PlanError> {
        let request = self.request();
        let number = |chosen: &[usize]| chosen.iter().map(|&it| numbers[it]).collect::<Vec<_>>();
        let others: Vec<Cut<'_>> = numbers[1..].iter().map(|&it| variants.cut(it)).collect();
        let (plan, chosen) = match others[..] {
            [] => (search::plan(&request)?, vec![0]),
            _ => search::plan_among(&request, &others, &|chosen| variants.derived(&number(chosen)))?,
        };
        Ok(Plan { recipe: variants.recipe(&number(&chosen)), ..plan })
    }

    fn request(&self) -> Request<'_> {
        let Self { prepared, file, ref machine, target, prices, trail, enough, .. } = *self;
        Request {
            graph: &prepared.graph,
            sections: &prepared.sections,
            mesh: target.mesh,
            capacity: target.capacity,
            prices,
            model: file,
            machine,
            steps: target.steps,
            live: target.live,
            pinned: prepared.pinned.as_ref(),
            fixed: &prepared.fixed,
            trail,
            memory: self.holds,
            enough,
        }
    }
}

/// The faster of a plan and one that is found among less; no plan is faster than the lower bound.
fn faster(plan: Plan, other: Plan) -> Plan {
    if plan.seconds() <= other.seconds() {
        return plan;
    }
    let lower_bound = bound(&plan).min(bound(&other));
    Plan { proof: plan::Proof::Gap { lower_bound }, ..other }
}

/// A plan, or a faster one that is found among more. What is proven of the first is proven of what both
/// searches looked at.
fn or_of_more(plan: Plan, more: Plan) -> Plan {
    let lower_bound = bound(&plan).min(bound(&more));
    if more.seconds() < plan.seconds() {
        return more;
    }
    let proof = match lower_bound < plan.seconds() {
        true => plan::Proof::Gap { lower_bound },
        false => plan.proof,
    };
    Plan { proof, ..plan }
}

/// What no plan is faster than (seconds).
fn bound(plan: &Plan) -> f64 {
    plan.proof.bound(plan.seconds())
}

/// Fused products are offered on meshes of up to this many axes of more than one device. On three
/// the search among them takes several times as long, or has too large a space for all partitions.
const FUSED_AXES: usize = 2;

/// How far above its bound a plan may be for its proof not to be weak (parts of the bound).
const WEAK: f64 = 0.01;

/// How far above its bound a plan may be that is not looked for among fewer variants (parts of the bound).
const OPEN: f64 = 0.05;

/// Whether a search has left much open.
pub(crate) fn is_open(plan: &Plan) -> bool {
    plan.seconds() > (1.0 + OPEN) * bound(plan)
}

/// Whether the search looked at few splits at once only, or left much unproven.
fn is_weak(plan: &Plan) -> bool {
    plan.space.left_out.contains(&plan::LeftOut::Splits) || plan.seconds() > (1.0 + WEAK) * bound(plan)
}

#[cfg(test)]
mod tests;
