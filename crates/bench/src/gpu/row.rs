//! One thing that was measured, as people and ledgers have it.

use serde_json::{Map, Value, json};

use super::goal::{Bound, Goal, Judged};

/// How far a price may be from what is measured, as a part of it.
const PRICED: f64 = 0.08;

/// Where rows of one kind are in a table.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: &'static str,
    /// What they are held against; nothing if they are held against nothing.
    pub(super) beside: &'static str,
}

/// One thing that was measured.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) section: &'static Section,
    pub(super) what: String,
    /// Each with its name, for people and for programs.
    pub(super) figures: Vec<(&'static str, String, Value)>,
    /// Whether it is as it has to be, if something says how that is.
    pub(super) verdict: Option<Verdict>,
    pub(super) goals: Vec<Goal>,
}

/// Whether something is as it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is.
    Right,
    /// It is not.
    Wrong,
    /// It is not known: what was to be computed was not.
    Failed,
}

impl Verdict {
    /// For people.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong => "WRONG",
            Self::Failed => "FAILED",
        }
    }
}

impl Row {
    pub(super) fn new(section: &'static Section, what: impl Into<String>) -> Self {
        Self { section, what: what.into(), figures: Vec::new(), verdict: None, goals: Vec::new() }
    }

    /// With a figure.
    pub(super) fn with(
        mut self,
        name: &'static str,
        shown: impl Into<String>,
        value: impl Into<Value>,
    ) -> Self {
        self.figures.push((name, shown.into(), value.into()));
        self
    }

    /// With a time (seconds).
    pub(super) fn taking(self, name: &'static str, seconds: f64) -> Self {
        self.with(name, cost_models::quantity::seconds(seconds), seconds)
    }

    /// With a figure that is meant to be on one side of a number.
    pub(super) fn wanting(mut self, what: &'static str, found: f64, bound: Bound) -> Self {
        self.goals.push(Goal::new(what, found, bound));
        self
    }

    /// With what it takes by the prices of the machine, beside what it took (seconds).
    pub(super) fn priced(self, predicted: f64, seconds: f64) -> Self {
        let part = predicted / seconds;
        self.taking("by prices", predicted).with("by prices/took", format!("{part:.2}"), part).wanting(
            "how far the price is from it",
            (part - 1.0).abs(),
            Bound::Most(PRICED),
        )
    }

    /// With how far results are from the reference, and how far they may be, as parts of the largest number.
    pub(super) fn apart(mut self, apart: f64, most: f64) -> Self {
        self.verdict = Some(if apart <= most { Verdict::Right } else { Verdict::Wrong });
        self.with("apart", format!("{apart:.1e} of {most:.0e} at most"), apart)
    }

    /// With how many faults were found.
    pub(super) fn faults(mut self, count: u64) -> Self {
        self.verdict = Some(if count == 0 { Verdict::Right } else { Verdict::Wrong });
        self.with("faults", count.to_string(), count)
    }

    /// It was to be computed, and was not: why.
    pub(super) fn failed(mut self, why: impl std::fmt::Display) -> Self {
        self.verdict = Some(Verdict::Failed);
        let why = why.to_string();
        self.with("failed", why.clone(), why)
    }

    /// Nothing was measured, and why.
    pub(super) fn left_out(self, why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        self.with("left out", why.clone(), why)
    }

    /// Whether something is not as it has to be, or not known to be.
    pub(super) fn is_bad(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Wrong | Verdict::Failed))
    }

    /// As a ledger has it, without what it was measured on.
    pub(super) fn line(&self, judged: Judged) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, _, value)| (name.replace(' ', "_"), value.clone())).collect();
        json!({
            "part": self.section.name,
            "what": self.what,
            "verdict": self.verdict.map(|it| it.shown().to_lowercase()),
            "figures": figures,
            "beside": self.section.beside,
            "goals": self.goals.iter().map(|it| it.json(judged)).collect::<Vec<_>>(),
        })
    }
}
