//! Where the least of lines is highest: a linear program.
//!
//! ```text
//! maximise    h
//! subject to  h  ≤  time_l + Σ_r μ_r excess_lr     for every line l
//!             Σ_r μ_r  ≤  most,   μ ≥ 0
//! ```

use good_lp::{Expression, ProblemVariables, Solution as _, SolverModel, Variable, constraint, variable};

use crate::chain::ChainChoices;
use crate::ilp::solver;

/// What rounding may take from a sum of multipliers, relative to it.
const ROUNDING: f64 = 1e-9;

/// A minimum as a line of the bound.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) choices: ChainChoices,
    pub(super) time: f64,
    /// For each row, by how much of the capacity it is exceeded.
    pub(super) excess: Vec<f64>,
}

impl Line {
    /// How high it is at multipliers.
    pub(super) fn at(&self, multipliers: &[f64]) -> f64 {
        self.time + self.over(multipliers)
    }

    /// By how much of the capacity the rows are exceeded, as they are priced.
    pub(super) fn over(&self, multipliers: &[f64]) -> f64 {
        multipliers.iter().zip(&self.excess).map(|(price, excess)| price * excess).sum()
    }

    /// By how much of the capacity the fullest row is exceeded.
    pub(super) fn beyond(&self) -> f64 {
        self.excess.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }
}

/// The highest point.
pub(super) struct Top {
    /// For each row, its price (cost per capacity).
    pub(super) multipliers: Vec<f64>,
    /// How high the lowest line is there.
    pub(super) height: f64,
    /// Whether it may be higher where prices are.
    pub(super) is_edge: bool,
}

/// The highest point under all lines, where all prices together are no more than `most`; nothing if the
/// solver does not find it.
pub(super) fn top(lines: &[Line], most: f64) -> Option<Top> {
    let count = lines.first()?.excess.len();
    // What no line exceeds has no price.
    let is_exceeded = |row: &usize| lines.iter().any(|line| line.excess[*row] > 0.0);
    let rows: Vec<usize> = (0..count).filter(is_exceeded).collect();
    let mut variables = ProblemVariables::new();
    // In parts of the most, so that numbers are neither large nor small.
    let shares: Vec<Variable> = rows.iter().map(|_| variables.add(variable().min(0.0))).collect();
    let unit = lines.iter().map(|line| line.time.abs()).fold(f64::MIN_POSITIVE, f64::max);
    let height = variables.add(variable());
    let mut model = variables.maximise(height).using(solver);
    for line in lines {
        let paid = |(&row, &share): (&usize, &Variable)| share * (most / unit * line.excess[row]);
        let paid: Expression = rows.iter().zip(&shares).map(paid).sum();
        model.add_constraint(constraint!(height - paid <= line.time / unit));
    }
    model.add_constraint(constraint!(shares.iter().sum::<Expression>() <= 1.0));
    let solution = model.solve().ok()?;
    let mut multipliers = vec![0.0; count];
    for (&row, &share) in rows.iter().zip(&shares) {
        multipliers[row] = most * solution.value(share).max(0.0);
    }
    let height = lines.iter().map(|line| line.at(&multipliers)).fold(f64::INFINITY, f64::min);
    let is_edge = multipliers.iter().sum::<f64>() >= most * (1.0 - ROUNDING);
    Some(Top { multipliers, height, is_edge })
}
