//! Machines as machine files.

use std::convert::Infallible;

use super::file::{
    DeviceFile, InSwitchFile, LeavesFile, MachineFile, NetworkFile, NetworkHopsFile, NodeFile, Number,
    PaceFile, PackingFile, PrecisionFile, ProductsFile, ProtocolFile, SocketsFile, TilesFile, TogetherFile,
    TransportFile, TurnedFile, WiringFile, WiringKind,
};
use super::number::number;
use super::{FORMAT, laws};
use crate::known::{Known, Quantity};
use crate::machine::{
    ByPrecision, Device, Link, Machine, Network, NetworkHops, Node, Pace, Packing, Pass, Products, Protocol,
    Transport, Turned, Wiring,
};

impl From<&Machine> for MachineFile {
    fn from(machine: &Machine) -> Self {
        let Machine { name, device, node, transport, network, .. } = machine;
        Self {
            format: FORMAT,
            name: name.clone(),
            device: device.into(),
            node: node.into(),
            transport: transport.into(),
            network: network.as_ref().map(NetworkFile::from),
        }
    }
}

impl From<&Device> for DeviceFile {
    fn from(device: &Device) -> Self {
        Self {
            memory_capacity: number(&device.memory_capacity),
            memory_reserved: number(&device.memory_reserved),
            memory_bandwidth: number(&device.memory_bandwidth),
            memory_efficiency: number(&device.memory_efficiency),
            scalar_efficiency: number(&device.scalar_efficiency),
            launch: number(&device.launch),
            vector_peak: number(&device.vector_peak),
            matrix_peak: by_precision(&device.matrix_peak),
            matrix_reached: by_precision(&device.matrix_reached),
            products: (&device.products).into(),
            attention_forward: number(&device.attention_forward),
            attention_backward: number(&device.attention_backward),
            passes: device.passes.iter().map(pace).collect(),
            operations: laws::write(&device.operations),
        }
    }
}

fn pace((pass, pace): (&Pass, &Pace)) -> (String, PaceFile) {
    (pass.name().to_owned(), PaceFile { start: number(&pace.start), element: number(&pace.element) })
}

fn packing(packing: &Packing) -> PackingFile {
    let turned = |it: &Turned| TurnedFile { rate: number(&it.rate), aliased: number(&it.aliased) };
    PackingFile {
        cache: number(&packing.cache),
        rate: number(&packing.rate),
        turned: packing.turned.as_ref().map(turned),
    }
}

impl From<&Products> for ProductsFile {
    fn from(products: &Products) -> Self {
        let tiles = &products.tiles;
        Self {
            processors: number(&products.processors),
            tiles: TilesFile {
                sizes: tiles.value.iter().map(|tile| [tile.m, tile.n]).collect(),
                source: tiles.source().to_owned(),
            },
            feed: number(&products.feed),
            tile_start: number(&products.tile_start),
            start: number(&products.start),
            sustained: number(&products.sustained),
            in_step: Some(number(&products.in_step)),
            heating: number(&products.heating),
            packing: products.packing.as_ref().map(packing),
            input_gradient: number(&products.input_gradient),
            weight_gradient: number(&products.weight_gradient),
        }
    }
}

impl From<&Node> for NodeFile {
    fn from(node: &Node) -> Self {
        Self {
            devices: number(&node.devices),
            wiring: (&node.wiring).into(),
            link_bandwidth: number(&node.link_bandwidth),
            host_bandwidth: number(&node.host_bandwidth),
            processors: node.processors.as_ref().map(number),
            together: node.together.as_ref().map(|together| TogetherFile {
                products: number(&together.products),
                memory: number(&together.memory),
            }),
            sockets: node.sockets.as_ref().map(|sockets| SocketsFile {
                count: number(&sockets.count),
                bandwidth: number(&sockets.bandwidth),
            }),
            ring_share: number(&node.ring_share),
            pair_share: number(&node.pair_share),
            exchange_share: number(&node.exchange_share),
            host_share: number(&node.host_share),
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

impl From<&Transport> for TransportFile {
    fn from(transport: &Transport) -> Self {
        Self {
            local_rate: number(&transport.local_rate),
            bulk: (&transport.bulk).into(),
            packed: transport.packed.as_ref().map(ProtocolFile::from),
            eager: (&transport.eager).into(),
            in_switch: transport
                .in_switch
                .as_ref()
                .map(|it| InSwitchFile { start: number(&it.start), share: number(&it.share) }),
            beside: transport.beside.as_ref().map(number),
        }
    }
}

impl From<&Protocol> for ProtocolFile {
    fn from(protocol: &Protocol) -> Self {
        Self {
            start: number(&protocol.start),
            fill: number(&protocol.fill),
            hop: number(&protocol.hop),
            tree_hop: number(&protocol.tree_hop),
            share: number(&protocol.share),
        }
    }
}

impl From<&Network> for NetworkFile {
    fn from(network: &Network) -> Self {
        Self {
            adapters: number(&network.adapters),
            adapter_bandwidth: number(&network.adapter_bandwidth),
            share: number(&network.share),
            bulk: (&network.bulk).into(),
            packed: (&network.packed).into(),
            eager: (&network.eager).into(),
            leaves: network.leaves.as_ref().map(|leaves| LeavesFile {
                nodes: number(&leaves.nodes),
                uplink_share: number(&leaves.uplink_share),
            }),
        }
    }
}

impl From<&NetworkHops> for NetworkHopsFile {
    fn from(hops: &NetworkHops) -> Self {
        Self { ring: number(&hops.ring), tree: number(&hops.tree) }
    }
}

fn by_precision<T: Quantity>(numbers: &ByPrecision<Known<T>>) -> PrecisionFile {
    let Ok(written) = numbers.try_map(|_, known| Ok::<Number, Infallible>(number(known)));
    written.into()
}
