//! What a plan in stages is told.

use clap::Args;

/// Arguments of `plan` that only pipelines have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pipeline")]
pub struct PipelineArguments {
    /// In how many groups of devices, each with a mesh of its own, the model is cut; `--mesh` is then
    /// that of one group
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub stages: Option<u64>,
    /// The order of work: the name of a schedule (see `shardloom schedule`), or a file of one
    #[arg(long, value_name = "SCHEDULE", default_value = "1f1b", requires = "stages")]
    pub schedule: String,
    /// How many stages each group has, with an interleaved schedule
    #[arg(long, value_name = "N", default_value_t = 1, requires = "stages")]
    pub chunks: usize,
    /// The first block of each stage, such as 0,4,8; without it, stages have equal work
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', requires = "stages")]
    pub cut: Option<Vec<usize>>,
}
