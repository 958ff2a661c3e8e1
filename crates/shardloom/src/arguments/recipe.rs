//! What a plan for training is told besides.

use clap::{Args, ValueEnum};
use driver::pipeline::{Decisions, Phases};
use plan::{Loss, Masters, NoDecay, Precision, Recipe, Recompute, Roles};
use planner_ir::{Optimizer, Real};

/// What a model is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Inference: outputs from inputs.
    Inference,
    /// Generation: tokens one after another, with a key-value cache.
    Generate,
    /// A training step: forward, backward, optimizer.
    Train,
}

/// How parameters follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptimizerName {
    /// Adam with decoupled weight decay.
    Adamw,
    /// Stochastic gradient descent.
    Sgd,
    /// Stochastic gradient descent with momentum.
    SgdMomentum,
}

/// In what a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// The data types of the model file; master weights in f32.
    File,
    /// Everything in f32.
    Fp32,
    /// The model in bf16; master weights, main gradients and the loss in f32.
    Bf16,
    /// The same without master weights: parameters in bf16, with stochastic rounding after each step.
    Bf16Stochastic,
    /// As bf16, with the matrix products of linear layers in fp8, one scale for each tensor.
    Fp8,
    /// As fp8, each scale from the largest magnitude in the 1,024 steps before.
    Fp8Delayed,
    /// As bf16, with the matrix products of linear layers in fp8, one scale for each 32 numbers.
    Mxfp8,
    /// As bf16, with the matrix products of linear layers in NVFP4 but for the last 15 % of layers.
    Nvfp4,
}

/// Where parameters are in f32, if the model computes with less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MastersName {
    /// Beside parameters in the precision of the computation, which each step makes anew: as Megatron-LM and DeepSpeed.
    Beside,
    /// Alone: parameters are converted where they are used, before they are gathered, as FSDP with mixed precision.
    Alone,
}

/// What of a block is recomputed for its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RecomputeName {
    /// Searched for each block and its activations, where memory is short.
    Auto,
    /// None: all activations that the backward pass needs are saved.
    None,
    /// The core of attention.
    Selective,
    /// Whole blocks: only their inputs are saved.
    Full,
}

/// Arguments of `plan` that only training has.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Training")]
pub struct RecipeArguments {
    /// Purpose of the plan
    #[arg(long, value_enum, default_value = "inference")]
    pub mode: Mode,
    /// Loss to minimise: a scalar output, or `cross-entropy:LOGITS,LABELS` of an output and an input (added
    /// if the model has none of that name) [default: `loss`, as graphs of `--config` have it]
    #[arg(long, value_name = "LOSS", value_parser = loss)]
    pub loss: Option<Loss>,
    /// Optimizer
    #[arg(long, value_enum, default_value = "adamw")]
    pub optimizer: OptimizerName,
    /// AdamW's decay rates of the running means [default: 0.9,0.999]
    #[arg(long, value_name = "B1,B2", value_parser = betas)]
    pub betas: Option<(f64, f64)>,
    /// AdamW's epsilon, added to the denominator [default: 1e-8]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    pub epsilon: Option<f64>,
    /// Momentum of sgd-momentum [default: 0.9]
    #[arg(long, value_name = "X", value_parser = not_negative)]
    pub momentum: Option<f64>,
    /// Weight decay: decoupled with AdamW, else added to the gradient
    #[arg(long, value_name = "X", value_parser = not_negative, default_value = "0")]
    pub weight_decay: f64,
    /// Parameters without weight decay: names with `*` for any text, or `vectors` for all that have
    /// one dimension or none (biases, scales of norms); may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub no_decay: Vec<String>,
    /// Clip gradients to this global norm
    #[arg(long, value_name = "NORM", value_parser = positive)]
    pub clip: Option<f64>,
    /// Weights to freeze: names with `*` for any text; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub freeze: Vec<String>,
    /// Weights to train even if they do not look like parameters or `--freeze` names them: names with `*` for
    /// any text; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub train: Vec<String>,
    /// Weights to train separately though the file ties them: names with `*` for any text; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub untie: Vec<String>,
    /// Precision of the computation
    #[arg(long, value_enum, default_value = "file")]
    pub precision: PrecisionName,
    /// Master weights, in f32: beside parameters in the precision of the computation, or alone [default: alone with
    /// `--for torchtitan` and `hf`, which keep no others, else beside]
    #[arg(long, value_enum)]
    pub masters: Option<MastersName>,
    /// Number of micro-batches in a step; the model's dimensions are those of one
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub microbatches: u64,
    /// Activation recomputation
    #[arg(long, value_enum, default_value = "auto")]
    pub recompute: RecomputeName,
    /// Partition of the gradients of an operation: together with the operation, or apart
    #[arg(long, value_enum, default_value = "together")]
    pub phases: PhasesName,
}

/// Whether the phases of an operation are chosen together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PhasesName {
    /// The operation's partition decides those of its gradients
    Together,
    /// Each gradient has a partition of its own: slower to plan, and for meshes of one axis
    Apart,
}

