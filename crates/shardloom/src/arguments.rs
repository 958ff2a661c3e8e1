//! What the command line says.

mod export; // which plan is written for which runtime
mod generation; // what generation is told
mod kernels; // what kernels are listed
mod launch; // what is started, and how often
pub(crate) mod outputs; // which files are written
mod manual; // for which shell completions are, and where manual pages go
mod model; // which graph of a configuration is written
pub(crate) mod meant; // where each option means something
mod plan; // what is planned, and for what
mod pipeline; // what a plan in stages is told
mod predict; // what setups are priced
mod recipe; // what a plan for training is told besides
mod sweep; // what plans are made of, one after another
mod score; // which configuration of which framework is scored
mod schedule; // which schedule is looked at
mod target; // what plans are made for
mod train; // `train`
mod simulate; // what a simulation is told

use std::path::PathBuf;

use ::launch::arguments::{ClusterArguments, DeviceArguments};
use driver::compile::{Bound, dimension};
use driver::pipeline::Stage;

use clap::{Args, ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};
use planner_ir::Mesh;

pub use export::{ExportArguments, To, Trace};
pub(crate) use generation::ids;
pub use generation::{GenerateArguments, GenerationArguments, Prompt};
pub use kernels::KernelsArguments;
pub use launch::LaunchArguments;
pub use manual::{CompletionsArguments, ManArguments, described};
pub use model::{ElementName, ExpertsName, GraphArguments, UseName};
pub use pipeline::{PipelineArguments, Stages};
pub use plan::PlanArguments;
pub use predict::{PredictArguments, ValidateArguments};
pub use recipe::{Mode, RecipeArguments};
pub use schedule::ScheduleArguments;
pub use score::{ScoreArguments, Where};
pub use simulate::SimulateArguments;
pub use sweep::SweepArguments;
use target::mesh;
pub use target::{InTime, SettingArguments, TargetArguments};
pub use train::{ShapeName, TrainArguments};

/// Compile an ONNX transformer for a cluster: search an execution plan, explain it, simulate it, run
/// it.
#[derive(Clone, Debug, Parser)]
#[command(name = "shardloom", version, after_help = TOUR)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
}

const TOUR: &str = "\
A first tour:
  shardloom run model.onnx --ranks 4                   plan for 4 threads of this machine, and run
  shardloom plan model.onnx --machine h100-80g-8x --dim batch=8 --dim sequence=1024 -o plan.json
  shardloom explain plan.json                          its decisions and its cost

Exit codes: 0 done, 1 invalid arguments, 2 invalid input or a plan that is rejected,
3 an error of shardloom's own, 4 processes have not found each other, 5 a rank is lost, 6 a rank has
waited for too long, 7 there is no room for a file, 130 and 143 ended by a signal.";

/// The heading of options that look into the stages of a command.
const DEBUGGING: &str = "Debugging";

/// What holds for every command.
#[derive(Args, Clone, Debug)]
pub struct Global {
    /// Print the result of a stage: import, raise, train, plan, lower, or all of them
    #[arg(long, global = true, value_name = "STAGE", help_heading = DEBUGGING)]
    pub dump_after: Option<Dumped>,
    /// Write dumps to numbered files in this folder instead of the standard output
    #[arg(long, global = true, value_name = "DIR", requires = "dump_after", help_heading = DEBUGGING)]
    pub dump_dir: Option<PathBuf>,
    /// Stop after this stage
    #[arg(long, global = true, value_name = "STAGE", help_heading = DEBUGGING)]
    pub stop_after: Option<StageName>,
    /// Overwrite files that are there
    #[arg(long, global = true)]
    pub force: bool,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Colour: on terminals and as `NO_COLOR` and `CLICOLOR` say (`auto`), always, or never
    #[arg(long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN")]
    pub color: ColorChoice,
    /// Print nothing but errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The name of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StageName {
    /// The model as a graph.
    Import,
    /// The graph in named operations.
    Raise,
    /// The training step.
    Train,
    /// The plan.
    Plan,
    /// One program per rank.
    Lower,
}

impl StageName {
    /// The stage.
    pub fn stage(self) -> Stage {
        match self {
            Self::Import => Stage::Import,
            Self::Raise => Stage::Raise,
            Self::Train => Stage::Train,
            Self::Plan => Stage::Plan,
            Self::Lower => Stage::Lower,
        }
    }
}

