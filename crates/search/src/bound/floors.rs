//! Bounds of one chain that were proven at some capacity, at others.
//!
//! At prices of bytes the bound is the least of time and what is held at those prices, less what the
//! capacity costs: only the last depends on the capacity.

use crate::problem::real;

/// What a search has proven of a chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Floors(Vec<Floor>);

#[derive(Clone, Debug)]
struct Floor {
    /// Of a byte in each row (seconds).
    prices: Vec<f64>,
    /// The least of time and what is held (seconds).
    least: f64,
    /// By how much more what was found takes (seconds).
    missed: f64,
}

/// The best bound of a capacity.
pub(super) struct Best {
    /// The bound (seconds).
    pub(super) bound: f64,
    /// Its multipliers (seconds per capacity).
    pub(super) multipliers: Vec<f64>,
    /// By how much more what was found at these takes, by them (seconds).
    pub(super) missed: f64,
}

impl Floor {
    fn price(&self) -> f64 {
        self.prices.iter().sum()
    }

    fn bound(&self, capacity: u64) -> f64 {
        let paid = self.price() * real(capacity);
        // What rounding may have added.
        self.least - paid - 1e-12 * (self.least.abs() + paid)
    }
}

impl Floors {
    /// Adds a bound at multipliers (seconds per capacity, for each row) with this capacity (bytes), and by how much
    /// more what was found takes (seconds).
    pub(super) fn add(&mut self, multipliers: &[f64], capacity: u64, (bound, missed): (f64, f64)) {
        let prices = multipliers.iter().map(|it| it / real(capacity.max(1))).collect();
        let mut floor = Floor { prices, least: bound, missed };
        floor.least += floor.price() * real(capacity);
        self.0.push(floor);
    }

    /// The best bound that is proven of a capacity (bytes).
    pub(super) fn best(&self, capacity: u64) -> Option<Best> {
        let best = self.0.iter().max_by(|a, b| a.bound(capacity).total_cmp(&b.bound(capacity)))?;
        let multipliers = best.prices.iter().map(|it| it * real(capacity.max(1))).collect();
        Some(Best { bound: best.bound(capacity), multipliers, missed: best.missed })
    }

    /// What is proven without a price on memory, of a chain that has so many rows.
    pub(super) fn free(&self, rows: usize) -> Self {
        let free = self.0.iter().filter(|it| it.price() <= 0.0);
        Self(free.map(|it| Floor { prices: vec![0.0; rows], ..it.clone() }).collect())
    }

    /// How many there are: one for each minimum of time.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the minimum without a price on memory is among them.
    pub(super) fn has_free(&self) -> bool {
        self.0.iter().any(|it| it.price() <= 0.0)
    }
}
