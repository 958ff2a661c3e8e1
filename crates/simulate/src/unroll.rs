//! The program of all ranks as a schedule: one chain of tasks for each class of ranks and stream.
//!
//! A collective is one task, which starts when all its ranks have come to it and is over for all
//! of them at once. A message is one task for each pair of ranks, and who takes part goes on when
//! what it gives and what it gets has arrived. What is repeated for each micro-batch is unrolled.

use std::collections::BTreeMap;
use std::ops::Range;

use cost_models::collective;
use cost_models::machine::Machine;
use cost_models::units::Bytes;
use cost_models::work;
use lower::{Alike, CollectiveKind, Instruction, Stream};

use crate::clock::Times;
use crate::prices::{Priced, priced, together};
use crate::schedule::{Flow, Link, Schedule, Task};
use crate::symmetry::{GroupClass, Pattern, RankClass, Symmetry};

/// In which order the instructions of a rank run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Streams run at the same time; events say what waits.
    Streams,
    /// One after another, as ranks do that are threads.
    OneByOne,
}

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
    pub(crate) alike: &'a Alike,
    pub(crate) machine: &'a Machine,
    pub(crate) order: Order,
    pub(crate) symmetry: &'a Symmetry,
    /// For each message of the program, which list of sources says who gets from whom.
    pub(crate) lists: &'a [usize],
}

impl Unrolling<'_> {
    pub(crate) fn schedule(&self) -> Unrolled {
        let mut schedule = Schedule::default();
        let links = self.symmetry.links.iter().map(|&rate| schedule.link(rate)).collect();
        let prices = priced(&self.alike.program, self.machine);
        let meetings = vec![Vec::new(); self.symmetry.groups.len()];
        let mut chains = Chains { unrolling: self, prices, links, schedule, meetings, made: BTreeMap::new() };
        let done = self.symmetry.ranks.iter().map(|class| chains.chain(class)).collect();
        Unrolled { schedule: chains.schedule, done }
    }
}

struct Chains<'a> {
    unrolling: &'a Unrolling<'a>,
    prices: Vec<Priced>,
    links: Vec<Link>,
    schedule: Schedule,
    /// For each class of groups its meetings so far, in order.
    meetings: Vec<Vec<Task>>,
    /// Tasks of meetings, by the class of groups and the instruction.
    made: BTreeMap<(usize, usize), Task>,
}

/// Where a class of ranks is in its program.
struct At<'a> {
    class: &'a RankClass,
    /// The last task on each stream.
    last: [Option<Task>; 2],
    /// The last task that signalled each event.
    events: Vec<Option<Task>>,
    /// For each class of groups how often it was met.
    met: Vec<usize>,
    done: Vec<Done>,
}

