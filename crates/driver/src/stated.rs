//! A stated setup as a pinned plan: its model is written, and what it says is fixed.
//!
//! What a setup says and a plan cannot be is refused, with the reason; nothing is taken as something else but
//! this: 16-bit floating point is that of the setup, the mean of gradients is summed as the program has them,
//! and attention is one kernel.

use std::collections::BTreeSet;
use std::path::Path;

use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use export::Strategy;
use export::strategy::Again;
use files::Failure;
use files::model_file::{self, ModelFile};
use import::Bindings;
use models::Use;
use plan::json::Content;
use plan::{Loss, Masters, NoDecay, Precision, Recipe, Scaling};
use planner_ir::{DType, Optimizer, Real};
use predict::framework::{Figure, Framework, PROGRAMS};
use predict::kinds::{self, Kind};
use predict::model::{Embedding, Mlp, Model};
use predict::schedule;
use predict::setup::{Arithmetic, Attention, Learns, Recompute, Setup, Zero};
use serde_json::{Value, json};

use crate::compile;
use crate::pinned::{self, Job};
use crate::pipeline::{self, parameters};

/// What a device may hold where that is no question: a setup that ran fitted (bytes).
const ROOM: u64 = 1 << 52;

/// The devices of a setup, which are like these.
pub fn cluster(setup: &Setup, machine: &Machine) -> Result<Cluster, Failure> {
    let machine = machine.clone().with_devices(setup.devices());
    machine.map(Cluster::of).map_err(|error| Failure::Input(error.to_string()))
}

/// The same setup on the most devices, of its nodes or of one, over which its states can be sharded, where they
/// cannot on all of them: with as many examples on each, a device does the same work there.
///
/// Frameworks shard vectors of all parameters together, with a rest; plans shard each in equal parts.
pub fn divisible(setup: &Setup, node: u64) -> Setup {
    let fits = |dp: &u64| {
        let devices = setup.devices() / setup.dp * dp;
        setup.model.hidden.is_multiple_of(*dp) && (devices <= node || devices.is_multiple_of(node))
    };
    let is_sharded = matches!(setup.zero, Zero::Optimizer | Zero::Gradients | Zero::Weights);
    let dp = (1..=setup.dp).rev().find(fits).filter(|_| is_sharded).unwrap_or(setup.dp);
    Setup { dp, gbs: setup.gbs / setup.dp * dp, ..setup.clone() }
}

/// The plan that a setup is on its devices.
pub fn planned(setup: &Setup, cluster: &Cluster) -> Result<Content, Failure> {
    let strategy = strategy(setup, cluster).map_err(Failure::Input)?;
    can_be_exact(setup, strategy.sharded).map_err(Failure::Input)?;
    let text = config(&setup.model, setup.precision).map_err(Failure::Input)?.to_string();
    let file = model_file::configured(Path::new("config.json"), text.as_bytes(), Use::Loss)?;
    let recipe = recipe(&strategy);
    let bindings = bindings(&file, setup, &recipe);
    let graph = pipeline::import(&file, &bindings, &mut |_, _| {});
    let graph = graph.map_err(|error| compile::refusal(&file, &error))?;
    let header = compile::header(&file, &bindings, &graph);
    let job = Job {
        file: &file,
        graph: &graph,
        header: &header,
        recipe: &recipe,
        memory: Some(ROOM),
        cluster,
        exact: true,
    };
    if strategy.layers.len() == 1 {
        return pinned::plan(&job, &strategy).map(|plan| Content::Plan(Box::new(plan)));
    }
    pinned::pipeline(&job, (&strategy, &[]), None, &|_| {})
        .map(|pipeline| Content::Pipeline(Box::new(pipeline)))
}

