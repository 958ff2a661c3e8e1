//! `bench training`: a small GPT-2 learns a text, byte by byte, on one rank and on several.
//!
//! The loss of every step is compared: ranks share the work, and what they learn is the same.

pub(super) mod manner; // plans that are split as people split them
mod curve; // one training

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cost_models::quantity;
use files::folder::Folder;
use files::{Failure, Say};
use files::{model_file, readable, written};
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Size, Start};
use report::plot::{self, Line, Panel, Scale, Stroke};
use serde_json::{Value, json};

use super::{Report, median};
use curve::{Curve, Trial};

/// How many different bytes there are.
const BYTES: u64 = 256;
/// The steps whose losses are in the table; the last is there too.
const SHOWN: [usize; 4] = [1, 10, 50, 100];

/// `bench training`.
#[derive(Args, Clone, Debug)]
pub struct Training {
    /// The text that is learnt
    #[arg(long, value_name = "FILE")]
    pub text: PathBuf,
    /// Keep the model in this folder
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Blocks of the model
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub layers: u64,
    /// The length of its vectors
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub hidden: u64,
    /// Its heads of attention
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub heads: u64,
    /// Bytes of an example
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub sequence: u64,
    /// Examples of a step; a multiple of 4
    #[arg(long, default_value_t = 24, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub batch: u64,
    /// Number of training steps
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub steps: u32,
    /// Number of warm-up steps
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub warm_up: u32,
    /// The learning rate after that, from which it falls to a tenth
    #[arg(long, default_value_t = 2e-3, value_name = "X")]
    pub lr: f64,
    /// Seed of the initial weights and of the order of examples
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Draw the losses into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// Writes the model, trains it in several ways, and compares.
pub(crate) fn measure(options: &Training, say: &Say<'_>) -> Result<Report, Failure> {
    let &Training { layers, hidden, heads, sequence, batch, .. } = options;
    if !hidden.is_multiple_of(heads) {
        return Err(Failure::Usage(format!("{hidden} numbers do not fall into {heads} heads")));
    }
    if let Some(trial) = Trial::ALL.iter().find(|it| !batch.is_multiple_of(it.micro_batches)) {
        let parts = trial.micro_batches;
        return Err(Failure::Usage(format!("{batch} examples do not fall into {parts} micro-batches")));
    }
    let text = readable::bytes(&options.text)?;
    let folder = Folder::new("training", options.keep.as_deref())?;
    let size = Size { layers, hidden, heads, vocabulary: BYTES, positions: sequence };
    let path = gpt2::write(Writer::small(&folder.path), size, Start::Untrained, options.seed)
        .map_err(|error| Failure::unwritten(&folder.path, &error))?;
    let file = model_file::open(&path)?;
    let mut curves = Vec::new();
    for trial in &Trial::ALL {
        curves.push(curve::train(options, &file, trial, say)?);
    }
    let measured = Measured { entropy: entropy(&text), curves };
    if let Some(path) = &options.plot {
        let drawing = plot::svg(plot::Across::STEPS, &panels(&measured));
        written::write(path, drawing.as_bytes())?;
    }
    Ok(Report { text: table(options, &measured), lines: lines(options, &measured) })
}

/// What was measured.
struct Measured {
    /// The entropy of a byte of the text by itself (nats): what is lost by who knows how often each
    /// byte occurs, and no more.
    entropy: f64,
    /// The first is of one rank.
    curves: Vec<Curve>,
}

impl Measured {
    /// For each step, how far a curve is from that of one rank, relative to it.
    fn apart(&self, curve: &Curve) -> Vec<f64> {
        let pairs = curve.losses.iter().zip(&self.curves[0].losses);
        pairs.map(|(loss, first)| (loss - first).abs() / first).collect()
    }
}

/// `- sum p ln p` over the bytes that occur, each a part p of the text.
///
/// Source: Shannon, "A Mathematical Theory of Communication", 1948, section 6.
#[expect(clippy::cast_precision_loss, reason = "bytes of a text are counted")]
fn entropy(text: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    text.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let parts = counts.iter().filter(|&&it| it > 0).map(|&it| f64::from(it) / text.len() as f64);
    -parts.map(|part| part * part.ln()).sum::<f64>()
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(0.0, f64::max)
}

fn described(options: &Training) -> String {
    let Training { layers, hidden, heads, sequence, .. } = options;
    format!("GPT-2 of {layers} layers, hidden {hidden}, {heads} heads, {sequence} bytes")
}

fn table(options: &Training, measured: &Measured) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    line(format!("model      {}, {} parameters", described(options), measured.curves[0].parameters));
    line(format!("text       {}, a byte by itself has {:.3} nats", options.text.display(), measured.entropy));
    for curve in &measured.curves {
        let apart = measured.apart(curve);
        line(format!("\n{}", curve.trial.title));
        if !curve.strategy.is_empty() {
            line(format!("  plan     {}", curve.strategy.join(", ")));
        }
        let losses: Vec<String> = shown(curve).map(|step| format!("{:.4}", curve.losses[step - 1])).collect();
        let steps: Vec<String> = shown(curve).map(|it| it.to_string()).collect();
        line(format!("  loss     {} after steps {}", losses.join(", "), steps.join(", ")));
        line(format!("  apart    {:.1e} of the loss on one rank at most", largest(&apart)));
        let predicted = curve.predicted.map(|it| format!(", {} predicted", quantity::seconds(it)));
        line(format!(
            "  step     {} median{}; {} for all",
            quantity::seconds(median(&curve.seconds)),
            predicted.unwrap_or_default(),
            quantity::seconds(curve.seconds.iter().sum())
        ));
    }
    text
}

