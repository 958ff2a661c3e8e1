//! Errors by device, operation and type of elements.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Line, Priced};

/// How far predictions are from measurements: |predicted − measured| / measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// How many there are.
    pub rows: usize,
    /// Half are below this.
    pub median: f64,
    /// Nine of ten are below this.
    pub tenth: f64,
}

/// The lines of one device, operation and type of elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The device.
    pub gpu: String,
    /// The kernel; the name of the file for lines that have none.
    pub kernel: String,
    /// The type of elements.
    pub format: String,
    /// Errors of lines that laws were fitted to.
    pub fitted: Option<Errors>,
    /// Errors of the other lines.
    pub judged: Option<Errors>,
    /// How many have no price.
    pub skipped: usize,
}

/// Errors of these deviations, `None` if there are none.
pub(super) fn errors(deviations: impl Iterator<Item = f64>) -> Option<Errors> {
    let mut all: Vec<f64> = deviations.map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    let part = |of_ten: usize| all.get((all.len() * of_ten / 10).min(all.len().saturating_sub(1))).copied();
    Some(Errors { rows: all.len(), median: part(5)?, tenth: part(9)? })
}

/// The groups of these lines, with what was found of each, in order.
#[must_use]
pub fn groups(lines: &[(Line, Result<Priced, String>)]) -> Vec<Group> {
    let mut by: BTreeMap<(&str, &str, &str), [Vec<f64>; 2]> = BTreeMap::new();
    let mut skipped: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for (line, answer) in lines {
        let kernel = line.measured.as_ref().map_or(line.file.as_str(), |it| &it.kernel);
        let key = (kernel, line.gpu.as_str(), line.format.as_str());
        let deviations = by.entry(key).or_default();
        match (answer, &line.measured) {
            (Ok(priced), Ok(measured)) => {
                deviations[usize::from(!measured.fitted)].push(priced.predicted / priced.measured - 1.0);
            }
            _ => *skipped.entry(key).or_default() += 1,
        }
    }
    let group = |((kernel, gpu, format), [fitted, judged]): ((&str, &str, &str), [Vec<f64>; 2])| Group {
        gpu: gpu.to_owned(),
        kernel: kernel.to_owned(),
        format: format.to_owned(),
        fitted: errors(fitted.into_iter()),
        judged: errors(judged.into_iter()),
        skipped: skipped.get(&(kernel, gpu, format)).copied().unwrap_or_default(),
    };
    by.into_iter().map(group).collect()
}

/// Whether a group is as near as is asked for.
fn is_near(group: &Group) -> bool {
    group.judged.is_some_and(|it| it.median <= MEDIAN && it.tenth <= TENTH)
}

/// What is asked of the median error of a group, and of the tenth of its lines that are furthest off.
const MEDIAN: f64 = 0.08;
const TENTH: f64 = 0.25;

/// Errors as text.
#[must_use]
pub fn table(groups: &[Group]) -> String {
    let mut text = format!(
        "{:<64} {:<20} {:<17} {:>7} {:>7} {:>7} {:>7} {:>7}\n",
        "operation", "device", "type", "rows", "median", "p90", "others", "skipped"
    );
    for group in groups {
        let all = [group.fitted, group.judged];
        let rows = |it: Option<Errors>| it.map_or(0, |it| it.rows);
        let [median, tenth] = said(group.judged.or(group.fitted));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<64} {:<20} {:<17} {:>7} {median:>7} {tenth:>7} {:>7} {:>7}{}",
            group.kernel,
            group.gpu,
            group.format,
            rows(all[1]),
            rows(all[0]),
            group.skipped,
            if group.judged.is_some() && !is_near(group) { "  *" } else { "" }
        );
    }
    text.push_str(&verdict(groups));
    text
}

fn said(errors: Option<Errors>) -> [String; 2] {
    errors.map_or_else(Default::default, |it| [it.median, it.tenth].map(|it| format!("{:.1} %", 100.0 * it)))
}

fn verdict(groups: &[Group]) -> String {
    let judged = groups.iter().filter(|it| it.judged.is_some());
    let (all, near) = (judged.clone().count(), judged.filter(|it| is_near(it)).count());
    format!(
        "{near} of {all} groups have a median error of at most {:.0} % and nine of ten lines within {:.0} %\n",
        100.0 * MEDIAN,
        100.0 * TENTH
    )
}

const HEAD: &str = "\
# Costs of single operations beside measurements

What the laws of machine files say of measured times of single operations, and what was measured. The page is
written by `shardloom validate --ops DIR --report docs/operation-validation.md`; `--json` prints every line.
An error is |predicted − measured| / measured; p90 is what nine of ten lines are within. Laws are fitted to
three quarters of the lines, which a hash of the line selects; the errors are those of the other lines. Groups
with a star miss what is asked for: a median of 8 % and a p90 of 25 %.

The measurements are medians over the frameworks that have a kernel for an operation, whose times on one shape
differ by 11 to 25 % in the median.

";

/// The page of errors.
#[must_use]
pub fn page(groups: &[Group]) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&verdict(groups));
    let mut kernel = "";
    for group in groups {
        if group.kernel != kernel {
            kernel = &group.kernel;
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "\n## {kernel}\n\n| device | type | rows | median | p90 | fitted to | median | p90 | skipped | |\n\
                 |---|---|---|---|---|---|---|---|---|---|"
            );
        }
        let rows = |it: Option<Errors>| it.map_or(0, |it| it.rows);
        let [[median, tenth], [own_median, own_tenth]] = [said(group.judged), said(group.fitted)];
        let star = if group.judged.is_some() && !is_near(group) { "*" } else { "" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {median} | {tenth} | {} | {own_median} | {own_tenth} | {} | {star} |",
            group.gpu,
            group.format,
            rows(group.judged),
            rows(group.fitted),
            group.skipped
        );
    }
    text
}
