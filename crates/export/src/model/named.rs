//! What of a model the names of its parameters tell, as checkpoints of Hugging Face have them.

use std::collections::BTreeSet;

use plan::Plan;
use planner_ir::{Source, ValueId};

use super::{Latent, Model, Trait};
use crate::layers::{layer, trained};

/// A parameter: its name, and how many numbers it has.
type Named = (String, u64);

/// Adds to a model of which all else is known what names tell.
pub(super) fn look_at(model: &mut Model, stages: &[&Plan]) {
    let all: Vec<Named> = stages.iter().flat_map(|plan| parameters(plan)).collect();
    let ends = |end: &str| all.iter().find(|it| it.0.ends_with(end)).map(|it| it.1);
    let table = all.iter().find(|it| PLACES.iter().any(|place| it.0.contains(place)));
    model.positions = table.zip(model.hidden).map(|(it, hidden)| it.1 / hidden.max(1));
    let biases: Vec<&str> = all.iter().filter_map(|it| it.0.strip_suffix(".bias")).collect();
    let of_queries = |it: &str| QUERIES.iter().any(|name| it.ends_with(name));
    model.biases_of_queries = biases.iter().any(|it| of_queries(it));
    model.biases = biases.iter().any(|it| !of_queries(it) && layer(it).is_some() && !is_no_product(it));
    for (ends, its) in UNLIKE {
        if all.iter().any(|it| it.0.ends_with(ends)) {
            model.traits.insert(its);
        }
    }
    model.tied = !all.iter().any(|it| is_head(&it.0, model));
    model.latent = latent(model, &ends);
    let norm = ends(".q_norm.weight").or(ends(".q_layernorm.weight"));
    let latent = [".q_a_layernorm.weight", ".kv_a_layernorm.weight"].iter().find_map(|it| ends(it));
    model.query_norms = norm.or(latent).is_some();
    if norm.zip(model.heads).is_some_and(|(numbers, [.., size])| numbers > size) {
        model.traits.insert(Trait::NormsOverHeads);
    }
    model.shared_gate = ends(".shared_expert_gate.weight").is_some();
    let shared = ["shared_experts", "shared_expert"];
    let shared = shared.iter().find_map(|it| ends(&format!(".{it}.down_proj.weight")));
    model.shared = shared.zip(model.hidden).map(|(numbers, hidden)| numbers / hidden.max(1));
    let layers: BTreeSet<u64> = all.iter().filter_map(|it| Some(layer(&it.0)?.1)).collect();
    let with: BTreeSet<u64> =
        all.iter().filter(|it| it.0.contains(".experts.")).filter_map(|it| Some(layer(&it.0)?.1)).collect();
    model.layers_with_experts = layers.iter().map(|it| with.contains(it)).collect();
    model.router_bias = stages.iter().any(|plan| has_router_bias(plan));
}

/// What products are called that make queries, keys and values.
const QUERIES: [&str; 8] =
    ["q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn", "Wqkv", "attention.qkv"];

/// What tables of positions are called.
const PLACES: [&str; 3] = ["wpe", "embed_positions", "position_embeddings"];

/// Ends of names that tell what is not as decoders usually are.
const UNLIKE: [(&str, Trait); 4] = [
    ("lm_head.bias", Trait::HeadBias),
    ("post_feedforward_layernorm.weight", Trait::NormsBehind),
    ("post_mlp_layernorm.weight", Trait::NormsBehind),
    (".eh_proj.weight", Trait::Further),
];

/// Whether a bias is none of a linear layer.
fn is_no_product(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.contains("norm") || last.starts_with("ln_") || last.contains("conv1d") || last.contains("router")
}

fn parameters(plan: &Plan) -> Vec<Named> {
    let numbers = |value: ValueId| plan.graph.type_of(value).elements();
    trained(plan).into_iter().map(|(value, name)| (name.to_owned(), numbers(value))).collect()
}

/// The vectors that queries, keys and values are made of: whichever way round products hold their weights.
fn latent(model: &Model, ends: &dyn Fn(&str) -> Option<u64>) -> Option<Latent> {
    let ([heads, _, size], hidden) = (model.heads?, model.hidden.filter(|it| *it > 0)?);
    let rank = ends(".kv_a_layernorm.weight").filter(|it| *it > 0)?;
    let rotated = (ends(".kv_a_proj_with_mqa.weight")? / hidden).checked_sub(rank)?;
    let plain = size.checked_sub(rotated)?;
    let value = (ends(".kv_b_proj.weight")? / rank / heads.max(1)).checked_sub(plain)?;
    Some(Latent { query_rank: ends(".q_a_layernorm.weight"), rank, plain, rotated, value })
}

/// Whether a parameter makes the scores of tokens: by the name that almost all models give it.
fn is_head(name: &str, model: &Model) -> bool {
    let is_table = model.embedding.as_deref() == Some(name);
    !is_table
        && layer(name).is_none()
        && ["lm_head", "output", "embed_out"].iter().any(|it| name.contains(it))
}

/// Whether experts are chosen by sigmoids with a bias that the choice alone has.
fn has_router_bias(plan: &Plan) -> bool {
    plan.graph.value_ids().any(|value| {
        let name = match &plan.graph.value(value).source {
            Source::State(state) => &state.name,
            Source::Weight(name) => name,
            Source::Input(_) | Source::Result { .. } => return false,
        };
        name.ends_with("e_score_correction_bias")
    })
}
