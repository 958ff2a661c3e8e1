//! What a step of one token that writes its entry in place finds and leaves, in the model's order.

use std::collections::BTreeMap;

use kernels::{Array, KernelError};
use plan::Cache;
use planner_ir::Op;

type Arrays = BTreeMap<String, Array>;

/// A step that writes its entry at a slot.
#[derive(Clone, Copy, Debug)]
pub struct Turned<'a> {
    /// What its inputs and outputs are.
    pub cache: &'a Cache,
    /// The slot.
    pub slot: u64,
}

impl Turned<'_> {
    /// The inputs of the model's step, of those of the step that writes: all entries but the oldest, which is
    /// overwritten, in the model's order.
    pub fn inputs(&self, inputs: &Arrays) -> Result<Arrays, KernelError> {
        let entries = self.cache.entries().map(|it| &it.past);
        let mut ordered = self.ordered(inputs, entries, 1)?;
        self.cache.slot.iter().for_each(|it| drop(ordered.remove(it)));
        Ok(ordered)
    }

    /// The outputs of the model's step, of those of the step that writes.
    pub fn outputs(&self, outputs: &Arrays) -> Result<Arrays, KernelError> {
        self.ordered(outputs, self.cache.entries().map(|it| &it.present), 0)
    }

    /// The same arrays, of which those of entries are in the model's order but for so many of the oldest.
    fn ordered<'a>(
        &self,
        arrays: &Arrays,
        entries: impl Iterator<Item = &'a String>,
        without: u64,
    ) -> Result<Arrays, KernelError> {
        let mut ordered = arrays.clone();
        let places = self.cache.capacity;
        // Behind the slot is the oldest entry that is there after the step.
        let slot = |place: u64| i64::try_from((self.slot + 1 + place) % places.max(1)).unwrap_or(0);
        let slots: Vec<i64> = (without..places).map(|it| slot(it - without)).collect();
        for name in entries {
            let Some(array) = ordered.get_mut(name) else { continue };
            let slots = Array::of(vec![places - without], &slots)?;
            let mut taken = kernels::evaluate(&Op::Gather { dim: self.cache.dim }, &[array, &slots])?;
            *array = taken.remove(0);
        }
        Ok(ordered)
    }
}
