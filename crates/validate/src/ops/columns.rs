//! Operations of lines.

use cost_models::operations::Format;
use cost_models::operations::imbalance::Distribution;
use cost_models::operations::operation::{Attention, Dispatch, Experts, Latent, Operation, Sequence};
use predict::table::{Row, Table, TableError};

use super::{Line, Measured, is_fitted};

/// What rows are counted from.
pub const COUNTED: usize = 0;

/// A kind of file: its name without an ending, its columns, and what a row of it is.
pub struct Kind {
    /// The name of its file, without an ending.
    pub name: &'static str,
    columns: &'static [&'static str],
    /// Columns whose sum is the measured time, and what is a second of it.
    time: (&'static [&'static str], f64),
    measured: fn(&Row<'_>) -> Result<Asked, TableError>,
}

/// What a row says.
struct Asked {
    format: String,
    operation: Result<(String, String, Operation), String>,
}

const MS: (&[&str], f64) = (&["ms_median"], 1e3);

/// The kinds of files that there are.
pub const KINDS: [Kind; 14] = [
    Kind { name: "gemm", columns: &["gemm_dtype", "m", "n", "k"], time: MS, measured: product },
    Kind { name: "context_attention", columns: ATTENTION, time: MS, measured: prefill },
    Kind { name: "generation_attention", columns: ATTENTION, time: MS, measured: decode },
    Kind {
        name: "mla",
        columns: &[
            "op_name",
            "mla_dtype",
            "kv_cache_dtype",
            "num_heads",
            "batch_size",
            "isl",
            "step",
            "tp_size",
        ],
        time: MS,
        measured: latent,
    },
    Kind {
        name: "mla_bmm",
        columns: &["op_name", "bmm_dtype", "num_tokens", "num_heads"],
        time: MS,
        measured: projection,
    },
    Kind {
        name: "moe",
        columns: &[
            "moe_dtype",
            "num_tokens",
            "hidden_size",
            "inter_size",
            "topk",
            "num_experts",
            "moe_tp_size",
            "moe_ep_size",
            "distribution",
        ],
        time: MS,
        measured: experts,
    },
    Kind {
        name: "nccl",
        columns: &["op_name", "nccl_dtype", "num_gpus", "message_size"],
        time: MS,
        measured: collective,
    },
    Kind {
        name: "custom_allreduce",
        columns: &["framework", "allreduce_dtype", "num_gpus", "message_size"],
        time: MS,
        measured: all_reduce,
    },
    Kind {
        name: "alltoall",
        columns: &[
            "op_name",
            "kernel_source",
            "moe_dtype",
            "num_tokens",
            "hidden_size",
            "topk",
            "num_experts",
            "moe_ep_size",
        ],
        time: MS,
        measured: all_to_all,
    },
    Kind {
        name: "deepep_normal",
        columns: &["node_num", "hidden_size", "num_token", "num_topk", "num_experts", "dispatch_sms"],
        time: (
            &["dispatch_transmit_us", "dispatch_notify_us", "combine_transmit_us", "combine_notify_us"],
            1e6,
        ),
        measured: dispatch_many,
    },
    Kind {
        name: "deepep_low_latency",
        columns: &["node_num", "hidden_size", "num_token", "num_topk", "num_experts"],
        time: (&["dispatch_avg_t_us", "combine_avg_t_us"], 1e6),
        measured: dispatch_few,
    },
    Kind {
        name: "linear_attention",
        columns: &[
            "kernel_source",
            "batch_size",
            "seq_len",
            "d_conv",
            "num_k_heads",
            "head_k_dim",
            "num_v_heads",
            "head_v_dim",
        ],
        time: MS,
        measured: delta_rule,
    },
    Kind {
        name: "mamba2",
        columns: &["kernel_source", "batch_size", "seq_len", "d_state", "nheads", "head_dim", "n_groups"],
        time: MS,
        measured: mamba,
    },
    Kind { name: "quantize", columns: &["op_name", "quant_dtype", "m", "k"], time: MS, measured: quantise },
];

const ATTENTION: &[&str] = &[
    "attn_dtype",
    "kv_cache_dtype",
    "batch_size",
    "isl",
    "step",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
];

/// Columns that say what came of a row, not what it is.
const RESULTS: [&str; 5] = ["ms_median", "ms_min", "measurements", "_us", "_gbps"];

