//! The least of time and priced memory over a chain: no bound on memory, but a price on each byte.
//!
//! Every segment is reduced to a table over (globals, entry, exit), this is raised to the power of
//! its count for each choice of the globals, and a sweep along the segments takes the least. If
//! the globals have too many choices together for that, they are chosen one after another, each
//! block choosing its own being the bound. Tables of blocks that are too wide to be eliminated have bounds,
//! which are raised where the sweep goes.

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

/// The most paths that bounds are raised along.
const ROUNDS: usize = 48;

/// A part of the bound by which a path that was found may exceed it and be taken for the cheapest.
const CLOSE: f64 = 1e-12;

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

/// How wide a block may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Width {
    /// So that it can be eliminated.
    Narrow,
    /// As it is: what needs a table of more entries than these is bounded and solved by messages.
    Any(f64),
}

impl Width {
    /// Whatever cannot be eliminated is solved by messages.
    pub(crate) const ANY: Self = Self::Any(MOST_ENTRIES);
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
    width: Width,
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
    pub(crate) fn new(chain: &Arc<Chain>, width: Width) -> Self {
        let needful = needful(chain);
        let all = chain.globals.iter().map(|global| real_size(global.times.len()));
        let enumerable = all.product::<f64>() <= MOST_GLOBALS;
        let most = match width {
            Width::Narrow => MOST_ENTRIES,
            Width::Any(most) => most,
        };
        let is_narrow = |it: &Self| it.segments.iter().all(|it| it.largest() <= most);
        let prepared = |globals| Self::prepared(chain, &needful, (globals, width));
        let enumerated = enumerable.then(|| prepared(Globals::Enumerated));
        let enumerated = enumerated.filter(|it| it.segments.iter().all(|it| it.pairs() <= MOST_PAIRS));
        match enumerated {
            Some(made) if is_narrow(&made) => made,
            enumerated => match prepared(Globals::Descended) {
                made if width == Width::Narrow || is_narrow(&made) => made,
                made => enumerated.unwrap_or(made).widened(&needful),
            },
        }
    }

    /// The same, where what is wider than its blocks may be is solved by messages.
    fn widened(self, needful: &[Vec<Pruned>]) -> Self {
        let Width::Any(most) = self.width else { return self };
        let segments = self.segments.into_iter().zip(needful);
        Self { segments: segments.map(|(it, needful)| it.widened(needful, most)).collect(), ..self }
    }

    /// How wide its blocks may be.
    pub(crate) fn width(&self) -> Width {
        self.width
    }

    /// Prepares a chain whose globals have too many choices.
    #[cfg(test)]
    pub(crate) fn descended(chain: &Arc<Chain>, width: Width) -> Self {
        let needful = needful(chain);
        Self::prepared(chain, &needful, (Globals::Descended, width)).widened(&needful)
    }

    fn prepared(chain: &Arc<Chain>, needful: &[Vec<Pruned>], (globals, width): (Globals, Width)) -> Self {
        let segments = chain.segments.iter().zip(needful);
        let segments = segments.map(|(segment, needful)| Ready::new(chain, segment, globals, needful));
        Self { chain: Arc::clone(chain), segments: segments.collect(), globals, width }
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
        let domains: Vec<usize> = once.iter().map(Vec::len).collect();
        let least = |priced: &[Priced<'_>]| {
            let mut best = (f64::INFINITY, vec![0; domains.len()]);
            let mut globals = vec![0; domains.len()];
            loop {
                let paid = paid(once, &globals);
                if paid < f64::INFINITY {
                    let cost = self.cost(priced, &globals) + paid;
                    if cost < best.0 {
                        best = (cost, globals.clone());
                    }
                }
                if !advance(&mut globals, &domains) {
                    break;
                }
            }
            best
        };
        Ok(self.refined(self.priced(goal, prices, None)?, least, |globals| paid(once, globals)))
    }

