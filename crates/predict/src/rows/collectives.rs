//! `collective_rows.csv`: times and rates of collective operations and messages.

use cost_models::collective::{
    all_reduce, all_to_all, broadcast, reduce_scatter, ring_all_gather, ring_all_reduce, send,
};
use cost_models::machine::{Machine, fabric};
use cost_models::topology::Group;
use cost_models::units::{Bytes, BytesPerSecond, Seconds, exact};

use super::{Answer, Exchange, Kind, Priced};
use crate::cluster::{Cluster, Links};
use crate::device::machine_of;
use crate::stated::Unstated;
use crate::table::{Row, TableError};

/// Times of collective operations.
pub struct Collectives;

impl Kind for Collectives {
    fn file(&self) -> &'static str {
        "collective_rows.csv"
    }

    fn columns(&self) -> &'static [&'static str] {
        &[
            "row_id",
            "source",
            "gpu",
            "n_gpus",
            "n_nodes",
            "op",
            "size_bytes",
            "time_us",
            "algbw_gbs",
            "busbw_gbs",
        ]
    }

    fn price(&self, row: &Row<'_>) -> Result<Answer, TableError> {
        match priced(row) {
            Ok(priced) => Ok(Answer::Priced(priced)),
            Err(Unstated::Field(error)) => Err(error),
            Err(Unstated::Why(why)) => Ok(Answer::Skipped(why)),
        }
    }
}

/// What ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    AllReduce,
    RingAllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Send,
}

fn priced(row: &Row<'_>) -> Result<Priced, Unstated> {
    // What is no collective operation at all is said before where it runs.
    op(row)?;
    priced_on(row, machine(row)?)
}

/// What a row says and what we say of it, on nodes of such a machine.
pub(crate) fn priced_on(row: &Row<'_>, machine: Machine) -> Result<Priced, Unstated> {
    /// Microseconds in a second, and the unit of rates.
    const MICRO: f64 = 1e6;
    const GIGA: f64 = 1e9;
    /// The size at which a peak rate is read where none is stated (bytes).
    const PEAK: Bytes = Bytes(1 << 33);
    let op = op(row)?;
    let cluster = cluster(row, machine)?;
    let group = group(row, &cluster)?;
    let size = row.bytes("size_bytes")?.map_or(PEAK, Bytes);
    let measured = row.number("time_us")?;
    if measured.is_some() && size == PEAK && row.text("size_bytes").is_empty() {
        return Err(Unstated::Why("a time without a size".to_owned()));
    }
    let seconds = time(op, &cluster.machine, &group, size);
    let rate = exact(size.0) / seconds.0 / GIGA;
    let priced = if let Some(measured) = measured {
        Priced::new(seconds.0 * MICRO, measured)
    } else if let Some(measured) = row.number("algbw_gbs")? {
        Priced::new(rate, measured)
    } else if let Some(measured) = row.number("busbw_gbs")? {
        Priced::new(rate * sent(op, group.size), measured)
    } else {
        return Err(Unstated::Why("neither a time nor a rate is stated".to_owned()));
    };
    possible(op, &group, size, measured.map(|micro| Seconds(micro / MICRO)))?;
    // Ranks of a machine of one name are alike, if they are as many on as many nodes.
    let curve = || format!("{} {op:?} {} {}", cluster.machine.name, group.size, group.nodes);
    let exchange = Exchange { bytes: size.0, curve: measured.map(|_| curve()) };
    Ok(Priced { exchange: Some(exchange), ..priced })
}

fn op(row: &Row<'_>) -> Result<Op, Unstated> {
    let why = |text: &str| Err(Unstated::Why(text.to_owned()));
    if row.text("stat").contains("efficiency ratio") {
        return why("a ratio of rates, not a time");
    }
    if row.text("size_semantics").contains("semantics differ") {
        return why("what the size counts is not stated");
    }
    let algorithm = row.text("algo");
    if algorithm == "SHARP" {
        return why("sums in the switches of a network are not modelled");
    }
    if algorithm.contains("not NCCL") {
        return why("a library whose algorithms are not modelled");
    }
    match row.text("op") {
        "all_reduce" if algorithm == "ring" => Ok(Op::RingAllReduce),
        "all_reduce" => Ok(Op::AllReduce),
        "all_gather" => Ok(Op::AllGather),
        "reduce_scatter" => Ok(Op::ReduceScatter),
        "all_to_all" | "alltoall" => Ok(Op::AllToAll),
        "broadcast" | "reduce" => Ok(Op::Broadcast),
        "send_recv" | "sendrecv" | "p2p" => Ok(Op::Send),
        other => Err(Unstated::Why(format!("`{other}` is no operation that is known"))),
    }
}

