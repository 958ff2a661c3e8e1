//! How blocks go around in time steps, and which operations do so in each of these forms.

use planner_ir::{AxisId, Digit, LoopId, Loops, Motion, Op, Partition, Phase, Role};

/// How blocks go around in time steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Products, over two axes of so many devices with skewed digits: PrimePar.
    Square(u64),
    /// The same in layers along the first axis, each of which has examples or tokens of its own.
    Squares(u64),
    /// Products, over two axes of so many devices along which blocks are given: SUMMA.
    Summa(u64),
    /// That in layers along the first axis, as squares are.
    Tesseract(u64),
    /// Everything that has parameters, along one axis of so many devices; those of parameters and of
    /// their gradients: RTP.
    Ring(u64),
}

/// The axis along which layers lie.
pub(super) const LAYERS: AxisId = AxisId(0);

/// An operation in a step.
pub(super) struct Site<'a> {
    pub(super) op: &'a Op,
    pub(super) loops: &'a Loops,
    /// For each operand, whether it is of parameters and constants alone.
    pub(super) of_parameters: &'a [bool],
    pub(super) phase: Phase,
}

impl Form {
    /// Into how many blocks loops fall.
    pub(super) fn side(self) -> u64 {
        match self {
            Self::Square(side)
            | Self::Squares(side)
            | Self::Summa(side)
            | Self::Tesseract(side)
            | Self::Ring(side) => side,
        }
    }

    /// Whether an operation is partitioned so.
    pub(super) fn is_of(self, partition: &Partition, site: &Site<'_>) -> bool {
        let loops = site.loops;
        let is = |wanted: fn(&Motion) -> bool| -> (Vec<bool>, Vec<bool>) {
            let operand = |it: usize| wanted(&partition.operand_motion(loops, it));
            let result = |it: usize| wanted(&partition.result_motion(loops, it));
            ((0..loops.operands.len()).map(operand).collect(), (0..loops.results.len()).map(result).collect())
        };
        let rotates = is(|it| matches!(it, Motion::Rotating(_)));
        let streams = is(|it| matches!(it, Motion::Streaming(_)));
        let count = |of: &(Vec<bool>, Vec<bool>)| of.0.iter().chain(&of.1).filter(|it| **it).count();
        let skewed = partition.loops.iter().flatten().any(|digit| digit.terms.len() > 1);
        let is_layer = |digit: &Digit| digit.terms.iter().any(|it| it.0 == LAYERS);
        let of_layers =
            |it: &LoopId| partition.loops[it.0].iter().any(|it| is_layer(it) && it.plain().is_some());
        let layer = loops.ids().find(of_layers).filter(|it| !site.is_of_parameters(*it));
        let in_layers = layer.is_some() && !partition.streams.contains(&LAYERS);
        let square = skewed && partition.streams.is_empty() && count(&rotates) == 2;
        let summa = !skewed && count(&streams) == 2;
        partition.steps == self.side()
            && match self {
                Self::Square(_) => square,
                Self::Squares(_) => square && in_layers,
                Self::Summa(_) => summa,
                Self::Tesseract(_) => summa && in_layers,
                Self::Ring(_) => !skewed && rotates == (site.of_parameters.to_vec(), site.of_gradients()),
            }
    }

    /// Whether an operation can be partitioned so.
    pub(super) fn takes(self, site: &Site<'_>) -> bool {
        match self {
            Self::Square(_) | Self::Squares(_) | Self::Summa(_) | Self::Tesseract(_) => {
                let product = matches!(site.op, Op::Contract(_)) && site.is_product();
                product && falls(site.loops, self.side())
            }
            Self::Ring(_) => {
                let ids = |of_parameters: bool| {
                    let some = move |it: &LoopId| site.is_of_parameters(*it) == of_parameters;
                    let free = |it: &LoopId| site.loops.get(*it).role != Role::Whole;
                    let side = self.side();
                    site.loops
                        .ids()
                        .filter(some)
                        .filter(free)
                        .any(|it| site.loops.get(it).size.is_multiple_of(side))
                };
                site.is_product() && ids(true) && ids(false)
            }
        }
    }
}

/// Whether loops are those of a product, and all fall into so many blocks.
pub(super) fn falls(loops: &Loops, blocks: u64) -> bool {
    let sums = loops.loops.iter().any(|it| it.role == Role::Sum && it.size > 1);
    sums && loops.loops.iter().all(|it| it.size == 1 || it.size.is_multiple_of(blocks))
}

impl Site<'_> {
    /// Whether it multiplies by parameters or looks up in them, or makes gradients of what does.
    pub(super) fn is_product(&self) -> bool {
        let large = self.loops.results.iter().all(|dims| dims.len() > 1);
        let some = self.of_parameters.contains(&true);
        let all = self.of_parameters.iter().all(|it| *it);
        match self.op {
            // Gradients of scales are sums of products, of elements.
            Op::Contract(_) if !large => false,
            Op::Contract(_) if self.phase == Phase::Gradient => !some,
            Op::GatherGradient { .. } | Op::ConvWeightGradient { .. } => self.phase == Phase::Gradient,
            Op::Gather { .. } => self.of_parameters[0] && !all,
            Op::Contract(_)
            | Op::Conv(_)
            | Op::Experts { .. }
            | Op::ConvInputGradient { .. }
            | Op::ExpertsGradient { .. } => some && !all,
            _ => false,
        }
    }

    /// For each result, whether it is the gradient of a parameter.
    pub(super) fn of_gradients(&self) -> Vec<bool> {
        let of = |result: usize| match self.op {
            Op::Contract(_) | Op::GatherGradient { .. } | Op::ConvWeightGradient { .. } => {
                self.phase == Phase::Gradient
            }
            Op::ExpertsGradient { .. } => self.of_parameters[result],
            _ => false,
        };
        (0..self.loops.results.len()).map(of).collect()
    }

    /// Whether a loop indexes parameters or gradients of parameters.
    fn is_of_parameters(&self, it: LoopId) -> bool {
        let operands = self.loops.operands.iter().zip(self.of_parameters.iter().copied());
        let results = self.loops.results.iter().zip(self.of_gradients());
        operands.chain(results).any(|(dims, some)| some && dims.iter().flatten().any(|other| *other == it))
    }
}
