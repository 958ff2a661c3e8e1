//! What this machine can do: the rates and latencies that prices are made of.
//!
//! Each measurement has a name and is one time. They are made one after another and kept as they are
//! made; rates and starts are fitted to all of them together.
//!
//! - [`measured`] — this host
//! - [`gpu`] — a GPU of it
//! - [`links`] — what joins GPUs
//! - [`fits`] — rates and starts from times
//! - [`notes`] — what has been measured so far
//! - [`kept`] — this host, once for all
//! - [`host`] — what the process and the machine say of themselves

mod exchanges; // times of what threads exchange
pub mod fits;
pub mod gpu;
pub mod host;
pub mod kept;
pub mod links;
pub mod notes;
mod passes; // times of operations that are no products
mod products; // times of matrix products
mod timing; // how long a call takes

use std::path::Path;
use std::thread;

use cost_models::machine::Pass;
use cost_models::machine::measured::Measurements;
use cost_models::units::Bytes;
use files::readable;
use files::{Doing, Failure, Of, Say};
use kernels::{Array, KernelError};
use planner_ir::{Binary, DType, Op, Type};
use run::RunError;

use fits::Fit;
use notes::Notes;
use products::Lying;
use timing::{at_once, shortest};

pub use timing::Effort;

/// Size of the product that the rate of 64-bit numbers is taken from (rows).
const WIDE: u64 = 512;
/// Size of the product that the rate of integers is taken from (rows).
const INTEGER: u64 = 192;
/// Elements of a value that lies in a cache.
const IN_CACHE: u64 = 4096;
/// Elements of a value that lies in no processor's own cache, as the values of models do.
const IN_MEMORY: u64 = 1 << 21;

/// One time that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A product of matrices `[m, k]` and `[k, n]`.
    Product(DType, [u64; 3]),
    /// A product of 32-bit numbers whose right matrix lies as `[n, k]`.
    Turned([u64; 3]),
    /// A product of 32-bit numbers, on all processors at once.
    Products([u64; 3]),
    /// A sum of two values of so many elements.
    Sum(u64),
    /// The same on all processors at once.
    Sums(u64),
    /// An operation of a kind, on so many rows.
    Pass(Pass, u64),
    /// What so many ranks exchange, of so many bytes.
    Exchange(exchanges::Kind, u64, u64),
}

impl Wanted {
    /// All of them.
    fn all() -> Vec<Self> {
        let mut all = Self::products();
        all.extend([
            Self::Products(REFERENCE),
            Self::Product(DType::F64, [WIDE; 3]),
            Self::Product(DType::I64, [INTEGER; 3]),
            Self::Sum(1),
            Self::Sum(IN_CACHE),
            Self::Sum(IN_MEMORY),
            Self::Sums(IN_MEMORY),
        ]);
        for pass in Pass::ALL {
            all.extend(passes::rows(pass).map(|rows| Self::Pass(pass, rows)));
        }
        all.extend(products::TURNED.map(Self::Turned));
        all.extend(Self::exchanges());
        all
    }

    /// The products that rates are fitted to.
    fn products() -> Vec<Self> {
        let shapes = products::SHAPES.into_iter().chain(products::TURNED);
        shapes.map(|shape| Self::Product(DType::F32, shape)).collect()
    }

    /// The exchanges that rates and starts are fitted to.
    fn exchanges() -> Vec<Self> {
        let ranks = exchanges::ranks().flat_map(|ranks| exchanges::SIZES.map(|bytes| (ranks, bytes)));
        let kinds = |(ranks, bytes)| exchanges::Kind::ALL.map(|kind| Self::Exchange(kind, ranks, bytes));
        ranks.flat_map(kinds).collect()
    }

    /// Its name in notes.
    fn name(self) -> String {
        match self {
            Self::Product(dtype, [m, n, k]) => format!("product of {dtype} {m} x {n} x {k}"),
            Self::Turned([m, n, k]) => format!("product of f32 {m} x {n} x {k}, the right one turned"),
            Self::Products([m, n, k]) => format!("product of f32 {m} x {n} x {k} on all processors"),
            Self::Sum(elements) => format!("sum of {elements} elements"),
            Self::Sums(elements) => format!("sum of {elements} elements on all processors"),
            Self::Pass(pass, rows) => format!("{} of {rows} rows", pass.name()),
            Self::Exchange(kind, ranks, bytes) => {
                format!("{} of {bytes} bytes on {ranks} ranks", kind.name())
            }
        }
    }

    /// How long it takes (seconds).
    fn seconds(self, effort: Effort) -> Result<f64, MeasureFailure> {
        match self {
            Self::Product(dtype, shape) => Ok(products::time(effort, dtype, shape, Lying::AsRead)?),
            Self::Turned(shape) => Ok(products::time(effort, DType::F32, shape, Lying::Turned)?),
            Self::Products(shape) => {
                at_once(processors(), || Ok(products::time(effort, DType::F32, shape, Lying::AsRead)?))
            }
            Self::Sum(elements) => Ok(sum(effort, elements)?),
            Self::Sums(elements) => at_once(processors(), || Ok(sum(effort, elements)?)),
            Self::Pass(pass, rows) => Ok(passes::time(effort, pass, rows)?),
            Self::Exchange(kind, ranks, bytes) => Ok(exchanges::time(effort, kind, ranks, bytes)?),
        }
    }
}

