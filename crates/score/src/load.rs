//! The worst load of experts: how many more tokens than its even share the busiest of the ranks that share experts
//! is taken to have.

use std::fmt;

use predict::experts::imbalance;
use predict::setup::Setup;

/// The load of the busiest expert over its even share, if nobody says otherwise: that of the largest imbalance of
/// trained models in the source. Of a rank, which has several experts, it is no more.
pub const USUAL: f64 = 1.72;

/// Source of [`USUAL`]: 1 + `MaxVio_global`, 0.72 of the model of 1 B parameters that is trained with an auxiliary
/// loss, 0.52 of that of 3 B; 0.04 without the loss, with biases of the router.
const SOURCE: &str =
    "Wang et al. 2024, arXiv 2408.15664, table 2: the busiest expert, balanced by an auxiliary loss";

/// Who says how much the busiest rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Published.
    Usual,
    /// The person who asks.
    Asked,
    /// The configuration, which lets no expert have more; by this argument.
    Held(String),
}

/// A setup with the worst load of its experts.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// It.
    pub setup: Setup,
    /// Tokens of the busiest rank over its even share, of all that can be.
    pub imbalance: f64,
    /// Who says so.
    pub source: Source,
}

impl Worst {
    /// That of a setup: what is asked for, or what is usual, if the configuration does not hold experts to less.
    /// None without experts.
    #[must_use]
    pub fn of(setup: &Setup, asked: Option<f64>, held: Option<&(f64, String)>) -> Option<Self> {
        let experts = setup.model.experts?;
        let wanted = asked.map_or((USUAL, Source::Usual), |it| (it, Source::Asked));
        let held = held.filter(|(most, _)| *most < wanted.0);
        let (most, source) = held.map_or(wanted, |(most, by)| (*most, Source::Held(by.clone())));
        let setup = Setup { imbalance: most.max(setup.imbalance), ..setup.clone() };
        Some(Self { imbalance: imbalance(&setup, experts), setup, source })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str(SOURCE),
            Self::Asked => f.write_str("--imbalance"),
            Self::Held(argument) => f.write_str(argument),
        }
    }
}

#[cfg(test)]
mod tests;
