//! The setups that a framework runs on the same devices with the same batch, each by what there is to choose, and
//! the cheapest of them.
//!
//! All are looked at: those whose [`floor`](predict::step::floor) is above the best found so far cannot be better
//! and are not priced further.

mod choice; // what there is to choose
mod search; // the cheapest setup, and the changes that help most

use ::export::{Cuts, Target};
use ::schedule::Kind;
use predict::setup::{Recompute, Setup, Zero};

pub use choice::{Choice, Key};
pub use search::{Best, Change, Nearest, Priced, Search};

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

    /// What plans for it are made for.
    #[must_use]
    pub fn target(self) -> Target {
        match self {
            Self::Megatron => Target::Megatron,
            Self::Bridge => Target::Bridge,
            Self::Torchtitan => Target::Torchtitan,
            Self::Deepspeed => Target::Deepspeed,
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
    pub zero: [Vec<Zero>; 2],
    /// Recomputation.
    pub recompute: &'static [Recompute],
    /// Orders of a pipeline's work; `OneForwardOneBackward` interleaves where stages have parts.
    pub schedules: Vec<Kind>,
    /// Whether stages have parts.
    pub parts: bool,
    /// Whether sequences are split between products, where tensor-parallel ranks are.
    pub sequence: bool,
    /// Whether traffic of tensor parallelism can be overlapped; it needs split sequences.
    pub tensor_overlap: bool,
    /// Into what sequences are cut.
    pub cuts: Cuts,
    /// Whether tokens can be sent to nodes once.
    pub once: bool,
    /// Whether tensor-parallel ranks may be beside stages, or beside sequences in parts: not with DeepSpeed's AutoTP.
    pub tensor_beside: bool,
}

/// Every value of each, whoever runs it.
const ZERO: &[Zero] = &[Zero::Nothing, Zero::Optimizer, Zero::Gradients, Zero::WeightsInNode, Zero::Weights];
const SCHEDULES: &[Kind] =
    &[Kind::OneForwardOneBackward, Kind::GPipe, Kind::Eager, Kind::ZeroBubbleH1, Kind::ZeroBubbleH2];

impl Space {
    /// What this runs: of what plans for it are made of, what can be stated.
    ///
    /// Sources: those of the readers of its configurations.
    #[must_use]
    pub fn of(runner: Runner) -> Self {
        let whole = Self::whole();
        let Some(range) = runner.target().range() else { return whole };
        // In nodes alone torchtitan splits them.
        let has = |it: &Zero| *it != Zero::WeightsInNode || runner == Runner::Torchtitan;
        let zero = range.zero.map(|stages| {
            ZERO.iter().copied().filter(|it| has(it) && stages.contains(&it.stage())).collect()
        });
        let recompute: &[Recompute] = match runner {
            Runner::Megatron | Runner::Bridge => &[Recompute::None, Recompute::Selective, Recompute::Full],
            Runner::Torchtitan => {
                &[Recompute::None, Recompute::HalfOfProducts, Recompute::HalfOfLayers, Recompute::Full]
            }
            Runner::Deepspeed => &[Recompute::None, Recompute::Full],
        };
        Self {
            zero,
            recompute,
            schedules: SCHEDULES.iter().copied().filter(|it| range.schedules.contains(it)).collect(),
            parts: range.schedules.contains(&Kind::Interleaved),
            sequence: range.sequence,
            tensor_overlap: range.sequence,
            cuts: range.cuts,
            once: matches!(runner, Runner::Megatron | Runner::Bridge),
            tensor_beside: runner != Runner::Deepspeed,
        }
    }

    /// What can be stated at all.
    #[must_use]
    pub fn whole() -> Self {
        Self {
            zero: [ZERO.to_vec(), ZERO.to_vec()],
            recompute: &[
                Recompute::None,
                Recompute::Selective,
                Recompute::HalfOfProducts,
                Recompute::HalfOfLayers,
                Recompute::Full,
            ],
            schedules: SCHEDULES.to_vec(),
            parts: true,
            sequence: true,
            tensor_overlap: true,
            cuts: Cuts::Parts,
            once: true,
            tensor_beside: true,
        }
    }
}

/// Whether sequences must be split: where ranks share products and experts.
fn must_split(setup: &Setup, tp: u64) -> bool {
    setup.model.experts.is_some() && tp > 1
}
