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
//! Every key is listed in [`KEYS`], with what it is taken to be where it is left out.

use std::fmt;

use ::schedule::Kind;
use toml::{Table, Value};

use crate::model::{Embedding, Experts, Mlp, Model};
use crate::setup::{Arithmetic, Attention, Learns, Recompute, Setup, SetupError, Zero, even_stages};
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
    /// The keys that are left out, and what they are taken to be.
    pub assumed: Vec<(&'static str, &'static str)>,
}

/// Every key: its name, and what it is taken to be where it is left out.
pub const KEYS: [(&str, &str); 33] = [
    ("machine", "must be stated: a device type as `shardloom machines` lists them, or a machine file"),
    ("framework", "megatron-core"),
    ("num_layers", "must be stated"),
    ("hidden_size", "must be stated"),
    ("num_attention_heads", "must be stated"),
    ("num_query_groups", "num_attention_heads"),
    ("kv_channels", "hidden_size / num_attention_heads"),
    ("ffn_hidden_size", "4 hidden_size"),
    ("swiglu", "false"),
    ("untie_embeddings_and_output_weights", "as swiglu"),
    ("vocab_size", "51200"),
    ("seq_length", "must be stated"),
    ("num_experts", "none"),
    ("moe_router_topk", "2, if there are experts"),
    ("world_size", "must be stated: the number of devices"),
    ("tensor_model_parallel_size", "1"),
    ("pipeline_model_parallel_size", "1"),
    ("virtual_pipeline_model_parallel_size", "1"),
    ("context_parallel_size", "1"),
    ("expert_model_parallel_size", "1"),
    ("micro_batch_size", "1"),
    ("global_batch_size", "must be stated"),
    ("zero_stage", "0; 1 is use_distributed_optimizer"),
    ("sequence_parallel", "false"),
    ("recompute_granularity", "none; selective, full"),
    ("attention_backend", "flash; unfused"),
    ("precision", "bf16; fp16, fp8, fp4"),
    ("schedule", "1f1b; gpipe, eager-1f1b, zb-h1, zb-h2"),
    ("overlap_grad_reduce", "true"),
    ("tp_comm_overlap", "false"),
    ("grad_reduce_bytes", "the framework's"),
    ("lora", "false"),
    ("framework_year", "that of the framework's figures"),
];

