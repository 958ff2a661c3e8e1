//! The cheapest way to train a model on a whole cluster: how many groups of devices, the mesh of each,
//! micro-batches, what is computed again, the schedule, and where the model is cut.
//!
//! A setup is priced by one plan of the whole model on the mesh of a group: what each block takes and
//! holds there says where to cut, which schedule suits and whether it fits. The best is then planned
//! stage by stage.

mod blocks; // what each block of a plan takes and holds
mod finish; // ways to run a step, planned stage by stage
mod guess; // in which order setups are looked at
mod known; // what is known of a model
mod kept; // setups whose blocks keep what they may
mod least; // what setups cannot do with less than
mod nearest; // what comes nearest to fitting
mod ordered; // setups that some schedule can order
mod parts; // what blocks take on a mesh
mod priced; // what a setup takes
mod played; // what stages take by a schedule
mod refused; // what is fixed that cannot be
mod setups; // what is to be chosen among
mod unequal; // groups whose meshes differ
mod mixed; // groups on nodes of several kinds, or on meshes that are pinned

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::units::exact;
use files::model_file::ModelFile;
use files::{Doing, Failure, Of, Say};
use plan::{Pipeline, Recipe, Recompute};
use rayon::prelude::*;
use schedule::Kind;
use search::cluster::{Found, Outcome, Setups, TRIED};
use search::{Live, Trail};

use finish::{Finished, LESS, Said, Way};
use kept::KeptBefore;
use known::Known;
use ordered::{schedules, suits};
use parts::Part;
use played::{longer, together};
use priced::{Demand, Look};
pub use setups::{Chosen, Pins, Setup};

/// At most so many setups that something comes of are looked at with little memory, or where more is computed again.
const MOST: usize = 12;
/// So many setups are asked how fast they are, if not all.
const ASKED: usize = 24;
/// Of each number of groups one in so many of them comes first.
const OF_EACH: usize = 10;
/// How many times as many where axes are for one thing each.
const KINDS: usize = 3;
/// How many at a time.
const BATCH: usize = 4;
/// How many times as long a step takes, roughly, where the inside of attention, or all of the forward
/// pass, is computed again.
const AGAIN: [f64; 2] = [1.02, 1.25];

/// What is asked.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The model.
    pub file: &'a ModelFile,
    /// What the plan says of it, for a number of micro-batches.
    pub header: &'a (dyn Fn(u64) -> plan::ModelFile + Sync),
    /// The model, imported for a number of micro-batches.
    pub imported: &'a (dyn Fn(u64) -> Result<planner_ir::Graph, Failure> + Sync),
    /// How it is trained, but for the micro-batches and what is computed again.
    pub recipe: &'a Recipe,
    /// The machine, or several, all of whose devices are used.
    pub cluster: &'a Cluster,
    /// The number of the machine on which groups that are alike are.
    pub kind: usize,
    /// What a device can hold (bytes); without it, what each machine says.
    pub memory: Option<u64>,
    /// How many examples a step has.
    pub examples: u64,
    /// What is not to be chosen.
    pub pins: &'a Pins,
    /// Whether all setups are asked how fast they are, and what blocks take with less memory where groups
    /// may differ: the bound is closer, and the answer sometimes better.
    pub thorough: bool,
}

impl Answer {
    /// What was chosen, and what blocks compute again, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        self.chosen.in_words(&self.recomputed())
    }

    /// What blocks compute again, in words.
    #[must_use]
    pub fn recomputed(&self) -> String {
        plan::recomputed(&self.pipeline.recipe.recompute)
    }
}

impl<'a> Question<'a> {
    /// The machine on which groups that are alike are.
    fn machine(&self) -> &'a Machine {
        &self.cluster.kinds()[self.kind]
    }

    /// Whether the same is computed again of all blocks: frameworks have it so, or it is pinned.
    fn again_alike(&self) -> bool {
        self.pins.recompute.is_some() || self.pins.limits.is_some()
    }

    /// What a device of it can hold (bytes).
    fn capacity(&self) -> u64 {
        self.memory.unwrap_or(self.machine().usable_memory().0)
    }
}