impl Chains<'_> {
    fn chain(&mut self, class: &RankClass) -> Vec<Done> {
        let program = &self.unrolling.alike.program;
        let events = program.instructions.iter().filter(|it| it.signals.is_some()).count();
        let mut at = At {
            class,
            last: [None; 2],
            events: vec![None; events],
            met: vec![0; self.meetings.len()],
            done: Vec::new(),
        };
        let repetition = program.repetition();
        let times = program.repeated.as_ref().map_or(0, |it| it.times);
        self.part(&mut at, 0..repetition.start, 0);
        for number in 0..times {
            let over: Vec<Task> = at.last.iter().flatten().copied().collect();
            if !over.is_empty() {
                at.last = [Some(self.schedule.lasting(0.0, &over)); 2];
            }
            at.events.fill(None);
            self.part(&mut at, repetition.clone(), u32::try_from(number).unwrap_or(u32::MAX));
        }
        self.part(&mut at, repetition.end..program.instructions.len(), 0);
        at.done
    }

    fn part(&mut self, at: &mut At, instructions: Range<usize>, repetition: u32) {
        let program = &self.unrolling.alike.program;
        for index in instructions {
            let instruction = &program.instructions[index];
            let stream = match (self.unrolling.order, instruction.stream) {
                (Order::Streams, Stream::Compute) | (Order::OneByOne, _) => 0,
                (Order::Streams, _) => 1,
            };
            let before = before(at, instruction, stream);
            let (first, last) = self.instruction(at, index, &before);
            at.last[stream] = Some(last);
            if let Some(event) = instruction.signals {
                at.events[event.0] = Some(last);
            }
            let instruction = u32::try_from(index).unwrap_or(u32::MAX);
            at.done.push(Done { instruction, repetition, first, last });
        }
    }

    /// The first and the last task of an instruction.
    fn instruction(&mut self, at: &mut At, index: usize, before: &[Task]) -> (Task, Task) {
        match self.prices[index] {
            Priced::Alone(seconds) => {
                let task = self.schedule.lasting(seconds, before);
                (task, task)
            }
            Priced::Together { kind, communicator, bytes } => {
                let group = at.class.groups[communicator.0];
                let task = self.meet(at, group, index, before, &|it| it.together(group, kind, bytes));
                (task, task)
            }
            Priced::Messages { number, bytes } => {
                let list = self.unrolling.lists[number];
                let here = self.schedule.lasting(0.0, before);
                let mut over = vec![here];
                let mut of: Vec<usize> = at.class.given[list].clone();
                of.extend(at.class.gotten[list]);
                of.sort_unstable();
                of.dedup();
                for group in of {
                    over.push(self.meet(at, group, index, &[here], &|it| it.message(group, bytes)));
                }
                let copied = match at.class.gotten[list] {
                    Some(_) => 0.0,
                    None => work::copy(&self.unrolling.machine.device, Bytes(bytes)).0,
                };
                (here, self.schedule.lasting(copied, &over))
            }
        }
    }

    /// The task in which a class of groups meets next, which waits for these tasks too.
    fn meet(
        &mut self,
        at: &mut At,
        group: usize,
        index: usize,
        before: &[Task],
        flow: &dyn Fn(&Self) -> Result<Flow, f64>,
    ) -> Task {
        let times = at.met[group];
        at.met[group] += 1;
        if let Some(&task) = self.meetings[group].get(times) {
            before.iter().for_each(|&it| self.schedule.after(task, it));
            return task;
        }
        let task = match self.made.get(&(group, index)) {
            Some(&made) => self.schedule.again(made, before),
            None => match flow(self) {
                Ok(flow) => self.schedule.moving(flow, before),
                Err(seconds) => self.schedule.lasting(seconds, before),
            },
        };
        self.made.insert((group, index), task);
        self.meetings[group].push(task);
        task
    }

    /// What a collective moves, or how long it takes if it is not the links that take time.
    fn together(&self, group: usize, kind: CollectiveKind, bytes: u64) -> Result<Flow, f64> {
        let class = &self.unrolling.symmetry.groups[group];
        let time = |bytes: u64| together(self.unrolling.machine, &class.group, kind, bytes).0;
        self.flow(class, Pattern::of(kind), bytes, &time)
    }

    fn message(&self, group: usize, bytes: u64) -> Result<Flow, f64> {
        let class = &self.unrolling.symmetry.groups[group];
        let time = |bytes: u64| collective::send(self.unrolling.machine, &class.group, Bytes(bytes)).0;
        self.flow(class, Pattern::Ring, bytes, &time)
    }

    /// What moves so many bytes in the time that is priced: as long as the smallest value takes
    /// nothing moves, and then the busiest link is full.
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
        let size = cost_models::units::exact(bytes);
        let rate = size / moving;
        let loads = class.loads.get(&pattern).into_iter().flatten();
        let uses = loads.map(|&(link, part)| (self.links[link], part / (busiest * rate))).collect();
        Ok(Flow { latency, bytes: size, rate, uses })
    }
}

/// The tasks that an instruction waits for.
fn before(at: &At, instruction: &Instruction, stream: usize) -> Vec<Task> {
    let waits = instruction.waits.iter().filter_map(|event| at.events[event.0]);
    at.last[stream].into_iter().chain(waits).collect()
}
