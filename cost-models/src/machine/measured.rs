//! Machines made of numbers that somebody has just measured.

use crate::known::{Count, Known};
use crate::machine::json::{self, ReadError};
use crate::machine::{
    ByPrecision, Device, Machine, Node, Pace, Packing, Pass, Products, Protocol, Tile, Together, Transport,
    Turned, Wiring,
};
use crate::operations::Laws;
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Ratio, Seconds};

/// Ranks that a host may have.
const HOST_RANKS: u64 = 1024;
/// Bytes that a sum of 32-bit numbers moves for each result.
const SUM_BYTES: f64 = 12.0;

/// What `calibrate` measures on a host whose ranks are threads (one thread is one device).
#[derive(Clone, Debug, PartialEq)]
pub struct Measurements {
    /// Memory that one rank can use (bytes).
    pub memory_capacity: Bytes,
    /// Memory that a rank takes before it holds values (bytes).
    pub memory_reserved: Bytes,
    /// Rate of sums of large values by one rank alone, what is read and written counted (bytes per second).
    pub memory_bandwidth: BytesPerSecond,
    /// Time of the smallest operation (seconds).
    pub launch: Seconds,
    /// Rate of element-wise arithmetic in cache (operations per second).
    pub vector_peak: FlopsPerSecond,
    /// Rate of a large matrix product of 64-bit numbers (operations per second).
    pub matrix_f64: FlopsPerSecond,
    /// Rate of a large matrix product of 32-bit numbers; also that of shorter ones, which are
    /// computed in 32 bits (operations per second).
    pub matrix_f32: FlopsPerSecond,
    /// Rate of a large matrix product of integers (operations per second).
    pub matrix_integer: FlopsPerSecond,
    /// Time of a matrix product besides its tiles (seconds).
    pub product_start: Seconds,
    /// What matrix products are cut into.
    pub tile: Tile,
    /// Time of a tile besides its work (seconds).
    pub tile_start: Seconds,
    /// How much of the operands and the result of a product a rank's cache has (bytes).
    pub packing_cache: Bytes,
    /// The rate for what is beyond that (bytes per second).
    pub packing_rate: BytesPerSecond,
    /// The rate at which a matrix that lies across tiles is turned (bytes per second).
    pub turned_rate: BytesPerSecond,
    /// The same where rows lie a multiple of 4 KiB apart (bytes per second).
    pub aliased_rate: BytesPerSecond,
    /// Rate at which one rank hands data to another (bytes per second).
    pub link_bandwidth: BytesPerSecond,
    /// Rate at which a rank reads and writes its own part of what ranks exchange (bytes per second).
    pub local_rate: BytesPerSecond,
    /// Time of an exchange besides what follows (seconds).
    pub exchange_start: Seconds,
    /// Time until all ranks have come to a round of an exchange (seconds).
    pub exchange_round: Seconds,
    /// Time until a rank notices what another has handed to it (seconds).
    pub hop: Seconds,
    /// Ranks that run at the same time.
    pub processors: u64,
    /// The part of the rate of products that each rank keeps while all processors compute.
    pub products_together: Ratio,
    /// The same of memory.
    pub memory_together: Ratio,
    /// For kinds of operations, the time however few elements there are and that of an element
    /// (seconds).
    pub passes: Vec<(Pass, Seconds, Seconds)>,
}

/// Why measurements do not make a machine.
#[derive(Debug)]
pub enum MeasureError {
    /// The source is blank.
    Source,
    /// A file with these numbers would be refused.
    File(ReadError),
}

/// A single host, from measurements that `source` cites: one rank of it, and up to
/// as many as threads can be with [`Machine::with_devices`].
///
/// Measured rates are what is reached, so every share of a peak is 1. Ranks hand data over
/// through shared memory, which is written as a switch, and the link through the host is the
/// same memory.
pub fn host(name: &str, measurements: &Measurements, source: &str) -> Result<Machine, MeasureError> {
    let machine = sourced_host(name, measurements, source).ok_or(MeasureError::Source)?;
    let read = json::read(name, &json::write(&machine)).map_err(MeasureError::File)?;
    Ok(Machine { devices: 1, ..read })
}

