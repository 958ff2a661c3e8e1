//! What this machine can do: the rates and latencies that prices are made of.

mod passes; // what operations take that are no products

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Instant;

use cost_models::machine::measured::Measurements;
use cost_models::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds, exact};
use kernels::{Array, KernelError};
use planner_ir::{Binary, Contract, DType, Label, Op, Type};

/// Sizes of square matrix products (rows).
const SIZES: [u64; 9] = [8, 16, 24, 32, 64, 128, 256, 512, 1024];
/// Size of the product that the rate of 64-bit numbers is taken from (rows).
const WIDE: u64 = 512;
/// Size of the product that the rate of integers is taken from (rows).
const INTEGER: u64 = 192;
/// Elements of a value that lies in a cache.
const IN_CACHE: u64 = 4096;
/// Elements of a value that lies in no processor's own cache, as the values of models do.
const IN_MEMORY: u64 = 1 << 21;
/// Bytes of a small and a large message.
const MESSAGES: [usize; 2] = [64, 1 << 26];
/// How long a round of a measurement takes at least (seconds).
const LONG_ENOUGH: f64 = 0.05;
/// How many rounds there are; the best counts: other programs only make one slower.
const ROUNDS: usize = 5;

/// Why there are no measurements.
#[derive(Debug)]
pub(crate) enum MeasureFailure {
    /// A kernel failed.
    Kernel(KernelError),
    /// The system does not say how much memory there is.
    Memory,
    /// A thread ended early.
    Thread,
}

impl std::fmt::Display for MeasureFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(error) => write!(f, "a kernel failed: {error}"),
            Self::Memory => f.write_str("the system does not say how much memory there is (`/proc/meminfo`)"),
            Self::Thread => f.write_str("a thread ended early"),
        }
    }
}

impl From<KernelError> for MeasureFailure {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

/// Measures this machine, saying what is measured.
pub(crate) fn measured(say: &dyn Fn(&str)) -> Result<Measurements, MeasureFailure> {
    let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let ranks = u64::try_from(processors).unwrap_or(1);
    let (memory_capacity, memory_reserved) = memory(ranks)?;
    say("matrix products of 32-bit numbers");
    let rates: Vec<(f64, f64)> = SIZES.iter().map(|&n| product(DType::F32, n)).collect::<Result<_, _>>()?;
    // Processors share what keeps them cool, and caches: the rate that counts is that of all.
    let (work, alone) = rates.iter().copied().fold((0.0, 0.0), |a, b| if b.1 > a.1 { b } else { a });
    let side = SIZES.into_iter().find(|&n| work_of(n) >= work).unwrap_or(WIDE);
    let best = (work / at_once(processors, || Ok(work / product(DType::F32, side)?.1))?).min(alone);
    say("matrix products of 64-bit numbers and of integers");
    let together = best / alone;
    let wide = together * product(DType::F64, WIDE)?.1;
    let integer = product(DType::I64, INTEGER)?.1;
    say("element-wise operations");
    let launch = sum(1)?;
    let in_cache = sum(IN_CACHE)?;
    say("memory, from all processors at once");
    let in_memory = at_once(processors, || sum(IN_MEMORY))?;
    let passes = passes::paces(best, say)?;
    let moved = 3.0 * 4.0 * exact(IN_MEMORY);
    say("messages between threads");
    let [small, large] = [message(MESSAGES[0])?, message(MESSAGES[1])?];
    let size = exact(u64::try_from(MESSAGES[1]).unwrap_or(u64::MAX));
    let link = size / (large - small).max(f64::MIN_POSITIVE);
    Ok(Measurements {
        memory_capacity,
        memory_reserved,
        memory_bandwidth: BytesPerSecond(moved / in_memory),
        launch: Seconds(launch),
        vector_peak: FlopsPerSecond(exact(IN_CACHE) / (in_cache - launch).max(in_cache / 100.0)),
        matrix_f64: FlopsPerSecond(wide),
        matrix_f32: FlopsPerSecond(best),
        matrix_integer: FlopsPerSecond(integer),
        matrix_half_work: Flops(half_work(&rates, best)),
        link_bandwidth: BytesPerSecond(link),
        hop: Seconds(small),
        processors: ranks,
        passes,
    })
}

/// The work of the smallest product that reaches half of the best rate (operations).
fn half_work(rates: &[(f64, f64)], best: f64) -> f64 {
    let reached = rates.iter().find(|(_, rate)| *rate >= best / 2.0);
    reached.map_or(1.0, |(work, _)| *work)
}

/// The work of a product of square matrices (operations), and its rate.
fn product(dtype: DType, n: u64) -> Result<(f64, f64), KernelError> {
    let [left, right] = [filled(dtype, vec![n, n])?, filled(dtype, vec![n, n])?];
    let mut result = Array::zeros(Type::new(dtype, [n, n]))?;
    let label = |it: u8| Label(it);
    let [row, column, inner] = [label(0), label(1), label(2)];
    let op = Op::Contract(Contract {
        left: vec![row, inner],
        right: vec![inner, column],
        result: vec![row, column],
    });
    let seconds =
        shortest(|| kernels::compute(&op, &[left.tensor(), right.tensor()], &mut [result.tensor_mut()]))?;
    Ok((work_of(n), work_of(n) / seconds))
}

/// The work of a product of matrices of so many rows and columns (operations).
fn work_of(n: u64) -> f64 {
    2.0 * exact(n) * exact(n) * exact(n)
}

/// The time of an element-wise sum (seconds).
fn sum(elements: u64) -> Result<f64, KernelError> {
    let [left, right] = [filled(DType::F32, vec![elements])?, filled(DType::F32, vec![elements])?];
    let mut result = Array::zeros(Type::new(DType::F32, [elements]))?;
    shortest(|| {
        let operands = [left.tensor(), right.tensor()];
        kernels::compute(&Op::Binary(Binary::Add), &operands, &mut [result.tensor_mut()])
    })
}

/// The longest of what as many threads measure at the same time.
fn at_once(
    threads: usize,
    measure: impl Fn() -> Result<f64, KernelError> + Sync,
) -> Result<f64, MeasureFailure> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&measure)).collect();
        threads.into_iter().try_fold(0.0, |longest: f64, thread| {
            let seconds = thread.join().map_err(|_| MeasureFailure::Thread)??;
            Ok(longest.max(seconds))
        })
    })
}

