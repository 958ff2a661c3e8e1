//! The angles of rotary position embeddings, as configurations scale them.
//!
//! Source: `modeling_rope_utils.py` of transformers 4.57.

use std::f64::consts::PI;

use crate::config::{Config, Result};
use crate::decoder::{Frequencies, Pairing, Table};

/// The base of angles where a configuration says none.
const BASE: f64 = 10_000.0;

/// The angles that a configuration says for heads of which so many elements are rotated.
pub(crate) fn table(config: &Config, rotated: u64, pairing: Pairing) -> Result<Table> {
    table_with(config, rotated, pairing, BASE)
}

/// The same with another base where none is said.
pub(crate) fn table_with(config: &Config, rotated: u64, pairing: Pairing, base: f64) -> Result<Table> {
    let base = config.positive_or("rope_theta", base)?;
    // Newer configurations have both in one object.
    let newer = config.inner("rope_parameters")?;
    let older = config.inner("rope_scaling")?;
    let Some(scaling) = newer.as_ref().or(older.as_ref()) else {
        return Ok(plain(base, rotated, pairing));
    };
    let base = scaling.positive_or("rope_theta", base)?;
    let table = scaled(config, scaling, base, rotated, pairing)?;
    scaling.done("rope_scaling")?;
    Ok(table)
}

/// Angles that are not scaled.
pub(crate) fn plain(base: f64, rotated: u64, pairing: Pairing) -> Table {
    Table { frequencies: Frequencies::Fixed(powers(base, rotated)), factor: 1.0, pairing }
}

/// `base^(-2 i / size)`.
fn powers(base: f64, size: u64) -> Vec<f64> {
    (0..size / 2).map(|pair| base.powf(-2.0 * real(pair) / real(size))).collect()
}

fn scaled(config: &Config, scaling: &Config, base: f64, size: u64, pairing: Pairing) -> Result<Table> {
    let newer = scaling.text_if("rope_type")?;
    let older = scaling.text_if("type")?;
    let kind = newer.or(older).unwrap_or_else(|| "default".to_owned());
    let powers = powers(base, size);
    let key = if scaling.has("rope_type") { "rope_type" } else { "type" };
    let (frequencies, factor) = match kind.as_str() {
        "default" => (Frequencies::Fixed(powers), 1.0),
        "linear" => {
            let factor = scaling.positive("factor")?;
            (Frequencies::Fixed(powers.iter().map(|it| it / factor).collect()), 1.0)
        }
        "dynamic" => {
            let (factor, length) = (scaling.positive("factor")?, config.count("max_position_embeddings")?);
            scaling.pass_over(&["original_max_position_embeddings"]);
            (Frequencies::Growing { base, factor, length, size }, 1.0)
        }
        "llama3" => (Frequencies::Fixed(llama3(scaling, &powers)?), 1.0),
        "yarn" => yarn(config, scaling, base, size, &powers)?,
        // What Phi-3 was first published with.
        "longrope" | "su" => long(config, scaling, size, &powers)?,
        _ => {
            let expected = "default, linear, dynamic, llama3, yarn or longrope";
            return Err(scaling.wrong(key, expected));
        }
    };
    Ok(Table { frequencies, factor, pairing })
}

/// Long waves are stretched, short ones stay, and between the two are mixtures.
fn llama3(scaling: &Config, powers: &[f64]) -> Result<Vec<f64>> {
    let factor = scaling.positive("factor")?;
    let [low, high] = [scaling.real("low_freq_factor")?, scaling.real("high_freq_factor")?];
    let length = real(scaling.count("original_max_position_embeddings")?);
    let of = |&frequency: &f64| {
        let wave = 2.0 * PI / frequency;
        if wave < length / high {
            frequency
        } else if wave > length / low {
            frequency / factor
        } else {
            let smooth = (length / wave - low) / (high - low);
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    };
    Ok(powers.iter().map(of).collect())
}

/// Stretched and unstretched frequencies, mixed by how often they turn within the original length.
///
/// Source: Peng et al., "YaRN", 2023, section 3.2.
fn yarn(
    config: &Config,
    scaling: &Config,
    base: f64,
    size: u64,
    powers: &[f64],
) -> Result<(Frequencies, f64)> {
    let factor = scaling.positive("factor")?;
    let [mscale, all] = [scaling.real_or("mscale", 0.0)?, scaling.real_or("mscale_all_dim", 0.0)?];
    let attention = match scaling.real_if("attention_factor")? {
        Some(factor) => factor,
        None if mscale != 0.0 && all != 0.0 => magnitude(factor, mscale) / magnitude(factor, all),
        None => magnitude(factor, 1.0),
    };
    let length = match scaling.number_if("original_max_position_embeddings")? {
        Some(length) => length,
        None => config.count("max_position_embeddings")?,
    };
    let [fast, slow] = [scaling.real_or("beta_fast", 32.0)?, scaling.real_or("beta_slow", 1.0)?];
    let dim = |turns: f64| real(size) * (real(length) / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
    let (mut low, mut high) = (dim(fast), dim(slow));
    if scaling.flag_or("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(real(size) - 1.0));
    if high <= low {
        high = low + 0.001;
    }
    let of = |(pair, &frequency): (u64, &f64)| {
        let stretched = ((real(pair) - low) / (high - low)).clamp(0.0, 1.0);
        frequency / factor * stretched + frequency * (1.0 - stretched)
    };
    Ok((Frequencies::Fixed((0..).zip(powers).map(of).collect()), attention))
}

/// What scores grow by with lengths that are so many times as long.
pub(crate) fn magnitude(scale: f64, by: f64) -> f64 {
    if scale <= 1.0 { 1.0 } else { 0.1 * by * scale.ln() + 1.0 }
}

/// A divisor for each frequency, others for long sequences.
fn long(config: &Config, scaling: &Config, size: u64, powers: &[f64]) -> Result<(Frequencies, f64)> {
    let divided = |key: &'static str| -> Result<Vec<f64>> {
        let divisors = scaling.reals_if(key)?.ok_or_else(|| scaling.missing(key, "a list of numbers"))?;
        if divisors.len() != powers.len() {
            return Err(scaling.wrong(key, format!("{} numbers, half of {size}", powers.len())));
        }
        Ok(powers.iter().zip(divisors).map(|(frequency, divisor)| frequency / divisor).collect())
    };
    let (short, long) = (divided("short_factor")?, divided("long_factor")?);
    let longest = config.count("max_position_embeddings")?;
    let said = scaling.real_if("factor")?;
    let inner = scaling.number_if("original_max_position_embeddings")?;
    let (length, factor) = match config.number_if("original_max_position_embeddings")?.or(inner) {
        Some(length) => (length, Some(real(longest) / real(length))),
        None => (longest, said),
    };
    let factor = match (scaling.real_if("attention_factor")?, factor) {
        (Some(factor), _) => factor,
        (None, Some(factor)) if factor > 1.0 => (1.0 + factor.ln() / real(length).ln()).sqrt(),
        _ => 1.0,
    };
    Ok((Frequencies::ByLength { length, short, long }, factor))
}

#[expect(clippy::cast_precision_loss, reason = "lengths are small numbers")]
pub(crate) fn real(number: u64) -> f64 {
    number as f64
}