impl RecipeArguments {
    /// The recipe, if the model is to be trained, for what runs it, without its decisions about blocks. Options that
    /// mean nothing to it have been refused.
    pub(crate) fn recipe(&self, runtime: Option<export::Target>) -> Option<Recipe> {
        if self.mode != Mode::Train {
            return None;
        }
        let loss = self.loss.clone().unwrap_or_else(|| Loss::Output("loss".to_owned()));
        let (vectors, names): (Vec<String>, Vec<String>) =
            self.no_decay.iter().cloned().partition(|pattern| pattern == "vectors");
        Some(Recipe {
            precision: match self.precision {
                PrecisionName::Fp32 => Precision::F32,
                PrecisionName::Bf16 => Precision::Bf16,
                PrecisionName::Bf16Stochastic => Precision::Bf16Stochastic,
                PrecisionName::Fp8 => Precision::Fp8,
                PrecisionName::Fp8Delayed => Precision::Fp8Delayed,
                PrecisionName::Mxfp8 => Precision::Mxfp8,
                PrecisionName::Nvfp4 => Precision::Nvfp4,
                PrecisionName::File => Precision::File,
            },
            // What runs it shards parameters, where nothing is said.
            masters: self.masters(runtime, 3),
            micro_batches: self.microbatches,
            clip: self.clip,
            no_decay: NoDecay { names, vectors: !vectors.is_empty() },
            roles: self.asked(),
            ..Recipe::new(loss, self.optimizer())
        })
    }

    /// Where parameters are in f32, if what runs it has this stage of ZeRO.
    pub(crate) fn masters(&self, runtime: Option<export::Target>, zero: u8) -> Masters {
        match self.masters {
            Some(MastersName::Beside) => Masters::Beside,
            Some(MastersName::Alone) => Masters::Alone,
            // There are none.
            None if matches!(self.precision, PrecisionName::Fp32 | PrecisionName::Bf16Stochastic) => {
                Masters::Beside
            }
            None => runtime.map_or_else(Masters::default, |it| it.masters(zero)),
        }
    }

    /// The graph of a configuration that this is planned with, for what runs it.
    pub(crate) fn graph(&self, runtime: Option<export::Target>) -> models::Use {
        match self.mode {
            Mode::Inference => models::Use::Forward,
            Mode::Generate => models::Use::Decode,
            Mode::Train if runtime.is_some_and(export::Target::trains_next_tokens_alone) => {
                models::Use::NextLoss
            }
            Mode::Train => models::Use::Loss,
        }
    }

    /// What is asked of weights.
    pub(crate) fn asked(&self) -> Roles {
        let (frozen, trained, untied) = (self.freeze.clone(), self.train.clone(), self.untie.clone());
        Roles { frozen, trained, untied, ..Roles::default() }
    }

    fn optimizer(&self) -> Optimizer {
        let decay = Real(self.weight_decay);
        match self.optimizer {
            OptimizerName::Adamw => {
                let (beta1, beta2) = self.betas.unwrap_or((0.9, 0.999));
                let epsilon = Real(self.epsilon.unwrap_or(1e-8));
                Optimizer::AdamW { beta1: Real(beta1), beta2: Real(beta2), epsilon, decay }
            }
            OptimizerName::Sgd => Optimizer::Sgd { decay },
            OptimizerName::SgdMomentum => {
                Optimizer::Momentum { momentum: Real(self.momentum.unwrap_or(0.9)), decay }
            }
        }
    }

    /// Recomputation of every block, if that is said.
    pub(crate) fn of_every_block(&self) -> Option<Recompute> {
        match self.recompute {
            RecomputeName::Auto => None,
            RecomputeName::None => Some(Recompute::Nothing),
            RecomputeName::Selective => Some(Recompute::Selective),
            RecomputeName::Full => Some(Recompute::Full),
        }
    }

    /// What may be recomputed for the gradients of a block.
    pub(crate) fn decisions(&self) -> Decisions {
        self.of_every_block().map_or(Decisions::Values, Decisions::Only)
    }
}

impl From<PhasesName> for Phases {
    fn from(name: PhasesName) -> Self {
        match name {
            PhasesName::Together => Self::Together,
            PhasesName::Apart => Self::Apart,
        }
    }
}

fn loss(text: &str) -> Result<Loss, String> {
    let Some(names) = text.strip_prefix("cross-entropy:") else { return Ok(Loss::Output(text.to_owned())) };
    match names.split_once(',') {
        Some((logits, labels)) if !logits.is_empty() && !labels.is_empty() && !labels.contains(',') => {
            Ok(Loss::CrossEntropy { logits: logits.to_owned(), labels: labels.to_owned() })
        }
        _ => Err("expected an output and an input: `cross-entropy:logits,labels`".to_owned()),
    }
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|it| it.is_finite());
    number.ok_or_else(|| "expected a number".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text).and_then(|it| if it < 0.0 { Err("expected 0 or more".to_owned()) } else { Ok(it) })
}

fn positive(text: &str) -> Result<f64, String> {
    number(text).and_then(|it| if it > 0.0 { Ok(it) } else { Err("expected more than 0".to_owned()) })
}

fn betas(text: &str) -> Result<(f64, f64), String> {
    let expected = || "expected two numbers from 0 to below 1: `0.9,0.999`".to_owned();
    let (first, second) = text.split_once(',').ok_or_else(expected)?;
    let [first, second] = [number(first)?, number(second)?];
    if [first, second].iter().all(|it| (0.0..1.0).contains(it)) {
        Ok((first, second))
    } else {
        Err(expected())
    }
}