fn filled(dtype: DType, shape: Vec<u64>) -> Result<Array, KernelError> {
    let op = Op::Fill { result: Type::new(dtype, shape), value: planner_ir::Real(1.0) };
    kernels::evaluate(&op, &[])?.pop().ok_or(KernelError::Size)
}

/// The shortest time of one call among several rounds of many calls (seconds).
fn shortest<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    // The first call touches memory that was never touched.
    call()?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (mut calls, start) = (0_u32, Instant::now());
        let mut seconds = 0.0;
        while seconds < LONG_ENOUGH {
            call()?;
            calls += 1;
            seconds = start.elapsed().as_secs_f64();
        }
        best = best.min(seconds / f64::from(calls));
    }
    Ok(best)
}

/// The time until another thread has a copy of a message (seconds): half of there and back, where
/// both ways copy.
fn message(size: usize) -> Result<f64, MeasureFailure> {
    let (there, arrived) = sync_channel::<Arc<Vec<u8>>>(0);
    let (back, returned) = sync_channel::<Arc<Vec<u8>>>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut own = Arc::new(vec![1_u8; size]);
            for message in arrived {
                match Arc::get_mut(&mut own) {
                    Some(bytes) => bytes.copy_from_slice(&message),
                    None => return,
                }
                drop(message);
                if back.send(Arc::clone(&own)).is_err() {
                    return;
                }
            }
        });
        let sent = Arc::new(vec![2_u8; size]);
        let mut own = vec![0_u8; size];
        let round = shortest(|| {
            there.send(Arc::clone(&sent)).map_err(|_| MeasureFailure::Thread)?;
            let message = returned.recv().map_err(|_| MeasureFailure::Thread)?;
            own.copy_from_slice(&message);
            Ok(())
        });
        drop(there);
        round.map(|seconds| seconds / 2.0)
    })
}

/// What one of so many ranks can use, and what this process takes before it holds values (bytes).
fn memory(ranks: u64) -> Result<(Bytes, Bytes), MeasureFailure> {
    let total = kilobytes("/proc/meminfo", "MemTotal:").ok_or(MeasureFailure::Memory)?;
    let taken = kilobytes("/proc/self/status", "VmRSS:").ok_or(MeasureFailure::Memory)?;
    Ok((Bytes(total * 1024 / ranks), Bytes(taken * 1024)))
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// What the processor calls itself.
pub(crate) fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "a processor without a name".to_owned())
}

#[cfg(test)]
mod tests;
