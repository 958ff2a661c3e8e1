//! What comes nearest to fitting, where nothing fits.

use std::sync::PoisonError;

use cost_models::quantity;
use cost_models::units::Bytes;
use files::Failure;

use super::Asked;

/// What a device would hold (bytes), and that in words.
pub(super) type Nearest = (u64, String);

impl Asked<'_> {
    /// What comes nearest to fitting, if something is known.
    pub(super) fn nearest(&self) -> Result<Option<Nearest>, Failure> {
        let mut least: Option<(u64, usize)> = None;
        for (number, setup) in self.setups.iter().enumerate() {
            let Bytes(bytes) = quantity::whole_bytes(self.known.least(self.question, setup)?.bytes(setup));
            least = [least, Some((bytes, number))].into_iter().flatten().min();
        }
        let looked = *self.nearest.lock().unwrap_or_else(PoisonError::into_inner);
        let proven = least.filter(|it| it.0 > self.question.capacity());
        let Some((bytes, number)) = proven.or(looked) else { return Ok(None) };
        let [of, how] = match proven {
            Some(_) => ["what comes nearest", "takes at least"],
            None => ["of what was looked at closely", "comes nearest with about"],
        };
        let held = quantity::bytes(bytes);
        Ok(Some((bytes, format!(": {of}, {}, {how} {held} there", self.setups[number]))))
    }

    /// Notes what a device would hold of a setup that does not fit (bytes), if that is known.
    pub(super) fn note(&self, number: usize, held: Option<u64>) {
        let mut nearest = self.nearest.lock().unwrap_or_else(PoisonError::into_inner);
        *nearest = [*nearest, held.map(|it| (it, number))].into_iter().flatten().min();
    }
}
