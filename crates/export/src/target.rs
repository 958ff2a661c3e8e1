//! What runs plans besides this program, and what of a strategy it runs.

use std::fmt;
use std::str::FromStr;

use schedule::Kind;
use serde_json::{Value, json};

use crate::error::ExportError;
use crate::file::File;
use crate::job::Job;
use crate::model::Model;
use crate::strategy::{Read, Strategy, read};
use crate::{deepspeed, dtensor, jax, megatron, torchtitan};

/// Another runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// PyTorch's `torch.distributed.tensor`.
    Dtensor,
    /// JAX.
    Jax,
    /// torchtitan.
    Torchtitan,
    /// Megatron-LM.
    Megatron,
    /// DeepSpeed.
    Deepspeed,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 5] = [Self::Dtensor, Self::Jax, Self::Torchtitan, Self::Megatron, Self::Deepspeed];

    /// Its name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dtensor => "dtensor",
            Self::Jax => "jax",
            Self::Torchtitan => "torchtitan",
            Self::Megatron => "megatron",
            Self::Deepspeed => "deepspeed",
        }
    }

    /// Its name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::Dtensor => "DTensor",
            Self::Jax => "JAX",
            Self::Torchtitan => "torchtitan",
            Self::Megatron => "Megatron-LM",
            Self::Deepspeed => "DeepSpeed",
        }
    }
}

/// What a target runs of what there is to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The highest stage of ZeRO, without and with a pipeline.
    pub zero: [u8; 2],
    /// Whether sequences are split between products that use parameters split.
    pub sequence: bool,
    /// Its schedules.
    pub schedules: Vec<Kind>,
}

impl Target {
    /// What it runs; nothing if that is every plan without time steps.
    pub fn range(self) -> Option<Range> {
        let both = vec![Kind::OneForwardOneBackward, Kind::Interleaved];
        match self {
            Self::Dtensor | Self::Jax => None,
            Self::Torchtitan => Some(Range { zero: [3, 3], sequence: true, schedules: Kind::ALL.to_vec() }),
            Self::Megatron => Some(Range { zero: [3, 1], sequence: true, schedules: both }),
            Self::Deepspeed => {
                let schedules = vec![Kind::OneForwardOneBackward];
                Some(Range { zero: [3, 1], sequence: false, schedules })
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = Self::ALL.map(Self::name).to_vec();
        let found = Self::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| format!("`{text}` is no target, expected one of {}", names.join(", ")))
    }
}

/// A plan in the words of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// Of which.
    pub target: Target,
    /// What the target runs; nothing where it is told of each parameter.
    pub strategy: Option<Strategy>,
    /// What of the plan it does not run, in words.
    pub lost: Vec<String>,
    /// The files.
    pub files: Vec<File>,
}

impl Exported {
    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "target": self.target.name(),
            "strategy": self.strategy.as_ref().map(Strategy::json),
            "lost": self.lost,
            "files": self.files.iter().map(|file| file.name).collect::<Vec<_>>(),
        })
    }
}

/// A job in the words of a target.
pub fn export(job: &Job<'_>, target: Target) -> Result<Exported, ExportError> {
    let whole = |(files, lost): (Vec<File>, Vec<String>)| Exported { target, strategy: None, lost, files };
    let model = Model::of(job);
    let limited = |limited: fn(Strategy, &mut Vec<String>) -> Strategy,
                   files: &dyn Fn(&Strategy, &mut Vec<String>) -> Vec<File>| {
        let Read { strategy, mut lost } = read(job, &model, target.title())?;
        let strategy = limited(strategy, &mut lost);
        let files = files(&strategy, &mut lost);
        Ok(Exported { target, strategy: Some(strategy), lost, files })
    };
    match target {
        Target::Dtensor => Ok(whole(dtensor::files(job))),
        Target::Jax => Ok(whole(jax::files(job))),
        Target::Megatron => limited(megatron::limited, &|it, lost| megatron::files(it, &model, lost)),
        Target::Torchtitan => limited(torchtitan::limited, &|it, _| torchtitan::files(it, &model, job)),
        Target::Deepspeed => limited(deepspeed::limited, &|it, _| deepspeed::files(it, job)),
    }
}