/// What files of whole engines are called, their device and their type.
const ENGINES: (&str, [&str; 2]) = ("serving", ["system", "gemm_quant_mode"]);

/// The lines of a file, if its name is that of a kind of files that is known; each of a file of engines has a
/// reason in place of an operation.
pub fn lines(file: &str, text: &str) -> Result<Option<Vec<Line>>, TableError> {
    let name = file.split('.').next().unwrap_or_default();
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name) {
        return read(file, kind, text).map(Some);
    }
    let (engines, columns) = ENGINES;
    if name != engines {
        return Ok(None);
    }
    let table = Table::read(file, text, &columns)?;
    let line = |(row, it): (usize, Row<'_>)| Line {
        file: file.to_owned(),
        row: row + COUNTED,
        gpu: it.text(columns[0]).to_owned(),
        format: it.text(columns[1]).to_owned(),
        measured: Err("a whole engine, not an operation".to_owned()),
    };
    Ok(Some(table.rows().enumerate().map(line).collect()))
}

/// The lines of a file of measured operations.
pub fn read(file: &str, kind: &Kind, text: &str) -> Result<Vec<Line>, TableError> {
    let needed: Vec<&str> = ["gpu"].iter().chain(kind.columns).chain(kind.time.0).copied().collect();
    let table = Table::read(file, text, &needed)?;
    let shape = |row: &Row<'_>| {
        let cells = table.columns().filter(|name| !RESULTS.iter().any(|it| name.ends_with(it)));
        cells.map(|name| row.text(name)).collect::<Vec<_>>().join(",")
    };
    let line = |(place, row): (usize, Row<'_>)| {
        let asked = (kind.measured)(&row)?;
        let time = time(&row, kind)?;
        let measured = asked.operation.map(|(law, kernel, operation)| Measured {
            law,
            kernel,
            operation,
            time,
            fitted: is_fitted(&shape(&row)),
        });
        let gpu = row.text("gpu").to_owned();
        Ok(Line { file: file.to_owned(), row: place + COUNTED, gpu, format: asked.format, measured })
    };
    table.rows().enumerate().map(line).collect()
}

/// The measured time of a row (seconds).
fn time(row: &Row<'_>, kind: &Kind) -> Result<f64, TableError> {
    let (columns, second) = kind.time;
    let mut time = 0.0;
    for column in columns {
        let part = row.number(column)?.filter(|it| it.is_finite() && *it >= 0.0);
        time += part.ok_or_else(|| row.wrong(column, "a time of 0 or more"))?;
    }
    if time > 0.0 { Ok(time / second) } else { Err(row.wrong(columns[0], "a time above 0")) }
}

/// The count in a column that has to have one.
fn count(row: &Row<'_>, column: &str) -> Result<u64, TableError> {
    row.bytes(column)?.filter(|it| *it > 0).ok_or_else(|| row.wrong(column, "a whole number above 0"))
}

fn counts<const N: usize>(row: &Row<'_>, columns: [&str; N]) -> Result<[u64; N], TableError> {
    let mut found = [0; N];
    for (place, column) in columns.into_iter().enumerate() {
        found[place] = count(row, column)?;
    }
    Ok(found)
}

/// The law of a kernel in a format, and the operation, if the format is known.
fn in_format(kernel: &str, row: &Row<'_>, column: &str, of: impl FnOnce(Format) -> Operation) -> Asked {
    let name = row.text(column);
    let operation = match Format::named(name) {
        Some(format) => Ok((format!("{kernel} {name}"), kernel.to_owned(), of(format))),
        None => Err(format!("no format `{name}` is known")),
    };
    Asked { format: name.to_owned(), operation }
}

fn product(row: &Row<'_>) -> Result<Asked, TableError> {
    let [m, n, k] = counts(row, ["m", "n", "k"])?;
    Ok(in_format("gemm", row, "gemm_dtype", |format| Operation::Product { m, n, k, format }))
}

