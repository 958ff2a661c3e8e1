//! Work in the order that it waits for each other: tasks, what comes before what, and links that
//! tasks share.
//!
//! This is all that the clock knows. Programs become schedules, and so do schedules by hand, such
//! as pipelines drawn on paper: what is done one after another on a device is a chain of tasks.

/// Tasks, links and what comes before what.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// The rate of each link (bytes per second).
    links: Vec<f64>,
    tasks: Vec<Work>,
    flows: Vec<Flow>,
    /// For each flow, the processors that it keeps busy, ascending.
    busy: Vec<Vec<u32>>,
    /// Pairs: the second task waits for the first.
    order: Vec<[u32; 2]>,
    /// The part of its rate that each of the two keeps while a processor computes and moves; all of
    /// it if none is stated.
    beside: Option<f64>,
}

/// A task, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task(pub(crate) u32);

/// A link in one direction, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub(crate) u32);

/// What a task does: it takes so long, on a processor or nowhere, or it is the flow of that number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Lasts(f64),
    Computes { seconds: f64, processor: u32 },
    Flows(u32),
}

/// Bytes that move over links: first nothing for the time of the latency, then all of them.
///
/// The rate is what the links leave: each link's rate is shared so that no flow could get more
/// without another one that has no more getting less (max-min fairness).
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Time before the first byte moves (seconds).
    pub latency: f64,
    /// How much moves (bytes).
    pub bytes: f64,
    /// The most that moves in a second, with the links for it alone (bytes per second).
    pub rate: f64,
    /// The links that are used, each once, and how many bytes go over it for each that moves.
    pub uses: Vec<(Link, f64)>,
}

impl Schedule {
    /// Adds a link of that rate in one direction (bytes per second).
    pub fn link(&mut self, rate: f64) -> Link {
        self.links.push(rate);
        Link(number(self.links.len() - 1))
    }

    /// Adds a task that takes so long (seconds) when all those before it are over.
    pub fn lasting(&mut self, seconds: f64, before: &[Task]) -> Task {
        self.task(Work::Lasts(seconds), before)
    }

    /// Adds a task that keeps a processor busy for so long (seconds), or longer where that moves bytes
    /// meanwhile.
    pub fn computing(&mut self, seconds: f64, processor: u32, before: &[Task]) -> Task {
        self.task(Work::Computes { seconds, processor }, before)
    }

    /// States the part of its rate that computing keeps on a processor while bytes are moved by it, and
    /// moving while it computes.
    pub fn slows(&mut self, beside: f64) {
        self.beside = Some(beside);
    }

    /// States that a processor is kept busy by what a task moves; nothing of a task that is no flow.
    pub fn keeps_busy(&mut self, task: Task, processor: u32) {
        if let Work::Flows(flow) = self.tasks[index(task)] {
            let busy = &mut self.busy[place(flow)];
            if let Err(free) = busy.binary_search(&processor) {
                busy.insert(free, processor);
            }
        }
    }

    /// Adds a task that moves bytes when all those before it are over.
    pub fn moving(&mut self, flow: Flow, before: &[Task]) -> Task {
        self.flows.push(flow);
        self.busy.push(Vec::new());
        self.task(Work::Flows(number(self.flows.len() - 1)), before)
    }

    /// Adds a task that does what another one does, when all those before it are over.
    pub fn again(&mut self, task: Task, before: &[Task]) -> Task {
        self.task(self.tasks[index(task)], before)
    }

    /// Makes a task wait for another one.
    pub fn after(&mut self, task: Task, before: Task) {
        self.order.push([before.0, task.0]);
    }

    /// How many tasks there are.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(crate) fn links(&self) -> &[f64] {
        &self.links
    }

    pub(crate) fn tasks(&self) -> &[Work] {
        &self.tasks
    }

    pub(crate) fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The processors that a flow keeps busy.
    pub(crate) fn busy(&self, flow: u32) -> &[u32] {
        &self.busy[place(flow)]
    }

    pub(crate) fn beside(&self) -> Option<f64> {
        self.beside
    }

    pub(crate) fn order(&self) -> &[[u32; 2]] {
        &self.order
    }

    fn task(&mut self, work: Work, before: &[Task]) -> Task {
        let task = Task(number(self.tasks.len()));
        self.tasks.push(work);
        self.order.extend(before.iter().map(|it| [it.0, task.0]));
        task
    }
}

/// The place of a task in lists by task.
pub(crate) fn index(task: Task) -> usize {
    place(task.0)
}

/// A number as a place in a list.
pub(crate) fn place(number: u32) -> usize {
    usize::try_from(number).expect("a place fits an address")
}

/// A place in a list as a number.
///
/// # Panics
/// If there are more than four billion: no memory holds such a schedule.
pub(crate) fn number(place: usize) -> u32 {
    u32::try_from(place).expect("a schedule has fewer than four billion tasks")
}