/// What was found.
pub struct Answer {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// What was chosen.
    pub chosen: Chosen,
    /// And by which schedule.
    pub kind: Kind,
    /// How many setups there are, and how many were priced.
    pub looked_at: (usize, usize),
}

/// A setup that was priced.
#[derive(Clone)]
struct Priced {
    kind: Kind,
    chunks: usize,
    first: Vec<usize>,
}

impl Priced {
    /// As a way to run a setup, which promises to take so long (seconds).
    fn of(&self, setup: &Setup, seconds: f64) -> Way {
        let Self { kind, chunks, ref first } = *self;
        Way { seconds, chosen: Chosen::of(setup), kind, chunks, first: first.clone() }
    }
}

/// The cheapest pipeline.
pub fn cheapest(question: &Question<'_>, say: &Say<'_>) -> Result<Answer, Failure> {
    if question.cluster.single().is_none() || question.pins.meshes.is_some() {
        return mixed::cheapest(question, say);
    }
    let mut setups = match setups::all(question) {
        // Groups of as many devices are not as many as is pinned: others may be.
        Err(_) if question.pins.groups.is_some() && question.pins.devices() <= question.cluster.devices() => {
            return mixed::cheapest(question, say);
        }
        setups => setups?,
    };
    say("looking at the model".into());
    let known = Known::new(question, &setups.iter().map(|it| it.micro_batches).collect())?;
    setups.retain(|setup| setup.micro_batches >= known.fewest());
    let forward = known.first(question)?;
    setups::few_enough(question, forward.blocks())?;
    let having = known.having(question, setups.iter().map(|it| it.micro_batches).collect())?;
    setups.retain(|setup| having.contains(&setup.micro_batches));
    setups.retain(|setup| setup.groups <= forward.blocks());
    ordered::keep(&mut setups, forward.blocks(), &|setup| schedules(question, setup), question.pins)?;
    if question.pins.recompute.is_none() && !known.is_selective(question)? {
        setups.retain(|setup| setup.recompute != Recompute::Selective);
    }
    let sizes = guess::Sizes::of(question, &known)?;
    question.pins.has_experts(sizes.has_experts())?;
    let mut asked = Asked::new(question, &known, &setups);
    let mut finished = Finished::new(question);
    let (mut bound, mut priced) = (0.0, 0);
    // All setups are asked after the answer without them is there: more to compose of is not always better.
    // Of each mesh there are as many setups as there are things that its axes may be for.
    let kinds = if question.pins.are_ruled() { KINDS } else { 1 };
    // Guesses say less of experts, which axes split or not.
    let each = if sizes.has_experts() { 2 * kinds } else { kinds };
    let rounds = if question.thorough { vec![ASKED * each, usize::MAX] } else { vec![ASKED * each] };
    for many in rounds {
        let (first, numbers) = asked.first(&|setup| sizes.guess(setup), many, say);
        let mut guesses = vec![f64::INFINITY; setups.len()];
        for &(number, light) in &numbers {
            guesses[number] = asked.guess((number, light), &first[number]);
        }
        if many > ASKED * each {
            asked.tight = unequal::tightened(&asked)?;
        }
        let mut alike = Setups::new(first, guesses, MOST);
        finished.again();
        let (mut composed, mut of, mut under) = (Vec::new(), usize::MAX, 0.0);
        let looked = AtomicUsize::new(0);
        let look = |number: usize| {
            let before = looked.fetch_add(1, Ordering::Relaxed);
            // Where none of them fits, all are looked at.
            let most = if before < TRIED * MOST { TRIED * MOST } else { setups.len() };
            say(Doing::one("looking closely at setup", before + 1, Of::AtMost(most.min(setups.len()))));
            asked.closely(number)
        };
        // What promises most is planned. Where it takes longer than that, or does not fit, others are looked at.
        loop {
            let taken = |number: usize, seconds: f64, way: &Priced| {
                finished.taken(&way.of(&setups[number], seconds)).unwrap_or(seconds)
            };
            alike.closely(&taken, look);
            let found = alike.found();
            (bound, priced) = (found.lower_bound, numbers.len());
            let mut ways = asked.alike(&found);
            let least =
                ways.iter().map(|it| finished.taken(it).unwrap_or(it.seconds)).fold(f64::INFINITY, f64::min);
            // More is composed of what more setups were asked, and where others do not keep their promise.
            let below = LESS * least.min(finished.seconds());
            if of != asked.looks() || below > under {
                composed = unequal::composed(&asked, below);
                (of, under) = (asked.looks(), below);
            }
            ways.extend(composed.iter().filter(|it| it.seconds < below).cloned());
            if !finished.next(question, &known, &ways, say)? {
                break;
            }
        }
    }
    // What is proven of groups that are alike says nothing of others.
    let bound =
        |chosen: &Chosen| Ok(if chosen.is_alike() { bound } else { unequal::bound(&asked)?.min(bound) });
    let said = Said { bound: &bound, nearest: &|| asked.nearest() };
    finished.answer(question, from_ref(&known), (setups.len(), priced), &said)
}

