//! How the blocks of operands and results move between the time steps of a partition.
//!
//! A partition in time gives each device a sequence of blocks of every operand and result. Where
//! they come from follows from the digits alone. Let `b(x, t)` be the block that the device at
//! coordinates x works on at step t:
//!
//! - `b` does not depend on t: the block is *stationary*.
//! - `b(x + δ, t) = b(x, t + 1)` for one δ and all x: blocks are *rotating*, each device takes the
//!   next one from its neighbour at δ while it computes on this one. An operand starts in the
//!   layout of step 0; a result that rotates is a sum that travels with its block, collects an
//!   addend at every step, and ends in the layout of the last one.
//! - `b` counts t alone, and the partition names an axis to stream over: device t of that axis has
//!   the block at rest and gives it to the others (an operand), or gets the sum of what they have
//!   made of it (a result).
//! - otherwise every device has the blocks of all steps at rest, *whole*, and takes (or puts) one
//!   at a step.
//!
//! There is one δ for all blocks. A partition that goes both ways is two maps, one for the first
//! halves of blocks and one for the second, with time turned back; each moves as said here.

use crate::data::Type;
use crate::layout::{Digit, named_axes};
use crate::loops::{LoopId, Loops, Role};
use crate::mesh::{AxisId, Mesh};
use crate::partition::{Partition, PartitionError, Slots};

/// How the blocks of one operand or result move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Motion {
    /// The same block at every step.
    Stationary,
    /// Each device takes its next block from the same neighbour.
    Rotating(Shift),
    /// One device of the axis has the block of a step at rest.
    Streaming(AxisId),
    /// Every device has the blocks of all steps at rest.
    Whole,
}

/// A neighbour, seen from any device: how far along each axis, cyclically.
///
/// Axes ascending; no distance is 0, and each is the shorter way round.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shift(pub Vec<(AxisId, i64)>);

/// How many neighbours are tried for a rotation: more than any real ring of rings has.
const NEIGHBOURS: u64 = 1 << 12;

impl Shift {
    /// The neighbour of a device.
    pub fn of(&self, mesh: &Mesh, device: u64) -> u64 {
        let mut coordinates = mesh.coordinates(device);
        for &(axis, distance) in &self.0 {
            let place = i128::from(coordinates[axis.0]) + i128::from(distance);
            let size = i128::from(mesh.size(axis));
            coordinates[axis.0] = u64::try_from(place.rem_euclid(size)).unwrap_or(0);
        }
        mesh.device(&coordinates)
    }

    /// The axes along which the neighbour lies.
    pub fn axes(&self) -> Vec<AxisId> {
        self.0.iter().map(|it| it.0).collect()
    }

    /// What a digit grows by from a device to its neighbour.
    fn grows(&self, digit: &Digit) -> i64 {
        let along = |(axis, coefficient): &(AxisId, i64)| {
            let distance = self.0.iter().find(|it| it.0 == *axis).map_or(0, |it| it.1);
            coefficient * distance
        };
        digit.terms.iter().map(along).sum()
    }
}

impl Partition {
    /// How the blocks of an operand move.
    pub fn operand_motion(&self, loops: &Loops, index: usize) -> Motion {
        if self.steps == 1 {
            return Motion::Stationary;
        }
        self.motion(&self.digits_of(&loops.operands[index]))
    }

    /// How the blocks of a result move.
    pub fn result_motion(&self, loops: &Loops, index: usize) -> Motion {
        if self.steps == 1 {
            return Motion::Stationary;
        }
        let dims = &loops.results[index];
        match self.motion(&self.digits_of(dims)) {
            // A block that is whole when it has been computed once does not travel.
            Motion::Rotating(shift)
                if self.owed_by(loops, dims, &Motion::Rotating(shift.clone())).is_none() =>
            {
                Motion::Whole
            }
            motion => motion,
        }
    }

    /// Whether results are merged from parts, of which a step makes one.
    pub fn merges(&self, loops: &Loops) -> bool {
        loops.ids().any(|it| loops.get(it).role == Role::Merge && !self.loops[it.0].is_empty())
    }

