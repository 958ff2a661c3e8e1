//! The form of a machine file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::ByPrecision;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineFile {
    pub(super) format: u32,
    pub(super) name: String,
    pub(super) device: DeviceFile,
    pub(super) node: NodeFile,
    pub(super) transport: TransportFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<NetworkFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceFile {
    pub(super) memory_capacity: Number,
    pub(super) memory_reserved: Number,
    pub(super) memory_bandwidth: Number,
    pub(super) memory_efficiency: Number,
    pub(super) scalar_efficiency: Number,
    pub(super) launch: Number,
    pub(super) vector_peak: Number,
    pub(super) matrix_peak: PrecisionFile,
    pub(super) matrix_reached: PrecisionFile,
    pub(super) products: ProductsFile,
    pub(super) attention_forward: Number,
    pub(super) attention_backward: Number,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) passes: BTreeMap<String, PaceFile>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) operations: BTreeMap<String, LawFile>,
}

/// `ranges` has the least and the largest of each size; `terms` are texts.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LawFile {
    pub(super) start: Number,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<Number>,
    pub(super) bandwidth: Number,
    pub(super) ranges: BTreeMap<String, [f64; 2]>,
    pub(super) terms: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PaceFile {
    pub(super) start: Number,
    pub(super) element: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrecisionFile {
    pub(super) f64: Number,
    pub(super) f32: Number,
    pub(super) tf32: Number,
    pub(super) f16: Number,
    pub(super) bf16: Number,
    pub(super) f8: Number,
    /// Missing where there are no units for 4 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) f4: Option<Number>,
    pub(super) integer: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProductsFile {
    pub(super) processors: Number,
    pub(super) tiles: TilesFile,
    pub(super) feed: Number,
    pub(super) tile_start: Number,
    pub(super) start: Number,
    pub(super) sustained: Number,
    /// Files from before there was this number: the rate of long products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) in_step: Option<Number>,
    pub(super) heating: Number,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) packing: Option<PackingFile>,
    pub(super) input_gradient: Number,
    pub(super) weight_gradient: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PackingFile {
    pub(super) cache: Number,
    pub(super) rate: Number,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) turned: Option<TurnedFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnedFile {
    pub(super) rate: Number,
    pub(super) aliased: Number,
}

/// `sizes` lists `[rows, columns]`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TilesFile {
    pub(super) sizes: Vec<[u64; 2]>,
    pub(super) source: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeFile {
    pub(super) devices: Number,
    pub(super) wiring: WiringFile,
    pub(super) link_bandwidth: Number,
    pub(super) host_bandwidth: Number,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sockets: Option<SocketsFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) processors: Option<Number>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) together: Option<TogetherFile>,
    pub(super) ring_share: Number,
    pub(super) pair_share: Number,
    pub(super) exchange_share: Number,
    pub(super) host_share: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TogetherFile {
    pub(super) products: Number,
    pub(super) memory: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SocketsFile {
    pub(super) count: Number,
    pub(super) bandwidth: Number,
}

/// `links` lists `[device, device, lanes]`; a switch has none.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WiringFile {
    pub(super) kind: WiringKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) links: Vec<[u64; 3]>,
    pub(super) source: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WiringKind {
    Switch,
    Links,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportFile {
    pub(super) local_rate: Number,
    pub(super) bulk: ProtocolFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packed: Option<ProtocolFile>,
    pub(super) eager: ProtocolFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_switch: Option<InSwitchFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) beside: Option<Number>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProtocolFile {
    pub(super) start: Number,
    pub(super) fill: Number,
    pub(super) hop: Number,
    pub(super) tree_hop: Number,
    pub(super) share: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InSwitchFile {
    pub(super) start: Number,
    pub(super) share: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkFile {
    pub(super) adapters: Number,
    pub(super) adapter_bandwidth: Number,
    pub(super) share: Number,
    pub(super) bulk: NetworkHopsFile,
    pub(super) packed: NetworkHopsFile,
    pub(super) eager: NetworkHopsFile,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leaves: Option<LeavesFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkHopsFile {
    pub(super) ring: Number,
    pub(super) tree: Number,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeavesFile {
    pub(super) nodes: Number,
    pub(super) uplink_share: Number,
}

/// A number of a file. Its parts are free, so that what is wrong with one can be said by name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::machine) struct Number {
    #[serde(default)]
    pub(super) value: Value,
    #[serde(default)]
    pub(super) unit: Value,
    #[serde(default)]
    pub(super) source: Value,
}

impl From<PrecisionFile> for ByPrecision<Number> {
    fn from(file: PrecisionFile) -> Self {
        let PrecisionFile { f64, f32, tf32, f16, bf16, f8, f4, integer } = file;
        Self { f64, f32, tf32, f16, bf16, f8, f4, integer }
    }
}

impl From<ByPrecision<Number>> for PrecisionFile {
    fn from(numbers: ByPrecision<Number>) -> Self {
        let ByPrecision { f64, f32, tf32, f16, bf16, f8, f4, integer } = numbers;
        Self { f64, f32, tf32, f16, bf16, f8, f4, integer }
    }
}
