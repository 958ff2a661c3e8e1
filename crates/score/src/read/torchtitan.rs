//! Configurations of torchtitan: TOML (to version 0.2), or Python that sets them (from version 0.3).
//!
//! Source: torchtitan, `torchtitan/config/job_config.py` of version 0.2 and `torchtitan/config/configs.py` of
//! version 0.3; sizes of flavors: `torchtitan/models/llama3/__init__.py`, `torchtitan/models/deepseek_v3/__init__.py`.

use ::export::Cuts;
use ::export::torchtitan::csv;
use ::schedule::Kind;
use predict::config::SCHEDULE;
use toml::{Table, Value};

use super::given::{Given, wrong};
use super::{Read, ReadError, integer, product};

/// What it states: `section.key`, a section's name left out where the key says enough.
pub(super) fn given(text: &str) -> Result<Given, ReadError> {
    let mut found = Given::default();
    if is_python(text) {
        python(text, &mut found)?;
        return Ok(found);
    }
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().and_then(|it| text.get(..it.start)).unwrap_or_default().matches('\n').count() + 1;
        let message: Vec<&str> = error.message().split_whitespace().collect();
        ReadError::Language(format!("line {line}: {}", message.join(" ")))
    })?;
    flat("", &table, &mut found);
    Ok(found)
}

fn is_python(text: &str) -> bool {
    ["import ", "from ", "def ", "\"\"\""].iter().any(|word| text.lines().any(|line| line.starts_with(word)))
}

fn flat(section: &str, table: &Table, found: &mut Given) {
    for (key, value) in table {
        let name = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        let text = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
        match value {
            Value::Table(inner) => flat(&name, inner, found),
            Value::Array(items) => {
                found.state(&name, items.iter().map(text).collect(), format!("{name} = {value}"));
            }
            other => found.state(&name, vec![text(other)], format!("{name} = {other}")),
        }
    }
}

/// Lines `name=value,` in `ParallelismConfig(`, and `config.section.name = value`.
fn python(text: &str, found: &mut Given) -> Result<(), ReadError> {
    let mut parallel = false;
    let mut open: Option<(String, String)> = None;
    let mut quoted = false;
    for line in text.lines().map(str::trim) {
        // What a module says of itself.
        if line.matches("\"\"\"").count() % 2 == 1 {
            quoted = !quoted;
            continue;
        }
        if quoted {
            continue;
        }
        if let Some((name, value)) = &mut open {
            value.push_str(line);
            if line.starts_with(']') {
                stated(name, value, found);
                open = None;
            }
            continue;
        }
        if line.ends_with("ParallelismConfig(") {
            parallel = true;
        } else if line == ")" {
            parallel = false;
        } else if let Some((name, value)) = line.split_once('=') {
            let name = name.trim();
            let name = match name.strip_prefix("config.") {
                Some(name) => name.to_owned(),
                None if parallel => format!("parallelism.{name}"),
                None => continue,
            };
            if value.trim() == "[" {
                open = Some((name, "[".to_owned()));
            } else {
                stated(&name, value.trim().trim_end_matches(','), found);
            }
        }
    }
    match open {
        Some((name, _)) => Err(ReadError::Language(format!("`{name}` has a list that does not end"))),
        None => Ok(()),
    }
}

fn stated(name: &str, value: &str, found: &mut Given) {
    // Parts of the model: as many values as there are.
    let values = if let Some(parts) = value.strip_prefix('[') {
        parts.split('[').skip(1).map(|part| part.trim_end_matches([']', ',']).replace('"', "")).collect()
    } else {
        vec![value.trim_matches(['"', '\'']).to_owned()]
    };
    let shown = if value.starts_with('[') { name.to_owned() } else { format!("{name} = {value}") };
    found.state(name, values, shown);
}

/// Sizes of models by name and flavor, where no `config.json` is given: layers, hidden size, heads, groups of
/// heads, width of the feed-forward part, tokens.
const FLAVORS: [(&str, &str, [u64; 6]); 3] = [
    ("llama3", "8B", [32, 4096, 32, 8, 14_336, 128_256]),
    ("llama3", "70B", [80, 8192, 64, 8, 28_672, 128_256]),
    ("llama3", "405B", [126, 16_384, 128, 8, 53_248, 128_256]),
];

