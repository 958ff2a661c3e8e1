//! The description of a cluster that every price reads.
//!
//! A cluster is a number of equal nodes; a node is a number of equal devices joined by links;
//! nodes are joined by network adapters. Rank `r` is device `r % d` of node `r / d`, with `d`
//! devices in a node.

use std::fmt;

use crate::known::{Count, Known};
use crate::quantity::counted;
use crate::units::{Bytes, BytesPerSecond, Ratio, Seconds};

mod device; // one device, and the arithmetic that it has
mod margin; // memory that plans leave free
mod passes; // what operations that are no products take
mod sharing; // ranks that take turns on the processors of a host

pub use device::{ByPrecision, Device, Packing, Precision, Products, Tile, Turned};
pub use margin::Margin;
pub use passes::{Pace, Pass, Passes};

/// Machine files: reading, writing and everything that can be wrong with one.
pub mod json;

/// The machine files that come with the program, and the names of machines.
pub mod shipped;

/// Numbers that are said beside a file.
pub mod setting;

/// The kinds of networks between nodes, and which part of an adapter's rate each reaches.
pub mod fabric;

/// Machines made of numbers that somebody has just measured.
pub mod measured;

/// A cluster, part of a node included.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The name of the device type, as in the name of its file: `h100-80g`.
    pub name: String,
    /// How many devices there are: at most a node's, or whole nodes.
    devices: u64,
    /// Memory of a device that plans leave free (bytes); no price depends on it, and no file has it.
    margin: Bytes,
    /// What is set beside the numbers of its file, such as `network.adapter_bandwidth=25GB/s`.
    settings: Vec<String>,
    /// One device.
    pub device: Device,
    /// What joins the devices of a node.
    pub node: Node,
    /// How collective operations and messages are carried out.
    pub transport: Transport,
    /// What joins the nodes; `None` if the machine is a single host.
    pub network: Option<Network>,
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
    /// The sockets of its host, if devices of different ones reach each other more slowly.
    pub sockets: Option<Sockets>,
    /// The processors that its devices share, if they are threads of it: more ranks take turns.
    pub processors: Option<Known<Count>>,
    /// What such devices keep of their rates while all processors are at work; all of it if nothing says.
    pub together: Option<Together>,
    /// The part of the rate of its links that a ring reaches with large messages, besides the
    /// work in its own memory.
    pub ring_share: Known<Ratio>,
    /// The part that a message between two devices reaches.
    pub pair_share: Known<Ratio>,
    /// The part that an exchange among all devices reaches, besides the work in its own memory.
    pub exchange_share: Known<Ratio>,
    /// The part of the rate through the host that anything reaches.
    pub host_share: Known<Ratio>,
}

/// The parts of its rates that each of the devices that share processors keeps while all of them are at
/// work: processors share what keeps them cool, caches and memory, and some are halves of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Of the rate of products (parts).
    pub products: Known<Ratio>,
    /// Of the rate of memory (parts).
    pub memory: Known<Ratio>,
}

/// What joins the devices of a host that are at different processors of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sockets {
    /// How many there are; each has an equal run of the devices.
    pub count: Known<Count>,
    /// Rate between two of them in one direction (bytes per second).
    pub bandwidth: Known<BytesPerSecond>,
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
/// Up to three protocols exist, and the fastest is taken: one with a high rate, one with a short
/// start, and one in between.
#[derive(Clone, Debug, PartialEq)]
pub struct Transport {
    /// Rate at which a device reads and writes its own memory for an operation, besides what it
    /// sends (bytes of the value per second).
    pub local_rate: Known<BytesPerSecond>,
    /// For large messages.
    pub bulk: Protocol,
    /// For middling messages: data and flags of 128 bytes together.
    pub packed: Option<Protocol>,
    /// For small messages: data and flags of 8 bytes together.
    pub eager: Protocol,
    /// Sums in the switch; `None` if it cannot.
    pub in_switch: Option<InSwitch>,
    /// The part of its rate that each keeps, computing and moving, while a device does both; `None` if
    /// it does one after the other, or nothing is known.
    pub beside: Option<Known<Ratio>>,
}