/// Which stages are dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dumped {
    /// The model as a graph.
    Import,
    /// The graph in named operations.
    Raise,
    /// The training step.
    Train,
    /// The plan.
    Plan,
    /// One program per rank.
    Lower,
    /// Every stage.
    All,
}

impl Dumped {
    /// The stage, if it is one.
    pub fn one(self) -> Option<StageName> {
        match self {
            Self::Import => Some(StageName::Import),
            Self::Raise => Some(StageName::Raise),
            Self::Train => Some(StageName::Train),
            Self::Plan => Some(StageName::Plan),
            Self::Lower => Some(StageName::Lower),
            Self::All => None,
        }
    }
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a model or a plan on ranks of this machine
    #[command(after_help = "\
Examples:
  shardloom run model.onnx --ranks 4
  shardloom run model.onnx --ranks 4 --mesh 2x2 --inputs inputs.npz -o outputs.npz
  shardloom run model.onnx --ranks 2 --dim batch=2 --dim sequence=16 --seed 7
  shardloom run plan.json --inputs inputs.npz -o outputs.npz
  shardloom launch -n 4 run plan.json     each rank a process; as well under other launchers

Inputs are arrays by name in a .npz or .safetensors file; names may be written `in/NAME`, and
arrays `out/NAME` are compared with the outputs: that they differ by more than rounding explains
ends the command with exit code 2. Without --inputs they are random, from --seed.")]
    Run(RunArguments),
    /// Generate tokens with a plan of a decoder, on ranks of this machine
    #[command(after_help = generation::HELP)]
    Generate(GenerateArguments),
    /// Train a model with its plan, on ranks of this machine
    #[command(after_help = train::HELP)]
    Train(TrainArguments),
    /// Start `run`, `generate`, `train` or `calibrate` with one process for each rank of this host
    #[command(after_help = launch::HELP)]
    Launch(LaunchArguments),
    /// Plan a model for a machine
    #[command(after_help = "\
Examples:
  shardloom plan model.onnx --machine h100-80g-8x --dim batch=8 --dim sequence=1024 -o plan.json
  shardloom plan model.onnx --machine h100-80g-8x --mesh data=2,model=4 --memory 70GiB
  shardloom plan model.onnx --machine machine.json --devices 4 --inputs inputs.npz
  shardloom plan model.onnx --machine h100-80g-8x --dim batch=4 --dim sequence=1024 \\
      --mode train --loss cross-entropy:logits,labels --precision bf16 --microbatches 8 --clip 1
  shardloom plan model.onnx --machine h100-80g-16x --dim batch=1 --dim sequence=1024 \\
      --mode train --loss cross-entropy:logits,labels --microbatches 8 --stages 2 --schedule eager-1f1b
  shardloom plan model.onnx --machine h100-80g-8x --mode generate --batch 8 --context 2048

Without --mesh several meshes are tried and the cheapest plan is kept. Weights need not be there.")]
    Plan(Box<PlanArguments>),
    /// Plan a model for several cluster sizes, batch sizes or memory limits
    #[command(after_help = sweep::HELP)]
    Sweep(Box<SweepArguments>),
    /// Explain a plan: its decisions, its cost, and the cost of alternatives
    #[command(after_help = "\
Examples:
  shardloom explain plan.json
  shardloom explain plan.json --alternatives
  shardloom explain plan.json --html plan.html
  shardloom explain plan.json --json")]
    Explain(ExplainArguments),
    /// Write a plan for another runtime: PyTorch, JAX, torchtitan, Megatron-LM, DeepSpeed, vLLM, SGLang, ..
    #[command(after_help = export::HELP)]
    Export(ExportArguments),
    /// Simulate a plan on a machine, which need not be there
    #[command(after_help = simulate::HELP)]
    Simulate(SimulateArguments),
    /// Draw a spatial-temporal partition of a matrix product
    #[command(after_help = "\
Examples:
  shardloom partition '[a,-,-]' --mesh 4
  shardloom partition '3 steps [a,-,(a-@t:3)]' --mesh 3
  shardloom partition '2 steps [a,(a+b+@t:2),b]' --mesh 2x2 --svg square.svg")]
    Partition(PartitionArguments),
    /// Draw a pipeline schedule, with its time and saved activations
    #[command(after_help = schedule::HELP)]
    Schedule(ScheduleArguments),
    /// Check a plan, independently of the planner
    #[command(after_help = "\
Examples:
  shardloom check plan.json
  shardloom check plan.json --model model.onnx
  shardloom check plan.json --model model.onnx --inputs io0.npz")]
    Check(CheckArguments),
    /// Compare two plans: what differs, and its effect on the cost
    #[command(after_help = "Example:\n  shardloom diff before.json after.json")]
    Diff(DiffArguments),
    /// Import a model and describe it
    #[command(after_help = "\
Examples:
  shardloom import model.onnx --dim batch=1 --dim sequence=16
  shardloom import model.onnx --dim batch=1 --dim sequence=16 --dump-after import
  shardloom import model.onnx --inputs inputs.npz --dump-after all --dump-dir stages")]
    Import(ImportArguments),
    /// Write the model of a configuration as ONNX, without weights
    #[command(after_help = model::HELP)]
    Model(GraphArguments),
    /// List the known machines
    #[command(after_help = "\
Examples:
  shardloom machines
  shardloom machines show h100-80g-8x
  shardloom machines show h100-80g-8x --json")]
    Machines(MachinesArguments),
    /// Measure this machine and write a machine file
    #[command(after_help = "\
Examples:
  shardloom calibrate --device cpu -o machine.json
  shardloom run model.onnx --ranks 4 --machine machine.json
  shardloom launch -n 8 calibrate --device cuda --nccl -o machine.json")]
    Calibrate(CalibrateArguments),
    /// Estimate a stated training setup, without a search
    #[command(after_help = predict::PREDICT)]
    Predict(PredictArguments),
    /// Score a configuration of a training framework: its step time, and the distance from the best
    #[command(after_help = score::HELP)]
    Score(ScoreArguments),
    /// Compare cost estimates with published measurements
    #[command(after_help = predict::VALIDATE)]
    Validate(ValidateArguments),
    /// List or write the GPU kernels of a plan
    #[command(after_help = kernels::HELP)]
    Kernels(KernelsArguments),
    /// Print completions of commands and options for a shell
    #[command(after_help = manual::COMPLETIONS)]
    Completions(CompletionsArguments),
    /// Write manual pages, one for each command
    #[command(after_help = manual::MAN)]
    Man(ManArguments),
    /// Benchmark shardloom itself
    #[command(
        subcommand,
        after_help = "\
Examples:
  shardloom bench cpu-run --against-onnxruntime
  shardloom bench planning --dir models --ledger planning.jsonl"
    )]
    Bench(bench::Benchmark),
}

