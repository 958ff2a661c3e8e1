//! What plans are made of, one after another.

use std::path::PathBuf;

use clap::Args;

use super::PlanArguments;

/// What `sweep --help` shows.
pub(super) const HELP: &str = "\
Examples:
  shardloom sweep model.onnx --machine h100-80g-64x --over devices=64,128,256 --global-batch 256 \\
      --dim sequence=2048 --mode train --loss cross-entropy:logits,labels --csv sweep.csv --svg sweep.svg
  shardloom sweep model.onnx --machine h100-80g-64x --over memory=40GB,60GB,80GB --global-batch 256 \\
      --dim sequence=2048 --mode train --loss cross-entropy:logits,labels";

/// `sweep`.
#[derive(Args, Clone, Debug)]
pub struct SweepArguments {
    /// What is planned, as for `plan --stages auto`.
    #[command(flatten)]
    pub plan: PlanArguments,
    /// Quantity to vary: devices=N,N.., batch=N,N.. (examples in a step), or memory=SIZE,SIZE.. (memory limit
    /// of a device)
    #[arg(long, value_name = "WHAT=VALUES")]
    pub over: String,
    /// Write the table as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write step time and memory as a picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
