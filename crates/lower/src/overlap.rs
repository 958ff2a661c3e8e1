//! Exchanges beside computing: an order of instructions in which as much as possible of what ranks
//! exchange is under way while they compute.
//!
//! A host issues instructions in one order, and each stream runs its own in that order. So what a rank
//! exchanges is hidden by where it is issued, and by where what waits for it is. A clock runs over the
//! program, with what the plan expects of operations and moves, and issues one instruction after another:
//!
//! - what is exchanged is issued when it is due and its stream would be idle otherwise; what computing waits for has
//!   a stream of its own, and what may run beside computing another: gathers of what is at rest ahead of their use,
//!   as soon as what is pending would come late, sums of gradients when they are made;
//! - an operation that would wait for an exchange lets others go first that wait less, of the next
//!   [`WINDOW`]: what uses sums sinks, what makes the next ones rises;
//! - what an exchange reads keeps its place until it is over by the clock: what takes the place would wait.
//!
//! Small exchanges of gradients and in the update are one (`bundles.rs`).
//!
//! All of that only where no more is held than in the order in which the program was built, or than the plan may
//! hold where it counts on exchanges beside computing. What has to come before what stays so; sends, receives,
//! messages and operations in time steps keep their order among themselves, and nothing leaves its part of a step.
//! Every rank issues the same exchanges in the same order, for what decides it is the same on all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plan::Plan;

use crate::arena::{self, Lifetime, Placed, lifetimes};
use crate::expected::{Expected, room};
use crate::in_place;
use crate::program::{Program, Stream};
use depends::Depends;
use held::Held;
use remaining::Remaining;

mod depends; // what comes before what
mod bundles; // small exchanges as one
mod held; // what is held meanwhile
mod issue; // what is issued, and what that holds
mod levels; // the same by moment
mod needed; // until when exchanges have to be over
mod remaining; // what is still to be computed

/// How many operations are looked at for one that need not wait.
const WINDOW: usize = 256;

/// How many gathers are looked at for one that would come late.
const AHEAD: usize = 32;

/// How often orders are tried in as much less memory as was found to be too much: what lies between storages is not
/// foreseen.
const TRIALS: usize = 3;

/// In which parts then of what there is more than the program takes as it was built, and in which parts of all. If there
/// are no places even then, the program stays as it is.
const MORE: [i64; 3] = [75, 50, 25];
const PARTS: [i64; 6] = [100, 98, 95, 90, 80, 60];

/// How much longer exchanges are expected to take than alone: what is computed beside them slows them
/// down, and what comes late costs more than what comes early.
const LEAD: f64 = 1.25;

/// A program that was built of a plan, which is all that its ranks run, with places.
pub(crate) fn alone(plan: &Plan, program: Program) -> Placed {
    placed(in_place::reduced(program), &Expected::of([plan]), room([plan], plan.capacity))
}

/// The program with places for all its storages, its exchanges beside computing where there is memory for it: what
/// it takes in the order in which it was built, or so much (bytes).
/// Where nothing is known to take time, it stays as it is.
pub(crate) fn placed(program: Program, expected: &Expected, room: u64) -> Placed {
    let seconds = expected.each(&program);
    let first = arena::in_order(program);
    let built = first.built;
    let exchanges = first.program.instructions.iter().any(|it| it.action.communicator().is_some());
    if !exchanges || seconds.iter().all(|&it| it <= 0.0) {
        return first;
    }
    let arena = first.program.arena.max(room.saturating_sub(first.program.resident));
    let bytes = [first.program.arena, arena].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    let (bundled, taken) = bundles::bundled(first.program.clone(), &seconds);
    let found = if bundled.instructions.len() < first.program.instructions.len() {
        within(&bundled, &taken, bytes).or_else(|| within(&first.program, &seconds, bytes))
    } else {
        within(&first.program, &seconds, bytes)
    };
    found.map_or(first, |(program, lifetimes)| Placed { program, lifetimes, built })
}

