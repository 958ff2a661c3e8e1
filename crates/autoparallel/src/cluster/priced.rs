//! What a setup takes, by plans of the whole model on the mesh of a group.

use std::sync::{Mutex, PoisonError};

use cost_models::quantity::whole_bytes;
use cost_models::units::{Bytes, exact};
use files::Failure;
use schedule::Kind;
use search::Live;
use search::cluster::{BlockCost, Outcome, mixed};

use super::known::WholeStep;
use super::ordered::schedules;
use super::parts::{Part, Planned, Space, part};
use super::played::{by, fullest, together};
use super::{Asked, Priced, Setup};
use crate::choice::After;

/// How many times as long a setup may take with what there is of memory as with all of it, for no plan with less to be
/// made.
const FREE: f64 = 1.01;

/// The memory for a plan of all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// All that is wanted.
    Loose,
    /// What there is for so many micro-batches under way, where the schedule that holds least of a setup's keeps so many;
    /// or the one that holds most, as interleaved ones do.
    Tight(u64, Demand),
}

/// Which of the schedules of a setup is to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Demand {
    Least,
    Most,
}

impl Asked<'_> {
    /// What a setup takes by the first of these plans that makes one that fits: one with all memory, or
    /// with what there is for so many micro-batches under way. Not if it is known to take no less
    /// than `below` (seconds).
    pub(super) fn price(
        &self,
        number: usize,
        plans: &[Look],
        below: f64,
    ) -> Result<Outcome<Priced>, Failure> {
        let (question, setup) = (self.question, &self.setups[number]);
        let least = self.known.least(question, setup)?;
        let ways = schedules(question, setup).into_iter();
        let ways = ways.map(|way| least.seconds(setup, question.capacity(), way));
        let outcome = Outcome { lower_bound: ways.fold(f64::INFINITY, f64::min), ways: Vec::new() };
        if outcome.lower_bound >= below || plans.is_empty() {
            return Ok(outcome);
        }
        let priced = || self.priced.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = (number, plans.to_vec());
        let before = priced().get(&asked).cloned();
        if let Some(before) = before {
            return Ok(before);
        }
        let step = self.known.step(question, setup)?;
        let outcome = self.planned((number, plans), &step, outcome, below)?;
        priced().insert(asked, outcome.clone());
        Ok(outcome)
    }

    /// The same, by plans that are made now: until what there is of memory makes it hardly slower.
    fn planned(
        &self,
        (number, plans): (usize, &[Look]),
        step: &WholeStep,
        mut outcome: Outcome<Priced>,
        below: f64,
    ) -> Result<Outcome<Priced>, Failure> {
        let (question, setup) = (self.question, &self.setups[number]);
        let room = question.capacity();
        let count = u64::try_from(setup.groups).unwrap_or(u64::MAX);
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = |part: Part| {
            let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.entry(number).or_default().push(part);
        };
        // What was planned with all memory, and is slower with what there is, is not planned so again.
        let before = seen().remove(&number);
        let is_new = |plan: &&Look| **plan != Look::Loose || before.is_none();
        let plans: Vec<Look> = plans.iter().filter(is_new).copied().collect();
        let (trail, loose) = before.unwrap_or_default();
        let trail = Mutex::new(trail);
        // With everything hidden that may be, blocks take least by this plan: what is too slow so, is too slow.
        let slow = |part: &Part| {
            let blocks: Vec<BlockCost> = part.blocks.iter().map(BlockCost::at_least).collect();
            let mut ways = schedules(question, setup).into_iter();
            ways.all(|way| by(&[&blocks], setup, way, part.message, u64::MAX).is_none_or(|it| it.0 >= below))
        };
        // Where blocks keep what they may, none takes less than where all is kept.
        let all = self.keeping_all(number, plans != [Look::Loose])?;
        let keeping = all.as_ref().map_or(&[][..], |it| &it.parts);
        let mut among = Among { room, all: keeping, own: loose.into_iter().collect() };
        let mut is_free = false;
        for &look in &plans {
            let made = match look {
                Look::Loose => part(question, setup, step, Space::Unbounded, (&trail, &slow)),
                Look::Tight(live, demand) => {
                    self.tighter((setup, step), &among, (live, demand), (&trail, &slow))
                }
            };
            let (plan, part) = match made? {
                Ok(planned) => planned,
                Err(needs) => {
                    self.note(number, needs);
                    break;
                }
            };
            if look == Look::Loose {
                // The group that has most to do does as much as one of equal ones.
                let least = match &all {
                    Some(all) => all.bound,
                    None if self.keeps_what_it_may(number) => 0.0,
                    None => plan.proof.bound(plan.seconds()),
                };
                outcome.lower_bound = outcome.lower_bound.max(least / exact(count));
            }
            self.known.note(&part.mesh, part.refused.as_ref());
            let is_refused = part.refused.is_some();
            among.own.push(part.clone());
            parts(part);
            if is_refused {
                // Some group would have what cannot be: its mesh is one for groups of others.
                return Ok(Outcome { lower_bound: f64::INFINITY, ways: Vec::new() });
            }
            (outcome.ways, is_free) = among.ways(setup, &schedules(question, setup));
            if is_free {
                break;
            }
            if look != Look::Loose && outcome.ways.is_empty() {
                let last = &among.own[among.own.len() - 1].blocks;
                let ways = schedules(question, setup).into_iter();
                let held = ways.filter_map(|way| fullest(last, setup, way)).min();
                self.note(number, held.filter(|&it| it > room));
            }
        }
        if plans == [Look::Loose] && !is_free {
            let loose = among.own.pop();
            seen().insert(number, (trail.into_inner().unwrap_or_else(PoisonError::into_inner), loose));
        }
        Ok(outcome)
    }

    /// A plan of all blocks with what there is of memory while so many micro-batches are under way, in which stages fit
    /// that are as those of other plans; or what a device needs at least of the fullest stage, as far as is known (bytes).
    /// In one group once more where sums of its blocks say more than it does.
    pub(super) fn tighter(
        &self,
        (setup, step): (&Setup, &WholeStep),
        among: &Among<'_>,
        (live, demand): (u64, Demand),
        after: After<'_, Part>,
    ) -> Result<Planned, Failure> {
        let wanted = among.tight(setup, &schedules(self.question, setup), (live, demand));
        let made = part(self.question, setup, step, Space::Of(wanted, live), after)?;
        let (_, tight) = match &made {
            Ok(made) => made,
            Err(needs) => {
                let of_device = |needs: u64| whole_bytes(exact(among.room) / exact(wanted) * exact(needs)).0;
                return Ok(Err(needs.map(of_device)));
            }
        };
        let held = together(&tight.blocks).held(Live::of(live));
        if held <= wanted || setup.groups > 1 {
            return Ok(made);
        }
        let Bytes(less) = whole_bytes(exact(wanted) * exact(wanted) / exact(held));
        let again = part(self.question, setup, step, Space::Of(less, live), after)?;
        Ok(again.or(made))
    }
}

