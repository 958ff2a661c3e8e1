//! Stated training steps as pinned plans: what plans, simulations and `predict` say of them, beside measurements.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use predict::errors::Errors;
use predict::rows::Priced;

/// A row of measurements.
#[derive(Clone, Debug)]
pub struct Line {
    /// The name of its file.
    pub file: String,
    /// Its id.
    pub row: String,
    /// Who published it.
    pub source: String,
    /// The device.
    pub gpu: String,
    /// Its times, or why there are none.
    pub answer: Result<Times, String>,
}

/// The times of a step (seconds).
#[derive(Clone, Debug)]
pub struct Times {
    /// What the pinned plan expects.
    pub planned: f64,
    /// What its programs take by the clock of the machine; or why they were not run.
    pub simulated: Result<f64, String>,
    /// What `predict` says, with the figures of a framework.
    pub predicted: f64,
    /// What was measured.
    pub measured: f64,
    /// On how many devices it is planned: fewer than were measured, with as much work on each, where equal parts
    /// of states are not there for all.
    pub devices: u64,
    /// What the plan's time is made of.
    pub planned_terms: Vec<(String, f64)>,
    /// What the framework's figures add to it, or take away.
    pub framework_terms: Vec<(String, f64)>,
    /// What that of `predict` is made of.
    pub predicted_terms: Vec<(String, f64)>,
}

impl Times {
    /// What the pinned plan takes with the figures of the framework.
    #[must_use]
    pub fn with_framework(&self) -> f64 {
        self.planned + self.framework_terms.iter().map(|(_, time)| time).sum::<f64>()
    }
}

/// What somebody says that a step takes.
type Said = fn(&Times) -> Option<f64>;

/// Who says how long a step takes.
const SAYERS: [(&str, Said); 4] = [
    ("planned", |it| Some(it.planned)),
    ("simulated", |it| it.simulated.as_ref().ok().copied()),
    ("with the framework", |it| Some(it.with_framework())),
    ("predicted", |it| Some(it.predicted)),
];

/// The errors of the rows of one source, or of all of them: of the plan, the simulation and `predict`.
#[derive(Clone, Debug)]
pub struct Source {
    /// Who published them.
    pub name: String,
    /// Errors by who says it, in the order of [`SAYERS`].
    pub errors: Vec<Option<Errors>>,
    /// How far simulations are from plans at most.
    pub apart: Option<f64>,
}

/// Errors by source, in the order of names; all rows come last.
#[must_use]
pub fn sources(lines: &[Line]) -> Vec<Source> {
    let mut by: BTreeMap<&str, Vec<&Times>> = BTreeMap::new();
    for line in lines {
        if let Ok(times) = &line.answer {
            by.entry(&line.source).or_default().push(times);
        }
    }
    let all: Vec<&Times> = by.values().flatten().copied().collect();
    let named = by.into_iter().map(|(name, times)| source(name, &times));
    named.chain((!all.is_empty()).then(|| source("all", &all))).collect()
}

fn source(name: &str, times: &[&Times]) -> Source {
    let errors = |of: Said| {
        let said = times.iter().filter_map(|it| Some(Priced::new(of(it)?, it.measured)));
        let said: Vec<Priced> = said.collect();
        Errors::of(&said.iter().collect::<Vec<_>>())
    };
    let apart = |it: &&Times| Some((it.simulated.as_ref().ok()? / it.planned - 1.0).abs());
    Source {
        name: name.to_owned(),
        errors: SAYERS.iter().map(|(_, of)| errors(*of)).collect(),
        apart: times.iter().filter_map(apart).max_by(f64::total_cmp),
    }
}

/// Errors by source, and why rows have none.
#[must_use]
pub fn table(lines: &[Line]) -> String {
    let mut text = format!("{:<26} {:>5}", "source", "rows");
    for (name, _) in SAYERS {
        // Writing to a string does not fail.
        let _ = write!(text, " {:>32}", format!("{name}: median, bias"));
    }
    text.push_str("   simulated beside planned\n");
    for Source { name, errors, apart } in sources(lines) {
        let rows = errors[0].as_ref().map_or(0, |it| it.rows);
        let _ = write!(text, "{name:<26} {rows:>5}");
        for error in &errors {
            let said = error.as_ref().map_or_else(String::new, |it| {
                format!("{:.1} %, {:+.1} %", 100.0 * it.median, 100.0 * it.bias)
            });
            let _ = write!(text, " {said:>32}");
        }
        let apart = apart.map_or_else(String::new, |it| format!("{:.1} % at most", 100.0 * it));
        let _ = writeln!(text, "   {apart:>24}");
    }
    for (why, count) in skipped(lines) {
        let _ = writeln!(text, "skipped {count:>4}  {why}");
    }
    text
}

/// Why rows have no times, and how many.
fn skipped(lines: &[Line]) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for why in lines.iter().filter_map(|line| line.answer.as_ref().err()) {
        *reasons.entry(why.as_str()).or_default() += 1;
    }
    reasons
}

