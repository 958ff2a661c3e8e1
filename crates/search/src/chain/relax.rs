//! The least of time and priced memory over a chain: no bound on memory, but a price on each byte.
//!
//! Every segment is reduced to a table over (globals, entry, exit), and for each choice of the globals a sweep
//! along all blocks takes the least. If the globals have too many choices together for that, they are chosen
//! one after another, each block choosing its own being the bound. Tables of blocks that are too wide to be
//! eliminated have bounds, and others what was found: what the cheapest path by the bounds goes through is asked
//! until the cheapest path of what was found costs no more.

mod path; // the cheapest paths through tables

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use planner_ir::advance;
use rayon::prelude::*;

use path::{Beside, Path};

use super::segment::block::{Asked, Block, Of};
use super::segment::{Globals, Ready, Slots, pruned};
use super::{Chain, ChainChoices, Goal, Shared};
use crate::eliminate::{MOST_ENTRIES, Pruned, first_least};
use crate::messages::Start;
use crate::problem::{SearchError, real, real_size};

/// The most choices of all globals together that are tried one by one.
const MOST_GLOBALS: f64 = 4096.0;

/// The most paths by bounds that are asked about.
const ROUNDS: usize = 600;

/// How often each global is improved at most.
const TURNS: usize = 4;

/// How many of them may come to hardly anything in a row, and what that is, as a part of what is unknown.
const PATIENCE: usize = 24;
const HARDLY: f64 = 0.02;

/// A part of the bound by which a path that was found may exceed it and be taken for the cheapest: what rounding
/// takes from bounds.
pub(crate) const EXACTLY: f64 = 5e-11;

/// The most entries of a table over a pair of boundaries.
pub(crate) const MOST_PAIRS: f64 = 1_048_576.0;

/// The most entries of a table of an elimination that may be bounds and messages instead: it is made again at each price
/// of memory and each weight of seconds, and of more than 32 MB they take less.
const MOST_ENTRIES_AGAIN: f64 = 4_194_304.0;

/// How wide a block may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Width {
    /// So that it can be eliminated.
    Narrow,
    /// As it is: what needs a table of more entries than these is bounded and solved by messages.
    Any(f64),
}

impl Width {
    /// What takes longer to eliminate is solved by messages.
    pub(crate) const ANY: Self = Self::Any(MOST_ENTRIES_AGAIN);
}

/// What a byte costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prices {
    /// Of what is resident.
    pub(crate) resident: f64,
    /// For each segment and window, of what is live there in each block.
    pub(crate) live: Vec<Vec<f64>>,
}

