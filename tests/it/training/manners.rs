//! Prices that make the search take the plans that people make by hand.

use planner_ir::{Layout, LoopId, Move, Op, State, StateKind, Type};
use search::{MachinePrices, Prices, Work};

/// How people split programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The batch, and states from this stage of ZeRO on; 0 is none.
    Data(u8),
    /// Parameters of products.
    Tensor,
    /// The same, and between products the sequence.
    Sequence,
}

/// Prices by which another manner is dear. The model's batch and sequence have no extent in common
/// with anything else.
pub(super) struct Preferring<'a> {
    pub(super) manner: Manner,
    pub(super) machine: MachinePrices<'a>,
    pub(super) batch: u64,
    pub(super) sequence: u64,
    pub(super) hidden: u64,
}

/// What a step costs that the manner would not take.
const WRONG: f64 = 1000.0;
/// What it costs to leave something whole that the manner splits.
const WHOLE: f64 = 1.0;

impl Preferring<'_> {
    /// Whether a loop runs over examples, or over tokens.
    fn runs_over(&self, work: &Work<'_>, it: LoopId, extents: &[u64]) -> bool {
        let made = work.op.infer(work.whole).unwrap();
        let loops = work.op.loops(work.whole, &made);
        let dims = loops.operands.iter().zip(work.whole).chain(loops.results.iter().zip(&made));
        dims.flat_map(|(dims, type_)| dims.iter().zip(&type_.shape))
            .any(|(loops, extent)| loops.first() == Some(&it) && extents.contains(extent))
    }

    /// Whether an operation makes a vector for each token.
    fn makes_hidden(&self, work: &Work<'_>) -> bool {
        let made = work.op.infer(work.whole).unwrap();
        made[0].shape == [self.batch, self.sequence, self.hidden]
    }

    fn penalty(&self, work: &Work<'_>) -> f64 {
        let split: Vec<LoopId> = (0..work.partition.loops.len())
            .map(LoopId)
            .filter(|it| work.partition.loops[it.0].iter().any(|digit| !digit.is_free()))
            .collect();
        let tokens = self.batch * self.sequence;
        let over_batch = |it: &LoopId| self.runs_over(work, *it, &[self.batch, tokens]);
        let over_sequence = |it: &LoopId| self.runs_over(work, *it, &[self.sequence]);
        let is_product = match work.op {
            // Gradients of scales are sums of products, of elements.
            Op::Contract(contract) => contract.result.len() > 1,
            Op::Attention(_) | Op::AttentionGradient { .. } | Op::Gather { .. } => true,
            _ => false,
        };
        match (self.manner, work.op) {
            (Manner::Data(0), Op::Update(_)) => {
                if split.is_empty() {
                    0.0
                } else {
                    WRONG
                }
            }
            (Manner::Data(_), Op::Update(_)) => {
                if split.is_empty() {
                    WRONG
                } else {
                    0.0
                }
            }
            // What is of parameters alone goes with their layouts at rest.
            (Manner::Data(_), _)
                if !(0..work.partition.loops.len()).map(LoopId).any(|it| over_batch(&it)) =>
            {
                0.0
            }
            (Manner::Data(_), _) => match split.as_slice() {
                [] => WHOLE,
                some if some.iter().all(over_batch) => 0.0,
                _ => WRONG,
            },
            (_, Op::Update(_)) => 0.0,
            (manner, _) => match split.as_slice() {
                [] if is_product || manner == Manner::Sequence => WHOLE,
                [] => 0.0,
                some if some.iter().any(over_batch) => WRONG,
                // Between products, activations are split along the sequence, or not at all.
                some if !is_product && self.makes_hidden(work) => {
                    if manner == Manner::Sequence && some.iter().any(over_sequence) { 0.0 } else { WRONG }
                }
                some if some.iter().any(over_sequence) && (is_product || manner == Manner::Tensor) => WRONG,
                _ => 0.0,
            },
        }
    }
}

impl Prices for Preferring<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        self.penalty(work) + self.machine.work(work)
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        let seconds = self.machine.step(type_, step, before, after);
        // Where one value is small, an all-reduce and a slice can be as cheap as a reduce-scatter.
        let takes = matches!(self.manner, Manner::Data(0) | Manner::Tensor);
        let dear = !takes && matches!(step, Move::AllReduce { .. }) && type_.rank() > 0;
        if dear { 100.0 * seconds } else { seconds }
    }

    fn rest(&self, state: &State, layout: &Layout) -> f64 {
        let Manner::Data(stage) = self.manner else { return 0.0 };
        let from = match state.kind {
            StateKind::FirstMoment | StateKind::SecondMoment | StateKind::Master => 1,
            StateKind::Gradient => 2,
            StateKind::Parameter => 3,
            StateKind::Total => return 0.0,
        };
        let split = layout.dims.iter().flatten().any(|digit| !digit.is_free());
        let as_wanted = if stage >= from { split } else { !split && (from != 2 || !layout.owed.is_empty()) };
        if as_wanted { 0.0 } else { WRONG }
    }
}
