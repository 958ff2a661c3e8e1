//! What is still to be computed: a tree over the instructions of a stretch (Fenwick, "A New Data Structure for
//! Cumulative Frequency Tables", 1994).

/// Seconds of the operations that are not issued, by their place in the order of the program.
pub(super) struct Remaining {
    /// Sums of as many instructions as the lowest bit of each number says, which end there; counted from one.
    sums: Vec<f64>,
}

impl Remaining {
    /// Nothing is issued of what takes so long (seconds).
    pub(super) fn new(seconds: impl ExactSizeIterator<Item = f64>) -> Self {
        let mut sums = vec![0.0; seconds.len() + 1];
        for (index, seconds) in seconds.enumerate() {
            sums[index + 1] = seconds;
        }
        for at in 1..sums.len() {
            let above = at + lowest(at);
            if above < sums.len() {
                sums[above] += sums[at];
            }
        }
        Self { sums }
    }

    /// An operation that takes so long is issued (seconds).
    pub(super) fn issue(&mut self, operation: usize, seconds: f64) {
        let mut at = operation + 1;
        while at < self.sums.len() {
            self.sums[at] -= seconds;
            at += lowest(at);
        }
    }

    /// What is not issued of the operations before an instruction (seconds).
    pub(super) fn before(&self, end: usize) -> f64 {
        let (mut at, mut sum) = (end, 0.0);
        while at > 0 {
            sum += self.sums[at];
            at -= lowest(at);
        }
        sum.max(0.0)
    }

    /// The first instruction before which so much is not issued; their number if there is none (seconds).
    pub(super) fn reached(&self, seconds: f64) -> usize {
        let (mut at, mut left) = (0, seconds);
        let mut bit = self.sums.len().next_power_of_two();
        while bit > 0 {
            if at + bit < self.sums.len() && self.sums[at + bit] < left {
                at += bit;
                left -= self.sums[at];
            }
            bit /= 2;
        }
        (at + 1).min(self.sums.len() - 1)
    }
}

/// The lowest bit of a number that is not 0.
fn lowest(number: usize) -> usize {
    number & number.wrapping_neg()
}
