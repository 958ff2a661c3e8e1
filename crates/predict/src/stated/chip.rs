//! What a row says of its device besides the name of it.

use cost_models::machine::Machine;
use cost_models::units::BytesPerSecond;

use crate::chip::{Chip, scaled};
use crate::table::{Row, TableError};

/// The rate of HBM2e beside an H100 in SXM form, which its data sheet has with HBM3.
///
/// Source: Ujeniya et al., arXiv 2604.11391: H100 with 94 GiB of HBM2e, 2.41 TB/s.
const HBM2E: BytesPerSecond = BytesPerSecond(2.41e12);

/// How far the memory of a row may be from that of a machine file's name before it is another device.
const ROUNDING: f64 = 0.05;

/// What a row says of its device: power (`500W`), memory (`gpu_mem_gb`), the rate of memory (`2.4 TB/s` beside
/// `HBM`, or HBM2e).
pub(crate) fn chip(row: &Row<'_>, machine: &Machine) -> Result<Chip, TableError> {
    let texts = ["gpu", "notes"].map(|column| row.text(column));
    let power = texts.iter().find_map(|text| quantity(text, "W")).filter(|it| (20.0..=3000.0).contains(it));
    let memories = texts.iter().filter(|text| text.contains("HBM"));
    let rate = memories.clone().find_map(|text| quantity(text, "TB/s"));
    let is_hbm2e = machine.name.starts_with("h100-80g") && !machine.name.contains("pcie");
    let older = is_hbm2e && texts[0].to_lowercase().contains("hbm2e");
    let named = named_memory(&machine.name).zip(row.number("gpu_mem_gb")?);
    let other = named.filter(|(named, stated)| *stated > 0.0 && (stated / named - 1.0).abs() > ROUNDING);
    Ok(Chip {
        power,
        memory: other.map(|(named, stated)| scaled(machine.device.memory_capacity.value, named, stated)),
        bandwidth: rate.map(|it| BytesPerSecond(1e12 * it)).or(older.then_some(HBM2E)),
    })
}

/// The memory in the name of a machine file: `h100-80g` has 80 GB.
fn named_memory(name: &str) -> Option<f64> {
    name.split('-').find_map(|part| part.strip_suffix('g')?.parse().ok())
}

/// The number before a unit that no letter follows: `500W`, `2.4 TB/s`.
fn quantity(text: &str, unit: &str) -> Option<f64> {
    let places = text.match_indices(unit).filter(|(place, _)| {
        let after = text[place + unit.len()..].chars().next();
        after.is_none_or(|it| !it.is_alphanumeric() && it != '/' && it != '.')
    });
    let mut numbers = places.filter_map(|(place, _)| {
        let before = text[..place].trim_end_matches(' ');
        let start = before.rfind(|it: char| !it.is_ascii_digit() && it != '.').map_or(0, |it| it + 1);
        before[start..].parse::<f64>().ok()
    });
    numbers.next()
}

#[cfg(test)]
mod tests;
