//! How far published runs of a framework are from what is predicted, by who published them.
//!
//! The numbers are those of `docs/price-validation.md`, which `shardloom validate --report` writes.

use crate::space::Runner;

const PAGE: &str = include_str!("../price-validation.md");

/// Errors of the rows of a source, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Who published them.
    pub name: &'static str,
    /// How many.
    pub rows: u64,
    /// The median of absolute errors.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// The greatest.
    pub worst: f64,
}

/// The sources whose runs are of this framework.
const fn names(runner: Runner) -> &'static [&'static str] {
    match runner {
        Runner::Megatron => {
            &["korthikanti_table5", "megatron_core_h100", "megatron_sc21_table1", "zero_bubble_table4"]
        }
        Runner::Bridge => {
            &["megatron_bridge_2025", "megatron_bridge_2026", "nemo_docs_24.07", "nemo_launcher_2024"]
        }
        Runner::Torchtitan => &["torchtitan_h200_trainy"],
        Runner::Deepspeed => &["mtnlg_530b"],
    }
}

/// Errors of times of steps, by source.
#[must_use]
pub fn of_steps(runner: Runner) -> Vec<Source> {
    let section = PAGE.split("## training_throughput.csv").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let found = |name: &'static str| {
        let line = section.lines().find(|line| line.starts_with(&format!("| {name} |")))?;
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let percent = |cell: usize| cells.get(cell)?.trim_end_matches(" %").parse::<f64>().ok();
        let rows = cells.get(2)?.parse().ok()?;
        Some(Source { name, rows, median: percent(3)?, mean: percent(4)?, worst: percent(5)? })
    };
    names(runner).iter().filter_map(|name| found(name)).collect()
}

/// The mean error of all rows of some sources, in percent; none without rows.
#[must_use]
pub fn together(sources: &[Source]) -> Option<f64> {
    let rows: f64 = sources.iter().map(|it| cost_models::units::exact(it.rows)).sum();
    let all: f64 = sources.iter().map(|it| cost_models::units::exact(it.rows) * it.mean).sum();
    (rows > 0.0).then(|| all / rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_on_the_page() {
        for runner in Runner::ALL {
            let sources = of_steps(runner);
            assert_eq!(sources.len(), names(runner).len(), "{runner:?}: {sources:?}");
            assert!(together(&sources).is_some_and(|it| it > 0.0 && it < 20.0), "{runner:?}");
        }
    }
}
