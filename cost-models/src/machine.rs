//! The description of a cluster that every price reads.
//!
//! A cluster is a number of equal nodes; a node is a number of equal devices joined by links;
//! nodes are joined by network adapters. Rank `r` is device `r % d` of node `r / d`, with `d`
//! devices in a node.

use std::fmt;

use planner_ir::DType;

use crate::known::{Count, Known};
use crate::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Ratio, Seconds};

/// Machine files: reading, writing and everything that can be wrong with one.
pub mod json;

/// The machine files that come with the program, and the names of machines.
pub mod shipped;

/// Machines made of numbers that somebody has just measured.
pub mod measured;

/// A cluster, part of a node included.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The name of the device type, as in the name of its file: `h100-80g`.
    pub name: String,
    /// How many devices there are: at most a node's, or whole nodes.
    devices: u64,
    /// One device.
    pub device: Device,
    /// What joins the devices of a node.
    pub node: Node,
    /// How collective operations and messages are carried out.
    pub transport: Transport,
    /// What joins the nodes; `None` if the machine is a single host.
    pub network: Option<Network>,
}

/// One accelerator, or one thread of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Memory that a process can see (bytes).
    pub memory_capacity: Known<Bytes>,
    /// Memory that driver and communication library take (bytes).
    pub memory_reserved: Known<Bytes>,
    /// Peak rate of its memory (bytes per second).
    pub memory_bandwidth: Known<BytesPerSecond>,
    /// The part of the peak rate of memory that large element-wise operations reach.
    pub memory_efficiency: Known<Ratio>,
    /// Fixed time of an operation, however small (seconds).
    pub launch: Known<Seconds>,
    /// Peak rate outside matrix units, in single precision (operations per second).
    pub vector_peak: Known<FlopsPerSecond>,
    /// Peak rate of matrix products, by precision (operations per second).
    pub matrix_peak: MatrixPeak,
    /// The part of the peak rate that large matrix products reach.
    pub matrix_efficiency: Known<Ratio>,
    /// The work at which a matrix product reaches half of that (operations).
    pub matrix_half_work: Known<Flops>,
}

/// Peak rates of matrix products, dense (operations per second).
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixPeak {
    /// 64-bit floating point.
    pub f64: Known<FlopsPerSecond>,
    /// 32-bit floating point, not shortened.
    pub f32: Known<FlopsPerSecond>,
    /// 32-bit floating point with a shortened mantissa in the products.
    pub tf32: Known<FlopsPerSecond>,
    /// 16-bit floating point.
    pub f16: Known<FlopsPerSecond>,
    /// The upper half of 32-bit floating point.
    pub bf16: Known<FlopsPerSecond>,
    /// Integers of any width.
    pub integer: Known<FlopsPerSecond>,
}

/// The arithmetic of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// 64-bit floating point.
    F64,
    /// 32-bit floating point, not shortened.
    F32,
    /// 32-bit floating point with a shortened mantissa in the products.
    Tf32,
    /// 16-bit floating point.
    F16,
    /// The upper half of 32-bit floating point.
    Bf16,
    /// Integers of any width.
    Integer,
}

/// The devices of one node and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Devices in a full node.
    pub devices: Known<Count>,
    /// Which devices have links to which.
    pub wiring: Known<Wiring>,
    /// Rate of one device into a switch, or of one link, in one direction (bytes per second).
    pub link_bandwidth: Known<BytesPerSecond>,
    /// Rate between devices that no link joins, through the host (bytes per second).
    pub host_bandwidth: Known<BytesPerSecond>,
    /// The part of the rate of its links that a ring reaches with large messages.
    pub ring_share: Known<Ratio>,
    /// The part that a message between two devices reaches.
    pub pair_share: Known<Ratio>,
    /// The part that an exchange among all devices reaches.
    pub exchange_share: Known<Ratio>,
}

/// Which devices of a node have links to which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wiring {
    /// Every device has one port on a switch that never blocks.
    Switch,
    /// Devices are joined in pairs.
    Links(Vec<Link>),
}

/// Parallel links between two devices of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The two devices, by their place in the node.
    pub ends: [u64; 2],
    /// How many links there are.
    pub lanes: u64,
}

/// How a collective operation moves its data.
///
/// Two protocols exist, and the faster is taken: one with a high rate, one with a short start.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// For large messages.
    pub bulk: Protocol,
    /// For small messages.
    pub eager: Protocol,
    /// Bytes that a rank sends in a collective operation in bulk at half of the full rate.
    pub ring_half_size: Known<Bytes>,
    /// Bytes of a message in bulk at half of the full rate.
    pub pair_half_size: Known<Bytes>,
}

/// One way to move data.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    /// Time to start (seconds).
    pub start: Known<Seconds>,
    /// Time of a hop inside a node (seconds).
    pub hop: Known<Seconds>,
    /// The part of the rate of bulk data that it reaches.
    pub share: Known<Ratio>,
}

/// What joins the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Network adapters in a full node.
    pub adapters: Known<Count>,
    /// Rate of one adapter in one direction (bytes per second).
    pub adapter_bandwidth: Known<BytesPerSecond>,
    /// The part of that rate that large messages reach.
    pub share: Known<Ratio>,
    /// Time of a hop between nodes in bulk (seconds).
    pub bulk_hop: Known<Seconds>,
    /// Time of a hop between nodes with the short start (seconds).
    pub eager_hop: Known<Seconds>,
}

