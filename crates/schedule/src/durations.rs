//! How long tasks and messages take.

use std::fmt;

/// How long everything takes, all in one unit of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Durations {
    /// For each stage, its tasks.
    pub stages: Vec<StageTimes>,
    /// What stages send to others. Between two neighbours that are not named here, and between
    /// stages of one group, messages take no time.
    pub crossings: Vec<Crossing>,
    /// What a group does while it sends.
    pub overlap: Overlap,
}

/// How long a stage works on one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageTimes {
    /// The forward task.
    pub forward: f64,
    /// Gradients of what the stage took.
    pub backward: f64,
    /// Gradients of weights: a task of its own, or the end of the backward task.
    pub weight: f64,
}

/// What a stage sends to a later one for each micro-batch, and the gradient that comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// The earlier stage.
    pub from: usize,
    /// The later one: the next, or behind it.
    pub to: usize,
    /// How long the value takes to arrive.
    pub forward: f64,
    /// How long its gradient does.
    pub backward: f64,
}

/// What a group does while it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// Nothing: its next task starts when all that a task sends has arrived, one after another.
    Blocking,
    /// Its next task. Each crossing has a channel in each direction, on which one message follows
    /// another.
    Overlapped,
}

/// Why durations are not those of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// Of another number of stages: found, expected.
    Stages(usize, usize),
    /// A crossing that does not lead to a later stage of so many: from, to, stages.
    Crossing(usize, usize, usize),
    /// A time below 0, or none that is a number.
    Time(String),
}

impl StageTimes {
    /// How long a stage works on a micro-batch in all.
    pub fn total(&self) -> f64 {
        self.forward + self.backward + self.weight
    }
}

impl Durations {
    /// Stages that are alike, and messages between neighbours that are.
    pub fn equal(stages: usize, times: StageTimes, message: f64, overlap: Overlap) -> Self {
        let crossing = |to: usize| Crossing { from: to - 1, to, forward: message, backward: message };
        Self { stages: vec![times; stages], crossings: (1..stages).map(crossing).collect(), overlap }
    }

    /// Whether these are durations of so many stages.
    pub fn check(&self, stages: usize) -> Result<(), DurationError> {
        if self.stages.len() != stages {
            return Err(DurationError::Stages(self.stages.len(), stages));
        }
        let strange = self.crossings.iter().find(|it| it.from >= it.to || it.to >= stages);
        if let Some(Crossing { from, to, .. }) = strange {
            return Err(DurationError::Crossing(*from, *to, stages));
        }
        let of_stages = self.stages.iter().flat_map(|it| [it.forward, it.backward, it.weight]);
        let of_messages = self.crossings.iter().flat_map(|it| [it.forward, it.backward]);
        match of_stages.chain(of_messages).find(|time| !(time.is_finite() && *time >= 0.0)) {
            Some(time) => Err(DurationError::Time(time.to_string())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stages(found, expected) => write!(f, "times of {found} stages, expected {expected}"),
            Self::Crossing(from, to, stages) => {
                write!(
                    f,
                    "a crossing from stage {from} to {to}, expected it to lead to a later one of {stages}"
                )
            }
            Self::Time(found) => write!(f, "a time of {found}, expected a number from 0"),
        }
    }
}

impl std::error::Error for DurationError {}
