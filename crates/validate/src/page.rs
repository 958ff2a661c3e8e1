//! The page of errors: tables by source, pictures, and what has no price.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use predict::bands::{Band, bands};
use predict::errors::{self, Errors, Source};
use predict::fit::{Half, half};
use predict::framework;
use predict::rows::{Answer, Outcome, Priced};

use crate::goals;
use crate::scatter::{Points, svg};

/// A page and its pictures.
pub struct Page {
    /// Markdown.
    pub text: String,
    /// Names and texts of pictures.
    pub pictures: Vec<(String, String)>,
}

const HEAD: &str = "\
# Prices beside measurements

What the prices of this repository say of published runs, and what was measured. The page is
written by `shardloom validate --data DIR --report docs/price-validation.md`; `--json` prints every
row. An error is |predicted − measured| / measured. Order is Spearman's correlation of ranks in
sweeps of at least 8 rows; the lowest is shown. What plans say of the same runs is on a [page of its
own](plan-validation.md).
";

const NOT_MODELLED: &str = "
## What is not modelled

- Releases of one year differ by up to two times where experts are concerned: rows of one setup in
  `megatron_bridge_2025` and `megatron_bridge_2026` are 6.4 to 11.5 s on one machine, with graphs of kernels
  and without. A framework has one drift a year.
- Which kernel of attention ran is what a row names: `flash` is FlashAttention 2, also inside Transformer
  Engine.
- Clusters of several kinds of nodes take equal examples on every replica.
- Recomputation, offloading and graphs of kernels that a recipe leaves open are taken as none; a
  setup is believed to fit if it does with everything recomputed.
- Groups that share the link between two sockets do not slow each other down: gradient reduction of
  A100-PCIe nodes is priced too low.
- How adapters of low rank are trained is known by their frozen weights only; their own products
  are left out.
- Schedules that are found by a search (`ZB-2p`) are taken as without bubble.
- How a layer's time falls into passes. In `layer_times.csv` every backward pass takes 14 to 18 % less than
  priced, whether of gradients by operands or by weights, and no forward pass so much; forward passes of
  small models take up to 15 % longer. Steps, which are all of them, are right, because the rates that are
  fitted are of steps: what is read and written backward, outside products, is taken as twice that of
  forward, which is more than what an operation of one operand needs (three for two). With three for two in
  its place, or with what each kind of operation reads and writes, and all figures fitted again, backward
  passes by operands are 9 to 18 % too long instead of 16 to 22 %, those by weights as long as before, steps
  that judge 7.47 and 7.51 % off instead of 7.52 %, those of `korthikanti_table5` 4.2 % instead of 4.0 %:
  neither is taken.
- Messages between stages as a rank sees them: the six in `layer_times.csv`, 25 to 28 MB inside a node, take
  0.53 to 0.76 ms, which is 46 GB/s at most, where alone they have five times that rate. Without these six
  the 18 other rows of that source are 15 % off on average, not 32 %.
- Stragglers, checkpoints, restarts and data that come late.
";

/// From which mean error on a source of training steps has its cause on the page.
const LARGE: f64 = 0.15;

/// Why training steps of a source are far off.
const CAUSES: [(&str, &str); 3] = [
    (
        "mlperf_lora_v4.0",
        "steps of two thirds of a second on 64 and more devices, where the products of adapters, which are left \
         out, are as many launches as the layer has; an L40S node has PCIe links alone, over which both tensor \
         and context parallelism go: groups that share the link between its sockets do not slow each other down",
    ),
    (
        "mtnlg_530b",
        "35 stages of DeepSpeed, whose ranks each send the whole value and wait for it at every micro-batch, \
         while here a round trip is paid once in as many micro-batches as there are stages",
    ),
    (
        "deepseek_v3_report",
        "a schedule of its own, DualPipe, which hides the traffic of experts behind other micro-batches",
    ),
];

/// The files that have pictures: name, title, unit.
const PICTURES: [(&str, &str, &str); 4] = [
    ("training_throughput.csv", "time of a training step", "s"),
    ("memory_rows.csv", "memory of a rank", "the row's unit"),
    ("collective_rows.csv", "collective operations", "the row's unit"),
    ("gemm_rows.csv", "matrix products and passes over memory", "us"),
];

/// Why rows have no price, and how many.
#[must_use]
pub fn skipped(outcomes: &[Outcome]) -> Vec<(String, usize)> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in outcomes {
        if let Answer::Skipped(why) = &outcome.answer {
            *reasons.entry(format!("{}: {why}", outcome.source)).or_default() += 1;
        }
    }
    reasons.into_iter().collect()
}

