//! A setup as a configuration file states it: TOML, in Megatron's words.
//!
//! ```toml
//! machine = "h100-80g"
//! framework = "nemo"
//! num_layers = 80
//! hidden_size = 8192
//! num_attention_heads = 64
//! seq_length = 8192
//! tensor_model_parallel_size = 4
//! pipeline_model_parallel_size = 8
//! global_batch_size = 128
//! world_size = 64
//! ```
//!
//! Every key is listed in [`KEYS`], with what it is taken to be where it is left out; `docs/predict.md` is made
//! of them.

pub mod keys; // every key, and the page of them
mod model; // what is trained
mod sizes; // what is stated, with the sizes of a model that is named

use std::fmt;

use ::schedule::Kind;
use cost_models::units::{BytesPerSecond, exact};
pub use toml::Table;
use toml::Value;

pub use keys::KEYS;
use model::model;
use sizes::MODEL;
pub use sizes::{Sizes, read};

use crate::chip::Chip;
use crate::cluster::Links;
use crate::model::{Model, even_stages};
use crate::setup::{Arithmetic, Attention, Dispatch, Graph, Learns, Recompute, Setup, SetupError, Zero};
use crate::table::MOST;

/// What a configuration file states.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device type or machine file.
    pub machine: String,
    /// The framework.
    pub framework: String,
    /// The setup.
    pub setup: Setup,
    /// What is stated of a device in place of the machine file.
    pub chip: Chip,
    /// The same of nodes and links.
    pub links: Links,
    /// The keys that are left out, and what they are taken to be.
    pub assumed: Vec<(&'static str, &'static str)>,
}

/// Why a text is not a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigError {
    /// Not TOML: what the reader says, with the place.
    Toml(String),
    /// A key that does not exist, and the one that is nearest to it.
    Unknown(String),
    /// A key that must be stated.
    Missing(&'static str),
    /// A value that is not what the key takes.
    Value {
        /// The key.
        key: &'static str,
        /// What it says.
        found: String,
        /// What it takes.
        expected: String,
    },
    /// The file of a model whose sizes are not read: its name, why.
    Model(String, String),
    /// Degrees of parallelism that do not divide the devices.
    World {
        /// The number of devices.
        world: u64,
        /// Devices of a replica: tp x pp x cp.
        replica: u64,
    },
    /// What ranks, stages or groups of heads cannot share equally.
    Uneven {
        /// What is shared.
        key: &'static str,
        /// How much of it there is.
        count: u64,
        /// What shares it.
        by: &'static str,
        /// How many there are.
        parts: u64,
    },
    /// Numbers that make no setup.
    Setup(SetupError),
}