/// Attention of a row; a kernel that says no window knows of none.
fn attention(row: &Row<'_>, kernel: &str, before: u64) -> Result<(Asked, Option<Attention>), TableError> {
    let columns = ["batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim"];
    let [batch, queries, heads, kv_heads, head_size] = counts(row, columns)?;
    let window = row.number("window_size")?.filter(|it| !it.is_nan());
    let windows = window.is_some();
    let window = if windows { row.count("window_size")?.filter(|it| *it > 0) } else { None };
    let [format, cache] = ["attn_dtype", "kv_cache_dtype"].map(|column| row.text(column));
    let name = format!("{kernel} {format} {cache}");
    let named = Format::named(format).zip(Format::named(cache));
    let asked =
        Asked { format: format.to_owned(), operation: Err(format!("no formats of `{name}` are known")) };
    let attention = named.map(|(format, cache)| Attention {
        batch,
        queries,
        before,
        heads,
        kv_heads,
        head_size,
        window,
        windows,
        format,
        cache,
    });
    Ok((asked, attention))
}

fn attended(
    row: &Row<'_>,
    kernel: &str,
    before: u64,
    of: fn(Attention) -> Operation,
) -> Result<Asked, TableError> {
    let (asked, attention) = attention(row, kernel, before)?;
    let Some(attention) = attention else { return Ok(asked) };
    let law = format!("{kernel} {} {}", attention.format.name(), attention.cache.name());
    Ok(Asked { operation: Ok((law, kernel.to_owned(), of(attention))), ..asked })
}

/// Tokens before the first: a column that may be 0.
fn before(row: &Row<'_>) -> Result<u64, TableError> {
    row.count("step")?.ok_or_else(|| row.wrong("step", "a whole number"))
}

fn prefill(row: &Row<'_>) -> Result<Asked, TableError> {
    attended(row, "context_attention", before(row)?, Operation::Prefill)
}

fn decode(row: &Row<'_>) -> Result<Asked, TableError> {
    attended(row, "generation_attention", before(row)?, Operation::Decode)
}

fn latent(row: &Row<'_>) -> Result<Asked, TableError> {
    let [heads, batch, queries, split] = counts(row, ["num_heads", "batch_size", "isl", "tp_size"])?;
    let (before, op) = (before(row)?, row.text("op_name"));
    let kernel = format!("mla.{op} {}", row.text("mla_dtype"));
    let mut asked = in_format(&kernel, row, "kv_cache_dtype", |cache| {
        let absorbed = op.contains("generation");
        Operation::Latent(Latent { batch, queries, before, heads, split, absorbed, cache })
    });
    row.text("mla_dtype").clone_into(&mut asked.format);
    if let Ok((_, kernel, _)) = &mut asked.operation {
        *kernel = format!("mla.{op}");
    }
    Ok(asked)
}

fn projection(row: &Row<'_>) -> Result<Asked, TableError> {
    let [tokens, heads] = counts(row, ["num_tokens", "num_heads"])?;
    let kernel = format!("mla_bmm.{}", row.text("op_name"));
    Ok(in_format(&kernel, row, "bmm_dtype", |format| Operation::Projection { tokens, heads, format }))
}

fn experts(row: &Row<'_>) -> Result<Asked, TableError> {
    let sizes =
        ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"];
    let [tokens, hidden, inner, active, experts, split, ranks] = counts(row, sizes)?;
    let distribution = match row.text("distribution") {
        "balanced" => Distribution::Balanced,
        text => {
            let exponent = text.strip_prefix("power_law_").and_then(|it| it.parse::<f64>().ok());
            let expected = "`balanced`, or `power_law_` and an exponent";
            let exponent = exponent.filter(|it| it.is_finite() && *it > 0.0);
            Distribution::PowerLaw(exponent.ok_or_else(|| row.wrong("distribution", expected))?)
        }
    };
    Ok(in_format("moe", row, "moe_dtype", |format| {
        Operation::Experts(Experts {
            tokens,
            hidden,
            inner,
            active,
            experts,
            split,
            ranks,
            distribution,
            format,
        })
    }))
}

/// A collective operation of so many elements: what it takes does not depend on their type but by its bytes.
fn moved(row: &Row<'_>, kernel: &str, column: &str, sums: bool) -> Result<Asked, TableError> {
    let [ranks, elements] = counts(row, ["num_gpus", "message_size"])?;
    let mut asked = in_format(kernel, row, column, |format| {
        let bytes = if format.activation() > 1.0 { 2 * elements } else { elements };
        Operation::Collective { ranks, bytes, sums }
    });
    if let Ok((law, ..)) = &mut asked.operation {
        kernel.clone_into(law);
    }
    Ok(asked)
}

fn collective(row: &Row<'_>) -> Result<Asked, TableError> {
    let op = row.text("op_name");
    moved(row, &format!("nccl.{op}"), "nccl_dtype", op == "all_reduce")
}

