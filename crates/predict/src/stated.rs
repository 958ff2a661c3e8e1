//! What a row of published measurements states, in the terms of a setup.
//!
//! Fields that are blank are filled by conventions:
//!
//! - `dp`: what is left of the devices; `cp`, `ep`: 1.
//! - `mbs` and, where a pipeline may be interleaved, `vpp`: [`Blank`] says that they are open;
//!   who runs for a record has tuned them, so that the fastest that fits is taken.
//! - the model's shape: that of the published model of its name.
//! - `vocab`: 51,200, that of Megatron's GPT.
//! - the length of a head's vector: `hidden / heads`; with gated feed-forward parts that for which
//!   the parameters come nearest to `params_b`.
//! - `recompute`, where it is left to a recipe: nothing; such a setup is believed to fit if it does
//!   with everything recomputed.
//! - experts: `etp` is 1, as in published recipes, so that experts are shared over tp x cp x dp, and
//!   tensor-parallel ranks hold parts of the sequence, as Megatron asks for.
//! - logits have weights of their own where the feed-forward part is gated, as in Llama.

pub(crate) mod chip; // the device of a row
mod links; // nodes and links of a row

use ::schedule::Kind;

use links::{count, number};

use crate::cluster::Links;
use crate::framework::{Framework, FrameworkError};
use crate::model::{Embedding, Experts, Mlp, Model};
use crate::setup::{Arithmetic, Attention, Dispatch, Learns, Recompute, Setup, Zero};
use crate::shapes;
use crate::table::{Row, TableError};

/// Tokens that there are where nobody says how many.
const VOCAB: u64 = 51_200;

/// A setup, and what of it is open.
#[derive(Clone, Debug)]
pub struct Stated {
    /// The setup, open numbers being 1.
    pub setup: Setup,
    /// Whether the size of micro-batches is open.
    pub mbs: Blank,
    /// Whether the number of parts in a stage is.
    pub vpp: Blank,
    /// Whether recomputation is.
    pub recompute: Blank,
    /// Nodes and links.
    pub links: Links,
}

/// Whether a number is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// It is.
    Stated,
    /// It is not.
    Open,
}

/// Why a row has no price.
#[derive(Clone, Debug, PartialEq)]
pub enum Unstated {
    /// A field is not what its column holds.
    Field(TableError),
    /// Something is missing that no convention fills, or contradicts the rest.
    Why(String),
}

impl From<TableError> for Unstated {
    fn from(error: TableError) -> Self {
        Self::Field(error)
    }
}

