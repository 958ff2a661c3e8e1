//! `plan`: what is planned, and for what.

use std::path::{Path, PathBuf};

use clap::Args;
use cost_models::cluster::Cluster;
use files::{Failure, machine};

use super::recipe::{Mode, PrecisionName};
use super::{GenerationArguments, ModelArguments, PipelineArguments, RecipeArguments, TargetArguments};

/// `plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArguments {
    /// The model (.onnx), or a Hugging Face `config.json` to make it from
    #[arg(required_unless_present = "config", conflicts_with = "config", value_name = "MODEL")]
    pub given: Option<PathBuf>,
    /// Hugging Face `config.json`, instead of a model
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The machine: a name such as `h100-80g-8x` (see `shardloom machines`), or a machine file
    #[arg(long, value_name = "MACHINE")]
    pub machine: String,
    /// Number of devices of the machine file to use
    #[arg(long, value_name = "N")]
    pub devices: Option<u64>,
    /// Its dimensions and inputs.
    #[command(flatten)]
    pub bound: ModelArguments,
    /// What the plan is made for.
    #[command(flatten)]
    pub target: TargetArguments,
    /// Plan for another runtime: torchtitan, megatron, bridge, deepspeed or hf to train, vllm, sglang,
    /// trtllm, hf or dynamo to serve; the search space is the plans that it can run, in which each mesh axis
    /// has one kind of parallelism (see `shardloom export`)
    #[arg(long = "for", value_name = "TARGET")]
    pub runtime: Option<export::Target>,
    /// How it is trained, if it is.
    #[command(flatten)]
    pub recipe: RecipeArguments,
    /// Its stages, if it has several.
    #[command(flatten)]
    pub pipeline: PipelineArguments,
    /// How tokens are made, if they are.
    #[command(flatten)]
    pub generation: GenerationArguments,
    /// File to write the plan to
    #[arg(long, short, default_value = "plan.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Write a page for a browser too, as `explain --html` does
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl PlanArguments {
    /// The model, or the configuration of which it is made.
    pub fn model(&self) -> &Path {
        self.given.as_deref().or(self.config.as_deref()).unwrap_or_else(|| Path::new(""))
    }

    /// The machines that it is planned for, so many devices of them.
    pub(crate) fn cluster(&self, devices: Option<u64>) -> Result<Cluster, Failure> {
        let cluster = self.target.on(machine::cluster(&self.target.set.of(&self.machine), devices)?);
        let four = self.recipe.mode == Mode::Train && self.recipe.precision == PrecisionName::Nvfp4;
        match cluster.kinds().iter().find(|it| four && !it.is_host() && !it.device.scales_blocks()) {
            Some(without) => Err(Failure::Input(format!(
                "machine `{}` has no units for products of 4-bit numbers, expected some for `--precision nvfp4`: \
                 plan for a machine that has a `matrix_peak.f4`, such as b200-180g, or with `--precision fp8`",
                without.name
            ))),
            None => Ok(cluster),
        }
    }
}
