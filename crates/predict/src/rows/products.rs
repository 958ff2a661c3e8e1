//! `gemm_rows.csv`: times and rates of matrix products, attention and passes over memory on one
//! device.

use cost_models::compute::{
    Access, Attention, Heat, MatrixProduct, Role, Seen, attention, attention_gradient, kernel,
    matrix_product_at,
};
use cost_models::machine::{Device, Precision};
use cost_models::units::{Bytes, Flops, Seconds, exact};

use super::{Answer, Kind, Priced};
use crate::device::machine_of;
use crate::stated::Unstated;
use crate::table::{Row, TableError};

/// Times of products.
pub struct Products;

impl Kind for Products {
    fn file(&self) -> &'static str {
        "gemm_rows.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &[
            "row_id",
            "source",
            "gpu",
            "op",
            "m",
            "n",
            "k",
            "batch",
            "precision",
            "time_us",
            "tflops",
            "mem_gbs",
        ]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        match priced(row) {
            Ok(priced) => Ok(Answer::Priced(priced)),
            Err(Unstated::Field(error)) => Err(error),
            Err(Unstated::Why(why)) => Ok(Answer::Skipped(why)),
        }
    }
}

/// What a row times.
struct Timed {
    /// How long it takes.
    time: Seconds,
    /// The operations that its source counts.
    work: f64,
    /// The bytes that its source counts.
    bytes: f64,
}

fn priced(row: &Row<'_>) -> Result<Priced, Unstated> {
    let machine = machine_of(row.text("gpu")).map_err(Unstated::Why)?;
    priced_on(row, &machine.device)
}

/// What a row says and what we say of it, on a device.
pub(crate) fn priced_on(row: &Row<'_>, device: &Device) -> Result<Priced, Unstated> {
    /// Microseconds in a second, and the units of rates.
    const MICRO: f64 = 1e6;
    const TERA: f64 = 1e12;
    const GIGA: f64 = 1e9;
    let timed = timed(row, device)?;
    let seconds = timed.time.0;
    if let Some(measured) = row.number("time_us")? {
        return Ok(Priced::new(seconds * MICRO, measured));
    }
    if let Some(measured) = row.number("tflops")? {
        return Ok(Priced::new(timed.work / seconds / TERA, measured));
    }
    if let Some(measured) = row.number("mem_gbs")? {
        return Ok(Priced::new(timed.bytes / seconds / GIGA, measured));
    }
    Err(Unstated::Why("neither a time nor a rate is stated".to_owned()))
}

fn timed(row: &Row<'_>, device: &Device) -> Result<Timed, Unstated> {
    let op = row.text("op");
    let (kind, what) = op.split_once(':').unwrap_or((op, ""));
    match kind {
        "gemm" | "grouped_gemm" => product(row, device),
        "sdp_fwd" | "sdp_bwd" => scores(row, device),
        "memory" if what == "pinned_h2d" => {
            Err(Unstated::Why("a copy from the host is no operation of the device".to_owned()))
        }
        "memory" => pass(row, device, what),
        "kernel_launch" => Ok(Timed { time: device.launch.value, work: 0.0, bytes: 0.0 }),
        _ => Err(Unstated::Why(format!("`{op}` is not a product, an attention or a pass over memory"))),
    }
}

fn count(row: &Row<'_>, column: &str) -> Result<u64, Unstated> {
    let count = row.count(column)?;
    count.filter(|it| *it > 0).ok_or_else(|| Unstated::Why(format!("`{column}` is not stated")))
}

/// Fails if there is more work than any product has.
fn possible(sizes: &[u64]) -> Result<(), Unstated> {
    let work: f64 = sizes.iter().map(|&it| exact(it)).product();
    if work <= 1e18 { Ok(()) } else { Err(Unstated::Why("larger than any product is".to_owned())) }
}

