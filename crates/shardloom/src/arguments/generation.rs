//! What generation is told.

use std::path::PathBuf;

use clap::Args;
use driver::generation::roles::{Role, Told};
use launch::arguments::{ClusterArguments, DeviceArguments};
use plan::{Form, Kept};

/// What stands below the help of `generate`.
pub(super) const HELP: &str = "\
Examples:
  shardloom plan model.onnx --machine cpu-4x --mesh 4 --mode generate --context 128 -o plan.json
  shardloom generate plan.json --prompt-ids 1,2,3 --max-new-tokens 20
  shardloom generate plan.json --prompt-ids 1,2,3 --temperature 0.8 --top-k 40 --top-p 0.95 --seed 7
  shardloom generate plan.json --prompts prompts.txt --stop 50256 --json
  shardloom generate plan.json --prompt-ids 1,2,3 --device cuda
  shardloom launch -n 4 generate plan.json --prompt-ids 1,2,3

A line for each step: the token of each sequence, `-` for one that has ended. The same seed gives the
same tokens on every mesh.";

/// Arguments of `plan` that only generation has.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArguments {
    /// Number of sequences generated at once [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: Option<u64>,
    /// Number of prompt tokens processed at once [default: 64, or the context if that is shorter]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub prompt: Option<u64>,
    /// Maximum length of a sequence (tokens), prompt included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub context: Option<u64>,
    /// Sharding of the cache, such as `[a,-,-,-]` or `[-,a,-,-]`; the default tries all
    #[arg(long, value_name = "LAYOUT")]
    pub cache_layout: Option<String>,
    /// Name the input that is `tokens`, `mask` or `positions`, or the output that is `logits`; may be
    /// repeated
    #[arg(long = "role", value_name = "ROLE=NAME", value_parser = role)]
    pub roles: Vec<(Role, String)>,
    /// Name the output that replaces an input of the cache in the next step; once for each tensor of the
    /// cache
    #[arg(long = "kept", value_name = "INPUT=OUTPUT", value_parser = kept)]
    pub kept: Vec<Kept>,
}

impl GenerationArguments {
    /// What is said of inputs and outputs.
    pub(crate) fn told(&self) -> Told {
        Told { roles: self.roles.clone(), kept: self.kept.clone() }
    }
}

/// `generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArguments {
    /// The plan: of `plan --mode generate`
    pub plan: PathBuf,
    /// The tokens of a prompt; once for each sequence
    #[arg(long = "prompt-ids", value_name = "ID,ID,..", value_parser = ids, required_unless_present = "prompts")]
    pub prompt_ids: Vec<Prompt>,
    /// Prompts, a line each: numbers with commas or blanks between them
    #[arg(long, value_name = "FILE", conflicts_with = "prompt_ids")]
    pub prompts: Option<PathBuf>,
    /// Maximum number of new tokens in each sequence, within the context
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_new_tokens: u64,
    /// Sampling temperature; 0 takes the likeliest token
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = temperature)]
    pub temperature: f64,
    /// Sample among this many of the likeliest tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub top_k: Option<u64>,
    /// Sample among the fewest of the likeliest tokens whose probabilities add up to this (nucleus sampling)
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = mass)]
    pub top_p: f64,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// A token that ends its sequence; may be repeated
    #[arg(long, value_name = "ID")]
    pub stop: Vec<i64>,
    /// Path of the plan's model, if it has moved since the plan was made
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Device that ranks run on.
    #[command(flatten)]
    pub on: DeviceArguments,
    /// What holds where each rank is a process.
    #[command(flatten)]
    pub cluster: ClusterArguments,
}

/// The tokens of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt(pub Vec<i64>);

/// Numbers with commas or blanks between them.
pub(crate) fn ids(text: &str) -> Result<Prompt, String> {
    let words = text.split(|it: char| it == ',' || it.is_whitespace()).filter(|it| !it.is_empty());
    let ids =
        words.map(|word| word.parse().map_err(|_| format!("`{word}`, expected a number such as in `1,2,3`")));
    let ids: Vec<i64> = ids.collect::<Result<_, String>>()?;
    if ids.is_empty() { Err("no token, expected at least one: `1,2,3`".to_owned()) } else { Ok(Prompt(ids)) }
}

fn role(text: &str) -> Result<(Role, String), String> {
    let expected = || {
        let names = Role::ALL.map(Role::name).join(", ");
        format!("expected one of {names} and a name, such as `tokens=input_ids`")
    };
    let (role, name) = text.split_once('=').ok_or_else(expected)?;
    let role = Role::ALL.into_iter().find(|it| it.name() == role).ok_or_else(expected)?;
    Ok((role, name.to_owned()))
}

fn kept(text: &str) -> Result<Kept, String> {
    let parts = text.split_once('=').filter(|(past, present)| !past.is_empty() && !present.is_empty());
    let (past, present) = parts.ok_or("expected an input and an output: `past.0.key=present.0.key`")?;
    // Its name says what it has of tokens.
    Ok(Kept { past: past.to_owned(), present: present.to_owned(), form: Form::Entries, window: None })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|it| it.is_finite())
}

fn temperature(text: &str) -> Result<f64, String> {
    number(text).filter(|it| *it >= 0.0).ok_or_else(|| "expected a number from 0".to_owned())
}

fn mass(text: &str) -> Result<f64, String> {
    let it = number(text).filter(|it| *it > 0.0 && *it <= 1.0);
    it.ok_or_else(|| "expected a number above 0, at most 1".to_owned())
}