/// Why a machine cannot have so many devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// No devices.
    None,
    /// More than a node has, but not whole nodes.
    Ragged {
        /// How many were asked for.
        devices: u64,
        /// How many a node has.
        node: u64,
    },
    /// More than one node, of a machine without a network.
    NoNetwork {
        /// How many were asked for.
        devices: u64,
        /// How many a node has.
        node: u64,
    },
    /// More than [`Machine::DEVICE_LIMIT`].
    TooMany(u64),
}

impl Machine {
    /// The most devices that a machine can have.
    pub const DEVICE_LIMIT: u64 = 1024;

    /// The number of devices.
    #[must_use]
    pub fn devices(&self) -> u64 {
        self.devices
    }

    /// The number of devices of a node that are used: all, or fewer if there is one node.
    #[must_use]
    pub fn devices_per_node(&self) -> u64 {
        self.devices.min(self.node.devices.value.0)
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> u64 {
        self.devices / self.devices_per_node()
    }

    /// The same machine with another number of devices: part of a node, or whole nodes.
    pub fn with_devices(mut self, devices: u64) -> Result<Self, SizeError> {
        let node = self.node.devices.value.0;
        if devices == 0 {
            return Err(SizeError::None);
        }
        if devices > Self::DEVICE_LIMIT {
            return Err(SizeError::TooMany(devices));
        }
        if devices > node && self.network.is_none() {
            return Err(SizeError::NoNetwork { devices, node });
        }
        if devices > node && !devices.is_multiple_of(node) {
            return Err(SizeError::Ragged { devices, node });
        }
        self.devices = devices;
        Ok(self)
    }

    /// The name with the number of devices, as [`shipped::named`] takes it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}-{}x", self.name, self.devices)
    }

    /// Memory of a device that a program can use (bytes).
    #[must_use]
    pub fn usable_memory(&self) -> Bytes {
        self.device.memory_capacity.value.saturating_sub(self.device.memory_reserved.value)
    }
}

impl MatrixPeak {
    /// The peak rate at `precision`.
    #[must_use]
    pub fn at(&self, precision: Precision) -> &Known<FlopsPerSecond> {
        match precision {
            Precision::F64 => &self.f64,
            Precision::F32 => &self.f32,
            Precision::Tf32 => &self.tf32,
            Precision::F16 => &self.f16,
            Precision::Bf16 => &self.bf16,
            Precision::Integer => &self.integer,
        }
    }
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 6] = [Self::F64, Self::F32, Self::Tf32, Self::F16, Self::Bf16, Self::Integer];

    /// The arithmetic of a product of elements of this type; 32-bit numbers are not shortened.
    #[must_use]
    pub fn of(elements: DType) -> Self {
        match elements {
            DType::F64 => Self::F64,
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::BF16 => Self::Bf16,
            DType::I64 | DType::I32 | DType::I16 | DType::I8 => Self::Integer,
            DType::U64 | DType::U32 | DType::U16 | DType::U8 | DType::Bool => Self::Integer,
        }
    }

    /// The name in text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Integer => "integer",
        }
    }

    /// The size of an element in memory (bytes); for integers, of the widest.
    #[must_use]
    pub fn element(self) -> Bytes {
        match self {
            Self::F64 | Self::Integer => Bytes(8),
            Self::F32 | Self::Tf32 => Bytes(4),
            Self::F16 | Self::Bf16 => Bytes(2),
        }
    }
}

/// What there is of what, a line each: nodes, memory, arithmetic, links, network.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, node, network, .. } = self;
        let (nodes, each) = (self.nodes(), self.devices_per_node());
        let plural = if nodes == 1 { "" } else { "s" };
        writeln!(f, "{}: {nodes} node{plural} of {each}", self.full_name())?;
        let usable = self.usable_memory();
        let capacity = device.memory_capacity.value;
        let rate = device.memory_bandwidth.value;
        writeln!(f, "  memory    {usable} of {capacity} usable, {rate}")?;
        let peaks = Precision::ALL
            .map(|precision| format!("{} {}", precision.name(), device.matrix_peak.at(precision).value));
        writeln!(f, "  products  {}", peaks.join(", "))?;
        let link = node.link_bandwidth.value;
        match &node.wiring.value {
            Wiring::Switch => write!(f, "  links     {link} per device, switched")?,
            Wiring::Links(links) => {
                let lanes: u64 = links.iter().map(|link| link.lanes).sum();
                write!(f, "  links     {lanes} of {link} in a full node")?;
            }
        }
        if let Some(network) = network {
            let rate = network.adapter_bandwidth.value;
            write!(f, "\n  network   {} adapters of {rate} in a full node", network.adapters.value)?;
        }
        Ok(())
    }
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "a machine of 0 devices, expected at least 1"),
            Self::Ragged { devices, node } => write!(
                f,
                "a machine of {devices} devices, expected 1 to {node} or a multiple of {node}: \
                 a node has {node}"
            ),
            Self::NoNetwork { devices, node } => write!(
                f,
                "a machine of {devices} devices, expected 1 to {node}: \
                 it is a single host, its file has no `network`"
            ),
            Self::TooMany(devices) => {
                write!(f, "a machine of {devices} devices, expected at most {}", Machine::DEVICE_LIMIT)
            }
        }
    }
}

impl std::error::Error for SizeError {}

#[cfg(test)]
mod tests;