/// The configuration of these keys.
pub fn of(table: Table) -> Result<Config, ConfigError> {
    if let Some(key) =
        table.keys().find(|key| *key == MODEL || !KEYS.iter().any(|known| known.name == key.as_str()))
    {
        return Err(ConfigError::Unknown(key.clone()));
    }
    let fields = Fields { table };
    let model = model(&fields)?;
    let one = |key| fields.count(key).map(|it| it.unwrap_or(1));
    let (tp, pp) = (one("tensor_model_parallel_size")?, one("pipeline_model_parallel_size")?);
    let vpp = one("virtual_pipeline_model_parallel_size")?;
    let (cp, world) = (one("context_parallel_size")?, fields.needed("world_size")?);
    let replica = tp * pp * cp;
    if replica == 0 || world == 0 || !world.is_multiple_of(replica) {
        return Err(ConfigError::World { world, replica });
    }
    let setup = Setup {
        learns: if fields.flag("lora", false)? { Learns::Adapters } else { Learns::Everything },
        tp,
        pp,
        vpp,
        stages: fields.counts("pipeline_layers")?.unwrap_or_else(|| usual(&model, pp, vpp)),
        cp,
        ep: one("expert_model_parallel_size")?,
        etp: fields.count("expert_tensor_parallel_size")?.unwrap_or(tp),
        dispatch: dispatch(&fields)?,
        imbalance: imbalance(&fields)?,
        dp: world / replica,
        mbs: one("micro_batch_size")?,
        packed: false,
        gbs: fields.needed("global_batch_size")?,
        zero: zero(&fields)?,
        seq_parallel: fields.flag("sequence_parallel", false)?,
        recompute: fields.choice("recompute_granularity", &RECOMPUTE)?,
        attention: attention(&fields)?,
        precision: fields.choice("precision", &PRECISION)?,
        year: fields.count("framework_year")?,
        gradient_bytes: fields.count("grad_reduce_bytes")?,
        schedule: fields.choice("schedule", &SCHEDULE)?,
        graphs: graphs(&fields)?,
        dp_overlap: fields.flag("overlap_grad_reduce", true)?,
        tp_overlap: fields.flag("tp_comm_overlap", false)?,
        model,
    };
    setup.check().map_err(ConfigError::Setup)?;
    even(&setup)?;
    alone(&fields, &setup)?;
    let left_out = KEYS.into_iter().filter(|key| key.name != MODEL && !fields.table.contains_key(key.name));
    let assumed = left_out.map(|key| (key.name, key.absent)).collect();
    Ok(Config {
        machine: fields.text("machine")?.ok_or(ConfigError::Missing("machine"))?,
        framework: fields.text("framework")?.unwrap_or_else(|| "megatron-core".to_owned()),
        setup,
        chip: chip(&fields)?,
        links: links(&fields)?,
        assumed,
    })
}

/// Layers of stages where nobody says otherwise: where stages have parts, equal shares of those that predict next
/// tokens, and the others in the last, as Megatron has them.
fn usual(model: &Model, pp: u64, vpp: u64) -> Vec<u64> {
    if vpp <= 1 || model.further == 0 {
        return model.stages(pp);
    }
    let mut stages = even_stages(model.layers - model.further.min(model.layers), pp);
    stages.iter_mut().last().into_iter().for_each(|last| *last += model.further);
    stages
}

/// What is stated of a device.
fn chip(fields: &Fields) -> Result<Chip, ConfigError> {
    Ok(Chip {
        power: fields.amount("device_power")?,
        memory: fields.amount("device_memory")?.map(|it| GIGA * it),
        bandwidth: fields.amount("device_memory_bandwidth")?.map(|it| BytesPerSecond(GIGA * it)),
    })
}

/// What is stated of nodes and links.
fn links(fields: &Fields) -> Result<Links, ConfigError> {
    let adapters = fields.positive("adapters_per_node")?;
    let rate = fields.amount("adapter_bandwidth")?.map(|it| BytesPerSecond(GIGA * it));
    Ok(Links {
        node: fields.positive("gpus_per_node")?,
        switch: None,
        adapters,
        network: None,
        adapter: rate,
    })
}

/// How tokens reach their experts; `None` for the framework's way.
fn dispatch(fields: &Fields) -> Result<Option<Dispatch>, ConfigError> {
    let key = "moe_token_dispatcher_type";
    fields.table.contains_key(key).then(|| fields.choice(key, &DISPATCH)).transpose()
}

/// Tokens of the busiest rank of experts over its even share.
fn imbalance(fields: &Fields) -> Result<f64, ConfigError> {
    let key = "moe_load_imbalance";
    match fields.amount(key)?.unwrap_or(1.0) {
        share if share >= 1.0 => Ok(share),
        _ => Err(fields.wrong(key, "at least 1, which is an even share".to_owned())),
    }
}

