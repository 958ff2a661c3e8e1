//! What prices are asked for, and what they give: the first table of the page.

use predict::errors::{self, Errors, SWEEP, Source};
use predict::rows::{Answer, Outcome, Priced};

/// A goal, what was found, and whether that is enough.
struct Goal {
    what: String,
    found: String,
    met: bool,
}

/// Errors of another model on the same rows (parts).
struct Other {
    source: &'static str,
    constant: f64,
    calculon: f64,
}

/// Mean absolute errors of step times on the calibration rows of these files: every row at one share of
/// the peak that is fitted to its source, and Calculon.
///
/// Source: the description that comes with the rows, `prices.md`, section 7.
const OTHERS: [Other; 6] = [
    Other { source: "megatron_sc21_table1", constant: 0.113, calculon: 0.181 },
    Other { source: "megatron_sc21_fig11_12", constant: 0.162, calculon: 0.126 },
    Other { source: "korthikanti_table5", constant: 0.245, calculon: 0.045 },
    Other { source: "megatron_readme_2020", constant: 0.125, calculon: 0.146 },
    Other { source: "mtnlg_530b", constant: 0.085, calculon: 0.297 },
    Other { source: "vtrain_single", constant: 0.536, calculon: 0.39 },
];

const STEPS: &str = "training_throughput.csv";

/// The goals that have rows, as a table; nothing if none has.
pub fn table(outcomes: &[Outcome]) -> String {
    let sources = errors::sources(outcomes);
    let goals: Vec<Goal> =
        [steps(outcomes), memory(outcomes), collectives(outcomes)].into_iter().flatten().collect();
    let mut text = String::new();
    if !goals.is_empty() {
        text.push_str("\n## Goals\n\n| goal | found | |\n|---|---|---|\n");
    }
    for Goal { what, found, met } in goals {
        let verdict = if met { "met" } else { "not met" };
        text.push_str(&format!("| {what} | {found} | {verdict} |\n"));
    }
    text + &others(&sources)
}

/// How many rows that ran are called impossible, and how many of those that ran out of memory.
pub fn verdicts(outcomes: &[Outcome]) -> [(usize, usize); 2] {
    let ran: Vec<bool> = errors::priced(outcomes).filter_map(|(_, row)| row.fits).collect();
    let failed =
        |it: &Outcome| if let Answer::Failed(failed) = &it.answer { Some(failed.fits) } else { None };
    let failed: Vec<bool> = outcomes.iter().filter_map(failed).collect();
    [ran, failed].map(|list| (list.iter().filter(|fits| !**fits).count(), list.len()))
}

fn rows<'a>(outcomes: &'a [Outcome], file: &str, counts: impl Fn(&Priced) -> bool) -> Vec<&'a Priced> {
    let rows = errors::priced(outcomes).filter(|(outcome, row)| outcome.file == file && counts(row));
    rows.map(|(_, row)| row).collect()
}

/// A goal for the mean error of rows; nothing if there are none.
fn mean(what: &str, rows: &[&Priced], most: f64) -> Option<Goal> {
    let errors = Errors::of(rows)?;
    let found = format!("{:.1} % on {} rows", 100.0 * errors.mean, errors.rows);
    Some(Goal {
        what: format!("{what}: mean error ≤ {:.0} %", 100.0 * most),
        found,
        met: errors.mean <= most,
    })
}

fn steps(outcomes: &[Outcome]) -> Vec<Goal> {
    let all = rows(outcomes, STEPS, |row| row.apart.is_none());
    let median = Errors::of(&all).map(|errors| Goal {
        what: "training steps: median error ≤ 6 %".to_owned(),
        found: format!("{:.1} % on {} rows", 100.0 * errors.median, errors.rows),
        met: errors.median <= 0.06,
    });
    let of = |wanted: &'static str| rows(outcomes, STEPS, move |row| row.apart.as_deref() == Some(wanted));
    let sweeps: Vec<f64> =
        errors::sources(outcomes).iter().flat_map(|it| it.sweeps.iter().map(|(_, order)| *order)).collect();
    let good = sweeps.iter().filter(|order| **order >= 0.9).count();
    let order = (!sweeps.is_empty()).then(|| Goal {
        what: format!("order in sweeps of at least {SWEEP} rows: ≥ 0.9"),
        found: format!(
            "{good} of {} sweeps; the lowest {:.3}",
            sweeps.len(),
            sweeps.iter().copied().fold(1.0, f64::min)
        ),
        met: good == sweeps.len(),
    });
    let goals = [
        median,
        mean("training steps", &all, 0.1),
        mean("steps on T4", &of("T4"), 0.2),
        mean("steps on a single node, vTrain's sweep", &of("single node"), 0.2),
        order,
    ];
    goals.into_iter().flatten().collect()
}

fn memory(outcomes: &[Outcome]) -> Vec<Goal> {
    let [(impossible, ran), (called, failed)] = verdicts(outcomes);
    let found = (ran > 0).then(|| Goal {
        what: "no setup that ran is called impossible".to_owned(),
        found: format!("{impossible} of {ran}"),
        met: impossible == 0,
    });
    let refused = (failed > 0).then(|| Goal {
        what: "at least 80 % of those that ran out of memory are called so".to_owned(),
        found: format!("{called} of {failed}"),
        met: 5 * called >= 4 * failed,
    });
    let peaks = rows(outcomes, "memory_rows.csv", |row| row.apart.is_none());
    [mean("memory", &peaks, 0.08), found, refused].into_iter().flatten().collect()
}

fn collectives(outcomes: &[Outcome]) -> Vec<Goal> {
    let rows = rows(outcomes, "collective_rows.csv", |row| row.apart.is_none());
    mean("collective operations", &rows, 0.15).into_iter().collect()
}

/// Errors of other models beside ours.
fn others(sources: &[Source]) -> String {
    let mut text = String::new();
    for Other { source, constant, calculon } in OTHERS {
        let ours = sources.iter().find(|it| it.file == STEPS && it.name == source);
        let Some(ours) = ours else { continue };
        if text.is_empty() {
            text.push_str(
                "\nFor scale, mean errors of step times on the same rows, of Calculon and of one share of the \
                 peak for each source:\n\n| source | ours | Calculon | one share |\n|---|---|---|---|\n",
            );
        }
        let part = |part: f64| format!("{:.1} %", 100.0 * part);
        let ours = part(ours.errors.mean);
        text.push_str(&format!("| {source} | {ours} | {} | {} |\n", part(calculon), part(constant)));
    }
    text
}

#[cfg(test)]
mod tests;
