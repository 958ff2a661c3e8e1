//! `schedule`: which schedule is looked at, and how long its tasks take.

use std::path::PathBuf;

use clap::Args;
use schedule::{Crossing, Kind};

/// `schedule`.
#[derive(Args, Clone, Debug)]
pub struct ScheduleArguments {
    /// The schedule: gpipe, 1f1b, 1f1b-delayed, eager-1f1b, eager-1f1b-delayed, interleaved,
    /// interleaved-delayed, zb-h1, zb-h2
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "NAME")]
    pub name: Option<Kind>,
    /// File of your own schedule instead: a line for each pipeline rank, a word for each task
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Number of virtual stages, over all pipeline ranks
    #[arg(long, value_name = "N", required_unless_present = "file")]
    pub stages: Option<usize>,
    /// Number of micro-batches
    #[arg(long, value_name = "N", required_unless_present = "file")]
    pub micro_batches: Option<usize>,
    /// Number of virtual stages on each pipeline rank; the default is 2 if interleaved, else 1
    #[arg(long, value_name = "N", conflicts_with = "file")]
    pub chunks: Option<usize>,
    /// Time of a forward task (F), one for all stages or one for each
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "1")]
    pub forward: Vec<f64>,
    /// Time of the gradients of a stage's inputs (B), one for all stages or one for each
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "1")]
    pub backward: Vec<f64>,
    /// Time of the gradients of a stage's weights (W), one for all stages or one for each; part of the
    /// backward task unless the schedule separates them
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "1")]
    pub weight: Vec<f64>,
    /// Time of a message from a stage to the next, one for all or one for each
    #[arg(long, value_name = "TIME,..", value_delimiter = ',', default_value = "0")]
    pub message: Vec<f64>,
    /// Time to transfer a boundary tensor that skips stages, and its gradient; may be repeated
    #[arg(long = "crossing", value_name = "FROM-TO=TIME", value_parser = crossing)]
    pub crossings: Vec<Crossing>,
    /// Block a stage while it sends
    #[arg(long)]
    pub blocking: bool,
    /// Maximum width of the chart (columns)
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub width: usize,
    /// Write an SVG picture too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

pub(super) const HELP: &str = "\
Examples:
  shardloom schedule 1f1b --stages 4 --micro-batches 8
  shardloom schedule interleaved --stages 8 --chunks 2 --micro-batches 8 --message 0.25
  shardloom schedule zb-h1 --stages 4 --micro-batches 8 --weight 0.5 --svg zb-h1.svg
  shardloom schedule --file own.txt --forward 1,2,1 --crossing 0-2=0.5

A file has a line for each pipeline rank and a word for each task: F3 is the forward task of
micro-batch 3, B3 the backward task, W3 gradients of weights where they are apart, and F3.1 is on
the group's chunk 1. Chunk c of group g of G is stage c G + g.";

/// `0-3=0.5`.
fn crossing(text: &str) -> Result<Crossing, String> {
    let parts = text.split_once('=').and_then(|(ends, time)| Some((ends.split_once('-')?, time)));
    let read = parts.and_then(|((from, to), time)| {
        let time: f64 = time.parse().ok()?;
        Some(Crossing { from: from.parse().ok()?, to: to.parse().ok()?, forward: time, backward: time })
    });
    read.ok_or_else(|| "expected two stages and a time, such as `0-3=0.5`".to_owned())
}
