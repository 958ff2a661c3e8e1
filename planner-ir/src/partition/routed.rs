//! Rows that go to where what they use is.
//!
//! Of an operation whose rows use few of many parts each, as tokens do experts, a device of a group has some
//! of the rows at rest and some of the parts: each row goes to the devices that have a part that it uses, and
//! what they make of it comes back and is added up there. In between the operation is partitioned as if all
//! rows were everywhere: rows that use no part of a device are not looked at, wherever they are.
//!
//! What says which row uses which part (gates) is at rest with the rows, and goes to where the parts are.

use super::{Partition, PartitionError};
use crate::data::Type;
use crate::layout::{Digit, check_digits};
use crate::loops::{LoopId, Loops, Routing};
use crate::mesh::{AxisId, Mesh};

/// How an operand or result of an operation goes where rows are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It stays where the parts are.
    Stays,
    /// Its rows go to where the parts are that they use, or come from there.
    Rows,
    /// It says which row uses which part, or is a gradient of that: blocks of it are exchanged.
    Gates,
}

impl Partition {
    /// The axes of the groups in which rows are routed, in the order of the groups' blocks.
    pub fn routed_axes(&self) -> Vec<AxisId> {
        self.routed.iter().filter_map(Digit::plain).collect()
    }

    /// The same work with all rows everywhere.
    #[must_use]
    pub fn met(&self) -> Self {
        Self { routed: Vec::new(), routed_by: 1, ..self.clone() }
    }

    /// How a value with these dimensions goes.
    pub fn route(&self, loops: &Loops, dims: &[Vec<LoopId>]) -> Route {
        let indexes = |it: LoopId| dims.iter().any(|dim| dim.contains(&it));
        match loops.routed {
            Some(Routing { rows, parts, .. }) if !self.routed.is_empty() && indexes(rows) => {
                if indexes(parts) { Route::Gates } else { Route::Rows }
            }
            _ => Route::Stays,
        }
    }

    /// How each operand and then each result goes, and the type of what a device has of it where it is used or made:
    /// of rows, all of a group.
    pub fn routes(&self, loops: &Loops, operands: &[Type], results: &[Type]) -> Vec<(Route, Type)> {
        let taken = operands.iter().enumerate().map(|(it, type_)| self.operand_block(loops, it, type_));
        let made = results.iter().enumerate().map(|(it, type_)| self.result_block(loops, it, type_));
        let all = loops.operands.iter().chain(&loops.results).zip(taken.chain(made));
        all.map(|(dims, block)| (self.route(loops, dims), block)).collect()
    }

    /// The digits of a loop in a value with these dimensions, at rest.
    pub(super) fn own_digits(&self, loops: &Loops, dims: &[Vec<LoopId>], it: LoopId) -> Vec<Digit> {
        let own = &self.loops[it.0];
        match loops.routed {
            Some(Routing { rows, .. }) if it == rows && !self.routed.is_empty() => {
                [&own[..], &self.routed].concat()
            }
            Some(Routing { parts, .. }) if it == parts && self.route(loops, dims) == Route::Gates => {
                Vec::new()
            }
            _ => own.clone(),
        }
    }

    /// Whether rows can be routed so: `check`'s part for that.
    pub(super) fn check_routed(&self, mesh: &Mesh, loops: &Loops) -> Result<(), PartitionError> {
        let once = self.steps == 1 && self.passed.is_empty();
        let Some(Routing { rows, parts, .. }) = loops.routed.filter(|_| once) else {
            return Err(PartitionError::Routed);
        };
        check_digits(mesh, &self.routed).map_err(PartitionError::Digits)?;
        let simple = |digit: &Digit| digit.is_free() || digit.plain().is_some();
        let ends = self.routed.last().is_some_and(|digit| digit.plain().is_some());
        let split: Option<Vec<AxisId>> = self.loops[parts.0].iter().map(Digit::plain).collect();
        if !ends || !self.routed.iter().all(simple) || split != Some(self.routed_axes()) {
            return Err(PartitionError::Routed);
        }
        let (by, group) = (self.routed_by, self.routed_group());
        if by == 0 || by > 1 && by >= group || !group.is_multiple_of(by) {
            return Err(PartitionError::RoutedBy(by, group));
        }
        let digits = self.loops[rows.0].iter().chain(&self.routed);
        let blocks = digits.map(|digit| digit.size).try_fold(1u64, u64::checked_mul);
        let size = loops.get(rows).size;
        if blocks.is_none_or(|blocks| !size.is_multiple_of(blocks)) {
            return Err(PartitionError::Uneven(rows, size, blocks.unwrap_or(u64::MAX)));
        }
        Ok(())
    }

