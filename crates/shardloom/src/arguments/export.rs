//! `export`: which plan is written for which runtime.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use export::Target;

/// As what a plan is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// For another runtime.
    Runtime(Target),
    /// As traces of its simulation.
    Trace(Trace),
}

/// A form of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// Execution traces of Chakra.
    Chakra,
    /// Snapshots of memory as PyTorch takes them.
    MemoryViz,
}

impl Trace {
    const ALL: [Self; 2] = [Self::Chakra, Self::MemoryViz];

    /// Its name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chakra => "chakra",
            Self::MemoryViz => "memory-viz",
        }
    }
}

impl FromStr for To {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let runtime = Target::ALL.into_iter().find(|it| it.name() == text).map(Self::Runtime);
        let trace = || Trace::ALL.into_iter().find(|it| it.name() == text).map(Self::Trace);
        runtime.or_else(trace).ok_or_else(|| {
            let names = Target::ALL.map(Target::name).into_iter().chain(Trace::ALL.map(Trace::name));
            let names: Vec<&str> = names.collect();
            let near = planner_ir::did_you_mean(text, names.iter().copied());
            format!("`{text}` is no target{near}, expected one of {}", names.join(", "))
        })
    }
}

/// `export`.
#[derive(Args, Clone, Debug)]
pub struct ExportArguments {
    /// The plan or pipeline
    pub plan: PathBuf,
    /// Target runtime: dtensor, autoparallel, jax, shardy, torchtitan, megatron, bridge, deepspeed, vllm,
    /// sglang, trtllm, hf, dynamo, dynamo-sglang or dynamo-trtllm; or a trace of the plan's simulation:
    /// chakra, memory-viz
    #[arg(long = "to", value_name = "TARGET")]
    pub target: To,
    /// Folder to write the files to
    #[arg(long, short, default_value = "export", value_name = "DIR")]
    pub output: PathBuf,
    /// Machine file, for a plan that was not made for a shipped machine: used for the cost of what the target
    /// cannot express, and to simulate traces
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
}

pub(super) const HELP: &str = "\
Examples:
  shardloom export plan.json --to megatron -o megatron
  shardloom export plan.json --to torchtitan --json
  shardloom export plan.json --to dtensor --force
  shardloom export serving.json --to vllm -o vllm
  shardloom export plan.json --to chakra -o traces

The command prints what of the plan the target cannot express, and the step time as the target runs it, with the
costs that the plan was made with. The model has to be where the plan says.";
