//! `export`: which plan is written for which runtime.

use std::path::PathBuf;

use clap::Args;
use export::Target;

/// `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArguments {
    /// The plan or pipeline
    pub plan: PathBuf,
    /// For what: dtensor, jax, torchtitan, megatron, deepspeed, vllm, sglang, trtllm or hf
    #[arg(long = "to", value_name = "TARGET")]
    pub target: Target,
    /// The folder for the files
    #[arg(long, short, default_value = "export", value_name = "DIR")]
    pub output: PathBuf,
    /// The machine file of a plan that was not made for a shipped machine: what is lost is priced
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Write over files that are there
    #[arg(long)]
    pub force: bool,
}

pub(super) const HELP: &str = "\
Examples:
  shardloom export plan.json --to megatron -o megatron
  shardloom export plan.json --to torchtitan --json
  shardloom export plan.json --to dtensor --force
  shardloom export serving.json --to vllm -o vllm

What of the plan the target has no words for is printed, and what a step takes as the target runs it, by the
prices that the plan was made with. The model has to be where the plan says.";
