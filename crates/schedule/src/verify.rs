//! The rules that a schedule obeys.
//!
//! - **shape**: there is a group, a chunk and a micro-batch, the groups' chunks are as many as the
//!   stages, and tasks are not more than [`MAX_TASKS`].
//! - **range**: tasks name chunks and micro-batches that there are.
//! - **apart**: gradients of weights are tasks only where the backward part is in two.
//! - **once**: each stage's every part of the work on each micro-batch is there, once.
//! - **order**: for each stage and micro-batch, forward comes before backward, and that before
//!   gradients of weights.
//! - **acyclic**: groups do not wait for each other in a circle.
//!
//! A schedule that breaks one of the first four is not looked at further.

use std::fmt;

use super::{MAX_TASKS, Schedule, Task, Work};

/// A schedule that can be run, and one order in which all of its tasks can be done.
#[derive(Clone, Debug)]
pub struct Verified {
    schedule: Schedule,
    micro_batches: usize,
    order: Vec<Place>,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which group's order, from 0.
    pub group: usize,
    /// Which of its tasks it is, from 0.
    pub position: usize,
}

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Another number of stages: found, expected.
    Stages(usize, usize),
    /// No group, chunk or micro-batch.
    Nothing,
    /// More than [`MAX_TASKS`].
    Tasks,
    /// A chunk that groups do not have; their number.
    Chunk(Place, Task, usize),
    /// A micro-batch that there is not; their number.
    MicroBatch(Place, Task, usize),
    /// Gradients of weights where the backward part is not in two.
    Whole(Place, Task),
    /// A task that stands at another place too, before this one.
    Repeated(Place, Task, Place),
    /// A task that a group lacks.
    Missing(usize, Task),
    /// A task that comes before one that it needs: that task, and where it is.
    Order(Place, Task, Task, Place),
    /// Groups that wait for each other.
    Cycle(Vec<Wait>),
}

/// A group that cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Where it stands still.
    pub place: Place,
    /// What it would do next.
    pub task: Task,
    /// The task of another stage that has to be done first.
    pub needs: Task,
    /// Where that is.
    pub at: Place,
}

/// Every rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// How many faults are printed.
const PRINTED: usize = 16;

/// Checks a schedule of so many stages and micro-batches.
pub fn verify(schedule: Schedule, stages: usize, micro_batches: usize) -> Result<Verified, Faults> {
    shape(&schedule, stages, micro_batches).map_err(|fault| Faults(vec![fault]))?;
    let tasks = Numbers::new(&schedule, micro_batches);
    let places = places(&schedule, &tasks).map_err(Faults)?;
    let faults = in_groups(&tasks, &places);
    if !faults.is_empty() {
        return Err(Faults(faults));
    }
    let order = across(&schedule, &tasks, &places).map_err(|cycle| Faults(vec![cycle]))?;
    Ok(Verified { schedule, micro_batches, order })
}

impl Verified {
    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// How many micro-batches there are.
    pub fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    /// Every task, after all that it waits for: those before it in its group, and those of other
    /// stages.
    pub fn order(&self) -> impl Iterator<Item = (Place, &Task)> {
        self.order.iter().map(|&place| (place, &self.schedule.groups[place.group][place.position]))
    }
}

/// The task of another stage that a task waits for, and its group.
pub(super) fn needed(schedule: &Schedule, group: usize, task: &Task) -> Option<(usize, Task)> {
    let stage = schedule.stage(group, task.chunk);
    let other = match task.work {
        Work::Forward => stage.checked_sub(1)?,
        Work::Backward => Some(stage + 1).filter(|&stage| stage < schedule.stages())?,
        Work::Weight => return None,
    };
    let (group, chunk) = schedule.home(other);
    Some((group, Task { chunk, ..*task }))
}