/// The program, which takes so many bytes as it was built, in another order and with places, if there are such in so
/// many.
fn within(
    program: &Program,
    seconds: &[f64],
    [built, arena]: [i64; 2],
) -> Option<(Program, Vec<Option<Lifetime>>)> {
    let lives = lifetimes(program);
    let more = |part: i64| built + (arena - built) / 100 * part;
    let known = MORE.into_iter().filter(|_| arena > built).map(more);
    let mut known = known.chain(PARTS.into_iter().map(|part| arena.min(built) / 100 * part));
    let mut budget = arena;
    // What is exchanged ahead has room that a plan counts on: there it is looked for longer.
    let limit = u64::try_from(arena).ok().filter(|_| arena > built).unwrap_or(u64::MAX);
    for trial in 1.. {
        let (program, lifetimes) = ordered(program, &lives, seconds, budget);
        let program = arena::placed(program, &lifetimes, limit);
        let beyond = i64::try_from(program.arena).unwrap_or(i64::MAX) - arena;
        if beyond <= 0 {
            return Some((program, lifetimes));
        }
        budget = match trial {
            ..TRIALS => budget.saturating_sub(beyond),
            _ => known.find(|&it| it < budget)?,
        };
    }
    None
}

/// The program in another order, which holds no more than its budget where that is more than it did (bytes);
/// and when what lies in its storages is held.
fn ordered(
    before: &Program,
    lives: &[Option<Lifetime>],
    seconds: &[f64],
    budget: i64,
) -> (Program, Vec<Option<Lifetime>>) {
    let mut order: Vec<usize> = Vec::with_capacity(seconds.len());
    // For each storage, the instruction of the new order up to which it is kept.
    let mut kept: Vec<usize> = vec![0; before.storages.len()];
    for stretch in depends::stretches(before) {
        let mut walk = Walk::new(before, lives, seconds, stretch.clone(), budget);
        walk.run();
        for (number, until) in walk.kept {
            kept[walk.held.space(number).storage.0] = stretch.start + until;
        }
        order.extend(walk.order.into_iter().map(|it| stretch.start + it));
    }
    let mut program = before.clone();
    program.instructions = order.iter().map(|&it| before.instructions[it].clone()).collect();
    let mut lives = lifetimes(&program);
    for (life, kept) in lives.iter_mut().zip(kept) {
        if let Some(life) = life {
            life.last = life.last.max(kept);
        }
    }
    (program, lives)
}

/// What part of the longest exchange that computing waits for a wait is that is too short to begin a longer operation in
/// that could be kept; and how much of what is computed may run beside it where operations are kept so.
const SHORT: f64 = 0.25;
const LITTLE: f64 = 0.5;

/// How many clocks there are: of what is computed, of exchanges that computing waits for, and of those beside it.
const LANES: usize = 3;
const COMPUTED: usize = 0;
const WAITED: usize = 1;
const BESIDE: usize = 2;

/// The clock of what is done on a stream.
fn lane(stream: Stream) -> usize {
    match stream {
        Stream::Compute | Stream::Sending | Stream::Receiving => COMPUTED,
        Stream::Communication | Stream::Contrary => WAITED,
        Stream::Beside => BESIDE,
    }
}

/// Between whom each instruction of a stretch exchanges, by number.
fn groups(program: &Program, stretch: &Range<usize>) -> Vec<Option<usize>> {
    let mut numbers = BTreeMap::new();
    let number = |it: &crate::program::Instruction| {
        let members = program.members(it.action.communicator()?);
        let next = numbers.len();
        Some(*numbers.entry(members).or_insert(next))
    };
    program.instructions[stretch.clone()].iter().map(number).collect()
}

/// An exchange whose places are kept until it is over.
struct UnderWay {
    space: usize,
    /// When it is over (seconds).
    end: f64,
}