/// The machine that a row names.
fn machine(row: &Row<'_>) -> Result<Machine, Unstated> {
    let nodes = row.count("n_nodes")?.unwrap_or(1);
    let (gpu, network) = (row.text("gpu"), row.text("inter_link"));
    match machine_of(&format!("{gpu} {}", row.text("intra_link"))) {
        Ok(machine) => Ok(machine),
        // Any node whose links are faster than its adapters.
        Err(_) if nodes > 1 && adapters(network).or_else(|| adapters(gpu)).is_some() => {
            machine_of(ANY_NODE).map_err(Unstated::Why)
        }
        Err(why) => Err(Unstated::Why(why)),
    }
}

/// Such a machine with its nodes and network as the row states them.
fn cluster(row: &Row<'_>, mut machine: Machine) -> Result<Cluster, Unstated> {
    let nodes = row.count("n_nodes")?.unwrap_or(1);
    let (gpu, network) = (row.text("gpu"), row.text("inter_link"));
    let stated = adapters(network).or_else(|| adapters(gpu));
    let fabric = fabric::share(network);
    if nodes > 1 && stated.is_none() && fabric.is_none() {
        return Err(Unstated::Why("the network between the nodes is not stated".to_owned()));
    }
    if let (Some(share), Some(network)) = (fabric, &mut machine.network) {
        network.share = share;
    }
    let links = Links {
        adapter: None,
        node: row.count("gpus_per_node")?,
        switch: None,
        adapters: stated.map(|(count, _)| count),
        network: stated.map(|(count, each)| exact(count) * each),
    };
    Cluster::new(machine, &links, row.text("source")).map_err(|error| Unstated::Why(error.to_string()))
}

/// A device of a node that stands for those of rows that name none.
const ANY_NODE: &str = "A100";

/// How many adapters, and the rate of one, in a text such as `8x200Gb/s HDR`.
fn adapters(text: &str) -> Option<(u64, BytesPerSecond)> {
    /// Bytes per second in a gigabit per second.
    const GIGABIT: f64 = 1.25e8;
    let digits = |it: &str| it.trim().parse::<u64>().ok();
    text.match_indices('x').find_map(|(place, _)| {
        let before = text[..place].trim_end();
        let start = before.rfind(|it: char| !it.is_ascii_digit()).map_or(0, |it| it + 1);
        let after = text[place + 1..].trim_start();
        let (rate, rest) = after.split_at(after.find(|it: char| !it.is_ascii_digit())?);
        let count = digits(&before[start..]).filter(|it| *it > 0)?;
        let rate = digits(rate).filter(|_| rest.trim_start().starts_with("Gb"))?;
        Some((count, BytesPerSecond(exact(rate) * GIGABIT)))
    })
}

fn group(row: &Row<'_>, cluster: &Cluster) -> Result<Group, Unstated> {
    let why = |text: String| Unstated::Why(text);
    let size = row.count("n_gpus")?.filter(|it| *it > 0);
    let size = size.ok_or_else(|| why("`n_gpus` is not stated".to_owned()))?;
    let nodes = row.count("n_nodes")?.unwrap_or(1).max(1);
    let each = row.count("ranks_per_node")?.unwrap_or(size / nodes).max(1);
    let stride = if nodes > 1 { (cluster.node() / each).max(1) } else { 1 };
    let group = cluster.alone(size, stride).map_err(|error| why(error.to_string()))?;
    if group.nodes != nodes {
        return Err(why(format!("{size} ranks are in {} nodes, not in {nodes}", group.nodes)));
    }
    Ok(group)
}

fn time(op: Op, machine: &Machine, group: &Group, size: Bytes) -> Seconds {
    match op {
        Op::AllReduce => all_reduce(machine, group, size),
        Op::RingAllReduce => ring_all_reduce(machine, group, size),
        Op::AllGather => ring_all_gather(machine, group, size),
        Op::ReduceScatter => reduce_scatter(machine, group, size),
        Op::AllToAll => all_to_all(machine, group, size),
        Op::Broadcast => broadcast(machine, group, size),
        Op::Send => send(machine, group, size),
    }
}

/// What a rank sends, as a part of the size: the rate on its links relative to that of the value.
fn sent(op: Op, ranks: u64) -> f64 {
    let others = (exact(ranks) - 1.0) / exact(ranks);
    match op {
        Op::AllReduce | Op::RingAllReduce => 2.0 * others,
        Op::AllGather | Op::ReduceScatter | Op::AllToAll => others,
        Op::Broadcast | Op::Send => 1.0,
    }
}

/// Refuses times in which links cannot have moved what must be moved.
fn possible(op: Op, group: &Group, size: Bytes, measured: Option<Seconds>) -> Result<(), Unstated> {
    /// How much faster than its peak rate a link may seem: clocks are read at different places.
    const SLACK: f64 = 1.05;
    let (Some(measured), Some(inside)) = (measured, group.inside.filter(|_| group.nodes == 1)) else {
        return Ok(());
    };
    // A switch that adds halves what is sent.
    let least = sent(op, group.size).min(1.0) * (size / inside.link);
    if measured.0 * SLACK < least.0 {
        return Err(Unstated::Why("faster than the peak rate of the links that are named".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
