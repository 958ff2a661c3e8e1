//! How long a pipeline takes, in closed form.
//!
//! With `p` stages, `m` micro-batches, `v` parts of the model in a stage, `T = F + B + W` the time
//! of a stage for a micro-batch (forward, gradients by operands, gradients by weights) and `c`
//! that of a message to the next stage:
//!
//! ```text
//! 1F1B                (m + p − 1) T + 2 (p − 1) (1 + (m − 1)/p) c
//! interleaved 1F1B    m T + (p − 1)/v · T + (2 v p − p − 2) c
//! zero bubble H1      m T + (p − 1) (F + B − W) + 4 (p − 1) c
//! zero bubble H2      m T + (p − 1) (F + B − 2 W) + 2 (p − 1) c
//! ```
//!
//! Source: Narayanan et al., SC21, section 2.2; Qi et al., "Zero Bubble Pipeline Parallelism",
//! ICLR 2024, tables 1 and 5, whose bubbles these reproduce.

/// Times of a stage for one micro-batch, in any unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// The forward pass.
    pub forward: f64,
    /// Gradients by operands.
    pub input: f64,
    /// Gradients by weights.
    pub weight: f64,
    /// A message to the next stage.
    pub message: f64,
}

/// An order of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// One forward, one backward.
    OneForwardOneBackward,
    /// The same with so many parts of the model in each stage.
    Interleaved(f64),
    /// Zero bubble in the memory of one forward, one backward.
    ZeroBubbleH1,
    /// Zero bubble in about twice that.
    ZeroBubbleH2,
}

impl Stage {
    /// The time of a micro-batch.
    #[must_use]
    pub fn whole(&self) -> f64 {
        self.forward + self.input + self.weight
    }
}

/// The time of `m` micro-batches on `p` equal stages.
#[must_use]
pub fn makespan(order: Order, stage: &Stage, p: f64, m: f64) -> f64 {
    m * stage.whole() + bubble(order, stage, p) + messages(order, stage, p, m)
}

/// The time in which a stage of `p` has nothing to do.
#[must_use]
pub fn bubble(order: Order, stage: &Stage, p: f64) -> f64 {
    let whole = stage.whole();
    let idle = match order {
        Order::OneForwardOneBackward => whole,
        Order::Interleaved(parts) => whole / parts,
        Order::ZeroBubbleH1 => stage.forward + stage.input - stage.weight,
        Order::ZeroBubbleH2 => stage.forward + stage.input - 2.0 * stage.weight,
    };
    (p - 1.0) * idle
}

/// The time in which a stage of `p` waits for messages.
#[must_use]
pub fn messages(order: Order, stage: &Stage, p: f64, m: f64) -> f64 {
    let count = match order {
        _ if p <= 1.0 => 0.0,
        Order::OneForwardOneBackward => 2.0 * (p - 1.0) * (1.0 + (m - 1.0) / p),
        Order::Interleaved(parts) => 2.0 * parts * p - p - 2.0,
        Order::ZeroBubbleH1 => 4.0 * (p - 1.0),
        Order::ZeroBubbleH2 => 2.0 * (p - 1.0),
    };
    count * stage.message
}

#[cfg(test)]
mod tests;