impl Transport {
    /// By how much a second of computing makes longer what is exchanged beside it, and the other way round: both keep
    /// a part `s` of their rates, which costs `1/s - 1`. Nothing where nothing runs beside anything.
    #[must_use]
    pub fn cost_beside(&self) -> Option<f64> {
        self.beside.as_ref().map(|kept| 1.0 / kept.value.0 - 1.0)
    }
}

/// One way to move data.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    /// Time to start (seconds).
    pub start: Known<Seconds>,
    /// Time until all channels of a ring move at the full rate, for each time around (seconds).
    pub fill: Known<Seconds>,
    /// Time of a hop of a ring inside a node (seconds).
    pub hop: Known<Seconds>,
    /// Time of a hop of a tree inside a node (seconds).
    pub tree_hop: Known<Seconds>,
    /// The part of the rate of bulk data that it reaches.
    pub share: Known<Ratio>,
}

/// Sums that the switch of a node makes.
#[derive(Clone, Debug, PartialEq)]
pub struct InSwitch {
    /// Time to start (seconds).
    pub start: Known<Seconds>,
    /// The part of the rate of a device's links at which a value is summed and handed out.
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
    /// Hops in bulk.
    pub bulk: NetworkHops,
    /// Hops of the protocol in between.
    pub packed: NetworkHops,
    /// Hops with the short start.
    pub eager: NetworkHops,
    /// What is between the nodes of different leaves; `None` if every node reaches every other at
    /// the rate of its adapters.
    pub leaves: Option<Leaves>,
}

/// Hops between nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkHops {
    /// Time of a hop of a ring (seconds).
    pub ring: Known<Seconds>,
    /// Time of a hop of a tree (seconds).
    pub tree: Known<Seconds>,
}

/// A network with fewer links above its leaf switches than below.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaves {
    /// Nodes at one leaf switch.
    pub nodes: Known<Count>,
    /// The part of the adapters' rate that goes on beyond the leaf when all send.
    pub uplink_share: Known<Ratio>,
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
    pub const DEVICE_LIMIT: u64 = 1 << 16;

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
        // Of fewer devices than before, each keeps what it has beside all: parts of a machine work at the same
        // time as the others.
        Ok(self.beside_others().shared())
    }

    /// The name with the number of devices, as [`shipped::named`] takes it, and with what is set beside the
    /// numbers of the file ([`setting`]).
    #[must_use]
    pub fn full_name(&self) -> String {
        setting::named(&format!("{}-{}x", self.name, self.devices), &self.settings)
    }

    /// Whether its devices are threads of a host, and no GPUs.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.name == shipped::HOST || self.node.processors.is_some() || !self.device.passes.is_empty()
    }

    /// Memory of a device that a program can use (bytes).
    #[must_use]
    pub fn usable_memory(&self) -> Bytes {
        let Device { memory_capacity, memory_reserved, .. } = &self.device;
        memory_capacity.value.saturating_sub(memory_reserved.value).saturating_sub(self.margin)
    }

    /// The same machine, of whose memory plans leave so much free; what is usual of it, if nobody says how much.
    #[must_use]
    pub fn leaving(self, margin: Option<Margin>) -> Self {
        let margin = margin.unwrap_or_else(|| Margin::usual(&self));
        Self { margin: margin.of(self.device.memory_capacity.value), ..self }
    }
}

/// What there is of what, a line each: nodes, memory, arithmetic, links, network.
impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, node, network, .. } = self;
        let (nodes, each) = (self.nodes(), self.devices_per_node());
        writeln!(f, "{}: {} of {each}", self.full_name(), counted(nodes, "node"))?;
        let usable = self.usable_memory();
        let capacity = device.memory_capacity.value;
        let rate = device.memory_bandwidth.value;
        writeln!(f, "  memory    {usable} of {capacity} usable, {rate}")?;
        let has = |it: &Precision| *it != Precision::F4 || device.matrix_peak.f4.is_some();
        let peak =
            |precision: Precision| format!("{} {}", precision.name(), device.matrix_peak.at(precision).value);
        let peaks: Vec<String> = Precision::ALL.into_iter().filter(has).map(peak).collect();
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