    /// Whether blocks can go the ways that they are to: `check`'s part for ways.
    pub(crate) fn check_ways(&self, loops: &Loops) -> Result<(), PartitionError> {
        let [forth, back] = &self.each_way()[..] else { return Ok(()) };
        let mut timed = self.loops.iter().flatten().filter(|digit| digit.step != 0);
        if timed.next().is_none() || timed.next().is_some() {
            return Err(PartitionError::Ways);
        }
        let operands = (0..loops.operands.len()).map(|it| {
            let of = |way: &Self| (way.operand_motion(loops, it), way.operand(loops, it));
            (of(forth), of(back))
        });
        let results = (0..loops.results.len()).map(|it| {
            let of = |way: &Self| (way.result_motion(loops, it), way.result(loops, it));
            (of(forth), of(back))
        });
        let all: Vec<_> = operands.chain(results).collect();
        let rotates = |it: &Motion| matches!(it, Motion::Rotating(_));
        let together = all.iter().all(|((one, forth), (other, back))| {
            forth == back && ((rotates(one) && rotates(other)) || (one == other && !streams(one)))
        });
        let any = all.iter().any(|((one, _), _)| rotates(one));
        if together && any { Ok(()) } else { Err(PartitionError::Ways) }
    }

    /// Whether blocks have slots that suit how they move: `check`'s part for slots.
    pub(crate) fn check_slots(&self, loops: &Loops) -> Result<(), PartitionError> {
        let operands = (0..loops.operands.len()).map(|it| self.operand_motion(loops, it));
        let mut motions = operands.chain((0..loops.results.len()).map(|it| self.result_motion(loops, it)));
        let mut rotates = || motions.any(|it| matches!(it, Motion::Rotating(_)));
        let suits = self.slots == Slots::Two || (self.streams.is_empty() && rotates());
        if suits { Ok(()) } else { Err(PartitionError::Slots) }
    }

    /// Whether everything that depends on time can be had: `check`'s part for steps.
    pub(crate) fn check_motion(&self, mesh: &Mesh, loops: &Loops) -> Result<(), PartitionError> {
        let strange = self.streams.iter().any(|axis| axis.0 >= mesh.axes.len());
        if strange || (self.steps == 1 && !self.streams.is_empty()) {
            return Err(PartitionError::Steps(self.steps));
        }
        if self.steps == 1 {
            let mut digits = self.loops.iter().flatten().filter(|digit| !digit.is_free());
            let skewed = digits.any(|digit| digit.plain().is_none());
            let owed = |dims| self.owed_by(loops, dims, &Motion::Stationary);
            return match loops.results.iter().find(|dims| skewed && owed(dims).is_none()) {
                Some(_) => Err(PartitionError::Sums),
                None => Ok(()),
            };
        }
        // What is passed through would be so at every step, and what is added to a sum once with
        // every addend.
        if let Some(&axis) = self.passed.first() {
            return Err(PartitionError::Passed(axis));
        }
        let in_parts = |it: LoopId| loops.get(it).role == Role::Sum && !self.loops[it.0].is_empty();
        if !loops.added.is_empty() && loops.ids().any(in_parts) {
            return Err(PartitionError::Sums);
        }
        for dims in &loops.results {
            let index = |it: &LoopId| dims.iter().any(|dim| dim.contains(it));
            // A loop in time that a result lacks has to be a sum, or merged.
            let temporal = |it: &LoopId| self.loops[it.0].iter().any(|digit| digit.step != 0);
            let makes_parts = |it: &LoopId| loops.get(*it).role.makes_parts();
            let again = loops.ids().find(|it| temporal(it) && !index(it) && !makes_parts(it));
            if again.is_some() {
                return Err(PartitionError::Steps(self.steps));
            }
        }
        for index in 0..loops.results.len() {
            let motion = self.result_motion(loops, index);
            let digits = self.digits_of(&loops.results[index]);
            let timed: Vec<&Digit> = digits.iter().copied().filter(|digit| digit.step != 0).collect();
            let once = matches!(timed[..], [digit] if digit.size == self.steps && inverse(digit).is_some());
            let known = match &motion {
                Motion::Whole | Motion::Streaming(_) => once,
                Motion::Stationary | Motion::Rotating(_) => true,
            };
            if !known {
                return Err(PartitionError::Steps(self.steps));
            }
            // Results that are merged together collect the same parts.
            let together = !self.merges(loops) || motion == self.result_motion(loops, 0);
            if !together || self.owed_by(loops, &loops.results[index], &motion).is_none() {
                return Err(PartitionError::Sums);
            }
        }
        Ok(())
    }

