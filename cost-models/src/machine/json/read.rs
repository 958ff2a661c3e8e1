//! What a machine file says, or what is wrong with it.

use std::collections::BTreeMap;

use super::file::{
    DeviceFile, MachineFile, NetworkFile, NetworkHopsFile, NodeFile, PaceFile, PrecisionFile, ProductsFile,
    ProtocolFile, TilesFile, TransportFile, WiringFile, WiringKind,
};
use super::number::{fault, known};
use super::{FORMAT, Fault, laws};
use crate::known::{Count, Known, Quantity};
use crate::machine::{
    ByPrecision, Device, InSwitch, Leaves, Link, Machine, Network, NetworkHops, Node, Pace, Packing, Pass,
    Passes, Products, Protocol, Sockets, Tile, Together, Transport, Turned, Wiring,
};
use crate::units::{Bytes, Ratio};

pub(super) fn machine(file: MachineFile) -> Result<Machine, Fault> {
    if file.format != FORMAT {
        return Err(Fault::Format(file.format));
    }
    if file.name.trim().is_empty() {
        return Err(Fault::Name);
    }
    let device = device(file.device)?;
    let node = node(&file.node)?;
    let network = file.network.as_ref().map(network).transpose()?;
    let transport = transport(&file.transport)?;
    let devices = node.devices.value.0;
    let machine = Machine {
        name: file.name,
        devices,
        margin: Bytes::ZERO,
        settings: Vec::new(),
        device,
        node,
        transport,
        network,
    };
    together(&machine)?;
    Ok(machine)
}

/// The least memory of a device: the weights of one product of 500 by 500 in f32 fill it.
const LEAST_MEMORY: Bytes = Bytes(1_000_000);

/// Refuses numbers that are possible alone but not with each other, or not for what they state.
fn together(machine: &Machine) -> Result<(), Fault> {
    let Machine { device, node, network, .. } = machine;
    let wrong = |field, message| Err(Fault::Together { field, message });
    if device.memory_capacity.value < LEAST_MEMORY {
        let capacity = device.memory_capacity.value;
        return wrong("device.memory_capacity", format!("is {capacity}, expected at least {LEAST_MEMORY}"));
    }
    if device.memory_reserved.value >= device.memory_capacity.value {
        let (reserved, capacity) = (device.memory_reserved.value, device.memory_capacity.value);
        return wrong(
            "device.memory_reserved",
            format!("is {reserved}, expected less than `device.memory_capacity`, which is {capacity}"),
        );
    }
    let devices = node.devices.value;
    if devices.0 > Machine::DEVICE_LIMIT {
        return wrong("node.devices", format!("is {devices}, expected at most {}", Machine::DEVICE_LIMIT));
    }
    if let Some(sockets) = &node.sockets
        && !devices.0.is_multiple_of(sockets.count.value.0)
    {
        return wrong(
            "node.sockets.count",
            format!("is {}, expected a divisor of `node.devices`, which is {devices}", sockets.count.value),
        );
    }
    if let Some(network) = network
        && network.adapters.value > devices
    {
        return wrong(
            "network.adapters",
            format!(
                "is {}, expected at most `node.devices`, which is {devices}; \
                 count adapters that serve one device together as one",
                network.adapters.value
            ),
        );
    }
    Ok(())
}

fn device(file: DeviceFile) -> Result<Device, Fault> {
    Ok(Device {
        memory_capacity: known("device.memory_capacity", &file.memory_capacity)?,
        memory_reserved: known("device.memory_reserved", &file.memory_reserved)?,
        memory_bandwidth: known("device.memory_bandwidth", &file.memory_bandwidth)?,
        memory_efficiency: known("device.memory_efficiency", &file.memory_efficiency)?,
        scalar_efficiency: known("device.scalar_efficiency", &file.scalar_efficiency)?,
        launch: known("device.launch", &file.launch)?,
        vector_peak: known("device.vector_peak", &file.vector_peak)?,
        matrix_peak: by_precision("device.matrix_peak", file.matrix_peak)?,
        matrix_reached: by_precision("device.matrix_reached", file.matrix_reached)?,
        products: products(&file.products)?,
        attention_forward: known("device.attention_forward", &file.attention_forward)?,
        attention_backward: known("device.attention_backward", &file.attention_backward)?,
        passes: passes(&file.passes)?,
        operations: laws::read(&file.operations)?,
    })
}