/// A stretch of a program that is issued by a clock; instructions are counted from its start.
struct Walk {
    /// What each takes (seconds).
    seconds: Vec<f64>,
    /// Which clock each is on.
    lanes: Vec<usize>,
    /// Between whom each exchanges, by number.
    groups: Vec<Option<usize>>,
    /// When the last exchange of each group that computing waits for is over (seconds).
    met: BTreeMap<usize, f64>,
    depends: Depends,
    held: Held,
    budget: i64,
    /// Until which operation each exchange has to be over.
    needed: Vec<usize>,
    /// The first exchange that computing waits for and each operation leads to; the end of the stretch if there is none.
    leads: Vec<usize>,
    /// What of operations before each exchange has room beside it and those that it leads to (seconds).
    beside: Vec<f64>,
    /// What is still to be computed.
    remaining: Remaining,
    /// The longest of each clock (seconds).
    longest: [f64; LANES],
    /// A wait that is too short to begin an operation in that could be kept (seconds).
    short: f64,
    /// How many that come before each are not issued; of these those that cannot be issued with it.
    left: Vec<usize>,
    apart: Vec<usize>,
    issued: Vec<bool>,
    /// When each that is issued is over (seconds).
    over: Vec<f64>,
    /// The first that is not issued of those that compute, and of those that exchange.
    next: [usize; 2],
    /// When what is issued is over, by clock (seconds).
    clock: [f64; LANES],
    /// Exchanges of each clock that could be issued, those that are needed first first.
    ready: [BTreeSet<(usize, usize)>; LANES],
    under_way: Vec<UnderWay>,
    order: Vec<usize>,
    /// Spaces that are kept, and the place in the order up to which.
    kept: Vec<(usize, usize)>,
}

impl Walk {
    fn new(
        program: &Program,
        lifetimes: &[Option<Lifetime>],
        seconds: &[f64],
        stretch: Range<usize>,
        budget: i64,
    ) -> Self {
        let depends = Depends::of(program, &stretch);
        let seconds = seconds[stretch.clone()].to_vec();
        let lanes: Vec<usize> =
            program.instructions[stretch.clone()].iter().map(|it| lane(it.stream)).collect();
        let exchanges: Vec<bool> = lanes.iter().map(|&it| it != COMPUTED).collect();
        let count = seconds.len();
        let remaining = Remaining::new((0..count).map(|it| if exchanges[it] { 0.0 } else { seconds[it] }));
        let mut longest = [0.0_f64; LANES];
        (0..count).for_each(|it| longest[lanes[it]] = longest[lanes[it]].max(seconds[it]));
        let sum = |lane| (0..count).filter(|&it| lanes[it] == lane).map(|it| seconds[it]).sum::<f64>();
        let keeps = sum(BESIDE) < LITTLE * sum(COMPUTED);
        let short = if keeps { SHORT * longest[WAITED] } else { 0.0 };
        let left: Vec<usize> = depends.before.iter().map(Vec::len).collect();
        let unknown = |before: &Vec<usize>| before.iter().filter(|&&it| !depends.known[it]).count();
        let apart: Vec<usize> = depends.before.iter().map(unknown).collect();
        let needed = needed::needed(&depends, &exchanges);
        let leads = needed::leads(&depends, &needed, |it| lanes[it] == WAITED);
        let beside = needed::beside(&leads, &seconds, |it| (lanes[it] == WAITED, lanes[it] == COMPUTED));
        let mut ready: [BTreeSet<(usize, usize)>; LANES] = Default::default();
        (0..count).filter(|&it| exchanges[it] && apart[it] == 0 && !depends.stays[it]).for_each(|it| {
            ready[lanes[it]].insert((needed[it], it));
        });
        Self {
            held: Held::of(program, lifetimes, &stretch),
            groups: groups(program, &stretch),
            met: BTreeMap::new(),
            issued: vec![false; count],
            over: vec![0.0; count],
            order: Vec::with_capacity(count),
            next: [0; 2],
            clock: [0.0; LANES],
            under_way: Vec::new(),
            kept: Vec::new(),
            seconds,
            lanes,
            depends,
            budget,
            needed,
            leads,
            beside,
            remaining,
            longest,
            short,
            left,
            apart,
            ready,
        }
    }

