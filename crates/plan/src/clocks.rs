//! Two clocks: what a device computes and waits for, and what it exchanges meanwhile.
//!
//! Some exchanges wait for nothing that is computed just before, or are waited for by nothing just after: weights that
//! lie elsewhere at rest can be fetched ahead, as can what gradients of parameters are computed from, and these can be
//! summed behind. And where computing waits for an exchange, gradients of parameters can be computed, which nothing
//! waits for. Each of the two parts of a step then takes, with `K` what is computed for others and `W` what is not, `B`
//! what computing waits for, `H` what may run beside all of it, and `c` what a second of either costs the other, at
//! least:
//!
//! ```text
//! A = K + max(B + c W, W + c B)        T = max(A + c H, H + c A)
//! ```
//!
//! Exchanges of either kind may go over the same links, as all do where a mesh has one axis. These are then busy for
//! `L`, what all exchanges take without their latencies, those of operations in time steps too, whatever runs beside what,
//! and with `C` for all that is computed, of these operations at least what `L` has not of them:
//!
//! ```text
//! T ≥ L + c C
//! ```
//!
//! While rows go to experts and come back, what experts of all tokens make can be computed, in both parts: these
//! exchanges are of `B`, and that is of `W`, wherever it is ([`Graph::meanwhile`]).
//!
//! Two that run beside each other go on for `min(A, H)/s` at a part `s` of their rates, `c = 1/s − 1`, and the rest of
//! the longer one alone: `A + H − T = (1 − c) min(A, H)`. Programs issue exchanges and computing so (`crates/lower`);
//! the simulator says what is left of it.

use planner_ir::{Graph, Phase, Source, ValueId};

use crate::plan::{Plan, Transfer, exact};

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

/// How computing and exchanges run beside each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// What a second of either costs the other.
    pub cost: f64,
    /// How long an exchange takes of which nothing moves, where all exchanges go over the same links (seconds): what is
    /// left of each has the links for itself.
    pub latency: Option<f64>,
}

impl Overlap {
    /// It costs so much, and exchanges are not in each other's way.
    #[must_use]
    pub fn costs(cost: f64) -> Self {
        Self { cost, latency: None }
    }

    /// The same of a program: in inference nothing is said of links.
    #[must_use]
    pub fn of(self, graph: &Graph) -> Self {
        Self { latency: self.latency.filter(|_| graph.training.is_some()), ..self }
    }

    /// For how long an exchange of so many moves, which takes so long in all, has links for itself that all use (seconds).
    #[must_use]
    pub fn on_links(&self, seconds: f64, moves: usize) -> f64 {
        let moves = exact(u64::try_from(moves).unwrap_or(u64::MAX));
        self.latency.map_or(0.0, |latency| (seconds - moves * latency).max(0.0))
    }
}

/// What is on a clock each time that its part of a step runs (seconds).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// What stands in the way: computing, and exchanges that it waits for and nothing else can run beside.
    pub alone: f64,
    /// Exchanges that computing waits for, beside which gradients of parameters may be computed.
    pub waited: f64,
    /// What gradients of parameters take to compute.
    pub apart: f64,
    /// Exchanges of rows that are routed, which computing waits for too.
    pub routed: f64,
    /// What may be computed while rows are exchanged, and is no gradient of a parameter.
    pub meanwhile: f64,
    /// What is fetched ahead.
    pub ahead: f64,
    /// Gradients that are summed behind.
    pub behind: f64,
    /// Of `alone`, `apart` and `meanwhile`, what is exchanged.
    pub blocking: f64,
    /// For how long all exchanges have links for themselves that all use.
    pub links: f64,
}

/// How many sums there are of a load, of which the longest is what it takes.
pub const SUMS: usize = 5;

impl Load {
    /// What may run beside computing (seconds).
    #[must_use]
    pub fn beside(&self) -> f64 {
        self.ahead + self.behind
    }

    /// Everything, one after another (seconds).
    #[must_use]
    pub fn all(&self) -> f64 {
        self.alone + self.waits() + self.computes() + self.beside()
    }

    /// All that computing waits for while something else can be computed (seconds).
    #[must_use]
    pub fn waits(&self) -> f64 {
        self.waited + self.routed
    }

