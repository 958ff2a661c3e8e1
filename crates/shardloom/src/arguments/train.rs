//! `train`: what the command line says.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use driver::training::schedule::{Schedule, Shape};
use driver::training::{Job, Width};
use launch::arguments::{ClusterArguments, DeviceArguments};

/// Examples, and what files have to hold, for `--help`.
pub(super) const HELP: &str = "\
Examples:
  shardloom plan model.onnx --mode train --loss loss --optimizer adamw --machine cpu-4x -o plan.json
  shardloom train plan.json --data batches.npz --steps 100 --lr 3e-4
  shardloom train plan.json --data text.bin --tokens u8 --steps 1000 --lr 3e-4 --schedule cosine \\
      --warmup 50 --checkpoint checkpoints --every 100 --keep 3 --log steps.jsonl --export trained.onnx
  shardloom train plan.json --data text.bin --tokens u8 --steps 1000 --lr 3e-4 --schedule cosine \\
      --warmup 50 --resume checkpoints --checkpoint checkpoints --every 100 --keep 3

Data: a .npz or .safetensors file has an array for each input of the plan, under the input's name,
whose first dimension is the examples. Any other file is raw token numbers, little-endian, cut into
windows of the plan's sequence: the input of tokens takes a window; the labels of a plan made with
`--loss cross-entropy:..` take the same window one token later, and an input `labels` of a model
that has its own loss takes the window itself, for such models compare each token with the next;
inputs whose names contain `mask` are ones, those with `position` count from 0.
A step takes as many examples as all its micro-batches have. Each epoch has another order, which
depends on the seed alone; examples that do not fill an epoch's last step are left out of it.

Learning rate of step s, from 1, of N steps, with a warm-up of W steps, X = --lr, M = --min-lr:
  s <= W      X s / W
  constant    X
  linear      X + (M - X) t            t = (s - W) / (N - W)
  cosine      M + (X - M) (1 + cos(pi t)) / 2

A loss that is not finite ends the run: nothing is written over, and the message says where it
came from. A step none of whose labels counts has no loss: it changes nothing, and is said.";

// What `--help` calls groups of arguments.
const DATA: &str = "Data";
const RATE: &str = "Learning rate";
const CHECKPOINTS: &str = "Checkpoints";
const OUTPUTS: &str = "Results";

/// `train`.
#[derive(Args, Clone, Debug)]
pub struct TrainArguments {
    /// The plan, one of a training step: `shardloom plan --mode train`
    pub plan: PathBuf,
    /// Training data: arrays (.npz, .safetensors), or tokens (any other name)
    #[arg(help_heading = DATA, long, value_name = "FILE")]
    pub data: PathBuf,
    /// Integer type of a file of tokens
    #[arg(help_heading = DATA, long, value_enum, default_value_t = WidthName::U16, value_name = "TYPE")]
    pub tokens: WidthName,
    /// Number of the last step, for a resumed run too
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "N")]
    pub steps: u64,
    /// The learning rate after the warm-up
    #[arg(help_heading = RATE, long, value_parser = rate, value_name = "X")]
    pub lr: f64,
    /// Shape of the learning rate after the warm-up
    #[arg(help_heading = RATE, long, value_enum, default_value_t = ShapeName::Constant)]
    pub schedule: ShapeName,
    /// Number of warm-up steps, in which the learning rate rises from 0
    #[arg(help_heading = RATE, long, default_value_t = 0, value_name = "N")]
    pub warmup: u64,
    /// Learning rate of the last step, if it decays
    #[arg(help_heading = RATE, long, value_parser = rate, default_value_t = 0.0, value_name = "X")]
    pub min_lr: f64,
    /// Seed of the order of examples and of dropout; the default is 0, or the checkpoint's
    #[arg(help_heading = DATA, long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write checkpoints into this folder
    #[arg(help_heading = CHECKPOINTS, long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Number of steps between checkpoints; there is one after the last step too
    #[arg(
        help_heading = CHECKPOINTS,
        long,
        value_parser = clap::value_parser!(u64).range(1..),
        default_value_t = 100,
        requires = "checkpoint",
        value_name = "N"
    )]
    pub every: u64,
    /// Number of newest checkpoints to keep; the default keeps all
    #[arg(
        help_heading = CHECKPOINTS,
        long,
        value_parser = clap::value_parser!(u64).range(1..),
        requires = "checkpoint",
        value_name = "N"
    )]
    pub keep: Option<u64>,
    /// Resume from the newest checkpoint of this folder, or from this checkpoint (DIR/step-000050)
    #[arg(help_heading = CHECKPOINTS, long, group = "goes_on", value_name = "DIR")]
    pub resume: Option<PathBuf>,
    /// Resume from the newest checkpoint of `--checkpoint` if there is one, else start afresh: for launchers
    /// that restart
    #[arg(
        help_heading = CHECKPOINTS,
        long = "continue",
        requires = "checkpoint",
        group = "goes_on"
    )]
    pub go_on: bool,
    /// Resume even if the checkpoint has another loss, decay, clipping, batch or data
    #[arg(help_heading = CHECKPOINTS, long, requires = "goes_on")]
    pub accept_changes: bool,
    /// File to write the trained parameters to, under their names in the model
    #[arg(help_heading = OUTPUTS, long, default_value = "weights.safetensors", value_name = "FILE")]
    pub weights: PathBuf,
    /// Write the model with its new weights too
    #[arg(help_heading = OUTPUTS, long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    /// Write a line of JSON for each step
    #[arg(help_heading = OUTPUTS, long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Path of the plan's model, if it has moved since the plan was made
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Device that ranks run on.
    #[command(flatten)]
    pub on: DeviceArguments,
    /// What holds where each rank is a process.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// How wide the numbers in a file of tokens are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WidthName {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
}

impl TrainArguments {
    /// What is asked.
    pub(crate) fn job(&self) -> Job {
        let schedule = Schedule {
            shape: self.schedule.shape(),
            peak: self.lr,
            least: self.min_lr,
            warmup: self.warmup,
            last: self.steps,
        };
        Job {
            plan: self.plan.clone(),
            model: self.model.clone(),
            data: self.data.clone(),
            tokens: self.tokens.width(),
            schedule,
            seed: self.seed,
            checkpoint: self.checkpoint.clone(),
            every: self.every,
            keep: self.keep,
            resume: self.resume.clone(),
            go_on: self.go_on,
            accept_changes: self.accept_changes,
            weights: self.weights.clone(),
            export: self.export.clone(),
            log: self.log.clone(),
        }
    }
}

impl WidthName {
    fn width(self) -> Width {
        match self {
            Self::U8 => Width::U8,
            Self::U16 => Width::U16,
            Self::U32 => Width::U32,
        }
    }
}

/// How the learning rate changes after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShapeName {
    /// Constant.
    Constant,
    /// Linear decay.
    Linear,
    /// Cosine decay.
    Cosine,
}

impl ShapeName {
    fn shape(self) -> Shape {
        match self {
            Self::Constant => Shape::Constant,
            Self::Linear => Shape::Linear,
            Self::Cosine => Shape::Cosine,
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| "expected a number such as `3e-4`, not negative".to_owned())
}
