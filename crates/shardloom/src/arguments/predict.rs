//! `predict` and `validate`: prices of stated setups.

use std::path::PathBuf;

use clap::Args;
use cost_models::machine::Margin;

use super::SettingArguments;

/// `predict`.
#[derive(Args, Clone, Debug)]
pub struct PredictArguments {
    /// The setup, a TOML file in Megatron's words
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Memory margin: memory of a device to leave free, such as 2GB or 3%; the default is 2% of a GPU's, as
    /// for plans
    #[arg(long, value_name = "SIZE")]
    pub reserve: Option<Margin>,
    /// What is set beside the machine file.
    #[command(flatten)]
    pub set: SettingArguments,
}

/// `validate`.
#[derive(Args, Clone, Debug)]
pub struct ValidateArguments {
    /// The folder of CSV files
    #[arg(long, value_name = "DIR", default_value = "tests/cases/validation")]
    pub data: PathBuf,
    /// Write the report of errors, with its pictures in `images` beside it
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Compare measured times of single operations instead: a folder of CSV files, gzipped or not
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "local"])]
    pub ops: Option<PathBuf>,
    /// Refit the laws of machine files, and write the files and the error of each law to a folder (with
    /// --ops)
    #[arg(long, requires = "ops", value_name = "DIR", conflicts_with = "report")]
    pub fit: Option<PathBuf>,
    /// Plan the training steps instead: compare the simulated pinned plan of each setup with its estimate and
    /// its measurement
    #[arg(long, conflicts_with_all = ["ops", "local"])]
    pub plans: bool,
    /// Compare only rows of this source (with --plans); may be repeated
    #[arg(long = "source", requires = "plans", value_name = "NAME")]
    pub sources: Vec<String>,
    /// Run plans on this machine instead, and compare them with costs measured just before
    #[arg(long, conflicts_with = "report")]
    pub local: bool,
    /// Use this machine file, written by `calibrate` (with --local)
    #[arg(long, requires = "local", value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Append the results to this file (with --local)
    #[arg(long, requires = "local", value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Number of runs of each plan in a round; the shortest step counts (with --local)
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Maximum number of rounds for the plans of a model (with --local)
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
}

pub(super) const PREDICT: &str = "\
Example:
  shardloom predict --config run.toml

  machine = \"h100-80g\"
  framework = \"nemo\"
  num_layers = 80
  hidden_size = 8192
  num_attention_heads = 64
  num_query_groups = 8
  ffn_hidden_size = 28672
  swiglu = true
  vocab_size = 128256
  seq_length = 8192
  world_size = 64
  tensor_model_parallel_size = 4
  pipeline_model_parallel_size = 8
  virtual_pipeline_model_parallel_size = 5
  global_batch_size = 128
  sequence_parallel = true
  zero_stage = 1
  precision = \"fp8\"

A key that does not exist is answered with the one that is nearest.";

pub(super) const VALIDATE: &str = "\
Examples:
  shardloom validate --data measurements
  shardloom validate --data measurements --json
  shardloom validate --data measurements --report docs/price-validation.md
  shardloom validate --data measurements --plans --source fms_fsdp
  shardloom validate --local --ledger docs/ledger/local-prices.jsonl

Files are known by their names, such as training_throughput.csv. With --json there is one object a
row: {file,row_id,source,predicted,measured} or {file,row_id,source,skipped:\"why\"}; with --plans
{file,row,source,gpu,planned_ms,simulated_ms,predicted_ms,measured_ms} or {file,row,source,gpu,skipped:\"why\"}.";