    /// The choices of least cost, whose globals and cost `least` tells by the tables. Where those have bounds,
    /// these are raised along the cheapest path, until that is known to cost no more.
    fn refined<'a>(
        &self,
        mut priced: Vec<Priced<'a>>,
        least: impl Fn(&[Priced<'a>]) -> (f64, Vec<usize>),
        paid: impl Fn(&[usize]) -> f64,
    ) -> Relaxed {
        if !self.is_wide() {
            let (bound, globals) = least(&priced);
            let choices = (bound < f64::INFINITY).then(|| self.recover(&priced, globals));
            return Relaxed { choices, bound };
        }
        let mut best: Option<(f64, ChainChoices)> = None;
        let mut reached = f64::NEG_INFINITY;
        for _ in 0..ROUNDS {
            let (bound, globals) = least(&priced);
            reached = bound;
            let found = best.as_ref().map_or(f64::INFINITY, |(cost, _)| *cost);
            if found - bound <= CLOSE * bound.abs() || bound == f64::INFINITY {
                break;
            }
            let path = self.path(&priced, &globals);
            let (mut cost, mut is_raised) = (paid(&globals), false);
            for ((ready, priced), (row, states)) in self.segments.iter().zip(&mut priced).zip(&path) {
                let (own, raised) = ready.tighten(priced, *row, states);
                cost += own;
                is_raised |= raised;
            }
            if cost < found {
                best = Some((cost, self.along(&priced, globals, &path)));
            }
            if !is_raised {
                break;
            }
        }
        match best {
            Some((cost, choices)) => Relaxed { choices: Some(choices), bound: reached.min(cost) },
            None => Relaxed { choices: None, bound: reached },
        }
    }

    /// Whether costs are bounds in some tables.
    pub(crate) fn is_wide(&self) -> bool {
        self.segments.iter().any(Ready::is_wide)
    }

    /// The least cost of all blocks, by the tables.
    fn cost(&self, priced: &[Priced<'_>], globals: &[usize]) -> f64 {
        let ends = self.sweep(priced, globals);
        ends[ends.len() - 1].iter().fold(f64::INFINITY, |a, &b| a.min(b))
    }

    /// Chooses globals one after another, from those that the first block to use each would choose.
    fn descend(&self, goal: Goal, prices: &Prices, once: &[Vec<f64>]) -> Result<Relaxed, SearchError> {
        let cheapest = |costs: &Vec<f64>| costs.iter().fold(f64::INFINITY, |a, &b| a.min(b));
        let once_least = once.iter().map(cheapest).sum::<f64>();
        let least = |priced: &[Priced<'_>]| (self.cost(priced, &[]) + once_least, Vec::new());
        let Relaxed { choices: wishes, bound } =
            self.refined(self.priced(goal, prices, None)?, least, |_| once_least);
        let Some(wishes) = wishes else { return Ok(Relaxed { choices: None, bound }) };
        let mut globals: Vec<usize> = (0..once.len())
            .map(|global| {
                self.wish(global, &wishes).unwrap_or_else(|| first_least(once[global].iter().copied()))
            })
            .collect();
        let fixed_cost = |globals: &[usize]| -> Result<f64, SearchError> {
            Ok(paid(once, globals) + self.cost(&self.priced(goal, prices, Some(globals))?, &[]))
        };
        // Where costs are bounds, the first wish is taken.
        if !self.is_wide() {
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
        }
        let priced = self.priced(goal, prices, Some(&globals))?;
        let cost = |priced: &[Priced<'_>]| (self.cost(priced, &[]) + paid(once, &globals), Vec::new());
        let choices = self.refined(priced, cost, |_| paid(once, &globals)).choices;
        let choices = choices.map(|choices| ChainChoices { globals, ..choices });
        Ok(Relaxed { choices, bound })
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
        let path = self.path(priced, &globals);
        self.along(priced, globals, &path)
    }

    /// For each segment, which of its tables the cheapest path is in, and the states at its boundaries.
    fn path(&self, priced: &[Priced<'_>], globals: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let ends = self.sweep(priced, globals);
        let mut last = first_least(ends[ends.len() - 1].iter().copied());
        let mut path = Vec::with_capacity(self.segments.len());
        for ((ready, priced), before) in self.segments.iter().zip(priced).zip(&ends).rev() {
            let row = ready.row(globals);
            let powers = &priced.powers[row];
            let costs = before.iter().enumerate();
            let first =
                first_least(costs.map(|(first, cost)| cost + powers.table()[first * ready.exits + last]));
            path.push((row, powers.path(first, last)));
            last = first;
        }
        path.reverse();
        path
    }

    /// The choices of all blocks along a path.
    fn along(
        &self,
        priced: &[Priced<'_>],
        globals: Vec<usize>,
        path: &[(usize, Vec<usize>)],
    ) -> ChainChoices {
        let segments = self.chain.segments.iter().zip(&self.segments).zip(priced).zip(path);
        let blocks = segments.map(|(((segment, ready), priced), (row, states))| {
            ready.recover(segment, &priced.block, *row, states)
        });
        ChainChoices { globals, blocks: blocks.collect() }
    }
}

/// What these choices of the globals cost once.
fn paid(once: &[Vec<f64>], globals: &[usize]) -> f64 {
    once.iter().zip(globals).map(|(costs, &choice)| costs[choice]).sum()
}

/// For each segment, the needful choices of what its blocks may be.
fn needful(chain: &Chain) -> Vec<Vec<Pruned>> {
    chain.segments.iter().map(pruned).collect()
}
