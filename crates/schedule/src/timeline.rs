//! When each task and message starts and ends.
//!
//! A task starts when the one before it in its group is over (and, where sending blocks, what that
//! one sent has arrived) and everything that other stages send it is there. A message starts when
//! its task is over and, where it is sent beside tasks, the message before it on its channel is.

use super::{Crossing, DurationError, Durations, Overlap, Place, Task, Verified, Work};

/// When a pipeline does what, in the unit of its durations.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// For each group, its tasks in its order.
    pub groups: Vec<Vec<Span>>,
    /// What groups send each other: for each sender in the order in which it does.
    pub messages: Vec<Message>,
    /// When everything is over.
    pub makespan: f64,
    /// For each group, how long it works on nothing until then.
    pub idle: Vec<f64>,
}

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The start.
    pub start: f64,
    /// The end.
    pub end: f64,
}

/// A value or gradient on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message {
    /// Which crossing's: its place in [`Durations::crossings`].
    pub crossing: usize,
    /// The task that sent it: forward for a value, backward for a gradient.
    pub of: Task,
    /// The sender, a stage.
    pub from: usize,
    /// The receiver, a stage.
    pub to: usize,
    /// When.
    pub span: Span,
}

impl Timeline {
    /// The part of all groups' time in which they work on nothing.
    pub fn bubble(&self) -> f64 {
        let groups: f64 = self.idle.iter().map(|_| 1.0).sum();
        if self.makespan > 0.0 { self.idle.iter().sum::<f64>() / (groups * self.makespan) } else { 0.0 }
    }
}

/// When each task and message of a schedule starts and ends.
pub fn timeline(verified: &Verified, durations: &Durations) -> Result<Timeline, DurationError> {
    let schedule = verified.schedule();
    let mut groups: Vec<Vec<Span>> = schedule.groups.iter().map(|it| Vec::with_capacity(it.len())).collect();
    let mut messages = Vec::new();
    let mut busy = vec![0.0; groups.len()];
    let makespan = play(verified, durations, |event| match event {
        Event::Worked(Place { group, .. }, span) => {
            busy[group] += span.end - span.start;
            groups[group].push(span);
        }
        Event::Sent(message) => messages.push(message),
    })?;
    let idle = busy.into_iter().map(|busy| makespan - busy).collect();
    Ok(Timeline { groups, messages, makespan, idle })
}

/// When everything is over: the same without what nobody looks at.
pub fn makespan(verified: &Verified, durations: &Durations) -> Result<f64, DurationError> {
    play(verified, durations, |_| ())
}

/// What happens.
enum Event {
    Worked(Place, Span),
    Sent(Message),
}

/// A direction in which a crossing is used.
struct Channel {
    crossing: usize,
    to: usize,
    time: f64,
    /// When the last message on it arrived.
    free: f64,
}

/// What a stage sends to, in each direction: crossings within a group are not sent.
struct Channels {
    forward: Vec<Vec<Channel>>,
    backward: Vec<Vec<Channel>>,
}

impl Channels {
    fn new(groups: usize, stages: usize, crossings: &[Crossing]) -> Self {
        let none = || (0..stages).map(|_| Vec::new()).collect::<Vec<Vec<Channel>>>();
        let (mut forward, mut backward) = (none(), none());
        for (crossing, it) in crossings.iter().enumerate() {
            if it.from % groups != it.to % groups {
                forward[it.from].push(Channel { crossing, to: it.to, time: it.forward, free: 0.0 });
                backward[it.to].push(Channel { crossing, to: it.from, time: it.backward, free: 0.0 });
            }
        }
        Self { forward, backward }
    }
}

fn play(
    verified: &Verified,
    durations: &Durations,
    mut tell: impl FnMut(Event),
) -> Result<f64, DurationError> {
    let (schedule, micro_batches) = (verified.schedule(), verified.micro_batches());
    let (groups, stages) = (schedule.groups.len(), schedule.stages());
    durations.check(stages)?;
    let mut channels = Channels::new(groups, stages, &durations.crossings);
    // From when a group may start its next task, and from when what a stage's task needs is there.
    let mut free = vec![0.0_f64; groups];
    let mut there = [vec![0.0_f64; stages * micro_batches], vec![0.0_f64; stages * micro_batches]];
    let mut last = 0.0_f64;
    for (place, task) in verified.order() {
        let stage = schedule.stage(place.group, task.chunk);
        let times = &durations.stages[stage];
        let at = |stage: usize| stage * micro_batches + task.micro_batch;
        let (ready, time) = match task.work {
            Work::Forward => (there[0][at(stage)], times.forward),
            Work::Backward if schedule.splits_backward => (there[1][at(stage)], times.backward),
            Work::Backward => (there[1][at(stage)], times.backward + times.weight),
            Work::Weight => (0.0, times.weight),
        };
        let start = free[place.group].max(ready);
        let end = start + time;
        tell(Event::Worked(place, Span { start, end }));
        free[place.group] = end;
        last = last.max(end);
        let (there, sends, next) = match task.work {
            Work::Forward => (&mut there[0], &mut channels.forward[stage], Some(stage + 1)),
            Work::Backward => (&mut there[1], &mut channels.backward[stage], stage.checked_sub(1)),
            Work::Weight => continue,
        };
        if let Some(next) = next.filter(|&next| next < stages) {
            there[at(next)] = there[at(next)].max(end);
        }
        for channel in sends {
            let start = match durations.overlap {
                Overlap::Blocking => free[place.group],
                Overlap::Overlapped => end.max(channel.free),
            };
            let span = Span { start, end: start + channel.time };
            channel.free = span.end;
            there[at(channel.to)] = there[at(channel.to)].max(span.end);
            if durations.overlap == Overlap::Blocking {
                free[place.group] = span.end;
            }
            let (from, to) = (stage, channel.to);
            tell(Event::Sent(Message { crossing: channel.crossing, of: *task, from, to, span }));
        }
    }
    Ok(last)
}