    /// The axes over which the operation itself leaves sums owed in a result of these dimensions,
    /// if each addend of a block is made once: the fewest, and of as many the first.
    pub(crate) fn owed_by(
        &self,
        loops: &Loops,
        dims: &[Vec<LoopId>],
        motion: &Motion,
    ) -> Option<Vec<AxisId>> {
        let adds = |it: LoopId| loops.get(it).role.makes_parts() && !dims.iter().any(|dim| dim.contains(&it));
        let of_role = |summed: bool| {
            let ids = loops.ids().filter(move |&it| adds(it) == summed);
            ids.flat_map(|it| &self.loops[it.0]).filter(|digit| !digit.is_free())
        };
        let mapped = named_axes(of_role(false));
        let followed: Vec<Digit> = of_role(true).map(|digit| self.followed(digit, dims, motion)).collect();
        let digits: Vec<&Digit> = followed.iter().filter(|digit| !digit.is_free()).collect();
        let constant = followed.iter().any(Digit::is_free);
        let steps = match motion {
            Motion::Stationary | Motion::Rotating(_) => self.steps,
            Motion::Whole | Motion::Streaming(_) => 1,
        };
        let axes = named_axes(digits.iter().copied());
        let free: Vec<AxisId> = match motion {
            Motion::Rotating(_) if loops.larger_parts && self.merges(loops) => return None,
            // What is merged cannot be left to a sum: steps have all of it.
            _ if self.merges(loops) => Vec::new(),
            // Devices along the axis have blocks of their own only at rest.
            Motion::Streaming(axis) => {
                axes.iter().copied().filter(|it| it == axis || !mapped.contains(it)).collect()
            }
            _ => axes.iter().copied().filter(|axis| !mapped.contains(axis)).collect(),
        };
        let chosen = |set: &u32| -> Vec<AxisId> {
            free.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, &axis)| axis).collect()
        };
        let mut sets: Vec<u32> = (0..1 << free.len()).collect();
        sets.sort_by_key(|set| (set.count_ones(), set.reverse_bits().wrapping_neg()));
        let found = sets.iter().map(chosen).find(|axes| !constant && once(&digits, axes, steps))?;
        match motion {
            // The sum over the axis is made as blocks are given.
            Motion::Streaming(axis) if found.contains(axis) => {
                Some(found.into_iter().filter(|it| it != axis).collect())
            }
            Motion::Streaming(_) => None,
            _ => Some(found),
        }
    }

    /// A digit of a summed loop, for the addends of one block of a result: where the block is at
    /// each step, or at the one step that makes it.
    fn followed(&self, digit: &Digit, dims: &[Vec<LoopId>], motion: &Motion) -> Digit {
        let size = i128::from(digit.size.max(1));
        let within = |it: i128| i64::try_from(it.rem_euclid(size)).unwrap_or(0);
        match motion {
            Motion::Stationary => digit.clone(),
            // The block is at x at the last step, and was at x + (steps - 1 - t) δ before.
            Motion::Rotating(shift) => {
                let grows = i128::from(shift.grows(digit));
                let last = i128::from(self.steps) - 1;
                let step = within(i128::from(digit.step) - grows);
                let offset = within(i128::from(digit.offset) + last * grows);
                Digit { step, offset, ..digit.clone() }
            }
            // The block of number v is made at the step at which its digit is v.
            Motion::Whole | Motion::Streaming(_) => {
                let digits = self.digits_of(dims);
                let timed = digits.iter().find(|it| it.step != 0);
                let mut terms = digit.terms.clone();
                if let Some(timed) = timed.filter(|it| it.size == digit.size) {
                    let factor = inverse(timed).unwrap_or(0) * digit.step;
                    for &(axis, coefficient) in &timed.terms {
                        match terms.iter_mut().find(|term| term.0 == axis) {
                            Some(term) => term.1 -= factor * coefficient,
                            None => terms.push((axis, -factor * coefficient)),
                        }
                    }
                }
                for term in &mut terms {
                    term.1 = within(i128::from(term.1));
                }
                terms.retain(|term| term.1 != 0);
                terms.sort_unstable();
                Digit { step: 0, offset: 0, terms, size: digit.size }
            }
        }
    }

    /// How a block of these digits moves.
    fn motion(&self, digits: &[&Digit]) -> Motion {
        let timed = || digits.iter().filter(|digit| digit.step != 0);
        if timed().next().is_none() {
            return Motion::Stationary;
        }
        if timed().all(|digit| digit.terms.is_empty()) {
            let named = named_axes(digits.iter().copied());
            let axis = self.streams.iter().find(|axis| !named.contains(axis));
            let one =
                timed().count() == 1 && timed().all(|digit| inverse(digit) == Some(1) && digit.offset == 0);
            return axis.filter(|_| one).map_or(Motion::Whole, |&axis| Motion::Streaming(axis));
        }
        self.shift(digits).map_or(Motion::Whole, Motion::Rotating)
    }

    /// The nearest neighbour that has at a step what a device needs at the next one.
    fn shift(&self, digits: &[&Digit]) -> Option<Shift> {
        let axes = named_axes(digits.iter().copied());
        let size = |axis: AxisId| {
            let names = |digit: &&&Digit| digit.terms.iter().any(|term| term.0 == axis);
            digits.iter().find(names).map_or(1, |digit| digit.size)
        };
        let count = axes.iter().try_fold(1u64, |count, &axis| count.checked_mul(size(axis)))?;
        let neighbour = |number: u64| {
            let mut rest = number;
            let distance = |&axis: &AxisId| {
                let (size, place) = (size(axis), rest % size(axis));
                rest /= size;
                let distance = i64::try_from(place).unwrap_or(0);
                let back = i64::try_from(size - place).unwrap_or(0);
                (axis, if back < distance { -back } else { distance })
            };
            Shift(axes.iter().map(distance).filter(|it| it.1 != 0).collect())
        };
        let has = |shift: &Shift| {
            digits.iter().all(|digit| {
                let size = i128::from(digit.size.max(1));
                i128::from(shift.grows(digit)).rem_euclid(size) == i128::from(digit.step).rem_euclid(size)
            })
        };
        let far = |shift: &Shift| shift.0.iter().map(|it| it.1.unsigned_abs()).sum::<u64>();
        (0..count.min(NEIGHBOURS)).map(neighbour).filter(has).min_by_key(far)
    }

    /// The type of the block of an operand that a device works on at a step, of what goes one way.
    pub fn operand_block(&self, loops: &Loops, index: usize, type_: &Type) -> Type {
        self.block_type(&loops.operands[index], type_)
    }

    /// The type of the block of a result that a device makes at a step, of what goes one way.
    pub fn result_block(&self, loops: &Loops, index: usize, type_: &Type) -> Type {
        self.block_type(&loops.results[index], type_)
    }

    fn block_type(&self, dims: &[Vec<LoopId>], type_: &Type) -> Type {
        let blocks = |dim: &Vec<LoopId>| -> u64 {
            let digits = self.digits_of(std::slice::from_ref(dim));
            let halved = self.halved().is_some_and(|it| dim.contains(&it));
            let ways = if halved { self.ways.count() } else { 1 };
            digits.iter().map(|digit| digit.size).product::<u64>() * ways
        };
        let shape = dims.iter().zip(&type_.shape).map(|(dim, &extent)| extent / blocks(dim));
        Type::new(type_.dtype, shape.collect::<Vec<u64>>())
    }

    /// The digits of the loops that index some dimensions.
    fn digits_of(&self, dims: &[Vec<LoopId>]) -> Vec<&Digit> {
        dims.iter().flatten().flat_map(|it| &self.loops[it.0]).filter(|digit| !digit.is_free()).collect()
    }
}

