//! A training run as somebody states it: a model, a batch, degrees of parallelism, and what is
//! recomputed, with Megatron's words.

mod dense; // layers without experts among others with some

pub use dense::Kinds;

use std::fmt;

use ::schedule::Kind;
use cost_models::machine::{Machine, Precision};
use cost_models::model_flops::{Counted, ModelFlops, StepWork};
use cost_models::units::exact;

use crate::model::{Embedding, Model};
use crate::table::MOST;

/// A training run on a number of equal devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// What is trained.
    pub model: Model,
    /// Which part of its weights learns.
    pub learns: Learns,
    /// How many ranks compute parts of each product (tensor parallelism).
    pub tp: u64,
    /// How many stages the layers are cut into (pipeline parallelism).
    pub pp: u64,
    /// How many parts of the model a stage has (virtual stages).
    pub vpp: u64,
    /// How many layers each stage has.
    pub stages: Vec<u64>,
    /// How many ranks share an example's tokens (context parallelism).
    pub cp: u64,
    /// How many ranks share the experts of a layer (expert parallelism).
    pub ep: u64,
    /// How many ranks compute parts of each product of an expert (expert tensor parallelism).
    pub etp: u64,
    /// How tokens reach their experts; `None` for the framework's way.
    pub dispatch: Option<Dispatch>,
    /// How many tokens the busiest of the ranks that share experts has, over its even share: 1 where all have as
    /// many.
    pub imbalance: f64,
    /// How many ranks compute the same on other examples (data parallelism).
    pub dp: u64,
    /// Examples that a pipeline sees at once (micro-batch).
    pub mbs: u64,
    /// Whether what is called an example is several, that attend to themselves alone.
    pub packed: bool,
    /// Examples of a step (global batch).
    pub gbs: u64,
    /// What is sharded among data-parallel ranks.
    pub zero: Zero,
    /// Whether what tensor-parallel ranks would hold alike is split along the sequence.
    pub seq_parallel: bool,
    /// Recomputation.
    pub recompute: Recompute,
    /// How attention is computed.
    pub attention: Attention,
    /// The arithmetic of products.
    pub precision: Arithmetic,
    /// The year of the framework's version; `None` for the one that figures are for.
    pub year: Option<u64>,
    /// Bytes of an element of a gradient as it is reduced; `None` for the framework's own.
    pub gradient_bytes: Option<u64>,
    /// In which order a stage works on micro-batches; interleaved, if it is one forward, one backward
    /// and a stage has several parts.
    pub schedule: Kind,
    /// What runs as graphs of kernels, which a host starts as one.
    pub graphs: Vec<Graph>,
    /// Whether the traffic of data parallelism runs beside computing.
    pub dp_overlap: bool,
    /// Whether the traffic of tensor parallelism does.
    pub tp_overlap: bool,
}

/// Which part of the weights learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learns {
    /// All of them.
    Everything,
    /// Adapters of low rank beside them: the weights have no gradients.
    Adapters,
}

/// What is sharded among data-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Zero {
    /// Nothing.
    Nothing,
    /// States of the optimizer.
    Optimizer,
    /// Those and gradients.
    Gradients,
    /// Those and weights, in the ranks of a node, with a copy in each node.
    WeightsInNode,
    /// Those and weights.
    Weights,
}

impl Zero {
    /// Its number, in nodes or among all.
    #[must_use]
    pub fn stage(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Optimizer => 1,
            Self::Gradients => 2,
            Self::WeightsInNode | Self::Weights => 3,
        }
    }
}

/// Recomputation in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    None,
    /// The core of attention: scores, softmax, and their product with values.
    Selective,
    /// Every second product, and what lies between products.
    HalfOfProducts,
    /// Every second layer.
    HalfOfLayers,
    /// Every layer.
    Full,
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Scores are written to memory.
    Unfused,
    /// One kernel of FlashAttention 2, which PyTorch has too; scores stay in it.
    Flash,
    /// One kernel that uses the device's own matrix instructions: cuDNN, FlashAttention 3.
    Fused,
    /// The same in 8 bits.
    FusedF8,
}

/// How tokens reach the ranks of their experts, and their results come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// An all-to-all: a token is sent once for each of its experts.
    AllToAll,
    /// DeepEP, HybridEP: a token is sent once to each node that has experts of it, and there once to each
    /// rank.
    OncePerNode,
}

/// A part of a step that runs as graphs of kernels, which a host starts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// The attention of every layer.
    Attention,
    /// The feed-forward part of layers without experts.
    Mlp,
    /// Everything that experts add to a layer, and the expert that all tokens go to.
    Experts,
    /// The router, with the norm before it and the expert that all tokens go to.
    Router,
    /// What is made of the router's choices before tokens are sent.
    Preprocess,
    /// Forward and backward passes of all micro-batches.
    Iteration,
}