fn passes(file: &BTreeMap<String, PaceFile>) -> Result<Passes, Fault> {
    let pace = |(name, file): (&String, &PaceFile)| {
        let names = || Pass::ALL.map(|pass| format!("`{}`", pass.name())).join(", ");
        let unknown = || format!("has `{name}`, expected kinds of operations: {}", names());
        let pass = Pass::named(name)
            .ok_or_else(|| Fault::Together { field: "device.passes", message: unknown() })?;
        let start = known(&format!("device.passes.{name}.start"), &file.start)?;
        let element = known(&format!("device.passes.{name}.element"), &file.element)?;
        Ok((pass, Pace { start, element }))
    };
    file.iter().map(pace).collect()
}

fn by_precision<T: Quantity>(section: &str, file: PrecisionFile) -> Result<ByPrecision<Known<T>>, Fault> {
    ByPrecision::from(file).try_map(|name, number| known(&format!("{section}.{name}"), number))
}

fn products(file: &ProductsFile) -> Result<Products, Fault> {
    let turned = file.packing.as_ref().and_then(|file| file.turned.as_ref()).map(|file| {
        Ok(Turned {
            rate: known("device.products.packing.turned.rate", &file.rate)?,
            aliased: known("device.products.packing.turned.aliased", &file.aliased)?,
        })
    });
    let turned = turned.transpose()?;
    let packing = file.packing.as_ref().map(|file| {
        Ok(Packing {
            cache: known("device.products.packing.cache", &file.cache)?,
            rate: known("device.products.packing.rate", &file.rate)?,
            turned,
        })
    });
    Ok(Products {
        processors: known("device.products.processors", &file.processors)?,
        tiles: tiles(&file.tiles)?,
        feed: known("device.products.feed", &file.feed)?,
        tile_start: known("device.products.tile_start", &file.tile_start)?,
        start: known("device.products.start", &file.start)?,
        sustained: known("device.products.sustained", &file.sustained)?,
        in_step: in_step(file)?,
        heating: known("device.products.heating", &file.heating)?,
        packing: packing.transpose()?,
        input_gradient: known("device.products.input_gradient", &file.input_gradient)?,
        weight_gradient: known("device.products.weight_gradient", &file.weight_gradient)?,
    })
}

/// The rate in a step; where a file does not say it, that of long products.
fn in_step(file: &ProductsFile) -> Result<Known<Ratio>, Fault> {
    let field = "device.products.in_step";
    match &file.in_step {
        Some(number) => known(field, number),
        None => {
            Known::new(Ratio(1.0), NOT_STATED).ok_or_else(|| fault(field, "source", "a blank", "a source"))
        }
    }
}

/// Why a machine's products are as fast in steps as alone.
const NOT_STATED: &str = "not stated: as long products";

/// The largest side of a tile: larger ones fit no processor's memory.
const LARGEST_TILE: u64 = 1 << 12;

fn tiles(file: &TilesFile) -> Result<Known<Vec<Tile>>, Fault> {
    let field = "device.products.tiles";
    let possible = |side: &u64| (1..=LARGEST_TILE).contains(side);
    let bad = file.sizes.iter().find(|size| !size.iter().all(possible));
    if bad.is_some() || file.sizes.is_empty() {
        let found = bad.map_or("no sizes".to_owned(), |size| format!("size `{size:?}`"));
        let message = format!("has {found}, expected at least one, of sides from 1 to {LARGEST_TILE}");
        return Err(Fault::Together { field, message });
    }
    let sizes = file.sizes.iter().map(|&[m, n]| Tile { m, n }).collect();
    Known::new(sizes, &file.source)
        .ok_or_else(|| fault(field, "source", "a blank", "where the sizes were read"))
}

