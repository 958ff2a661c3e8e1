//! What is asked of a run.

use std::path::PathBuf;

use files::checkpoint;

use super::schedule::Schedule;

/// What is asked of a run.
#[derive(Clone, Debug)]
pub struct Job {
    /// The plan, one of a training step.
    pub plan: PathBuf,
    /// Where the model of the plan is, if not where the plan says.
    pub model: Option<PathBuf>,
    /// What is trained on: arrays, or tokens.
    pub data: PathBuf,
    /// How wide the numbers in a file of tokens are.
    pub tokens: Width,
    /// The learning rate of each step, up to the last one.
    pub schedule: Schedule,
    /// What the order of examples and dropout start from; 0, or that of the checkpoint.
    pub seed: Option<u64>,
    /// The folder into which checkpoints are written.
    pub checkpoint: Option<PathBuf>,
    /// Steps from one checkpoint to the next.
    pub every: u64,
    /// How many checkpoints are kept: the newest; without it, all.
    pub keep: Option<u64>,
    /// Go on from the newest checkpoint of this folder, or from this checkpoint.
    pub resume: Option<PathBuf>,
    /// Go on from the newest checkpoint of the folder into which they are written, if there is one.
    pub go_on: bool,
    /// Go on though the checkpoint is of a run with other settings.
    pub accept_changes: bool,
    /// Where the trained parameters are written.
    pub weights: PathBuf,
    /// Where the model with its new weights is written.
    pub export: Option<PathBuf>,
    /// Where a line of JSON is written for each step.
    pub log: Option<PathBuf>,
}

/// How wide the numbers in a file of tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
}

impl Job {
    /// The number of the last step.
    pub fn last(&self) -> u64 {
        self.schedule.last
    }

    /// The folder that has the checkpoint to go on from, if there is one to go on from.
    pub(super) fn resumes(&self) -> Option<&PathBuf> {
        let newest = |it: &&PathBuf| self.go_on && checkpoint::has_some(it);
        self.resume.as_ref().or_else(|| self.checkpoint.as_ref().filter(newest))
    }
}

impl Width {
    /// How many bytes a number has.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
        }
    }
}
