//! What the weights of a model are to its training: parameters, constants, copies.

use std::fmt;

use crate::pattern::matches;

/// What the weights of a model are to its training. A weight of floating point that a gradient reaches
/// is a parameter unless this says otherwise.
///
/// Patterns are names of weights in which `*` stands for any text, also none. A parameter that a model
/// file has several times is meant by the names of its copies too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Patterns of the weights that were asked to stay as they are.
    pub frozen: Vec<String>,
    /// Patterns of the weights that were asked to be trained, whatever else is said of them.
    pub trained: Vec<String>,
    /// Patterns of the weights that were asked to be no copies.
    pub untied: Vec<String>,
    /// The weights that are no parameters, in order of the program.
    pub constants: Vec<Constant>,
    /// The weights that are copies of others.
    pub ties: Vec<Tie>,
}

/// A weight that is no parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Why it is none.
    pub why: Why,
}

/// A weight that is a copy of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tie {
    /// The name of the copy.
    pub copy: String,
    /// The name of the weight that it is a copy of.
    pub original: String,
    /// Whether rows and columns are exchanged.
    pub transposed: bool,
}

/// Why a weight is no parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The file says that it is a buffer or a constant, or has the name of one.
    Buffer,
    /// It is 0 and numbers so low that what they are added to does not count.
    Mask,
    /// It is one number, repeated, under a name that an exporter made.
    Uniform,
    /// It is numbers in even steps, or of one ratio: positions, slopes, frequencies.
    Progression,
    /// It is sines and cosines of positions.
    Waves,
    /// It is -1, 0 and 1 alone: labels, or what is selected.
    Signs,
    /// It repeats along a dimension, under a name that an exporter made.
    Expanded,
    /// It is added to scores of attention, under a name that an exporter made.
    Scores,
    /// Only angles are made of it.
    Angles,
    /// It is the numbers of 8 bits of a quantised weight.
    Quantised,
    /// It only scales or shifts quantised numbers.
    Scale,
    /// An exporter computed it, perhaps from parameters.
    Computed,
}

impl Why {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::Buffer,
        Self::Mask,
        Self::Uniform,
        Self::Progression,
        Self::Waves,
        Self::Signs,
        Self::Expanded,
        Self::Scores,
        Self::Angles,
        Self::Quantised,
        Self::Scale,
        Self::Computed,
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::Mask => "mask",
            Self::Uniform => "uniform",
            Self::Progression => "progression",
            Self::Waves => "waves",
            Self::Signs => "signs",
            Self::Expanded => "expanded",
            Self::Scores => "scores",
            Self::Angles => "angles",
            Self::Quantised => "quantised",
            Self::Scale => "scale",
            Self::Computed => "computed",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffer => "a buffer of the model, not a parameter",
            Self::Mask => "a mask: 0, and numbers so low that softmax makes them 0",
            Self::Uniform => "one number repeated, under a name that an exporter made",
            Self::Progression => "evenly spaced or geometric numbers: positions, slopes or frequencies",
            Self::Waves => "a table of sines and cosines of positions",
            Self::Signs => "-1, 0 and 1 only: labels or a selection",
            Self::Expanded => "a tensor that the exporter expanded along a dimension: if it came from a parameter, that is not in the file",
            Self::Scores => "added to attention scores, computed by the exporter, as position biases are",
            Self::Angles => "used in sines and cosines only, as frequencies of position embeddings are",
            Self::Quantised => "the integers or 8-bit numbers of a quantised weight, which have no gradient",
            Self::Scale => "a scale or zero point of quantised numbers and nothing else",
            Self::Computed => "computed by the exporter: if it came from a parameter, that is not in the file",
        })
    }
}

impl Roles {
    /// Whether a weight of floating point stays as it is.
    pub fn keeps(&self, name: &str) -> bool {
        let copies = self.ties.iter().filter(|tie| tie.original == name).map(|tie| tie.copy.as_str());
        let names: Vec<&str> = std::iter::once(name).chain(copies).collect();
        let any = |patterns: &[String]| patterns.iter().any(|it| names.iter().any(|name| matches(it, name)));
        let is_constant = || self.constants.iter().any(|it| it.name == name);
        !any(&self.trained) && (any(&self.frozen) || is_constant())
    }
}

#[cfg(test)]
mod tests;
