//! Where each option means something: it is obeyed there, and refused elsewhere.

mod when; // what a command is, where options depend on it

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use files::Failure;

use super::outputs::WRITING;
use super::recipe::OptimizerName;
use super::{Arguments, Command, Dumped, ShapeName, StageName, Stages};
use when::{Way, has_masters, is, is_not_over, is_on_gpus, optimizer, runs_plan, suits, trains, way};

/// Options of commands, and where they mean something.
struct Row {
    commands: &'static [&'static str],
    options: &'static [&'static str],
    meant: Meant,
}

/// Where an option means something.
enum Meant {
    /// Wherever it is given; what it goes with is looked at where it is read.
    Always,
    /// Where this holds; and what it goes with, in words.
    Where(fn(&Command) -> bool, &'static str),
}

use Meant::{Always, Where};

const PLAN: &[&str] = &["plan", "sweep"];
const RUN: &[&str] = &["run"];
const RANKS: &[&str] = &["run", "generate", "train", "calibrate"];

/// Every option of every command, once. Those of `bench` are each read by one benchmark.
const ROWS: &[Row] = &[
    Row { commands: PLAN, options: &["given", "config", "machine", "dims", "mesh", "mode"], meant: Always },
    Row {
        commands: PLAN,
        options: &["pins"],
        meant: Where(|it| way(it) != Way::Generate, "plans of one program, not with `--mode generate`"),
    },
    Row {
        commands: PLAN,
        options: &["devices"],
        meant: Where(|it| is_not_over(it, "devices"), "a sweep over something else than devices"),
    },
    Row {
        commands: PLAN,
        options: &["memory"],
        meant: Where(|it| is_not_over(it, "memory"), "a sweep over something else than memory"),
    },
    Row { commands: PLAN, options: &["reserve", "settings"], meant: Always },
    Row {
        commands: PLAN,
        options: &["inputs"],
        meant: Where(
            |it| !matches!(way(it), Way::Auto | Way::Generate),
            "sizes that are said: `--stages auto` and `sweep` choose that of a micro-batch, `--mode generate` takes \
             `--batch`, `--prompt` and `--context`, others are given with `--dim`",
        ),
    },
    Row {
        commands: PLAN,
        options: &["in_time"],
        meant: Where(|it| way(it) != Way::Auto, "stages that are said, not with those that are searched"),
    },
    Row {
        commands: PLAN,
        options: &[
            "loss",
            "precision",
            "optimizer",
            "weight_decay",
            "no_decay",
            "clip",
            "freeze",
            "train",
            "untie",
        ],
        meant: Where(trains, "`--mode train`"),
    },
    Row {
        commands: PLAN,
        options: &["masters"],
        meant: Where(
            has_masters,
            "`--mode train` and any precision but `fp32` (parameters are in f32) and `bf16-stochastic` (there are no masters)",
        ),
    },
    Row {
        commands: PLAN,
        options: &["runtime"],
        meant: Where(
            suits,
            "`--mode train` for megatron, bridge, torchtitan, deepspeed and hf, which train; with plans of inference for \
             vllm, sglang, trtllm, hf and dynamo, which serve",
        ),
    },
    Row {
        commands: PLAN,
        options: &["betas", "epsilon"],
        meant: Where(
            |it| trains(it) && optimizer(it) == Some(OptimizerName::Adamw),
            "`--optimizer adamw` of `--mode train`",
        ),
    },
    Row {
        commands: PLAN,
        options: &["momentum"],
        meant: Where(
            |it| trains(it) && optimizer(it) == Some(OptimizerName::SgdMomentum),
            "`--optimizer sgd-momentum` of `--mode train`",
        ),
    },
    Row {
        commands: PLAN,
        options: &["microbatches"],
        meant: Where(
            |it| matches!(way(it), Way::Train | Way::Staged),
            "`--mode train` where stages are not searched: there it is `--pin microbatches=N`",
        ),
    },
    Row {
        commands: PLAN,
        options: &["recompute"],
        meant: Where(
            |it| matches!(way(it), Way::Train | Way::Staged),
            "`--mode train` where stages are not searched: there it is `--pin recompute=full`",
        ),
    },
    Row {
        commands: PLAN,
        options: &["phases"],
        meant: Where(|it| way(it) == Way::Train, "`--mode train` without stages"),
    },
    Row {
        commands: PLAN,
        options: &["stages"],
        meant: Where(
            |it| match it {
                Command::Sweep(it) => it.plan.pipeline.stages == Some(Stages::Auto),
                _ => trains(it),
            },
            "`--mode train`, and is `auto` in a sweep",
        ),
    },
    Row {
        commands: PLAN,
        options: &["global_batch"],
        meant: Where(
            |it| way(it) == Way::Auto && is_not_over(it, "batch"),
            "`--stages auto`, or a sweep over something else than the batch",
        ),
    },
    Row {
        commands: PLAN,
        options: &["batch_dim", "thorough"],
        meant: Where(|it| way(it) == Way::Auto, "`--stages auto`"),
    },
    Row {
        commands: PLAN,
        options: &["schedule", "chunks", "cut"],
        meant: Where(
            |it| way(it) == Way::Staged,
            "`--mode train --stages N`: where stages are searched it is a `--pin`",
        ),
    },
    Row {
        commands: PLAN,
        options: &["batch", "prompt", "context", "cache_layout", "roles", "kept"],
        meant: Where(|it| way(it) == Way::Generate, "`--mode generate`"),
    },
    Row {
        commands: PLAN,
        options: &["output", "html"],
        meant: Where(
            |it| !matches!(it, Command::Sweep(_)),
            "`plan`: a sweep makes several plans, and `--csv` and `--svg` write what they come to",
        ),
    },
    Row { commands: &["sweep"], options: &["over", "csv", "svg"], meant: Always },
    Row { commands: RUN, options: &["file", "ranks", "inputs", "steps", "output"], meant: Always },
    Row {
        commands: RUN,
        options: &["dims", "mesh", "memory", "reserve", "machine", "settings", "in_time"],
        meant: Where(|it| !runs_plan(it), "a model; a plan has decided that already"),
    },
    Row {
        commands: RUN,
        options: &["model"],
        meant: Where(runs_plan, "a plan, but the file to run is a model"),
    },
    Row {
        commands: RUN,
        options: &["seed"],
        meant: Where(
            |it| matches!(it, Command::Run(it) if it.bound.inputs.is_none()),
            "inputs that are made: `--inputs` gives them",
        ),
    },
    Row {
        commands: RANKS,
        options: &["wait_limit", "lost_after", "join_limit", "interface", "transport", "flight"],
        meant: Always,
    },
    Row { commands: RANKS, options: &["device"], meant: Always },
    Row { commands: RANKS, options: &["libraries", "cache"], meant: Where(is_on_gpus, "`--device cuda`") },
    Row {
        commands: &["generate"],
        options: &["plan", "prompt_ids", "prompts", "max_new_tokens", "temperature", "stop", "model"],
        meant: Always,
    },
    Row {
        commands: &["generate"],
        options: &["top_k", "top_p", "seed"],
        meant: Where(
            |it| matches!(it, Command::Generate(it) if it.temperature > 0.0),
            "`--temperature` above 0: without it the likeliest token is taken",
        ),
    },
    Row {
        commands: &["train"],
        options: &["plan", "data", "steps", "lr", "schedule", "warmup", "seed", "model"],
        meant: Always,
    },
    Row {
        commands: &["train"],
        options: &["checkpoint", "every", "keep", "resume", "go_on", "accept_changes"],
        meant: Always,
    },
    Row { commands: &["train"], options: &["weights", "export", "log"], meant: Always },
    Row {
        commands: &["train"],
        options: &["min_lr"],
        meant: Where(
            |it| matches!(it, Command::Train(it) if it.schedule != ShapeName::Constant),
            "`--schedule linear` or `cosine`",
        ),
    },
    Row {
        commands: &["train"],
        options: &["tokens"],
        meant: Where(
            |it| matches!(it, Command::Train(it) if !is(&it.data, &["npz", "safetensors"])),
            "a file of tokens; arrays say how wide their numbers are",
        ),
    },
    Row { commands: &["calibrate"], options: &["nccl", "output"], meant: Always },
    Row {
        commands: &["calibrate"],
        options: &["like", "again"],
        meant: Where(is_on_gpus, "`--device cuda`"),
    },
    Row { commands: &["launch"], options: &["ranks", "restarts", "command"], meant: Always },
    Row { commands: &["explain"], options: &["plan", "diagram", "svg"], meant: Always },
    Row {
        commands: &["explain"],
        options: &["machine", "settings", "alternatives", "html"],
        meant: Where(
            |it| matches!(it, Command::Explain(it) if it.diagram.is_none()),
            "what is priced, not with `--diagram`",
        ),
    },
    Row { commands: &["export"], options: &["plan", "target", "output", "machine"], meant: Always },
    Row {
        commands: &["simulate"],
        options: &["plan", "machine", "settings", "one_by_one", "trace", "memory_trace"],
        meant: Always,
    },
    Row { commands: &["partition"], options: &["partition", "mesh", "svg"], meant: Always },
    Row {
        commands: &["schedule"],
        options: &["name", "file", "chunks", "forward", "backward", "weight", "message", "crossings"],
        meant: Always,
    },
    Row { commands: &["schedule"], options: &["blocking", "width", "svg"], meant: Always },
    Row {
        commands: &["schedule"],
        options: &["stages", "micro_batches"],
        meant: Where(
            |it| matches!(it, Command::Schedule(it) if it.file.is_none()),
            "the name of a schedule; a file says it",
        ),
    },
    Row { commands: &["check"], options: &["plan", "model", "inputs", "machine", "settings"], meant: Always },
    Row { commands: &["diff"], options: &["before", "after"], meant: Always },
    Row { commands: &["import"], options: &["model", "dims", "inputs"], meant: Always },
    Row {
        commands: &["model"],
        options: &["config", "of", "batch", "sequence", "dtype", "layers", "experts", "weights", "output"],
        meant: Always,
    },
    Row { commands: &["machines show"], options: &["name"], meant: Always },
    Row { commands: &["completions"], options: &["shell"], meant: Always },
    Row { commands: &["man"], options: &["output"], meant: Always },
    Row { commands: &["predict"], options: &["config", "reserve", "settings"], meant: Always },
    Row {
        commands: &["score"],
        options: &[
            "megatron",
            "bridge",
            "torchtitan",
            "deepspeed",
            "machine",
            "settings",
            "config",
            "sequence",
            "imbalance",
            "output",
        ],
        meant: Always,
    },
    Row {
        commands: &["score"],
        options: &["framework_year"],
        meant: Where(
            |it| matches!(it, Command::Score(it) if it.of.has_trend()),
            "`--bridge`: the figures of the other frameworks have no trend by the year",
        ),
    },
    Row {
        commands: &["validate"],
        options: &["report", "ops", "fit", "plans", "sources", "local", "machine", "ledger"],
        meant: Always,
    },
    Row {
        commands: &["validate"],
        options: &["data"],
        meant: Where(
            |it| matches!(it, Command::Validate(it) if !it.local),
            "published measurements, not with `--local`",
        ),
    },
    Row {
        commands: &["validate"],
        options: &["steps", "rounds"],
        meant: Where(|it| matches!(it, Command::Validate(it) if it.local), "`--local`"),
    },
    Row { commands: &["kernels"], options: &["plan", "out"], meant: Always },
    Row {
        commands: &["kernels"],
        options: &["arch", "libraries"],
        meant: Where(
            |it| matches!(it, Command::Kernels(it) if it.out.is_some()),
            "`--out`: nothing is compiled without it",
        ),
    },
];

/// Options that every command takes, and the commands to which they mean something.
const GLOBAL: &[(&[&str], Option<&[&str]>)] = &[
    (&["json", "quiet", "color"], None),
    (&["force"], Some(&WRITING)),
    (&["dump_after", "dump_dir"], Some(&["run", "plan", "import", "generate", "train", "check", "kernels"])),
    (&["stop_after"], Some(&["run", "plan", "import", "train"])),
];

/// The stages that a command makes, in order: these can be shown, and stopped after.
fn made(command: &Command) -> &'static [StageName] {
    use StageName::{Import, Lower, Plan, Raise, Train};
    match command {
        Command::Import(_) => &[Import, Raise],
        Command::Run(_) if !runs_plan(command) => &[Import, Raise, Plan, Lower],
        Command::Run(_) | Command::Train(_) => &[Plan, Lower],
        Command::Generate(_) | Command::Check(_) | Command::Kernels(_) => &[Lower],
        _ => match way(command) {
            Way::Inference | Way::Generate => &[Import, Raise, Plan],
            Way::Train => &[Import, Raise, Train, Plan],
            Way::Staged => &[Import, Plan],
            Way::Auto => &[Plan],
        },
    }
}

