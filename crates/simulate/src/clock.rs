//! When the tasks of a schedule start and end.
//!
//! A task starts when all those before it are over. Time goes from one end of a task to the next;
//! ends at the same time are taken in the order of the tasks' numbers. Rates of flows change when
//! one of those that share a full link starts to move or ends.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

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
    /// How often the flow's rate had changed, and one more; 0 for the end of a latency or of a
    /// task that is no flow.
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

/// A flow that is moving.
struct Progress {
    /// Since when at this rate (seconds).
    since: f64,
    /// What was left then (bytes).
    left: f64,
    rate: f64,
    changes: u32,
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
            unsettled: false,
        }
    }

    fn start(&mut self, task: u32) {
        self.times.starts[place(task)] = self.now;
        let first = match self.schedule.tasks()[place(task)] {
            Work::Lasts(seconds) => seconds,
            Work::Flows(flow) => self.schedule.flows()[place(flow)].latency,
        };
        self.events.push(Reverse(Happening { at: self.now + first, task, rate: 0 }));
    }

    fn happens(&mut self, event: Happening) {
        match self.schedule.tasks()[place(event.task)] {
            Work::Lasts(_) => self.end(event.task),
            Work::Flows(flow) => {
                let moving = Moving { task: event.task, flow };
                match (event.rate, self.moving.get(&moving)) {
                    (0, _) => self.move_(moving),
                    (rate, Some(progress)) if rate == progress.changes + 1 => {
                        self.moving.remove(&moving);
                        self.unsettled |= self.sharing.end(moving);
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
            self.end(moving.task);
            return;
        }
        self.unsettled |= self.sharing.start(moving);
        let progress = Progress { since: self.now, left: flow.bytes, rate: flow.rate, changes: 0 };
        self.events.push(Reverse(arrival(moving, &progress)));
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

    /// Shares rates anew, if a full link is used by more or by fewer than before.
    fn settle(&mut self) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        let moving: Vec<Moving> = self.moving.keys().copied().collect();
        let rates = self.sharing.share(&moving);
        for ((&moving, progress), rate) in self.moving.iter_mut().zip(rates) {
            if rate.total_cmp(&progress.rate) != Ordering::Equal {
                progress.left = (progress.left - (self.now - progress.since) * progress.rate).max(0.0);
                progress.since = self.now;
                progress.rate = rate;
                progress.changes += 1;
                self.events.push(Reverse(arrival(moving, progress)));
            }
        }
    }
}

/// The end of a flow if its rate stays.
fn arrival(moving: Moving, progress: &Progress) -> Happening {
    let at = progress.since + progress.left / progress.rate;
    Happening { at, task: moving.task, rate: progress.changes + 1 }
}
