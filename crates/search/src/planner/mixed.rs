//! Plans between two: blocks of the one in place of blocks of the other.
//!
//! By given weights blocks that repeat are all alike, or nearly. Where what stands in the way is longer in one
//! plan and what may run beside it in another, a step with some blocks of either may be shorter than both: each
//! block adds to both clocks, so what a step takes by the number of blocks of the other kind falls, then rises, but
//! for what joins them. The number is found by halving. Blocks of either kind are spread evenly, so that what
//! one kind exchanges runs beside what the other computes, near it: in one run of each kind a step takes as long by
//! this sum, and 10 % longer by the simulator, for the first run has nothing to hide behind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use plan::{Clock, Plan};

use super::PlanError;
use super::weighed::{Made, Weighed};
use crate::chain::ChainChoices;
use crate::clocks::Clocks;

/// The most plans of a mixture that are asked whether they fit.
const FITS: usize = 3;

/// The best plan that is known, or a mixture of two plans on different sides of a clock, the last ones that were
/// seen.
pub(super) fn between(
    weighed: &mut Weighed<'_>,
    (seen, best): (&[Made], Made),
    clocks: &mut Clocks,
) -> Result<Made, PlanError> {
    let mut pairs: Vec<[usize; 2]> = Vec::new();
    for clock in Clock::ALL {
        let last = |longer: bool| seen.iter().rposition(|it| is_longer(&it.plan, clock) == longer);
        if let (Some(alone), Some(beside)) = (last(false), last(true))
            && !pairs.contains(&[alone, beside])
        {
            pairs.push([alone, beside]);
        }
    }
    let mut best = best;
    for pair in pairs {
        if !clocks.is_settled()
            && let Some(made) = mixed(weighed, pair.map(|it| &seen[it].choices))?
            && made.seconds() < best.seconds()
        {
            clocks.met(made.seconds());
            best = made;
        }
    }
    Ok(best)
}

/// Whether what may run beside what stands in the way is longer than it.
fn is_longer(plan: &Plan, clock: Clock) -> bool {
    let load = plan.loads()[clock as usize];
    load.beside() > load.alone
}

/// The shortest step that fits with blocks of both kinds.
fn mixed(weighed: &mut Weighed<'_>, kinds: [&ChainChoices; 2]) -> Result<Option<Made>, PlanError> {
    let most = kinds[0].blocks.iter().map(Vec::len).max().unwrap_or(0);
    let mut tried: BTreeMap<usize, Option<Made>> = BTreeMap::new();
    let (mut low, mut high) = (1, most.saturating_sub(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let mut take = |many: usize| -> Result<f64, PlanError> {
            let made = match tried.entry(many) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(place) => {
                    let choices = spread(weighed, kinds, [many, most])?;
                    place.insert(choices.map(|it| weighed.written(&it)).transpose()?)
                }
            };
            Ok(made.as_ref().map_or(f64::INFINITY, Made::seconds))
        };
        if take(middle)? <= take(middle + 1)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let mut tried: Vec<Made> = tried.into_values().flatten().collect();
    tried.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    for made in tried.into_iter().take(FITS) {
        if let Some(made) = weighed.fitting(made)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

/// Choices in which so many of the blocks of the longest segment are of the second kind, and as large a part of
/// the others; nothing if they cannot be joined.
fn spread(
    weighed: &mut Weighed<'_>,
    [first, second]: [&ChainChoices; 2],
    [many, most]: [usize; 2],
) -> Result<Option<ChainChoices>, PlanError> {
    let mut choices = first.clone();
    for (blocks, others) in choices.blocks.iter_mut().zip(&second.blocks) {
        // How many of the first blocks are of the second kind, rounded.
        let of_second = |blocks: usize| (2 * blocks * many + most) / (2 * most);
        for (number, (block, other)) in blocks.iter_mut().zip(others).enumerate() {
            if of_second(number + 1) > of_second(number) {
                block.clone_from(other);
            }
        }
    }
    let Some(joints) = &mut weighed.joints else { return Ok(None) };
    joints.joined(choices).map_err(PlanError::Search)
}