/// The options of a command, as they are written behind `--`; none of a command that there is not.
pub fn options(command: &str) -> Vec<String> {
    let all = Arguments::command();
    let of_command = all.find_subcommand(command).into_iter().flat_map(clap::Command::get_arguments);
    let force = outputs::WRITING.contains(&command).then_some("force");
    of_command.filter_map(clap::Arg::get_long).chain(force).map(str::to_owned).collect()
}

/// A model and the sizes of its dimensions.
#[derive(Args, Clone, Debug)]
pub struct ModelArguments {
    /// Give a symbolic dimension a size; may be repeated
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = dimension)]
    pub dims: Vec<(String, u64)>,
    /// Arrays for the inputs, .npz or .safetensors; their shapes give dimensions their sizes
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
}

impl ModelArguments {
    /// The sizes.
    pub fn bound(&self) -> Bound {
        Bound { dims: self.dims.clone(), inputs: self.inputs.clone() }
    }
}

/// `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArguments {
    /// The model (.onnx) or the plan (.json)
    pub file: PathBuf,
    /// Number of ranks, each a thread of this machine; a plan has its own number
    #[arg(long, value_parser = ranks, value_name = "N")]
    pub ranks: Option<Ranks>,
    /// Device that ranks run on.
    #[command(flatten)]
    pub on: DeviceArguments,
    /// Plan for this machine file; the default is this host, measured the first time (two to three seconds) and kept
    /// in the user's cache
    #[arg(long, value_name = "FILE")]
    pub machine: Option<String>,
    /// Path of the plan's model, if it has moved since the plan was made
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Its dimensions and inputs.
    #[command(flatten)]
    pub bound: ModelArguments,
    /// What the plan is made for.
    #[command(flatten)]
    pub target: TargetArguments,
    /// Seed of the random inputs
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Number of steps to run, of which the shortest is reported; the default is what fits in a fifth of a second,
    /// at most 20, and 1 where each rank is a process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub steps: Option<u32>,
    /// File to write the outputs to, .npz or .safetensors
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What holds where each rank is a process.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// How many ranks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// As many threads as the plan says.
    Cpu,
    /// This many.
    Number(u64),
}

