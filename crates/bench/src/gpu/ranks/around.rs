//! Prices by which products are done in time steps wherever they can be: blocks go round rings, and over squares
//! of devices.

use planner_ir::{Layout, Move, Op, Type};
use search::{Prices, Work};

/// What it costs to do a product at once (seconds).
const AT_ONCE: f64 = 1.0;

/// Those of a machine, but for that.
pub(super) struct Around<'a> {
    pub(super) machine: &'a dyn Prices,
}

impl Prices for Around<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        let at_once = matches!(work.op, Op::Contract(_)) && work.partition.steps == 1;
        self.machine.work(work) + if at_once { AT_ONCE } else { 0.0 }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        self.machine.step(type_, step, before, after)
    }
}
