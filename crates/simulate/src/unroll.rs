//! The programs of all ranks as a schedule: one chain of tasks for each class of ranks and stream.
//!
//! A collective is one task, which starts when all its ranks have come to it and is over for all
//! of them at once. A message is one task for each pair of ranks, and who takes part goes on when
//! what it gives and what it gets has arrived. What is repeated for each micro-batch is unrolled,
//! turn by turn.
//!
//! What goes between stages is on its way as soon as it is sent, whether the receiver has come to it or
//! not, one message of a pair of ranks after another; the receiver goes on when it has come. What is
//! passed on is passed on by a rank that has come to receiving it.

use std::collections::{BTreeMap, VecDeque};

use cost_models::cluster::Cluster;
use cost_models::collective;
use cost_models::machine::{Device, Machine};
use cost_models::units::Bytes;
use cost_models::work;
use lower::{Stream, Way};

use crate::clock::Times;
use crate::precedence::{Order, Precedence, Step, walk};
use crate::prices::{Exchanged, Priced, together};
use crate::ranks::{Kind, Ranks};
use crate::schedule::{Flow, Link, Schedule, Task};
use crate::symmetry::{GroupClass, Pattern, RankClass, Symmetry};

/// An instruction, once done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) instruction: u32,
    pub(crate) repetition: u32,
    pub(crate) first: Task,
    pub(crate) last: Task,
}

/// A schedule, and what its tasks are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unrolled {
    pub(crate) schedule: Schedule,
    /// For each class of ranks what it does, in the order of the program.
    pub(crate) done: Vec<Vec<Done>>,
}

impl Done {
    pub(crate) fn start(&self, times: &Times) -> f64 {
        times.start(self.first)
    }

    pub(crate) fn end(&self, times: &Times) -> f64 {
        times.end(self.last)
    }
}

/// The programs of all classes of ranks.
pub(crate) struct Unrolling<'a> {
    pub(crate) ranks: &'a Ranks<'a>,
    pub(crate) cluster: &'a Cluster,
    pub(crate) order: Order,
    pub(crate) symmetry: &'a Symmetry,
}

impl Unrolling<'_> {
    pub(crate) fn schedule(&self) -> Unrolled {
        let mut schedule = Schedule::default();
        // Of several kinds the one that is slowed most says it of all.
        let beside = self.cluster.kinds().iter().filter_map(|kind| kind.transport.beside.as_ref());
        if let Some(beside) = beside.map(|it| it.value.0).reduce(f64::min) {
            schedule.slows(beside);
        }
        let links = self.symmetry.links.iter().map(|&rate| schedule.link(rate)).collect();
        let meetings = vec![Vec::new(); self.symmetry.groups.len()];
        let mut chains = Chains { unrolling: self, links, schedule, meetings, made: BTreeMap::new() };
        let classes = (0..).zip(&self.symmetry.ranks);
        let done = classes.map(|(processor, class)| chains.chain(processor, class)).collect();
        Unrolled { schedule: chains.schedule, done }
    }
}

struct Chains<'a> {
    unrolling: &'a Unrolling<'a>,
    links: Vec<Link>,
    schedule: Schedule,
    /// For each class of groups its meetings so far, in order.
    meetings: Vec<Vec<Task>>,
    /// Tasks of meetings, by the class of groups and what they are for.
    made: BTreeMap<(usize, Exchange), Task>,
}

/// What ranks meet for, as one of them has it in its program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Exchange {
    /// An instruction.
    Whole(usize),
    /// Which part of which instruction.
    Part(Way, usize, usize),
}

/// Where a class of ranks is in its program.
struct At<'a> {
    /// Which class it is: as the clock has it, which processor.
    processor: u32,
    class: &'a RankClass,
    kind: &'a Kind<'a>,
    /// For each class of groups how often it was met; as who gets between stages, in the second place.
    met: Vec<[usize; 2]>,
    /// What the rank sends itself, until it is received.
    own: VecDeque<Task>,
    done: Vec<Done>,
}

impl<'a> Chains<'a> {
    fn chain(&mut self, processor: u32, class: &'a RankClass) -> Vec<Done> {
        let kind = &self.unrolling.ranks.kinds[class.kind];
        let program = kind.program;
        let met = vec![[0; 2]; self.meetings.len()];
        let mut at = At { processor, class, kind, met, own: VecDeque::new(), done: Vec::new() };
        let mut precedence = Precedence::start(program, self.unrolling.order);
        walk(program, &mut |step| match step {
            Step::Turn(turn) => {
                let over = precedence.turn(turn.as_ref());
                let start = (!over.is_empty()).then(|| self.schedule.lasting(0.0, &over));
                precedence.starts(start.into_iter().collect());
            }
            Step::Instruction(index, micro_batch) => {
                let instruction = &program.instructions[index];
                let before = precedence.before(instruction);
                let (first, last) = self.instruction(&mut at, index, &before);
                precedence.done(instruction, micro_batch, last);
                let instruction = u32::try_from(index).unwrap_or(u32::MAX);
                let repetition = u32::try_from(micro_batch).unwrap_or(u32::MAX);
                at.done.push(Done { instruction, repetition, first, last });
            }
        });
        at.done
    }