/// `explain`.
#[derive(Args, Clone, Debug, Default)]
pub struct ExplainArguments {
    /// The plan or pipeline
    pub plan: PathBuf,
    /// Machine file, for a plan that was not made for a shipped machine
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What is set beside the machine file.
    #[command(flatten)]
    pub set: SettingArguments,
    /// Search again for each operation without the choice made for it, and print the difference
    #[arg(long)]
    pub alternatives: bool,
    /// Draw the shards that each rank computes and sends at each step of this operation
    #[arg(long, value_name = "OPERATION")]
    pub diagram: Option<String>,
    /// Write that diagram as SVG too; for a pipeline, its schedule
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write a page for a browser: memory, communication between ranks, the model's blocks, a timeline of the
    /// ranks, memory over time, the plan for other runtimes
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// `partition`.
#[derive(Args, Clone, Debug)]
pub struct PartitionArguments {
    /// The digits of the loops m, k and n of `Y[m,n] = X[m,k] W[k,n]`, such as `3 steps [a,-,(a-@t:3)]`
    pub partition: String,
    /// Device mesh: `8`, `2x4`, `data=2,model=4`
    #[arg(long, value_parser = mesh, value_name = "MESH")]
    pub mesh: Mesh,
    /// Write an SVG picture too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArguments {
    /// The plan
    pub plan: PathBuf,
    /// Check it against this model too: evaluate both, and run the plan on its ranks
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Evaluate them on these inputs (.npz or .safetensors), instead of made ones; outputs of the file,
    /// called `out/NAME`, are expected
    #[arg(long, value_name = "FILE", requires = "model")]
    pub inputs: Option<PathBuf>,
    /// The machine file of a plan that was not made for a shipped machine: its times are checked
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What is set beside the machine file.
    #[command(flatten)]
    pub set: SettingArguments,
}

/// `diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// The plan before
    pub before: PathBuf,
    /// The plan after
    pub after: PathBuf,
}

/// `import`.
#[derive(Args, Clone, Debug)]
pub struct ImportArguments {
    /// The model (.onnx)
    pub model: PathBuf,
    /// Its dimensions and inputs.
    #[command(flatten)]
    pub bound: ModelArguments,
}

/// `machines`.
#[derive(Args, Clone, Debug)]
pub struct MachinesArguments {
    /// What to do with them.
    #[command(subcommand)]
    pub command: Option<MachinesCommand>,
}

/// What to do with machines.
#[derive(Clone, Debug, Subcommand)]
pub enum MachinesCommand {
    /// Show one machine
    Show {
        /// Its name, or a machine file
        name: String,
    },
}

/// `calibrate`.
#[derive(Args, Clone, Debug)]
pub struct CalibrateArguments {
    /// What to measure, and what that needs
    #[command(flatten)]
    pub on: DeviceArguments,
    /// Shipped machine or machine file whose data sheet a GPU is compared with; the default goes by the GPU's
    /// name
    #[arg(long, value_name = "MACHINE")]
    pub like: Option<String>,
    /// Measure a GPU again, even if its measurements are cached
    #[arg(long)]
    pub again: bool,
    /// Measure the communication between the GPUs of all ranks too (under a launcher)
    #[arg(long)]
    pub nccl: bool,
    /// Ranks that are processes
    #[command(flatten)]
    pub cluster: ClusterArguments,
    /// File to write the machine to
    #[arg(long, short, default_value = "machine.json", value_name = "FILE")]
    pub output: PathBuf,
}

fn ranks(text: &str) -> Result<Ranks, String> {
    match text.parse() {
        Ok(0) => Err("expected at least 1".to_owned()),
        Ok(number) => Ok(Ranks::Number(number)),
        Err(_) if text == "cpu" => Ok(Ranks::Cpu),
        Err(_) => Err("expected a number such as `4`".to_owned()),
    }
}

#[cfg(test)]
mod tests;
