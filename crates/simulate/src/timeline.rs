//! What ranks do when.

use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::topology::{GroupError, Topology};
use lower::{Alike, Grouped, Program, Stream};

use crate::clock::{self, Deadlock, Times};
use crate::memory::{self, Held, Level};
use crate::precedence::Order;
use crate::ranks::Ranks;
use crate::schedule::place;
use crate::symmetry::{RankClass, Telling, symmetry};
use crate::unroll::{Done, Unrolling};

/// A step of all ranks.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    /// What they do: a program of each kind.
    pub programs: Vec<&'a Program>,
    /// In which order each does.
    pub order: Order,
    /// When the last one is done (seconds).
    pub seconds: f64,
    /// Ranks that do the same at the same time, by their first ones.
    pub classes: Vec<Class>,
    /// How many tasks the clock ran.
    pub tasks: usize,
    /// Whom each rank meets.
    pub(crate) ranks: Ranks<'a>,
    times: Times,
}

/// Ranks that do the same at the same time.
#[derive(Clone, Debug)]
pub struct Class {
    /// Who, ascending.
    pub ranks: Vec<u64>,
    /// Which of the programs they have.
    pub program: usize,
    /// When each is done (seconds).
    pub seconds: f64,
    /// Computing and copying (seconds).
    pub computing: f64,
    /// Exchanging with other ranks of its stage, and copying for that on the stream of communication
    /// (seconds).
    pub communicating: f64,
    /// Exchanging while nothing is computed (seconds).
    pub exposed: f64,
    done: Vec<Done>,
}

/// An instruction as it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Which instruction of the program.
    pub instruction: usize,
    /// For which micro-batch; 0 for those that run once.
    pub repetition: u32,
    /// When all that it waits for was over: other ranks too, if it is a collective (seconds).
    pub start: f64,
    /// When it was over (seconds).
    pub end: f64,
}

/// Why there is no timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimulateError {
    /// Programs for more or fewer ranks than the machine has.
    Ranks {
        /// How many programs there are.
        programs: u64,
        /// How many devices.
        devices: u64,
    },
    /// Ranks that are not a group of the machine.
    Group(GroupError),
    /// Instructions that wait for each other.
    Deadlock(Deadlock),
}

impl std::fmt::Display for SimulateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ranks { programs, devices } => {
                write!(
                    f,
                    "programs for {programs} ranks, expected {devices}: as many as the machine has devices"
                )
            }
            Self::Group(error) => write!(f, "{error}"),
            Self::Deadlock(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for SimulateError {}

/// Runs a step of all ranks on a machine, whose ranks are the mesh's devices, in order.
pub fn simulate<'a>(
    alike: &'a Alike,
    machine: &Machine,
    order: Order,
) -> Result<Timeline<'a>, SimulateError> {
    let cluster = Cluster::of(machine.clone());
    suits(alike.mesh.devices(), &cluster)?;
    timeline(Ranks::alike(alike, &cluster), &cluster, order)
}

/// The same of ranks that have programs of their own, given by rank: those of a pipeline.
pub fn simulate_each<'a>(
    programs: &'a [Program],
    machine: &Machine,
    order: Order,
) -> Result<Timeline<'a>, SimulateError> {
    simulate_cluster(programs, &Cluster::of(machine.clone()), order)
}

/// The same on nodes of several kinds: each rank takes what its own kind does.
pub fn simulate_cluster<'a>(
    programs: &'a [Program],
    cluster: &Cluster,
    order: Order,
) -> Result<Timeline<'a>, SimulateError> {
    suits(u64::try_from(programs.len()).unwrap_or(u64::MAX), cluster)?;
    timeline(Ranks::each(programs, cluster), cluster, order)
}

/// The same of a pipeline's ranks, whose programs are alike in each group.
pub fn simulate_grouped<'a>(
    groups: &'a [Grouped],
    cluster: &Cluster,
    order: Order,
) -> Result<Timeline<'a>, SimulateError> {
    let ranks = groups.iter().map(|group| group.ranks.end - group.ranks.start).sum();
    suits(ranks, cluster)?;
    timeline(Ranks::grouped(groups, cluster), cluster, order)
}

