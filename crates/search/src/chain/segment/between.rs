//! Blocks of a segment whose ends are given: a node with one choice joins nothing, so that their elimination is
//! narrow where one for all ends is wide.

use super::{Body, Ready};
use crate::chain::Goal;
use crate::chain::Segment;
use crate::eliminate::{Limits, Objective, Pruned, order_within, prune, reduce, restrict, with_classes};
use crate::problem::SearchError;

/// Additions of an elimination that is small.
const FEW: f64 = 3e6;

impl Ready {
    /// The choices of a block of least cost, as priced, at a place of the table; nothing if there is none.
    ///
    /// # Errors
    /// If some body is too wide even so.
    pub(in crate::chain) fn between(
        &self,
        segment: &Segment,
        prices: (f64, &[f64]),
        fixed: Option<&[usize]>,
        place: usize,
    ) -> Result<Option<Vec<usize>>, SearchError> {
        let slots = self.slots(place);
        let mut best = (f64::INFINITY, None);
        for (number, body) in self.bodies.iter().enumerate() {
            let agrees = body.ties.iter().all(|&(slot, at)| {
                body.ties.iter().all(|&(other, its)| its != at || slots[other] == slots[slot])
            });
            if !agrees {
                continue;
            }
            let (cost, choices) = body.between(prices, fixed, &self.kept(number, place))?;
            if cost < best.0 {
                best = (cost, choices.map(|choices| (number, choices)));
            }
        }
        let restored = best.1.map(|(number, choices)| {
            let choices = self.bodies[number].pruned.restore(&choices);
            segment.restore(number, choices, &slots[self.globals.len()..])
        });
        Ok(restored)
    }
}

impl Body {
    /// The least that it costs with these choices of its kept nodes, and choices that cost it.
    fn between(
        &self,
        (resident, live): (f64, &[f64]),
        fixed: Option<&[usize]>,
        kept: &[usize],
    ) -> Result<(f64, Option<Vec<usize>>), SearchError> {
        let nothing = Ok((f64::INFINITY, None));
        let (costs, constant) = self.costs(Goal::Time, (resident, live), fixed);
        let finite = |costs: &Vec<f64>| (0..costs.len()).filter(|&it| costs[it] < f64::INFINITY).collect();
        let mut choices: Vec<Vec<usize>> = costs.iter().map(finite).collect();
        for (&node, choice) in self.kept.iter().zip(kept) {
            choices[node].retain(|it| it == choice);
        }
        if choices.iter().any(Vec::is_empty) {
            return nothing;
        }
        // Memory is priced: it is dearer or cheaper, and nothing else.
        let mut left = restrict(&self.pruned.problem, &choices);
        let own = costs.iter().zip(&choices);
        left.times = own.map(|(costs, left)| left.iter().map(|&it| costs[it]).collect()).collect();
        (left.bytes, left.resident, left.live) = (Vec::new(), Vec::new(), Vec::new());
        // To find needless choices takes longer than a small elimination.
        let few = order_within(&left, &[], Limits { entries: f64::INFINITY, work: FEW });
        let (needful, (problem, order)) = match few {
            Some(order) => (Pruned::whole(left.clone()), (left, order)),
            None => {
                let needful = prune(&left, &[]);
                let with_classes = with_classes(needful.problem.clone(), &[]);
                (needful, with_classes)
            }
        };
        let reduced = reduce(&Objective::time(&problem), &order)?;
        if reduced.table[0] == f64::INFINITY {
            return nothing;
        }
        let found = needful.restore(&reduced.recover(&[]));
        let found = choices.iter().zip(&found).map(|(left, &it)| left[it]).collect();
        Ok((reduced.table[0] + constant, Some(found)))
    }
}