fn all_reduce(row: &Row<'_>) -> Result<Asked, TableError> {
    moved(row, &format!("custom_allreduce.{}", row.text("framework")), "allreduce_dtype", true)
}

fn all_to_all(row: &Row<'_>) -> Result<Asked, TableError> {
    let sizes = ["num_tokens", "hidden_size", "topk", "num_experts", "moe_ep_size"];
    let [tokens, hidden, active, experts, ranks] = counts(row, sizes)?;
    let op = row.text("op_name");
    let kernel = format!("{op}.{}", row.text("kernel_source"));
    Ok(in_format(&kernel, row, "moe_dtype", |format| {
        // What comes back has 16 bits.
        let each = if op.contains("dispatch") { format.activation() } else { 2.0 };
        Operation::Dispatch(Dispatch {
            tokens,
            hidden,
            active,
            experts,
            ranks,
            nodes: 1,
            processors: 0,
            each,
        })
    }))
}

/// Devices of a node of the machines that expert dispatch was measured on.
const NODE: u64 = 8;

/// Bytes of an element that is dispatched in 8 bits and comes back in 16.
const THERE_AND_BACK: f64 = 3.0;

/// Dispatch and combination together.
fn there_and_back(row: &Row<'_>, kernel: &str, processors: u64) -> Result<Asked, TableError> {
    let sizes = ["node_num", "hidden_size", "num_token", "num_topk", "num_experts"];
    let [nodes, hidden, tokens, active, experts] = counts(row, sizes)?;
    let ranks = nodes * NODE;
    let each = THERE_AND_BACK;
    let dispatch = Dispatch { tokens, hidden, active, experts, ranks, nodes, processors, each };
    let operation = (kernel.to_owned(), kernel.to_owned(), Operation::Dispatch(dispatch));
    Ok(Asked { format: Format::Fp8.name().to_owned(), operation: Ok(operation) })
}

fn dispatch_many(row: &Row<'_>) -> Result<Asked, TableError> {
    there_and_back(row, "deepep_normal", count(row, "dispatch_sms")?)
}

fn dispatch_few(row: &Row<'_>) -> Result<Asked, TableError> {
    there_and_back(row, "deepep_low_latency", 0)
}

/// A kernel over sequences, whose elements have 16 bits.
fn along(row: &Row<'_>, family: &str, sequence: Sequence, width: u64) -> Asked {
    let source = row.text("kernel_source");
    let kernel = format!("{family}.{source}");
    let operation = if source.contains("conv") {
        Operation::Convolution { sequence, width }
    } else {
        Operation::Recurrence(sequence)
    };
    Asked { format: Format::Bfloat16.name().to_owned(), operation: Ok((kernel.clone(), kernel, operation)) }
}

fn delta_rule(row: &Row<'_>) -> Result<Asked, TableError> {
    let sizes = ["batch_size", "seq_len", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim", "d_conv"];
    let [batch, tokens, key_heads, key_size, value_heads, value_size, width] = counts(row, sizes)?;
    let sequence = Sequence { batch, tokens, key_heads, key_size, value_heads, value_size };
    Ok(along(row, "linear_attention", sequence, width))
}

/// Elements of the convolution of Mamba-2, of which files say nothing.
///
/// Source: Dao and Gu, "Transformers are SSMs", arXiv 2405.21060, `d_conv` of its code.
const MAMBA_WIDTH: u64 = 4;

fn mamba(row: &Row<'_>) -> Result<Asked, TableError> {
    let sizes = ["batch_size", "seq_len", "n_groups", "d_state", "nheads", "head_dim"];
    let [batch, tokens, key_heads, key_size, value_heads, value_size] = counts(row, sizes)?;
    let sequence = Sequence { batch, tokens, key_heads, key_size, value_heads, value_size };
    Ok(along(row, "mamba2", sequence, MAMBA_WIDTH))
}

fn quantise(row: &Row<'_>) -> Result<Asked, TableError> {
    let [m, k] = counts(row, ["m", "k"])?;
    let op = row.text("op_name");
    // Scales are found by reading 16 bits; scaling writes 8 besides.
    let each = if op == "compute_scale" { 2 } else { 3 };
    Ok(in_format(&format!("quantize.{op}"), row, "quant_dtype", |_| Operation::Elements { m, k, each }))
}