/// What messages begin with when prices change: for each goal and segment, and each of its bodies, where they
/// ended before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(BTreeMap<(Goal, usize), Vec<Option<Start>>>);

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
    /// For each segment the needful choices of its bodies, where globals are improved in turn.
    needful: Vec<Vec<Pruned>>,
    /// For each global that is improved in turn, the segments that use it, with a slot for it, once they are asked for.
    beside: Vec<OnceLock<Vec<(usize, Ready)>>>,
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
            // What is too wide beside any choice of the globals is not narrower without them.
            Some(made) if !made.segments.iter().all(|it| it.largest_beside_globals() <= most) => {
                made.widened(&needful)
            }
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

    /// The bodies of the first segment to which messages are sent at these prices.
    #[cfg(test)]
    pub(crate) fn swept(&self, goal: Goal, prices: &Prices, starts: &mut Starts) -> Vec<usize> {
        let mut blocks = self.priced((goal, prices), None, starts).expect("is solved by messages");
        loop {
            let path = self.path(&blocks, Of::Bound, &[]);
            if self.ask(&mut blocks, &path) == Asked::Nothing {
                return blocks[0].swept();
            }
        }
    }

    /// What is known to be found of the first segment before and after messages are sent to the bodies that are asked
    /// about, and the least that these found.
    #[cfg(test)]
    pub(crate) fn found(&self, goal: Goal, prices: &Prices, starts: &mut Starts) -> [Vec<f64>; 3] {
        let mut blocks = self.priced((goal, prices), None, starts).expect("is solved by messages");
        let known = |blocks: &[Block<'_>]| blocks[0].costs(Of::Found).table.clone();
        let before = known(&blocks);
        let mut after = (before.clone(), before.clone());
        loop {
            let path = self.path(&blocks, Of::Bound, &[]);
            if self.ask(&mut blocks, &path) != Asked::Bodies {
                return [before, after.0, after.1];
            }
            after = (known(&blocks), blocks[0].found_by_bodies(&self.segments[0]));
        }
    }

    fn prepared(chain: &Arc<Chain>, needful: &[Vec<Pruned>], (globals, width): (Globals, Width)) -> Self {
        let segments = chain.segments.iter().zip(needful);
        let slots = if globals == Globals::Enumerated { Slots::All } else { Slots::None };
        let segments = segments.map(|(segment, needful)| Ready::new(chain, segment, slots, needful));
        let beside = chain.globals.iter().map(|_| OnceLock::new()).collect();
        let needful = match globals {
            Globals::Enumerated => Vec::new(),
            Globals::Descended => needful.to_vec(),
        };
        Self { chain: Arc::clone(chain), segments: segments.collect(), globals, width, needful, beside }
    }

    /// Whether all tables are small enough: nothing is reduced where one is not.
    fn fits(&self) -> Result<(), SearchError> {
        let entries = self.segments.iter().map(Ready::largest).fold(0.0, f64::max);
        let wide = SearchError::TooWide { entries, limit: MOST_ENTRIES };
        if entries > MOST_ENTRIES { Err(wide) } else { Ok(()) }
    }

    /// The choices of least cost, by such a part of it at most; messages begin where they ended before, and so they will
    /// again.
    pub(crate) fn minimise(
        &self,
        goal: Goal,
        prices: &Prices,
        (starts, close): (&mut Starts, f64),
    ) -> Result<Relaxed, SearchError> {
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
            Globals::Enumerated => self.enumerate((goal, prices), &once, (starts, close)),
            Globals::Descended => self.descend((goal, prices), &once, (starts, close)),
        }
    }

    /// For each pair of states, the choices of a block of least time, as priced, that begins in the
    /// one and ends in the other; nothing if there is none.
    pub(crate) fn between(
        &self,
        segment: usize,
        pairs: &[[&[usize]; 2]],
        prices: &Prices,
        (globals, starts): (&[usize], &Starts),
    ) -> Result<Vec<Option<Vec<usize>>>, SearchError> {
        let ready = &self.segments[segment];
        let fixed = (self.globals == Globals::Descended).then_some(globals);
        let live = (prices.resident, &prices.live[segment][..]);
        let row = match self.globals {
            Globals::Enumerated => ready.row(globals),
            Globals::Descended => 0,
        };
        let starts = starts.of(Goal::Time, segment);
        let segment = &self.chain.segments[segment];
        let domain = |&node: &usize| segment.problem.times[node].len();
        let number = |nodes: &[usize], state: &[usize]| {
            let domains = nodes.iter().map(domain);
            domains.zip(state).fold(0, |number, (domain, it)| number * domain + it)
        };
        let states =
            |[first, last]: &[&[usize]; 2]| [number(&segment.entry, first), number(&segment.exit, last)];
        let states: Vec<[usize; 2]> = pairs.iter().map(states).collect();
        let alone = states.par_iter().map(|it| ready.between(segment, live, fixed, ready.place(row, *it)));
        let found = match alone.collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>, _>>() {
            Err(SearchError::TooWide { .. }) => {
                let mut block = ready.block(Goal::Time, live, fixed, starts)?;
                let asked = |states: &[usize; 2]| {
                    while block.ask(ready, row, states) != Asked::Nothing {}
                    ready.recover(segment, &block, row, states).into_iter().next()
                };
                states.iter().map(asked).collect()
            }
            found => found?,
        };
        let allowed = |block: &Vec<usize>| segment.problem.time(block) < f64::INFINITY;
        Ok(found.into_iter().map(|block| block.filter(allowed)).collect())
    }

    fn enumerate(
        &self,
        costs: (Goal, &Prices),
        once: &[Vec<f64>],
        (starts, close): (&mut Starts, f64),
    ) -> Result<Relaxed, SearchError> {
        let domains: Vec<usize> = once.iter().map(Vec::len).collect();
        let least = |blocks: &[Block<'_>], of: Of| {
            let mut best = (f64::INFINITY, vec![0; domains.len()]);
            let mut globals = vec![0; domains.len()];
            loop {
                let paid = paid(once, &globals);
                if paid < f64::INFINITY {
                    let cost = self.cost(blocks, of, &globals) + paid;
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
        Ok(self.refined((costs.0, self.priced(costs, None, starts)?), least, (starts, close)))
    }

    /// The choices of least cost, whose globals and cost `least` tells by one side of the tables. Where bounds
    /// are below what was found, the cheapest path by the bounds is asked about, until both cost as much, but for such a
    /// part of it.
    fn refined<'a>(
        &self,
        (goal, mut blocks): (Goal, Vec<Block<'a>>),
        least: impl Fn(&[Block<'a>], Of) -> (f64, Vec<usize>),
        (starts, close): (&mut Starts, f64),
    ) -> Relaxed {
        let (mut before, mut idle) = (f64::INFINITY, 0);
        let mut last: Option<(Path, f64, Asked)> = None;
        let mut rounds = 0;
        loop {
            let (bound, globals) = least(&blocks, Of::Bound);
            let (cost, chosen) =
                if self.is_wide() { least(&blocks, Of::Found) } else { (bound, globals.clone()) };
            let unknown = cost - bound;
            if cost == f64::INFINITY || unknown < before * (1.0 - HARDLY) {
                (before, idle) = (unknown, 0);
            } else if last.as_ref().is_some_and(|(.., asked)| *asked == Asked::Blocks) {
                idle += 1;
            }
            let is_known = bound == f64::INFINITY || unknown <= close * bound.abs();
            let is_over = is_known || rounds == ROUNDS || idle == PATIENCE || {
                // One that still costs as little is asked about to its end.
                let mut path = last.take().map(|(path, along, _)| (path, along));
                path = path.filter(|(path, along)| self.along(&blocks, path) <= along * (1.0 + close));
                let mut asked = path.as_ref().map_or(Asked::Nothing, |(path, _)| self.ask(&mut blocks, path));
                if asked == Asked::Nothing {
                    let next = self.path(&blocks, Of::Bound, &globals);
                    let along = self.along(&blocks, &next);
                    asked = self.ask(&mut blocks, &next);
                    path = Some((next, along));
                }
                rounds += usize::from(asked != Asked::Bodies);
                last = path.map(|(path, along)| (path, along, asked));
                asked == Asked::Nothing
            };
            if is_over {
                let wide = blocks.iter().enumerate().filter(|(number, _)| self.segments[*number].is_wide());
                starts.0.extend(wide.map(|(number, block)| ((goal, number), block.starts())));
                let choices = (cost < f64::INFINITY).then(|| self.recover(&blocks, chosen));
                return Relaxed { choices, bound: bound.min(cost) };
            }
        }
    }

    /// Asks about the blocks of a path what was not asked yet.
    fn ask(&self, blocks: &mut [Block<'_>], path: &Path) -> Asked {
        let segments = self.segments.iter().zip(blocks).zip(path);
        let asked = segments.map(|((ready, block), (row, states))| block.ask(ready, *row, states));
        asked.fold(Asked::Nothing, Asked::max)
    }

    /// Whether costs are bounds in some tables.
    pub(crate) fn is_wide(&self) -> bool {
        self.segments.iter().any(Ready::is_wide)
    }

    /// Chooses globals one after another, from those that the first block to use each would choose, until none is chosen
    /// otherwise.
    fn descend(
        &self,
        costs: (Goal, &Prices),
        once: &[Vec<f64>],
        (starts, close): (&mut Starts, f64),
    ) -> Result<Relaxed, SearchError> {
        let cheapest = |costs: &Vec<f64>| costs.iter().fold(f64::INFINITY, |a, &b| a.min(b));
        let once_least = once.iter().map(cheapest).sum::<f64>();
        let least =
            |paid: f64| move |blocks: &[Block<'_>], of: Of| (self.cost(blocks, of, &[]) + paid, Vec::new());
        let free = (costs.0, self.priced(costs, None, starts)?);
        let Relaxed { choices: wishes, bound } = self.refined(free, least(once_least), (starts, close));
        let Some(wishes) = wishes else { return Ok(Relaxed { choices: None, bound }) };
        let mut globals: Vec<usize> = (0..once.len())
            .map(|global| {
                self.wish(global, &wishes).unwrap_or_else(|| first_least(once[global].iter().copied()))
            })
            .collect();
        let mut blocks = self.priced(costs, Some(&globals), starts)?;
        // Where costs are bounds, the first wish is taken.
        if !self.is_wide() {
            let mut best = paid(once, &globals) + self.cost(&blocks, Of::Found, &[]);
            let mut left = TURNS * globals.len();
            let mut same = 0;
            // Nothing costs less than where each block chooses its own.
            while same < globals.len() && left > 0 && best > bound + close * bound.abs() {
                let global = left % globals.len();
                (left, same) = (left - 1, same + 1);
                let Some(beside) = self.beside(global, costs, &globals, starts)? else { continue };
                let with = |choice: usize| {
                    let mut other = globals.clone();
                    other[global] = choice;
                    let paid = paid(once, &other);
                    if paid < f64::INFINITY {
                        paid + self.cost_beside(&blocks, &beside, &other)
                    } else {
                        paid
                    }
                };
                let with: Vec<f64> = (0..once[global].len()).into_par_iter().map(with).collect();
                let choice = first_least(with.iter().copied());
                if with[choice] < best && choice != globals[global] {
                    (best, globals[global], same) = (with[choice], choice, 1);
                    let users = self.users(global);
                    let priced = self.priced_of(&users, costs, Some(&globals), starts)?;
                    users.into_iter().zip(priced).for_each(|(user, block)| blocks[user] = block);
                }
            }
        }
        let fixed = (costs.0, blocks);
        let choices = self.refined(fixed, least(paid(once, &globals)), (starts, close)).choices;
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

    /// The segments that use a global: no other changes with it.
    fn users(&self, global: usize) -> Vec<usize> {
        let uses = |it: &usize| self.chain.segments[*it].shared.iter().any(|it| it.global == global);
        (0..self.segments.len()).filter(uses).collect()
    }

    /// The segments that use a global, reduced with a slot for it, where the others are fixed to `fixed`; nothing where that
    /// would be too wide.
    fn beside(
        &self,
        global: usize,
        (goal, prices): (Goal, &Prices),
        fixed: &[usize],
        starts: &Starts,
    ) -> Result<Option<Vec<Beside<'_>>>, SearchError> {
        let ready = |number: usize| {
            let segment = &self.chain.segments[number];
            (number, Ready::new(&self.chain, segment, Slots::One(global), &self.needful[number]))
        };
        let segments =
            self.beside[global].get_or_init(|| self.users(global).into_iter().map(ready).collect());
        if segments.iter().any(|(_, ready)| ready.largest() > MOST_ENTRIES) {
            return Ok(None);
        }
        let reduced = segments.par_iter().map(|(segment, ready)| {
            let live = (prices.resident, &prices.live[*segment][..]);
            let block = ready.block(goal, live, Some(fixed), starts.of(goal, *segment))?;
            Ok(Beside { segment: *segment, ready, block })
        });
        let reduced: Result<_, SearchError> = reduced.collect::<Vec<_>>().into_iter().collect();
        Ok(Some(reduced?))
    }

    /// All segments reduced, the globals fixed to `fixed` if they are not kept.
    fn priced(
        &self,
        costs: (Goal, &Prices),
        fixed: Option<&[usize]>,
        starts: &Starts,
    ) -> Result<Vec<Block<'_>>, SearchError> {
        let all: Vec<usize> = (0..self.segments.len()).collect();
        self.priced_of(&all, costs, fixed, starts)
    }

    /// The same of some segments.
    fn priced_of(
        &self,
        segments: &[usize],
        (goal, prices): (Goal, &Prices),
        fixed: Option<&[usize]>,
        starts: &Starts,
    ) -> Result<Vec<Block<'_>>, SearchError> {
        let priced = segments.par_iter().map(|&number| {
            let live = (prices.resident, &prices.live[number][..]);
            self.segments[number].block(goal, live, fixed, starts.of(goal, number))
        });
        // Of several errors the first, whichever segment is done first.
        priced.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Starts {
    fn of(&self, goal: Goal, segment: usize) -> &[Option<Start>] {
        self.0.get(&(goal, segment)).map_or(&[], Vec::as_slice)
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
