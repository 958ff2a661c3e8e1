//! `bench frameworks`: from a `config.json` to a plan for a framework, as a user asks for it.
//!
//! Each case is a process of its own, `shardloom plan ... --for FRAMEWORK`: what it takes is what a user waits for.
//! Several builds of the program take each case one after the other, so that they compare on one machine.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use cost_models::quantity;
use files::folder::Folder;
use files::{Doing, Failure, Of, Say};
use serde_json::{Value, json};

use super::Report;
use super::child::{self, Ended};

/// `bench frameworks`.
#[derive(Args, Clone, Debug)]
pub struct Frameworks {
    /// Only cases in whose name all these words are, such as `megatron deepseek_v3 b200`
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// The folder of the models' configurations
    #[arg(long, value_name = "FOLDER", default_value = "tests/configs")]
    pub configs: PathBuf,
    /// A build of this program that plans, instead of this one; may be repeated
    #[arg(long = "program", value_name = "FILE")]
    pub programs: Vec<PathBuf>,
    /// Limit of the time of a plan (seconds)
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub limit: u64,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// Frameworks as `--for` names them.
const FRAMEWORKS: [&str; 2] = ["torchtitan", "megatron"];
/// A machine file without its number of devices.
const MACHINES: [&str; 2] = ["h100-80g", "b200-180g"];
const DEVICES: [u64; 3] = [64, 256, 2048];

/// What the program ends with where there is no plan of what it was given.
const REFUSED: i32 = 2;

/// A model that is trained, by the name of its configuration.
struct Trained {
    config: &'static str,
    sequence: u64,
    /// The examples of a step for each device: on the fewest, and on more.
    examples: [u64; 2],
}

/// Batches near those that their authors trained with: DeepSeek V3 took 15,360 sequences on 2,048 H800 (arXiv
/// 2412.19437, 4.2), Llama 3 16 million tokens on 16,384 H100 (arXiv 2407.21783, table 4).
const MODELS: [Trained; 3] = [
    Trained { config: "deepseek_v3", sequence: 4096, examples: [8, 4] },
    Trained { config: "qwen3_235b_a22b", sequence: 4096, examples: [8, 4] },
    Trained { config: "llama3_8b", sequence: 8192, examples: [1, 1] },
];

/// What is planned.
struct Case {
    framework: &'static str,
    config: &'static str,
    machine: String,
    sequence: u64,
    examples: u64,
}

impl Case {
    /// All of them.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for framework in FRAMEWORKS {
            for Trained { config, sequence, examples: [few, more] } in MODELS {
                for machine in MACHINES {
                    for devices in DEVICES {
                        let each = if devices == DEVICES[0] { few } else { more };
                        let machine = format!("{machine}-{devices}x");
                        all.push(Self { framework, config, machine, sequence, examples: each * devices });
                    }
                }
            }
        }
        all
    }

    fn name(&self) -> String {
        format!("{} {} {}", self.framework, self.config, self.machine)
    }

    /// The file of its model.
    fn config(&self, configs: &Path) -> PathBuf {
        configs.join(format!("{}.json", self.config))
    }

    /// What a user gives the program, but for where plans are written to.
    fn asked(&self, configs: &Path) -> Vec<String> {
        let Self { framework, machine, sequence, examples, .. } = self;
        let config = self.config(configs).display().to_string();
        let (examples, sequence) = (examples.to_string(), format!("sequence={sequence}"));
        let training = ["--mode", "train", "--loss", "loss", "--optimizer", "adamw", "--stages", "auto"];
        let first = ["plan", "--config", &config, "--machine", machine];
        let last = ["--global-batch", &examples, "--dim", &sequence, "--for", framework];
        [&first[..], &training, &last].concat().into_iter().map(str::to_owned).collect()
    }
}

/// Plans the cases.
pub(crate) fn measure(options: &Frameworks, say: &Say<'_>) -> Result<Report, Failure> {
    let words: Vec<&str> = options.only.split_whitespace().collect();
    let is_asked = |case: &Case| words.iter().all(|word| case.name().contains(word));
    let cases: Vec<Case> = Case::all().into_iter().filter(is_asked).collect();
    if cases.is_empty() {
        let all: Vec<String> = Case::all().iter().map(Case::name).collect();
        let message =
            format!("`--only {}` is in no case, expected words of {}", options.only, all.join(", "));
        return Err(Failure::Usage(message));
    }
    if let Some(missing) = cases.iter().map(|it| it.config(&options.configs)).find(|it| !it.is_file()) {
        let message = "there is no such file, expected the configuration of a model: run this in the repository, or name \
                       the folder by `--configs`";
        return Err(Failure::file(&missing, message));
    }
    let programs = match &options.programs[..] {
        [] => vec![std::env::current_exe().map_err(|error| Failure::internal("bench", error))?],
        all => all.to_vec(),
    };
    let mut text = String::from(
        "| for | model | devices | step | by its figures | tokens/s/GPU | planned in | peak memory |\n\
         |---|---|---|---:|---:|---:|---:|---:|\n",
    );
    let mut lines = Vec::new();
    let all = cases.len() * programs.len();
    for case in &cases {
        for program in &programs {
            say(Doing::one("planning", lines.len() + 1, Of::All(all)).named(case.name()));
            let line = planned(case, program, options)?;
            text += &row(case, &line);
            lines.push(line);
        }
    }
    let _ = write!(text, "{}", beside(&lines, &programs));
    Ok(Report { text, lines })
}

