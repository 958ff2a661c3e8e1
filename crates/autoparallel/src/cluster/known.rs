//! What is known of a model: its forward part for numbers of micro-batches, and its steps. Each is made when it
//! is first asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use cost_models::units::exact;
use files::Failure;
use plan::{Recipe, Recompute};
use planner_ir::Mesh;
use rewrite::RaiseStatistics;
use search::fold_alone;

use super::least::Least;
use super::refused::{Refusal, Refused};
use super::{Question, Setup};
use crate::pins::counted;
use crate::prepared::Prepared;
use crate::staged::Forward;

/// Models up to their losses, for numbers of micro-batches, and their steps.
pub(super) struct Known {
    /// The fewest micro-batches that are asked for: what steps do at least is told from these.
    fewest: u64,
    leasts: Mutex<BTreeMap<String, Arc<Least>>>,
    whole: Mutex<BTreeMap<u64, Arc<Forward>>>,
    steps: Mutex<BTreeMap<(u64, String), Arc<WholeStep>>>,
    refused: Mutex<Refused>,
}

/// A training step.
pub(super) struct WholeStep {
    /// The step, cut into sections.
    pub(super) prepared: Prepared,
    /// For each operation, its block.
    pub(super) homes: Vec<usize>,
    /// How many blocks there are.
    pub(super) blocks: usize,
}

impl Known {
    /// The model for the fewest of these numbers of micro-batches for which it can be imported: whole batches may have
    /// too many elements.
    pub(super) fn new(question: &Question<'_>, counts: &BTreeSet<u64>) -> Result<Self, Failure> {
        let mut refused = Failure::internal("plan", "there are no micro-batches");
        for &fewest in counts {
            let (leasts, whole, steps, noted) = Default::default();
            let known = Self { fewest, leasts, whole, steps, refused: noted };
            match known.first(question) {
                Ok(_) => return Ok(known),
                Err(failure @ Failure::Internal(_)) => return Err(failure),
                Err(failure) => refused = failure,
            }
        }
        Err(refused)
    }

    /// The fewest micro-batches that are asked for.
    pub(super) fn fewest(&self) -> u64 {
        self.fewest
    }

    /// The model for the fewest micro-batches.
    pub(super) fn first(&self, question: &Question<'_>) -> Result<Arc<Forward>, Failure> {
        self.of(question, self.fewest)
    }

    /// Whether there is something in the inside of attention that can be computed again.
    pub(super) fn is_selective(&self, question: &Question<'_>) -> Result<bool, Failure> {
        let step = |again: Recompute| self.step_of(question, (self.fewest, &again));
        let [some, nothing] = [step(Recompute::Selective)?, step(Recompute::Nothing)?];
        Ok(some.prepared.graph != nothing.prepared.graph)
    }

    /// What the step of a setup does at least.
    pub(super) fn least(&self, question: &Question<'_>, setup: &Setup) -> Result<Least, Failure> {
        let least = |again: &Recompute| {
            let make = || {
                let forward = self.of(question, self.fewest)?;
                let (step, _) = forward.step(Some(again))?;
                // No plan takes longer where products add to sums.
                let joined = rewrite::joined(&step.graph, &rewrite::added(&step.graph)).graph;
                Ok(Least::of(question.machine(), &step.joined_as(&joined)))
            };
            kept(&self.leasts, again.to_string(), make)
        };
        let times = exact(setup.micro_batches) / exact(self.fewest);
        if question.again_alike() {
            return Ok(least(&setup.recompute)?.shared(times));
        }
        // A block may compute nothing again, and others all.
        Ok(least(&Recompute::Nothing)?.keeping(&*least(&Recompute::Full)?).shared(times))
    }

    pub(super) fn of(&self, question: &Question<'_>, micro_batches: u64) -> Result<Arc<Forward>, Failure> {
        let make = || {
            let graph = (question.imported)(micro_batches)?;
            let forward = Forward::of(question.file, &graph, &recipe(question, micro_batches))?;
            forward.names(&question.pins.operations)?;
            Ok(forward)
        };
        kept(&self.whole, micro_batches, make)
    }

    /// The numbers of micro-batches, of these, with which everything is of some operation that is fixed:
    /// a micro-batch of one example has a loop less.
    pub(super) fn having(
        &self,
        question: &Question<'_>,
        counts: BTreeSet<u64>,
    ) -> Result<BTreeSet<u64>, Failure> {
        let fixed = &question.pins.operations;
        if fixed.is_empty() {
            return Ok(counts);
        }
        let mut all: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); fixed.len()];
        let mut having = BTreeSet::new();
        for count in counts {
            let forward = self.of(question, count)?;
            let own: Vec<BTreeSet<usize>> = fixed.iter().map(|it| forward.loops(it)).collect();
            if fixed.iter().zip(&own).all(|(it, own)| counted(it, own).is_ok()) {
                having.insert(count);
            }
            all.iter_mut().zip(own).for_each(|(all, own)| all.extend(own));
        }
        if having.is_empty() {
            fixed.iter().zip(&all).try_for_each(|(it, all)| counted(it, all))?;
            let message = "no number of micro-batches has operations of all that is fixed: operations of \
                           micro-batches of one example have a loop less";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(having)
    }

    /// The step of a setup.
    pub(super) fn step(&self, question: &Question<'_>, setup: &Setup) -> Result<Arc<WholeStep>, Failure> {
        self.step_of(question, (setup.micro_batches, &setup.recompute))
    }

    /// The step of so many micro-batches in which this is computed again.
    pub(super) fn step_of(
        &self,
        question: &Question<'_>,
        (micro_batches, recompute): (u64, &Recompute),
    ) -> Result<Arc<WholeStep>, Failure> {
        let make = || {
            let forward = self.of(question, micro_batches)?;
            let (step, _) = forward.step(Some(recompute))?;
            let sections = fold_alone(&step.graph, &step.homes, &step.forward);
            let raised = RaiseStatistics::default();
            let fixed = forward.everywhere(&question.pins.operations);
            let graph = step.graph;
            let prepared = Prepared { graph, sections, raised, variants: None, pinned: None, fixed };
            Ok(WholeStep { prepared, homes: step.homes, blocks: forward.blocks() })
        };
        kept(&self.steps, (micro_batches, recompute.to_string()), make)
    }

    /// Notes what cannot be on a mesh.
    pub(super) fn note(&self, mesh: &Mesh, refused: Option<&Refusal>) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).note(mesh, refused);
    }

    /// Adds what is noted here.
    pub(super) fn refused(&self, others: Refused) -> Refused {
        others.with(&self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The recipe of a question, for so many micro-batches.
fn recipe(question: &Question<'_>, micro_batches: u64) -> Recipe {
    Recipe { micro_batches, recompute: Vec::new(), ..question.recipe.clone() }
}

/// What is known under a key, made if it is not.
fn kept<K: Ord, T>(
    known: &Mutex<BTreeMap<K, Arc<T>>>,
    key: K,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<Arc<T>, Failure> {
    let known = || known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(it) = known().get(&key) {
        return Ok(Arc::clone(it));
    }
    let made = Arc::new(make()?);
    known().insert(key, Arc::clone(&made));
    Ok(made)
}
