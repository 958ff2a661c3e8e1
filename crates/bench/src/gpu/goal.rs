//! What figures are meant to be.

use serde_json::{Value, json};

/// What a figure is meant to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Goal {
    /// The figure, with what it is a part of.
    what: &'static str,
    found: f64,
    bound: Bound,
}

/// On which side of a number a figure is meant to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// At least so much.
    Least(f64),
    /// At most so much.
    Most(f64),
}

impl Goal {
    pub(super) fn new(what: &'static str, found: f64, bound: Bound) -> Self {
        Self { what, found, bound }
    }

    fn reached(&self) -> bool {
        match self.bound {
            Bound::Least(least) => self.found >= least,
            Bound::Most(most) => self.found <= most,
        }
    }

    fn side(&self) -> (&'static str, f64) {
        match self.bound {
            Bound::Least(least) => ("at least", least),
            Bound::Most(most) => ("at most", most),
        }
    }

    /// In words; nothing is said of whether it is reached by figures that mean nothing.
    pub(super) fn shown(&self, judged: Judged) -> String {
        let (side, number) = self.side();
        let goal = format!("goal: {} {side} {number}", self.what);
        match judged {
            Judged::No => goal,
            Judged::Yes if self.reached() => format!("{goal}: {:.3}, reached", self.found),
            Judged::Yes => format!("{goal}: {:.3}, MISSED", self.found),
        }
    }

    /// For programs.
    pub(super) fn json(&self, judged: Judged) -> Value {
        let (side, number) = self.side();
        let reached = (judged == Judged::Yes).then(|| self.reached());
        json!({ "what": self.what, side.replace(' ', "_"): number, "found": self.found, "reached": reached })
    }
}

/// Whether figures are held against goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Yes,
    No,
}