/// What blocks are as several plans of one setup have them.
pub(super) struct Among<'a> {
    /// What a device can hold (bytes).
    pub(super) room: u64,
    /// Where all is kept that may be.
    pub(super) all: &'a [Part],
    /// The plans of the setup: with all memory, and with what there is.
    pub(super) own: Vec<Part>,
}

impl Among<'_> {
    /// How much memory all groups have for a plan of all blocks, in which the group fits that would hold most, if it were
    /// shared as by the plan with all memory, while so many micro-batches are under way (bytes).
    fn tight(&self, setup: &Setup, schedules: &[(Kind, usize)], (live, demand): (u64, Demand)) -> u64 {
        let all = self.room.saturating_mul(u64::try_from(setup.groups).unwrap_or(u64::MAX));
        let Some(Part { blocks, .. }) = self.own.first() else { return all };
        let held = schedules.iter().filter_map(|&way| fullest(blocks, setup, way));
        let held = match demand {
            Demand::Least => held.min(),
            Demand::Most => held.max(),
        };
        let fullest = held.map_or(1.0, |held| exact(held) / exact(self.room)).max(1.0);
        let Bytes(part) = whole_bytes(exact(together(blocks).held(Live::of(live))) / fullest);
        all.min(part)
    }

    /// By each of these schedules, what the setup takes and how it is cut, if it fits; and whether the best of them takes
    /// hardly less by a plan of its own if memory is no matter.
    pub(super) fn ways(&self, setup: &Setup, schedules: &[(Kind, usize)]) -> (Vec<(f64, Priced)>, bool) {
        let parts: Vec<&Part> = self.all.iter().chain(&self.own).collect();
        let plans: Vec<&[BlockCost]> = parts.iter().map(|it| &it.blocks[..]).collect();
        let message = parts.iter().map(|it| it.message).fold(0.0, f64::max);
        let mut ways = Vec::new();
        for &(kind, chunks) in schedules {
            let found = match setup.groups {
                1 => self.in_one_group(&parts).map(|seconds| (seconds, vec![0])),
                _ => by(&plans, setup, (kind, chunks), message, self.room),
            };
            ways.extend(found.map(|(seconds, first)| (seconds, Priced { kind, chunks, first })));
        }
        let least = ways.iter().map(|it| it.0).fold(f64::INFINITY, f64::min);
        let own = |it: &Part| {
            let freely = |&way| by(&[&it.blocks], setup, way, it.message, u64::MAX);
            schedules.iter().filter_map(freely).map(|it| it.0).fold(f64::INFINITY, f64::min)
        };
        let free = || self.own.iter().map(own).fold(f64::INFINITY, f64::min);
        let is_free = least.is_finite() && (setup.groups == 1 || least <= FREE * free());
        (ways, is_free)
    }

    /// What one group takes (seconds): what its plans do, since sums of blocks say nothing of what stands beside other
    /// blocks.
    fn in_one_group(&self, parts: &[&Part]) -> Option<f64> {
        let plans = parts.iter().map(|it| (together(&it.blocks).held(Live::ONE), it.seconds));
        mixed(&plans.collect::<Vec<_>>(), (self.room, self.room)).map(|it| it.0)
    }
}
