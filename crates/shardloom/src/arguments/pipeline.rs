//! What a plan in stages is told.

use autoparallel::mesh;
use clap::Args;
use planner_ir::Mesh;

/// Arguments of `plan` that only pipelines have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pipeline")]
pub struct PipelineArguments {
    /// In how many groups of devices, each with a mesh of its own, the model is cut, `--mesh` being
    /// then that of one group; or the mesh of each, such as `2,2,4` or `2x2,4`; or `auto`: groups,
    /// meshes, micro-batches, schedule and what is computed again are searched
    #[arg(long, value_name = "N|MESHES", value_parser = stages)]
    pub stages: Option<Stages>,
    /// With `--stages auto`, how many examples a step has, all micro-batches together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub global_batch: Option<u64>,
    /// With `--stages auto`, the dimension that counts the examples of a micro-batch
    #[arg(long, value_name = "NAME", default_value = "batch")]
    pub batch_dim: String,
    /// A decision that is not searched: how operations of the model file are computed, '/h.*/mlp/*=[a,-,-]'
    /// (see `shardloom explain`); with `--stages auto` also pp=4, tp=8, cp=2, dp=2 (pipeline, tensor, context
    /// and data parallel devices, as Megatron-LM means them), stages=2,2,4, cut=0,4,8, microbatches=16,
    /// chunks=2, recompute=full or schedule=1f1b; may be repeated
    #[arg(long = "pin", value_name = "DECISION")]
    pub pins: Vec<String>,
    /// With `--stages auto`, ask every setup how fast it is, also with little memory: it takes longer, the
    /// bound is closer, and the plan sometimes better
    #[arg(long, requires = "stages")]
    pub thorough: bool,
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
