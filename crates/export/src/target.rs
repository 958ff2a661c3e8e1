//! What runs plans besides this program, and what of a strategy it runs.

use std::fmt;
use std::str::FromStr;

use schedule::Kind;
use serde_json::{Value, json};

use crate::error::ExportError;
use crate::file::File;
use crate::job::Job;
use crate::model::Model;
use crate::range::{BY_STAGE, Range, ServingRange};
use crate::serving::{self, Serving};
use crate::strategy::{Read, Strategy, read};
use crate::{deepspeed, dtensor, hf, jax, megatron, sglang, torchtitan, trtllm, vllm};

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
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
    /// Hugging Face's transformers.
    Hf,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 9] = [
        Self::Dtensor,
        Self::Jax,
        Self::Torchtitan,
        Self::Megatron,
        Self::Deepspeed,
        Self::Vllm,
        Self::Sglang,
        Self::Trtllm,
        Self::Hf,
    ];

    /// Its name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dtensor => "dtensor",
            Self::Jax => "jax",
            Self::Torchtitan => "torchtitan",
            Self::Megatron => "megatron",
            Self::Deepspeed => "deepspeed",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
            Self::Hf => "hf",
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
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Trtllm => "TensorRT-LLM",
            Self::Hf => "transformers",
        }
    }
}

impl Target {
    /// What it trains of a plan; nothing if it does not train, or runs every plan without time steps.
    pub fn range(self) -> Option<Range> {
        let both = vec![Kind::OneForwardOneBackward, Kind::Interleaved];
        match self {
            Self::Dtensor | Self::Jax | Self::Vllm | Self::Sglang | Self::Trtllm | Self::Hf => None,
            Self::Torchtitan => {
                // Parameters that are split at all are split between steps too.
                let stages: &[u8] = &[0, 2, 3];
                Some(Range { zero: [stages; 2], sequence: true, schedules: Kind::ALL.to_vec() })
            }
            Self::Megatron => Some(Range { zero: BY_STAGE, sequence: true, schedules: both }),
            Self::Deepspeed => {
                let schedules = vec![Kind::OneForwardOneBackward];
                Some(Range { zero: BY_STAGE, sequence: false, schedules })
            }
        }
    }

    /// What it serves; nothing if it does not.
    pub fn serves(self) -> Option<ServingRange> {
        match self {
            Self::Dtensor | Self::Jax | Self::Torchtitan | Self::Megatron | Self::Deepspeed => None,
            Self::Vllm | Self::Sglang => Some(ServingRange { data: true, mixed: true }),
            Self::Trtllm => Some(ServingRange { data: true, mixed: false }),
            Self::Hf => Some(ServingRange { data: false, mixed: false }),
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

/// What a target runs of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Runs {
    /// Each parameter as the plan has it.
    Parameters,
    /// Training with one strategy.
    Strategy(Strategy),
    /// Inference with one.
    Serving(Serving),
}

impl Runs {
    /// In a line.
    pub fn in_words(&self) -> String {
        match self {
            Self::Parameters => "each parameter as the plan has it".to_owned(),
            Self::Strategy(strategy) => strategy.in_words(),
            Self::Serving(serving) => serving.in_words(),
        }
    }
}

/// A plan in the words of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Exported {
    /// Of which.
    pub target: Target,
    /// What the target runs.
    pub runs: Runs,
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
            "strategy": match &self.runs {
                Runs::Parameters => Value::Null,
                Runs::Strategy(strategy) => strategy.json(),
                Runs::Serving(serving) => serving.json(),
            },
            "lost": self.lost,
            "files": self.files.iter().map(|file| file.name).collect::<Vec<_>>(),
        })
    }
}

/// A job in the words of a target.
pub fn export(job: &Job<'_>, target: Target) -> Result<Exported, ExportError> {
    let whole = |files: fn(&Job<'_>) -> (Vec<File>, Vec<String>)| {
        if job.generation().is_some() {
            return Err(ExportError::Generation(target.title()));
        }
        let (files, lost) = files(job);
        Ok(Exported { target, runs: Runs::Parameters, lost, files })
    };
    let model = Model::of(job);
    let limited = |limited: fn(Strategy, &Range, &mut Vec<String>) -> Strategy,
                   files: &dyn Fn(&Strategy, &mut Vec<String>) -> Vec<File>| {
        let Read { strategy, mut lost } = read(job, &model, target.title())?;
        let range = target.range().ok_or(ExportError::Inference(target.title()))?;
        let strategy = limited(strategy, &range, &mut lost);
        let files = files(&strategy, &mut lost);
        Ok(Exported { target, runs: Runs::Strategy(strategy), lost, files })
    };
    let served = |limited: &dyn Fn(Serving, &mut Vec<String>) -> Serving,
                  files: &dyn Fn(&Serving, &mut Vec<String>) -> Vec<File>| {
        let (serving, mut lost) = serving::read(job, &model, target.title())?;
        let serving = limited(serving, &mut lost);
        let files = files(&serving, &mut lost);
        Ok(Exported { target, runs: Runs::Serving(serving), lost, files })
    };
    match target {
        Target::Dtensor => whole(dtensor::files),
        Target::Jax => whole(jax::files),
        Target::Vllm => served(&|it, _| it, &vllm::files),
        Target::Sglang => {
            served(&|it, _| sglang::limited(it, &model), &|it, lost| sglang::files(it, &model, lost))
        }
        Target::Trtllm => served(&|it, lost| trtllm::limited(it, &model, lost), &trtllm::files),
        Target::Hf => served(&|it, lost| hf::limited(it, &model, lost), &|it, _| hf::files(it, job)),
        Target::Megatron => limited(megatron::limited, &|it, lost| megatron::files(it, &model, lost)),
        Target::Torchtitan => limited(torchtitan::limited, &|it, _| torchtitan::files(it, &model, job)),
        Target::Deepspeed => limited(deepspeed::limited, &|it, _| deepspeed::files(it, job)),
    }
}
