//! What ranks do when.

use cost_models::machine::Machine;
use cost_models::topology::{GroupError, Topology};
use lower::Alike;

use crate::classes::numbered;
use crate::clock::{self, Deadlock, Times};
use crate::memory::{self, Level};
use crate::schedule::place;
use crate::symmetry::{Telling, symmetry};
use crate::unroll::{Done, Order, Unrolling};

/// A step of all ranks.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    /// What they do.
    pub alike: &'a Alike,
    /// In which order each does.
    pub order: Order,
    /// When the last one is done (seconds).
    pub seconds: f64,
    /// Ranks that do the same at the same time, by their first ones.
    pub classes: Vec<Class>,
    /// How many tasks the clock ran.
    pub tasks: usize,
    times: Times,
}

/// Ranks that do the same at the same time.
#[derive(Clone, Debug)]
pub struct Class {
    /// Who, ascending.
    pub ranks: Vec<u64>,
    /// When each is done (seconds).
    pub seconds: f64,
    /// Computing and copying (seconds).
    pub computing: f64,
    /// Exchanging with other ranks, and copying for that on the stream of communication (seconds).
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
    let (programs, devices) = (alike.mesh.devices(), machine.devices());
    if programs != devices {
        return Err(SimulateError::Ranks { programs, devices });
    }
    let lists = numbered(alike.sources.iter());
    let mut sources: Vec<Vec<u64>> = Vec::new();
    for (list, of) in lists.iter().zip(&alike.sources) {
        if *list == sources.len() {
            sources.push(of.clone());
        }
    }
    let topology = Topology::of(machine);
    let symmetry = symmetry(alike, &sources, &topology, Telling::Alike).map_err(SimulateError::Group)?;
    let unrolled = Unrolling { alike, machine, order, symmetry: &symmetry, lists: &lists }.schedule();
    let times = clock::run(&unrolled.schedule).map_err(SimulateError::Deadlock)?;
    let classes = symmetry.ranks.into_iter().zip(unrolled.done);
    let classes: Vec<Class> =
        classes.map(|(class, done)| Class::of(alike, class.ranks, done, &times)).collect();
    Ok(Timeline { alike, order, seconds: times.last(), classes, tasks: unrolled.schedule.len(), times })
}

impl Timeline<'_> {
    /// What a class of ranks does, in the order of the program.
    pub fn spans<'b>(&'b self, class: &'b Class) -> impl Iterator<Item = Span> + 'b {
        class.done.iter().map(|done| span(done, &self.times))
    }

    /// What a rank of a class holds over time.
    pub fn memory(&self, class: &Class) -> Vec<Level> {
        memory::levels(&self.alike.program, &class.done, &self.times)
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
    fn of(alike: &Alike, ranks: Vec<u64>, done: Vec<Done>, times: &Times) -> Self {
        let communicates = |it: &&Span| {
            let instruction = &alike.program.instructions[it.instruction];
            instruction.stream == lower::Stream::Communication
        };
        let spans: Vec<Span> = done.iter().map(|it| span(it, times)).collect();
        let (there, here): (Vec<Span>, Vec<Span>) = spans.iter().partition(communicates);
        let sum = |spans: &[Span]| spans.iter().map(|it| it.end - it.start).sum::<f64>();
        let seconds = spans.iter().map(|it| it.end).fold(0.0, f64::max);
        let exposed = sum(&there) - common(&there, &here);
        Self { ranks, seconds, computing: sum(&here), communicating: sum(&there), exposed, done }
    }
}

/// For how long spans of both lists run at once (seconds). Those of a list follow one another.
fn common(one: &[Span], other: &[Span]) -> f64 {
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