/// The setup that a row states.
pub fn setup(row: &Row<'_>) -> Result<Stated, Unstated> {
    let why = |text: String| Unstated::Why(text);
    let model = model(row)?;
    let one = |column: &str| row.count(column).map(|it| it.unwrap_or(1).max(1));
    let (tp, pp, cp, ep) = (row.count("tp")?, row.count("pp")?, one("cp")?, one("ep")?);
    let devices = row.count("n_gpus")?.ok_or_else(|| why("`n_gpus` is not stated".to_owned()))?;
    let (Some(tp), Some(pp)) = (tp, pp) else { return Err(why("`tp` or `pp` is not stated".to_owned())) };
    let etp = if ep > 1 { noted(row.text("notes"), "etp").unwrap_or(1) } else { tp };
    let each = tp.saturating_mul(pp).saturating_mul(cp);
    let replicas = devices / each.max(1);
    let dp = match row.count("dp")? {
        Some(dp) if each.saturating_mul(dp) == devices => dp,
        Some(dp) => {
            return Err(why(format!("tp {tp} x pp {pp} x cp {cp} x dp {dp} is not {devices} devices")));
        }
        None => replicas,
    };
    let gbs = row.count("gbs")?.ok_or_else(|| why("`gbs` is not stated".to_owned()))?;
    let mbs = row.count("mbs")?;
    let schedule = row.text("schedule").to_lowercase();
    let layers_per_part = schedule.contains("1 layer per chunk");
    let vpp = if layers_per_part { Some((model.layers + 2) / pp) } else { row.count("vpp")? };
    let stages = stages(row, &model, pp);
    let setup = Setup {
        learns: learns(row),
        tp,
        pp,
        vpp: vpp.unwrap_or(1),
        stages,
        cp,
        ep,
        etp,
        dispatch: dispatch(&[row.text("framework"), row.text("notes")].join(" ")),
        imbalance: 1.0,
        dp,
        mbs: mbs.unwrap_or(1),
        packed: row.text("notes").contains("packed"),
        gbs,
        zero: zero(row)?,
        seq_parallel: row.text("seq_parallel") == "1" || model.experts.is_some() && tp > 1,
        recompute: recompute(row.text("recompute")),
        attention: attention(row.text("attn_impl")),
        precision: arithmetic(row.text("precision")),
        year: row.count("year")?,
        gradient_bytes: gradient_bytes(row),
        schedule: order(&schedule),
        graphs: Vec::new(),
        dp_overlap: overlapped(row.text("dp_overlap")) || prefetches(row),
        tp_overlap: overlapped(row.text("tp_overlap")),
        model,
    };
    setup.check().map_err(|error| why(error.to_string()))?;
    let open = |stated: bool| if stated { Blank::Stated } else { Blank::Open };
    let interleaves = pp > 1 && setup.schedule == Kind::OneForwardOneBackward;
    let again = row.text("recompute").to_lowercase();
    let told = ["none", "full", "selective"].iter().any(|word| again.starts_with(word));
    Ok(Stated {
        mbs: open(mbs.is_some()),
        vpp: open(vpp.is_some() || !interleaves),
        recompute: open(told && !again.contains("recipe") || again.contains("op sac")),
        links: links::links(row, devices)?,
        setup,
    })
}

/// The model of a row.
pub fn model(row: &Row<'_>) -> Result<Model, Unstated> {
    let need = |column: &str| {
        let found = row.count(column)?.filter(|it| *it > 0);
        found.ok_or_else(|| Unstated::Why(format!("`{column}` of the model is not stated")))
    };
    if row.text("layers").is_empty()
        && let Some(model) = shapes::named(row.text("model"), need("seq")?)
    {
        return Ok(model);
    }
    let (layers, hidden, heads, seq) = (need("layers")?, need("hidden")?, need("heads")?, need("seq")?);
    let gated = row.text("mlp_gated") == "1";
    let experts = match (row.count("n_experts")?, row.count("top_k")?) {
        (Some(count), Some(top_k)) if count > 1 => Some(Experts { count, top_k: top_k.max(1), shared: 0 }),
        _ => None,
    };
    let mut model = Model {
        layers,
        further: 0,
        hidden,
        heads,
        kv_heads: row.count("kv_heads")?.unwrap_or(heads),
        head_size: hidden / heads,
        latent: None,
        ffn_hidden: row.count("ffn_hidden")?.unwrap_or(4 * hidden),
        mlp: if gated { Mlp::Gated } else { Mlp::Plain },
        vocab: row.count("vocab")?.unwrap_or(VOCAB),
        seq,
        experts,
        dense: None,
        embedding: if gated { Embedding::Untied } else { Embedding::Tied },
    };
    // Older models have heads that part the hidden vector, and may have learned positions besides.
    if let Some(billions) = row.number("params_b")?.filter(|_| gated) {
        model.head_size = head_size(&model, billions * 1e9);
    }
    // Columns have no place for latent attention, experts that all tokens go to, and layers without experts.
    let named = shapes::named(row.text("model"), seq);
    let same = |it: &Model| it.latent.is_some() && (it.layers, it.hidden) == (layers, hidden);
    if let Some(named) = named.filter(same) {
        (model.latent, model.head_size, model.dense) = (named.latent, named.head_size, named.dense);
        let shared = named.experts.map_or(0, |experts| experts.shared);
        model.experts = model.experts.map(|experts| Experts { shared, ..experts });
    }
    Ok(model)
}

