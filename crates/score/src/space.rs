//! The setups that a framework runs on the same devices with the same batch, each by what there is to choose, and
//! the cheapest of them.
//!
//! All are looked at: those whose [`floor`](predict::step::floor) is above the best found so far cannot be better
//! and are not priced further.

mod choice; // what there is to choose
mod search; // the cheapest setup, and the changes that help most

use ::schedule::Kind;
use predict::setup::{Recompute, Setup, Zero};

pub use choice::{Choice, Key};
pub use search::{Best, Change, Priced, Search};

/// What runs training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Megatron-LM.
    Megatron,
    /// Megatron-Bridge.
    Bridge,
    /// torchtitan.
    Torchtitan,
    /// DeepSpeed.
    Deepspeed,
}

impl Runner {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Megatron, Self::Bridge, Self::Torchtitan, Self::Deepspeed];

    /// Its name in sentences.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Megatron => "Megatron-LM",
            Self::Bridge => "Megatron-Bridge",
            Self::Torchtitan => "torchtitan",
            Self::Deepspeed => "DeepSpeed",
        }
    }

    /// Its name in arguments.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::Bridge => "bridge",
            Self::Torchtitan => "torchtitan",
            Self::Deepspeed => "deepspeed",
        }
    }

    /// Whose figures count for it.
    #[must_use]
    pub fn figures(self) -> &'static str {
        match self {
            Self::Megatron => "megatron-core",
            Self::Bridge => "nemo",
            Self::Torchtitan => "torchtitan",
            Self::Deepspeed => "deepspeed",
        }
    }
}

/// What may be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// What is sharded among data-parallel ranks, without and with a pipeline.
    pub zero: [&'static [Zero]; 2],
    /// What is computed again.
    pub recompute: &'static [Recompute],
    /// Orders of a pipeline's work; `OneForwardOneBackward` interleaves where stages have parts.
    pub schedules: &'static [Kind],
    /// Whether stages have parts.
    pub parts: bool,
    /// Whether sequences are split between products, where tensor-parallel ranks are.
    pub sequence: bool,
    /// Whether traffic of tensor parallelism can be overlapped; it needs split sequences.
    pub tensor_overlap: bool,
    /// Whether tokens can be sent to nodes once.
    pub once: bool,
}

/// Every value of each, whoever runs it.
const ZERO: &[Zero] = &[Zero::Nothing, Zero::Optimizer, Zero::Gradients, Zero::WeightsInNode, Zero::Weights];
/// The stages of ZeRO; with a pipeline, whose micro-batches add to gradients that are whole, no more than the first.
const BY_STAGE: [&[Zero]; 2] =
    [&[Zero::Nothing, Zero::Optimizer, Zero::Gradients, Zero::Weights], &[Zero::Nothing, Zero::Optimizer]];
const SCHEDULES: &[Kind] =
    &[Kind::OneForwardOneBackward, Kind::GPipe, Kind::Eager, Kind::ZeroBubbleH1, Kind::ZeroBubbleH2];

impl Space {
    /// What this runs.
    ///
    /// Sources: those of the readers of its configurations.
    #[must_use]
    pub fn of(runner: Runner) -> Self {
        match runner {
            Runner::Megatron | Runner::Bridge => Self {
                zero: BY_STAGE,
                recompute: &[Recompute::None, Recompute::Selective, Recompute::Full],
                schedules: &[Kind::OneForwardOneBackward],
                ..Self::whole()
            },
            Runner::Torchtitan => Self {
                // Parameters that are split at all are split between steps too.
                zero: [&[Zero::Nothing, Zero::Gradients, Zero::WeightsInNode, Zero::Weights]; 2],
                recompute: &[
                    Recompute::None,
                    Recompute::HalfOfProducts,
                    Recompute::HalfOfLayers,
                    Recompute::Full,
                ],
                once: false,
                ..Self::whole()
            },
            Runner::Deepspeed => Self {
                zero: BY_STAGE,
                recompute: &[Recompute::None, Recompute::Full],
                schedules: &[Kind::OneForwardOneBackward],
                parts: false,
                sequence: false,
                tensor_overlap: false,
                once: false,
            },
        }
    }

    /// What can be stated at all.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            zero: [ZERO; 2],
            recompute: &[
                Recompute::None,
                Recompute::Selective,
                Recompute::HalfOfProducts,
                Recompute::HalfOfLayers,
                Recompute::Full,
            ],
            schedules: SCHEDULES,
            parts: true,
            sequence: true,
            tensor_overlap: true,
            once: true,
        }
    }
}

/// Whether sequences must be split: where ranks share products and experts.
fn must_split(setup: &Setup, tp: u64) -> bool {
    setup.model.experts.is_some() && tp > 1
}