    /// Issues everything.
    fn run(&mut self) {
        while let Some(first) = self.first(false) {
            self.waited();
            if self.issued[first] {
                continue;
            }
            let chosen = Some(self.chosen(first)).filter(|&it| it == first || self.open(it)).unwrap_or(first);
            self.fill(chosen);
            // What an exchange reads was issued with it.
            if self.issued[chosen] || self.issued[first] {
                continue;
            }
            if !self.try_issue(chosen) && (chosen == first || !self.try_issue(first)) {
                self.force(first);
            }
        }
        self.exchange_before(self.seconds.len());
        let last = self.order.len().saturating_sub(1);
        self.kept.extend(self.under_way.drain(..).map(|it| (it.space, last)));
    }

    /// Whether an instruction is on a stream of exchanges.
    fn exchanges(&self, instruction: usize) -> bool {
        self.lanes[instruction] != COMPUTED
    }

    /// The first that is not issued of those that exchange, or of the others.
    fn first(&mut self, exchanges: bool) -> Option<usize> {
        let next = &mut self.next[usize::from(exchanges)];
        while *next < self.issued.len()
            && (self.issued[*next] || (self.lanes[*next] != COMPUTED) != exchanges)
        {
            *next += 1;
        }
        (*next < self.issued.len()).then_some(*next)
    }

    /// Issues an operation that is the first, whatever is held: all before it is issued then.
    fn force(&mut self, first: usize) {
        self.exchange_before(first);
        self.issue(first);
    }

    /// Issues all exchanges before an instruction.
    fn exchange_before(&mut self, end: usize) {
        while let Some(next) = self.first(true).filter(|&it| it < end) {
            self.issue(next);
        }
    }

    /// When an instruction could start: what it waits for is over then.
    fn start(&self, instruction: usize) -> f64 {
        let over = |&it: &usize| match self.issued[it] {
            true => self.over[it],
            false if self.exchanges(it) => self.start(it).max(self.clock[self.lanes[it]]) + self.seconds[it],
            false => self.clock[0] + self.seconds[it],
        };
        self.depends.before[instruction].iter().map(over).fold(self.clock[0], f64::max)
    }

    /// Whether an instruction waits for nothing but exchanges that could be issued now, with what comes before them.
    fn can_open(&self, instruction: usize) -> bool {
        let is_open = |&it: &usize| {
            self.issued[it] || self.exchanges(it) && !self.depends.stays[it] && self.can_open(it)
        };
        self.left[instruction] == 0 || self.depends.before[instruction].iter().all(is_open)
    }

    /// Issues the exchanges that an instruction waits for, as far as no more is held then than may be: whether all
    /// of them are.
    fn open(&mut self, instruction: usize) -> bool {
        let before = self.depends.before[instruction].clone();
        before.into_iter().all(|it| self.issued[it] || self.open(it) && self.try_issue(it))
    }

    /// Issues what computing waits for and is due; what nothing of the stretch waits for while its stream is idle.
    fn waited(&mut self) {
        let end = self.seconds.len();
        while let Some(exchange) = self.exchange(WAITED, None) {
            let is_late = self.needed[exchange] < end || self.clock[WAITED] <= self.clock[0];
            if !is_late || !self.prepare(exchange) || !self.try_issue(exchange) {
                return;
            }
        }
    }

    /// The operation that is next: the first one, or one that it keeps from an exchange; while it would wait, the one
    /// that can start first.
    fn chosen(&self, first: usize) -> usize {
        if self.depends.stays[first] {
            return first;
        }
        let candidates = (first + 1..self.issued.len()).filter(|&it| !self.issued[it] && !self.exchanges(it));
        let candidates = candidates.take(WINDOW).filter(|&it| !self.depends.stays[it]);
        if self.start(first) <= self.clock[0] {
            return self.sooner(first, candidates).unwrap_or(first);
        }
        let mut chosen = (first, self.start(first));
        let waits = chosen.1 - self.clock[0];
        let is_short = waits < self.short;
        let is_kept = |it: usize| is_short && self.leads[it] == self.issued.len() && self.seconds[it] > waits;
        for it in candidates.filter(|&it| !is_kept(it) && self.can_open(it)) {
            let start = self.start(it);
            if start < chosen.1 {
                chosen = (it, start);
            }
            if start <= self.clock[0] {
                break;
            }
        }
        chosen.0
    }

