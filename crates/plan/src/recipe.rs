//! How a training step was derived from a model, in the words of the one who asked for it.

use std::fmt;

use planner_ir::Optimizer;

use crate::roles::Roles;

/// What was asked for when a model was made a training step.
///
/// Patterns are names of parameters in which `*` stands for any text, also none.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// What is made small.
    pub loss: Loss,
    /// How parameters follow their gradients; its decay is that of parameters not excepted.
    pub optimizer: Optimizer,
    /// In what the model computes.
    pub precision: Precision,
    /// Where parameters are in f32, if the model computes with less.
    pub masters: Masters,
    /// How many micro-batches a step has; at least 1.
    pub micro_batches: u64,
    /// The largest norm of all gradients together; where it is larger, they are scaled down to it.
    pub clip: Option<f64>,
    /// Which parameters do not decay.
    pub no_decay: NoDecay,
    /// For each forward block of the model, in order, what of it is recomputed for the
    /// gradients.
    pub recompute: Vec<Recompute>,
    /// Which weights are parameters, and which of these are one.
    pub roles: Roles,
    /// The forward blocks, by their numbers, ascending, whose norms and cross-entropies are spelled
    /// out, so that the rows that they are over may be split.
    pub spelled: Vec<usize>,
}

impl Recipe {
    /// What makes a loss small so, if nothing else is asked for: one micro-batch, in the types of the model's file, of
    /// every parameter.
    pub fn new(loss: Loss, optimizer: Optimizer) -> Self {
        Self {
            loss,
            optimizer,
            precision: Precision::File,
            masters: Masters::default(),
            micro_batches: 1,
            clip: None,
            no_decay: NoDecay::default(),
            recompute: vec![],
            roles: Roles::default(),
            spelled: vec![],
        }
    }
}

/// What a training step makes small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The model's output of that name.
    Output(String),
    /// The mean cross-entropy of an output with the labels that count.
    CrossEntropy {
        /// The name of the output, the scores of classes.
        logits: String,
        /// The name of the input that says which class is right.
        labels: String,
    },
}

/// In what a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// Everything in f32.
    F32,
    /// In bf16, with parameters kept in f32 besides.
    Bf16,
    /// In bf16, with parameters in bf16 alone: after each step they are rounded by chance, so that
    /// steps too small for bf16 are made now and then, and on the average in full.
    Bf16Stochastic,
    /// In bf16, but for the products of linear layers: of numbers of 8 bits, each value by one scale that
    /// follows from its largest magnitude.
    Fp8,
    /// The same, each value by the largest of its magnitudes in the steps before.
    Fp8Delayed,
    /// In bf16, but for the products of linear layers: of numbers of 8 bits with a scale for each 32 of them.
    Mxfp8,
    /// In bf16, but for the products of linear layers of all but the last blocks: of numbers of 4 bits with a
    /// scale for each 16 of them and one for each value.
    Nvfp4,
    /// In what the model's file says, value by value; what it has in less than f32 is kept in f32 besides.
    File,
}

/// Where parameters are in f32, if the model computes with less. Of [`Precision::Bf16Stochastic`] they are nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Masters {
    /// Beside parameters in what the model computes in, which follow from them after each step.
    #[default]
    Beside,
    /// Alone: what the model computes with is converted in each micro-batch, and once more for the gradients.
    Alone,
}

/// How many narrow numbers share a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scaling {
    /// All of a value.
    Whole,
    /// All of a value, by its magnitudes in the steps before.
    Delayed,
    /// Each 32 that are summed one after another.
    Blocks,
    /// Each 16 of 4 bits that are summed one after another, of weights 16 by 16, and all of a value one more.
    Nvfp4,
}

impl Scaling {
    /// The part of a model's layers that stay in 16 bits, the last ones, where others are of 4 (percent).
    ///
    /// Source: NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv 2509.25149, section 4.1: some 15 % of
    /// the linear layers, most of them at the end of the network.
    const WIDE: usize = 15;

    /// The precision that scales so.
    pub fn precision(self) -> Precision {
        match self {
            Self::Whole => Precision::Fp8,
            Self::Delayed => Precision::Fp8Delayed,
            Self::Blocks => Precision::Mxfp8,
            Self::Nvfp4 => Precision::Nvfp4,
        }
    }

    /// How many of so many layers stay in 16 bits, the last ones.
    pub fn wide(self, layers: usize) -> usize {
        match self {
            Self::Whole | Self::Delayed | Self::Blocks => 0,
            Self::Nvfp4 => (layers * Self::WIDE + 50) / 100,
        }
    }
}

impl Precision {
    /// How narrow numbers are scaled, where products of linear layers are of such.
    pub fn scaling(self) -> Option<Scaling> {
        match self {
            Self::Fp8 => Some(Scaling::Whole),
            Self::Fp8Delayed => Some(Scaling::Delayed),
            Self::Mxfp8 => Some(Scaling::Blocks),
            Self::Nvfp4 => Some(Scaling::Nvfp4),
            Self::F32 | Self::Bf16 | Self::Bf16Stochastic | Self::File => None,
        }
    }
}

/// Which parameters do not decay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NoDecay {
    /// Patterns of their names.
    pub names: Vec<String>,
    /// Whether all of one dimension or none are among them: biases, scales of norms.
    pub vectors: bool,
}

/// What of a block is recomputed for the gradients, rather than kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recompute {
    /// Nothing: all that gradients need is kept.
    Nothing,
    /// What takes much memory and little time, the inside of attention above all.
    ///
    /// Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer
    /// Models", 2022, section 5.
    Selective,
    /// All but the block's input.
    Full,
    /// All but what these operations of the block make: their numbers among the operations of the
    /// forward block, ascending.
    AllBut(Vec<usize>),
}

impl fmt::Display for Loss {
    /// The output's name, or `cross-entropy:logits,labels`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output(name) => f.write_str(name),
            Self::CrossEntropy { logits, labels } => write!(f, "cross-entropy:{logits},{labels}"),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "fp32",
            Self::Bf16 => "bf16",
            Self::Bf16Stochastic => "bf16-stochastic",
            Self::Fp8 => "fp8",
            Self::Fp8Delayed => "fp8-delayed",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
            Self::File => "file",
        })
    }
}

impl fmt::Display for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Beside => "beside",
            Self::Alone => "alone",
        })
    }
}

impl fmt::Display for Recompute {
    /// `none`, `selective`, `full`, or `all but 2,5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Selective => f.write_str("selective"),
            Self::Full => f.write_str("full"),
            Self::AllBut(kept) => {
                let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
                write!(f, "all but {}", kept.join(","))
            }
        }
    }
}