    /// Whether blocks move while the operation is done: in time steps, or routed.
    pub fn moves(&self) -> bool {
        self.steps > 1 || !self.routed.is_empty()
    }

    /// Between how many devices rows are routed.
    pub fn routed_group(&self) -> u64 {
        self.routed.iter().filter(|digit| !digit.is_free()).map(|digit| digit.size).product()
    }

    /// Which rows go between the devices of a group; none if no rows are routed.
    pub fn routed_rows(&self, loops: &Loops) -> Option<RoutedRows> {
        let Routing { rows, parts, used } = loops.routed.filter(|_| !self.routed.is_empty())?;
        let digits = self.loops[rows.0].iter().chain(&self.routed).filter(|digit| !digit.is_free());
        let blocks: u64 = digits.map(|digit| digit.size).product();
        let count = loops.get(rows).size.checked_div(blocks)?;
        Some(RoutedRows { count, used, parts: loops.get(parts).size, by: self.routed_by })
    }
}

/// Rows of which each goes to the devices of a group that have a part that it uses: straight to each of them, or to
/// one of several that lie next to each other (a set), which passes it on within the set.
///
/// A row of the device at a place of its set goes to the device at the same place of each other set. So that
/// that one knows who uses it, a mark goes ahead for each row and device of a set: one bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedRows {
    /// How many rows a device has at rest.
    pub count: u64,
    /// How many parts a row uses at most.
    pub used: u64,
    /// How many parts all devices of a group have together.
    pub parts: u64,
    /// How many devices a set has; 1 where rows go straight.
    pub by: u64,
}

impl RoutedRows {
    /// How much of an amount that is spread evenly over rows is of those that use a part of one device.
    pub fn of_device(&self, amount: u64, group: u64) -> u64 {
        self.share(amount, group)
    }

    /// How much of it is of those that use a part of any device of a set.
    pub fn of_set(&self, amount: u64, group: u64) -> u64 {
        self.share(amount, group / self.by.max(1))
    }

    /// The marks of a device's rows for all sets, its own included (bytes).
    pub fn marks(&self, group: u64) -> u64 {
        if self.by > 1 { group / self.by * self.by * self.count.div_ceil(8) } else { 0 }
    }

    /// What a device is expected to get from others, where each has so many bytes of rows at rest.
    ///
    /// With rows of `S` bytes on each of `g` devices in `s` sets, and the shares of [`of_device`](Self::of_device)
    /// and [`of_set`](Self::of_set):
    ///
    /// ```text
    /// straight      S (g − 1) share of a device
    /// by sets       S (s − 1) share of a set + S (g − s) share of a device + marks of other sets
    /// ```
    ///
    /// What is made of rows comes back the same way: it is added up within a set first.
    pub fn received(&self, own: u64, group: u64) -> u64 {
        if self.by <= 1 {
            return self.of_device(own.saturating_mul(group - 1), group);
        }
        let sets = group / self.by;
        let across = self.of_set(own.saturating_mul(sets - 1), group) + self.marks(group) / sets * (sets - 1);
        across + self.of_device(own.saturating_mul(group - sets), group)
    }

    /// How much of an amount that is spread evenly over rows is of those that use a part of one of so many equal
    /// groups of parts, where rows use parts evenly and independently.
    ///
    /// With E parts, of which a group has m, and k used by a row, the share is
    ///
    /// ```text
    /// 1 − Π_{i<k} (E − m − i) / (E − i)
    /// ```
    fn share(&self, amount: u64, groups: u64) -> u64 {
        let Self { used, parts, .. } = *self;
        let others = parts - parts / groups.max(1);
        let missed = (0..used.min(parts)).fold(u128::from(amount), |missed, it| {
            missed * u128::from(others.saturating_sub(it)) / u128::from(parts - it)
        });
        amount - u64::try_from(missed).unwrap_or(amount)
    }
}