/// Refuses an option that is given and means nothing where it is.
pub(crate) fn check(matches: &ArgMatches, command: &Command) -> Result<(), Failure> {
    let (mut path, mut at) = (String::new(), matches);
    while let Some((name, inner)) = at.subcommand() {
        path = if path.is_empty() { name.to_owned() } else { format!("{path} {name}") };
        at = inner;
    }
    let is_given = |option: &&&str| at.value_source(option) == Some(ValueSource::CommandLine);
    let refused = |option: &str, words: &str| {
        Err(Failure::Usage(format!("`{}` goes with {words}", shown(&path, option))))
    };
    for Row { options, meant, .. } in ROWS.iter().filter(|it| it.commands.contains(&path.as_str())) {
        let (Where(holds, words), Some(option)) = (meant, options.iter().find(is_given)) else { continue };
        if !holds(command) {
            return refused(option, words);
        }
    }
    for (options, commands) in GLOBAL {
        let Some(commands) = commands.filter(|it| !it.contains(&path.as_str())) else { continue };
        if let Some(option) = options.iter().find(is_given) {
            let names: Vec<String> = commands.iter().map(|it| format!("`{it}`")).collect();
            return refused(option, &names.join(", "));
        }
    }
    let one = |option: &str| at.get_one::<StageName>(option).copied();
    let dumped = at.get_one::<Dumped>("dump_after").copied().and_then(Dumped::one);
    for (option, stage) in [("dump_after", dumped), ("stop_after", one("stop_after"))] {
        let made = made(command);
        if let Some(stage) = stage.filter(|it| !made.contains(it)) {
            let name = |it: &StageName| format!("`{}`", it.stage().name());
            let names: Vec<String> = made.iter().map(name).collect();
            return refused(
                option,
                &format!("what is made here: {}, not {}", names.join(", "), name(&stage)),
            );
        }
    }
    Ok(())
}

/// An option as it is written.
fn shown(path: &str, option: &str) -> String {
    let mut command = Arguments::command();
    command.build();
    let mut at = &command;
    for name in path.split(' ') {
        at = at.find_subcommand(name).unwrap_or(at);
    }
    let long = at.get_arguments().find(|it| it.get_id() == option).and_then(|it| it.get_long());
    format!("--{}", long.unwrap_or(option))
}

#[cfg(test)]
mod tests;