/// What runs as graphs.
fn graphs(fields: &Fields) -> Result<Vec<Graph>, ConfigError> {
    const KEY: &str = "cuda_graph_scope";
    let Some(value) = fields.table.get(KEY) else { return Ok(Vec::new()) };
    let words: Vec<_> = GRAPHS.iter().map(|it| format!("\"{}\"", it.0)).collect();
    let graph = |it: &Value| GRAPHS.iter().find(|word| Some(word.0) == it.as_str()).map(|word| word.1);
    let graphs: Option<Vec<Graph>> = value.as_array().and_then(|it| it.iter().map(graph).collect());
    let graphs = graphs.ok_or_else(|| fields.wrong(KEY, format!("a list of {}", words.join(", "))))?;
    let has = |graph| graphs.contains(&graph);
    let of_experts = [Graph::Experts, Graph::Router, Graph::Preprocess];
    let expected = if has(Graph::Iteration) && graphs.len() > 1 {
        "\"full_iteration\" alone, which is all of them"
    } else if has(Graph::Preprocess) && !has(Graph::Router) {
        "\"moe_router\" with \"moe_preprocess\", as Megatron asks for"
    } else if of_experts.into_iter().any(has) && !fields.table.contains_key("num_experts") {
        "no graphs of experts without `num_experts`"
    } else {
        return Ok(graphs);
    };
    Err(fields.wrong(KEY, expected.to_owned()))
}

/// How attention is computed.
fn attention(fields: &Fields) -> Result<Attention, ConfigError> {
    let kernel = fields.choice("attention_backend", &ATTENTION)?;
    match (fields.flag("fp8_dot_product_attention", false)?, kernel) {
        (false, kernel) => Ok(kernel),
        (true, Attention::Fused) => Ok(Attention::FusedF8),
        (true, _) => Err(fields.wrong(
            "fp8_dot_product_attention",
            "false where `attention_backend` is not \"fused\"".to_owned(),
        )),
    }
}

/// What a reader of TOML says, in one line.
fn not_toml(text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let message: Vec<&str> = error.message().split_whitespace().collect();
    ConfigError::Toml(format!("line {line}: {}", message.join(" ")))
}

/// Refuses what is not shared equally, as Megatron does.
///
/// Source: Megatron-LM, `megatron/training/arguments.py`, `validate_args`, and
/// `megatron/core/transformer/transformer_config.py`, `__post_init__`.
pub fn even(setup: &Setup) -> Result<(), ConfigError> {
    const TENSOR: &str = "tensor_model_parallel_size";
    let Setup { model, tp, pp, vpp, cp, seq_parallel, .. } = setup;
    let sequence = if *seq_parallel { *tp } else { 1 };
    let (groups, heads) = (model.kv_heads, model.heads);
    // Where there are fewer groups than ranks, ranks share them.
    let sharing = if groups < *tp { (TENSOR, *tp, GROUPS, groups) } else { (GROUPS, groups, TENSOR, *tp) };
    let shared = [
        ("num_attention_heads", heads, TENSOR, *tp),
        ("num_attention_heads", heads, GROUPS, groups),
        sharing,
        (if model.dense.is_some() { OF_EXPERT } else { WIDTH }, model.ffn_hidden, TENSOR, *tp),
        (WIDTH, model.dense.as_ref().map_or(0, |it| it.width), TENSOR, *tp),
        ("seq_length", model.seq, "context_parallel_size", *cp),
        ("seq_length", model.seq / cp, "sequence_parallel over tensor_model_parallel_size", sequence),
        (
            "num_layers",
            model.layers - model.further.min(model.layers),
            "pipeline x virtual_pipeline_model_parallel_size",
            if *vpp > 1 && setup.stages == usual(model, *pp, *vpp) { pp * vpp } else { 1 },
        ),
    ];
    let uneven = shared.into_iter().find(|(_, count, _, parts)| !count.is_multiple_of(*parts));
    uneven.map_or(Ok(()), |(key, count, by, parts)| Err(ConfigError::Uneven { key, count, by, parts }))
}

/// How wide a feed-forward part is.
const WIDTH: &str = "ffn_hidden_size";
/// How wide an expert is.
const OF_EXPERT: &str = "moe_ffn_hidden_size";
/// What heads of queries share keys and values.
const GROUPS: &str = "num_query_groups";