    /// The first and the last task of an instruction.
    fn instruction(&mut self, at: &mut At<'_>, index: usize, before: &[Task]) -> (Task, Task) {
        match at.kind.prices[index] {
            Priced::Alone(seconds) => {
                // What is copied for an exchange, on its stream, is a part of that.
                let computes = at.kind.program.instructions[index].stream == Stream::Compute;
                let task = if computes {
                    self.schedule.computing(seconds, at.processor, before)
                } else {
                    self.schedule.lasting(seconds, before)
                };
                (task, task)
            }
            Priced::Together { what, communicator } => {
                let group = at.class.groups[communicator.0];
                let task = self.meet(at, group, index, before, &|it| it.together(group, what));
                (task, task)
            }
            Priced::Messages { number, bytes } => {
                let list = at.kind.lists[number];
                let here = self.schedule.lasting(0.0, before);
                let mut over = vec![here];
                let mut of: Vec<usize> = at.class.given[list].clone();
                of.extend(at.class.gotten[list]);
                of.sort_unstable();
                of.dedup();
                for group in of {
                    over.push(self.meet(at, group, index, &[here], &|it| it.message(group, bytes, 1)));
                }
                let copied = match at.class.gotten[list] {
                    Some(_) => 0.0,
                    None => work::copy(self.device(at), Bytes(bytes)).0,
                };
                (here, self.schedule.lasting(copied, &over))
            }
            Priced::Crossing => self.crossing(at, index, before),
        }
    }

    /// The task in which a class of groups meets next, which waits for these tasks too.
    fn meet(
        &mut self,
        at: &mut At<'_>,
        group: usize,
        index: usize,
        before: &[Task],
        flow: &dyn Fn(&Self) -> Result<Flow, f64>,
    ) -> Task {
        let times = at.met[group][0];
        at.met[group][0] += 1;
        let task = match self.meetings[group].get(times) {
            Some(&task) => {
                before.iter().for_each(|&it| self.schedule.after(task, it));
                task
            }
            None => self.next(group, Exchange::Whole(index), before, flow),
        };
        self.schedule.keeps_busy(task, at.processor);
        task
    }

    /// One more meeting of a class of groups.
    fn next(
        &mut self,
        group: usize,
        exchange: Exchange,
        before: &[Task],
        flow: &dyn Fn(&Self) -> Result<Flow, f64>,
    ) -> Task {
        let task = match self.made.get(&(group, exchange)) {
            Some(&made) => self.schedule.again(made, before),
            None => match flow(self) {
                Ok(flow) => self.schedule.moving(flow, before),
                Err(seconds) => self.schedule.lasting(seconds, before),
            },
        };
        self.made.insert((group, exchange), task);
        self.meetings[group].push(task);
        task
    }

    /// What goes between stages: over when everything has come, and what is sent or passed on has gone.
    fn crossing(&mut self, at: &mut At<'_>, index: usize, before: &[Task]) -> (Task, Task) {
        let here = self.schedule.lasting(0.0, before);
        let action = &at.kind.program.instructions[index].action;
        let buffers = action.reads().into_iter().chain(action.writes());
        let size: u64 = buffers.map(|it| at.kind.program.buffer(it).type_.dtype.bytes()).sum();
        let class = at.class;
        let parts = class.crossings.get(&index).map_or(&[][..], |parts| &parts[..]);
        let mut tasks: Vec<Task> = Vec::with_capacity(parts.len());
        // Pairs of one class are one: each part of one of them stands for those of all.
        let mut pairs: BTreeMap<(usize, Way), Vec<Task>> = BTreeMap::new();
        for (place, part) in parts.iter().enumerate() {
            let came = part.after.iter().map(|&it| tasks[it]);
            let before: Vec<Task> = [here].into_iter().chain(came).collect();
            let bytes = size * part.elements;
            let task = match (part.pair, part.way) {
                (Some(group), way) => {
                    let known = pairs.entry((group, way)).or_default();
                    if let Some(&task) = known.get(part.number) {
                        tasks.push(task);
                        continue;
                    }
                    let number = at.met[group][usize::from(way == Way::From)] + part.number;
                    let exchange = Exchange::Part(way, index, place);
                    let flow = self.message_between(group, number, exchange, [bytes, part.parts.into()]);
                    known.push(flow);
                    self.schedule.keeps_busy(flow, at.processor);
                    if way == Way::To {
                        before.iter().for_each(|&it| self.schedule.after(flow, it));
                    }
                    flow
                }
                (None, Way::To) => {
                    let copied = work::copy(self.device(at), Bytes(bytes)).0;
                    let task = self.schedule.lasting(copied, &before);
                    at.own.push_back(task);
                    task
                }
                (None, Way::From) => at.own.pop_front().unwrap_or(here),
            };
            tasks.push(task);
        }
        for ((group, way), known) in pairs {
            at.met[group][usize::from(way == Way::From)] += known.len();
        }
        tasks.push(here);
        tasks.sort_unstable();
        tasks.dedup();
        (here, self.joined(tasks))
    }

