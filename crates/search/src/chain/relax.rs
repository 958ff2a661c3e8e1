//! The least of time and priced memory over a chain: no bound on memory, but a price on each byte.
//!
//! Every segment is reduced to a table over (globals, entry, exit), this is raised to the power of
//! its count for each choice of the globals, and a sweep along the segments takes the least. If
//! the globals have too many choices together for that, they are chosen one after another, each
//! block choosing its own being the bound.

use std::sync::Arc;

use planner_ir::advance;
use rayon::prelude::*;

use super::product::product;
use super::segment::{Globals, Priced, Ready, pruned};
use super::{Chain, ChainChoices, Shared};
use crate::eliminate::{MOST_ENTRIES, Pruned, first_least};
use crate::problem::{SearchError, real, real_size};

/// The most choices of all globals together that are tried one by one.
const MOST_GLOBALS: f64 = 4096.0;

/// The most entries of a table over a pair of boundaries.
pub(crate) const MOST_PAIRS: f64 = 1_048_576.0;

/// What a unit of cost is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Times count, and memory as it is priced.
    Time,
    /// Only memory counts, as it is priced; times only forbid.
    Memory,
}

/// What a byte costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prices {
    /// Of what is resident.
    pub(crate) resident: f64,
    /// For each segment and window, of what is live there in each block.
    pub(crate) live: Vec<Vec<f64>>,
}

/// The cheapest choices.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Relaxed {
    /// The choices; none if none was found that is allowed.
    pub(crate) choices: Option<ChainChoices>,
    /// No choices cost less.
    pub(crate) bound: f64,
}

/// A chain that is ready to be minimised for many prices.
#[derive(Clone, Debug)]
pub(crate) struct Relaxation {
    chain: Arc<Chain>,
    segments: Vec<Ready>,
    globals: Globals,
}

impl Goal {
    /// What a time counts for.
    pub(crate) fn of(self, time: f64) -> f64 {
        match self {
            Self::Memory if time < f64::INFINITY => 0.0,
            Self::Memory | Self::Time => time,
        }
    }
}

impl Relaxation {
    /// Prepares a chain.
    pub(crate) fn new(chain: &Arc<Chain>) -> Self {
        let needful = needful(chain);
        let all = chain.globals.iter().map(|global| real_size(global.times.len()));
        if all.product::<f64>() <= MOST_GLOBALS {
            let enumerated = Self::prepared(chain, &needful, Globals::Enumerated);
            if enumerated.segments.iter().all(|it| it.pairs() <= MOST_PAIRS) && enumerated.fits().is_ok() {
                return enumerated;
            }
        }
        Self::prepared(chain, &needful, Globals::Descended)
    }

    /// Prepares a chain whose globals have too many choices.
    #[cfg(test)]
    pub(crate) fn descended(chain: &Arc<Chain>) -> Self {
        Self::prepared(chain, &needful(chain), Globals::Descended)
    }

    fn prepared(chain: &Arc<Chain>, needful: &[Vec<Pruned>], globals: Globals) -> Self {
        let segments = chain.segments.iter().zip(needful);
        let segments = segments.map(|(segment, needful)| Ready::new(chain, segment, globals, needful));
        Self { chain: Arc::clone(chain), segments: segments.collect(), globals }
    }

    /// Whether all tables are small enough: nothing is reduced where one is not.
    fn fits(&self) -> Result<(), SearchError> {
        let entries = self.segments.iter().map(Ready::largest).fold(0.0, f64::max);
        let wide = SearchError::TooWide { entries, limit: MOST_ENTRIES };
        if entries > MOST_ENTRIES { Err(wide) } else { Ok(()) }
    }

    /// The choices of least cost.
    pub(crate) fn minimise(&self, goal: Goal, prices: &Prices) -> Result<Relaxed, SearchError> {
        self.fits()?;
        let once: Vec<Vec<f64>> = self
            .chain
            .globals
            .iter()
            .map(|global| {
                let costs = global.times.iter().zip(&global.resident);
                costs.map(|(&time, &bytes)| goal.of(time) + prices.resident * real(bytes)).collect()
            })
            .collect();
        match self.globals {
            Globals::Enumerated => self.enumerate(goal, prices, &once),
            Globals::Descended => self.descend(goal, prices, &once),
        }
    }

    /// For each pair of states, the choices of a block of least time, as priced, that begins in the
    /// one and ends in the other; nothing if there is none.
    pub(crate) fn between(
        &self,
        segment: usize,
        pairs: &[[&[usize]; 2]],
        prices: &Prices,
        globals: &[usize],
    ) -> Result<Vec<Option<Vec<usize>>>, SearchError> {
        let ready = &self.segments[segment];
        let fixed = (self.globals == Globals::Descended).then_some(globals);
        let priced = ready.block(Goal::Time, prices.resident, &prices.live[segment], fixed)?;
        let row = match self.globals {
            Globals::Enumerated => ready.row(globals),
            Globals::Descended => 0,
        };
        let segment = &self.chain.segments[segment];
        let domain = |&node: &usize| segment.problem.times[node].len();
        let number = |state: &[usize]| {
            let domains = segment.entry.iter().map(domain);
            domains.zip(state).fold(0, |number, (domain, it)| number * domain + it)
        };
        let block = |[first, last]: &[&[usize]; 2]| {
            let blocks = ready.recover(segment, &priced, row, &[number(first), number(last)]);
            blocks.into_iter().next().filter(|block| segment.problem.time(block) < f64::INFINITY)
        };
        Ok(pairs.iter().map(block).collect())
    }

