//! Why there is no export.

use std::fmt;

/// Why a plan cannot be said in the words of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// A plan for inference, and what it is wanted for.
    Inference(&'static str),
    /// A plan of training, and what it is wanted for.
    Training(&'static str),
    /// A plan of generation, and what it is wanted for.
    Generation(&'static str),
    /// A program that looks up no tokens.
    NoTokens,
    /// A program none of whose parameters is of a numbered layer.
    NoLayers,
    /// Layers of several kinds, by the beginnings of their names.
    Kinds(Vec<String>),
    /// Devices that do not fall into as many equal pipeline ranks, each of so many: devices, groups, each.
    Devices(u64, u64, u64),
    /// Examples of a step that do not fall into equal parts: examples, places of the data axes.
    Examples(u64, u64),
    /// What the plan may hold on a device, and what a device of its machine has (bytes), which is less.
    Memory(u64, u64),
    /// No input that counts examples.
    NoExamples,
    /// A pipeline, and what has none.
    Pipeline(&'static str),
    /// A mesh that differs from stage to stage, and what it is wanted for.
    Meshes(&'static str),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inference(target) => write!(
                f,
                "the plan is for inference, {target} trains: expected a plan of `--mode train`"
            ),
            Self::Training(target) => write!(
                f,
                "the plan is of a training step, {target} serves: expected a plan of inference, such as of `--mode \
                 generate`"
            ),
            Self::Generation(target) => write!(
                f,
                "is a plan of generation, expected one of a single program or a pipeline: {target} is told of each \
                 parameter, and the steps of prompts and of tokens may have them otherwise"
            ),
            Self::NoTokens => f.write_str("the program looks up no tokens in a table, expected a decoder"),
            Self::NoLayers => f.write_str(
                "no parameter is of a numbered layer, expected names such as `model.layers.0.mlp.weight`: export the \
                 model with the names of its modules",
            ),
            Self::Kinds(kinds) => write!(
                f,
                "the model has layers of {} kinds (`{}`), expected one: models with an encoder are not exported",
                kinds.len(),
                kinds.join("`, `")
            ),
            Self::Devices(devices, groups, each) => write!(
                f,
                "{devices} devices do not fall into {groups} groups of {each} devices or a multiple: plan with \
                 `--stages N`, so that all groups are of the same size"
            ),
            Self::Memory(capacity, memory) => write!(
                f,
                "the plan may hold {capacity} bytes on a device, and a device of its machine has {memory}: plan with a \
                 `--memory` of no more"
            ),
            Self::Examples(examples, places) => write!(
                f,
                "the {examples} examples of a step do not fall into {places} equal parts, one for each data parallel \
                 device: plan with a multiple of {places}"
            ),
            Self::NoExamples => {
                f.write_str("the program has no input of several dimensions, expected one that counts examples")
            }
            Self::Pipeline(target) => {
                write!(f, "the plan is a pipeline, {target} has none: plan without `--stages`, or with `--pin pp=1`")
            }
            Self::Meshes(target) => write!(
                f,
                "the meshes of stages differ, {target} has one for all: plan with `--stages N`, so that all groups \
                 have one mesh"
            ),
        }
    }
}

impl std::error::Error for ExportError {}
