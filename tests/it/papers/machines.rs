//! The papers' machines, from files with the source of each number.

use cost_models::machine::{Machine, json};

/// PrimePar's nodes of four V100: Fig. 9's rates.
pub(crate) fn primepar(devices: u64) -> Machine {
    machine("primepar-v100", include_str!("../../cases/machines/primepar-v100.json"), devices)
}

/// The A100 node and software of the logs of RTP.
pub(crate) fn rtp(devices: u64) -> Machine {
    machine("rtp-a100", include_str!("../../cases/machines/rtp-a100.json"), devices)
}

fn machine(name: &str, text: &str, devices: u64) -> Machine {
    json::read(name, text).unwrap().with_devices(devices).unwrap()
}