/// The group that waits for a task of another one.
fn waiting(schedule: &Schedule, group: usize, task: &Task) -> Option<usize> {
    let stage = schedule.stage(group, task.chunk);
    let other = match task.work {
        Work::Forward => Some(stage + 1).filter(|&stage| stage < schedule.stages())?,
        Work::Backward => stage.checked_sub(1)?,
        Work::Weight => return None,
    };
    Some(schedule.home(other).0)
}

/// Every task that there should be as a number.
struct Numbers {
    groups: usize,
    chunks: usize,
    micro_batches: usize,
    works: usize,
}

impl Numbers {
    fn new(schedule: &Schedule, micro_batches: usize) -> Self {
        let (groups, chunks) = (schedule.groups.len(), schedule.chunks);
        Self { groups, chunks, micro_batches, works: schedule.works().len() }
    }

    fn len(&self) -> usize {
        self.groups * self.chunks * self.micro_batches * self.works
    }

    fn of(&self, group: usize, task: &Task) -> usize {
        let work = match task.work {
            Work::Forward => 0,
            Work::Backward => 1,
            Work::Weight => 2,
        };
        ((group * self.chunks + task.chunk) * self.micro_batches + task.micro_batch) * self.works + work
    }

    fn task(&self, number: usize) -> (usize, Task) {
        let (work, rest) = (Work::ALL[number % self.works], number / self.works);
        let (micro_batch, rest) = (rest % self.micro_batches, rest / self.micro_batches);
        (rest / self.chunks, Task { work, chunk: rest % self.chunks, micro_batch })
    }
}

fn shape(schedule: &Schedule, stages: usize, micro_batches: usize) -> Result<(), Fault> {
    let groups = schedule.groups.len();
    if groups == 0 || schedule.chunks == 0 || micro_batches == 0 {
        return Err(Fault::Nothing);
    }
    let found = groups.checked_mul(schedule.chunks).ok_or(Fault::Tasks)?;
    if found != stages {
        return Err(Fault::Stages(found, stages));
    }
    let tasks = found.checked_mul(micro_batches).and_then(|it| it.checked_mul(schedule.works().len()));
    tasks.filter(|&tasks| tasks <= MAX_TASKS).map(|_| ()).ok_or(Fault::Tasks)
}

/// Where each task is in its group, by its number: the first four rules.
fn places(schedule: &Schedule, tasks: &Numbers) -> Result<Vec<usize>, Vec<Fault>> {
    let mut places: Vec<Option<usize>> = vec![None; tasks.len()];
    let mut faults = Vec::new();
    for (group, order) in schedule.groups.iter().enumerate() {
        for (position, task) in order.iter().enumerate() {
            let place = Place { group, position };
            if task.chunk >= schedule.chunks {
                faults.push(Fault::Chunk(place, *task, schedule.chunks));
            } else if task.micro_batch >= tasks.micro_batches {
                faults.push(Fault::MicroBatch(place, *task, tasks.micro_batches));
            } else if task.work == Work::Weight && !schedule.splits_backward {
                faults.push(Fault::Whole(place, *task));
            } else if let Some(first) = places[tasks.of(group, task)] {
                faults.push(Fault::Repeated(place, *task, Place { group, position: first }));
            } else {
                places[tasks.of(group, task)] = Some(position);
            }
        }
    }
    let missing = (0..tasks.len()).filter(|&number| places[number].is_none());
    faults.extend(missing.map(|number| {
        let (group, task) = tasks.task(number);
        Fault::Missing(group, task)
    }));
    if faults.is_empty() { Ok(places.into_iter().flatten().collect()) } else { Err(faults) }
}

/// Tasks that come before what they need of the same stage.
fn in_groups(tasks: &Numbers, places: &[usize]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for number in 0..tasks.len() {
        let (group, task) = tasks.task(number);
        let before = match task.work {
            Work::Forward => continue,
            Work::Backward => Task { work: Work::Forward, ..task },
            Work::Weight => Task { work: Work::Backward, ..task },
        };
        let [at, needed] = [places[number], places[tasks.of(group, &before)]];
        if at < needed {
            let place = |position| Place { group, position };
            faults.push(Fault::Order(place(at), task, before, place(needed)));
        }
    }
    faults
}