/// Why there are no measurements.
#[derive(Debug)]
pub enum MeasureFailure {
    /// A kernel failed.
    Kernel(KernelError),
    /// The system does not say how much memory there is.
    Memory,
    /// Ranks that exchange have failed.
    Exchange(RunError),
    /// A thread cannot be started.
    Start(std::io::Error),
    /// A thread ended early.
    Thread,
}

impl std::fmt::Display for MeasureFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kernel(error) => write!(f, "a kernel failed: {error}"),
            Self::Memory => f.write_str("the system does not say how much memory there is (`/proc/meminfo`)"),
            Self::Exchange(error) => error.fmt(f),
            Self::Start(error) => write!(
                f,
                "a thread cannot be started: {error}; allow more (`ulimit -u`, or what limits this container)"
            ),
            Self::Thread => f.write_str("a thread ended early"),
        }
    }
}

impl From<KernelError> for MeasureFailure {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

impl From<RunError> for MeasureFailure {
    fn from(error: RunError) -> Self {
        Self::Exchange(error)
    }
}

/// What ends a command for want of a measurement.
fn failure(error: MeasureFailure) -> Failure {
    Failure::Input(format!("cannot measure: {error}"))
}

/// Measures what the notes do not have yet, saying what is measured; and what is fitted to that.
pub fn measured(
    effort: Effort,
    notes: &mut Notes,
    say: &Say<'_>,
) -> Result<(Measurements, Vec<Fit>), Failure> {
    let all = Wanted::all();
    let before = notes.count();
    for (index, wanted) in all.iter().enumerate() {
        let again = if before > 0 { format!(" ({before} are there from before)") } else { String::new() };
        say(Doing::one("measuring", index + 1, Of::All(all.len())).named(format!("{}{again}", wanted.name())));
        notes.of(&wanted.name(), || wanted.seconds(effort).map_err(failure))?;
    }
    let mut seconds = |wanted: Wanted| notes.of(&wanted.name(), || wanted.seconds(effort).map_err(failure));
    let ranks = u64::try_from(processors()).unwrap_or(1);
    let (memory_capacity, memory_reserved) = memory(ranks).map_err(failure)?;
    fits::fitted(ranks, (memory_capacity, memory_reserved), &mut seconds)
}

/// The product by which is seen how calm the machine is: some of them fit into what systems give a
/// program at a time.
pub const REFERENCE: [u64; 3] = [256; 3];

/// What the reference takes now on average, on the processor on which it takes longest (seconds): not the
/// shortest time, in which other programs are not seen.
pub fn reference() -> Result<f64, Failure> {
    at_once(processors(), || Ok(products::average(REFERENCE)?)).map_err(failure)
}

/// How many threads run at the same time.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The time of an element-wise sum (seconds).
fn sum(effort: Effort, elements: u64) -> Result<f64, KernelError> {
    let [left, right] = [filled(DType::F32, vec![elements])?, filled(DType::F32, vec![elements])?];
    let mut result = Array::zeros(Type::new(DType::F32, [elements]))?;
    shortest(effort, || {
        let operands = [left.tensor(), right.tensor()];
        kernels::compute(&Op::Binary(Binary::Add), &operands, &mut [result.tensor_mut()])
    })
}

fn filled(dtype: DType, shape: Vec<u64>) -> Result<Array, KernelError> {
    let op = Op::Fill { result: Type::new(dtype, shape), value: planner_ir::Real(1.0) };
    kernels::evaluate(&op, &[])?.pop().ok_or(KernelError::Size)
}

/// What one of so many ranks can use, and what this process takes before it holds values (bytes).
fn memory(ranks: u64) -> Result<(Bytes, Bytes), MeasureFailure> {
    let total = kilobytes("/proc/meminfo", "MemTotal:").ok_or(MeasureFailure::Memory)?;
    let taken = kilobytes("/proc/self/status", "VmRSS:").ok_or(MeasureFailure::Memory)?;
    Ok((Bytes(total * 1024 / ranks), Bytes(taken * 1024)))
}

fn kilobytes(path: &str, name: &str) -> Option<u64> {
    let text = readable::text(Path::new(path)).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// What the processor calls itself.
pub fn processor() -> String {
    let text = readable::text(Path::new("/proc/cpuinfo")).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "a processor without a name".to_owned())
}

/// What this machine is: measurements of it are of no use to another one.
pub fn machine() -> String {
    format!("{}, {} threads", processor(), processors())
}

#[cfg(test)]
mod tests;
