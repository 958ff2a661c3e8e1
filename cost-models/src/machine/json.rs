//! Machine files: reading, writing and everything that can be wrong with one.
//!
//! Every number in a file is `{ "value": …, "unit": "…", "source": "…" }`. Values are in the base
//! unit (`B`, `s`, `B/s`, `FLOP`, `FLOP/s`, `1` for parts, `count`), without prefixes.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::known::{Count, Known, Quantity};
use crate::machine::{Device, Link, Machine, MatrixPeak, Network, Node, Protocol, Transport, Wiring};

/// The version of the format that this program reads and writes.
pub const FORMAT: u32 = 1;

/// Why a text is not a machine.
#[derive(Debug)]
pub struct ReadError {
    /// The file, as the caller calls it.
    pub file: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with a machine file.
#[derive(Debug)]
pub enum Fault {
    /// Not JSON, or fields that do not exist, or fields that are missing.
    Json(serde_json::Error),
    /// Another version of the format.
    Format(u32),
    /// A blank name.
    Name,
    /// A part of a number that is missing or not what it must be.
    Number {
        /// The field, with the names of the sections around it.
        field: String,
        /// `value`, `unit` or `source`.
        part: &'static str,
        /// What stands there.
        found: String,
        /// What must stand there.
        expected: String,
    },
    /// Two fields that do not go together.
    Together {
        /// The field to change.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

/// The machine in `text`: one node of it, or what there is of a node.
///
/// `file` is what errors call the text. The number of devices is set with
/// [`Machine::with_devices`].
pub fn read(file: &str, text: &str) -> Result<Machine, ReadError> {
    let parsed: Result<MachineFile, Fault> = serde_json::from_str(text).map_err(Fault::Json);
    let machine = parsed.and_then(machine);
    machine.map_err(|fault| ReadError { file: file.to_owned(), fault })
}

/// The text of `machine`, which [`read`] reads. The number of devices is not part of it.
#[must_use]
pub fn write(machine: &Machine) -> String {
    let file = MachineFile::from(machine);
    let mut text = serde_json::to_string_pretty(&file).expect("a machine file has string keys only");
    text.push('\n');
    text
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    format: u32,
    name: String,
    device: DeviceFile,
    node: NodeFile,
    transport: TransportFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    memory_capacity: Number,
    memory_reserved: Number,
    memory_bandwidth: Number,
    memory_efficiency: Number,
    launch: Number,
    vector_peak: Number,
    matrix_peak: MatrixPeakFile,
    matrix_efficiency: Number,
    matrix_half_work: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatrixPeakFile {
    f64: Number,
    f32: Number,
    tf32: Number,
    f16: Number,
    bf16: Number,
    integer: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    devices: Number,
    wiring: WiringFile,
    link_bandwidth: Number,
    host_bandwidth: Number,
    ring_share: Number,
    pair_share: Number,
    exchange_share: Number,
}

/// `links` lists `[device, device, lanes]`; a switch has none.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WiringFile {
    kind: WiringKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<[u64; 3]>,
    source: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WiringKind {
    Switch,
    Links,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransportFile {
    bulk: ProtocolFile,
    eager: ProtocolFile,
    ring_half_size: Number,
    pair_half_size: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolFile {
    start: Number,
    hop: Number,
    share: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkFile {
    adapters: Number,
    adapter_bandwidth: Number,
    share: Number,
    bulk_hop: Number,
    eager_hop: Number,
}

/// A number of a file. Its parts are free, so that what is wrong with one can be said by name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Number {
    #[serde(default)]
    value: Value,
    #[serde(default)]
    unit: Value,
    #[serde(default)]
    source: Value,
}

fn machine(file: MachineFile) -> Result<Machine, Fault> {
    if file.format != FORMAT {
        return Err(Fault::Format(file.format));
    }
    if file.name.trim().is_empty() {
        return Err(Fault::Name);
    }
    let device = device(&file.device)?;
    let node = node(&file.node)?;
    let network = file.network.as_ref().map(network).transpose()?;
    if device.memory_reserved.value >= device.memory_capacity.value {
        return Err(Fault::Together {
            field: "device.memory_reserved",
            message: format!(
                "is {}, expected less than `device.memory_capacity`, which is {}",
                device.memory_reserved.value, device.memory_capacity.value
            ),
        });
    }
    let devices = node.devices.value.0;
    if devices > Machine::DEVICE_LIMIT {
        return Err(Fault::Together {
            field: "node.devices",
            message: format!("is {devices}, expected at most {}", Machine::DEVICE_LIMIT),
        });
    }
    if let Some(network) = &network
        && network.adapters.value > node.devices.value
    {
        return Err(Fault::Together {
            field: "network.adapters",
            message: format!(
                "is {}, expected at most `node.devices`, which is {devices}; \
                 count adapters that serve one device together as one",
                network.adapters.value
            ),
        });
    }
    let transport = transport(&file.transport)?;
    Ok(Machine { name: file.name, devices, device, node, transport, network })
}

fn device(file: &DeviceFile) -> Result<Device, Fault> {
    Ok(Device {
        memory_capacity: known("device.memory_capacity", &file.memory_capacity)?,
        memory_reserved: known("device.memory_reserved", &file.memory_reserved)?,
        memory_bandwidth: known("device.memory_bandwidth", &file.memory_bandwidth)?,
        memory_efficiency: known("device.memory_efficiency", &file.memory_efficiency)?,
        launch: known("device.launch", &file.launch)?,
        vector_peak: known("device.vector_peak", &file.vector_peak)?,
        matrix_peak: MatrixPeak {
            f64: known("device.matrix_peak.f64", &file.matrix_peak.f64)?,
            f32: known("device.matrix_peak.f32", &file.matrix_peak.f32)?,
            tf32: known("device.matrix_peak.tf32", &file.matrix_peak.tf32)?,
            f16: known("device.matrix_peak.f16", &file.matrix_peak.f16)?,
            bf16: known("device.matrix_peak.bf16", &file.matrix_peak.bf16)?,
            integer: known("device.matrix_peak.integer", &file.matrix_peak.integer)?,
        },
        matrix_efficiency: known("device.matrix_efficiency", &file.matrix_efficiency)?,
        matrix_half_work: known("device.matrix_half_work", &file.matrix_half_work)?,
    })
}

fn node(file: &NodeFile) -> Result<Node, Fault> {
    let devices: Known<Count> = known("node.devices", &file.devices)?;
    Ok(Node {
        wiring: wiring(&file.wiring, devices.value.0)?,
        devices,
        link_bandwidth: known("node.link_bandwidth", &file.link_bandwidth)?,
        host_bandwidth: known("node.host_bandwidth", &file.host_bandwidth)?,
        ring_share: known("node.ring_share", &file.ring_share)?,
        pair_share: known("node.pair_share", &file.pair_share)?,
        exchange_share: known("node.exchange_share", &file.exchange_share)?,
    })
}

fn wiring(file: &WiringFile, devices: u64) -> Result<Known<Wiring>, Fault> {
    let wrong = |message: String| Fault::Together { field: "node.wiring", message };
    let value = match file.kind {
        WiringKind::Switch if file.links.is_empty() => Wiring::Switch,
        WiringKind::Switch => {
            return Err(wrong("is a switch with `links`, expected none or kind `links`".to_owned()));
        }
        WiringKind::Links => {
            let mut seen: Vec<[u64; 2]> = Vec::new();
            for [from, to, lanes] in &file.links {
                let ends = [*from.min(to), *from.max(to)];
                if from == to || ends[1] >= devices || *lanes == 0 || seen.contains(&ends) {
                    return Err(wrong(format!(
                        "has link `[{from}, {to}, {lanes}]`, expected two different devices below \
                         {devices}, listed once, and at least 1 lane"
                    )));
                }
                seen.push(ends);
            }
            let lanes = |link: &[u64; 3]| Link { ends: [link[0], link[1]], lanes: link[2] };
            Wiring::Links(file.links.iter().map(lanes).collect())
        }
    };
    Known::new(value, &file.source)
        .ok_or_else(|| fault("node.wiring", "source", "a blank", "where the wiring was read"))
}

fn transport(file: &TransportFile) -> Result<Transport, Fault> {
    Ok(Transport {
        bulk: Protocol {
            start: known("transport.bulk.start", &file.bulk.start)?,
            hop: known("transport.bulk.hop", &file.bulk.hop)?,
            share: known("transport.bulk.share", &file.bulk.share)?,
        },
        eager: Protocol {
            start: known("transport.eager.start", &file.eager.start)?,
            hop: known("transport.eager.hop", &file.eager.hop)?,
            share: known("transport.eager.share", &file.eager.share)?,
        },
        ring_half_size: known("transport.ring_half_size", &file.ring_half_size)?,
        pair_half_size: known("transport.pair_half_size", &file.pair_half_size)?,
    })
}

fn network(file: &NetworkFile) -> Result<Network, Fault> {
    Ok(Network {
        adapters: known("network.adapters", &file.adapters)?,
        adapter_bandwidth: known("network.adapter_bandwidth", &file.adapter_bandwidth)?,
        share: known("network.share", &file.share)?,
        bulk_hop: known("network.bulk_hop", &file.bulk_hop)?,
        eager_hop: known("network.eager_hop", &file.eager_hop)?,
    })
}

fn known<T: Quantity>(field: &str, number: &Number) -> Result<Known<T>, Fault> {
    let shown = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        value => format!("`{value}`"),
    };
    let unit = number.unit.as_str();
    if unit != Some(T::UNIT) {
        let expected = format!("`\"{}\"`: state the value in that unit", T::UNIT);
        return Err(fault(field, "unit", &shown(&number.unit), &expected));
    }
    let value = number.value.as_f64().and_then(T::from_number);
    let Some(value) = value else {
        return Err(fault(field, "value", &shown(&number.value), T::EXPECTED));
    };
    let expected = "where the number was read or how it was measured";
    number
        .source
        .as_str()
        .and_then(|source| Known::new(value, source))
        .ok_or_else(|| fault(field, "source", &shown(&number.source), expected))
}

fn fault(field: &str, part: &'static str, found: &str, expected: &str) -> Fault {
    Fault::Number { field: field.to_owned(), part, found: found.to_owned(), expected: expected.to_owned() }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "machine file `{}`: {}", self.file, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(
                f,
                "{error}, expected the fields of a machine file; \
                 `cost-models/machines/h100-80g.json` has them all"
            ),
            Self::Format(format) => {
                write!(f, "has format {format}, this program reads {FORMAT}; calibrate anew")
            }
            Self::Name => write!(f, "`name` is blank, expected the name of a device type"),
            Self::Number { field, part, found, expected } => {
                write!(f, "`{field}.{part}` is {found}, expected {expected}")
            }
            Self::Together { field, message } => write!(f, "`{field}` {message}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Json(error) => Some(error),
            _ => None,
        }
    }
}

impl From<&Machine> for MachineFile {
    fn from(machine: &Machine) -> Self {
        let Machine { name, device, node, transport, network, .. } = machine;
        let peak = &device.matrix_peak;
        Self {
            format: FORMAT,
            name: name.clone(),
            device: DeviceFile {
                memory_capacity: number(&device.memory_capacity),
                memory_reserved: number(&device.memory_reserved),
                memory_bandwidth: number(&device.memory_bandwidth),
                memory_efficiency: number(&device.memory_efficiency),
                launch: number(&device.launch),
                vector_peak: number(&device.vector_peak),
                matrix_peak: MatrixPeakFile {
                    f64: number(&peak.f64),
                    f32: number(&peak.f32),
                    tf32: number(&peak.tf32),
                    f16: number(&peak.f16),
                    bf16: number(&peak.bf16),
                    integer: number(&peak.integer),
                },
                matrix_efficiency: number(&device.matrix_efficiency),
                matrix_half_work: number(&device.matrix_half_work),
            },
            node: NodeFile {
                devices: number(&node.devices),
                wiring: WiringFile::from(&node.wiring),
                link_bandwidth: number(&node.link_bandwidth),
                host_bandwidth: number(&node.host_bandwidth),
                ring_share: number(&node.ring_share),
                pair_share: number(&node.pair_share),
                exchange_share: number(&node.exchange_share),
            },
            transport: TransportFile {
                bulk: ProtocolFile::from(&transport.bulk),
                eager: ProtocolFile::from(&transport.eager),
                ring_half_size: number(&transport.ring_half_size),
                pair_half_size: number(&transport.pair_half_size),
            },
            network: network.as_ref().map(|network| NetworkFile {
                adapters: number(&network.adapters),
                adapter_bandwidth: number(&network.adapter_bandwidth),
                share: number(&network.share),
                bulk_hop: number(&network.bulk_hop),
                eager_hop: number(&network.eager_hop),
            }),
        }
    }
}

impl From<&Known<Wiring>> for WiringFile {
    fn from(wiring: &Known<Wiring>) -> Self {
        let (kind, links) = match &wiring.value {
            Wiring::Switch => (WiringKind::Switch, Vec::new()),
            Wiring::Links(links) => {
                let entry = |link: &Link| [link.ends[0], link.ends[1], link.lanes];
                (WiringKind::Links, links.iter().map(entry).collect())
            }
        };
        Self { kind, links, source: wiring.source().to_owned() }
    }
}

impl From<&Protocol> for ProtocolFile {
    fn from(protocol: &Protocol) -> Self {
        Self { start: number(&protocol.start), hop: number(&protocol.hop), share: number(&protocol.share) }
    }
}

fn number<T: Quantity>(known: &Known<T>) -> Number {
    let value = known.value.number();
    // Whole numbers are written without a fraction.
    let whole = Count::from_number(value).map(|Count(whole)| Value::from(whole));
    Number {
        value: whole.unwrap_or_else(|| Value::from(value)),
        unit: Value::from(T::UNIT),
        source: Value::from(known.source()),
    }
}
