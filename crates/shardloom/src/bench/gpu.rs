//! `bench gpu`: what kernels, products, ranks and steps of training take on the first GPU of this machine, and
//! whether what they compute is right.

mod goal; // what figures are meant to be
mod equal; // kernels against processors
mod rates; // single things
mod ranks; // plans on several ranks against one
mod steps; // steps of training, beside those of PyTorch
mod torch; // the same steps by PyTorch
mod decode; // tokens one after another

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cost_models::machine::Machine;
use device::{Bench, Facts};
use serde_json::{Map, Value, json};

use goal::{Bound, Goal, Judged};

use super::{Report, append};
use crate::arguments::{DeviceArguments, RunDevice};
use crate::failure::Failure;
use crate::measure::gpu as measured;

/// `bench gpu`.
#[derive(Args, Clone, Debug)]
pub struct OnGpu {
    /// Measure only these
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<Part>,
    /// Take everything so small that it is soon done: to see that it works, its figures mean nothing
    #[arg(long)]
    pub quick: bool,
    /// The shipped machine, or the file, whose prices are beside what is measured; else that of the GPU's name
    #[arg(long, value_name = "MACHINE")]
    pub like: Option<String>,
    /// Run these models on several ranks too: the `model.onnx` of each folder in this one
    #[arg(long, value_name = "DIR")]
    pub models: Option<PathBuf>,
    /// The Python that has the package torch
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    pub python: String,
    /// Look for the libraries of CUDA in this folder first
    #[arg(long, value_name = "DIR")]
    pub libraries: Option<PathBuf>,
    /// Keep compiled kernels and the algorithms of products here, not in the user's cache
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Whether kernels make what processors make
    Equal,
    /// Copies, element-wise kernels, normalisations, attention, products
    Rates,
    /// Whether plans on several ranks make what one rank makes
    Ranks,
    /// Steps of training, beside those of PyTorch
    Steps,
    /// Tokens one after another, beside the memory's bandwidth
    Decode,
}

/// One thing that was measured.
#[derive(Clone, Debug)]
struct Row {
    part: &'static str,
    what: String,
    /// Each with its name, for people and for programs.
    figures: Vec<(&'static str, String, Value)>,
    /// Whether it is as the reference has it, if there is one.
    equal: Option<bool>,
    goals: Vec<Goal>,
}

/// How far a price may be from what is measured, as a part of it.
const PRICED: f64 = 0.08;

/// What the rows of a part are held against.
const BESIDE: [(&str, &str); 5] = [
    (
        "kernels against processors",
        "the same operation on a processor; all have to be equal, and so in `compute-sanitizer shardloom bench \
         gpu --only equal,ranks --quick`, which has to find nothing",
    ),
    ("rates", "the largest copy of this table, and the prices of the machine"),
    (
        "ranks on the GPU against one on a processor",
        "outputs of one rank on a processor, and those that lie beside a model, in the worst of three steps; all have \
         to be equal",
    ),
    (
        "steps of training",
        "the price of the plan by the machine, and the same steps by PyTorch in a process of its own: at least as \
         fast as eager, and 0.95 of compiled or better",
    ),
    (
        "tokens one after another",
        "the bandwidth of the memory that the machine says, by the least that has to be read for a token: all \
         weights and the whole cache, once",
    ),
];

/// What the rows of a part are held against.
fn beside(part: &str) -> &'static str {
    BESIDE.iter().find(|it| it.0 == part).map_or("", |it| it.1)
}

/// What parts need.
struct Given<'a> {
    options: &'a OnGpu,
    on: DeviceArguments,
    /// Whose prices are beside what is measured.
    machine: Machine,
    say: &'a dyn Fn(String),
}