/// Megatron's GPT of these sizes on one device, in fp16 with scores in memory, one example a step.
#[must_use]
pub fn gpt(layers: u64, hidden: u64, heads: u64, seq: u64) -> Setup {
    let model = Model {
        layers,
        further: 0,
        hidden,
        heads,
        kv_heads: heads,
        head_size: hidden / heads.max(1),
        latent: None,
        ffn_hidden: 4 * hidden,
        mlp: Mlp::Plain,
        vocab: VOCAB,
        seq,
        experts: None,
        dense: None,
        embedding: Embedding::Tied,
    };
    Setup {
        learns: Learns::Everything,
        tp: 1,
        pp: 1,
        vpp: 1,
        stages: vec![layers],
        cp: 1,
        ep: 1,
        etp: 1,
        dispatch: None,
        imbalance: 1.0,
        dp: 1,
        mbs: 1,
        packed: false,
        gbs: 1,
        zero: Zero::Nothing,
        seq_parallel: false,
        recompute: Recompute::None,
        attention: Attention::Unfused,
        precision: Arithmetic::F16,
        year: None,
        gradient_bytes: None,
        schedule: Kind::OneForwardOneBackward,
        graphs: Vec::new(),
        dp_overlap: false,
        tp_overlap: false,
        model,
    }
}

/// The length of a head's vector with which a model's parameters come nearest to so many: that
/// of the hidden vector's part, unless another is nearer by more than rounding.
fn head_size(model: &Model, parameters: f64) -> u64 {
    /// By how much `params_b` may be off by rounding, or by what is counted.
    const ROUNDING: f64 = 0.01;
    let off = |size: u64| {
        let found = Model { head_size: size, ..model.clone() }.parameters();
        (found / parameters - 1.0).abs()
    };
    let usual = model.head_size;
    let others = [64, 128, 256].into_iter().filter(|&it| off(it) + ROUNDING < off(usual));
    others.min_by(|&a, &b| off(a).total_cmp(&off(b))).unwrap_or(usual)
}

/// Layers of each stage: where notes say at which of a list of layers a pipeline is cut, so many.
fn stages(row: &Row<'_>, model: &Model, pp: u64) -> Vec<u64> {
    let cut = cut_points(row.text("notes"), model.layers);
    cut.filter(|it| u64::try_from(it.len()) == Ok(pp)).unwrap_or_else(|| model.stages(pp))
}

/// `partition over 30 … layers [0 embed,1 noop,2-25 transformer,…] cut points [0, 15, 30]`.
fn cut_points(notes: &str, layers: u64) -> Option<Vec<u64>> {
    let (before, after) = notes.split_once("cut points [")?;
    let points = after.split(']').next()?.split(',').map(|it| it.trim().parse::<u64>());
    let points = points.collect::<Result<Vec<_>, _>>().ok()?;
    let range = before.split(['[', ',']).find_map(|it| it.strip_suffix(" transformer"))?;
    let (first, last) = range.trim().split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let inside = |pair: &[u64]| pair[1].min(last + 1).saturating_sub(pair[0].max(first));
    let stages: Vec<u64> = points.windows(2).map(inside).collect();
    (stages.iter().sum::<u64>() == layers).then_some(stages)
}

fn learns(row: &Row<'_>) -> Learns {
    if row.text("model").to_lowercase().contains("lora") { Learns::Adapters } else { Learns::Everything }
}

fn zero(row: &Row<'_>) -> Result<Zero, TableError> {
    Ok(match row.count("zero_stage")? {
        // FSDP is what torchtitan has for data parallelism.
        None if has(row, "framework", "torchtitan") => Zero::Weights,
        None | Some(0) => Zero::Nothing,
        Some(1) => Zero::Optimizer,
        Some(2) => Zero::Gradients,
        Some(_) if row.text("notes").contains("strategy HSDP") => Zero::WeightsInNode,
        Some(_) => Zero::Weights,
    })
}

fn recompute(text: &str) -> Recompute {
    let text = text.to_lowercase();
    if text.contains("op sac") {
        Recompute::HalfOfProducts
    } else if text.contains("every other layer") {
        Recompute::HalfOfLayers
    } else if text.starts_with("full") || text.contains("ibm sac") {
        // IBM's selective checkpointing is of layers; of all, where it does not say of which.
        Recompute::Full
    } else if text.starts_with("selective") {
        Recompute::Selective
    } else {
        Recompute::None
    }
}