fn product(row: &Row<'_>, device: &Device) -> Result<Timed, Unstated> {
    let (m, n, k) = (count(row, "m")?, count(row, "n")?, count(row, "k")?);
    possible(&[m, n, k, row.count("batch")?.unwrap_or(1)])?;
    let notes = row.text("notes");
    let grouped = row.text("op").starts_with("grouped");
    let groups = if grouped { count(row, "batch")? } else { row.count("batch")?.unwrap_or(1).max(1) };
    // Rows of all groups are stated together.
    let rows = if grouped { m.div_ceil(groups) } else { m };
    let role = role(notes);
    let sizes = match role {
        // A grouped gradient by weights sums over the rows of a group.
        Role::WeightGradient if grouped => [k, n, rows],
        _ => [rows, n, k],
    };
    let precision = precision(row.text("precision"))?;
    let forward = MatrixProduct::forward(groups, sizes, precision);
    let result = if notes.contains("out=fp32") { Bytes(4) } else { precision.result() };
    let added = notes.contains("accumulate=True");
    let per_result = if added { Bytes(2 * result.0) } else { result };
    let product = MatrixProduct { role, per_result, ..forward };
    let bytes = exact(product.traffic().0);
    let time = matrix_product_at(device, &product, Heat::Cold);
    Ok(Timed { time, work: product.work().0, bytes })
}

/// What a product is for: rows say it as the layout of operands, or as a stage.
fn role(notes: &str) -> Role {
    if notes.contains("layout=NT") || notes.contains("stage=bwd_grad_w") {
        Role::WeightGradient
    } else if notes.contains("layout=NN") || notes.contains("stage=bwd_grad_act") {
        Role::InputGradient
    } else {
        Role::Forward
    }
}

fn precision(name: &str) -> Result<Precision, Unstated> {
    let first = name.split_whitespace().next().unwrap_or_default().to_lowercase();
    match first.as_str() {
        "fp64" | "float64" => Ok(Precision::F64),
        "fp32" | "float32" => Ok(Precision::F32),
        "tf32" => Ok(Precision::Tf32),
        "fp16" | "float16" | "half" => Ok(Precision::F16),
        "bf16" | "bfloat16" => Ok(Precision::Bf16),
        "fp8" | "fp8_e4m3" | "fp8_e5m2" | "float8" => Ok(Precision::F8),
        _ => Err(Unstated::Why(format!("no peak rate is known for precision `{name}`"))),
    }
}

/// Attention: `m` queries of `n` heads of size `k`. Sources count all scores, but compute those that
/// do not look ahead.
fn scores(row: &Row<'_>, device: &Device) -> Result<Timed, Unstated> {
    let (queries, heads, key_size) = (count(row, "m")?, count(row, "n")?, count(row, "k")?);
    let noted = row.text("notes").split_whitespace().find_map(|word| word.strip_prefix("v_dim="));
    let value_size = noted.and_then(|size| size.parse().ok()).unwrap_or(key_size);
    possible(&[queries, heads, queries, key_size, row.count("batch")?.unwrap_or(1)])?;
    let heads = heads * row.count("batch")?.unwrap_or(1).max(1);
    let precision = precision(row.text("precision"))?;
    let keys = queries;
    let seen = Seen::half(keys);
    let causal = Attention { heads, queries, keys, seen, key_size, value_size, precision };
    let counted = Attention { seen: Seen::all(keys), ..causal }.work().0;
    // Backward, five products stand beside two.
    Ok(match row.text("op") {
        "sdp_fwd" => Timed { time: attention(device, &causal), work: counted, bytes: 0.0 },
        _ => Timed { time: attention_gradient(device, &causal), work: 2.5 * counted, bytes: 0.0 },
    })
}

/// A pass over memory: so many bytes if each element is touched once, or a large array.
fn pass(row: &Row<'_>, device: &Device, what: &str) -> Result<Timed, Unstated> {
    /// An array that fits no cache (bytes).
    const LARGE: Bytes = Bytes(1 << 32);
    let bytes = row.bytes("min_bytes")?.map_or(LARGE, Bytes);
    // The kernels of vLLM take elements one by one, and those of norms read them twice.
    let (access, moved) = match what {
        "mlp_act" => (Access::Scalar, bytes),
        "input_layernorm" | "post_attention_layernorm" => (Access::Scalar, Bytes(bytes.0 / 2 * 3)),
        _ => (Access::Wide, bytes),
    };
    let time = kernel(device, access, moved, Flops(0.0));
    Ok(Timed { time, work: 0.0, bytes: exact(bytes.0) })
}

#[cfg(test)]
mod tests;
