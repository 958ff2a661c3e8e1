//! Benchmarks: what the program takes, measured.

#[cfg(test)]
mod models; // the models that benchmarks write are understood
mod flops; // the arithmetic of a graph
mod half; // devices that have units for one 16-bit form of numbers
mod onnxruntime; // another program's steps, for comparison
mod cpu_run; // `cpu-run`
mod planning; // `planning`
mod cluster; // `cluster`
mod training; // `training`
mod local; // plans of this machine beside their prices
mod simulate; // `simulate`
mod exposed; // `exposed`
mod resharding; // `resharding`
mod overlap; // `overlap`
mod fit; // `fit`
mod growth; // `growth`
mod frameworks; // `frameworks`
mod child; // programs that measure beside this one
mod gpu; // `gpu`

#[cfg(test)]
#[path = "../../device/src/emulated.rs"]
mod emulated; // a GPU that is not there
#[cfg(test)]
#[path = "../../../tests/outside.rs"]
#[expect(dead_code, reason = "folders of models are for other packages")]
mod outside; // what may lie outside the repository

pub use cluster::Cluster;
pub use cpu_run::CpuRun;
pub use exposed::Exposed;
pub use fit::Fit;
pub use frameworks::Frameworks;
pub use gpu::{Case, OnGpu, apart, cases, compared};
pub use growth::Growth;
pub use local::{Local, local};
pub use overlap::Overlap;
pub use planning::Planning;
pub use resharding::Resharded;
pub use simulate::Simulate;
pub use training::Training;

use std::io::Write as _;
use std::path::PathBuf;

use calibrate::host;
use clap::Subcommand;
use files::readable;
use files::{Failure, Say};
use serde_json::Value;

/// Which benchmark.
#[derive(Clone, Debug, Subcommand)]
pub enum Benchmark {
    /// Run GPT-2 on one rank of this machine
    CpuRun(CpuRun),
    /// Plan full-size models, whose weights need not be there
    Planning(Planning),
    /// Plan models on whole clusters, beside the setups that were published for them
    Cluster(Cluster),
    /// Plan models for frameworks, from their configurations on
    Frameworks(Frameworks),
    /// Simulate plans by the clock of their machines
    Simulate(Simulate),
    /// Simulate plans with overlapped communication, and in the order in which programs are built
    Exposed(Exposed),
    /// Bring values from mesh to mesh by each strategy, by the clock, in the published cases
    Resharding(Resharded),
    /// Simulate two-stage training steps by each way of crossing and schedule, beside what was published
    Overlap(Overlap),
    /// Fit the fitted numbers of machines and frameworks again, to published rows
    Fit(Fit),
    /// Plan and lower models of more and more operations
    Growth(Growth),
    /// Measure kernels, products, ranks and training steps on the first GPU of this machine
    Gpu(OnGpu),
    /// Train a small GPT-2 on the bytes of a text, on one rank and on four
    Training(Training),
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// For people.
    pub text: String,
    /// One object for each thing measured, as a ledger has them.
    pub lines: Vec<Value>,
}

/// Measures; the report is appended to the ledger, if one is named.
pub fn run(benchmark: &Benchmark, say: &Say<'_>) -> Result<Report, Failure> {
    let (report, ledger) = match benchmark {
        Benchmark::CpuRun(options) => (cpu_run::measure(options, say)?, &options.ledger),
        Benchmark::Planning(options) => (planning::measure(options, say)?, &options.ledger),
        Benchmark::Cluster(options) => (cluster::measure(options, say)?, &options.ledger),
        Benchmark::Frameworks(options) => (frameworks::measure(options, say)?, &options.ledger),
        Benchmark::Simulate(options) => (simulate::measure(options, say)?, &options.ledger),
        Benchmark::Exposed(options) => (exposed::measure(options, say)?, &options.ledger),
        // What is wrong is in the ledger too.
        Benchmark::Gpu(options) => return gpu::measure(options, say),
        Benchmark::Resharding(options) => return resharding::measure(options, say),
        Benchmark::Overlap(options) => (overlap::measure(options, say)?, &options.ledger),
        Benchmark::Fit(options) => (fit::measure(options, say)?, &options.ledger),
        Benchmark::Growth(options) => (growth::measure(options, say)?, &options.ledger),
        Benchmark::Training(options) => (training::measure(options, say)?, &options.ledger),
    };
    if let Some(path) = ledger {
        append(path, &report.lines)?;
    }
    Ok(report)
}

/// Appends lines to a ledger: each with its number, the date, the commit and the machine.
pub fn append(path: &PathBuf, lines: &[Value]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::unwritten(path, &error);
    let before = readable::text_if_there(path)?.map_or(0, |text| text.lines().count());
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    let (date, commit, machine) = (host::date(), host::commit(), host::machine());
    for (index, line) in lines.iter().enumerate() {
        let mut full = serde_json::json!({
            "line": before + index + 1,
            "date": date,
            "commit": commit,
            "host": machine,
        });
        if let (Some(full), Some(line)) = (full.as_object_mut(), line.as_object()) {
            full.extend(line.clone());
        }
        writeln!(file, "{full}").map_err(failed)?;
    }
    Ok(())
}

/// The median; of nothing, 0.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
