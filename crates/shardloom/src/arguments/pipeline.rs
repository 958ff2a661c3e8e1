//! What a plan in stages is told.

use autoparallel::mesh;
use clap::Args;
use planner_ir::Mesh;

/// Arguments of `plan` that only pipelines have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pipeline")]
pub struct PipelineArguments {
    /// Pipeline stages: their number, with `--mesh` as the mesh of one stage; or the mesh of each, such as
    /// `2,2,4` or `2x2,4`; or `auto` to search stages, meshes, micro-batches, schedule and recomputation
    #[arg(long, value_name = "N|MESHES", value_parser = stages)]
    pub stages: Option<Stages>,
    /// Number of examples in a step, all micro-batches together (with `--stages auto`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub global_batch: Option<u64>,
    /// Dimension that counts the examples of a micro-batch (with `--stages auto`)
    #[arg(long, value_name = "NAME", default_value = "batch")]
    pub batch_dim: String,
    /// Fix a decision instead of searching it: the partition of operations of the model, '/h.*/mlp/*=[a,-,-]'
    /// (see `shardloom explain`); with `--stages auto` also pp=4, tp=8, cp=2, dp=2, ep=2 (sizes of pipeline,
    /// tensor, context, data and expert parallelism, as in Megatron-LM with whole experts), zero=1 (its highest stage),
    /// stages=2,2,4, cut=0,4,8, microbatches=16, chunks=2, recompute=full or schedule=1f1b; may be repeated
    #[arg(long = "pin", value_name = "DECISION")]
    pub pins: Vec<String>,
    /// Evaluate every setup even where memory is tight (with `--stages auto`): slower, with a smaller
    /// optimality gap and sometimes a better plan
    #[arg(long, requires = "stages")]
    pub thorough: bool,
    /// Pipeline schedule: a name (see `shardloom schedule`) or a file
    #[arg(long, value_name = "SCHEDULE", default_value = "1f1b", requires = "stages")]
    pub schedule: String,
    /// Number of virtual stages on each pipeline rank, with an interleaved schedule
    #[arg(long, value_name = "N", default_value_t = 1, requires = "stages")]
    pub chunks: usize,
    /// First block of each stage, such as 0,4,8; the default gives stages equal work
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', requires = "stages")]
    pub cut: Option<Vec<usize>>,
}

/// How many groups of devices there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stages {
    /// So many, all of one mesh.
    Number(u64),
    /// Those of these meshes, in the order of their ranks.
    Meshes(Vec<Mesh>),
    /// As many as take least.
    Auto,
}

fn stages(text: &str) -> Result<Stages, String> {
    match text {
        "auto" => Ok(Stages::Auto),
        _ if text.contains([',', 'x']) => {
            mesh::several(text).map(Stages::Meshes).map_err(|error| format!("{error}, or `auto`"))
        }
        _ => text.parse().ok().filter(|number| (1..=65536).contains(number)).map(Stages::Number).ok_or_else(
            || {
                "expected a number from 1 to 65536, the mesh of each group such as `2,2,4`, or `auto`"
                    .to_owned()
            },
        ),
    }
}