/// A case by a build of the program, as a ledger has it.
fn planned(case: &Case, program: &Path, options: &Frameworks) -> Result<Value, Failure> {
    let folder = Folder::new("frameworks", None)?;
    let plan = folder.path.join("plan.json").display().to_string();
    let asked = case.asked(&options.configs);
    let mut command = Command::new(program);
    command.args(&asked).args(["--json", "-o", &plan]);
    let start = Instant::now();
    let ended = child::run(&mut command, Duration::from_secs(options.limit));
    let seconds = start.elapsed().as_secs_f64();
    let mut line = json!({
        "benchmark": "frameworks",
        "for": case.framework,
        "model": case.config,
        "machine": case.machine,
        "command": format!("shardloom {}", asked.join(" ")),
        "planning_seconds": seconds,
    });
    // This program needs no name.
    if !options.programs.is_empty() {
        line["program"] = json!(program.display().to_string());
    }
    match ended {
        Ok(Ended { status, out, memory, .. }) if status.success() => {
            let made: Value = serde_json::from_str(&out).map_err(|error| {
                Failure::file(program, format!("`shardloom plan --json` printed no JSON: {error}"))
            })?;
            line["peak_memory"] = json!(memory);
            for (name, value) in [
                ("seconds", &made["seconds"]),
                ("expected_seconds", &made["expected"]["seconds"]),
                ("tokens_per_second_per_device", &made["tokens_per_second_per_device"]),
            ] {
                line[name] = value.clone();
            }
        }
        // What does not fit is refused: that is an answer.
        Ok(ended) if ended.status.code() == Some(REFUSED) => {
            line["refused"] = json!(ended.why());
            line["peak_memory"] = json!(ended.memory);
        }
        Ok(ended) => return Err(Failure::file(program, format!("{}: {}", case.name(), ended.why()))),
        Err(why) if start.elapsed().as_secs() >= options.limit => line["over"] = json!(why),
        Err(why) => return Err(Failure::file(program, why)),
    }
    Ok(line)
}

/// A row of the table.
fn row(case: &Case, line: &Value) -> String {
    let number = |name: &str| line[name].as_f64();
    let seconds = |name: &str| number(name).map_or_else(String::new, quantity::seconds);
    let step = match (&line["refused"], &line["over"]) {
        (Value::String(_), _) => "refused".to_owned(),
        (_, Value::String(_)) => "not over".to_owned(),
        _ => seconds("seconds"),
    };
    format!(
        "| {} | {} | {} | {step} | {} | {} | {} | {} |\n",
        case.framework,
        case.config,
        case.machine,
        seconds("expected_seconds"),
        number("tokens_per_second_per_device").map_or_else(String::new, |it| format!("{it:.0}")),
        seconds("planning_seconds"),
        line["peak_memory"].as_u64().map_or_else(String::new, quantity::bytes),
    )
}

/// How the first build compares with each of the others: how many times as long the others plan, and their plans
/// take, in the mean (geometric) and at most, of the cases that both plan.
fn beside(lines: &[Value], programs: &[PathBuf]) -> String {
    let [first, others @ ..] = programs else { return String::new() };
    let mut text = String::new();
    for (number, other) in others.iter().enumerate() {
        let mut compared = 0;
        let _ = write!(text, "\n{} beside {}:", other.display(), first.display());
        for (name, what) in [("planning_seconds", "planning"), ("seconds", "steps")] {
            let ratio = |lines: &[Value]| {
                let [one, two] = [&lines[0], &lines[number + 1]];
                // What was refused has no step.
                two["seconds"].as_f64()?;
                one["seconds"].as_f64()?;
                Some(two[name].as_f64()? / one[name].as_f64()?)
            };
            let ratios: Vec<f64> = lines.chunks(programs.len()).filter_map(ratio).collect();
            if ratios.is_empty() {
                continue;
            }
            compared = ratios.len();
            let count = f64::from(u32::try_from(ratios.len()).unwrap_or(u32::MAX));
            let mean = (ratios.iter().map(|it| it.ln()).sum::<f64>() / count).exp();
            let most = ratios.iter().copied().fold(0.0, f64::max);
            let _ = write!(text, " {what} {mean:.3} x in the mean, {most:.3} x at most;");
        }
        let _ = writeln!(text, " {compared} of {} cases are planned by both", lines.len() / programs.len());
    }
    text
}

#[cfg(test)]
mod tests;