/// What a framework adds to a step of our programs, or saves, by name (seconds): the difference that its figures
/// make, where both do the setup.
///
/// Our programs have attention in one kernel, and no traffic of tensor parallelism beside computing. That of data
/// parallelism is beside computing wherever it may be: gradients that are summed once for several micro-batches are
/// summed after the last of them, and those of experts are added up by an operation of its own.
pub fn framework_terms(setup: &Setup, kind: &Kind) -> Result<Vec<(String, f64)>, Failure> {
    let price = |setup: &Setup, framework: Framework| {
        let kind = Kind { framework: framework.on(&kind.cluster.machine.name), ..kind.clone() };
        kinds::answer(setup, &[kind]).map_err(|error| Failure::Input(error.to_string()))
    };
    let programs = Framework::shipped(PROGRAMS).map_err(|error| Failure::internal("predict", error))?;
    let ours = Setup {
        attention: if setup.attention == Attention::FusedF8 { setup.attention } else { Attention::Fused },
        tp_overlap: false,
        dp_overlap: setup.microbatches() == 1 || setup.zero >= Zero::Gradients,
        year: None,
        gradient_bytes: None,
        ..setup.clone()
    };
    let programs =
        if setup.microbatches() > 1 { programs } else { programs.without(Figure::AccumulationBytes) };
    let (theirs, ours) = (price(setup, kind.framework.clone())?.time, price(&ours, programs)?.time);
    let names: BTreeSet<&str> =
        theirs.terms().iter().chain(ours.terms()).map(|term| term.name.as_str()).collect();
    let difference = |name: &str| (name.to_owned(), theirs.of(name).0 - ours.of(name).0);
    Ok(names.into_iter().map(difference).filter(|(_, time)| time.abs() > 0.0).collect())
}

/// The sizes of a micro-batch of all data parallel devices.
fn bindings(file: &ModelFile, setup: &Setup, recipe: &Recipe) -> Bindings {
    let dims = [("batch", setup.mbs * setup.dp), ("sequence", setup.model.seq)];
    Bindings {
        dims: dims.map(|(name, size)| (name.to_owned(), size)).into(),
        parameters: parameters::single(file, &recipe.roles),
        ..Bindings::default()
    }
}

/// The configuration of a model that is written like this one.
fn config(model: &Model, precision: Arithmetic) -> Result<Value, String> {
    let dtype = match precision {
        Arithmetic::Bf16 | Arithmetic::F8 => "bfloat16",
        Arithmetic::F16 => "float16",
        Arithmetic::F4 => {
            return Err("stated products in 4 bits are priced by the figures of frameworks, and not planned"
                .to_owned());
        }
    };
    if model.further > 0 {
        return Err("layers of a stated setup that predict further tokens are not written".to_owned());
    }
    if model.latent.is_some() {
        return Err("latent attention of a stated setup is not written".to_owned());
    }
    if model.dense.is_some() {
        return Err("layers without experts among others with some are not written".to_owned());
    }
    if precision == Arithmetic::F8 && model.experts.is_some() {
        return Err("experts with products in 8 bits are not planned".to_owned());
    }
    let tied = model.embedding == Embedding::Tied;
    let gated = json!({
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_size,
        "num_hidden_layers": model.layers,
        "vocab_size": model.vocab,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": tied,
        "dtype": dtype,
    });
    let with = |model_type: &str, more: Value| {
        let mut all = gated.clone();
        all["model_type"] = json!(model_type);
        for (key, value) in more.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        all
    };
    match (model.mlp, model.experts) {
        (Mlp::Gated, None) => Ok(with("llama", json!({ "intermediate_size": model.ffn_hidden }))),
        (Mlp::Gated, Some(experts)) if experts.shared == 0 => Ok(with(
            "mixtral",
            json!({
                "intermediate_size": model.ffn_hidden,
                "num_local_experts": experts.count,
                "num_experts_per_tok": experts.top_k,
            }),
        )),
        (Mlp::Plain, None)
            if model.kv_heads == model.heads && model.heads * model.head_size == model.hidden =>
        {
            Ok(json!({
                "model_type": "gpt2",
                "n_embd": model.hidden,
                "n_head": model.heads,
                "n_layer": model.layers,
                "n_inner": model.ffn_hidden,
                "n_positions": model.seq,
                "vocab_size": model.vocab,
                "tie_word_embeddings": tied,
                "dtype": dtype,
            }))
        }
        (Mlp::Plain, None) => {
            Err("heads of a GPT that do not part its hidden vector are not written".to_owned())
        }
        (Mlp::Gated, Some(_)) => Err("experts beside one that all tokens go to are not written".to_owned()),
        (Mlp::Plain, Some(_)) => Err("experts without gates are not written".to_owned()),
    }
}

