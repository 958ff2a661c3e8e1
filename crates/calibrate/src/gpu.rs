//! What a GPU of this machine can do: single times by its own events, and the numbers of a machine file that
//! explain them.

pub mod trials; // what is timed, and what it is priced by
mod draft; // a machine file while its numbers are sought
mod least; // least squares
mod fitted; // numbers of a machine that explain times
mod shown; // times and numbers beside those of the shipped file

use cost_models::machine::{Machine, json, shipped};
use device::{Bench, DeviceError, Facts, Sample};
use files::machine as machines;
use files::{Doing, Failure, Of, Say};

use super::notes::Notes;
pub use draft::Draft;
pub use fitted::{Fitted, Kind, fitted, seek};
pub use shown::{Beside, shown, shown_links};
use trials::{Sizes, Timed, When};

/// What the middle half of the times of one thing may span, as a part of it.
const STEADY: f64 = 0.2;

/// What it may span however short the thing is: what clocks of devices tick in, twice (seconds).
const TICKS: f64 = 1e-6;

/// How often something whose times are not alike is measured again.
const AGAIN: usize = 3;

/// How carefully times were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Care {
    /// How many times were measured, and how many of them did not count.
    pub times: [usize; 2],
    /// Of which thing the times that count were farthest apart, and how far.
    pub widest: Option<(String, f64)>,
}

/// Everything that is measured of a GPU (seconds), by names.
pub struct Measured {
    /// What was timed, and what it takes (seconds).
    pub rows: Vec<(Timed, f64)>,
    /// How carefully.
    pub care: Care,
}

/// What a GPU is called, with its driver.
pub fn named(facts: &Facts) -> String {
    let Facts { name, capability: (major, minor), driver, .. } = facts;
    format!(
        "{name}, compute capability {major}.{minor}, driver of CUDA {}.{}",
        driver / 1000,
        driver % 1000 / 10
    )
}

/// What a GPU and the libraries that were measured are called: times of others are of no use.
pub fn identity(bench: &Bench) -> String {
    format!("{}, cuBLASLt {}", named(bench.facts()), bench.products_version())
}

/// Measures what the notes do not have yet, saying what is measured.
pub fn measured(bench: &mut Bench, notes: &mut Notes, say: &Say<'_>) -> Result<Measured, Failure> {
    let free = bench.free_memory().map_err(failure)?;
    let all: Vec<Timed> = trials::all(&Sizes::FULL).into_iter().filter(|it| it.bytes() < free / 2).collect();
    let (count, before) = (all.len(), notes.count());
    let again = if before > 0 { format!(" ({before} are there from before)") } else { String::new() };
    let mut care = Care::default();
    let mut rows = Vec::new();
    for (number, timed) in all.into_iter().enumerate() {
        say(Doing::one("measuring", number + 1, Of::All(count)).named(format!("{}{again}", timed.name)));
        let mut time = || match timed.when {
            When::Rested => bench.time(&timed.trial),
            When::Heated => bench.time_sustained(&timed.trial),
        };
        let seconds = notes.of(&timed.name, || Ok(steady(&timed.name, &mut care, &mut time)?.seconds))?;
        rows.push((timed, seconds));
    }
    Ok(Measured { rows, care })
}

/// The time of one thing, measured again if its times are far apart; refused if they stay so.
pub fn steady(
    name: &str,
    care: &mut Care,
    time: &mut dyn FnMut() -> Result<Sample, DeviceError>,
) -> Result<Sample, Failure> {
    let mut last = 0.0;
    for _ in 0..AGAIN {
        let sample = time().map_err(failure)?;
        let Sample { seconds, kept, refused, spread } = sample;
        care.times[0] += kept + refused;
        care.times[1] += refused;
        if spread <= STEADY || spread * seconds <= TICKS {
            if care.widest.as_ref().is_none_or(|(_, widest)| spread > *widest) {
                care.widest = Some((name.to_owned(), spread));
            }
            return Ok(sample);
        }
        last = spread;
    }
    Err(Failure::Input(format!(
        "cannot measure: half of the times of {name} lie within {:.0} % of it, expected {:.0} % at most: does \
         something else use the GPU?",
        100.0 * last,
        100.0 * STEADY
    )))
}

/// The machine whose file a GPU's measurements start from: that of the name, or that of what the driver
/// calls the GPU.
pub fn like(name: Option<&str>, facts: &Facts) -> Result<Machine, Failure> {
    let unknown = || {
        let (major, minor) = facts.capability;
        Failure::Usage(format!(
            "the driver calls this GPU `{}`, of compute capability {major}.{minor}, and no shipped machine is of \
             that name: say with `--like` which one's data sheet to start from, of {}, or a machine file",
            facts.name,
            shipped::device_names().join(", ")
        ))
    };
    let name = name.or_else(|| predict::device::file_of(&facts.name)).ok_or_else(unknown)?;
    if machines::is_file(name) {
        return machines::named(name, Some(1));
    }
    let text = shipped::text(name).ok_or_else(|| {
        let names = shipped::device_names().join(", ");
        Failure::Usage(format!("`--like {name}`: expected one of {names}, or the path of a machine file"))
    })?;
    json::read(name, text).map_err(|error| Failure::internal("calibrate", error))
}

/// What ends a command for want of a measurement.
pub fn failure(error: device::DeviceError) -> Failure {
    Failure::Input(format!("cannot measure: {error}"))
}

#[cfg(test)]
pub mod tests;