    fn enumerate(&self, goal: Goal, prices: &Prices, once: &[Vec<f64>]) -> Result<Relaxed, SearchError> {
        let priced = self.priced(goal, prices, None)?;
        let domains: Vec<usize> = once.iter().map(Vec::len).collect();
        let mut best = (f64::INFINITY, vec![0; domains.len()]);
        let mut globals = vec![0; domains.len()];
        loop {
            let paid: f64 = once.iter().zip(&globals).map(|(costs, &choice)| costs[choice]).sum();
            if paid < f64::INFINITY {
                let ends = self.sweep(&priced, &globals);
                let cost = ends[ends.len() - 1].iter().fold(f64::INFINITY, |a, &b| a.min(b)) + paid;
                if cost < best.0 {
                    best = (cost, globals.clone());
                }
            }
            if !advance(&mut globals, &domains) {
                break;
            }
        }
        let (bound, globals) = best;
        let choices = (bound < f64::INFINITY).then(|| self.recover(&priced, globals));
        Ok(Relaxed { choices, bound })
    }

    /// Chooses globals one after another, from those that the first block to use each would choose.
    fn descend(&self, goal: Goal, prices: &Prices, once: &[Vec<f64>]) -> Result<Relaxed, SearchError> {
        let free = self.priced(goal, prices, None)?;
        let cost = |priced: &[Priced<'_>]| {
            let ends = self.sweep(priced, &[]);
            ends[ends.len() - 1].iter().fold(f64::INFINITY, |a, &b| a.min(b))
        };
        let cheapest = |costs: &Vec<f64>| costs.iter().fold(f64::INFINITY, |a, &b| a.min(b));
        let bound = cost(&free) + once.iter().map(cheapest).sum::<f64>();
        if bound.is_infinite() {
            return Ok(Relaxed { choices: None, bound });
        }

        let wishes = self.recover(&free, Vec::new());
        let mut globals: Vec<usize> = (0..once.len())
            .map(|global| {
                self.wish(global, &wishes).unwrap_or_else(|| first_least(once[global].iter().copied()))
            })
            .collect();
        let fixed_cost = |globals: &[usize]| -> Result<f64, SearchError> {
            let paid: f64 = once.iter().zip(globals).map(|(costs, &choice)| costs[choice]).sum();
            Ok(paid + cost(&self.priced(goal, prices, Some(globals))?))
        };
        let mut best = fixed_cost(&globals)?;
        for global in 0..globals.len() {
            for choice in 0..once[global].len() {
                let mut other = globals.clone();
                other[global] = choice;
                let cost = if other == globals { best } else { fixed_cost(&other)? };
                if cost < best {
                    (best, globals) = (cost, other);
                }
            }
        }
        if best.is_infinite() {
            return Ok(Relaxed { choices: None, bound });
        }
        let priced = self.priced(goal, prices, Some(&globals))?;
        let choices = ChainChoices { globals, ..self.recover(&priced, Vec::new()) };
        Ok(Relaxed { choices: Some(choices), bound })
    }

    /// What the first block that uses a global chose for it.
    fn wish(&self, global: usize, wishes: &ChainChoices) -> Option<usize> {
        let segments = self.chain.segments.iter().zip(&wishes.blocks);
        let uses = segments.flat_map(|(segment, blocks)| {
            let shared = segment.shared.iter().filter(move |shared| shared.global == global);
            shared.map(|shared: &Shared| blocks[0][shared.node])
        });
        uses.into_iter().next()
    }

    /// All segments reduced, the globals fixed to `fixed` if they are not kept.
    fn priced(
        &self,
        goal: Goal,
        prices: &Prices,
        fixed: Option<&[usize]>,
    ) -> Result<Vec<Priced<'_>>, SearchError> {
        let segments = self.segments.par_iter().zip(&prices.live);
        let priced = segments.map(|(ready, live)| ready.priced(goal, prices.resident, live, fixed));
        // Of several errors the first, whichever segment is done first.
        priced.collect::<Vec<_>>().into_iter().collect()
    }

    /// For each boundary between segments, the least cost of all before, by state.
    fn sweep(&self, priced: &[Priced<'_>], globals: &[usize]) -> Vec<Vec<f64>> {
        let entries = self.segments.first().map_or(1, |it| it.entries);
        let mut ends = vec![vec![0.0; entries]];
        for (ready, priced) in self.segments.iter().zip(priced) {
            let table = priced.powers[ready.row(globals)].table();
            ends.push(product(&ends[ends.len() - 1], table, ready.entries));
        }
        ends
    }

    fn recover(&self, priced: &[Priced<'_>], globals: Vec<usize>) -> ChainChoices {
        let ends = self.sweep(priced, &globals);
        let mut last = first_least(ends[ends.len() - 1].iter().copied());
        let mut blocks = Vec::with_capacity(self.segments.len());
        let segments = self.chain.segments.iter().zip(&self.segments).zip(priced);
        for (((segment, ready), priced), before) in segments.zip(&ends).rev() {
            let row = ready.row(&globals);
            let powers = &priced.powers[row];
            let costs = before.iter().enumerate();
            let first =
                first_least(costs.map(|(first, cost)| cost + powers.table()[first * ready.exits + last]));
            blocks.push(ready.recover(segment, &priced.block, row, &powers.path(first, last)));
            last = first;
        }
        blocks.reverse();
        ChainChoices { globals, blocks }
    }
}

/// For each segment, the needful choices of what its blocks may be.
fn needful(chain: &Chain) -> Vec<Vec<Pruned>> {
    chain.segments.iter().map(pruned).collect()
}
