//! What a framework takes for a plan that is exported to it, by its own figures: what it is told is read back, as a
//! configuration that somebody wrote.
//!
//! A plan has the prices of Shardloom's programs. The figures of a framework are fitted to its published runs: what
//! its host waits for, how fast its attention is, what it has beside computing.

use ::export::model::Model;
use ::export::{Exported, Job, Runs, Strategy};
use cost_models::estimate::Estimate;
use cost_models::machine::Machine;
use predict::cluster::Links;
use predict::config;
use predict::framework::Framework;
use predict::kinds::{self, kinds};
use serde_json::{Value, json};

use crate::errors;
use crate::read::{self, Beside};
use crate::space::Runner;

/// What a framework takes.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Which.
    pub runner: Runner,
    /// The time of a step, by terms.
    pub time: Estimate,
    /// How far its published runs are from what is predicted, in the mean (percent).
    pub error: Option<f64>,
    /// What the fullest device holds (bytes).
    pub held: f64,
    /// How much of that a program may hold there (bytes).
    pub room: f64,
    /// Whether it fits.
    pub fits: bool,
}

/// What a framework takes for what it is told of a job, on machines with how many devices each; nothing of what is
/// not trained by one whose runs are known.
#[must_use]
pub fn expected(
    job: &Job<'_>,
    exported: &Exported,
    machines: Vec<(Machine, u64)>,
) -> Option<Result<Expected, String>> {
    let Runs::Strategy(strategy) = &exported.runs else { return None };
    let runner = Runner::ALL.into_iter().find(|it| it.target() == exported.target)?;
    let text = &exported.files.first()?.text;
    Some(priced(job, strategy, runner, text, machines))
}

fn priced(
    job: &Job<'_>,
    strategy: &Strategy,
    runner: Runner,
    text: &str,
    machines: Vec<(Machine, u64)>,
) -> Result<Expected, String> {
    let model = Model::of(job);
    // Arguments of Megatron say what the model is.
    let states = matches!(runner, Runner::Megatron | Runner::Bridge);
    let beside = Beside {
        model: if states { None } else { Some(sizes(&model, strategy)?.to_string()) },
        sequence: model.sequence,
        devices: Some(job.devices()),
    };
    let mut read = read::read(runner, text, &beside).map_err(|error| error.to_string())?;
    let name = machines.first().map(|it| it.0.name.clone()).unwrap_or_default();
    read.keys.insert("machine".to_owned(), name.into());
    let setup = config::of(read.keys).map_err(|error| error.to_string())?.setup;
    let framework = Framework::shipped(runner.figures()).map_err(|error| error.to_string())?;
    let kinds = kinds(machines, &framework, &Links::default(), "the machine").map_err(|it| it.to_string())?;
    let answer = kinds::answer(&setup, &kinds).map_err(|error| error.to_string())?;
    Ok(Expected {
        runner,
        time: answer.time,
        error: errors::together(&errors::of_steps(runner)),
        held: answer.held.total(),
        room: answer.room,
        fits: answer.fits,
    })
}

/// The sizes of a model as a `config.json` has them.
fn sizes(model: &Model, strategy: &Strategy) -> Result<Value, String> {
    let known = |what: &'static str, size: Option<u64>| {
        size.ok_or_else(|| format!("the program does not show the model's {what}"))
    };
    let [heads, keys, head] =
        model.heads.ok_or_else(|| "the program has no attention in one operation".to_owned())?;
    let units = model.units.or(model.experts.map(|it| it.units));
    let mut config = json!({
        "model_type": match (model.gated, model.experts) {
            (true, None) => "llama",
            (true, Some(_)) => "mixtral",
            (false, _) => "gpt_neox",
        },
        "hidden_size": known("hidden size", model.hidden)?,
        "vocab_size": known("vocabulary", model.vocabulary)?,
        "intermediate_size": known("hidden units", units)?,
        "num_hidden_layers": strategy.layer_count(),
        "num_attention_heads": heads,
        "num_key_value_heads": keys,
        "head_dim": head,
        "tie_word_embeddings": model.tied,
    });
    if let Some(experts) = model.experts {
        config["num_local_experts"] = json!(experts.count);
        config["num_experts_per_tok"] = json!(experts.active);
        config["moe_intermediate_size"] = json!(experts.units);
    }
    Ok(config)
}