/// The arithmetic of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// 16-bit floating point.
    F16,
    /// The upper half of 32-bit floating point.
    Bf16,
    /// 8-bit floating point, attention and the rest in bf16.
    F8,
    /// 4-bit floating point, attention and the rest in bf16.
    F4,
}

impl Arithmetic {
    /// The precision of the products of layers; four bits have the peak of eight.
    #[must_use]
    pub fn of_layers(self) -> Precision {
        match self {
            Self::F16 => Precision::F16,
            Self::Bf16 => Precision::Bf16,
            Self::F8 | Self::F4 => Precision::F8,
        }
    }

    /// The precision of attention and logits.
    #[must_use]
    pub fn of_rest(self) -> Precision {
        match self {
            Self::F16 => Precision::F16,
            Self::Bf16 | Self::F8 | Self::F4 => Precision::Bf16,
        }
    }
}

/// Why numbers are not a setup.
#[derive(Clone, Debug, PartialEq)]
pub enum SetupError {
    /// More layers that predict further tokens than there are.
    Further {
        /// So many.
        further: u64,
        /// Of so many layers.
        layers: u64,
    },
    /// Something that must be at least 1 is 0.
    Zero(&'static str),
    /// More of something than any setup has.
    Large {
        /// Of what.
        what: &'static str,
        /// How many there may be.
        most: f64,
    },
    /// The batch is not that of whole micro-batches on all replicas.
    Batch {
        /// Examples of a step.
        gbs: u64,
        /// Examples of a micro-batch.
        mbs: u64,
        /// Replicas.
        dp: u64,
    },
    /// Dense layers that are not layers of the model in ascending order, or not among others with experts.
    Dense {
        /// Layers that there are.
        layers: u64,
    },
    /// Stages that do not have all layers.
    Stages {
        /// Layers of the model.
        layers: u64,
        /// Layers of all stages.
        staged: u64,
    },
    /// A year in which there is no such framework.
    Year(u64),
    /// Experts that ranks cannot share equally.
    Experts {
        /// Experts of a layer.
        experts: u64,
        /// Ranks that share them.
        ep: u64,
    },
    /// Ranks of a stage that do not fall into groups of expert parallelism.
    ExpertRanks {
        /// Ranks of a group: ep x etp.
        group: u64,
        /// Ranks of a stage: tp x cp x dp.
        ranks: u64,
    },
}

/// The years of frameworks: there were no transformers before.
pub const YEARS: std::ops::RangeInclusive<u64> = 2017..=2099;

impl Setup {
    /// How many devices it runs on.
    #[must_use]
    pub fn devices(&self) -> u64 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.cp).saturating_mul(self.dp)
    }

    /// How many micro-batches a pipeline sees in a step.
    #[must_use]
    pub fn microbatches(&self) -> u64 {
        self.gbs / (self.mbs * self.dp)
    }

    /// Tokens of a micro-batch that a rank has.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.mbs.saturating_mul(self.model.seq).div_ceil(self.cp)
    }

    /// How many of a stage's layers predict further tokens: they are the last of all.
    #[must_use]
    pub fn further(&self, stage: usize) -> u64 {
        let until: u64 = self.stages.iter().take(stage + 1).sum();
        let first = self.model.layers.saturating_sub(self.model.further);
        until.saturating_sub(first).min(self.stages.get(stage).copied().unwrap_or(0))
    }

    /// How often a stage passes through the head: for the next token in the last one, and for each further token where
    /// that is predicted.
    #[must_use]
    pub fn heads(&self, stage: usize) -> u64 {
        u64::from(stage + 1 == self.stages.len()) + self.further(stage)
    }

    /// How many tables of tokens a stage has: the embedding's in the first and where further tokens are predicted,
    /// that of the head where there is one, or one that is both.
    #[must_use]
    pub fn tables(&self, stage: usize) -> u64 {
        let embeds = stage == 0 || self.further(stage) > 0;
        let both = embeds && self.heads(stage) > 0 && self.model.embedding == Embedding::Tied;
        u64::from(embeds) + u64::from(self.heads(stage) > 0) - u64::from(both)
    }

    /// Ranks of a stage.
    #[must_use]
    pub fn stage_ranks(&self) -> u64 {
        self.tp.saturating_mul(self.cp).saturating_mul(self.dp)
    }

    /// What the model needs for a step, as utilisation counts it: the products of weights that learn have two
    /// gradients, of others one.
    #[must_use]
    pub fn work(&self) -> StepWork {
        let tokens = self.gbs * self.model.seq;
        let times = match self.learns {
            Learns::Everything => 3.0,
            Learns::Adapters => 2.0,
        };
        let step = |it: Counted| Counted { products: times * it.products, ..3.0 * it };
        let [layers, rest] = self.model.forward_flops(exact(tokens)).map(step);
        let mut flops = ModelFlops::of(self.precision.of_layers(), layers);
        flops += ModelFlops::of(self.precision.of_rest(), rest);
        StepWork { flops, tokens, ..StepWork::default() }
    }

    /// Sizes by which others are multiplied, and the most that each may be.
    fn sizes(&self) -> [(&'static str, f64, f64); 7] {
        let model = &self.model;
        let dense = model.dense.as_ref().map_or(0, |it| it.width);
        let widths = [model.hidden, model.ffn_hidden, dense, model.vocab, model.layers];
        let widest = widths.into_iter().map(exact).fold(0.0, f64::max);
        let heads = (exact(model.heads) + 2.0 * exact(model.kv_heads)) * exact(model.head_size);
        let tokens = exact(self.mbs) * exact(model.seq);
        let most = exact(MOST);
        [
            ("devices", exact(self.devices()), exact(Machine::DEVICE_LIMIT)),
            ("parts of a stage", exact(self.vpp), exact(model.layers)),
            ("sizes of the model", widest, most),
            ("columns of heads", heads, 4.0 * most),
            ("tokens of a micro-batch", tokens, most * 2048.0),
            ("scores of a layer", tokens * exact(model.seq) * exact(model.heads), most * most * 4096.0),
            ("examples of a step", exact(self.gbs), most),
        ]
    }

    /// Fails with what makes no sense.
    pub fn check(&self) -> Result<(), SetupError> {
        let counts = [
            ("tp", self.tp),
            ("pp", self.pp),
            ("vpp", self.vpp),
            ("cp", self.cp),
            ("ep", self.ep),
            ("etp", self.etp),
            ("dp", self.dp),
            ("mbs", self.mbs),
            ("gbs", self.gbs),
            ("layers", self.model.layers),
            ("hidden", self.model.hidden),
            ("heads", self.model.heads),
            ("kv_heads", self.model.kv_heads),
            ("head_size", self.model.head_size),
            ("ffn_hidden", self.model.ffn_hidden),
            ("width of dense layers", self.model.dense.as_ref().map_or(1, |it| it.width)),
            ("vocab", self.model.vocab),
            ("seq", self.model.seq),
        ];
        if self.model.further >= self.model.layers {
            return Err(SetupError::Further { further: self.model.further, layers: self.model.layers });
        }
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(SetupError::Zero(name));
        }
        if let Some(dense) = &self.model.dense {
            let layers = self.model.layers - self.model.further;
            let ordered = dense.layers.is_sorted_by(|a, b| a < b);
            let there =
                dense.layers.last().is_some_and(|it| *it < layers) && self.model.dense_layers() < layers;
            if !ordered || !there || self.model.experts.is_none() {
                return Err(SetupError::Dense { layers });
            }
        }
        let large = self.sizes().into_iter().find(|(_, size, most)| size > most);
        if let Some((what, _, most)) = large {
            return Err(SetupError::Large { what, most });
        }
        if !self.gbs.is_multiple_of(self.mbs.saturating_mul(self.dp)) {
            return Err(SetupError::Batch { gbs: self.gbs, mbs: self.mbs, dp: self.dp });
        }
        let staged = self.stages.iter().sum();
        if staged != self.model.layers || u64::try_from(self.stages.len()) != Ok(self.pp) {
            return Err(SetupError::Stages { layers: self.model.layers, staged });
        }
        if let Some(year) = self.year.filter(|it| !YEARS.contains(it)) {
            return Err(SetupError::Year(year));
        }
        match self.model.experts {
            Some(it) if !it.count.is_multiple_of(self.ep) => {
                Err(SetupError::Experts { experts: it.count, ep: self.ep })
            }
            Some(_) if !self.stage_ranks().is_multiple_of(self.ep.saturating_mul(self.etp)) => {
                let group = self.ep.saturating_mul(self.etp);
                Err(SetupError::ExpertRanks { group, ranks: self.stage_ranks() })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Year(year) => {
                let (first, last) = (YEARS.start(), YEARS.end());
                write!(f, "the framework's year is {year}, expected {first} to {last}")
            }
            Self::Further { further, layers } => {
                write!(f, "{further} of {layers} layers predict further tokens, expected fewer than all")
            }
            Self::Zero(name) => write!(f, "`{name}` is 0, expected at least 1"),
            Self::Dense { layers } => {
                write!(
                    f,
                    "layers without experts are not some, in ascending order, of {layers} of which others have experts"
                )
            }
            Self::Large { what, most } => write!(f, "too many {what}, expected at most {most}"),
            Self::Batch { gbs, mbs, dp } => {
                write!(f, "a batch of {gbs} examples, expected a multiple of mbs x dp = {mbs} x {dp}")
            }
            Self::Stages { layers, staged } => {
                write!(f, "stages with {staged} layers, expected {layers}, as the model has, in pp stages")
            }
            Self::Experts { experts, ep } => {
                write!(f, "{experts} experts on ep={ep} ranks, expected equal shares")
            }
            Self::ExpertRanks { group, ranks } => {
                write!(f, "ep x etp is {group}, expected a divisor of tp x cp x dp = {ranks}")
            }
        }
    }
}

impl std::error::Error for SetupError {}
