//! `bench resharding`: what bringing values from mesh to mesh takes, by each strategy.
//!
//! Times are by the clock of `reshard`, in multiples of what the whole value takes over one
//! adapter. They depend on no machine: only on what its links are to each other.

mod cases; // what is brought from where to where

use std::fmt::Write as _;

use clap::Args;
use cost_models::units::{BytesPerSecond, Seconds, exact};
use files::{Failure, Say};
use planner_ir::{DType, Type};
use reshard::{Choice, Network, Order, Policy, Resharding, Strategy, reshard, simulate};
use serde_json::{Value, json};

use super::Report;
use cases::{CASES, Case};

/// `bench resharding`.
#[derive(Args, Clone, Debug)]
pub struct Resharded {
    /// The most chunks of a broadcast
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096), value_name = "N")]
    pub chunks: u64,
    /// Speed of the links inside a node, as a multiple of its adapter's
    #[arg(long, default_value_t = 1e9, value_parser = above_zero, value_name = "RATIO")]
    pub inside: f64,
    /// Latency of a message, as a part of the time of the whole tensor over an adapter
    #[arg(long, default_value_t = 0.0, value_parser = zero_or_more, value_name = "PART")]
    pub latency: f64,
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|it: &f64| it.is_finite()).ok_or_else(|| "not a number".to_owned())
}

fn above_zero(text: &str) -> Result<f64, String> {
    number(text).and_then(|it| if it > 0.0 { Ok(it) } else { Err("not above 0".to_owned()) })
}

fn zero_or_more(text: &str) -> Result<f64, String> {
    number(text).and_then(|it| if it >= 0.0 { Ok(it) } else { Err("below 0".to_owned()) })
}

/// What each case takes by each strategy, as text for people and as lines for programs.
pub(crate) fn measure(options: &Resharded, say: &Say<'_>) -> Result<Report, Failure> {
    let mut lines = Vec::new();
    for case in &CASES {
        say(case.name.to_owned().into());
        lines.push(of_case(case, options)?);
    }
    Ok(Report { text: table(&lines), lines })
}

fn of_case(case: &Case, options: &Resharded) -> Result<Value, Failure> {
    let type_ = Type::new(DType::I32, case.shape);
    let (from, to) = case.sides();
    // A rate at which the whole value takes a second over an adapter.
    let network = Network {
        between: BytesPerSecond(exact(type_.bytes())),
        inside: BytesPerSecond(options.inside * exact(type_.bytes())),
        latency: Seconds(options.latency),
    };
    let bring = |strategy: Choice, order: Order| -> Result<(Resharding, f64), Failure> {
        let policy = Policy { strategy, order, most_chunks: options.chunks };
        let found = reshard(&type_, &from, &to, &network, &policy)
            .map_err(|error| Failure::Usage(format!("{}: {error}", case.name)))?;
        let end = simulate(&found.messages, &from, &to, &network).end;
        Ok((found, end.0))
    };
    let mut times = serde_json::Map::new();
    for strategy in Strategy::ALL {
        let (_, time) = bring(Choice::Only(strategy), Order::Scheduled)?;
        times.insert(strategy.name().to_owned(), time.into());
    }
    let (found, broadcast) = bring(Choice::Only(Strategy::Broadcast), Order::Scheduled)?;
    let (_, in_order) = bring(Choice::Only(Strategy::Broadcast), Order::Listed)?;
    let (_, naive) = bring(Choice::Only(Strategy::SendReceive), Order::Listed)?;
    let (_, cheapest) = bring(Choice::Cheapest, Order::Scheduled)?;
    let single = times[Strategy::SendReceive.name()].as_f64().unwrap_or(f64::NAN);
    Ok(json!({
        "benchmark": "resharding",
        "case": case.name,
        "shape": case.shape,
        "from": case.from.text(),
        "to": case.to.text(),
        "chunks": options.chunks,
        "unit_tasks": found.tasks.len(),
        "messages": found.messages.len(),
        "bound": exact(found.schedule.bound) / exact(type_.bytes()),
        "meets_bound": found.schedule.meets_bound(),
        "times": times,
        "broadcast_in_order": in_order,
        "naive": naive,
        "cheapest": cheapest,
        "gain_over_send_receive": single / broadcast,
        "gain_over_order": in_order / broadcast,
        "gain_over_naive": naive / broadcast,
    }))
}

/// The lines as a table.
fn table(lines: &[Value]) -> String {
    let head = [
        "case",
        "from",
        "to",
        "unit tasks",
        "bound",
        "send/receive",
        "local all-gather",
        "global all-gather",
        "broadcast",
        "in order",
        "naive",
        "over send/receive",
        "over order",
        "over naive",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for line in lines {
        let text = |name: &str| line[name].as_str().unwrap_or("").to_owned();
        let time = |value: &Value| format!("{:.3}", value.as_f64().unwrap_or(f64::NAN));
        let gain = |name: &str| format!("{:.2} x", line[name].as_f64().unwrap_or(f64::NAN));
        let mut row = vec![text("case"), text("from"), text("to"), line["unit_tasks"].to_string()];
        row.push(time(&line["bound"]));
        row.extend(Strategy::ALL.iter().map(|strategy| time(&line["times"][strategy.name()])));
        row.extend(["broadcast_in_order", "naive"].map(|name| time(&line[name])));
        row.extend(["gain_over_send_receive", "gain_over_order", "gain_over_naive"].map(gain));
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for (place, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string does not fail.
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if place == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}