/// The steps of a curve that are in the table.
fn shown(curve: &Curve) -> impl Iterator<Item = usize> {
    let last = curve.losses.len();
    SHOWN.into_iter().filter(move |&step| step < last).chain([last])
}

fn lines(options: &Training, measured: &Measured) -> Vec<Value> {
    let line = |curve: &Curve| {
        json!({
            "benchmark": "training",
            "model": described(options),
            "parameters": curve.parameters,
            "text": options.text.display().to_string(),
            "entropy": measured.entropy,
            "trial": curve.trial.title,
            "ranks": curve.trial.mesh.iter().product::<u64>(),
            "strategy": curve.strategy,
            "batch": options.batch,
            "learning_rate": options.lr,
            "warm_up": options.warm_up,
            "seed": options.seed,
            "median_seconds": median(&curve.seconds),
            "predicted_seconds": curve.predicted,
            "largest_relative_difference": largest(&measured.apart(curve)),
            "losses": curve.losses,
        })
    };
    measured.curves.iter().map(line).collect()
}

/// The losses, and below how far they are apart.
fn panels(measured: &Measured) -> [Panel; 2] {
    let strokes = [Stroke::Broad, Stroke::Fine, Stroke::Dashed, Stroke::Dotted];
    let styled = || measured.curves.iter().zip(strokes);
    let level = Line {
        title: format!("entropy of a byte, {:.2}", measured.entropy),
        stroke: Stroke::Level,
        heights: vec![measured.entropy; measured.curves[0].losses.len()],
    };
    let losses = styled().map(|(curve, stroke)| Line {
        title: curve.trial.title.to_owned(),
        stroke,
        heights: curve.losses.clone(),
    });
    let apart = styled().skip(1).map(|(curve, stroke)| Line {
        title: curve.trial.title.to_owned(),
        stroke,
        heights: measured.apart(curve),
    });
    [
        Panel { title: "loss (nats per byte)", scale: Scale::Linear, lines: losses.chain([level]).collect() },
        Panel {
            title: "difference from 1 rank, relative to the loss",
            scale: Scale::Decades,
            lines: apart.collect(),
        },
    ]
}
