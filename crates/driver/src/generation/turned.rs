//! What a step that holds its cache in another way than the model finds and leaves, as the model has it.

use std::collections::BTreeMap;

use kernels::{Array, KernelError};
use plan::{Cache, Kept};
use planner_ir::Op;

type Arrays = BTreeMap<String, Array>;

/// A step whose parts have only the places that attention sees, or that writes its entry at a slot.
#[derive(Clone, Copy, Debug)]
pub struct Turned<'a> {
    /// What its inputs and outputs are.
    pub cache: &'a Cache,
    /// How many tokens it takes.
    pub width: u64,
    /// What it is told of the slot, if it writes at one.
    pub slot: u64,
}

impl Turned<'_> {
    /// The inputs of the model's step, of those of this one: all entries but the one that is overwritten, in the model's
    /// order. Places that attention does not see have entries of others.
    pub fn inputs(&self, inputs: &Arrays) -> Result<Arrays, KernelError> {
        let mut ordered = self.taken(inputs, |part| (&part.past, self.found(part)))?;
        self.cache.slot.iter().for_each(|it| drop(ordered.remove(it)));
        Ok(ordered)
    }

    /// The outputs of this step in the model's order.
    pub fn outputs(&self, outputs: &Arrays) -> Result<Arrays, KernelError> {
        let places = |part: &Kept| {
            let places = self.cache.places(part);
            let first = if self.cache.is_written(self.width) { self.oldest(part) } else { 0 };
            (0..places).map(|place| (first + place) % places.max(1)).collect()
        };
        self.taken(outputs, |part| (&part.present, places(part)))
    }

    /// Of outputs of the model's step what this one leaves: the last places of each part.
    pub fn left(&self, outputs: &Arrays) -> Result<Arrays, KernelError> {
        let capacity = self.cache.capacity;
        let places = |part: &Kept| (capacity - self.cache.places(part).min(capacity)..capacity).collect();
        self.taken(outputs, |part| (&part.present, places(part)))
    }

    /// For each place of a part that the model's step finds where this one has it.
    fn found(&self, part: &Kept) -> Vec<u64> {
        let (cache, places) = (self.cache, self.cache.places(part).max(1));
        let wanted = cache.growth.found(cache.capacity, self.width);
        let held = cache.moved(part, self.width).max(1);
        let place = |place: u64| {
            // Counted from the newest one.
            let place = held - 1 - (wanted - 1 - place) % held;
            if cache.is_written(self.width) { (self.oldest(part) + place) % places } else { place }
        };
        (0..wanted).map(place).collect()
    }

    /// Behind the slot is the oldest entry that is there after the step.
    fn oldest(&self, part: &Kept) -> u64 {
        let places = self.cache.places(part).max(1);
        (self.slot % places + 1) % places
    }

    /// The same arrays, of which those of entries have such places.
    fn taken<'a>(
        &'a self,
        arrays: &Arrays,
        part: impl Fn(&'a Kept) -> (&'a String, Vec<u64>),
    ) -> Result<Arrays, KernelError> {
        let mut taken = arrays.clone();
        for (name, places) in self.cache.entries().map(part) {
            let Some(array) = taken.get_mut(name) else { continue };
            let places: Vec<i64> = places.into_iter().map(|it| i64::try_from(it).unwrap_or(0)).collect();
            let places = Array::of(vec![places.len() as u64], &places)?;
            let mut found = kernels::evaluate(&Op::Gather { dim: self.cache.dim }, &[array, &places])?;
            *array = found.remove(0);
        }
        Ok(taken)
    }
}