/// Why a text is not a configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigError {
    /// Not TOML: what the reader says, with the place.
    Toml(String),
    /// A key that does not exist, and the one that is nearest to it.
    Unknown(String, &'static str),
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

/// The configuration that `text` states.
pub fn read(text: &str) -> Result<Config, ConfigError> {
    let table: Table = text.parse().map_err(|error| not_toml(text, &error))?;
    if let Some(key) = table.keys().find(|key| !KEYS.iter().any(|(known, _)| known == key)) {
        return Err(ConfigError::Unknown(key.clone(), nearest(key)));
    }
    let fields = Fields { table };
    let model = model(&fields)?;
    let one = |key| fields.count(key).map(|it| it.unwrap_or(1));
    let (tp, pp) = (one("tensor_model_parallel_size")?, one("pipeline_model_parallel_size")?);
    let (cp, world) = (one("context_parallel_size")?, fields.needed("world_size")?);
    let replica = tp * pp * cp;
    if replica == 0 || world == 0 || !world.is_multiple_of(replica) {
        return Err(ConfigError::World { world, replica });
    }
    let setup = Setup {
        learns: if fields.flag("lora", false)? { Learns::Adapters } else { Learns::Everything },
        tp,
        pp,
        vpp: one("virtual_pipeline_model_parallel_size")?,
        stages: even_stages(model.layers, pp),
        cp,
        ep: one("expert_model_parallel_size")?,
        dp: world / replica,
        mbs: one("micro_batch_size")?,
        packed: false,
        gbs: fields.needed("global_batch_size")?,
        zero: zero(&fields)?,
        seq_parallel: fields.flag("sequence_parallel", false)?,
        recompute: fields.choice("recompute_granularity", &RECOMPUTE)?,
        attention: fields.choice("attention_backend", &ATTENTION)?,
        precision: fields.choice("precision", &PRECISION)?,
        year: fields.count("framework_year")?,
        gradient_bytes: fields.count("grad_reduce_bytes")?,
        schedule: fields.choice("schedule", &SCHEDULE)?,
        dp_overlap: fields.flag("overlap_grad_reduce", true)?,
        tp_overlap: fields.flag("tp_comm_overlap", false)?,
        model,
    };
    setup.check().map_err(ConfigError::Setup)?;
    even(&setup)?;
    alone(&fields, &setup)?;
    let assumed = KEYS.into_iter().filter(|(key, _)| !fields.table.contains_key(*key)).collect();
    Ok(Config {
        machine: fields.text("machine")?.ok_or(ConfigError::Missing("machine"))?,
        framework: fields.text("framework")?.unwrap_or_else(|| "megatron-core".to_owned()),
        setup,
        assumed,
    })
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
fn even(setup: &Setup) -> Result<(), ConfigError> {
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
        ("ffn_hidden_size", model.ffn_hidden, TENSOR, *tp),
        ("seq_length", model.seq, "context_parallel_size", *cp),
        ("seq_length", model.seq / cp, "sequence_parallel over tensor_model_parallel_size", sequence),
        (
            "num_layers",
            model.layers,
            "pipeline x virtual_pipeline_model_parallel_size",
            if *vpp > 1 { pp * vpp } else { 1 },
        ),
    ];
    let uneven = shared.into_iter().find(|(_, count, _, parts)| !count.is_multiple_of(*parts));
    uneven.map_or(Ok(()), |(key, count, by, parts)| Err(ConfigError::Uneven { key, count, by, parts }))
}

/// What heads of queries share keys and values.
const GROUPS: &str = "num_query_groups";

/// Refuses what goes with something that is not there.
fn alone(fields: &Fields, setup: &Setup) -> Result<(), ConfigError> {
    if setup.pp == 1 && setup.vpp > 1 {
        let expected = "1 where `pipeline_model_parallel_size` is 1".to_owned();
        return Err(fields.wrong("virtual_pipeline_model_parallel_size", expected));
    }
    match setup.model.experts {
        None if setup.ep > 1 => {
            Err(fields.wrong("expert_model_parallel_size", "1 without `num_experts`".to_owned()))
        }
        Some(it) if it.top_k > it.count => {
            Err(fields.wrong("moe_router_topk", format!("at most `num_experts`, {}", it.count)))
        }
        _ => Ok(()),
    }
}

const RECOMPUTE: [(&str, Recompute); 3] =
    [("none", Recompute::None), ("selective", Recompute::Selective), ("full", Recompute::Full)];
const ATTENTION: [(&str, Attention); 2] = [("flash", Attention::Flash), ("unfused", Attention::Unfused)];
const PRECISION: [(&str, Arithmetic); 4] =
    [("bf16", Arithmetic::Bf16), ("fp16", Arithmetic::F16), ("fp8", Arithmetic::F8), ("fp4", Arithmetic::F4)];
const SCHEDULE: [(&str, Kind); 5] = [
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
    found.ok_or_else(|| fields.wrong("zero_stage", "0, 1, 2 or 3".to_owned()))
}

fn model(fields: &Fields) -> Result<Model, ConfigError> {
    let (hidden, heads) = (fields.needed("hidden_size")?, fields.needed("num_attention_heads")?);
    let gated = fields.flag("swiglu", false)?;
    let untied = fields.flag("untie_embeddings_and_output_weights", gated)?;
    let top_k = fields.count("moe_router_topk")?.unwrap_or(2);
    let usual = hidden / heads.max(1);
    Ok(Model {
        layers: fields.needed("num_layers")?,
        hidden,
        heads,
        kv_heads: fields.count("num_query_groups")?.unwrap_or(heads),
        head_size: fields.count("kv_channels")?.unwrap_or(usual),
        ffn_hidden: fields.count("ffn_hidden_size")?.unwrap_or(4 * hidden),
        mlp: if gated { Mlp::Gated } else { Mlp::Plain },
        vocab: fields.count("vocab_size")?.unwrap_or(51_200),
        seq: fields.needed("seq_length")?,
        experts: fields.count("num_experts")?.map(|count| Experts { count, top_k }),
        embedding: if untied { Embedding::Untied } else { Embedding::Tied },
    })
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
        let found = self.table.get(key).map(ToString::to_string).unwrap_or_default();
        ConfigError::Value { key, found, expected }
    }
}

/// The key that takes fewest changes to become.
fn nearest(key: &str) -> &'static str {
    KEYS.iter().map(|(known, _)| *known).min_by_key(|known| changes(key, known)).unwrap_or_default()
}

/// How many letters must be changed, added or taken away to make one word the other.
///
/// Source: Levenshtein, "Binary codes capable of correcting deletions, insertions and reversals",
/// 1966; row by row as Wagner and Fischer, 1974.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (place, letter) in from.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], place + 1);
        for (column, other) in to.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = changed.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Toml(message) => f.write_str(message.trim_end()),
            Self::Unknown(key, near) => write!(f, "no key `{key}`, did you mean `{near}`?"),
            Self::Missing(key) => write!(f, "`{key}` is missing"),
            Self::Value { key, found, expected } => write!(f, "`{key}` is {found}, expected {expected}"),
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