/// One order of all tasks in which each comes after those that it waits for, or a circle of groups.
fn across(schedule: &Schedule, tasks: &Numbers, places: &[usize]) -> Result<Vec<Place>, Fault> {
    let groups = schedule.groups.len();
    let mut next = vec![0; groups];
    let mut order = Vec::with_capacity(tasks.len());
    // Groups that may be able to go on.
    let mut ready: Vec<usize> = (0..groups).rev().collect();
    while let Some(group) = ready.pop() {
        while let Some(task) = schedule.groups[group].get(next[group]) {
            let waits = needed(schedule, group, task)
                .is_some_and(|(other, task)| places[tasks.of(other, &task)] >= next[other]);
            if waits {
                break;
            }
            order.push(Place { group, position: next[group] });
            next[group] += 1;
            ready.extend(waiting(schedule, group, task).filter(|&other| other != group));
        }
    }
    if order.len() == tasks.len() { Ok(order) } else { Err(cycle(schedule, tasks, places, &next)) }
}

/// The circle in which groups wait that stand still at these positions.
fn cycle(schedule: &Schedule, tasks: &Numbers, places: &[usize], next: &[usize]) -> Fault {
    let wait = |group: usize| {
        let position = next[group];
        let task = *schedule.groups[group].get(position)?;
        let (other, needs) = needed(schedule, group, &task)?;
        let at = Place { group: other, position: places[tasks.of(other, &needs)] };
        Some(Wait { place: Place { group, position }, task, needs, at })
    };
    let mut waits: Vec<Wait> = Vec::new();
    let mut at = (0..next.len()).find_map(wait);
    while let Some(wait_here) = at {
        let group = wait_here.place.group;
        if let Some(start) = waits.iter().position(|it| it.place.group == group) {
            waits.drain(..start);
            break;
        }
        at = wait(wait_here.at.group);
        waits.push(wait_here);
    }
    Fault::Cycle(waits)
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}, task {}", self.group, self.position)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stages(found, expected) => {
                write!(f, "a schedule of {found} stages, expected {expected} [shape]")
            }
            Self::Nothing => {
                write!(f, "a schedule of nothing, expected a group, a chunk and a micro-batch [shape]")
            }
            Self::Tasks => write!(f, "a schedule of more than {MAX_TASKS} tasks [shape]"),
            Self::Chunk(place, task, chunks) => {
                write!(f, "{place}: {task} is on chunk {}, of {chunks} from 0 [range]", task.chunk)
            }
            Self::MicroBatch(place, task, count) => {
                write!(
                    f,
                    "{place}: {task} is for micro-batch {}, of {count} from 0 [range]",
                    task.micro_batch
                )
            }
            Self::Whole(place, task) => {
                write!(f, "{place}: {task}, where backward tasks are whole [apart]")
            }
            Self::Repeated(place, task, first) => {
                write!(f, "{place}: {task} again, first as task {} [once]", first.position)
            }
            Self::Missing(group, task) => write!(f, "group {group}: {task} is missing [once]"),
            Self::Order(place, task, needs, at) => {
                write!(f, "{place}: {task} comes before {needs}, task {} [order]", at.position)
            }
            Self::Cycle(waits) => {
                for (number, Wait { place, task, needs, at }) in waits.iter().enumerate() {
                    let separator = if number == 0 { "" } else { "; " };
                    write!(f, "{separator}{place}: {task} waits for {needs} of {at}")?;
                }
                write!(f, " [acyclic]")
            }
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, fault) in self.0.iter().take(PRINTED).enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        match self.0.len().checked_sub(PRINTED) {
            Some(more) if more > 0 => write!(f, "\nand {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Faults {}
