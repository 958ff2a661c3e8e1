//! The tokens that experts get.

/// How tokens fall to experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Equally many to each.
    Balanced,
    /// By a power law with this exponent, of numbers from 1 to four fifths of the tokens.
    PowerLaw(f64),
}

/// What the busiest rank has of the tokens of its experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    /// Rows of all its experts together.
    pub(super) rows: f64,
    /// Rows of the busiest expert.
    pub(super) most: f64,
    /// How many of its experts have any, on average.
    pub(super) active: f64,
    /// How many tiles of rows they have.
    pub(super) tiles: f64,
}

/// Rows of a tile.
const TILE: f64 = 64.0;

/// The part of the tokens from which a power law has no more experts.
const REACH: f64 = 0.8;

/// The load of the busiest of `ranks` ranks, which have `experts` experts together, where `tokens` tokens take
/// `active` experts each.
///
/// The busiest rank has the busiest expert, and of the others one of each run of as many as there are ranks,
/// ordered by their tokens. An expert has a token once.
///
/// Source: quantiles of a bounded power law: Clauset, Shalizi and Newman, "Power-law distributions in
/// empirical data", SIAM Review 51(4), 2009, appendix D.
pub(super) fn load(distribution: Distribution, tokens: u64, active: u64, experts: u64, ranks: u64) -> Load {
    let (tokens, experts) = (number(tokens), experts.max(1));
    let share = shares(distribution, tokens, experts);
    let step = usize::try_from(ranks.max(1)).unwrap_or(usize::MAX);
    let own = usize::try_from((experts / ranks.max(1)).max(1)).unwrap_or(usize::MAX);
    let places = std::iter::once(0).chain((1..share.len()).step_by(step)).take(own);
    let mut load = Load { rows: 0.0, most: 0.0, active: 0.0, tiles: 0.0 };
    for place in places {
        let rows = (share[place] * tokens * number(active)).min(tokens);
        let any = match distribution {
            Distribution::Balanced => rows.min(1.0),
            Distribution::PowerLaw(_) => -(-rows).exp_m1(),
        };
        load.rows += rows;
        load.most = load.most.max(rows);
        load.active += any;
        load.tiles += any * (rows.max(1.0) / TILE).ceil();
    }
    load
}

/// The parts of all tokens that experts get, the busiest first.
fn shares(distribution: Distribution, tokens: f64, experts: u64) -> Vec<f64> {
    let count = number(experts);
    let Distribution::PowerLaw(exponent) = distribution else {
        return (0..experts).map(|_| 1.0 / count).collect();
    };
    // At an exponent of 1 the quantiles have another form, whose neighbourhood is as good.
    let power = if (1.0 - exponent).abs() < 1e-6 { 1e-6 } else { 1.0 - exponent };
    let end = (REACH * tokens).max(2.0).powf(power) - 1.0;
    let quantile = |place: u64| (end * (number(place) + 0.5) / count + 1.0).powf(1.0 / power);
    let quantiles: Vec<f64> = (0..experts).rev().map(quantile).collect();
    let all: f64 = quantiles.iter().sum();
    quantiles.into_iter().map(|it| it / all).collect()
}

fn number(count: u64) -> f64 {
    crate::units::exact(count)
}