    /// The first operation that could start now and leads to an exchange sooner than the first one does, if what comes
    /// before it besides the first one is less than has room beside that exchange and those after it.
    fn sooner(&self, first: usize, mut candidates: impl Iterator<Item = usize>) -> Option<usize> {
        let leads = |it: &usize| {
            self.leads[*it] < self.leads[first] && self.left[*it] == 0 && self.start(*it) <= self.clock[0]
        };
        candidates
            .find(leads)
            .filter(|&it| self.remaining.before(it) - self.seconds[first] < self.beside[self.leads[it]])
    }

    /// Issues exchanges beside computing for as long as none would be under way before the end of an operation.
    fn fill(&mut self, operation: usize) {
        for before in self.depends.before[operation].clone() {
            self.exchange_for(before);
        }
        let end = self.start(operation) + self.seconds[operation];
        while self.clock[BESIDE] < end {
            let early = self.exchange(BESIDE, Some(operation));
            if early.is_some_and(|it| self.prepare(it) && self.try_issue_kept(it)) {
                continue;
            }
            let Some(exchange) = self.exchange(BESIDE, None) else { return };
            if !self.prepare(exchange) || !self.try_issue(exchange) {
                return;
            }
        }
    }

    /// Issues what comes before an instruction and is computed of what is at rest, as far as no more is held then than
    /// may be: whether all of it is.
    fn prepare(&mut self, instruction: usize) -> bool {
        let before = self.depends.before[instruction].clone();
        before
            .into_iter()
            .all(|it| !self.depends.known[it] || self.issued[it] || self.prepare(it) && self.try_issue(it))
    }

    /// Issues an exchange that is waited for, with those that come before it.
    fn exchange_for(&mut self, exchange: usize) {
        if self.issued[exchange] || !self.exchanges(exchange) {
            return;
        }
        if self.depends.stays[exchange] {
            return self.exchange_before(exchange + 1);
        }
        for before in self.depends.before[exchange].clone() {
            self.exchange_for(before);
        }
        if self.prepare(exchange) && self.left[exchange] == 0 {
            self.issue(exchange);
        }
    }

    /// The exchange of a clock that is best issued now; before an operation, if the next time is after that.
    ///
    /// What leads to others that computing waits for is issued when it can be. What is needed later is gathered ahead
    /// as late as all that is pending comes in time, four times the longest exchange before that; what nothing in the
    /// stretch waits for goes first until then.
    fn exchange(&self, lane: usize, operation: Option<usize>) -> Option<usize> {
        let end = self.seconds.len();
        let dated = self.ready[lane].iter().take_while(|it| it.0 < end).take(AHEAD);
        if let Some(&(_, it)) = dated.clone().find(|it| lane == WAITED && self.leads[it.1] < end) {
            return Some(it);
        }
        let undated = self.ready[lane].range((end, 0)..).next().map(|it| it.1);
        let next = operation.map_or(self.clock[0], |it| self.start(it) + self.seconds[it]);
        let (mut pending, mut slack) = ((self.clock[lane] - next).max(0.0), f64::INFINITY);
        for &(needed, it) in dated.clone() {
            pending += LEAD * self.seconds[it];
            let meanwhile = operation.filter(|&it| it < needed).map_or(0.0, |it| self.seconds[it]);
            slack = slack.min(self.remaining.before(needed) - meanwhile - pending);
        }
        let first = dated.clone().next().map(|it| it.1);
        match undated {
            Some(it) if slack > LEAD * self.seconds[it] => Some(it),
            _ => first.filter(|_| slack <= 4.0 * self.longest[lane]).or(undated),
        }
    }
}

#[cfg(test)]
mod tests;
