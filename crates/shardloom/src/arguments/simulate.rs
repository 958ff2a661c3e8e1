//! `simulate`.

use std::path::PathBuf;

use clap::Args;

use super::SettingArguments;

/// `simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArguments {
    /// The plan (.json)
    pub plan: PathBuf,
    /// Machine to simulate instead of the plan's, a name or a machine file; it has as many devices as the
    /// plan
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What is set beside the machine file.
    #[command(flatten)]
    pub set: SettingArguments,
    /// Run the instructions of a rank one after another, as `run` does, instead of on streams
    #[arg(long)]
    pub one_by_one: bool,
    /// Write a timeline of every rank, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the memory of every rank over time, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub memory_trace: Option<PathBuf>,
}

/// What comes after the help.
pub(super) const HELP: &str = "\
Examples:
  shardloom simulate plan.json
  shardloom simulate plan.json --machine h200-141g-8x
  shardloom simulate plan.json --trace trace.json --memory-trace memory.json

Open a trace at https://ui.perfetto.dev: a process is a rank, a track one of its streams.";
