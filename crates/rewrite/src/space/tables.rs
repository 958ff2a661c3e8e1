//! Things that are numbered in the order they come up, and what is known for pairs of such numbers.

use std::hash::Hash;

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

/// Things that are numbered in the order they come up.
#[derive(Clone, Debug)]
pub(super) struct Table<T>(IndexSet<T, FxBuildHasher>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(IndexSet::default())
    }
}

impl<T: Eq + Hash> Table<T> {
    pub(super) fn number(&mut self, item: T) -> usize {
        self.0.insert_full(item).0
    }

    pub(super) fn find(&self, item: &T) -> Option<usize> {
        self.0.get_index_of(item)
    }

    pub(super) fn get(&self, number: usize) -> &T {
        &self.0[number]
    }
}

impl<T: Ord> Table<T> {
    /// For each number, which place its thing has among all, least first.
    pub(super) fn ranks(&self) -> Vec<usize> {
        let mut sorted: Vec<usize> = (0..self.0.len()).collect();
        sorted.sort_unstable_by(|&a, &b| self.0.get_index(a).cmp(&self.0.get_index(b)));
        let mut ranks = vec![0; sorted.len()];
        for (place, number) in sorted.into_iter().enumerate() {
            ranks[number] = place;
        }
        ranks
    }
}

/// Something for some pairs of numbers.
#[derive(Clone, Debug)]
pub(super) struct Grid<T>(Vec<Vec<Option<T>>>);

impl<T> Default for Grid<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Grid<T> {
    pub(super) fn get(&self, row: usize, column: usize) -> Option<&T> {
        self.0.get(row)?.get(column)?.as_ref()
    }

    /// What was there before.
    pub(super) fn insert(&mut self, row: usize, column: usize, item: T) -> Option<T> {
        if self.0.len() <= row {
            self.0.resize_with(row + 1, Vec::new);
        }
        let row = &mut self.0[row];
        if row.len() <= column {
            row.resize_with(column + 1, || None);
        }
        row[column].replace(item)
    }
}