/// Sets the keys of what is stated.
pub(super) fn read(
    read: &mut Read,
    mut given: Given,
    devices: Option<u64>,
    written: Option<&str>,
) -> Result<(), ReadError> {
    let given = &mut given;
    model(read, given)?;
    let tokens = given.positive("training.seq_len")?;
    read.count("seq_length", tokens)?;
    if read.known("seq_length").is_none() {
        read.take("no training.seq_len", "2048, as torchtitan has it");
        read.set("seq_length", 2048_i64)?;
    }
    let one = |given: &mut Given, name: &str| given.positive(name).map(|it| it.unwrap_or(1));
    let tp = one(given, "parallelism.tensor_parallel_degree")?;
    let cp = one(given, "parallelism.context_parallel_degree")?;
    let pp = one(given, "parallelism.pipeline_parallel_degree")?;
    divided(read, tp, cp)?;
    let ep = one(given, "parallelism.expert_parallel_degree")?;
    let etp = one(given, "parallelism.expert_tensor_parallel_degree")?;
    let copies = one(given, "parallelism.data_parallel_replicate_degree")?;
    let shards = given.word("parallelism.data_parallel_shard_degree")?.filter(|it| it != "-1");
    let shards = shards.map(|it| {
        let count = it.parse::<u64>().ok().filter(|it| *it > 0);
        count.ok_or_else(|| wrong("parallelism.data_parallel_shard_degree", &it, "-1, or at least 1"))
    });
    let shards = shards.transpose()?;
    let world = read.world(devices, shards.map(|it| product(&[it, copies, tp, cp, pp])))?;
    let data = (world / product(&[tp, cp, pp])).max(1);
    let shards = shards.unwrap_or((data / copies).max(1));
    if shards.saturating_mul(copies) != data {
        let found = format!("{shards} x {copies}");
        let expected = format!("a product of {data}, what tp x cp x pp leave of {world} devices");
        return Err(wrong("data_parallel_shard_degree x data_parallel_replicate_degree", &found, &expected));
    }
    read.set("tensor_model_parallel_size", integer(tp))?;
    read.set("context_parallel_size", integer(cp))?;
    read.set("pipeline_model_parallel_size", integer(pp))?;
    read.set("expert_model_parallel_size", integer(ep))?;
    if read.known("num_experts").is_some() {
        read.set("expert_tensor_parallel_size", integer(etp))?;
    }
    sharding(read, given, shards, copies, pp)?;
    let sequence = given.flag("parallelism.enable_sequence_parallel")?.unwrap_or(true);
    read.set("sequence_parallel", sequence && tp > 1)?;
    let overlap = given.flag("parallelism.enable_async_tensor_parallel")?.unwrap_or(false);
    read.set("tp_comm_overlap", overlap && tp > 1)?;
    batch(read, given, data, pp)?;
    schedule(read, given, (pp, data), written)?;
    again(read, given)?;
    arithmetic(read, given)?;
    read.set("attention_backend", "flash")?;
    read.rest(std::mem::take(given), HARMLESS, TAKEN);
    Ok(())
}

/// Refuses sequences that torchtitan does.
fn divided(read: &Read, tp: u64, cp: u64) -> Result<(), ReadError> {
    let tokens = read.known("seq_length").unwrap_or(1);
    let multiple = Cuts::HalvesOfAll.multiple(tp, cp);
    if tokens.is_multiple_of(multiple) {
        return Ok(());
    }
    let expected = format!("a multiple of {multiple}: tensor_parallel_degree x 2 x context_parallel_degree");
    Err(wrong("training.seq_len", &tokens.to_string(), &expected))
}

fn model(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    let (name, flavor) = (given.word("model.name")?, given.word("model.flavor")?);
    if read.known("num_layers").is_some() {
        let trains_further = given.shown("loss").contains("MTPLoss") && given.has("loss");
        return if trains_further { read.trains_further(read.further) } else { Ok(()) };
    }
    let found = FLAVORS.iter().find(|it| name.as_deref() == Some(it.0) && flavor.as_deref() == Some(it.1));
    let Some((_, _, sizes)) = found else {
        return Err(ReadError::Missing(
            "the sizes of the model",
            "give its `config.json` with --config (known without one are llama3 8B, 70B and 405B)",
        ));
    };
    let keys = [
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "num_query_groups",
        "ffn_hidden_size",
        "vocab_size",
    ];
    for (key, size) in keys.into_iter().zip(*sizes) {
        read.set(key, integer(size))?;
    }
    read.set("swiglu", true)
}

/// What data-parallel ranks share: all, where weights are sharded and gathered again (FSDP), or in groups (HSDP).
fn sharding(read: &mut Read, given: &mut Given, shards: u64, copies: u64, pp: u64) -> Result<(), ReadError> {
    let policy =
        given.word("parallelism.fsdp_reshard_after_forward")?.unwrap_or_else(|| "default".to_owned());
    let again = match policy.as_str() {
        "always" => true,
        "never" => false,
        "default" => pp == 1,
        other => {
            return Err(wrong("parallelism.fsdp_reshard_after_forward", other, "default, always or never"));
        }
    };
    // Context-parallel ranks have the same weights, and share them as data-parallel ranks do.
    let alone = shards == 1 && read.known("context_parallel_size") == Some(1);
    let stage = if alone {
        0
    } else if again {
        3
    } else {
        2
    };
    read.set("zero_stage", integer(stage))?;
    if stage > 0 && copies > 1 {
        let said = format!("parallelism.data_parallel_replicate_degree = {copies}");
        if stage == 3 {
            read.set("hybrid_shard", true)?;
            read.take(said, "shards over the ranks of a node, and a copy in each node");
        } else {
            read.take(said, "shards over all data-parallel ranks");
        }
    }
    Ok(())
}