/// The page of these outcomes.
#[must_use]
pub fn page(outcomes: &[Outcome]) -> Page {
    let mut text = HEAD.to_owned();
    text.push_str(&goals::table(outcomes));
    let mut pictures = Vec::new();
    let mut by_file: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for source in errors::sources(outcomes) {
        by_file.entry(source.file.clone()).or_default().push(source);
    }
    for (file, sources) in &by_file {
        // Writing to a string does not fail.
        let _ = writeln!(text, "\n## {file}\n");
        text.push_str(&table(sources));
        if file == "training_throughput.csv" {
            text.push_str(&causes(sources));
            text.push_str(&halves(outcomes, file));
        }
        if file == "collective_rows.csv" {
            text.push_str(&sizes(outcomes));
        }
        if let Some((_, title, unit)) = PICTURES.iter().find(|(name, ..)| name == file) {
            let name = format!("prices-{}.svg", file.trim_end_matches(".csv").replace('_', "-"));
            let _ = writeln!(text, "\n![predicted over measured: {title}](images/{name})");
            pictures.push((name, svg(title, unit, &points(outcomes, file))));
        }
    }
    text.push_str(NOT_MODELLED);
    text.push_str("\n## What has no price\n\n| rows | why |\n|---|---|\n");
    for (why, count) in skipped(outcomes) {
        let _ = writeln!(text, "| {count} | {} |", why.replace('|', "\\|"));
    }
    Page { text, pictures }
}

fn table(sources: &[Source]) -> String {
    let mut text =
        "| source | rows | median | mean | worst | bias | order |\n|---|---|---|---|---|---|---|\n"
            .to_owned();
    for Source { name, apart, errors, sweeps, .. } in sources {
        let apart = apart.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        let order = sweeps.iter().map(|(_, order)| *order).reduce(f64::min);
        let order = order.map_or_else(String::new, |order| format!("{order:.3}"));
        text.push_str(&line(&format!("{name}{apart}"), errors, &order));
    }
    text
}

/// Sources with a large mean error, and why.
fn causes(sources: &[Source]) -> String {
    let large: Vec<&Source> = sources.iter().filter(|source| source.errors.mean > LARGE).collect();
    if large.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\nSources above {:.0} %, and why:\n\n| source | mean | cause |\n|---|---|---|\n",
        100.0 * LARGE
    );
    for Source { name, errors, .. } in large {
        let cause = CAUSES.iter().find(|(source, _)| source == name);
        let cause = cause.map_or("not known", |(_, cause)| cause);
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {name} | {:.1} % | {cause} |", 100.0 * errors.mean);
    }
    text
}

fn line(name: &str, errors: &Errors, order: &str) -> String {
    let Errors { rows, median, mean, worst, bias } = errors;
    format!(
        "| {name} | {rows} | {:.1} % | {:.1} % | {:.1} % | {:+.1} % | {order} |\n",
        100.0 * median,
        100.0 * mean,
        100.0 * worst,
        100.0 * bias
    )
}

/// Errors of what counts, of the half that figures were fitted to and of the other.
fn halves(outcomes: &[Outcome], file: &str) -> String {
    let of = |wanted: Option<Half>| {
        let counts = |(outcome, row): &(&Outcome, &Priced)| {
            outcome.file == file && row.apart.is_none() && wanted.is_none_or(|it| half(&outcome.row_id) == it)
        };
        let rows: Vec<&Priced> = errors::priced(outcomes).filter(counts).map(|(_, row)| row).collect();
        Errors::of(&rows)
    };
    let lines = [
        ("all that count", of(None)),
        ("those that figures were fitted to", of(Some(Half::Fitted))),
        ("the others", of(Some(Half::Judging))),
    ];
    let fitted = framework::fitted().unwrap_or_default();
    let mut text = format!(
        "\n{fitted} figures of frameworks are fitted, on the half of the rows that a hash of their ids selects: \
         `docs/ledger/framework-fit.jsonl`. Everything else is stated with a source.\n"
    );
    text.push_str(
        "\n| rows of all sources | rows | median | mean | worst | bias | |\n|---|---|---|---|---|---|---|\n",
    );
    for (name, errors) in lines {
        if let Some(errors) = errors {
            text.push_str(&self::line(name, &errors, ""));
        }
    }
    text
}

/// Errors of what is exchanged, by its size.
fn sizes(outcomes: &[Outcome]) -> String {
    let bands = bands(outcomes);
    if bands.is_empty() {
        return String::new();
    }
    let mut text = "\nBy the size of what is exchanged. The last column is the mean error of the nearest times \
                    that do not shrink with the size, one for each machine, operation and number of ranks: \
                    no price can be nearer. It is large where rows of one setup contradict each other, as \
                    those of `vidur` below 1 MiB do (2 GPUs: 10 KiB in 46 µs, 258 KiB in 27 µs, 514 KiB in \
                    55 µs): probably the wait for the rank that was started last is in them.\n\n\
                    | size | rows | median | mean | worst | bias | least mean |\n|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Band { name, errors, least } in bands {
        let least = least.map_or_else(String::new, |least| format!("{:.1} %", 100.0 * least));
        text.push_str(&line(name, &errors, &least));
    }
    text
}

fn points(outcomes: &[Outcome], file: &str) -> Vec<Points> {
    let mut groups: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (outcome, row) in errors::priced(outcomes).filter(|(outcome, _)| outcome.file == file) {
        groups.entry(&outcome.source).or_default().push((row.measured, row.predicted));
    }
    groups.into_iter().map(|(title, pairs)| Points { title: title.to_owned(), pairs }).collect()
}

#[cfg(test)]
mod tests;
