//! What is said of plans that were run.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use cost_models::quantity;
use predict::errors::spearman;
use serde_json::{Value, json};

use super::calm::Calm;
use super::trial::Trial;

/// Beyond this part of the shorter one, one of two steps is longer for certain.
pub(super) const APART: f64 = 0.25;

/// Trials by model, and how calm it was meanwhile.
pub(super) struct Trials {
    pub(super) trials: Vec<(String, Trial)>,
    pub(super) calm: Calm,
    /// The part of the processors that other programs had, where the system says.
    pub(super) others: Option<f64>,
}

impl Trials {
    /// For people.
    pub(super) fn text(&self) -> String {
        rows(&self.trials) + &kinds(&self.trials) + &self.summary()
    }

    fn summary(&self) -> String {
        let trials = &self.trials;
        let within = trials.iter().filter(|(_, trial)| error(trial).abs() <= APART).count();
        let (right, all) = order(trials);
        let mut text = String::new();
        // Writing to a string does not fail.
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        line(format!(
            "\n{within} of {} within {:.0} %, {:.1} % on average, {:+.1} % with signs; {right} of {all} pairs that \
             differ by more are in the right order",
            trials.len(),
            100.0 * APART,
            100.0 * mean(trials, f64::abs),
            100.0 * mean(trials, |error| error)
        ));
        let [overall, lowest] = correlations(trials);
        line(format!("correlation of ranks {overall:.3}, of the plans of one model {lowest:.3} at least"));
        let [rounds, calm] = self.rounds();
        let never = trials.iter().filter(|(_, trial)| trial.rounds[1] == 0).count();
        let never = if never > 0 { format!(", of {never} plans none") } else { String::new() };
        line(format!("{calm} of {rounds} rounds in which the machine was calm{never}"));
        let [middle, worst] = self.calm.spread();
        line(format!(
            "the reference product took {} at best on all processors, {} by these prices; {:.0} % more in the \
             middle, {:.0} % at worst, and {:+.1} % in the last third, at best, than in the first",
            quantity::seconds(self.calm.least()),
            quantity::seconds(self.calm.priced),
            100.0 * middle,
            100.0 * worst,
            100.0 * self.calm.drift()
        ));
        if let Some(others) = self.others {
            line(format!("other programs took {:.0} % of the processors meanwhile", 100.0 * others));
        }
        text
    }

    fn rounds(&self) -> [usize; 2] {
        [0, 1].map(|which: usize| self.trials.iter().map(|(_, trial)| trial.rounds[which]).sum())
    }

    /// All of it in one object, as a ledger has it.
    pub(super) fn line(&self) -> Value {
        let trials = &self.trials;
        let (right, all) = order(trials);
        let [overall, lowest] = correlations(trials);
        let [rounds, calm] = self.rounds();
        let [middle, worst] = self.calm.spread();
        json!({
            "benchmark": "local-prices",
            "build": if cfg!(debug_assertions) { "debug" } else { "release" },
            "plans": trials.len(),
            "within_25_percent": trials.iter().filter(|(_, trial)| error(trial).abs() <= APART).count(),
            "mean_absolute_error": mean(trials, f64::abs),
            "bias": mean(trials, |error| error),
            "pairs": { "in_order": right, "all": all },
            "rank_correlation": { "all": overall, "least_of_a_model": lowest },
            "rounds": { "all": rounds, "calm": calm },
            "reference": {
                "priced_seconds": self.calm.priced,
                "least_seconds": self.calm.least(),
                "median_more": middle,
                "worst_more": worst,
                "drift": self.calm.drift(),
            },
            "others": self.others,
            "trials": trials.iter().map(|(model, trial)| json!({
                "model": model,
                "plan": trial.plan,
                "predicted": trial.predicted,
                "measured": trial.measured,
                "rounds": trial.rounds,
            })).collect::<Vec<Value>>(),
        })
    }

    /// An object for each plan.
    pub(super) fn lines(&self) -> Vec<Value> {
        self.trials.iter().map(plan).collect()
    }
}

fn error(trial: &Trial) -> f64 {
    trial.predicted / trial.measured - 1.0
}

