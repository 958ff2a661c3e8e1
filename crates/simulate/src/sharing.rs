//! How flows share links.
//!
//! ```text
//! maximise lexicographically the sorted rates x, with
//!     Σ_i a(i,l) x_i ≤ C_l   for every link l       x_i ≤ R_i   for every flow i
//! ```
//!
//! `a(i,l)` is how many bytes of flow `i` go over link `l` for each that moves, `C_l` the link's
//! rate and `R_i` what the flow reaches alone. All rates grow together; those of a link that is
//! full, and those that have reached what they can, stay.
//!
//! Source: progressive filling, Bertsekas and Gallager, "Data Networks", 2nd edition, 1992,
//! section 6.5.2.

use crate::schedule::{Flow, Link, place};

/// A part of a rate that is rounding.
const ROUNDING: f64 = 1e-9;

/// Flows that are moving, and who uses which link.
pub(crate) struct Sharing<'a> {
    rates: &'a [f64],
    flows: &'a [Flow],
    /// For each link, the moving flows that use it, as (which, bytes for each that moves).
    users: Vec<Vec<(Moving, f64)>>,
}

/// A moving flow: which task it is, and which flow of the schedule that does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moving {
    pub(crate) task: u32,
    pub(crate) flow: u32,
}

impl<'a> Sharing<'a> {
    pub(crate) fn new(rates: &'a [f64], flows: &'a [Flow]) -> Self {
        Self { rates, flows, users: vec![Vec::new(); rates.len()] }
    }

    pub(crate) fn flow(&self, moving: Moving) -> &'a Flow {
        &self.flows[place(moving.flow)]
    }

    /// Adds a flow. Whether a link is asked for more than it has: then rates are to be shared.
    pub(crate) fn start(&mut self, moving: Moving) -> bool {
        let mut full = false;
        for &(link, part) in &self.flow(moving).uses {
            self.users[place(link.0)].push((moving, part));
            full |= self.is_full(link);
        }
        full
    }

    /// Takes a flow away. Whether a link that it used was asked for more than it has.
    pub(crate) fn end(&mut self, moving: Moving) -> bool {
        let mut full = false;
        for &(link, _) in &self.flow(moving).uses {
            full |= self.is_full(link);
            self.users[place(link.0)].retain(|&(it, _)| it != moving);
        }
        full
    }

    fn is_full(&self, link: Link) -> bool {
        let asked: f64 = self.users[place(link.0)].iter().map(|&(it, part)| part * self.flow(it).rate).sum();
        asked > self.rates[place(link.0)] * (1.0 + ROUNDING)
    }

    /// The rates of these flows, which are all that are moving, in ascending order (bytes per
    /// second), where each reaches such a part of what it does alone.
    pub(crate) fn share(&self, moving: &[Moving], parts: &[f64]) -> Vec<f64> {
        let mut rates: Vec<Option<f64>> = vec![None; moving.len()];
        let mut links: Vec<usize> =
            moving.iter().flat_map(|&it| &self.flow(it).uses).map(|it| place(it.0.0)).collect();
        links.sort_unstable();
        links.dedup();
        let mut left: Vec<f64> = links.iter().map(|&link| self.rates[link]).collect();
        let at = |it: Moving| moving.binary_search(&it).ok();
        while rates.contains(&None) {
            let growing = |it: &&(Moving, f64)| at(it.0).is_some_and(|at| rates[at].is_none());
            let even = |(&link, &left): (&usize, &f64)| {
                let asked: f64 = self.users[link].iter().filter(growing).map(|it| it.1).sum();
                (asked > 0.0).then(|| (left / asked, link))
            };
            let tightest = links.iter().zip(&left).filter_map(even).min_by(|a, b| a.0.total_cmp(&b.0));
            let reach = |at: usize| parts[at] * self.flow(moving[at]).rate;
            let slow = |at: &usize| rates[*at].is_none() && tightest.is_none_or(|it| reach(*at) <= it.0);
            // Those that reach all they can leave more to the others: links are filled after them.
            let mut settled: Vec<(usize, f64)> =
                (0..moving.len()).filter(slow).map(|at| (at, reach(at))).collect();
            if let (Some((rate, link)), true) = (tightest, settled.is_empty()) {
                let on_it = self.users[link].iter().filter(growing);
                settled = on_it.filter_map(|&(it, _)| Some((at(it)?, rate))).collect();
            }
            for (at, rate) in settled {
                rates[at] = Some(rate);
                for &(link, part) in &self.flow(moving[at]).uses {
                    if let Ok(it) = links.binary_search(&place(link.0)) {
                        left[it] = (left[it] - part * rate).max(0.0);
                    }
                }
            }
        }
        rates.into_iter().flatten().collect()
    }
}
