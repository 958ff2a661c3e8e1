//! The learning rate of each step.

use std::f64::consts::PI;

/// How the learning rate changes after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It stays.
    Constant,
    /// It falls by as much in each step.
    Linear,
    /// It falls slowly, then fast, then slowly, as half a wave.
    Cosine,
}

/// How the learning rate changes from step to step.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// How it changes after the warm-up.
    pub shape: Shape,
    /// What it is after the warm-up.
    pub peak: f64,
    /// What it falls to.
    pub least: f64,
    /// In how many steps it rises from 0.
    pub warmup: u64,
    /// The number of the last step.
    pub last: u64,
}

impl Schedule {
    /// The learning rate of a step, numbered from 1.
    ///
    /// In the warm-up `peak * step / warmup`. Then, with the part `t = (step - warmup) / (last -
    /// warmup)` of the way: constant `peak`, linear `peak + (least - peak) t`, cosine
    /// `least + (peak - least) (1 + cos(pi t)) / 2`.
    ///
    /// Source of the cosine: Loshchilov and Hutter, "SGDR", 2017, equation 5, without restarts.
    pub fn rate(&self, step: u64) -> f64 {
        if step <= self.warmup {
            return self.peak * part(step, self.warmup);
        }
        let t = part(step - self.warmup, self.last.saturating_sub(self.warmup)).min(1.0);
        match self.shape {
            Shape::Constant => self.peak,
            Shape::Linear => self.peak + (self.least - self.peak) * t,
            Shape::Cosine => self.least + (self.peak - self.least) * (1.0 + (PI * t).cos()) / 2.0,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a quotient of numbers of steps is rounded anyway")]
fn part(number: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { number as f64 / of as f64 }
}

#[cfg(test)]
mod tests;
