//! When the tasks of a schedule start and end.
//!
//! A task starts when all those before it are over. Time goes from one end of a task to the next;
//! ends at the same time are taken in the order of the tasks' numbers. Rates of flows change when
//! one of those that share a full link starts to move or ends; rates of computing, and of flows, when
//! what goes on beside them on their processors starts or ends.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use crate::beside::Beside;
use crate::schedule::{Schedule, Task, Work, index, number, place};
use crate::sharing::{Moving, Sharing};

/// When each task starts and ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    starts: Vec<f64>,
    ends: Vec<f64>,
}

/// Tasks that wait for each other: some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// How many tasks never start.
    pub waiting: usize,
    /// The first of them.
    pub first: Task,
}

impl Times {
    /// When a task starts (seconds).
    pub fn start(&self, task: Task) -> f64 {
        self.starts[index(task)]
    }

    /// When a task ends (seconds).
    pub fn end(&self, task: Task) -> f64 {
        self.ends[index(task)]
    }

    /// When the last task ends (seconds).
    pub fn last(&self) -> f64 {
        self.ends.iter().copied().fold(0.0, f64::max)
    }
}

impl std::fmt::Display for Deadlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tasks wait for each other, among them task {}", self.waiting, self.first.0)
    }
}

impl std::error::Error for Deadlock {}

/// Runs a schedule.
pub fn run(schedule: &Schedule) -> Result<Times, Deadlock> {
    let mut run = Run::new(schedule);
    let first: Vec<u32> = (0..number(schedule.len())).filter(|&it| run.pending[place(it)] == 0).collect();
    first.into_iter().for_each(|task| run.start(task));
    run.settle();
    while let Some(Reverse(event)) = run.events.pop() {
        run.now = event.at;
        run.happens(event);
        // What happens at the same time changes rates once.
        if run.events.peek().is_none_or(|next| next.0.at > event.at) {
            run.settle();
        }
    }
    let waiting = run.pending.iter().filter(|&&it| it > 0).count();
    match run.pending.iter().position(|&it| it > 0) {
        Some(first) => Err(Deadlock { waiting, first: Task(number(first)) }),
        None => Ok(run.times),
    }
}

/// Something that will happen, unless it is of an earlier rate of a flow.
#[derive(Clone, Copy, PartialEq)]
struct Happening {
    at: f64,
    task: u32,
    /// How often the rate had changed, and one more; 0 for the end of a latency or of a task whose
    /// rate never changes.
    rate: u32,
}

impl Eq for Happening {}

impl Ord for Happening {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then_with(|| (self.task, self.rate).cmp(&(other.task, other.rate)))
    }
}

