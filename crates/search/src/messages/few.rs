//! All assignments of few choices of each node, eliminated: what they cost for all choices of the nodes that are kept.

use super::NARROW;
use super::network::{Left, Messages, Network};
use crate::eliminate::{Limits, Objective, Pruned, Reduced, order_within, prune, reduce};

/// The most additions of an elimination of few choices.
const WORK: f64 = 3e7;

/// Which part of the most entries and additions is small.
const SMALL: f64 = 0.02;

/// The assignments of some choices.
#[derive(Debug)]
pub(super) struct Few {
    left: Left,
    pruned: Pruned,
    reduced: Reduced<'static>,
    /// What nodes and links cost that have one choice left.
    constant: f64,
    /// Whether that is far from too wide.
    is_small: bool,
}

impl Few {
    /// Those of the choices that are alive, if that is narrow.
    pub(super) fn of(network: &Network<'_>, messages: &Messages, kept: &[usize]) -> Option<Self> {
        let (left, problem, constant) = network.left(messages);
        let kept: Vec<usize> = kept.iter().filter_map(|&node| left.place(node)).collect();
        // To find needless choices takes longer than a small elimination.
        let small = Limits { entries: SMALL * NARROW, work: SMALL * WORK };
        let (pruned, order) = match order_within(&problem, &kept, small) {
            Some(order) => (Pruned::whole(problem), order),
            None => {
                let pruned = prune(&problem, &kept);
                let order = order_within(&pruned.problem, &kept, Limits { entries: NARROW, work: WORK })?;
                (pruned, order)
            }
        };
        let is_small = small.hold(&order);
        let reduced = reduce(&Objective::time(&pruned.problem), &order).ok()?.owned();
        Some(Self { left, reduced, pruned, constant, is_small })
    }

    /// Whether more choices may be narrow too.
    pub(super) fn is_small(&self) -> bool {
        self.is_small
    }

    /// What the best of them costs with these choices of the kept nodes, where costs are moved; infinite if there is none.
    pub(super) fn cost(&self, kept: &[(usize, usize)]) -> f64 {
        self.places(kept).map_or(f64::INFINITY, |places| self.reduced.least(&places) + self.constant)
    }

    /// The best of them.
    pub(super) fn recover(&self, kept: &[(usize, usize)], domains: &[usize]) -> Option<Vec<usize>> {
        let free = self.reduced.recover(&self.places(kept)?);
        Some(self.left.restore(&self.pruned.restore(&free), domains))
    }

    /// Choices of kept nodes as choices among those left of nodes that have several.
    fn places(&self, kept: &[(usize, usize)]) -> Option<Vec<usize>> {
        let mut places = Vec::with_capacity(kept.len());
        for &(node, choice) in kept {
            let among = self.left.among(node, choice)?;
            if self.left.place(node).is_some() {
                places.push(among);
            }
        }
        Some(places)
    }
}
