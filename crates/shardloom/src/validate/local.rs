//! Plans of this machine beside what their runs take.
//!
//! Models of several shapes are planned for one, two and four ranks, as the search would have it
//! and by hand, by prices that `calibrate` measures just before, or by those of a machine file.
//! Each plan is run, and the shortest of its steps counts: other programs only make one longer.

mod trial; // one plan, priced and run

use std::fmt::Write as _;
use std::path::Path;

use cost_models::machine::{Machine, measured};
use serde_json::{Value, json};

use crate::bench::folder::Folder;
use crate::bench::gpt2::{self, Size, Start};
use crate::bench::onnx::Writer;
use crate::bench::process::Ticks;
use crate::commands::{Context, Said};
use crate::failure::Failure;
use crate::measure::notes::Notes;
use crate::otherwise::Manner;
use crate::{machine, measure, quantity};
use trial::{Trial, Way};

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

/// Beyond this part of the shorter one, one of two steps is longer for certain.
const APART: f64 = 0.25;

/// Prices and runs all plans of all models; `file` is the machine file, or none for one that is
/// measured now.
pub(crate) fn local(file: Option<&Path>, steps: u32, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let progress = context.progress;
    let machine = match file {
        Some(path) => machine::named(&path.display().to_string(), Some(1))?,
        None => measured_now(&|what| progress.say(what))?,
    };
    let mut trials = Vec::new();
    let before = Ticks::now();
    for shape in &SHAPES {
        let folder = Folder::new("validate", None)?;
        progress.say(format!("writing {}", name(shape)));
        let path = Writer::large(&folder.path)
            .and_then(|writer| gpt2::write(writer, shape.size, Start::Alike, 0))
            .map_err(|error| Failure::unwritten(&folder.path, &error))?;
        let dims = [("batch", shape.batch), ("sequence", shape.sequence)];
        for (ranks, way) in WAYS {
            progress.say(format!("{} on {ranks} ranks", name(shape)));
            let made = trial::trial(&path, &dims, &machine, ranks, way, steps)?;
            trials.extend(made.map(|trial| (name(shape), trial)));
        }
    }
    let others = before.zip(Ticks::now()).map(|(before, after)| after.others_since(before));
    let text = shown(&trials) + &others.map_or_else(String::new, beside);
    Ok(Said { text, json: Value::Array(trials.iter().map(line).collect()) })
}

/// What other programs took: steps are as much longer, and prices do not know of it.
fn beside(others: f64) -> String {
    format!("other programs took {:.0} % of the processors meanwhile\n", 100.0 * others)
}

fn measured_now(say: &dyn Fn(String)) -> Result<Machine, Failure> {
    let (found, _) = measure::measured(&mut Notes::nowhere(), say)?;
    let source = format!("measured by `shardloom validate` on {}", measure::machine());
    measured::host("host", &found, &source).map_err(|error| Failure::internal("validate", error))
}

fn name(shape: &Shape) -> String {
    let Size { layers, hidden, vocabulary, .. } = shape.size;
    format!("{layers} layers of {hidden}, {vocabulary} words, {}x{}", shape.batch, shape.sequence)
}

fn error(trial: &Trial) -> f64 {
    trial.predicted / trial.measured - 1.0
}

/// Of pairs of plans of the same model whose steps differ for certain, how many are in the order
/// that prices say, and how many there are.
fn order(trials: &[(String, Trial)]) -> (usize, usize) {
    let (mut right, mut all) = (0, 0);
    for (index, (model, a)) in trials.iter().enumerate() {
        for (_, b) in trials[..index].iter().filter(|(other, _)| other == model) {
            let longer = a.measured.max(b.measured) / a.measured.min(b.measured);
            if longer > 1.0 + APART {
                all += 1;
                right += usize::from((a.measured < b.measured) == (a.predicted < b.predicted));
            }
        }
    }
    (right, all)
}

fn shown(trials: &[(String, Trial)]) -> String {
    let mut text =
        format!("{:<40} {:<44} {:>12} {:>12} {:>7}\n", "model", "plan", "predicted", "measured", "off by");
    for (model, trial) in trials {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{model:<40} {:<44} {:>12} {:>12} {:>+6.1}%",
            trial.plan,
            quantity::seconds(trial.predicted),
            quantity::seconds(trial.measured),
            100.0 * error(trial)
        );
    }
    let mut kinds: Vec<(&str, f64, f64)> = Vec::new();
    for kind in trials.iter().filter(|(_, trial)| trial.ranks == 1).flat_map(|(_, trial)| &trial.kinds) {
        match kinds.iter_mut().find(|it| it.0 == kind.name) {
            Some(known) => {
                known.1 += kind.predicted;
                known.2 += kind.measured;
            }
            None => kinds.push((&kind.name, kind.predicted, kind.measured)),
        }
    }
    kinds.sort_by(|a, b| b.2.total_cmp(&a.2));
    let _ = writeln!(
        text,
        "\n{:<40} {:>57} {:>12}",
        "operations on one rank, all models", "predicted", "measured"
    );
    for (name, predicted, measured) in kinds {
        let _ = writeln!(
            text,
            "{name:<40} {:>57} {:>12}",
            quantity::seconds(predicted),
            quantity::seconds(measured)
        );
    }
    let within = trials.iter().filter(|(_, trial)| error(trial).abs() <= APART).count();
    let mean = trials.iter().map(|(_, trial)| error(trial).abs()).sum::<f64>() / count(trials.len());
    let (right, all) = order(trials);
    let _ = writeln!(
        text,
        "\n{within} of {} within {:.0} %, {:.1} % on average; {right} of {all} pairs that differ by more are in \
         the right order",
        trials.len(),
        100.0 * APART,
        100.0 * mean
    );
    text
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number.max(1)).unwrap_or(u32::MAX))
}

fn line((model, trial): &(String, Trial)) -> Value {
    let kinds = trial.kinds.iter();
    let kinds =
        kinds.map(|it| json!({ "name": it.name, "predicted": it.predicted, "measured": it.measured }));
    json!({
        "model": model,
        "plan": trial.plan,
        "ranks": trial.ranks,
        "predicted": trial.predicted,
        "measured": trial.measured,
        "operations": kinds.collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests;