fn batch(read: &mut Read, given: &mut Given, data: u64, pp: u64) -> Result<(), ReadError> {
    let local = given.positive("training.local_batch_size")?.or(given.positive("training.batch_size")?);
    let local = local.unwrap_or(8);
    let part = given.positive("parallelism.pipeline_parallel_microbatch_size")?.unwrap_or(1);
    let micro = if pp > 1 { part } else { local };
    let global = given.word("training.global_batch_size")?.filter(|it| it != "-1");
    let global = match global {
        None => local.saturating_mul(data),
        Some(word) => word
            .parse::<u64>()
            .ok()
            .filter(|it| *it > 0)
            .ok_or_else(|| wrong("training.global_batch_size", &word, "-1, or at least 1"))?,
    };
    read.set("micro_batch_size", integer(micro))?;
    read.set("global_batch_size", integer(global))
}

/// The order of a pipeline's work: one that has a name, or that `written` has.
fn schedule(
    read: &mut Read,
    given: &mut Given,
    (pp, data): (u64, u64),
    written: Option<&str>,
) -> Result<(), ReadError> {
    let name = given.word("parallelism.pipeline_parallel_schedule")?.unwrap_or_else(|| "1F1B".to_owned());
    let each = given.positive("parallelism.pipeline_parallel_layers_per_stage")?;
    let parts = given.words("parallelism.module_fqns_per_model_part");
    if pp == 1 {
        return Ok(());
    }
    let (word, most) = match name.as_str() {
        "1F1B" => ("1f1b", 1),
        "GPipe" => ("gpipe", 1),
        "Interleaved1F1B" => ("1f1b", u64::MAX),
        "InterleavedZeroBubble" | "ZBVZeroBubble" | "DualPipeV" | "LoopedBFS" => {
            read.take(format!("pipeline_parallel_schedule = {name}"), "Interleaved1F1B");
            ("1f1b", u64::MAX)
        }
        other => {
            let expected =
                "1F1B, GPipe, Interleaved1F1B, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble or DualPipeV";
            return Err(wrong("parallelism.pipeline_parallel_schedule", other, expected));
        }
    };
    if !parts.is_empty() {
        let groups = usize::try_from(pp).unwrap_or(usize::MAX);
        let layers = |part: &String| part.split(',').filter(|it| it.trim().starts_with("layers.")).count();
        let of = |group: usize| parts.iter().skip(group).step_by(groups).map(layers).sum::<usize>();
        let sums =
            (0..groups.min(parts.len())).map(|group| Value::from(i64::try_from(of(group)).unwrap_or(0)));
        read.set("pipeline_layers", sums.collect::<Vec<_>>())?;
    }
    let layers = read.known("num_layers").unwrap_or(1);
    let stages = if parts.is_empty() { None } else { u64::try_from(parts.len()).ok() };
    let count = stages.or(each.map(|each| layers.div_ceil(each))).map(|stages| (stages / pp).max(1));
    const FILE: &str = "parallelism.pipeline_parallel_schedule_csv";
    let example = product(&[read.known("micro_batch_size").unwrap_or(1), data]);
    let micro_batches = read.known("global_batch_size").map_or(0, |it| it / example);
    let sizes = [pp, stages.map_or(1, |it| it / pp), micro_batches];
    if let Some((word, chunks)) = written.and_then(|it| named(it, sizes))
        && given.has(FILE)
    {
        read.set("schedule", word)?;
        return read.set("virtual_pipeline_model_parallel_size", integer(chunks));
    }
    read.set("schedule", word)?;
    // Two stages of each group where nobody says, as schedules that interleave need.
    let count = count.unwrap_or(2).min(most);
    read.set("virtual_pipeline_model_parallel_size", integer(count))
}

/// What an order of work is called that is written task by task, of so many groups of so many stages and micro-batches;
/// and how many parts its stages have.
fn named(text: &str, [groups, chunks, micro_batches]: [u64; 3]) -> Option<(&'static str, u64)> {
    let size = |it: u64| usize::try_from(it).ok();
    let (groups, parts, micro_batches) = (size(groups)?, size(chunks)?, size(micro_batches)?);
    let is = |kind: &Kind| {
        kind.schedule(groups, parts, micro_batches).is_ok_and(|schedule| csv(&schedule) == text)
    };
    let found = Kind::ALL.into_iter().find(is)?;
    let kind = if found == Kind::Interleaved { Kind::OneForwardOneBackward } else { found };
    SCHEDULE.iter().find(|it| it.1 == kind).map(|it| (it.0, chunks))
}

