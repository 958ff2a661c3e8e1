//! What a run is made with, in words: what has to be the same, or be said, when it goes on.

use files::Failure;
use files::checkpoint::{Settings, optimizer_name};
use plan::{Masters, Recipe};
use planner_ir::Optimizer;

use super::data::Data;
use super::schedule::{Schedule, Shape};

/// What may change from one part of a run to the next, as schedules do.
const RATE: &str = "learning rate";

/// Where parameters are in f32; not said where that is beside others.
pub(crate) const MASTERS: &str = "masters";

/// The settings of a run, of which a checkpoint is told.
pub(crate) fn settings(schedule: &Schedule, recipe: &Recipe, data: &Data) -> Result<Settings, Failure> {
    let mut settings = Settings::new();
    let mut set = |name: &str, value: String| {
        settings.insert(name.to_owned(), value);
    };
    set("loss", recipe.loss.to_string());
    set("optimizer", optimizer_name(recipe.optimizer).to_owned());
    set("precision", recipe.precision.to_string());
    if recipe.masters != Masters::default() {
        set(MASTERS, recipe.masters.to_string());
    }
    let decay = match recipe.optimizer {
        Optimizer::Sgd { decay } => decay,
        Optimizer::Momentum { momentum, decay } => {
            set("momentum", momentum.0.to_string());
            decay
        }
        Optimizer::AdamW { beta1, beta2, epsilon, decay } => {
            set("betas", format!("{},{}", beta1.0, beta2.0));
            set("epsilon", epsilon.0.to_string());
            decay
        }
    };
    set("weight decay", decay.0.to_string());
    let vectors = recipe.no_decay.vectors.then(|| "vectors".to_owned());
    let without: Vec<String> = vectors.into_iter().chain(recipe.no_decay.names.iter().cloned()).collect();
    set("parameters without decay", listed(&without));
    set("frozen parameters", listed(&recipe.roles.frozen));
    set("clipping", recipe.clip.map_or_else(|| "none".to_owned(), |norm| norm.to_string()));
    set("number of examples in a step", (data.per_micro_batch * recipe.micro_batches).to_string());
    set("data", format!("SHA-256 {}", data.sha256()?));
    set(RATE, rate(schedule));
    Ok(settings)
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn rate(schedule: &Schedule) -> String {
    let Schedule { peak: lr, least: min_lr, warmup, last: steps, shape } = schedule;
    let warmup = if *warmup > 0 { format!(", {warmup} steps of warm-up") } else { String::new() };
    match shape {
        Shape::Constant => format!("{lr:e}{warmup}"),
        Shape::Linear => format!("{lr:e} to {min_lr:e} by step {steps}, linear{warmup}"),
        Shape::Cosine => format!("{lr:e} to {min_lr:e} by step {steps}, cosine{warmup}"),
    }
}

/// What is another than it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of what.
    pub name: String,
    /// What it was; `none` if it was not there.
    pub before: String,
    /// What it is.
    pub now: String,
}

impl Change {
    /// Whether it may be so without being asked for.
    pub fn is_usual(&self) -> bool {
        self.name == RATE
    }
}

/// What has changed, by name.
pub(crate) fn changes(before: &Settings, now: &Settings) -> Vec<Change> {
    let of =
        |settings: &Settings, name: &str| settings.get(name).cloned().unwrap_or_else(|| "none".to_owned());
    let mut names: Vec<&String> = before.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let change = |name: &String| Change { name: name.clone(), before: of(before, name), now: of(now, name) };
    names.into_iter().map(change).filter(|it| it.before != it.now).collect()
}
