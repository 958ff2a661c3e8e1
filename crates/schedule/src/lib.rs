//! Schedules of pipelines: in which order each group of devices works on which stage of the model
//! for which micro-batch.
//!
//! A model is cut into stages, one after another. Each *group* of devices has as many of them as
//! each other, its *chunks*: chunk `c` of group `g` of `G` is stage `c G + g`, so that what follows a
//! stage is on the next group, and after the last on the first. A step works on `m` micro-batches,
//! and every stage on each of them: forward, backward and, where the backward part is in two,
//! gradients of weights.
//!
//! What waits for what does not depend on the schedule:
//!
//! ```text
//! F(s, i) for F(s − 1, i)        B(s, i) for B(s + 1, i) and F(s, i)        W(s, i) for B(s, i)
//! ```
//!
//! A schedule is that and an order for each group. [`verify()`] says whether both can be had
//! together; everything else is asked of what it returns.

mod kind; // the schedules that have names
mod generate; // how those come about
mod text; // parse and print
mod verify; // the rules a schedule obeys
mod live; // what is held at once
mod durations; // how long tasks and messages take
mod timeline; // when each task and message starts and ends
mod closed; // how long it takes where stages are equal

use std::fmt;

pub use closed::{bubble, closed_form, held, held_apart, waiting};
pub use durations::{Crossing, DurationError, Durations, Overlap, StageTimes};
pub use kind::{Kind, KindError, MAX_TASKS};
pub use live::{Live, between, live};
pub use timeline::{Message, Span, Timeline, makespan, timeline};
pub use verify::{Fault, Faults, Place, Verified, verify};

/// The order of work of each group.
///
/// Invariant: none. What [`verify()`] returns is a schedule that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// How many stages each group has.
    pub chunks: usize,
    /// Whether gradients of weights are tasks of their own. Where they are not, they are part of
    /// the backward tasks.
    pub splits_backward: bool,
    /// For each group what it does, in this order.
    pub groups: Vec<Vec<Task>>,
}

/// What a group does at once: one stage's work on one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// Which part of the work.
    pub work: Work,
    /// Which of the group's stages.
    pub chunk: usize,
    /// Which micro-batch.
    pub micro_batch: usize,
}

/// A part of a stage's work on a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// The stage's results.
    Forward,
    /// Gradients of what the stage took, which the stage before waits for; where the backward part
    /// is not in two, also gradients of its weights.
    Backward,
    /// Gradients of weights.
    Weight,
}

impl Work {
    /// Every part, in the order in which a stage does them.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Backward, Self::Weight];

    /// The letter of the text form.
    pub fn letter(self) -> char {
        match self {
            Self::Forward => 'F',
            Self::Backward => 'B',
            Self::Weight => 'W',
        }
    }
}

impl Schedule {
    /// How many stages there are.
    pub fn stages(&self) -> usize {
        self.groups.len() * self.chunks
    }

    /// The stage that is this chunk of this group.
    pub fn stage(&self, group: usize, chunk: usize) -> usize {
        chunk * self.groups.len() + group
    }

    /// The group and the chunk that are this stage.
    ///
    /// # Panics
    /// If there are no groups.
    pub fn home(&self, stage: usize) -> (usize, usize) {
        (stage % self.groups.len(), stage / self.groups.len())
    }

    /// How many micro-batches the tasks name: one more than the greatest.
    pub fn micro_batches(&self) -> usize {
        self.groups.iter().flatten().map(|task| task.micro_batch + 1).max().unwrap_or(0)
    }

    /// The parts of the work that are tasks.
    pub fn works(&self) -> &'static [Work] {
        if self.splits_backward { &Work::ALL } else { &Work::ALL[..2] }
    }

    /// The last part of the backward work: when it is done, nothing of the forward part is needed
    /// any more.
    pub fn last_work(&self) -> Work {
        if self.splits_backward { Work::Weight } else { Work::Backward }
    }

    /// The same with gradients of weights as tasks of their own, each right after its backward task:
    /// what the stage before waits for is sent earlier.
    ///
    /// Source: "backward weight delaying" in Zhuang et al., "On Optimizing the Communication of
    /// Model Parallelism", MLSys 2023, section 4.
    #[must_use]
    pub fn with_weights_apart(&self) -> Self {
        if self.splits_backward {
            return self.clone();
        }
        let apart = |task: &Task| {
            let weight = (task.work == Work::Backward).then_some(Task { work: Work::Weight, ..*task });
            [Some(*task), weight].into_iter().flatten()
        };
        let groups = self.groups.iter().map(|tasks| tasks.iter().flat_map(apart).collect()).collect();
        Self { chunks: self.chunks, splits_backward: true, groups }
    }
}

impl fmt::Display for Task {
    /// The text form with the chunk: `F3.0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}.{}", self.work.letter(), self.micro_batch, self.chunk)
    }
}

#[cfg(test)]
mod tests;