const HEAD: &str = "\
# Pinned plans beside measurements

What plans say of published training runs. A row's model is written by our writers, its setup is a plan in
which everything is pinned: axes of the mesh for data, context, tensor and expert parallelism, stages, their
order of work, ZeRO, recomputation, micro-batches. *Planned* is the time that the plan expects,
*simulated* that of its programs by the clock of the machine, *predicted* what `shardloom predict` says with
the figures of the row's framework ([prices beside measurements](price-validation.md)). The page is written by
`shardloom validate --plans --data DIR --report docs/plan-validation.md`; `--json` prints every row with its
terms. An error is |said − measured| / measured.

A plan is of what our programs do, not of what the framework does. *With the framework* adds to it, by name,
what the framework's figures differ by from those of our programs (`cost-models/frameworks/shardloom.json`): the
rate of its kernels of attention in a step, passes that it does not fuse, what it hides or
does not, waiting for the host. Without these terms it is the plan. Where states have no equal parts for all devices,
as FSDP has on 96, the plan is for fewer, with as many examples on each.
";

const FOUND: &str = "
## Where plans and measurements differ, and why

- **Traffic of tensor parallelism is exposed forward in plans**, and mostly hidden in Megatron-Core
  (`tensor-parallel traffic`): backward our programs compute gradients of weights beside it.
- **Products have their rate in steps**, `device.products.in_step` of machine files, 6.5 % below that of the same
  products alone: it is fitted to half of the training rows of all frameworks, and plans and `predict` share it.
- **Attention**: FlashAttention 2 does not reach the rate of a Hopper's own instructions, older Megatron has
  scores in memory, eager FSDP has a rate of its own (`attention`); a plan has the device's best kernel.
- **Sums after the last micro-batch, and gathers of new parameters, are exposed in plans**, where frameworks have
  them beside its backward pass and the next forward pass (`gradient reduction`, `weight gathering`): of GPT 70B on
  512 H100 (`t00144`) 350 and 175 ms of 3.1 s. A setup of one micro-batch gathers ahead and sums behind.
- **Products in 8 bits** have their casts as operations of their own, weights are made narrow in every micro-batch and
  each value has a scale of its own, found just before. NeMo of 2024 (`nemo_docs_24.07`, `nemo_launcher_2024`) has
  scales of steps before and casts weights once in a step: those rows are planned some 25 % too long.
- **Not explained**: `zero_bubble_table4` is too long with its framework's terms. Of GPT 14.6B on 16 A100
  (`t01007`) a step takes 4.64 s, with its framework's attention 4.95, and 4.32 were measured.
";

/// The page of these lines.
#[must_use]
pub fn page(lines: &[Line]) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## By source\n\n| source | rows |");
    for (name, _) in SAYERS {
        // Writing to a string does not fail.
        let _ = write!(text, " {name}: median | bias |");
    }
    text.push_str(" simulated beside planned, at most |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    for Source { name, errors, apart } in sources(lines) {
        let rows = errors[0].as_ref().map_or(0, |it| it.rows);
        let _ = write!(text, "| {name} | {rows} |");
        for error in &errors {
            let said = error.as_ref().map_or_else(
                || " | |".to_owned(),
                |it| format!(" {:.1} % | {:+.1} % |", 100.0 * it.median, 100.0 * it.bias),
            );
            text.push_str(&said);
        }
        let apart = apart.map_or_else(String::new, |it| format!("{:.1} %", 100.0 * it));
        let _ = writeln!(text, " {apart} |");
    }
    text.push_str(FOUND);
    text.push_str(
        "\n## Rows\n\n| row | source | planned on | planned | simulated | with the framework | predicted | measured | planned is | with the framework |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for Line { row, source, gpu, answer, .. } in lines {
        let Ok(times) = answer else { continue };
        let Times { planned, simulated, predicted, measured, devices, .. } = times;
        let with = times.with_framework();
        let with_is = 100.0 * (with / measured - 1.0);
        let simulated = simulated.as_ref().map_or_else(|why| why.clone(), |it| seconds(*it));
        let (planned_is, planned) = (100.0 * (planned / measured - 1.0), seconds(*planned));
        let [with, predicted, measured] = [with, *predicted, *measured].map(seconds);
        let _ = writeln!(
            text,
            "| {row} | {source} | {devices} x {gpu} | {planned} | {simulated} | {with} | {predicted} | {measured} | {planned_is:+.1} % | {with_is:+.1} % |"
        );
    }
    text.push_str("\n## Rows that are not planned\n\n| rows | why |\n|---|---|\n");
    for (why, count) in skipped(lines) {
        let _ = writeln!(text, "| {count} | {} |", why.replace('|', "\\|"));
    }
    text
}

fn seconds(time: f64) -> String {
    format!("{time:.3} s")
}

#[cfg(test)]
mod tests;
