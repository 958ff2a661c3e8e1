//! The machine that a row of measurements names.
//!
//! Rows name devices as their sources do: `A100-SXM4-80GB`, `NVIDIA H100 SXM`, `T4-16GB
//! (g4dn.12xlarge)`. A device is recognised by the words that its name must have.

use cost_models::machine::{Machine, shipped};

/// The words that the name of a device has, and the shipped machine file of it; the first line of
/// which all words occur is taken.
const NAMES: [(&[&str], &str); 22] = [
    (&["a100", "pairwise"], "a100-80g-pairs"),
    (&["a100", "pcie"], "a100-80g-pcie"),
    (&["a100", "40gb"], "a100-40g"),
    (&["a100"], "a100-80g"),
    (&["gh200"], "gh200-96g"),
    (&["h100", "pcie"], "h100-80g-pcie"),
    (&["h100"], "h100-80g"),
    (&["h800"], "h800-80g"),
    (&["h200"], "h200-141g"),
    (&["gb300"], "gb300-288g"),
    (&["b300"], "b300-288g"),
    (&["gb200"], "gb200-186g"),
    (&["b200"], "b200-180g"),
    (&["v100", "pcie"], "v100-32g-pcie"),
    (&["v100", "sxm3"], "v100-32g-sxm3"),
    (&["v100", "16gb"], "v100-16g"),
    (&["v100"], "v100-32g"),
    (&["t4"], "t4-16g"),
    (&["a40"], "a40-48g"),
    (&["l40s"], "l40s-48g"),
    (&["rtx", "pro", "6000"], "rtx-pro-6000-96g"),
    (&["mi2"], "mi250x-64g"),
];

/// The name of the machine file of a device, if it is one that is known.
#[must_use]
pub fn file_of(device: &str) -> Option<&'static str> {
    let name = device.to_lowercase();
    let known = NAMES.iter().find(|(words, _)| words.iter().all(|word| name.contains(word)));
    known.map(|(_, file)| *file).filter(|file| shipped::text(file).is_some())
}

/// One device of the kind that a row names, or why there is none.
pub fn machine_of(device: &str) -> Result<Machine, String> {
    let file = file_of(device).ok_or_else(|| format!("no machine file for device `{device}`"))?;
    shipped::named(&format!("{file}-1x")).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
