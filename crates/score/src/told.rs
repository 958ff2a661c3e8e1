//! What a framework takes for a plan that is exported to it, by its own figures: what it is told is read back, as a
//! configuration that somebody wrote.
//!
//! A plan has the prices of Shardloom's programs. The figures of a framework are fitted to its published runs: what
//! its host waits for, how fast its attention is, what it has beside computing.

use ::export::model::{Model, Trait};
use ::export::torchtitan::SCHEDULE;
use ::export::{Exported, Job, Runs, Strategy};
use cost_models::estimate::Estimate;
use cost_models::machine::Machine;
use plan::Scaling;
use planner_ir::{DType, Op, Optimizer};
use predict::cluster::{ClusterError, Links};
use predict::config;
use predict::framework::Framework;
use predict::kinds::{self, Kind, kinds};
use predict::setup::{Dispatch, Recompute, Setup};
use serde_json::{Value, json};

use crate::errors;
use crate::read::{self, Beside};
use crate::space::{Best, Choice, Runner, Search, Space};

/// What a framework takes.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Which.
    pub runner: Runner,
    /// What it is told, as a setup.
    pub setup: Setup,
    /// On which kinds of nodes.
    pub kinds: Vec<Kind>,
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

impl Expected {
    /// The fastest setup that fits of those that the framework runs and a plan can be, by its figures: of allowed ones, and
    /// of those that differ in the parts of stages alone, and hardly in time, the one that has fewest.
    /// Devices hold no more than `most` (bytes).
    pub fn fastest(&self, (allowed, most): (&dyn Fn(&Choice) -> bool, f64)) -> Result<Best, String> {
        let Setup { model, .. } = &self.setup;
        let devices = self.setup.devices();
        // A plan is what exports say.
        let says = self.runner.target().range().is_none_or(|it| it.overlaps_tensor);
        let space = Space::of(self.runner);
        let space = Space { tensor_overlap: space.tensor_overlap && says, ..space };
        let node =
            self.kinds.iter().map(|it| it.cluster.machine.devices_per_node()).min().unwrap_or(u64::MAX);
        let can_be = |it: &Choice| {
            let data = devices / (it.tp * it.pp * it.cp);
            // Devices that share experts are the nearest, along all of the axes of a mesh that they lie along.
            let nearest = it.tp * it.cp;
            let are_axes = it.ep.is_multiple_of(nearest) && data.is_multiple_of(it.ep / nearest);
            let experts = model.experts.is_none()
                || it.ep > 1 && it.etp == 1 && are_axes
                || it.ep == 1 && it.etp == it.tp;
            // Exports choose how tokens reach them.
            let once = (it.dispatch == Some(Dispatch::OncePerNode)) == (it.ep > node);
            let reached = it.ep == 1 || !space.once || once;
            let again = [Recompute::None, Recompute::Selective, Recompute::Full];
            experts && reached && again.contains(&it.recompute) && allowed(it)
        };
        let search = Search { base: &self.setup, kinds: &self.kinds };
        let told = |error: ClusterError| error.to_string();
        let best = search.best(&space, (&can_be, most)).map_err(told)?;
        let found = best.found.map(|found| search.in_fewer_parts(found, (&can_be, most)).map_err(told));
        Ok(Best { found: found.transpose()?, ..best })
    }
}