/// The names of layers, before their number.
fn prefix(model: &Model) -> &'static str {
    if model.mlp == Mlp::Plain { "transformer.h" } else { "model.layers" }
}

/// Refuses a setup that a plan is not which does exactly what it says.
fn can_be_exact(setup: &Setup, sharded: u64) -> Result<(), String> {
    if setup.ep > 1 && setup.etp != 1 {
        return Err(
            "products of experts in parts, beside experts on several devices, are not planned".to_owned()
        );
    }
    let hidden = setup.model.hidden;
    if setup.zero.stage() > 0 && !hidden.is_multiple_of(sharded) {
        return Err(format!("vectors of {hidden} elements are not sharded over {sharded} devices"));
    }
    Ok(())
}

/// What a setup says, in the words of those who split models by hand.
pub fn strategy(setup: &Setup, cluster: &Cluster) -> Result<Strategy, String> {
    let Setup { tp, pp, cp, ep, dp, mbs, .. } = *setup;
    if setup.learns == Learns::Adapters {
        return Err("adapters beside frozen weights are not planned".to_owned());
    }
    let [_, chunks, micro_batches] = schedule::sizes(setup);
    let [chunks, micro_batches] = [chunks, micro_batches].map(|it| u64::try_from(it).unwrap_or(u64::MAX));
    let zero = setup.zero.stage();
    let sharded = match setup.zero {
        Zero::WeightsInNode => (cluster.devices_per_node() / tp).clamp(1, dp),
        _ => dp,
    };
    let recompute = match setup.recompute {
        Recompute::None => Again::Nothing,
        Recompute::Selective => Again::Selective,
        Recompute::Full => Again::Full,
        Recompute::HalfOfProducts | Recompute::HalfOfLayers => {
            return Err("recomputation differs from layer to layer".to_owned());
        }
    };
    Ok(Strategy {
        devices: setup.devices(),
        tensor: tp,
        sequence: setup.seq_parallel,
        data: dp,
        sharded,
        zero: if dp > 1 { zero } else { 0 },
        context: cp,
        experts: ep,
        across: ep > cluster.devices_per_node(),
        pipeline: pp,
        chunks,
        layers: layers(setup, chunks)?,
        further: setup.model.further,
        prefix: prefix(&setup.model).to_owned(),
        schedule: Some(schedule::kind(setup)),
        micro_batches,
        micro_batch: mbs,
        recompute,
        element: if setup.precision == Arithmetic::F16 { DType::F16 } else { DType::BF16 },
        scaling: (setup.precision == Arithmetic::F8).then_some(Scaling::Whole),
        masters: Some(Masters::default()),
        optimizer: ADAMW,
        clip: Some(1.0),
    })
}

/// The layers of each stage, in the order of the model: those of a group of devices in equal parts.
fn layers(setup: &Setup, chunks: u64) -> Result<Vec<u64>, String> {
    if let Some(layers) = setup.stages.iter().find(|it| !it.is_multiple_of(chunks)) {
        return Err(format!("{layers} layers of a group of devices are not {chunks} equal parts"));
    }
    Ok((0..chunks).flat_map(|_| setup.stages.iter().map(move |layers| layers / chunks)).collect())
}

const ADAMW: Optimizer =
    Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.1) };

fn recipe(strategy: &Strategy) -> Recipe {
    Recipe {
        precision: strategy.scaling.map_or(Precision::File, Scaling::precision),
        masters: strategy.masters.unwrap_or_default(),
        micro_batches: strategy.micro_batches,
        clip: strategy.clip,
        no_decay: NoDecay { names: vec![], vectors: true },
        ..Recipe::new(Loss::Output("loss".to_owned()), strategy.optimizer)
    }
}

#[cfg(test)]
mod tests;