fn attention(text: &str) -> Attention {
    let text = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // Unknown: who does not say, in fp16 times, had scores in memory.
    if says(&["unfused"]) || text == "unknown" {
        Attention::Unfused
    } else if says(&["fp8"]) {
        Attention::FusedF8
    } else if says(&["cudnn", "flash-attention-3", "flashattention-3", "flash 3", "fa3"]) {
        Attention::Fused
    } else if says(&["flash", "sdpa", "fa2"]) {
        Attention::Flash
    } else {
        // Frameworks that do not say have taken the device's own kernels since.
        Attention::Fused
    }
}

/// Whether a row that does not say if gathers overlap is of FSDP, which fetches ahead.
fn prefetches(row: &Row<'_>) -> bool {
    let sharded = ["fsdp", "torchtitan", "llm-foundry"].iter().any(|word| has(row, "framework", word));
    sharded && row.text("dp_overlap").is_empty()
}

/// How tokens reach their experts, where a framework or notes say so: DeepEP is that of HAI-LLM.
fn dispatch(text: &str) -> Option<Dispatch> {
    let notes = text.to_lowercase();
    if ["deepep", "hybridep", "hai-llm"].iter().any(|word| notes.contains(word)) {
        Some(Dispatch::OncePerNode)
    } else {
        (notes.contains("alltoall") || notes.contains("all-to-all")).then_some(Dispatch::AllToAll)
    }
}

/// The number that notes give to a word: `ETP 2`, `etp=2`.
fn noted(notes: &str, word: &str) -> Option<u64> {
    let notes = notes.to_lowercase();
    let after = notes.split(word).nth(1)?.trim_start_matches([' ', '=', ':']);
    number(after).and_then(count)
}

/// Whether a column has a word, in any case.
fn has(row: &Row<'_>, column: &str, word: &str) -> bool {
    row.text(column).to_lowercase().contains(word)
}

fn arithmetic(text: &str) -> Arithmetic {
    let text = text.to_lowercase();
    if text.contains("fp4") {
        Arithmetic::F4
    } else if text.contains("fp8") {
        Arithmetic::F8
    } else if text.contains("fp16") {
        Arithmetic::F16
    } else {
        Arithmetic::Bf16
    }
}

/// Bytes of an element of a gradient that is reduced, where a row says so.
fn gradient_bytes(row: &Row<'_>) -> Option<u64> {
    let says = |column: &str, words: &str| row.text(column).contains(words);
    (says("dp_overlap", "fp32") || says("precision", "fp32 main")).then_some(4)
}

fn order(schedule: &str) -> Kind {
    if schedule.contains("zb-2p") || schedule.contains("zb-h2") {
        Kind::ZeroBubbleH2
    } else if schedule.contains("zb-") {
        Kind::ZeroBubbleH1
    } else {
        Kind::OneForwardOneBackward
    }
}

fn overlapped(text: &str) -> bool {
    ["yes", "backward", "bwd"].iter().any(|word| text.starts_with(word))
}

/// The framework of a row.
pub fn framework(row: &Row<'_>) -> Result<Framework, FrameworkError> {
    let name = row.text("framework").to_lowercase();
    let year = row.count("year").ok().flatten().unwrap_or(0);
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let file = if has(&["nemo"]) {
        "nemo"
    } else if has(&["megatron-core"]) {
        "megatron-core"
    } else if has(&["torchtitan"]) {
        "torchtitan"
    } else if has(&["deepspeed"]) {
        "deepspeed"
    } else if has(&["compile"]) {
        "fsdp-compiled"
    } else if has(&["fsdp"]) {
        "fsdp"
    } else if has(&["megatron-lm"]) && year < 2024 {
        "megatron-lm"
    } else {
        "megatron-core"
    };
    Framework::shipped(file)
}

#[cfg(test)]
mod tests;