    /// A task that is over when all these are.
    fn joined(&mut self, tasks: Vec<Task>) -> Task {
        if let [only] = tasks[..] { only } else { self.schedule.lasting(0.0, &tasks) }
    }

    /// The message of that number of a class of pairs of ranks of different stages, after the one before it:
    /// of so many bytes, in so many parts.
    fn message_between(
        &mut self,
        group: usize,
        number: usize,
        exchange: Exchange,
        [bytes, parts]: [u64; 2],
    ) -> Task {
        match self.meetings[group].get(number) {
            Some(&task) => task,
            None => {
                let earlier = self.meetings[group].last().copied();
                self.next(group, exchange, earlier.as_slice(), &|it| it.message(group, bytes, parts))
            }
        }
    }

    /// What a collective moves, or how long it takes if it is not the links that take time.
    fn together(&self, group: usize, what: Exchanged) -> Result<Flow, f64> {
        let class = &self.unrolling.symmetry.groups[group];
        let time =
            |machine: &Machine, bytes: u64| together(machine, &class.group, Exchanged { bytes, ..what }).0;
        let slower = |bytes| self.slower(class, &|it| time(it, bytes));
        self.flow(class, Pattern::of(what.kind), what.bytes, &slower)
    }

    /// What parts of so many bytes together move, one after another.
    fn message(&self, group: usize, bytes: u64, parts: u64) -> Result<Flow, f64> {
        let class = &self.unrolling.symmetry.groups[group];
        let time = |machine: &Machine, bytes: u64| collective::send(machine, &class.group, Bytes(bytes)).0;
        let one = |bytes| self.slower(class, &|it| time(it, bytes));
        let further = cost_models::units::exact(parts.saturating_sub(1)) * one(bytes.min(1));
        let flow = self.flow(class, Pattern::Ring, bytes, &one);
        flow.map(|flow| Flow { latency: flow.latency + further, ..flow }).map_err(|seconds| seconds + further)
    }

    /// What the ends of a class of groups take: if they are of different kinds, the slower one says it.
    fn slower(&self, class: &GroupClass, time: &dyn Fn(&Machine) -> f64) -> f64 {
        let [one, other] = class.ends.map(|rank| self.unrolling.cluster.kind_of(rank));
        let kinds = self.unrolling.cluster.kinds();
        let first = time(&kinds[one]);
        if one == other { first } else { first.max(time(&kinds[other])) }
    }

    /// The device of a class of ranks.
    fn device(&self, at: &At<'_>) -> &'a Device {
        &self.unrolling.cluster.of_rank(at.class.ranks.first().copied().unwrap_or(0)).device
    }

    /// What moves so many bytes in the time that is priced: as long as the smallest value takes
    /// nothing moves, and then the busiest link is full. What it carries is what is counted, so that a link gives
    /// those that share it equal parts, whatever is made of what they carry.
    fn flow(
        &self,
        class: &GroupClass,
        pattern: Pattern,
        bytes: u64,
        time: &dyn Fn(u64) -> f64,
    ) -> Result<Flow, f64> {
        let whole = time(bytes);
        let latency = time(bytes.min(1)).min(whole);
        let busiest = class.busiest.get(&pattern).copied().unwrap_or(0.0);
        let moving = whole - latency;
        if moving <= 0.0 || busiest <= 0.0 {
            return Err(whole);
        }
        let loads = class.loads.get(&pattern).into_iter().flatten();
        let uses = loads.map(|&(link, part)| (self.links[link], part / busiest)).collect();
        Ok(Flow { latency, bytes: moving, rate: 1.0, uses })
    }
}