/// What a framework takes for what it is told of a job, on machines with how many devices each; nothing of what is
/// not trained by one whose runs are known. Where the model is a `config.json`, its text says what the model is.
///
/// Of products in fewer than 16 bits a framework may have others than a plan, or scales of another kind. What it takes is
/// then that of what it does (`alike` false): good enough to compare setups, and not said of the plan.
#[must_use]
pub fn expected(
    (job, alike): (&Job<'_>, bool),
    exported: &Exported,
    machines: Vec<(Machine, u64)>,
    config: Option<String>,
) -> Option<Result<Expected, String>> {
    let Runs::Strategy(strategy) = &exported.runs else { return None };
    let runner = Runner::ALL.into_iter().find(|it| it.target() == exported.target)?;
    let text = &exported.files.first()?.text;
    let model = Model::of(job);
    let priced = || {
        // Arguments of Megatron say what the model is.
        let states = matches!(runner, Runner::Megatron | Runner::Bridge);
        let narrow = || narrow(&model, strategy, runner).filter(|_| alike);
        if let Some(unlike) = unlike(job, &model, strategy, states).or_else(narrow) {
            return Err(unlike.to_owned());
        }
        let sizes = || sizes(&model, strategy).map(|it| it.to_string());
        let text_of_model = if states { None } else { Some(config.map_or_else(sizes, Ok)?) };
        let schedule = exported.files.iter().find(|it| it.name == SCHEDULE).map(|it| it.text.clone());
        let (sequence, devices) = (model.sequence, Some(job.devices()));
        let beside = Beside { model: text_of_model, sequence, devices, schedule };
        priced(runner, text, &beside, machines)
    };
    Some(priced())
}

/// What of a job no stated setup is.
fn unlike(job: &Job<'_>, model: &Model, strategy: &Strategy, states: bool) -> Option<&'static str> {
    let recipe = job.recipe()?;
    let causal = |op: &Op| if let Op::Attention(it) = op { it.causal } else { true };
    let stages = job.stages();
    let mut operations = stages.iter().flat_map(|plan| &plan.graph.nodes);
    if !recipe.roles.frozen.is_empty() {
        return Some("parameters are frozen, and prices of frameworks are of steps that train all");
    }
    if !matches!(recipe.optimizer, Optimizer::AdamW { .. }) {
        return Some("prices of frameworks are of steps with AdamW");
    }
    if strategy.element == DType::F32 {
        return Some("prices of frameworks are of steps in 16 bits: plan with `--precision bf16`");
    }
    if !operations.all(|node| causal(&node.op)) {
        return Some("attention is not causal, and prices of frameworks are of decoders");
    }
    if states && model.traits.contains(&Trait::States) {
        return Some("layers have states that go from token to token, which these arguments do not say");
    }
    if states && model.traits.contains(&Trait::GatedOtherwise) {
        return Some(
            "hidden units are gated by another function than SiLU, which these arguments do not say",
        );
    }
    None
}

/// What products in fewer than 16 bits are here and not there.
fn narrow(model: &Model, strategy: &Strategy, runner: Runner) -> Option<&'static str> {
    let scaling = strategy.scaling?;
    if runner == Runner::Torchtitan {
        return Some("its files do not say which products are of 8-bit numbers");
    }
    if scaling == Scaling::Blocks {
        return Some(
            "figures of 8-bit products are of those with one scale for a value, not for blocks of it",
        );
    }
    model.experts.map(|_| "experts are in bf16 in plans of narrow numbers, and narrow there")
}

pub(crate) fn priced(
    runner: Runner,
    text: &str,
    beside: &Beside,
    machines: Vec<(Machine, u64)>,
) -> Result<Expected, String> {
    let mut read = read::read(runner, text, beside).map_err(|error| error.to_string())?;
    let name = machines.first().map(|it| it.0.name.clone()).unwrap_or_default();
    read.keys.insert("machine".to_owned(), name.into());
    let setup = config::of(read.keys).map_err(|error| error.to_string())?.setup;
    let framework = Framework::shipped(runner.figures()).map_err(|error| error.to_string())?;
    let kinds = kinds(machines, &framework, &Links::default(), "the machine").map_err(|it| it.to_string())?;
    let answer = kinds::answer(&setup, &kinds).map_err(|error| error.to_string())?;
    Ok(Expected {
        runner,
        setup,
        kinds,
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
        "model_type": match (model.gated || model.traits.contains(&Trait::GatedOtherwise), model.experts) {
            (true, None) => "llama",
            (true, Some(_)) => "qwen3_moe",
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
    if strategy.further > 0 {
        config["num_nextn_predict_layers"] = json!(strategy.further);
    }
    if let Some(experts) = model.experts {
        config["num_experts"] = json!(experts.count);
        config["num_experts_per_tok"] = json!(experts.active);
        config["moe_intermediate_size"] = json!(experts.units);
        config["shared_expert_intermediate_size"] = json!(model.shared.unwrap_or(0));
        let without = model.layers_with_experts.iter().enumerate().filter(|it| !it.1);
        config["mlp_only_layers"] = json!(without.map(|it| it.0).collect::<Vec<usize>>());
    }
    if let Some(latent) = &model.latent {
        config["q_lora_rank"] = json!(latent.query_rank);
        config["kv_lora_rank"] = json!(latent.rank);
        config["qk_nope_head_dim"] = json!(latent.plain);
        config["qk_rope_head_dim"] = json!(latent.rotated);
        config["v_head_dim"] = json!(latent.value);
    }
    Ok(config)
}