/// Refuses what goes with something that is not there.
fn alone(fields: &Fields, setup: &Setup) -> Result<(), ConfigError> {
    if setup.pp == 1 && setup.vpp > 1 {
        let expected = "1 where `pipeline_model_parallel_size` is 1".to_owned();
        return Err(fields.wrong("virtual_pipeline_model_parallel_size", expected));
    }
    match setup.model.experts {
        None => {
            let only = ["expert_model_parallel_size", "expert_tensor_parallel_size", "moe_router_topk"];
            let more = [
                "moe_token_dispatcher_type",
                "moe_shared_expert_intermediate_size",
                "moe_load_imbalance",
                OF_EXPERT,
                "moe_layer_freq",
            ];
            let only = only.into_iter().chain(more);
            let mut stated = only.filter(|key| fields.table.contains_key(*key));
            let stated = stated.find(|key| fields.count(key).ok().flatten() != Some(1));
            stated.map_or(Ok(()), |key| {
                let expected = "1 without `num_experts`, or nothing".to_owned();
                Err(fields.wrong(key, expected))
            })
        }
        Some(it) if it.top_k > it.count => {
            Err(fields.wrong("moe_router_topk", format!("at most `num_experts`, {}", it.count)))
        }
        Some(_)
            if setup.model.dense.is_none()
                && [WIDTH, OF_EXPERT].iter().all(|it| fields.table.contains_key(*it)) =>
        {
            let expected = format!("nothing where every layer has experts, which are `{OF_EXPERT}` wide");
            Err(fields.wrong(WIDTH, expected))
        }
        Some(_) if setup.tp > 1 && !setup.seq_parallel => {
            let expected = "true where experts and tensor parallelism are, as Megatron asks for".to_owned();
            Err(fields.wrong("sequence_parallel", expected))
        }
        _ => Ok(()),
    }
}

/// Recomputation, in words.
pub const RECOMPUTE: [(&str, Recompute); 5] = [
    ("none", Recompute::None),
    ("selective", Recompute::Selective),
    ("every-second-product", Recompute::HalfOfProducts),
    ("every-second-layer", Recompute::HalfOfLayers),
    ("full", Recompute::Full),
];
const ATTENTION: [(&str, Attention); 3] =
    [("fused", Attention::Fused), ("flash", Attention::Flash), ("unfused", Attention::Unfused)];
/// How tokens reach their experts, in words.
pub const DISPATCH: [(&str, Dispatch); 2] =
    [("alltoall", Dispatch::AllToAll), ("flex", Dispatch::OncePerNode)];
/// Graphs of kernels, in words.
const GRAPHS: [(&str, Graph); 6] = [
    ("attn", Graph::Attention),
    ("mlp", Graph::Mlp),
    ("moe", Graph::Experts),
    ("moe_router", Graph::Router),
    ("moe_preprocess", Graph::Preprocess),
    ("full_iteration", Graph::Iteration),
];
/// Numbers of gigabytes and gigabytes per second are of 10⁹ bytes.
const GIGA: f64 = 1e9;
const PRECISION: [(&str, Arithmetic); 4] =
    [("bf16", Arithmetic::Bf16), ("fp16", Arithmetic::F16), ("fp8", Arithmetic::F8), ("fp4", Arithmetic::F4)];
/// Orders of a stage's work that a configuration names.
pub const SCHEDULE: [(&str, Kind); 5] = [
    ("1f1b", Kind::OneForwardOneBackward),
    ("gpipe", Kind::GPipe),
    ("eager-1f1b", Kind::Eager),
    ("zb-h1", Kind::ZeroBubbleH1),
    ("zb-h2", Kind::ZeroBubbleH2),
];

fn zero(fields: &Fields) -> Result<Zero, ConfigError> {
    let stages = [Zero::Nothing, Zero::Optimizer, Zero::Gradients, Zero::Weights];
    let stage = fields.count("zero_stage")?.unwrap_or(0);
    let found = usize::try_from(stage).ok().and_then(|stage| stages.get(stage).copied());
    let found = found.ok_or_else(|| fields.wrong("zero_stage", "0, 1, 2 or 3".to_owned()))?;
    match (fields.flag("hybrid_shard", false)?, found) {
        (false, stage) => Ok(stage),
        (true, Zero::Weights) => Ok(Zero::WeightsInNode),
        (true, _) => Err(fields.wrong("hybrid_shard", "false where `zero_stage` is not 3".to_owned())),
    }
}