    /// All that can be computed then (seconds).
    #[must_use]
    pub fn computes(&self) -> f64 {
        self.apart + self.meanwhile
    }

    /// The sums of which the longest is what all takes, if a second of either costs the other so much: with what
    /// computing waits for and with gradients of parameters, with what may run beside it and beside that; and what links
    /// carry, where all exchanges go over the same (seconds).
    #[must_use]
    pub fn sums(&self, overlap: Overlap) -> [f64; SUMS] {
        let Overlap { cost, latency } = overlap;
        let (waited, apart) = (self.waits(), self.computes());
        let [waits, computes] =
            [waited + cost * apart, apart + cost * waited].map(|longer| self.alone + longer);
        let beside = self.beside();
        let computing = self.alone - self.blocking + apart;
        let links = if latency.is_some() { self.links + cost * computing } else { 0.0 };
        [
            waits + cost * beside,
            computes + cost * beside,
            beside + cost * waits,
            beside + cost * computes,
            links,
        ]
    }

    /// How much less than the sum all takes, if a second of either costs the other so much; nothing where they do not
    /// run beside each other (seconds).
    #[must_use]
    pub fn hidden(&self, overlap: Option<Overlap>) -> f64 {
        let takes = |overlap: Overlap| self.sums(overlap).into_iter().fold(0.0, f64::max);
        overlap.filter(|it| it.cost < 1.0).map_or(0.0, |overlap| (self.all() - takes(overlap)).max(0.0))
    }

    /// The same where gradients of parameters are computed by themselves, beside nothing that is waited for.
    #[must_use]
    pub fn one_by_one(self) -> Self {
        let (alone, blocking) = (self.alone + self.waited + self.apart, self.blocking + self.waited);
        Self { alone, blocking, waited: 0.0, apart: 0.0, ..self }
    }

    /// The most that could be hidden, if nothing cost anything (seconds).
    #[must_use]
    pub fn most_hidden(&self) -> f64 {
        self.hidden(Some(Overlap::costs(0.0)))
    }
}

/// When an exchange that may run beside computing is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Before what is computed before its result is used: it is of weights, or of what is made of these alone, as what
    /// they are converted to, or for the gradient of a parameter, which nothing waits for.
    Ahead,
    /// After what is computed after it: it is of the gradient of a parameter, which is added to those of other
    /// micro-batches.
    Behind,
}

/// When an exchange of a value, which may be known before a micro-batch or for sums of gradients alone, for something in
/// this phase, an operation or not, may run beside computing; nothing if it stands in the way, or is in the update.
#[must_use]
pub fn beside(
    graph: &Graph,
    value: ValueId,
    [known, for_sums]: [bool; 2],
    (read, by_operation): (Phase, bool),
) -> Option<Beside> {
    Clock::of(read)?;
    match &graph.value(value).source {
        Source::Weight(_) | Source::State(_) => Some(Beside::Ahead),
        Source::Result { .. } if known => Some(Beside::Ahead),
        Source::Result { node, .. } if for_sums || graph.node(*node).phase == Phase::Gradient => {
            Some(Beside::Behind)
        }
        Source::Result { .. } | Source::Input(_) => {
            (by_operation && read == Phase::Gradient).then_some(Beside::Ahead)
        }
    }
}

impl Plan {
    /// For each transfer, when it runs beside computing; nothing if it stands in the way.
    #[must_use]
    pub fn beside(&self) -> Vec<Option<Beside>> {
        let may = self.may_run_beside().into_iter().zip(&self.transfers);
        may.map(|(beside, transfer)| beside.filter(|_| !transfer.waits)).collect()
    }

    /// For each transfer, when it might run beside computing, whether it waits or not.
    #[must_use]
    pub fn may_run_beside(&self) -> Vec<Option<Beside>> {
        let (known, for_sums) = (self.graph.known_before(), self.graph.for_sums());
        let of = |(transfer, read): (&Transfer, (Phase, bool))| {
            let value = transfer.value;
            let of = beside(&self.graph, value, [known[value.0], for_sums[value.0]], read);
            of.filter(|_| transfer.travels())
        };
        self.transfers.iter().zip(self.transfer_reads()).map(of).collect()
    }
}
