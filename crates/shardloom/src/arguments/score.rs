//! `score`: which configuration of which framework is scored, and on what.

use std::path::PathBuf;

use clap::Args;
use predict::framework::Framework;
use predict::setup::YEARS;
use score::space::Runner;

use super::SettingArguments;

/// `score`.
#[derive(Args, Clone, Debug)]
pub struct ScoreArguments {
    /// The configuration
    #[command(flatten)]
    pub of: ConfigurationArguments,
    /// Machine: a device and its number (`h100-80g-64x`), or a machine file
    #[arg(long, value_name = "MACHINE")]
    pub machine: String,
    /// What is set beside the machine file.
    #[command(flatten)]
    pub set: SettingArguments,
    /// The model's `config.json`, if the configuration does not state the model
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Length of an example (tokens), if the configuration does not state it
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub sequence: Option<u64>,
    /// Tokens of the busiest of the ranks that share experts over its even share, at worst [default: 1.72, of trained
    /// models]
    #[arg(long, value_name = "FACTOR", value_parser = imbalance)]
    pub imbalance: Option<f64>,
    /// Year of the framework's version, which the costs are to be of [default: the year of the framework's figures]
    #[arg(long, value_name = "YEAR", value_parser = year)]
    pub framework_year: Option<u64>,
    /// Write the setup too, as `predict --config` takes it
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// A number of at least 1.
fn imbalance(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 1.0);
    number.ok_or_else(|| "expected a number of at least 1, which is an even share".to_owned())
}

/// A year in which there are frameworks.
fn year(text: &str) -> Result<u64, String> {
    let number = text.trim().parse::<u64>().ok().filter(|it| YEARS.contains(it));
    number.ok_or_else(|| format!("expected a year from {} to {}", YEARS.start(), YEARS.end()))
}

/// The configuration of one framework.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct ConfigurationArguments {
    /// Arguments of Megatron-LM: a script, or the arguments in quotes
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub megatron: Option<String>,
    /// A configuration of Megatron-Bridge, YAML
    #[arg(long, value_name = "FILE")]
    pub bridge: Option<PathBuf>,
    /// A configuration of torchtitan, TOML or Python
    #[arg(long, value_name = "FILE")]
    pub torchtitan: Option<PathBuf>,
    /// A configuration of DeepSpeed, JSON
    #[arg(long, value_name = "FILE")]
    pub deepspeed: Option<PathBuf>,
}

/// Where a configuration is.
pub enum Where {
    /// In a file.
    File(PathBuf),
    /// On the command line.
    Here(String),
}

impl ConfigurationArguments {
    /// Whether the figures of its framework have a trend by the year of the version.
    pub(super) fn has_trend(&self) -> bool {
        let framework = self.stated().and_then(|(runner, _)| Framework::shipped(runner.figures()).ok());
        framework.is_some_and(|it| it.has_trend())
    }

    /// Whose it is, and where; none of several is given, as clap sees to.
    pub fn stated(&self) -> Option<(Runner, Where)> {
        let Self { megatron, bridge, torchtitan, deepspeed } = self;
        if let Some(text) = megatron {
            let here = text.trim_start().starts_with("--");
            let place = if here { Where::Here(text.clone()) } else { Where::File(PathBuf::from(text)) };
            return Some((Runner::Megatron, place));
        }
        let files =
            [(Runner::Bridge, bridge), (Runner::Torchtitan, torchtitan), (Runner::Deepspeed, deepspeed)];
        files.into_iter().find_map(|(runner, file)| Some((runner, Where::File(file.clone()?))))
    }
}

pub(super) const HELP: &str = "\
Examples:
  shardloom score --megatron train.sh --machine h100-80g-64x
  shardloom score --megatron '--num-layers 32 --hidden-size 4096 ..' --machine h100-80g-8x
  shardloom score --torchtitan llama3_8b.toml --machine h100-80g-8x
  shardloom score --deepspeed ds.json --config config.json --sequence 4096 --machine a100-80g-16x
  shardloom score --bridge recipe.yaml --machine b200-180g-64x --framework-year 2026

Costs are those of `predict`, with the framework's figures. The search space is every setup that the framework
runs on this many devices.";