impl PartialOrd for Happening {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A flow that is moving, or something that is computed.
struct Progress {
    /// Since when at this rate (seconds).
    since: f64,
    /// What was left then (bytes; seconds of computing with nothing beside it).
    left: f64,
    rate: f64,
    changes: u32,
}

impl Progress {
    /// At another rate from now on; whether that is another one.
    fn goes_on_at(&mut self, rate: f64, now: f64) -> bool {
        if rate.total_cmp(&self.rate) == Ordering::Equal {
            return false;
        }
        self.left = (self.left - (now - self.since) * self.rate).max(0.0);
        self.since = now;
        self.rate = rate;
        self.changes += 1;
        true
    }
}

struct Run<'a> {
    schedule: &'a Schedule,
    now: f64,
    times: Times,
    /// How many tasks each one still waits for.
    pending: Vec<u32>,
    /// For each task where those that wait for it start in `waiting`; their end is the next start.
    starts: Vec<u32>,
    waiting: Vec<u32>,
    events: BinaryHeap<Reverse<Happening>>,
    sharing: Sharing<'a>,
    moving: BTreeMap<Moving, Progress>,
    /// What is computed where bytes may be moved beside it, with its processor, by task.
    computing: BTreeMap<u32, (u32, Progress)>,
    beside: Beside,
    /// Whether rates are to be shared anew.
    unsettled: bool,
}

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let count = schedule.len();
        let mut pending = vec![0; count];
        let mut starts = vec![0; count + 1];
        for &[before, after] in schedule.order() {
            pending[place(after)] += 1;
            starts[place(before) + 1] += 1;
        }
        for task in 0..count {
            starts[task + 1] += starts[task];
        }
        let mut next = starts.clone();
        let mut waiting = vec![0; schedule.order().len()];
        for &[before, after] in schedule.order() {
            let free = &mut next[place(before)];
            waiting[place(*free)] = after;
            *free += 1;
        }
        Self {
            schedule,
            now: 0.0,
            times: Times { starts: vec![0.0; count], ends: vec![0.0; count] },
            pending,
            starts,
            waiting,
            events: BinaryHeap::new(),
            sharing: Sharing::new(schedule.links(), schedule.flows()),
            moving: BTreeMap::new(),
            computing: BTreeMap::new(),
            beside: Beside::new(schedule.beside()),
            unsettled: false,
        }
    }

    fn start(&mut self, task: u32) {
        self.times.starts[place(task)] = self.now;
        let first = match self.schedule.tasks()[place(task)] {
            Work::Computes { seconds, processor } if self.beside.counts() && seconds > 0.0 => {
                self.unsettled |= self.beside.computes(processor);
                let progress = Progress { since: self.now, left: seconds, rate: 1.0, changes: 0 };
                self.events.push(Reverse(arrival(task, &progress)));
                self.computing.insert(task, (processor, progress));
                return;
            }
            Work::Lasts(seconds) | Work::Computes { seconds, .. } => seconds,
            Work::Flows(flow) => {
                self.unsettled |= self.beside.moves(self.schedule.busy(flow));
                self.schedule.flows()[place(flow)].latency
            }
        };
        self.events.push(Reverse(Happening { at: self.now + first, task, rate: 0 }));
    }

    fn happens(&mut self, event: Happening) {
        match self.schedule.tasks()[place(event.task)] {
            Work::Lasts(_) => self.end(event.task),
            Work::Computes { processor, .. } => match (event.rate, self.computing.get(&event.task)) {
                (0, _) => self.end(event.task),
                (rate, Some((_, progress))) if rate == progress.changes + 1 => {
                    self.computing.remove(&event.task);
                    self.unsettled |= self.beside.computed(processor);
                    self.end(event.task);
                }
                _ => {}
            },
            Work::Flows(flow) => {
                let moving = Moving { task: event.task, flow };
                match (event.rate, self.moving.get(&moving)) {
                    (0, _) => self.move_(moving),
                    (rate, Some(progress)) if rate == progress.changes + 1 => {
                        self.moving.remove(&moving);
                        self.unsettled |= self.sharing.end(moving);
                        self.unsettled |= self.beside.moved(self.schedule.busy(flow));
                        self.end(event.task);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The latency of a flow is over.
    fn move_(&mut self, moving: Moving) {
        let flow = self.sharing.flow(moving);
        if flow.bytes <= 0.0 {
            self.unsettled |= self.beside.moved(self.schedule.busy(moving.flow));
            self.end(moving.task);
            return;
        }
        self.unsettled |= self.sharing.start(moving);
        self.unsettled |= self.beside.slows_flow(self.schedule.busy(moving.flow));
        let progress = Progress { since: self.now, left: flow.bytes, rate: flow.rate, changes: 0 };
        self.events.push(Reverse(arrival(moving.task, &progress)));
        self.moving.insert(moving, progress);
    }

    fn end(&mut self, task: u32) {
        self.times.ends[place(task)] = self.now;
        for at in self.starts[place(task)]..self.starts[place(task) + 1] {
            let next = self.waiting[place(at)];
            let pending = &mut self.pending[place(next)];
            *pending -= 1;
            if *pending == 0 {
                self.start(next);
            }
        }
    }

    /// Shares rates anew, if a full link is used by more or by fewer than before, or if there is more
    /// or less beside something.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        let moving: Vec<Moving> = self.moving.keys().copied().collect();
        let parts: Vec<f64> =
            moving.iter().map(|it| self.beside.of_flow(self.schedule.busy(it.flow))).collect();
        let rates = self.sharing.share(&moving, &parts);
        for ((&moving, progress), rate) in self.moving.iter_mut().zip(rates) {
            if progress.goes_on_at(rate, self.now) {
                self.events.push(Reverse(arrival(moving.task, progress)));
            }
        }
        for (&task, (processor, progress)) in &mut self.computing {
            if progress.goes_on_at(self.beside.of_computing(*processor), self.now) {
                self.events.push(Reverse(arrival(task, progress)));
            }
        }
    }
}

/// The end of something if its rate stays.
fn arrival(task: u32, progress: &Progress) -> Happening {
    let at = progress.since + progress.left / progress.rate;
    Happening { at, task, rate: progress.changes + 1 }
}
