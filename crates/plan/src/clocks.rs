//! Two clocks: what a device computes and waits for, and what it exchanges meanwhile.
//!
//! Two kinds of exchanges wait for nothing that is computed just before, or are waited for by nothing just
//! after: weights that lie elsewhere at rest can be fetched ahead, and gradients of parameters can be summed
//! behind. Each of the two parts of a step then takes, with `A` what stands in the way, `H` what may
//! run beside it, and `c` what a second of either costs the other, at least:
//!
//! ```text
//! T = max(A + c H, H + c A)        A + H − T = (1 − c) min(A, H)
//! ```
//!
//! Both go on for `min(A, H)/s` at a part `s` of their rates, `c = 1/s − 1`, and the rest of the longer one alone.
//! Programs issue these exchanges ahead and behind (`crates/lower`); the simulator says what is left of it.

use planner_ir::{Graph, Move, Phase, Source, ValueId};

use crate::plan::{Hidden, Plan, Transfer};

/// A part of a step with a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clock {
    /// The loss of a micro-batch; all of inference.
    Forward,
    /// Its gradients.
    Backward,
}

impl Clock {
    /// Every clock, in order.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Backward];

    /// The clock of what is done in a phase; none of the update.
    #[must_use]
    pub fn of(phase: Phase) -> Option<Self> {
        match phase {
            Phase::Forward => Some(Self::Forward),
            Phase::Backward | Phase::Gradient => Some(Self::Backward),
            Phase::Update => None,
        }
    }
}

/// What is on a clock each time that its part of a step runs (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// What stands in the way: computing, and exchanges that it waits for.
    pub alone: f64,
    /// Weights that are fetched ahead.
    pub ahead: f64,
    /// Gradients that are summed behind.
    pub behind: f64,
}

impl Load {
    /// What may run beside computing (seconds).
    #[must_use]
    pub fn beside(&self) -> f64 {
        self.ahead + self.behind
    }

    /// How much less than the sum both take, if a second of either costs the other so much; nothing where they
    /// do not run beside each other (seconds).
    #[must_use]
    pub fn hidden(&self, cost: Option<f64>) -> f64 {
        cost.map_or(0.0, |cost| (1.0 - cost).max(0.0) * self.alone.min(self.beside()))
    }
}

/// When an exchange that may run beside computing is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Before what is computed before its result is used: it is of weights, or of what is made of weights alone.
    Ahead,
    /// After what is computed after it: it is of the gradient of a parameter, which is added to those of other
    /// micro-batches.
    Behind,
}

/// When an exchange of a value, which may be prepared, for something in this phase may run beside computing;
/// nothing if it stands in the way, or is in the update.
#[must_use]
pub fn beside(graph: &Graph, value: ValueId, prepared: bool, read: Phase) -> Option<Beside> {
    Clock::of(read)?;
    match &graph.value(value).source {
        Source::Weight(_) | Source::State(_) => Some(Beside::Ahead),
        Source::Result { .. } if prepared => Some(Beside::Ahead),
        Source::Result { node, .. } if graph.node(*node).phase == Phase::Gradient => Some(Beside::Behind),
        Source::Result { .. } | Source::Input(_) => None,
    }
}

impl Plan {
    /// What is on each clock, in the order of [`Clock::ALL`].
    #[must_use]
    pub fn loads(&self) -> [Load; 2] {
        self.lanes().map(|it| it.load())
    }

    /// For each transfer, when it may run beside computing; nothing if it stands in the way.
    #[must_use]
    pub fn beside(&self) -> Vec<Option<Beside>> {
        let prepared = self.graph.prepared();
        let of = |(transfer, read): (&Transfer, Phase)| {
            let exchanges = transfer.moves.iter().any(|it| !matches!(it, Move::Slice { .. }));
            beside(&self.graph, transfer.value, prepared[transfer.value.0], read).filter(|_| exchanges)
        };
        self.transfers.iter().zip(self.transfer_phases()).map(of).collect()
    }

    /// What runs beside computing, if a second of either costs the other so much.
    #[must_use]
    pub fn hidden_at(&self, cost: Option<f64>) -> Hidden {
        let [forward, backward] = self.lanes().map(|it| it.hidden(cost));
        Hidden { forward, backward }
    }
}