fn node(file: &NodeFile) -> Result<Node, Fault> {
    let devices: Known<Count> = known("node.devices", &file.devices)?;
    let sockets = file.sockets.as_ref().map(|file| {
        Ok(Sockets {
            count: known("node.sockets.count", &file.count)?,
            bandwidth: known("node.sockets.bandwidth", &file.bandwidth)?,
        })
    });
    let together = file.together.as_ref().map(|file| {
        Ok(Together {
            products: known("node.together.products", &file.products)?,
            memory: known("node.together.memory", &file.memory)?,
        })
    });
    Ok(Node {
        wiring: wiring(&file.wiring, devices.value.0)?,
        devices,
        link_bandwidth: known("node.link_bandwidth", &file.link_bandwidth)?,
        host_bandwidth: known("node.host_bandwidth", &file.host_bandwidth)?,
        sockets: sockets.transpose()?,
        processors: file.processors.as_ref().map(|it| known("node.processors", it)).transpose()?,
        together: together.transpose()?,
        ring_share: known("node.ring_share", &file.ring_share)?,
        pair_share: known("node.pair_share", &file.pair_share)?,
        exchange_share: known("node.exchange_share", &file.exchange_share)?,
        host_share: known("node.host_share", &file.host_share)?,
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
    let in_switch = file.in_switch.as_ref().map(|file| {
        Ok(InSwitch {
            start: known("transport.in_switch.start", &file.start)?,
            share: known("transport.in_switch.share", &file.share)?,
        })
    });
    let packed = file.packed.as_ref().map(|file| protocol("transport.packed", file));
    Ok(Transport {
        local_rate: known("transport.local_rate", &file.local_rate)?,
        bulk: protocol("transport.bulk", &file.bulk)?,
        packed: packed.transpose()?,
        eager: protocol("transport.eager", &file.eager)?,
        in_switch: in_switch.transpose()?,
        beside: file.beside.as_ref().map(|it| known("transport.beside", it)).transpose()?,
    })
}

fn protocol(section: &str, file: &ProtocolFile) -> Result<Protocol, Fault> {
    let field = |name: &str| format!("{section}.{name}");
    Ok(Protocol {
        start: known(&field("start"), &file.start)?,
        fill: known(&field("fill"), &file.fill)?,
        hop: known(&field("hop"), &file.hop)?,
        tree_hop: known(&field("tree_hop"), &file.tree_hop)?,
        share: known(&field("share"), &file.share)?,
    })
}

fn network(file: &NetworkFile) -> Result<Network, Fault> {
    let leaves = file.leaves.as_ref().map(|file| {
        Ok(Leaves {
            nodes: known("network.leaves.nodes", &file.nodes)?,
            uplink_share: known("network.leaves.uplink_share", &file.uplink_share)?,
        })
    });
    Ok(Network {
        adapters: known("network.adapters", &file.adapters)?,
        adapter_bandwidth: known("network.adapter_bandwidth", &file.adapter_bandwidth)?,
        share: known("network.share", &file.share)?,
        bulk: network_hops("network.bulk", &file.bulk)?,
        packed: network_hops("network.packed", &file.packed)?,
        eager: network_hops("network.eager", &file.eager)?,
        leaves: leaves.transpose()?,
    })
}

fn network_hops(section: &str, file: &NetworkHopsFile) -> Result<NetworkHops, Fault> {
    Ok(NetworkHops {
        ring: known(&format!("{section}.ring"), &file.ring)?,
        tree: known(&format!("{section}.tree"), &file.tree)?,
    })
}