fn mean(trials: &[(String, Trial)], of: impl Fn(f64) -> f64) -> f64 {
    trials.iter().map(|(_, trial)| of(error(trial))).sum::<f64>() / count(trials.len())
}

/// Of pairs of plans of the same model whose steps differ for certain, how many are in the order
/// that prices say, and how many there are.
pub(super) fn order(trials: &[(String, Trial)]) -> (usize, usize) {
    let (mut right, mut all) = (0, 0);
    for (index, (model, a)) in trials.iter().enumerate() {
        for (_, b) in trials[..index].iter().filter(|(other, _)| other == model) {
            let longer = a.measured.max(b.measured) / a.measured.min(b.measured);
            if longer > 1.0 + APART {
                all += 1;
                right += usize::from((a.measured < b.measured) == (a.predicted < b.predicted));
            }
        }
    }
    (right, all)
}

/// The correlation of the ranks of prices and of times: of all plans, and the least of the plans of one
/// model; 0 where there is no order.
pub(super) fn correlations(trials: &[(String, Trial)]) -> [f64; 2] {
    let of = |wanted: Option<&str>| {
        let rows = trials.iter().filter(|(model, _)| wanted.is_none_or(|it| it == model));
        let pairs: Vec<(f64, f64)> = rows.map(|(_, trial)| (trial.predicted, trial.measured)).collect();
        spearman(&pairs)
    };
    let models = trials.iter().filter_map(|(model, _)| of(Some(model)));
    [of(None), models.reduce(f64::min)].map(|it| it.unwrap_or(0.0))
}

fn rows(trials: &[(String, Trial)]) -> String {
    let mut text =
        format!("{:<40} {:<52} {:>12} {:>12} {:>7}\n", "model", "plan", "predicted", "measured", "off by");
    for (model, trial) in trials {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{model:<40} {:<52} {:>12} {:>12} {:>+6.1}%",
            trial.plan,
            quantity::seconds(trial.predicted),
            quantity::seconds(trial.measured),
            100.0 * error(trial)
        );
    }
    text
}

/// What operations of all plans take, by the number of ranks and by kind.
fn kinds(trials: &[(String, Trial)]) -> String {
    let numbers: BTreeSet<u64> = trials.iter().map(|(_, trial)| trial.ranks).collect();
    numbers.into_iter().map(|ranks| kinds_on(ranks, trials)).collect()
}

fn kinds_on(ranks: u64, trials: &[(String, Trial)]) -> String {
    let mut kinds: Vec<(&str, f64, f64)> = Vec::new();
    for kind in trials.iter().filter(|(_, trial)| trial.ranks == ranks).flat_map(|(_, trial)| &trial.kinds) {
        match kinds.iter_mut().find(|it| it.0 == kind.name) {
            Some(known) => {
                known.1 += kind.predicted;
                known.2 += kind.measured;
            }
            None => kinds.push((&kind.name, kind.predicted, kind.measured)),
        }
    }
    kinds.sort_by(|a, b| b.2.total_cmp(&a.2));
    let title = format!("operations on {}, all plans", quantity::counted(ranks, "rank"));
    let mut text = format!("\n{title:<40} {:>65} {:>12}\n", "predicted", "measured");
    for (name, predicted, measured) in kinds {
        let [predicted, measured] = [predicted, measured].map(quantity::seconds);
        let _ = writeln!(text, "{name:<40} {predicted:>65} {measured:>12}");
    }
    text
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number.max(1)).unwrap_or(u32::MAX))
}

fn plan((model, trial): &(String, Trial)) -> Value {
    let kinds = trial.kinds.iter();
    let kinds =
        kinds.map(|it| json!({ "name": it.name, "predicted": it.predicted, "measured": it.measured }));
    json!({
        "model": model,
        "plan": trial.plan,
        "ranks": trial.ranks,
        "predicted": trial.predicted,
        "measured": trial.measured,
        "rounds": { "all": trial.rounds[0], "calm": trial.rounds[1] },
        "operations": kinds.collect::<Vec<Value>>(),
    })
}
