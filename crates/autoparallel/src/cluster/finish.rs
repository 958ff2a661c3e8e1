//! Ways to run a step, planned stage by stage: what a price of blocks promises, made.

use files::{Doing, Failure, Of, Say};
use plan::{Pipeline, Proof, Recompute};
use rewrite::Steps;
use schedule::Kind;
use search::Fixed;

use super::known::Known;
use super::nearest::Nearest;
use super::refused::Refused;
use super::setups::Chosen;
use super::{Answer, Question};
use crate::staged::{Meshes, Order, Wanted, staged};

/// So many ways are tried at most.
const TRIED: usize = 12;
/// So many, where none of them fits.
const ANY: usize = 32;
/// And so many of those that fit are planned.
const PLANNED: usize = 10;
/// What part of what is had a way has to promise: none takes much less than it promises.
pub(super) const LESS: f64 = 0.99;
/// And a way that was priced by blocks that compute all again, where each may keep some: it may take less.
const ALL_AGAIN: f64 = 1.05;

/// A way to run a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    /// What it takes by the prices of its blocks (seconds).
    pub(super) seconds: f64,
    /// The groups and what they share.
    pub(super) chosen: Chosen,
    /// The schedule.
    pub(super) kind: Kind,
    /// How many stages each group has.
    pub(super) chunks: usize,
    /// The first block of each stage.
    pub(super) first: Vec<usize>,
}

impl Way {
    /// Whether it comes to the same as another: what is promised does not count, and what is computed again counts only
    /// where it is of all blocks alike.
    fn is(&self, other: &Self, again_alike: bool) -> bool {
        let as_other = |chosen: &Chosen| {
            let recompute = other.chosen.recompute.clone();
            if again_alike { chosen.clone() } else { Chosen { recompute, ..chosen.clone() } }
        };
        (self.kind, self.chunks, &self.first) == (other.kind, other.chunks, &other.first)
            && as_other(&self.chosen) == other.chosen
    }
}

/// What is said of an answer, and where there is none.
pub(super) struct Said<'a> {
    /// What none that is chosen from among what this is takes less than (seconds).
    pub(super) bound: &'a dyn Fn(&Chosen) -> Result<f64, Failure>,
    /// What comes nearest to fitting, if something is known.
    pub(super) nearest: &'a dyn Fn() -> Result<Option<Nearest>, Failure>,
}

/// What came of ways.
pub(super) struct Finished {
    /// Whether the same is computed again of all blocks.
    again_alike: bool,
    /// The one that takes least, and its pipeline.
    best: Option<(Way, Pipeline)>,
    /// All that were tried, and what they take (seconds), infinite where they do not fit.
    tried: Vec<(Way, f64)>,
    /// How many of them by what was known before.
    before: usize,
    /// Why the last of those that do not fit does not.
    refused: Option<Failure>,
}

impl Finished {
    /// Nothing yet.
    pub(super) fn new(question: &Question<'_>) -> Self {
        let (best, tried, before, refused) = (None, Vec::new(), 0, None);
        Self { again_alike: question.again_alike(), best, tried, before, refused }
    }

    /// What the best takes (seconds).
    pub(super) fn seconds(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |(_, pipeline)| pipeline.seconds())
    }

    /// What a way takes that was tried (seconds).
    pub(super) fn taken(&self, way: &Way) -> Option<f64> {
        self.tried.iter().find(|it| it.0.is(way, self.again_alike)).map(|it| it.1)
    }

    /// More is known: as many ways may be tried again.
    pub(super) fn again(&mut self) {
        self.before = self.tried.len();
    }

    /// Plans ways stage by stage, the best promise first, until none promises much less than what is had.
    pub(super) fn plan(
        &mut self,
        question: &Question<'_>,
        known: &Known,
        ways: &[Way],
        say: &Say<'_>,
    ) -> Result<(), Failure> {
        while self.next(question, known, ways, say)? {}
        Ok(())
    }

    /// Plans the way that promises most of those that were not tried, of equal ones the first; false if none promises
    /// much less than what is had, or enough were tried.
    pub(super) fn next(
        &mut self,
        question: &Question<'_>,
        known: &Known,
        ways: &[Way],
        say: &Say<'_>,
    ) -> Result<bool, Failure> {
        let tried = &self.tried[self.before..];
        let made = tried.iter().filter(|it| it.1.is_finite()).count();
        // Those that came before one fits say nothing of how many are worth it after that.
        let since = tried.iter().position(|it| it.1.is_finite()).unwrap_or(0);
        let most = if self.best.is_some() { since + TRIED } else { ANY };
        if made == PLANNED || tried.len() >= most {
            return Ok(false);
        }
        let ways = possible(question, known, ways)?.into_iter();
        let part = |it: &Way| match it.chosen.recompute {
            Recompute::Full if !self.again_alike => ALL_AGAIN,
            _ => LESS,
        };
        let ways = ways.filter(|it| it.seconds < part(it) * self.seconds() && self.taken(it).is_none());
        let Some(way) = ways.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).cloned() else {
            return Ok(false);
        };
        let number = tried.len() + 1;
        let most = if number <= PLANNED { PLANNED } else { most };
        let chosen = format!("{}, {}", way.chosen, way.kind.name());
        say(Doing::one("planning", number, Of::AtMost(most)).named(chosen));
        match planned(question, known, &way, say) {
            Ok(pipeline) => {
                let seconds = pipeline.seconds();
                self.tried.push((way.clone(), seconds));
                if seconds < self.seconds() {
                    self.best = Some((way, pipeline));
                }
            }
            Err(failure @ Failure::Internal(_)) => return Err(failure),
            Err(failure) => {
                self.tried.push((way, f64::INFINITY));
                self.refused = Some(failure);
            }
        }
        Ok(true)
    }

    /// The best as the answer; how many setups there are, and how many were priced, and what else is said.
    pub(super) fn answer(
        self,
        question: &Question<'_>,
        known: &[Known],
        looked_at: (usize, usize),
        said: &Said<'_>,
    ) -> Result<Answer, Failure> {
        let Some((Way { chosen, kind, .. }, pipeline)) = self.best else {
            let nearest = (said.nearest)()?;
            // Without setups that can be compared, what was tried last says more.
            return Err(match self.refused {
                Some(refused) if nearest.is_none() => refused,
                _ => none_fits(question, (looked_at.0, nearest), known),
            });
        };
        let pipeline = Pipeline { proof: Proof::of((said.bound)(&chosen)?, pipeline.seconds()), ..pipeline };
        Ok(Answer { pipeline, chosen, kind, looked_at })
    }
}

