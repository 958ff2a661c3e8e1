//! Which examples are in which step: a function of the seed, on any number of ranks.

use kernels::random::mixed;

/// How far a run has come through its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// How often all examples have been gone through.
    pub epoch: u64,
    /// How many examples of this epoch have been used.
    pub used: u64,
}

/// The order of examples: another one in each epoch.
#[derive(Clone, Debug)]
pub struct Order {
    seed: u64,
    examples: u64,
    per_step: u64,
    position: Position,
    /// The epoch's examples in its order.
    shuffled: Vec<u64>,
}

impl Order {
    /// From a position on. A step has at least one example and at most all of them.
    pub fn new(seed: u64, examples: u64, per_step: u64, position: Position) -> Self {
        let shuffled = shuffled(examples, seed, position.epoch);
        Self { seed, examples, per_step, position, shuffled }
    }

    /// What has been used.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The examples of the next step. What does not fill a step at an epoch's end is left out.
    pub fn step(&mut self) -> Vec<u64> {
        if self.position.used + self.per_step > self.examples {
            self.position = Position { epoch: self.position.epoch + 1, used: 0 };
            self.shuffled = shuffled(self.examples, self.seed, self.position.epoch);
        }
        let start = self.position.used;
        self.position.used += self.per_step;
        let range = index(start)..index(self.position.used);
        self.shuffled.get(range).map(<[u64]>::to_vec).unwrap_or_default()
    }
}

/// The numbers below a count in an order that depends on the seed and the epoch, each order
/// equally likely.
///
/// Source: Durstenfeld, "Algorithm 235: random permutation", 1964.
fn shuffled(count: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    for place in (1..count).rev() {
        let other = below(random(&[seed, epoch, place]), place + 1);
        numbers.swap(index(place), index(other));
    }
    numbers
}

/// A random number scaled to below a bound.
fn below(random: u64, bound: u64) -> u64 {
    let scaled = (u128::from(random) * u128::from(bound)) >> u64::BITS;
    u64::try_from(scaled).unwrap_or(0)
}

/// What the randomness of a micro-batch starts from, in a step: apart from the orders of examples,
/// which have the same seed.
pub(crate) fn dropout_seed(seed: u64, step: u64, micro_batch: u64) -> i64 {
    const DROPOUT: u64 = 1 << 63;
    // Dropouts count on from it.
    (random(&[seed ^ DROPOUT, step, micro_batch]) >> 1).cast_signed()
}

/// What the rounding of parameters starts from, in a step: apart from what else has the same seed.
pub(crate) fn rounding_seed(seed: u64, step: u64) -> i64 {
    const ROUNDING: u64 = 1 << 62;
    // Blocks of parameters count on from it.
    (random(&[seed ^ ROUNDING, step]) >> 1).cast_signed()
}

/// A number that depends on these alone, and looks random: of each with what came before.
fn random(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| mixed(state ^ number))
}

/// A number of examples that are in memory or in a file.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