fn sourced_host(name: &str, measurements: &Measurements, source: &str) -> Option<Machine> {
    let m = measurements;
    let whole = || Known::new(Ratio(1.0), source);
    let protocol = || {
        Some(Protocol {
            start: Known::new(m.exchange_start, source)?,
            fill: Known::new(m.exchange_round, source)?,
            hop: Known::new(m.hop, source)?,
            tree_hop: Known::new(m.hop, source)?,
            share: whole()?,
        })
    };
    let rates = ByPrecision {
        f64: m.matrix_f64,
        f32: m.matrix_f32,
        tf32: m.matrix_f32,
        f16: m.matrix_f32,
        bf16: m.matrix_f32,
        f8: m.matrix_f32,
        f4: None,
        integer: m.matrix_integer,
    };
    let sourced = |_: &str, rate: &FlopsPerSecond| Known::new(*rate, source).ok_or(());
    let reached = |_: &str, _: &FlopsPerSecond| whole().ok_or(());
    Some(Machine {
        name: name.to_owned(),
        devices: 1,
        margin: Bytes::ZERO,
        settings: Vec::new(),
        device: Device {
            memory_capacity: Known::new(m.memory_capacity, source)?,
            memory_reserved: Known::new(m.memory_reserved, source)?,
            memory_bandwidth: Known::new(m.memory_bandwidth, source)?,
            memory_efficiency: whole()?,
            scalar_efficiency: whole()?,
            launch: Known::new(m.launch, source)?,
            vector_peak: Known::new(m.vector_peak, source)?,
            matrix_peak: rates.try_map(sourced).ok()?,
            matrix_reached: rates.try_map(reached).ok()?,
            products: products(m, source)?,
            attention_forward: whole()?,
            attention_backward: whole()?,
            passes: m.passes.iter().map(|it| pace(it, source)).collect::<Option<_>>()?,
            operations: Laws::default(),
        },
        node: Node {
            devices: Known::new(
                Count(HOST_RANKS),
                "ranks are threads: their number is not a property of the host",
            )?,
            wiring: Known::new(Wiring::Switch, "every thread reaches all of the host's memory")?,
            link_bandwidth: Known::new(m.link_bandwidth, source)?,
            host_bandwidth: Known::new(m.link_bandwidth, source)?,
            sockets: None,
            processors: Some(Known::new(Count(m.processors), source)?),
            together: Some(Together {
                products: Known::new(m.products_together, source)?,
                memory: Known::new(m.memory_together, source)?,
            }),
            ring_share: whole()?,
            pair_share: whole()?,
            exchange_share: whole()?,
            host_share: whole()?,
        },
        transport: Transport {
            local_rate: Known::new(m.local_rate, source)?,
            bulk: protocol()?,
            packed: None,
            eager: protocol()?,
            in_switch: None,
            // A thread does one after the other.
            beside: None,
        },
        network: None,
    })
}

fn pace(&(pass, start, element): &(Pass, Seconds, Seconds), source: &str) -> Option<(Pass, Pace)> {
    Some((pass, Pace { start: Known::new(start, source)?, element: Known::new(element, source)? }))
}

/// One thread with one tile at a time: it waits for nobody.
fn products(m: &Measurements, source: &str) -> Option<Products> {
    let whole = || Known::new(Ratio(1.0), source);
    Some(Products {
        processors: Known::new(Count(1), "a rank is a thread")?,
        tiles: Known::new(vec![m.tile], source)?,
        // A sum reads two numbers and writes one.
        feed: Known::new(BytesPerSecond(SUM_BYTES * m.vector_peak.0), source)?,
        tile_start: Known::new(m.tile_start, source)?,
        start: Known::new(m.product_start, source)?,
        sustained: whole()?,
        in_step: whole()?,
        heating: Known::new(m.launch, source)?,
        packing: Some(Packing {
            cache: Known::new(m.packing_cache, source)?,
            rate: Known::new(m.packing_rate, source)?,
            turned: Some(Turned {
                rate: Known::new(m.turned_rate, source)?,
                aliased: Known::new(m.aliased_rate, source)?,
            }),
        }),
        input_gradient: whole()?,
        weight_gradient: whole()?,
    })
}

impl std::fmt::Display for MeasureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source => {
                write!(f, "the source is blank, expected how the numbers were measured")
            }
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MeasureError {}
