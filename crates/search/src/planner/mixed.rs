//! Plans between two: blocks of the one in place of blocks of the other.
//!
//! By given weights blocks that repeat are all alike, or nearly. Where what stands in the way is longer in one
//! plan and what may run beside it in another, a step with some blocks of either may be shorter than both: each
//! block adds to both clocks, so what a step takes by the number of blocks of the other kind falls, then rises, but
//! for what joins them. It is looked for from where it would be without that, one by one. Blocks of either kind are
//! spread evenly, so that what one kind exchanges runs beside what the other computes, near it: in one run of each
//! kind a step takes as long by this sum, and 10 % longer by the simulator, for the first run has nothing to hide
//! behind.

use plan::{Clock, SUMS};

use super::weighed::{Made, Weighed};
use crate::chain::ChainChoices;
use crate::clocks::{Clocks, Sums, Taken};
use crate::problem::real_size;
use crate::request::PlanError;

/// The most numbers of blocks of the other kind that are looked at.
const MOST: usize = 5;

/// What was chosen at some weights, and what a step takes so.
pub(super) type Seen = (ChainChoices, Taken);

/// The best plan that is known, or a mixture of two plans on different sides of a clock, the last ones that were
/// seen.
pub(super) fn between(
    weighed: &mut Weighed<'_>,
    (seen, mut best): (&[Seen], Made),
    clocks: &mut Clocks,
) -> Result<Made, PlanError> {
    let mut pairs: Vec<[usize; 2]> = Vec::new();
    for clock in Clock::ALL {
        let longest: Vec<usize> = seen.iter().map(|it| clocks.longest(&it.1, clock)).collect();
        let last = |sum: usize| longest.iter().rposition(|&it| it == sum);
        let ends: Vec<usize> = (0..SUMS).filter_map(last).collect();
        for (number, &one) in ends.iter().enumerate() {
            let new = ends[number + 1..].iter().map(|&other| [one, other]).filter(|it| !pairs.contains(it));
            pairs.extend(new.collect::<Vec<_>>());
        }
    }
    for pair in pairs {
        if !clocks.is_settled()
            && let Some(made) = mixed(weighed, pair.map(|it| &seen[it]), clocks)?
            && made.seconds() < best.seconds()
            && let Some(made) = weighed.fitting(made)?
            && made.seconds() < best.seconds()
        {
            clocks.met(made.seconds());
            best = made;
        }
    }
    Ok(best)
}

/// The shortest step with blocks of both kinds.
fn mixed(weighed: &mut Weighed<'_>, kinds: [&Seen; 2], clocks: &Clocks) -> Result<Option<Made>, PlanError> {
    let most = kinds[0].0.blocks.iter().map(Vec::len).max().unwrap_or(0);
    let (choices, takes) = (kinds.map(|it| &it.0), kinds.map(|it| &it.1));
    // For each number of blocks, in how many places kinds meet.
    let meetings = |many: usize| {
        let meet = |number: &usize| of_second(*number, [many, most]) != of_second(number + 1, [many, most]);
        real_size((0..most - 1).filter(meet).count().max(1))
    };
    let mut each = Sums::default();
    let (mut best, mut tried): (Option<Made>, Vec<usize>) = (None, Vec::new());
    for _ in 0..MOST {
        let without = |many: usize| clocks.between(takes, (many, most));
        let expected = |many: &usize| without(*many).and(meetings(*many), &each).seconds();
        let Some(many) = (1..most).min_by(|a, b| expected(a).total_cmp(&expected(b))) else { break };
        if tried.contains(&many) {
            break;
        }
        tried.push(many);
        let Some(made) = written(weighed, choices, [many, most])? else { break };
        let joined = clocks.sums(&made.taken()).and(-1.0, &without(many));
        each = Sums::default().and(1.0 / meetings(many), &joined);
        if best.as_ref().is_none_or(|best| made.seconds() < best.seconds()) {
            best = Some(made);
        }
    }
    Ok(best)
}

/// Whether a block is of the second kind where so many of so many are, evenly spread.
fn of_second(number: usize, [many, most]: [usize; 2]) -> bool {
    // How many of the first blocks are, rounded.
    let before = |blocks: usize| (2 * blocks * many + most) / (2 * most);
    before(number + 1) > before(number)
}

/// The plan in which so many of the blocks of the longest segment are of the second kind, and as large a part of
/// the others; nothing if they cannot be joined.
fn written(
    weighed: &mut Weighed<'_>,
    [first, second]: [&ChainChoices; 2],
    [many, most]: [usize; 2],
) -> Result<Option<Made>, PlanError> {
    let mut choices = first.clone();
    for (blocks, others) in choices.blocks.iter_mut().zip(&second.blocks) {
        for (number, (block, other)) in blocks.iter_mut().zip(others).enumerate() {
            if of_second(number, [many, most]) {
                block.clone_from(other);
            }
        }
    }
    let Some(joints) = &mut weighed.joints else { return Ok(None) };
    let joined = joints.joined(choices).map_err(PlanError::Search)?;
    joined.map(|choices| weighed.written(&choices)).transpose()
}
