//! What goes on at the same time on a processor: computing, and moving bytes.
//!
//! ```text
//! rate of computing = beside   while its processor moves bytes         else 1
//! rate of a flow   ≤ beside   while one of its processors computes    else 1   (of what it reaches alone)
//! ```
//!
//! Moving takes processors and memory that computing wants, and the other way around: each side keeps
//! the part `beside` of its rate, whatever the other one is.
//!
//! Source: Miao et al., "Galvatron: Efficient Transformer Training over Multiple GPUs Using Automatic
//! Parallelism", VLDB 2022, section 4.2: both sides slow down by one measured coefficient.

use std::collections::BTreeMap;

/// What each processor does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beside {
    /// The part of its rate that each side keeps; none if neither is slowed down.
    part: Option<f64>,
    /// For each processor, how much of it computes and how much of it moves.
    doing: BTreeMap<u32, Doing>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Doing {
    computing: u32,
    moving: u32,
}

impl Beside {
    /// Nothing yet.
    pub(crate) fn new(part: Option<f64>) -> Self {
        Self { part: part.filter(|part| *part < 1.0), doing: BTreeMap::new() }
    }

    /// Whether anything is slowed down by anything.
    pub(crate) fn counts(&self) -> bool {
        self.part.is_some()
    }

    /// A processor computes: whether that changes rates.
    pub(crate) fn computes(&mut self, processor: u32) -> bool {
        let doing = self.doing.entry(processor).or_default();
        doing.computing += 1;
        doing.moving > 0
    }

    /// The same is over.
    pub(crate) fn computed(&mut self, processor: u32) -> bool {
        let doing = self.doing.entry(processor).or_default();
        doing.computing -= 1;
        doing.moving > 0
    }

    /// Processors move bytes: whether that changes rates.
    pub(crate) fn moves(&mut self, processors: &[u32]) -> bool {
        self.each(processors, |doing| doing.moving += 1)
    }

    /// The same is over.
    pub(crate) fn moved(&mut self, processors: &[u32]) -> bool {
        self.each(processors, |doing| doing.moving -= 1)
    }

    /// Whether one of these processors computes.
    pub(crate) fn slows_flow(&self, processors: &[u32]) -> bool {
        self.counts() && processors.iter().any(|it| self.doing.get(it).is_some_and(|it| it.computing > 0))
    }

    /// The part of its rate at which a processor computes.
    pub(crate) fn of_computing(&self, processor: u32) -> f64 {
        let moves = self.doing.get(&processor).is_some_and(|doing| doing.moving > 0);
        self.part.filter(|_| moves).unwrap_or(1.0)
    }

    /// The part of its rate at which a flow moves.
    pub(crate) fn of_flow(&self, processors: &[u32]) -> f64 {
        self.part.filter(|_| self.slows_flow(processors)).unwrap_or(1.0)
    }

    fn each(&mut self, processors: &[u32], change: impl Fn(&mut Doing)) -> bool {
        if !self.counts() {
            return false;
        }
        let mut computes = false;
        for processor in processors {
            let doing = self.doing.entry(*processor).or_default();
            change(doing);
            computes |= doing.computing > 0;
        }
        computes
    }
}
