//! How many micro-batches are under way at once in a stage of a pipeline.

use planner_ir::Phase;

/// Micro-batches that are under way at once, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Live {
    /// Whose forward part is done and whose backward part is not: what the forward part keeps for it
    /// is there so many times.
    pub backward: u64,
    /// Whose forward part is done and whose gradients of weights are not.
    pub gradients: u64,
    /// Whose backward part is done and whose gradients of weights are not, where those are a part of
    /// their own: what the one leaves for the other is there so many times besides.
    pub apart: u64,
}

impl Live {
    /// One micro-batch at a time.
    pub const ONE: Self = Self { backward: 1, gradients: 1, apart: 0 };

    /// Whether gradients of weights are a part of their own, beside which nothing of the backward part is.
    pub(crate) fn splits(self) -> bool {
        self.apart > 0
    }

    /// So many micro-batches, whose gradients of weights are made with the backward part.
    pub fn of(count: u64) -> Self {
        Self { backward: count, gradients: count, apart: 0 }
    }

    /// Those that are under way besides the one that is at work.
    pub(crate) fn others(self) -> Self {
        let less = |count: u64| count.saturating_sub(1);
        Self { backward: less(self.backward), gradients: less(self.gradients), apart: self.left() }
    }

    /// Of how many micro-batches is there what the backward part leaves for gradients of weights, whatever is at work:
    /// what has one place may be there no longer than from one part to the next.
    pub(crate) fn left(self) -> u64 {
        if self.apart > 1 { self.apart } else { 0 }
    }

    /// Of how many micro-batches a value is there at once that the forward part makes, if gradients
    /// use it in these phases.
    pub(crate) fn kept(self, is_used_in: impl Fn(Phase) -> bool) -> u64 {
        if is_used_in(Phase::Gradient) { self.gradients } else { self.backward }
    }

    /// Of how many micro-batches a value is there at once that is received and used in these phases.
    pub(crate) fn received(self, is_used_in: impl Fn(Phase) -> bool) -> u64 {
        let for_gradients = is_used_in(Phase::Backward) || is_used_in(Phase::Gradient);
        match is_used_in(Phase::Forward) {
            true if for_gradients => self.kept(is_used_in),
            false if is_used_in(Phase::Gradient) => self.apart + 1,
            _ => 1,
        }
    }
}
