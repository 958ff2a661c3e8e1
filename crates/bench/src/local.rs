//! Plans of this machine beside what their runs take.
//!
//! Models of several shapes are planned for one, two and four ranks, as the search would have it
//! and by hand, by prices that `calibrate` measures just before, or by those of a machine file. The
//! plans of a model are run in turn, some steps each, round after round until there were enough rounds
//! in which the machine was calm. The shortest of their steps counts: other programs only make one
//! longer.

mod trial; // one plan, priced and run
mod calm; // how calm the machine is
mod said; // what is said of it

use std::path::{Path, PathBuf};

use autoparallel::otherwise::Manner;
use calibrate as measure;
use calibrate::host::Ticks;
use calibrate::notes::Notes;
use cost_models::machine::{Machine, measured};
use files::folder::Folder;
use files::machine;
use files::{Failure, Say};
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Size, Start};

use crate::Report;
use calm::Calm;
use said::Trials;
use trial::{Running, Trial, Way};

/// A model and what it is given.
struct Shape {
    size: Size,
    batch: u64,
    sequence: u64,
}

const fn shape([layers, hidden, heads, vocabulary]: [u64; 4], [batch, sequence]: [u64; 2]) -> Shape {
    Shape { size: Size { layers, hidden, heads, vocabulary, positions: sequence }, batch, sequence }
}

/// Few and many layers, narrow and wide, short and long, with few and with many words.
const SHAPES: [Shape; 6] = [
    shape([2, 256, 4, 1000], [2, 128]),
    shape([8, 128, 4, 512], [8, 64]),
    shape([2, 512, 8, 4000], [2, 128]),
    shape([4, 256, 8, 2000], [4, 256]),
    shape([1, 768, 12, 16000], [2, 128]),
    shape([3, 384, 6, 211], [2, 512]),
];

/// On how many ranks, and how the plan is made.
const WAYS: [(u64, Way); 5] = [
    (1, Way::Cheapest),
    (2, Way::Cheapest),
    (2, Way::By(Manner::Data)),
    (2, Way::By(Manner::ColumnRow)),
    (4, Way::Cheapest),
];

/// How many calm rounds of each plan are enough.
const ENOUGH: usize = 3;

/// How plans are run.
#[derive(Clone, Debug)]
pub struct Local {
    /// The machine file by whose prices they are planned; without it one that is measured now.
    pub machine: Option<PathBuf>,
    /// Where the results are appended.
    pub ledger: Option<PathBuf>,
    /// How often each plan is run in a round.
    pub steps: u32,
    /// How many rounds there are at most for the plans of a model.
    pub rounds: u32,
}

/// Prices and runs all plans of all models: one object for each of them.
///
/// # Errors
///
/// If a plan cannot be made or run, or a file be read or written.
pub fn local(options: &Local, say: &Say<'_>) -> Result<Report, Failure> {
    let machine = match &options.machine {
        Some(path) => machine::named(&path.display().to_string(), Some(1))?,
        None => measured_now(say)?,
    };
    let (mut trials, mut calm) = (Vec::new(), Calm::new(&machine)?);
    let before = Ticks::now();
    for shape in &SHAPES {
        let folder = Folder::new("validate", None)?;
        say(format!("writing {}", name(shape)).into());
        let path = Writer::large(&folder.path)
            .and_then(|writer| gpt2::write(writer, shape.size, Start::Alike, 0))
            .map_err(|error| Failure::unwritten(&folder.path, &error))?;
        let tried = tried(&path, shape, &machine, options, &mut calm, say)?;
        trials.extend(tried.into_iter().map(|trial| (name(shape), trial)));
    }
    let others = before.zip(Ticks::now()).map(|(before, after)| after.others_since(before));
    let trials = Trials { trials, calm, others };
    if let Some(path) = &options.ledger {
        crate::append(path, &[trials.line()])?;
    }
    Ok(Report { text: trials.text(), lines: trials.lines() })
}

/// Runs all plans of a model.
fn tried(
    path: &Path,
    shape: &Shape,
    machine: &Machine,
    options: &Local,
    calm: &mut Calm,
    say: &Say<'_>,
) -> Result<Vec<Trial>, Failure> {
    let dims = [("batch", shape.batch), ("sequence", shape.sequence)];
    let mut running = Vec::new();
    for (ranks, way) in WAYS {
        say(format!("{} on {ranks} ranks", name(shape)).into());
        running.extend(Running::new(path, &dims, machine, ranks, way)?);
    }
    for round in 0..options.rounds {
        say(format!("{}: round {}", name(shape), round + 1).into());
        for plan in &mut running {
            plan.round(options.steps, calm)?;
        }
        if running.iter().all(|plan| plan.calm(calm) >= ENOUGH) {
            break;
        }
    }
    Ok(running.into_iter().map(|plan| plan.done(calm)).collect())
}

fn measured_now(say: &Say<'_>) -> Result<Machine, Failure> {
    let (found, _) = measure::measured(measure::Effort::Thorough, &mut Notes::nowhere(), say)?;
    let source = format!("measured by `shardloom validate` on {}", measure::machine());
    measured::host("host", &found, &source).map_err(|error| Failure::internal("validate", error))
}

fn name(shape: &Shape) -> String {
    let Size { layers, hidden, vocabulary, .. } = shape.size;
    format!("{layers} layers of {hidden}, {vocabulary} words, {}x{}", shape.batch, shape.sequence)
}

#[cfg(test)]
mod tests;
