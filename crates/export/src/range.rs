//! What a target runs of what there is to choose.

use schedule::Kind;

/// What a target runs of what there is to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The stages of ZeRO, without and with a pipeline, ascending from none.
    pub zero: [&'static [u8]; 2],
    /// Whether sequences are split between products that use parameters split.
    pub sequence: bool,
    /// Whether what is exported says that traffic of tensor parallelism goes on beside computing, where sequences are split
    /// ([`crate::Strategy::overlaps_tensor`]).
    pub overlaps_tensor: bool,
    /// Its schedules; none if it has no pipelines.
    pub schedules: Vec<Kind>,
    /// Into what it cuts sequences.
    pub cuts: Cuts,
}

/// Into what a target cuts sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cuts {
    /// A part for each device that shares them.
    Parts,
    /// Two parts for each, one from either end, so that all have as much to attend to.
    ///
    /// Source: Megatron-LM, `megatron/training/arguments.py`, `validate_args`.
    Halves,
    /// The same, whether or not devices share them, and each for tensor parallel devices.
    ///
    /// Source: torchtitan, `torchtitan/distributed/parallel_dims.py`, `seq_len_divisor`.
    HalvesOfAll,
}

/// All stages of ZeRO; with a pipeline, whose micro-batches add to gradients that are whole, no more than the first.
pub(crate) const BY_STAGE: [&[u8]; 2] = [&[0, 1, 2, 3], &[0, 1]];

impl Cuts {
    /// What the tokens of a sequence are a multiple of, with so many devices that share products, and sequences.
    pub fn multiple(self, tensor: u64, context: u64) -> u64 {
        match self {
            Self::HalvesOfAll => tensor.saturating_mul(context).saturating_mul(2),
            Self::Halves if context > 1 => context.saturating_mul(2),
            Self::Halves | Self::Parts => context,
        }
    }
}

impl Range {
    /// The highest stage of ZeRO, without and with a pipeline.
    pub fn highest(&self) -> [u8; 2] {
        self.zero.map(|stages| stages.last().copied().unwrap_or(0))
    }

    /// The stage of ZeRO that it has for one, with so many pipeline ranks: the next above, or the highest.
    pub(crate) fn nearest(&self, zero: u8, groups: u64) -> u8 {
        let stages = self.zero[usize::from(groups > 1)];
        stages.iter().copied().find(|it| *it >= zero).unwrap_or(self.highest()[usize::from(groups > 1)])
    }
}

/// What a target serves of what there is to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingRange {
    /// Whether data parallel groups of a server share experts.
    pub data: bool,
    /// Whether such groups may have several devices each.
    pub mixed: bool,
    /// Whether several devices of a group may have the same heads of keys.
    pub same_keys: bool,
}