fn suits(programs: u64, cluster: &Cluster) -> Result<(), SimulateError> {
    let devices = cluster.devices();
    if programs == devices { Ok(()) } else { Err(SimulateError::Ranks { programs, devices }) }
}

fn timeline<'a>(ranks: Ranks<'a>, cluster: &Cluster, order: Order) -> Result<Timeline<'a>, SimulateError> {
    let topology = Topology::of_cluster(cluster);
    let symmetry = symmetry(&ranks, &topology, Telling::Alike).map_err(SimulateError::Group)?;
    let unrolled = Unrolling { ranks: &ranks, cluster, order, symmetry: &symmetry }.schedule();
    let times = clock::run(&unrolled.schedule).map_err(SimulateError::Deadlock)?;
    let programs: Vec<&Program> = ranks.kinds.iter().map(|kind| kind.program).collect();
    let classes = symmetry.ranks.into_iter().zip(unrolled.done);
    let classes: Vec<Class> =
        classes.map(|(class, done)| Class::of(programs[class.kind], class, done, &times)).collect();
    let (seconds, tasks) = (times.last(), unrolled.schedule.len());
    Ok(Timeline { programs, order, seconds, classes, tasks, ranks, times })
}

impl<'a> Timeline<'a> {
    /// The program of one of the ranks of a class.
    pub fn program(&self, class: &Class) -> &'a Program {
        self.programs[class.program]
    }

    /// What a class of ranks does, in the order of the program.
    pub fn spans<'b>(&'b self, class: &'b Class) -> impl Iterator<Item = Span> + 'b {
        class.done.iter().map(|done| span(done, &self.times))
    }

    /// What a rank of a class holds over time.
    pub fn memory(&self, class: &Class) -> Vec<Level> {
        memory::levels(self.program(class), &class.done, &self.times)
    }

    /// The storages that a step of a rank of a class writes, each as often as it is there, in the order of storages.
    pub fn held(&self, class: &Class) -> Vec<Held> {
        memory::held(self.program(class), &class.done, &self.times)
    }

    /// How many instructions all ranks run together.
    pub fn instructions(&self) -> u64 {
        let all = self.classes.iter().map(|class| class.ranks.len() * class.done.len()).sum::<usize>();
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

fn span(done: &Done, times: &Times) -> Span {
    let (start, end) = (done.start(times), done.end(times));
    Span { instruction: place(done.instruction), repetition: done.repetition, start, end }
}

impl Class {
    fn of(program: &Program, class: RankClass, done: Vec<Done>, times: &Times) -> Self {
        let on = |wanted: &dyn Fn(Stream) -> bool| -> Vec<Span> {
            let all = done.iter().map(|it| span(it, times));
            all.filter(|it| wanted(program.instructions[it.instruction].stream)).collect()
        };
        let (here, there) = (on(&|it| it == Stream::Compute), joined(on(&Stream::exchanges)));
        let sum = |spans: &[Span]| spans.iter().fold(0.0, |sum, it| sum + (it.end - it.start));
        let seconds = done.iter().map(|it| it.end(times)).fold(0.0, f64::max);
        let exposed = sum(&there) - common(&there, &here);
        let RankClass { ranks, kind: program, .. } = class;
        Self { ranks, program, seconds, computing: sum(&here), communicating: sum(&there), exposed, done }
    }
}

/// The times at which any of these spans run, as spans that follow one another.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

/// For how long spans of both lists run at once (seconds). Those of a list follow one another.
pub fn common(one: &[Span], other: &[Span]) -> f64 {
    let (mut sum, mut next) = (0.0, 0);
    for it in one {
        while other.get(next).is_some_and(|other| other.end <= it.start) {
            next += 1;
        }
        let running = other[next..].iter().take_while(|other| other.start < it.end);
        sum += running.map(|other| it.end.min(other.end) - it.start.max(other.start)).sum::<f64>();
    }
    sum
}
