//! Laws of measurements.
//!
//! First the three numbers of the roofline are sought, one after another in ever smaller steps, so that the
//! mean of |ln (predicted / measured)| is least; then the terms of the factor ([`super::spline`]).

use std::collections::BTreeMap;

use cost_models::known::Known;
use cost_models::machine::Machine;
use cost_models::operations::{Demand, Law, sizes};
use cost_models::units::{BytesPerSecond, FlopsPerSecond, Seconds, exact};

use super::errors::{Errors, errors};
use super::{Line, Machines, Measured, spline};

/// A law that was fitted, and how far it is from what it was fitted to and from the other lines.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The device, as files name it.
    pub gpu: String,
    /// The name of the law.
    pub name: String,
    /// The line of the ledger that its numbers cite.
    pub line: usize,
    /// The law.
    pub law: Law,
    /// Errors of the lines that it was fitted to.
    pub fitted: Errors,
    /// Errors of the other lines; `None` if there are none.
    pub judged: Option<Errors>,
}

/// Lines to fit a law to, at least.
const LEAST_LINES: usize = 12;

/// Lines that a law is fitted to, at most: every so many of them are taken.
const MOST_LINES: usize = 4000;

/// Lines for each term of a factor.
const LINES_OF_TERM: usize = 12;

/// Terms of a factor, at most.
const MOST_TERMS: usize = 90;

/// The logarithm of an error counts to this, where rooflines are sought.
const FURTHEST: f64 = 1.5;

/// By how much the numbers of a roofline are changed, in turn.
const STEPS: [f64; 6] = [4.0, 2.0, 1.4, 1.15, 1.05, 1.02];

/// The laws of all lines, by device and name; `source` is what machine files cite.
#[must_use]
pub fn fits(lines: &[Line], machines: &Machines, source: &str) -> Vec<Fit> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Measured>> = BTreeMap::new();
    for line in lines {
        if let (Ok(measured), Ok(_)) = (&line.measured, machines.of(&line.gpu)) {
            groups.entry((&line.gpu, &measured.law)).or_default().push(measured);
        }
    }
    let groups: Vec<_> = groups.into_iter().filter(|(_, group)| is_enough(group)).collect();
    let fit = |(line, ((gpu, name), group)): (usize, ((&str, &str), Vec<&Measured>))| {
        fitted(machines.of(gpu).ok()?, (gpu, name, line + 1), &group, source)
    };
    groups.into_iter().enumerate().filter_map(fit).collect()
}

/// Whether there are enough lines to fit a law to.
fn is_enough(group: &[&Measured]) -> bool {
    group.iter().filter(|it| it.fitted).count() >= LEAST_LINES
}

fn fitted(
    machine: &Machine,
    (gpu, name, line): (&str, &str, usize),
    group: &[&Measured],
    source: &str,
) -> Option<Fit> {
    let demanded = |fitted: bool| -> Vec<(Demand, f64)> {
        let these = group.iter().filter(|it| it.fitted == fitted);
        these.map(|it| (machine.device.demand(&it.operation), it.time)).collect()
    };
    let (own, others) = (demanded(true), demanded(false));
    let source = format!("{source}, line {line}: {name}");
    let law = law(&own, &source)?;
    let of =
        |these: &[(Demand, f64)]| errors(these.iter().map(|(demand, time)| law.time(demand).0 / time - 1.0));
    let (fitted, judged) = (of(&own)?, of(&others));
    Some(Fit { gpu: gpu.to_owned(), name: name.to_owned(), line, law, fitted, judged })
}

/// The law that is nearest to measured times.
fn law(measured: &[(Demand, f64)], source: &str) -> Option<Law> {
    let every = measured.len().div_ceil(MOST_LINES);
    let some: Vec<&(Demand, f64)> = measured.iter().step_by(every).collect();
    let mut law = roofline(&some, source)?;
    let rows: Vec<Vec<f64>> = some.iter().map(|(demand, _)| sizes(demand, law.roofline(demand))).collect();
    let targets: Vec<f64> = some.iter().map(|(demand, time)| (time / law.roofline(demand).0).ln()).collect();
    law.ranges = ranges(&rows);
    law.terms = spline::terms(&rows, &targets, (some.len() / LINES_OF_TERM).min(MOST_TERMS));
    Some(law)
}

/// The least and the largest of each size.
fn ranges(rows: &[Vec<f64>]) -> Vec<[f64; 2]> {
    let of = |place: usize| {
        let values = rows.iter().map(|row| row[place]);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::NEG_INFINITY, f64::max);
        [(least * 1e3).floor() / 1e3, (most * 1e3).ceil() / 1e3]
    };
    (0..rows.first().map_or(0, Vec::len)).map(of).collect()
}

/// The roofline that is nearest to measured times, without a factor.
fn roofline(some: &[&(Demand, f64)], source: &str) -> Option<Law> {
    let mut times: Vec<f64> = some.iter().map(|(_, time)| *time).collect();
    times.sort_by(f64::total_cmp);
    let most = |of: fn(&Demand) -> f64| some.iter().map(|(it, time)| of(it) / time).fold(0.0, f64::max);
    let works = most(|demand| demand.work.0);
    let traffic = most(|demand| exact(demand.traffic.0));
    let mut numbers = [times[times.len() / 20], works, traffic];
    let made = |[start, rate, bandwidth]: [f64; 3]| {
        let rate = if rate > 0.0 { Some(Known::new(FlopsPerSecond(rate), source)?) } else { None };
        Some(Law {
            start: Known::new(Seconds(start), source)?,
            rate,
            bandwidth: Known::new(BytesPerSecond(bandwidth), source)?,
            ranges: Vec::new(),
            terms: Vec::new(),
        })
    };
    let off = |numbers: [f64; 3]| {
        let Some(law) = made(numbers) else { return f64::INFINITY };
        let of = |(demand, time): &&(Demand, f64)| (law.roofline(demand).0 / time).ln().abs().min(FURTHEST);
        some.iter().map(of).sum::<f64>()
    };
    let mut least = off(numbers);
    for step in STEPS {
        let mut better = true;
        while better {
            better = false;
            for (place, by) in
                [(0, step), (0, 1.0 / step), (1, step), (1, 1.0 / step), (2, step), (2, 1.0 / step)]
            {
                let mut next = numbers;
                next[place] *= by;
                let found = off(next);
                if found < least * (1.0 - 1e-6) {
                    (numbers, least, better) = (next, found, true);
                }
            }
        }
    }
    made(numbers.map(|it| format!("{it:.3e}").parse().unwrap_or(it)))
}
