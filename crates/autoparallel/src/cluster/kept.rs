//! Setups whose blocks keep what they may: between what a plan takes in which much is computed again, and one in which
//! nothing is.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use files::Failure;
use plan::Recompute;
use search::cluster::BlockCost;

use super::parts::{Part, Space, part};
use super::{Asked, Setup};

/// How often the part of blocks that compute again is halved.
const HALVES: usize = 5;

/// What blocks take, and a plan of all of them together (seconds).
pub(super) struct Blocks<'a> {
    pub(super) blocks: Cow<'a, [BlockCost]>,
    pub(super) seconds: f64,
}

/// What blocks take that keep all.
pub(super) struct KeepingAll {
    pub(super) blocks: Blocks<'static>,
    /// What no plan of all of them takes less than (seconds).
    pub(super) bound: f64,
}

impl Blocks<'_> {
    /// So large a part of each block as others have it.
    fn toward(&self, others: &Self, part: f64) -> Self {
        let blocks = self.blocks.iter().zip(&*others.blocks).map(|(one, two)| one.toward(two, part));
        Blocks {
            blocks: Cow::Owned(blocks.collect()),
            seconds: self.seconds + part * (others.seconds - self.seconds),
        }
    }
}

/// The least price where some blocks keep all and others as little as `least` has it, of those parts that fit: about as
/// few of the others as fit.
pub(super) fn best<T>(
    all: Option<&Blocks<'_>>,
    least: &Blocks<'_>,
    price: impl Fn(&Blocks<'_>) -> Option<(f64, T)>,
) -> Option<(f64, T)> {
    let mut best = price(least)?;
    let Some(all) = all else { return Some(best) };
    let (mut few, mut many) = (0.0, 1.0);
    for _ in 0..HALVES {
        let middle = f64::midpoint(few, many);
        match price(&all.toward(least, middle)) {
            Some(priced) => {
                many = middle;
                if priced.0 < best.0 {
                    best = priced;
                }
            }
            None => few = middle,
        }
    }
    Some(best)
}

impl Asked<'_> {
    /// Whether the blocks of a setup may keep more than it says.
    pub(super) fn keeps_what_it_may(&self, number: usize) -> bool {
        !self.question.again_alike() && self.setups[number].recompute != Recompute::Nothing
    }

    /// What the blocks of a setup take that keep all, where they may keep more than it says, and what no plan of all of
    /// them takes less than (seconds).
    pub(super) fn keeping_all(&self, number: usize) -> Result<Option<Arc<KeepingAll>>, Failure> {
        if !self.keeps_what_it_may(number) {
            return Ok(None);
        }
        let setup = Setup { recompute: Recompute::Nothing, ..self.setups[number].clone() };
        let known = || self.keeping_all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, made)) = known().iter().find(|it| it.0 == setup) {
            return Ok(Some(Arc::clone(made)));
        }
        let step = self.known.step(self.question, &setup)?;
        let (trail, enough) = (Mutex::default(), |_: &Part| false);
        let made = part(self.question, &setup, &step, Space::Unbounded, (&trail, &enough))?;
        let Ok((plan, part)) = made else { return Ok(None) };
        let blocks = Blocks { blocks: Cow::Owned(part.blocks), seconds: plan.seconds() };
        let made = Arc::new(KeepingAll { blocks, bound: plan.proof.bound(plan.seconds()) });
        known().push((setup, Arc::clone(&made)));
        Ok(Some(made))
    }
}
