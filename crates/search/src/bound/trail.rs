//! What a search has seen, for the next one: with less memory, or where the same choices hold other
//! amounts.
//!
//! A minimum is a line of the bound at every capacity, and of every chain that has the same choices:
//! what it takes and holds there is computed anew. So a search that starts from the lines of another
//! one is near its last price at once. What was proven holds of an equal chain only, at every capacity; with
//! no price on memory, of one that takes as long.
//! Nothing of an answer depends on where the lines come from but how soon it is found.

use std::collections::BTreeMap;
use std::sync::Arc;

use rewrite::Spaces;

use super::Base;
use super::floors::Floors;
use crate::chain::{Chain, ChainChoices};

/// Minima that were found, and blocks that are worth trying.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// The minima, each once.
    pub(super) seen: Vec<ChainChoices>,
    /// For a segment and the state that blocks begin and end in, blocks found around the last price.
    pub(super) blocks: BTreeMap<(usize, Vec<usize>), Vec<Vec<usize>>>,
    /// The spaces that were built.
    spaces: Arc<Spaces>,
    /// What was proven, and of which chain.
    proven: Option<(Arc<Base>, Floors)>,
}

impl Trail {
    /// One of a search for another program, which may have blocks that are the same: it shares the spaces.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self { spaces: self.spaces(), ..Self::default() }
    }

    /// The spaces that were built: all that follow share them.
    pub(crate) fn spaces(&self) -> Arc<Spaces> {
        Arc::clone(&self.spaces)
    }

    /// What of it is about choices that a chain has; what is made of the chain, if it is the one that
    /// something was proven of, and what was.
    pub(super) fn along(mut self, chain: &Chain) -> (Self, (Option<Arc<Base>>, Floors)) {
        self.seen.retain(|choices| has(chain, choices));
        let is_block = |segment: usize, block: &Vec<usize>| {
            chain.segments.get(segment).is_some_and(|it| chooses(&it.problem.times, block))
        };
        for (&(segment, _), blocks) in &mut self.blocks {
            blocks.retain(|block| is_block(segment, block));
        }
        self.blocks.retain(|_, blocks| !blocks.is_empty());
        let proven = match self.proven.take() {
            Some((base, floors)) if *base.chain == *chain => (Some(base), floors),
            // Without a price on memory it does not matter what choices hold.
            Some((base, floors)) if base.chain.takes_as(chain) => {
                (None, floors.free(super::rows(chain).len()))
            }
            _ => (None, Floors::default()),
        };
        (self, proven)
    }

    /// The same with what was proven of a chain.
    pub(super) fn proving(self, base: Arc<Base>, floors: Floors) -> Self {
        Self { proven: Some((base, floors)), ..self }
    }

    pub(super) fn add(&mut self, choices: &ChainChoices) {
        if !self.seen.contains(choices) {
            self.seen.push(choices.clone());
        }
    }
}

/// Whether a chain has these choices.
fn has(chain: &Chain, choices: &ChainChoices) -> bool {
    let segments = chain.segments.iter().zip(&choices.blocks);
    chain.globals.len() == choices.globals.len()
        && chain.globals.iter().zip(&choices.globals).all(|(global, &it)| it < global.times.len())
        && chain.segments.len() == choices.blocks.len()
        && segments.into_iter().all(|(segment, blocks)| {
            blocks.len() == segment.count && blocks.iter().all(|it| chooses(&segment.problem.times, it))
        })
}

/// Whether nodes with these times have a choice each.
fn chooses(times: &[Vec<f64>], choices: &[usize]) -> bool {
    times.len() == choices.len() && times.iter().zip(choices).all(|(times, &choice)| choice < times.len())
}
