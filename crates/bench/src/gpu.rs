//! `bench gpu`: what kernels, products, ranks and steps of training take on the first GPU of this machine, and
//! whether what they compute is right.

mod options; // what is measured, by arguments
mod goal; // what figures are meant to be
mod row; // one thing that was measured
mod kept; // rows on their way to a table and a ledger
mod equal; // kernels against processors
mod rates; // single things
mod calibrated; // the machine that explains them
mod ranks; // plans on several ranks against one
mod model; // a model that is trained
mod steps; // steps of training, beside those of PyTorch
mod torch; // the same steps by PyTorch
mod decode; // tokens one after another
mod sanitizer; // what compute-sanitizer finds

use calibrate::gpu as measured;
use calibrate::host;
use cost_models::machine::Machine;
use device::Bench;
use files::written;
use files::{Failure, Say};

pub use equal::{Case, apart, cases, compared};
use goal::Judged;
use kept::{Kept, Place};
pub use options::OnGpu;
use options::Part;
use row::{Row, Section};

use super::Report;

/// What parts need.
struct Given<'a> {
    options: &'a OnGpu,
    /// Whose prices are beside what is measured: first what this GPU's data sheet says.
    machine: Machine,
    /// What was asked.
    command: String,
    say: &'a Say<'a>,
}

/// What measures a part.
type Measure = fn(&Given<'_>) -> Result<Vec<Row>, Failure>;

/// Measures; refuses where something is not as its reference. A part that fails leaves the others.
pub(crate) fn measure(options: &OnGpu, say: &Say<'_>) -> Result<Report, Failure> {
    launch::gpu::present(&options.cuda, "bench gpu")?;
    let mut bench = Bench::open(&launch::gpu::settings(&options.cuda)).map_err(measured::failure)?;
    let facts = bench.facts().clone();
    let named = options.machine.as_ref().or(options.like.as_ref());
    let machine = measured::like(named.map(String::as_str), &facts)?;
    if let Some(path) = &options.calibrated {
        written::possible(path)?;
    }
    let mut given = Given { options, machine, command: options.command(), say };
    let identity = measured::identity(&bench);
    let (major, minor) = bench.compiler_version();
    let place = Place {
        gpu: facts.name.clone(),
        identity: identity.clone(),
        driver: host::gpu_driver(),
        compiler: format!("{major}.{minor}"),
        command: given.command.clone(),
    };
    let judged = if options.quick { Judged::No } else { Judged::Yes };
    let mut kept = Kept::new(place, judged, options.ledger.as_deref())?;
    if options.wants(Part::Equal) {
        kept.keep(Part::Equal, Ok(equal::rows(&given, &mut bench)), &given.machine)?;
    }
    if options.wants(Part::Rates) || options.calibrates() {
        match rates::measured(&given, &mut bench) {
            Ok(rates) => {
                if options.calibrates() {
                    let (machine, rows) = calibrated::machine(&given, &facts, &identity, &rates);
                    kept.keep(Part::Rates, Ok(rows), &given.machine)?;
                    // Where no numbers explain the times, those of the data sheet stay.
                    given.machine = machine.unwrap_or(given.machine);
                }
                if options.wants(Part::Rates) {
                    kept.keep(Part::Rates, Ok(rates::rows(&rates, &given.machine)), &given.machine)?;
                }
            }
            Err(error) => kept.keep(Part::Rates, Err(error), &given.machine)?,
        }
    }
    // Ranks have the GPU's memory to themselves.
    drop(bench);
    let parts: [(Part, Measure); 4] = [
        (Part::Ranks, ranks::rows),
        (Part::Steps, |given| Ok(steps::rows(given))),
        (Part::Decode, decode::rows),
        (Part::Sanitizer, |given| Ok(sanitizer::rows(given))),
    ];
    for (part, rows) in parts {
        if options.wants(part) {
            kept.keep(part, rows(&given), &given.machine)?;
        }
    }
    kept.report()
}
