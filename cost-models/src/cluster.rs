//! Clusters of several kinds of nodes.
//!
//! Each kind is a machine, and their ranks follow each other: those of the first kind, those of the second.
//! All nodes have equally many devices, and adapters on one network.

pub mod json; // files that say several kinds

use std::fmt;

use crate::machine::{Machine, Margin};

/// Machines whose ranks follow each other.
///
/// Invariant: there is at least one; of several all have a network without leaves, and nodes of equally many
/// devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    kinds: Vec<Machine>,
}

/// Why machines are not a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterError {
    /// There are none.
    None,
    /// Nodes of different sizes: how many devices those of the first kind have, the other kind, and how many
    /// its have.
    Nodes(u64, String, u64),
    /// A kind without a network.
    NoNetwork(String),
    /// A kind whose network has leaves: which kind is at which leaf is not said.
    Leaves(String),
    /// More devices than [`Machine::DEVICE_LIMIT`].
    TooMany(u64),
}

impl Cluster {
    /// Nodes of one kind.
    #[must_use]
    pub fn of(machine: Machine) -> Self {
        Self { kinds: vec![machine] }
    }

    /// Nodes of these kinds.
    pub fn joined(kinds: Vec<Machine>) -> Result<Self, ClusterError> {
        let first = kinds.first().ok_or(ClusterError::None)?;
        if kinds.len() > 1 {
            let node = first.devices_per_node();
            for kind in &kinds {
                let name = kind.full_name();
                let network = kind.network.as_ref().ok_or_else(|| ClusterError::NoNetwork(name.clone()))?;
                if network.leaves.is_some() {
                    return Err(ClusterError::Leaves(name));
                }
                if kind.devices_per_node() != node {
                    return Err(ClusterError::Nodes(node, name, kind.devices_per_node()));
                }
            }
        }
        let devices = kinds.iter().fold(0_u64, |sum, kind| sum.saturating_add(kind.devices()));
        if devices > Machine::DEVICE_LIMIT {
            return Err(ClusterError::TooMany(devices));
        }
        Ok(Self { kinds })
    }

    /// The same machines, of whose memory plans leave so much free; what is usual of each kind, if nobody says
    /// how much.
    #[must_use]
    pub fn leaving(self, margin: Option<Margin>) -> Self {
        Self { kinds: self.kinds.into_iter().map(|kind| kind.leaving(margin)).collect() }
    }

    /// The kinds, in the order of their ranks.
    #[must_use]
    pub fn kinds(&self) -> &[Machine] {
        &self.kinds
    }

    /// The machine, if all nodes are of one kind.
    #[must_use]
    pub fn single(&self) -> Option<&Machine> {
        if let [machine] = self.kinds.as_slice() { Some(machine) } else { None }
    }

    /// The number of devices.
    #[must_use]
    pub fn devices(&self) -> u64 {
        self.kinds.iter().map(Machine::devices).sum()
    }

    /// The number of devices of a node.
    #[must_use]
    pub fn devices_per_node(&self) -> u64 {
        self.kinds[0].devices_per_node()
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.kinds.iter().map(Machine::nodes).sum()
    }

    /// The number of the kind that a rank is of; the last one for ranks that there are not.
    #[must_use]
    pub fn kind_of(&self, rank: u64) -> usize {
        let mut end = 0;
        let ends = self.kinds.iter().position(|kind| {
            end += kind.devices();
            rank < end
        });
        ends.unwrap_or(self.kinds.len() - 1)
    }

    /// The kind that a rank is of; the last one for ranks that there are not.
    #[must_use]
    pub fn of_rank(&self, rank: u64) -> &Machine {
        &self.kinds[self.kind_of(rank)]
    }

    /// The first rank of a kind.
    #[must_use]
    pub fn first_rank(&self, kind: usize) -> u64 {
        self.kinds.iter().take(kind).map(Machine::devices).sum()
    }

    /// The names of the kinds with their numbers of devices, joined by `+`.
    #[must_use]
    pub fn full_name(&self) -> String {
        let names: Vec<String> = self.kinds.iter().map(Machine::full_name).collect();
        names.join("+")
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "a cluster without nodes, expected one kind of nodes at least"),
            Self::Nodes(expected, name, found) => write!(
                f,
                "nodes of `{name}` have {found} devices, expected {expected}, as many as those of the first kind"
            ),
            Self::NoNetwork(name) => {
                write!(f, "`{name}` has no network, expected one: other kinds of nodes are beyond it")
            }
            Self::Leaves(name) => write!(
                f,
                "the network of `{name}` has leaves, expected none: the kind of nodes at each leaf is unknown"
            ),
            Self::TooMany(devices) => {
                write!(f, "{devices} devices, expected at most {}", Machine::DEVICE_LIMIT)
            }
        }
    }
}

impl std::error::Error for ClusterError {}

#[cfg(test)]
mod tests;