/// The values of a configuration.
struct Fields {
    table: Table,
}

impl Fields {
    fn needed(&self, key: &'static str) -> Result<u64, ConfigError> {
        self.count(key)?.ok_or(ConfigError::Missing(key))
    }

    fn count(&self, key: &'static str) -> Result<Option<u64>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let count = value.as_integer().and_then(|it| u64::try_from(it).ok()).filter(|it| *it <= MOST);
        count.map(Some).ok_or_else(|| self.wrong(key, format!("a whole number from 0 to {MOST}")))
    }

    fn counts(&self, key: &'static str) -> Result<Option<Vec<u64>>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let count =
            |it: &Value| it.as_integer().and_then(|it| u64::try_from(it).ok()).filter(|it| *it <= MOST);
        let counts: Option<Vec<u64>> = value.as_array().and_then(|it| it.iter().map(count).collect());
        counts.map(Some).ok_or_else(|| self.wrong(key, "a list of whole numbers".to_owned()))
    }

    /// A count of at least 1.
    fn positive(&self, key: &'static str) -> Result<Option<u64>, ConfigError> {
        match self.count(key)? {
            Some(0) => Err(self.wrong(key, "at least 1".to_owned())),
            count => Ok(count),
        }
    }

    /// A number of more than 0.
    fn amount(&self, key: &'static str) -> Result<Option<f64>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let whole = self.count(key).ok().flatten().map(exact);
        let amount = value.as_float().or(whole).filter(|it| *it > 0.0 && *it <= exact(MOST));
        amount.map(Some).ok_or_else(|| self.wrong(key, format!("a number above 0, at most {MOST}")))
    }

    fn flag(&self, key: &'static str, absent: bool) -> Result<bool, ConfigError> {
        let value = self.table.get(key);
        let flag = value.map_or(Some(absent), Value::as_bool);
        flag.ok_or_else(|| self.wrong(key, "`true` or `false`".to_owned()))
    }

    fn text(&self, key: &'static str) -> Result<Option<String>, ConfigError> {
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let text = value.as_str().map(str::to_owned);
        text.map(Some).ok_or_else(|| self.wrong(key, "a text in quotes".to_owned()))
    }

    /// One of some words; the first if nothing is said.
    fn choice<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Result<T, ConfigError> {
        let said = self.text(key)?;
        let found = match &said {
            None => words.first(),
            Some(said) => words.iter().find(|(word, _)| word == said),
        };
        let list: Vec<_> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        found.map(|(_, it)| *it).ok_or_else(|| self.wrong(key, format!("one of {}", list.join(", "))))
    }

    fn wrong(&self, key: &'static str, expected: String) -> ConfigError {
        let found = self.table.get(key).map_or_else(|| "left out".to_owned(), ToString::to_string);
        ConfigError::Value { key, found, expected }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toml(message) => f.write_str(message.trim_end()),
            Self::Unknown(key) => {
                let near = planner_ir::did_you_mean(key, KEYS.iter().map(|known| known.name));
                let list = if near.is_empty() { ", expected one that docs/predict.md lists" } else { "" };
                write!(f, "no key `{key}`{near}{list}")
            }
            Self::Missing(key) => write!(f, "`{key}` is missing"),
            Self::Value { key, found, expected } => write!(f, "`{key}` is {found}, expected {expected}"),
            Self::Model(name, why) => write!(f, "`{MODEL}` is {name}: {why}"),
            Self::World { world, replica } => {
                write!(f, "`world_size` is {world}, expected a multiple of tp x pp x cp = {replica}")
            }
            Self::Uneven { key, count, by, parts } => {
                write!(f, "`{key}` is {count}, expected a multiple of `{by}`, {parts}")
            }
            Self::Setup(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
