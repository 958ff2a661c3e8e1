//! Which partitions a search is offered: those asked for, and fewer in turn where their space is too large.

use plan::{LeftOut, Pin};
use planner_ir::{Digit, Layout};
use rewrite::{Offer, Splits, Steps, striped_length};

use crate::fixed::{splits, takes_steps};
use crate::request::{PlanError, Request};
use crate::section::Cut;

/// What is asked for, and what is offered in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offers {
    /// What is asked for.
    pub(crate) wanted: Offer,
    /// What is offered, each only where the space of what comes before is too large.
    pub(crate) turns: Vec<Offer>,
    /// What is offered when all of these are.
    pub(crate) last: Offer,
    /// All without time steps, if that is less than what is asked for.
    pub(crate) at_once: Option<Offer>,
}

/// On meshes of up to this many axes all partitions are tried first.
const FREE_AXES: usize = 3;

impl Offers {
    /// All partitions that are asked for; without stripes; without what is held skewed; of that fewer splits;
    /// without time steps; of fewer and fewer splits. What is fixed, or pinned, is in all of them.
    pub(crate) fn of(request: &Request<'_>, cuts: &[Cut<'_>], pins: &[Pin]) -> Self {
        let Request { mesh, steps, pinned, .. } = *request;
        let fixed = takes_steps(pins);
        // What is fixed may be held skewed.
        let only_unskewed = steps == Steps::Unskewed && !fixed;
        let steps = fixed || steps.are_offered(mesh);
        let sections = cuts.iter().flat_map(|cut| cut.sections);
        let striped = striped_length(sections.map(|section| &section.graph), mesh);
        let at_once = Offer { splits: Splits::All, steps: Steps::One, striped: None };
        let offered = |striped| Offer { steps: Steps::Offered, striped, ..at_once };
        let [wanted, without] = match steps {
            true if only_unskewed => [Offer { steps: Steps::Unskewed, ..at_once }; 2],
            true => [striped, striped.filter(|_| are_free(pins))].map(offered),
            false => [at_once; 2],
        };
        let least = if fixed { without } else { at_once };
        let splits_of = |layout: &Layout| layout.dims.iter().filter(|it| !it.is_empty()).count();
        let split = pinned.and_then(|it| it.layouts.values().map(splits_of).max()).unwrap_or(0);
        let split = split.max(splits(pins));
        let at_most = |splits: usize, of: Offer| Offer { splits: Splits::AtMost(split.max(splits)), ..of };
        let mut turns = vec![at_most(2, least)];
        // The whole space of a transformer block on four axes is too large.
        let axes = mesh.axes.iter().filter(|axis| axis.size > 1).count();
        if axes <= FREE_AXES {
            turns.splice(..0, [wanted, without]);
            if steps && !fixed {
                // A ring splits a loop and turns another: with one split for each axis there are all partitions
                // without time steps still.
                let unskewed = Offer { steps: Steps::Unskewed, ..without };
                turns.splice(2..2, [unskewed, at_most(axes, unskewed)]);
            }
            turns.insert(turns.len() - 1, least);
            turns.dedup();
        }
        let at_once = Some(at_once).filter(|it| turns.contains(it) && *it != turns[0]);
        Self { wanted, turns, last: at_most(1, least), at_once }
    }

    /// The first outcome whose space could be built, or that of the last offer.
    pub(crate) fn among<T>(&self, plan_in: impl Fn(Offer) -> Result<T, PlanError>) -> Result<T, PlanError> {
        // The first that was too large, and why.
        let mut first: Option<(Offer, PlanError)> = None;
        let instead = |error: PlanError, first: Option<(Offer, PlanError)>| match first {
            None => error,
            Some((offer, large)) => {
                PlanError::Fewer { offer, large: Box::new(large), error: Box::new(error) }
            }
        };
        for &offer in &self.turns {
            match plan_in(offer) {
                Err(error) if error.is_too_large() => first = first.or(Some((offer, error))),
                outcome => return outcome.map_err(|error| instead(error, first)),
            }
        }
        plan_in(self.last).map_err(|error| instead(error, first))
    }

    /// What of all that was asked for is not in an offer.
    pub(crate) fn left_out(&self, offer: Offer) -> Vec<LeftOut> {
        let wanted = self.wanted;
        let left_out = [
            (LeftOut::Stripes, offer.striped != wanted.striped),
            (LeftOut::Skews, offer.steps == Steps::Unskewed && wanted.steps != Steps::Unskewed),
            (LeftOut::Steps, offer.steps == Steps::One && wanted.steps != Steps::One),
            (LeftOut::Splits, offer.splits != wanted.splits),
        ];
        left_out.into_iter().filter_map(|(what, is_left_out)| is_left_out.then_some(what)).collect()
    }
}

/// Whether something is fixed whose blocks do not begin where those of plain splits do: in stripes, it
/// may be.
fn are_free(pins: &[Pin]) -> bool {
    pins.iter().flat_map(|pin| &pin.partition.loops).flatten().any(Digit::is_free)
}

#[cfg(test)]
mod tests;
