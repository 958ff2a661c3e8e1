//! What blocks take that keep all, for setups whose blocks keep what they may: between that and what a plan takes in
//! which much is computed again.

use std::sync::{Arc, Mutex, PoisonError};

use files::Failure;
use plan::Recompute;

use super::ordered::schedules;
use super::parts::{Part, Space, part};
use super::priced::{Among, Demand};
use super::{Asked, Setup};
use crate::choice::After;

/// What blocks take that keep all.
pub(super) struct KeepingAll {
    /// With all memory, and with what there is, where that does not do.
    pub(super) parts: Vec<Part>,
    /// What no plan of all of them takes less than (seconds).
    pub(super) bound: f64,
}

/// The same of a setup, by a first look or a close one; nothing where it was not planned.
pub(super) type KeptBefore = ((Setup, bool), Option<Arc<KeepingAll>>);

impl Asked<'_> {
    /// Whether the blocks of a setup may keep more than it says.
    pub(super) fn keeps_what_it_may(&self, number: usize) -> bool {
        !self.question.again_alike() && self.setups[number].recompute != Recompute::Nothing
    }

    /// What the blocks of a setup take that keep all, where they may keep more than it says, and what no plan of all of
    /// them takes less than (seconds); by a close look also with what there is of memory.
    pub(super) fn keeping_all(
        &self,
        number: usize,
        closely: bool,
    ) -> Result<Option<Arc<KeepingAll>>, Failure> {
        if !self.keeps_what_it_may(number) {
            return Ok(None);
        }
        let setup = Setup { recompute: Recompute::Nothing, ..self.setups[number].clone() };
        let known = || self.keeping_all.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = (setup, closely);
        if let Some((_, made)) = known().iter().find(|it| it.0 == asked) {
            return Ok(made.clone());
        }
        let made = if closely { self.tightly(&asked.0, number)? } else { self.loosely(&asked.0)? };
        let made = made.map(Arc::new);
        known().push((asked, made.clone()));
        Ok(made)
    }

    /// With all memory.
    fn loosely(&self, setup: &Setup) -> Result<Option<KeepingAll>, Failure> {
        let step = self.known.step(self.question, setup)?;
        let after: After<'_, Part> = (&Mutex::default(), &|_| false);
        let made = part(self.question, setup, &step, Space::Unbounded, after)?;
        Ok(made
            .ok()
            .map(|(plan, loose)| KeepingAll { parts: vec![loose], bound: plan.proof.bound(plan.seconds()) }))
    }

    /// The same, and with what there is of memory, where that makes it slower.
    fn tightly(&self, setup: &Setup, number: usize) -> Result<Option<KeepingAll>, Failure> {
        let Some(loose) = self.keeping_all(number, false)? else { return Ok(None) };
        let mut among = Among { room: self.question.capacity(), all: &[], own: loose.parts.clone() };
        if !among.ways(setup, &schedules(self.question, setup)).1 {
            let step = self.known.step(self.question, setup)?;
            let [live, _] = setup.under_way();
            let after: After<'_, Part> = (&Mutex::default(), &|_| false);
            let made = self.tighter((setup, &step), &among, (live, Demand::Least), after)?;
            among.own.extend(made.ok().map(|(_, tight)| tight));
        }
        Ok(Some(KeepingAll { parts: among.own, bound: loose.bound }))
    }
}
