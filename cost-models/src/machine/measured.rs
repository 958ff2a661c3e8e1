//! Machines made of numbers that somebody has just measured.

use crate::known::{Count, Known};
use crate::machine::json::{self, ReadError};
use crate::machine::{Device, Machine, MatrixPeak, Node, Protocol, Transport, Wiring};
use crate::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Ratio, Seconds};

/// What `calibrate` measures on a host whose ranks are threads (one thread is one device).
#[derive(Clone, Debug, PartialEq)]
pub struct Measurements {
    /// Memory that one rank can use (bytes).
    pub memory_capacity: Bytes,
    /// Memory that a rank takes before it holds values (bytes).
    pub memory_reserved: Bytes,
    /// Rate of a large copy, read and write counted (bytes per second).
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
    /// Work at which a matrix product reaches half of the rate of a large one (operations).
    pub matrix_half_work: Flops,
    /// Rate at which one rank hands data to another (bytes per second).
    pub link_bandwidth: BytesPerSecond,
    /// Time until a rank notices what another has handed to it (seconds).
    pub hop: Seconds,
    /// Bytes that are handed over at half of the full rate.
    pub half_size: Bytes,
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
/// [`Machine::DEVICE_LIMIT`] with [`Machine::with_devices`].
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
            start: Known::new(m.launch, source)?,
            hop: Known::new(m.hop, source)?,
            share: whole()?,
        })
    };
    Some(Machine {
        name: name.to_owned(),
        devices: 1,
        device: Device {
            memory_capacity: Known::new(m.memory_capacity, source)?,
            memory_reserved: Known::new(m.memory_reserved, source)?,
            memory_bandwidth: Known::new(m.memory_bandwidth, source)?,
            memory_efficiency: whole()?,
            launch: Known::new(m.launch, source)?,
            vector_peak: Known::new(m.vector_peak, source)?,
            matrix_peak: MatrixPeak {
                f64: Known::new(m.matrix_f64, source)?,
                f32: Known::new(m.matrix_f32, source)?,
                tf32: Known::new(m.matrix_f32, source)?,
                f16: Known::new(m.matrix_f32, source)?,
                bf16: Known::new(m.matrix_f32, source)?,
                integer: Known::new(m.matrix_integer, source)?,
            },
            matrix_efficiency: whole()?,
            matrix_half_work: Known::new(m.matrix_half_work, source)?,
        },
        node: Node {
            devices: Known::new(
                Count(Machine::DEVICE_LIMIT),
                "ranks are threads: their number is not a property of the host",
            )?,
            wiring: Known::new(Wiring::Switch, "every thread reaches all of the host's memory")?,
            link_bandwidth: Known::new(m.link_bandwidth, source)?,
            host_bandwidth: Known::new(m.link_bandwidth, source)?,
            ring_share: whole()?,
            pair_share: whole()?,
            exchange_share: whole()?,
        },
        transport: Transport {
            bulk: protocol()?,
            eager: protocol()?,
            ring_half_size: Known::new(m.half_size, source)?,
            pair_half_size: Known::new(m.half_size, source)?,
        },
        network: None,
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
