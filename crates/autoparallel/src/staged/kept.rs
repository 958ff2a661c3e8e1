//! What blocks of stages keep for gradients: what is said, the same of all, or what each may.
//!
//! A stage is planned among what its blocks may be, as a whole program is ([`Variants`]); what its plan keeps is not known
//! before. The step of all stages is derived again for what their plans keep.

use std::collections::BTreeMap;
use std::sync::Arc;

use files::Failure;
use plan::{Plan, Recipe, Recompute};
use planner_ir::Graph;
use rewrite::{RaiseStatistics, joined_as};
use search::{Fixed, fold, fold_alone};
use train::{Stages, Step};

use super::Forward;
use crate::prepared::Prepared;
use crate::variants::Variants;

/// What is computed again of blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Again {
    /// What the model says.
    Given,
    /// The same of all.
    Alike(Recompute),
    /// Of each what its plan says.
    Each,
}

/// A step cut into stages.
pub(super) struct Derived {
    pub(super) stages: Stages,
    /// What it was derived by.
    pub(super) recipe: Recipe,
}

impl Derived {
    fn of(forward: &Forward, first: &[usize], again: Option<&Recompute>) -> Result<Self, Failure> {
        let (step, recipe) = forward.step(again)?;
        let stages = train::stages(&step, first).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Self { stages, recipe })
    }
}

/// A step that is planned in stages, before it is known what its blocks keep.
pub(super) struct Cutting<'a> {
    forward: &'a Forward,
    first: &'a [usize],
    /// Whether each block keeps what its plan says.
    chooses: bool,
    /// As it is where all is kept that may be.
    whole: Arc<Derived>,
}

impl std::ops::Deref for Cutting<'_> {
    type Target = Derived;

    fn deref(&self) -> &Derived {
        &self.whole
    }
}

impl<'a> Cutting<'a> {
    pub(super) fn of(forward: &'a Forward, first: &'a [usize], again: &Again) -> Result<Self, Failure> {
        let of_all = match again {
            Again::Given => None,
            Again::Alike(again) => Some(again),
            Again::Each => Some(&Recompute::Nothing),
        };
        let whole = Arc::new(Derived::of(forward, first, of_all)?);
        Ok(Self { forward, first, chooses: *again == Again::Each, whole })
    }

    /// Whether each block keeps what its plan says.
    pub(super) fn chooses(&self) -> bool {
        self.chooses
    }

    /// A stage as the search takes it, with these operations as they are fixed.
    pub(super) fn prepared(&self, number: usize, fixed: &[Fixed]) -> Result<Prepared, Failure> {
        let Step { graph, homes, forward, .. } = &self.stages.stages[number];
        planner_ir::verify(graph).map_err(|error| Failure::internal("train", error))?;
        let mut sections = fold_alone(graph, homes, forward);
        let mut variants = None;
        // Where blocks that share are one, what lies between them is one block too, and the same is of all.
        if self.chooses && sections == fold(graph, homes, forward) {
            let Forward { blocks, recipe } = self.forward;
            let of = (self.first.to_vec(), number);
            let refused = |error| Failure::internal("train", error);
            let (cutting, own) = Variants::of_stage(blocks.clone(), recipe.clone(), of).map_err(refused)?;
            sections = cutting.1;
            variants = (!own.others().is_empty()).then_some(own);
        }
        let (graph, raised, pinned) = (graph.clone(), RaiseStatistics::default(), None);
        Ok(Prepared { graph, sections, raised, variants, pinned, fixed: fixed.to_vec() })
    }

    /// The step in which blocks keep what these plans of all stages say, where each was made for the stage that has this
    /// number.
    pub(super) fn derived<'b>(
        &self,
        plans: impl Iterator<Item = &'b Arc<Plan>>,
        made_for: &[usize],
    ) -> Result<Arc<Derived>, Failure> {
        let blocks = self.forward.blocks();
        let plans: Vec<&Arc<Plan>> = plans.collect();
        let mut again = self.recipe.recompute.clone();
        again.resize(blocks, Recompute::Nothing);
        for (number, plan) in plans.iter().enumerate() {
            let Some(recipe) = plan.recipe.as_ref().filter(|_| self.chooses) else { continue };
            let end = self.first.get(number + 1).copied().unwrap_or(blocks);
            let (start, from) = (self.first[number], self.first[made_for[number]]);
            let (own, made) = (&mut again[start..end], &recipe.recompute[from..from + end - start]);
            own.clone_from_slice(made);
        }
        if !self.chooses || again == self.recipe.recompute {
            return Ok(Arc::clone(&self.whole));
        }
        let derived = Derived::of(&self.forward.again_each(again), self.first, None)?;
        for (step, plan) in derived.stages.stages.iter().zip(&plans) {
            // What other stages keep is nothing to this one.
            let own = joined_as(&step.graph, &plan.graph).graph;
            if nameless(&own) != nameless(&plan.graph) {
                return Err(Failure::internal(
                    "train",
                    "a stage is another one where other stages keep less",
                ));
            }
        }
        Ok(Arc::new(derived))
    }
}

/// A program with numbers instead of names.
pub(super) fn nameless(graph: &Graph) -> Graph {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let number = |name: &mut String| {
        let next = names.len().to_string();
        *name = names.entry(std::mem::take(name)).or_insert(next).clone();
    };
    graph.renamed(number)
}
