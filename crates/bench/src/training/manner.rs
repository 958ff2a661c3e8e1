//! Prices by which plans are split as people split them, not as is cheapest on this machine.

use planner_ir::{AxisId, Digit, Layout, LoopId, Move, Op, State, StateKind, Type};
use search::{Prices, Work};

/// What it costs to do what is not wanted (seconds).
const WRONG: f64 = 1000.0;
/// What it costs to leave whole what is to be split (seconds).
const WHOLE: f64 = 1.0;

/// Along the first axis the batch is split, and what the optimizer keeps (ZeRO-1); along others,
/// parameters of products.
pub(crate) struct DataFirst<'a> {
    /// What a machine takes.
    pub(crate) machine: &'a dyn Prices,
    /// Examples of a micro-batch. Nothing else has as many.
    pub(crate) batch: u64,
    /// Tokens of a micro-batch.
    pub(crate) tokens: u64,
}

impl DataFirst<'_> {
    fn penalty(&self, work: &Work<'_>) -> f64 {
        let batch = self.batch_loops(work);
        if batch.is_empty() || matches!(work.op, Op::Update(_)) {
            return 0.0;
        }
        let (mut data, mut others) = (false, false);
        for (number, digits) in work.partition.loops.iter().enumerate() {
            let over_batch = batch.contains(&LoopId(number));
            for first in digits.iter().flat_map(|digit| &digit.terms).map(|(axis, _)| *axis == AxisId(0)) {
                if first != over_batch {
                    return WRONG;
                }
                data |= first;
                others |= !first;
            }
        }
        let product = matches!(work.op, Op::Contract(_) | Op::Attention(_) | Op::AttentionGradient { .. });
        let whole = |split: bool| if split { 0.0 } else { WHOLE };
        whole(data) + whole(others || !product)
    }

    /// The loops over examples, or over all tokens.
    fn batch_loops(&self, work: &Work<'_>) -> Vec<LoopId> {
        // An operation of a verified program has results.
        let made = work.op.infer(work.whole).unwrap_or_default();
        let loops = work.op.loops(work.whole, &made);
        let dims = loops.operands.iter().zip(work.whole).chain(loops.results.iter().zip(&made));
        let dims = dims.flat_map(|(dims, type_)| dims.iter().zip(&type_.shape));
        let counts = dims.filter(|(_, extent)| [self.batch, self.tokens].contains(extent));
        counts.filter_map(|(loops, _)| loops.first().copied()).collect()
    }
}

impl Prices for DataFirst<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        self.penalty(work) + self.machine.work(work)
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        self.machine.step(type_, step, before, after)
    }

    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        let named = |digit: &Digit| digit.terms.iter().any(|(axis, _)| *axis == AxisId(0));
        let split = layout.dims.iter().flatten().any(named);
        let wanted = matches!(state.kind, StateKind::FirstMoment | StateKind::SecondMoment);
        let matters = state.kind != StateKind::Total;
        if matters && split != wanted { WRONG } else { 0.0 }
    }
}
