//! The layouts in which a value may be handed on, shared, or at rest.

use planner_ir::{Layout, ValueId};
use rewrite::{Splits, handed_layouts, owing_layouts};

use super::Assembly;
use crate::section::Sharing;

impl Assembly<'_> {
    /// The layouts in which a value is handed on, or returned: those in which it is shared, where it is
    /// handed on in no other way.
    pub(super) fn handed_layouts(&self, value: ValueId) -> Vec<usize> {
        if self.section.crosses(value) { self.crossing_layouts(value) } else { self.shared_layouts(value) }
    }

    /// The layouts in which neighbours may have a value in common.
    pub(super) fn crossing_layouts(&self, value: ValueId) -> Vec<usize> {
        let type_ = self.section.graph.type_of(value);
        let all = Splits::All;
        match self.section.sharing(value) {
            Some(Sharing::Anywhere) if self.summed[value.0] => {
                self.numbers(value, &owing_layouts(self.mesh, type_, all))
            }
            _ => self.numbers(value, &handed_layouts(self.mesh, type_, all, self.space.striped)),
        }
    }

    /// The layouts in which a value may be shared.
    pub(super) fn shared_layouts(&self, value: ValueId) -> Vec<usize> {
        match self.section.sharing(value) {
            Some(Sharing::Whole) => {
                let rank = self.section.graph.type_of(value).rank();
                self.numbers(value, &[Layout::replicated(rank)])
            }
            _ => self.crossing_layouts(value),
        }
    }

    /// The layouts in which a value may be at rest: whole, but for sums over micro-batches. Those
    /// of a state are possible for what it becomes.
    pub(super) fn rest_layouts(&self, value: ValueId) -> Vec<usize> {
        let own = &self.space.layouts[value.0];
        let next = self.section.graph.next(value).map(|next| &self.space.layouts[next.0]);
        let possible = |layout: &Layout| {
            let whole = layout.owed.is_empty() || self.summed[value.0];
            whole && next.is_none_or(|next| next.binary_search(layout).is_ok())
        };
        (0..own.len()).filter(|&it| possible(&own[it])).collect()
    }

    /// Of these layouts those that a value may have which has one already.
    pub(super) fn allowed(&self, value: ValueId, mut layouts: Vec<usize>) -> Vec<usize> {
        if let Some(layout) = self.fixed.get(&value) {
            layouts.retain(|&it| self.space.layouts[value.0][it] == **layout);
        }
        layouts
    }

    /// The numbers of those layouts that the space has.
    pub(super) fn numbers(&self, value: ValueId, layouts: &[Layout]) -> Vec<usize> {
        let known = &self.space.layouts[value.0];
        layouts.iter().filter_map(|layout| known.binary_search(layout).ok()).collect()
    }
}
