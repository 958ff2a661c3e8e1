//! What runs plans besides this program, and what of a strategy it runs.

use std::fmt;
use std::str::FromStr;

use plan::{Masters, Scaling};
use schedule::Kind;
use serde_json::{Value, json};

use crate::dynamo::Servers;
use crate::error::ExportError;
use crate::file::File;
use crate::job::Job;
use crate::model::Model;
use crate::range::{BY_STAGE, Cuts, Range, ServingRange};
use crate::serving::{self, Serving};
use crate::strategy::{Read, Strategy, read};
use crate::{
    autoparallel, bridge, deepspeed, dtensor, dynamo, hf, jax, megatron, sglang, shardy, torchtitan, trtllm,
    vllm,
};

/// Another runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// PyTorch's `torch.distributed.tensor`.
    Dtensor,
    /// AutoParallel.
    Autoparallel,
    /// JAX.
    Jax,
    /// Shardy, which partitions for XLA.
    Shardy,
    /// torchtitan.
    Torchtitan,
    /// Megatron-LM.
    Megatron,
    /// Megatron-Bridge, which runs Megatron-LM.
    Bridge,
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
    /// Dynamo, with servers of this kind.
    Dynamo(Engine),
}

/// What serves in a deployment of Dynamo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM.
    Trtllm,
}

impl Target {
    /// Every target.
    pub const ALL: [Self; 15] = [
        Self::Dtensor,
        Self::Autoparallel,
        Self::Jax,
        Self::Shardy,
        Self::Torchtitan,
        Self::Megatron,
        Self::Bridge,
        Self::Deepspeed,
        Self::Vllm,
        Self::Sglang,
        Self::Trtllm,
        Self::Hf,
        Self::Dynamo(Engine::Vllm),
        Self::Dynamo(Engine::Sglang),
        Self::Dynamo(Engine::Trtllm),
    ];

    /// Its name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dtensor => "dtensor",
            Self::Autoparallel => "autoparallel",
            Self::Jax => "jax",
            Self::Shardy => "shardy",
            Self::Torchtitan => "torchtitan",
            Self::Megatron => "megatron",
            Self::Bridge => "bridge",
            Self::Deepspeed => "deepspeed",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
            Self::Hf => "hf",
            Self::Dynamo(Engine::Vllm) => "dynamo",
            Self::Dynamo(Engine::Sglang) => "dynamo-sglang",
            Self::Dynamo(Engine::Trtllm) => "dynamo-trtllm",
        }
    }

    /// Its name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::Dtensor => "DTensor",
            Self::Autoparallel => "AutoParallel",
            Self::Jax => "JAX",
            Self::Shardy => "Shardy",
            Self::Torchtitan => "torchtitan",
            Self::Megatron => "Megatron-LM",
            Self::Bridge => "Megatron-Bridge",
            Self::Deepspeed => "DeepSpeed",
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Trtllm => "TensorRT-LLM",
            Self::Hf => "transformers",
            Self::Dynamo(Engine::Vllm) => "Dynamo",
            Self::Dynamo(Engine::Sglang) => "Dynamo with SGLang",
            Self::Dynamo(Engine::Trtllm) => "Dynamo with TensorRT-LLM",
        }
    }
}

impl Target {
    /// Whether it trains no layers that predict tokens after the next, or not with a pipeline, as torchtitan.
    pub fn trains_next_tokens_alone(self) -> bool {
        self.range().is_some() && !self.is_of_megatron()
    }

    /// Where it has parameters in f32, if a model computes with less, by the stage of ZeRO: PyTorch's FSDP and autocast
    /// convert what they use (`MixedPrecisionPolicy.param_dtype`), Megatron-LM and DeepSpeed keep what is converted. So
    /// does FSDP where what it has gathered stays (`reshard_after_forward=False`, ZeRO-2): a device has its part of the
    /// parameters in f32, and all of them in what the model computes with.
    pub fn masters(self, zero: u8) -> Masters {
        match self {
            Self::Torchtitan | Self::Hf if matches!(zero, 1 | 2) => Masters::Beside,
            Self::Torchtitan | Self::Hf => Masters::Alone,
            Self::Dtensor
            | Self::Autoparallel
            | Self::Jax
            | Self::Shardy
            | Self::Megatron
            | Self::Bridge
            | Self::Deepspeed
            | Self::Vllm
            | Self::Sglang
            | Self::Trtllm
            | Self::Dynamo(_) => Masters::Beside,
        }
    }

    /// Whether Megatron-LM runs it.
    fn is_of_megatron(self) -> bool {
        matches!(self, Self::Megatron | Self::Bridge)
    }