/// Measures; refuses where something is not as its reference.
pub(crate) fn measure(options: &OnGpu, say: &dyn Fn(String)) -> Result<Report, Failure> {
    let OnGpu { libraries, cache, .. } = options;
    let on = DeviceArguments { device: RunDevice::Cuda, libraries: libraries.clone(), cache: cache.clone() };
    crate::gpu::present(&on, "bench gpu")?;
    let mut bench = Bench::open(&crate::gpu::settings(&on)).map_err(measured::failure)?;
    let facts = bench.facts().clone();
    let machine = measured::like(options.like.as_deref(), &facts)?;
    let given = Given { options, on, machine, say };
    let wanted = |part: Part| options.only.is_empty() || options.only.contains(&part);
    let mut rows = Vec::new();
    if wanted(Part::Equal) {
        rows.extend(equal::rows(&given, &mut bench)?);
    }
    if wanted(Part::Rates) {
        rows.extend(rates::rows(&given, &mut bench)?);
    }
    let identity = measured::identity(&bench);
    // Ranks have the GPU's memory to themselves.
    drop(bench);
    if wanted(Part::Ranks) {
        rows.extend(ranks::rows(&given)?);
    }
    if wanted(Part::Steps) {
        rows.extend(steps::rows(&given));
    }
    if wanted(Part::Decode) {
        rows.extend(decode::rows(&given)?);
    }
    let judged = if options.quick { Judged::No } else { Judged::Yes };
    let lines: Vec<Value> = rows.iter().map(|row| row.line(&facts, &identity, judged)).collect();
    let report = Report { text: table(&identity, &rows, judged), lines };
    if let Some(path) = &options.ledger {
        append(path, &report.lines)?;
    }
    let wrong: Vec<&str> =
        rows.iter().filter(|it| it.equal == Some(false)).map(|it| it.what.as_str()).collect();
    if wrong.is_empty() {
        return Ok(report);
    }
    Err(Failure::Input(format!("not as the reference: {}\n{}", wrong.join("; "), report.text)))
}

impl Row {
    fn new(part: &'static str, what: impl Into<String>) -> Self {
        Self { part, what: what.into(), figures: Vec::new(), equal: None, goals: Vec::new() }
    }

    /// With a figure.
    fn with(mut self, name: &'static str, shown: impl Into<String>, value: impl Into<Value>) -> Self {
        self.figures.push((name, shown.into(), value.into()));
        self
    }

    /// With a time (seconds).
    fn taking(self, name: &'static str, seconds: f64) -> Self {
        self.with(name, crate::quantity::seconds(seconds), seconds)
    }

    /// With a figure that is meant to be on one side of a number.
    fn wanting(mut self, what: &'static str, found: f64, bound: Bound) -> Self {
        self.goals.push(Goal::new(what, found, bound));
        self
    }

    /// With what it takes by the prices of the machine, beside what it took (seconds).
    fn priced(self, predicted: f64, seconds: f64) -> Self {
        let part = predicted / seconds;
        self.taking("by prices", predicted).with("by prices/took", format!("{part:.2}"), part).wanting(
            "how far the price is from it",
            (part - 1.0).abs(),
            Bound::Most(PRICED),
        )
    }

    /// With how far results are from the reference, and how far they may be, as parts of the largest number.
    fn apart(mut self, apart: f64, most: f64) -> Self {
        self.equal = Some(apart <= most);
        self.with("apart", format!("{apart:.1e} of {most:.0e} at most"), apart)
    }

    /// Nothing was measured, and why.
    fn left_out(self, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        self.with("left out", why.clone(), why)
    }

    fn line(&self, facts: &Facts, identity: &str, judged: Judged) -> Value {
        let mut line = json!({
            "benchmark": "gpu",
            "gpu": facts.name,
            "libraries": identity,
            "quick": judged == Judged::No,
            "part": self.part,
            "what": self.what,
            "equal": self.equal,
            "beside": beside(self.part),
            "goals": self.goals.iter().map(|it| it.json(judged)).collect::<Vec<_>>(),
        });
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, _, value)| (name.replace(' ', "_"), value.clone())).collect();
        line["figures"] = Value::Object(figures);
        line
    }
}

fn table(identity: &str, rows: &[Row], judged: Judged) -> String {
    let mut text = format!("{identity}\n");
    if judged == Judged::No {
        text.push_str("everything is small: these figures mean nothing\n");
    }
    let longest = rows.iter().map(|row| row.what.len()).max().unwrap_or(0);
    let mut part = "";
    for row in rows {
        if row.part != part {
            part = row.part;
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n{part}\n  beside {}", beside(part));
        }
        let figures: Vec<String> =
            row.figures.iter().map(|(name, shown, _)| format!("{name} {shown}")).collect();
        let right = match row.equal {
            Some(true) => "equal",
            Some(false) => "NOT EQUAL",
            None => "",
        };
        let _ = writeln!(text, "  {:<longest$}  {right:<9}  {}", row.what, figures.join(", "));
        for goal in &row.goals {
            let _ = writeln!(text, "  {:<longest$}  {:<9}  {}", "", "", goal.shown(judged));
        }
    }
    text
}

#[cfg(test)]
mod tests;