fn again(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    let whole = given.word("activation_checkpoint")?;
    let mode = given.word("activation_checkpoint.mode")?.or(whole).unwrap_or_else(|| "selective".to_owned());
    let option = given.word("activation_checkpoint.selective_ac_option")?.unwrap_or_else(|| "op".to_owned());
    let word = match (mode.as_str(), option.as_str()) {
        ("none" | "None", _) => "none",
        ("full" | "FullAC.Config()", _) => "full",
        ("selective" | "SelectiveAC.Config()", "op") => "every-second-product",
        ("selective", "1") => "full",
        ("selective", "2") => "every-second-layer",
        ("selective", often) => {
            let count = often.parse::<u64>().ok().filter(|it| *it > 0);
            let count = count.ok_or_else(|| {
                wrong("activation_checkpoint.selective_ac_option", often, "op, or every how many layers")
            })?;
            read.take(format!("selective_ac_option = {count}"), "every second layer");
            "every-second-layer"
        }
        ("memory_budget", _) => {
            read.take("activation_checkpoint.mode = memory_budget", "every second product, as selective");
            "every-second-product"
        }
        (other, _) => return Err(wrong("activation_checkpoint.mode", other, "none, selective or full")),
    };
    read.set("recompute_granularity", word)
}

fn arithmetic(read: &mut Read, given: &mut Given) -> Result<(), ReadError> {
    let element = given.word("training.mixed_precision_param")?.unwrap_or_else(|| "bfloat16".to_owned());
    let whole = given.word("training.dtype")?;
    if element != "bfloat16" && whole.as_deref() != Some("bfloat16") {
        return Err(wrong("training.mixed_precision_param", &element, "bfloat16"));
    }
    if given.word("training.mixed_precision_reduce")?.as_deref() == Some("bfloat16") {
        read.set("grad_reduce_bytes", 2_i64)?;
    }
    let converters = given.words("model.converters");
    let eight = converters.iter().any(|it| it.contains("float8") || it.contains("mx"));
    if eight {
        read.take(
            format!("model.converters = {}", converters.join(", ")),
            "all products of layers in 8 bits",
        );
    }
    read.set("precision", if eight { "fp8" } else { "bf16" })
}

/// Of no effect on the time of a step or on memory.
const HARMLESS: &[&str] = &[
    "job.*",
    "profiling.*",
    "metrics.*",
    "optimizer.lr",
    "optimizer.eps",
    "optimizer.beta*",
    "optimizer.name",
    "optimizer.weight_decay",
    "optimizer.implementation",
    "lr_scheduler.*",
    "checkpoint.*",
    "comm.*",
    "training.steps",
    "training.max_norm",
    "training.dataset*",
    "training.gc_freq",
    "training.seed",
    "training.deterministic",
    "training.disable_cuda_graphs",
    "loss",
    "training.warmup_steps",
    "training.gc_debug",
    "model.tokenizer_path",
    "model.hf_assets_path",
    "model.print_after_conversion",
    "experimental.*",
    "validation.*",
    "debug.*",
    "fault_tolerance.*",
    "memory_estimation.*",
    "activation_checkpoint.early_stop",
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
    "activation_checkpoint.visualize*",
    "parallelism.pipeline_parallel_split_points",
    "dump_folder",
    "hf_assets_path",
];

/// Of an effect that prices do not know.
const TAKEN: &[(&str, &str)] = &[
    ("parallelism.pipeline_parallel_schedule_csv", "1F1B"),
    ("parallelism.pipeline_parallel_first_stage_less_layers", "stages as even as layers are"),
    ("parallelism.pipeline_parallel_last_stage_less_layers", "stages as even as layers are"),
    ("parallelism.context_parallel_rotate_method", "keys and values that go around a ring"),
    ("parallelism.context_parallel_load_balancer", "equal shares of what is computed"),
    ("parallelism.disable_loss_parallel", "logits split among tensor-parallel ranks"),
    ("parallelism.enable_compiled_autograd", "as the framework's figures say"),
    ("parallelism.expert_parallel_comm_backend", "tokens sent once for each of their experts"),
    ("training.compile", "compiled, as the framework's figures are"),
    ("compile.*", "compiled, as the framework's figures are"),
    ("training.enable_cpu_offload", "weights and states on the device"),
    ("optimizer.early_step_in_backward", "an update at the end"),
    ("quantize.*", "8 bits as the framework's figures say"),
    ("float8.*", "8 bits as the framework's figures say"),
    ("mx.*", "8 bits as the framework's figures say"),
];