    /// What it trains of a plan; nothing if it does not train, or runs every plan without time steps.
    pub fn range(self) -> Option<Range> {
        // Parameters that FSDP splits at all are split between steps too.
        let fsdp: &[u8] = &[0, 2, 3];
        match self {
            Self::Dtensor
            | Self::Autoparallel
            | Self::Jax
            | Self::Shardy
            | Self::Vllm
            | Self::Sglang
            | Self::Trtllm
            | Self::Dynamo(_) => None,
            Self::Torchtitan => {
                let schedules = Kind::ALL.to_vec();
                let (zero, cuts) = ([fsdp; 2], Cuts::HalvesOfAll);
                // Where it says so differs from version to version, and it needs a compiled model.
                Some(Range { zero, sequence: true, overlaps_tensor: false, schedules, cuts })
            }
            Self::Hf => {
                let zero = [fsdp; 2];
                let (schedules, cuts) = (vec![], Cuts::Parts);
                Some(Range { zero, sequence: false, overlaps_tensor: false, schedules, cuts })
            }
            Self::Megatron | Self::Bridge => {
                let schedules = vec![Kind::OneForwardOneBackward, Kind::Interleaved];
                let (zero, cuts) = (BY_STAGE, Cuts::Halves);
                Some(Range { zero, sequence: true, overlaps_tensor: true, schedules, cuts })
            }
            Self::Deepspeed => {
                let schedules = vec![Kind::OneForwardOneBackward];
                let (zero, cuts) = (BY_STAGE, Cuts::Parts);
                Some(Range { zero, sequence: false, overlaps_tensor: false, schedules, cuts })
            }
        }
    }