/// A setup by its number, and the plans that it was priced by: with all memory, or with what there is for so many
/// micro-batches under way.
type Looked = (usize, Vec<Look>);

/// A question, what is known of its model, and the setups there are.
struct Asked<'a> {
    question: &'a Question<'a>,
    known: &'a Known,
    setups: &'a [Setup],
    /// What blocks of setups take that keep all, by a first look or a close one.
    keeping_all: Mutex<Vec<KeptBefore>>,
    /// What was seen of setups, by number, when they were planned with all memory, and what blocks take so, where what
    /// there is does not do.
    seen: Mutex<BTreeMap<usize, (Trail, Option<Part>)>>,
    /// What came of setups.
    priced: Mutex<BTreeMap<Looked, Outcome<Priced>>>,
    /// What blocks take, by the number of a setup: by each plan that was made for it.
    parts: Mutex<BTreeMap<usize, Vec<Part>>>,
    /// The same with less memory, of setups that were asked for that.
    tight: BTreeMap<usize, Vec<Part>>,
    /// What a device holds in the setup that comes nearest to fitting (bytes), of those that were looked at closely, and
    /// its number.
    nearest: Mutex<Option<(u64, usize)>>,
}

impl<'a> Asked<'a> {
    fn new(question: &'a Question<'a>, known: &'a Known, setups: &'a [Setup]) -> Self {
        let (keeping_all, seen, priced, parts) =
            (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let (tight, nearest) = (BTreeMap::new(), Mutex::default());
        Self { question, known, setups, keeping_all, seen, priced, parts, tight, nearest }
    }

    /// What is known of setups with all memory: how fast they are, and in which ways they fit so.
    ///
    /// So many of the best guesses are asked, in batches, and not when what others take is less than
    /// what products alone take in theirs. Where more is computed again a setup is no faster: it is
    /// not asked unless the one that keeps more does not fit. Besides, the setups of which it is known, each with
    /// the one that was asked.
    fn first(
        &self,
        guess: &dyn Fn(&Setup) -> f64,
        many: usize,
        say: &Say<'_>,
    ) -> (Vec<Outcome<Priced>>, Vec<(usize, usize)>) {
        let setups = self.setups;
        let at_peak = |number: usize| self.price(number, &[], f64::INFINITY).unwrap_or_else(|_| nothing());
        let mut known: Vec<Outcome<Priced>> = (0..setups.len()).into_par_iter().map(at_peak).collect();
        let alike = |&a: &usize, &b: &usize| {
            Setup { recompute: setups[b].recompute.clone(), ..setups[a].clone() } == setups[b]
        };
        let numbers: Vec<usize> = (0..setups.len()).collect();
        let variants: Vec<&[usize]> = numbers.chunk_by(alike).collect();
        let fits = |known: &[Outcome<Priced>], it: usize| known[it].lower_bound.is_finite();
        // What promises much where more is computed again is asked with less of it too.
        let lightest = |all: &&[usize]| {
            let promised = all.iter().map(|&it| guess(&setups[it])).fold(f64::INFINITY, f64::min);
            Some((promised, all.iter().copied().find(|&it| fits(&known, it))?))
        };
        let mut asked: Vec<(f64, usize)> = variants.iter().filter_map(lightest).collect();
        asked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // Guesses tell setups of as many groups apart better than others: the best of each number come first.
        let mut of_groups: BTreeMap<usize, usize> = BTreeMap::new();
        let mut is_first = |&(_, it): &(f64, usize)| {
            let before = of_groups.entry(setups[it].groups).or_default();
            *before += 1;
            *before <= many.div_ceil(OF_EACH)
        };
        let (mut asked, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(&mut is_first);
        asked.extend(others);
        asked.truncate(many);
        let asked: Vec<usize> = asked.into_iter().map(|it| it.1).collect();
        let mut below = f64::INFINITY;
        for (number, batch) in asked.chunks(BATCH).enumerate() {
            say(Doing::one("pricing setup", BATCH * number + 1, Of::All(asked.len())));
            let ask = |&it: &usize| self.price(it, &[Look::Loose], below).unwrap_or_else(|_| nothing());
            let made: Vec<Outcome<Priced>> = batch.par_iter().map(ask).collect();
            for (&it, outcome) in batch.iter().zip(made) {
                below = outcome.ways.iter().map(|way| way.0).fold(below, f64::min);
                known[it] = outcome;
            }
        }
        // What is known of a setup is known of those that compute more again.
        let mut told: Vec<(usize, usize)> = Vec::new();
        for all in variants {
            let is_asked = |it: &&usize| asked.contains(it);
            let Some(&light) = all.iter().find(is_asked) else { continue };
            let least = known[light].lower_bound;
            for &it in all.iter().filter(|&&it| it >= light) {
                known[it].lower_bound = known[it].lower_bound.max(least);
                told.push((it, light));
            }
        }
        (known, told)
    }

    /// A setup with as much memory as there is when half of the groups, or all, have micro-batches
    /// under way.
    fn closely(&self, number: usize) -> Outcome<Priced> {
        let setup = &self.setups[number];
        let [half, all] = setup.under_way();
        let least = [half, all].map(|live| Look::Tight(live, Demand::Least));
        let mut looks = vec![Look::Loose, least[0], least[1], Look::Tight(all, Demand::Most)];
        // Where there are few micro-batches these are the same.
        looks.dedup();
        self.price(number, &looks, f64::INFINITY).unwrap_or_else(|_| nothing())
    }

    /// What a setup may take by a close look (seconds), in which a pipeline fills and drains and memory costs what it
    /// has too little of, by what is known of the one that was asked, in which less may be computed again; more than
    /// anything where the first look has found ways to run it in one group, of which a plan says more.
    fn guess(&self, (number, asked): (usize, usize), first: &Outcome<Priced>) -> f64 {
        let setup = &self.setups[number];
        if !first.ways.is_empty() && setup.groups == 1 {
            return f64::INFINITY;
        }
        let again = |number: usize| match self.setups[number].recompute {
            Recompute::Selective => AGAIN[0],
            // Some blocks may keep more.
            Recompute::Full if self.keeps_what_it_may(number) => AGAIN[0],
            Recompute::Full => AGAIN[1],
            _ => 1.0,
        };
        let groups = exact(u64::try_from(setup.groups).unwrap_or(u64::MAX));
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let longer = parts.get(&number).and_then(|it| it.first()).map_or(1.0, |part| {
            let [half, _] = setup.under_way();
            longer(exact(together(&part.blocks).held(Live::of(half))) / groups, self.question.capacity())
        });
        first.lower_bound * again(number) / again(asked)
            * (1.0 + (groups - 1.0) / exact(setup.micro_batches) / 2.0)
            * longer
    }

    /// The ways that were found, the best first.
    fn alike(&self, found: &Found<'_, Priced>) -> Vec<Way> {
        found.all.iter().map(|&(number, seconds, way)| way.of(&self.setups[number], seconds)).collect()
    }

    /// How many plans say what blocks take.
    fn looks(&self) -> usize {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }
}

/// What is known of what cannot be planned.
fn nothing() -> Outcome<Priced> {
    Outcome { lower_bound: 0.0, ways: Vec::new() }
}
