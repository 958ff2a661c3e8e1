//! What links do.

use cost_models::units::{Bytes, BytesPerSecond, Seconds};

use crate::error::ReshardError;

/// The links that messages take. An adapter of a node sends one message at a time and receives one
/// at a time, at once; so does each device to the others of its node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// The rate of an adapter, in either direction.
    pub between: BytesPerSecond,
    /// The rate of a device to the others of its node, in either direction.
    pub inside: BytesPerSecond,
    /// What a message takes besides its bytes.
    pub latency: Seconds,
}

impl Network {
    /// What a message from node to node takes on the links that it keeps busy.
    pub fn time(&self, from_node: u64, to_node: u64, bytes: u64) -> Seconds {
        let rate = if from_node == to_node { self.inside } else { self.between };
        self.latency + Bytes(bytes) / rate
    }

    /// Whether its numbers are ones that it can have.
    pub(crate) fn check(&self) -> Result<(), ReshardError> {
        let rate = |rate: BytesPerSecond| rate.0 > 0.0 && rate.0.is_finite();
        if !rate(self.between) {
            return Err(ReshardError::Network("rate between nodes"));
        }
        if !rate(self.inside) {
            return Err(ReshardError::Network("rate inside nodes"));
        }
        if !(self.latency.0 >= 0.0 && self.latency.0.is_finite()) {
            return Err(ReshardError::Network("latency"));
        }
        Ok(())
    }
}
