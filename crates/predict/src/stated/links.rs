//! What a row says of nodes and the links between them.

use cost_models::units::{BytesPerSecond, exact};

use crate::cluster::Links;
use crate::table::{Row, TableError};

/// What a row says of nodes and links, where it runs on so many devices.
///
/// In an NVLink domain of several trays a domain is a node, and adapters are stated for a tray:
/// `4x400Gb/s per 4-GPU tray; NVLink domain 72 GPUs` are 72 adapters. A run on more devices than a domain has
/// is in equal parts on domains, whole trays of each.
pub(super) fn links(row: &Row<'_>, devices: u64) -> Result<Links, TableError> {
    let (inside, across) = (row.text("intra_link"), row.text("inter_link"));
    let after = |word: &str| across.split(word).nth(1).and_then(number).and_then(count);
    let stated = row.count("gpus_per_node")?.filter(|it| *it > 0);
    let domain = after("NVLink domain ");
    // Without a domain a tray is a node.
    let tray = before(across, "-GPU tray").or(stated);
    let node = match (domain, tray) {
        (Some(domain), Some(tray)) if devices > domain => Some(part(devices, domain, tray)),
        (Some(domain), _) => Some(domain),
        (None, _) => stated,
    };
    let trays = node.zip(tray).map_or(1.0, |(node, tray)| exact(node) / exact(tray));
    let switch = inside.contains("NVSwitch").then(|| rate(inside)).flatten();
    // Rates of links inside nodes are stated in both directions together.
    let switch = switch.map(|(_, bytes)| BytesPerSecond(bytes / 2.0));
    let network = rate(across);
    Ok(Links {
        node,
        switch,
        adapters: network.and_then(|(adapters, _)| adapters).and_then(|it| count(trays * it)),
        network: network.map(|(adapters, bytes)| BytesPerSecond(trays * adapters.unwrap_or(1.0) * bytes)),
        adapter: None,
    })
}

/// Devices of each domain of a run on more than one: the most of whole trays that divide all devices.
fn part(devices: u64, domain: u64, tray: u64) -> u64 {
    let parts = (1..=domain / tray).rev().map(|trays| trays * tray);
    parts.into_iter().find(|part| devices.is_multiple_of(*part)).unwrap_or(domain)
}

/// The whole number before a word.
fn before(text: &str, word: &str) -> Option<u64> {
    let text = text.split(word).next().filter(|before| before.len() < text.len())?;
    let start = text.rfind(|it: char| !it.is_ascii_digit()).map_or(0, |it| it + 1);
    text[start..].parse().ok().filter(|it| *it > 0)
}

/// `8x200Gb/s HDR`, `1600 Gb/s RoCE per node`, `NVLink3 600GB/s`: how many, and at which rate each
/// (bytes per second).
fn rate(text: &str) -> Option<(Option<f64>, f64)> {
    let (place, unit) = [("Gb/s", 1e9 / 8.0), ("GB/s", 1e9)]
        .into_iter()
        .find_map(|(word, unit)| Some((text.find(word)?, unit)))?;
    let before = text[..place].trim_end();
    let start = before.rfind(|it: char| !it.is_ascii_digit() && it != '.').map_or(0, |it| it + 1);
    let value: f64 = before[start..].parse().ok()?;
    let times = before[..start].strip_suffix('x').and_then(|it| {
        let start = it.rfind(|it: char| !it.is_ascii_digit()).map_or(0, |it| it + 1);
        it[start..].parse::<f64>().ok()
    });
    Some((times, unit * value))
}

/// The whole number that a text begins with.
pub(super) fn number(text: &str) -> Option<f64> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers of devices")]
pub(super) fn count(number: f64) -> Option<u64> {
    (number >= 1.0).then_some(number as u64)
}