    /// What it serves; nothing if it does not.
    pub fn serves(self) -> Option<ServingRange> {
        match self {
            Self::Dtensor
            | Self::Autoparallel
            | Self::Jax
            | Self::Shardy
            | Self::Torchtitan
            | Self::Megatron
            | Self::Bridge
            | Self::Deepspeed => None,
            Self::Vllm | Self::Sglang | Self::Dynamo(Engine::Vllm | Engine::Sglang) => {
                Some(ServingRange { data: true, mixed: true, same_keys: true })
            }
            Self::Trtllm | Self::Dynamo(Engine::Trtllm) => {
                Some(ServingRange { data: true, mixed: false, same_keys: true })
            }
            // Source: transformers 5.24, `modeling_*.py`: `k_proj(..).view(.., -1, head_dim)`.
            Self::Hf => Some(ServingRange { data: false, mixed: false, same_keys: false }),
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
        let near = || planner_ir::did_you_mean(text, names.iter().copied());
        found.ok_or_else(|| format!("`{text}` is no target{}, expected one of {}", near(), names.join(", ")))
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

/// What is said of narrow products where the files of a target do not say that they are.
///
/// Source: torchtitan, `torchtitan/components/quantization/float8.md` and `mxfp8.md`.
fn narrow(target: Target, scaling: Scaling) -> Option<String> {
    let how = match (target, scaling) {
        _ if target.is_of_megatron() => return None,
        (Target::Torchtitan, Scaling::Whole) => {
            "say so where the model is registered: `Float8LinearConverter.Config(recipe_name=\"tensorwise\", \
             filter_fqns=[\"lm_head\"], model_compile_enabled=True)` among the converters of `model_registry`"
        }
        (Target::Torchtitan, Scaling::Delayed) => {
            "it has no scales of steps before, and would take those of the step: plan with `--precision fp8`"
        }
        (Target::Torchtitan, Scaling::Blocks) => {
            "say so where the model is registered: `MXFP8LinearConverter.Config(model_compile_enabled=True)` among \
             the converters of `model_registry`, with the names of the layers in `fqns`"
        }
        (Target::Torchtitan, Scaling::Nvfp4) => {
            "it trains with none of 4 bits, and they are of bf16: plan with `--precision mxfp8`"
        }
        _ => "the files do not say so, and they are of bf16",
    };
    let bits = if scaling == Scaling::Nvfp4 { 4 } else { 8 };
    Some(format!("products of linear layers are of {bits}-bit numbers: {how}"))
}

/// Has parameters in f32 where a target has them; what is said of that if it is not as planned.
fn keeps(target: Target, strategy: &mut Strategy) -> Option<String> {
    let (planned, there) = (strategy.masters?, target.masters(strategy.zero));
    if planned == there || !strategy.element.is_half() {
        return None;
    }
    strategy.masters = Some(there);
    let (title, element) = (target.title(), strategy.element);
    Some(match there {
        Masters::Beside => {
            format!("parameters are in f32 alone: {title} keeps them in {element}, too (`--masters beside`)")
        }
        Masters::Alone => format!(
            "parameters are kept in {element} beside f32: {title} keeps them in f32 alone, and converts what it uses \
             (`--masters alone`)"
        ),
    })
}

/// What is said of sequences that do not fall into the parts that a target cuts them into.
fn cut(target: Target, range: &Range, strategy: &Strategy, model: &Model) -> Option<String> {
    let tokens = model.sequence?;
    let multiple = range.cuts.multiple(strategy.tensor, strategy.context);
    (!tokens.is_multiple_of(multiple)).then(|| {
        format!(
            "sequences of {tokens} tokens: {} refuses what is no multiple of {multiple} with these degrees",
            target.title()
        )
    })
}

/// What is said of a whole job, and what is lost of it.
type Whole = Result<(Vec<File>, Vec<String>), ExportError>;

/// As much of a strategy as a target runs; what is not is added to what is lost.
type Limited<'a> = dyn Fn(Strategy, &Range, &mut Vec<String>) -> Result<Strategy, ExportError> + 'a;

/// A job in the words of a target.
pub fn export(job: &Job<'_>, target: Target) -> Result<Exported, ExportError> {
    let whole = |files: fn(&Job<'_>) -> Whole| {
        if job.generation().is_some() {
            return Err(ExportError::Generation(target.title()));
        }
        let (files, mut lost) = files(job)?;
        lost.extend(job.recipe().and_then(|it| it.precision.scaling()).and_then(|it| narrow(target, it)));
        Ok(Exported { target, runs: Runs::Parameters, lost, files })
    };
    let model = Model::of(job);
    let limited = |limited: &Limited<'_>, files: &dyn Fn(&Strategy, &mut Vec<String>) -> Vec<File>| {
        let Read { strategy, mut lost } = read(job, &model, target.title())?;
        let range = target.range().ok_or(ExportError::Inference(target.title()))?;
        let strategy = match target {
            Target::Megatron | Target::Bridge | Target::Torchtitan => strategy,
            _ => strategy.without_further(target.title(), &mut lost),
        };
        let mut strategy = limited(strategy, &range, &mut lost)?;
        lost.extend(keeps(target, &mut strategy));
        lost.extend(cut(target, &range, &strategy, &model));
        lost.extend(strategy.scaling.and_then(|it| narrow(target, it)));
        if strategy.scaling.is_some() && model.experts.is_some() && target.is_of_megatron() {
            lost.push("experts are in bf16: they would be narrow there, as other products".to_owned());
        }
        let narrow = match target {
            Target::Megatron | Target::Bridge => true,
            Target::Torchtitan => matches!(strategy.scaling, Some(Scaling::Whole | Scaling::Blocks)),
            _ => false,
        };
        if !narrow {
            strategy.scaling = None;
        }
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
    let of_megatron = |it: Strategy, range: &Range, lost: &mut Vec<String>| {
        Ok(megatron::limited((it, &model), range, target.title(), lost))
    };
    match target {
        Target::Dtensor => whole(|job| Ok(dtensor::files(job))),
        Target::Autoparallel => whole(autoparallel::files),
        Target::Jax => whole(|job| Ok(jax::files(job))),
        Target::Shardy => whole(|job| Ok(shardy::files(job))),
        Target::Vllm => served(&|it, _| it, &vllm::files),
        Target::Sglang => {
            served(&|it, _| sglang::limited(it, &model), &|it, lost| sglang::files(it, &model, lost))
        }
        Target::Trtllm => served(&|it, lost| trtllm::limited(it, &model, lost), &trtllm::files),
        Target::Dynamo(Engine::Vllm) => served(&|it, _| it, &|it, lost| {
            let arguments = &vllm::arguments(it, lost);
            dynamo::files(it, &Servers { title: "vLLM", name: "vllm", model: "--model", arguments })
        }),
        Target::Dynamo(Engine::Sglang) => served(&|it, _| sglang::limited(it, &model), &|it, lost| {
            let arguments = &sglang::arguments(it, &model, lost);
            dynamo::files(it, &Servers { title: "SGLang", name: "sglang", model: "--model-path", arguments })
        }),
        Target::Dynamo(Engine::Trtllm) => {
            served(&|it, lost| trtllm::limited(it, &model, lost), &|it, lost| {
                let arguments = &[dynamo::of_settings(trtllm::settings(it, lost))];
                dynamo::files(
                    it,
                    &Servers { title: "TensorRT-LLM", name: "trtllm", model: "--model", arguments },
                )
            })
        }
        Target::Hf if job.recipe().is_some() => {
            limited(&hf::training::limited, &|it, lost| hf::training::files(it, job, &model, lost))
        }
        Target::Hf => {
            served(&|it, lost| hf::limited(it, &model, lost), &|it, lost| hf::files(it, job, &model, lost))
        }
        Target::Megatron => limited(&of_megatron, &|it, lost| megatron::files(it, &model, lost)),
        Target::Bridge => limited(&of_megatron, &|it, lost| bridge::files(it, &model, lost)),
        Target::Torchtitan => {
            limited(&|it, range, lost| Ok(torchtitan::limited(it, range, &model, lost)), &|it, _| {
                torchtitan::files(it, &model, job)
            })
        }
        Target::Deepspeed => {
            limited(&|it, range, lost| Ok(deepspeed::limited(it, range, lost)), &|it, lost| {
                deepspeed::files(it, job, &model, lost)
            })
        }
    }
}