impl Motion {
    /// A digit as the blocks of an operand are at rest before the first step, or those of a result
    /// after the last.
    pub(crate) fn at_rest(&self, digit: &Digit, time: u64) -> Digit {
        if digit.step == 0 {
            return digit.clone();
        }
        match self {
            Self::Stationary | Self::Rotating(_) => {
                let size = i128::from(digit.size.max(1));
                let offset = i128::from(digit.offset) + i128::from(digit.step) * i128::from(time);
                let offset = i64::try_from(offset.rem_euclid(size)).unwrap_or(0);
                Digit { step: 0, offset, ..digit.clone() }
            }
            Self::Streaming(axis) => Digit { terms: vec![(*axis, 1)], step: 0, offset: 0, size: digit.size },
            Self::Whole => Digit::free(digit.size),
        }
    }
}

fn streams(motion: &Motion) -> bool {
    matches!(motion, Motion::Streaming(_))
}

/// What a step of time is worth: the number by which a digit's coefficient of time gives 1.
fn inverse(digit: &Digit) -> Option<i64> {
    let size = i64::try_from(digit.size).ok()?;
    (0..size.max(1)).find(|it| (i128::from(*it) * i128::from(digit.step)).rem_euclid(i128::from(size)) == 1)
}

/// Whether devices along the axes, and time steps, have each combination of the digits' values
/// once.
pub(crate) fn once(digits: &[&Digit], axes: &[AxisId], steps: u64) -> bool {
    // An axis has the size of the digits that name it; the coordinates along others are a shift.
    let size = |axis: AxisId| {
        let names = |digit: &&&Digit| digit.terms.iter().any(|term| term.0 == axis);
        digits.iter().find(names).map_or(1, |digit| digit.size)
    };
    let rank = named_axes(digits.iter().copied()).last().map_or(0, |axis| axis.0 + 1);
    let sizes: Vec<u64> =
        (0..rank).map(AxisId).map(|it| if axes.contains(&it) { size(it) } else { 1 }).collect();
    let blocks = digits.iter().try_fold(1u64, |blocks, digit| blocks.checked_mul(digit.size));
    let made = sizes.iter().try_fold(steps, |made, &size| made.checked_mul(size));
    blocks.is_some() && blocks == made && crate::layout::onto(&sizes, digits, steps)
}

#[cfg(test)]
mod tests;