/// The ways in which no block of an operation that is fixed is on a mesh where its partition is none. All of
/// them, if there are none: planning them says why.
fn possible<'a>(question: &Question<'_>, known: &Known, ways: &'a [Way]) -> Result<Vec<&'a Way>, Failure> {
    let fixed = &question.pins.operations;
    let Some(way) = ways.first().filter(|_| !fixed.is_empty()) else { return Ok(ways.iter().collect()) };
    let forward = known.of(question, way.chosen.micro_batches)?;
    let having: Vec<(&Fixed, Vec<bool>)> = fixed.iter().map(|it| (it, forward.having(it))).collect();
    let can = |way: &Way| {
        let meshes = &way.chosen.meshes;
        let end = |stage: usize| way.first.get(stage + 1).copied().unwrap_or(forward.blocks());
        (0..way.first.len()).all(|stage| {
            let (mesh, blocks) = (&meshes[stage % meshes.len()], way.first[stage]..end(stage));
            let is_there = |having: &Vec<bool>| having[blocks.clone()].contains(&true);
            having.iter().all(|(it, having)| !is_there(having) || it.is_of_mesh(mesh))
        })
    };
    let possible: Vec<&Way> = ways.iter().filter(|it| can(it)).collect();
    if possible.is_empty() { Ok(ways.iter().collect()) } else { Ok(possible) }
}

fn planned(question: &Question<'_>, known: &Known, way: &Way, say: &Say<'_>) -> Result<Pipeline, Failure> {
    let Way { chosen, kind, chunks, first, .. } = way;
    let known = known.of(question, chosen.micro_batches)?;
    // Where each block keeps what it may, what a way says of that was only its price.
    let forward = if question.again_alike() { &known.again(&chosen.recompute) } else { &*known };
    let wanted = Wanted {
        cluster: question.cluster,
        meshes: Meshes::Each(&chosen.meshes),
        memory: question.memory,
        steps: Steps::One,
        order: Order::Named(*kind),
        chunks: *chunks,
        first: Some(first.clone()),
        fixed: &question.pins.operations,
        rules: chosen.rules.as_ref(),
        alike: question.again_alike(),
    };
    staged(forward, &(question.header)(chosen.micro_batches), &wanted, say)
}

/// Why there is no pipeline where there are so many setups.
fn none_fits(
    question: &Question<'_>,
    (setups, nearest): (usize, Option<Nearest>),
    known: &[Known],
) -> Failure {
    let refused = known.iter().fold(Refused::default(), |refused, it| it.refused(refused));
    if refused.everywhere() {
        let message = format!("none of {setups} setups can have what is fixed{refused}");
        return Failure::input("no pipeline", message);
    }
    let most =
        question.cluster.kinds().iter().map(|it| question.memory.unwrap_or(it.usable_memory().0)).max();
    let pinned = match question.pins.operations[..] {
        [] => "",
        _ => ", with operations computed as `--pin` says",
    };
    let (needs, nearest) = nearest.unzip();
    Failure::no_room(
        "no pipeline",
        format!(
            "none of {} was found to fit {} on a device{pinned}{}; more devices, or devices with more memory, \
             would help{refused}",
            cost_models::quantity::counted(setups, "setup"),
            cost_models::quantity::bytes(most.unwrap_or(0)),
            nearest.unwrap_or_default()
        ),
        needs,
    )
}
