//! `model`: which graph of a configuration is written.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use models::onnx::Element;
use models::{ExpertWeights, Use};

/// `model`.
#[derive(Args, Clone, Debug)]
pub struct GraphArguments {
    /// The configuration, a `config.json` of Hugging Face
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Purpose of the graph
    #[arg(long = "for", value_enum, default_value = "forward", value_name = "USE")]
    pub of: UseName,
    /// Number of sequences; the default is a symbolic dimension
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Length of a sequence (tokens); the default is a symbolic dimension
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub sequence: Option<u64>,
    /// Data type of the weights, instead of the configuration's
    #[arg(long, value_enum, value_name = "TYPE")]
    pub dtype: Option<ElementName>,
    /// Number of layers to write, from the first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub layers: Option<u64>,
    /// Storage of the experts' weights [default: together for a loss, else apart]
    #[arg(long, value_enum, value_name = "HOW")]
    pub experts: Option<ExpertsName>,
    /// The checkpoint, one `.safetensors` file or several: the model refers to the data there
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub weights: Vec<PathBuf>,
    /// File to write the model to
    #[arg(long, short, default_value = "model.onnx", value_name = "FILE")]
    pub output: PathBuf,
}

/// What a graph is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UseName {
    /// Tokens to logits.
    Forward,
    /// Tokens and labels to logits and a loss.
    Loss,
    /// The same without layers that predict tokens after the next.
    NextLoss,
    /// Tokens to logits and the cache that they leave.
    Prefill,
    /// New tokens behind a cache to logits and the cache: what `--mode generate` plans.
    Decode,
}

impl UseName {
    /// The use.
    pub fn of(self) -> Use {
        match self {
            Self::Forward => Use::Forward,
            Self::Loss => Use::Loss,
            Self::NextLoss => Use::NextLoss,
            Self::Prefill => Use::Prefill,
            Self::Decode => Use::Decode,
        }
    }
}

/// How weights of experts are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExpertsName {
    /// Each expert has its own, as checkpoints have them.
    Apart,
    /// All experts of a layer have one: devices can hold some of them and train these.
    Together,
}

impl ExpertsName {
    /// How.
    pub fn weights(self) -> ExpertWeights {
        match self {
            Self::Apart => ExpertWeights::Apart,
            Self::Together => ExpertWeights::Together,
        }
    }
}

/// What numbers weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ElementName {
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// f16.
    F16,
}

impl ElementName {
    /// The numbers.
    pub fn element(self) -> Element {
        match self {
            Self::F32 => Element::F32,
            Self::Bf16 => Element::Bf16,
            Self::F16 => Element::F16,
        }
    }
}

pub(super) const HELP: &str = "\
Examples:
  shardloom model --config config.json -o model.onnx
  shardloom model --config config.json --for decode --dtype bf16 -o decoder.onnx
  shardloom model --config config.json --layers 2 --weights model.safetensors -o model.onnx

Weights have the names and shapes that they have in the checkpoint; without --weights they are nowhere, and the
model can be planned. A key of the configuration that would change what is computed, and is not known, is refused.
`plan` takes a configuration instead of a model, and plans what is written here.";
