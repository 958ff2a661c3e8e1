//! What a move makes of what devices hold.
//!
//! A group are the devices that differ along some axes only. A move is right if, before it, the
//! devices of each group hold the same except in the digits or addends that are exchanged, if of
//! those the group holds every one, and if after it no block and no addend is lost.

use std::collections::BTreeSet;

use planner_ir::{AxisId, Digit, Layout, Mesh, Move, Type};

use super::blocks::{Cover, Factor, agree, all_held, canonical, coordinate, cover, devices, held, share};

/// What devices hold of a value: the blocks that these digits number, and an addend for each
/// coordinate along the axes owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) dims: Vec<Vec<Digit>>,
    pub(super) owed: Vec<AxisId>,
}

impl Held {
    /// Makes a move; how many bytes all devices together lack of what they hold after it.
    pub(super) fn make(&mut self, mesh: &Mesh, type_: &Type, step: &Move) -> Result<u64, String> {
        let before = self.clone();
        let elements = match step {
            Move::Slice { dim, digits } => {
                self.gain(mesh, type_, *dim, digits)?;
                0
            }
            Move::AllGather { dim, digits } => {
                self.lose(mesh, *dim, *digits)?;
                let lacks = self.elements(type_) - before.elements(type_);
                u128::from(mesh.devices()) * lacks
            }
            Move::AllReduce { axes } => {
                self.pay(axes)?;
                self.exchanged(mesh, axes)?;
                // An addend of each element goes from every device but one, a sum to them.
                let (groups, peers) = groups(mesh, axes);
                groups * 2 * (peers - 1) * before.elements(type_)
            }
            Move::ReduceScatter { dim, digits } => {
                let axes = axes_of(mesh, digits)?;
                self.pay(&axes)?;
                self.exchanged(mesh, &axes)?;
                self.gain(mesh, type_, *dim, digits)?;
                let (_, peers) = groups(mesh, &axes);
                u128::from(mesh.devices()) * (peers - 1) * self.elements(type_)
            }
            Move::AllToAll { from, to, digits } => {
                if from == to {
                    return Err(format!("moves digits within dimension {to}, expected another"));
                }
                let lost = self.lose(mesh, *from, 1)?;
                if axes_of(mesh, digits)? != lost {
                    return Err("gains digits of other axes than it loses".to_owned());
                }
                self.gain(mesh, type_, *to, digits)?;
                u128::from(mesh.devices()) * (self.elements(type_) - self.shared(&before, type_))
            }
            Move::Permute { dims } => {
                self.permute(mesh, type_, dims)?;
                self.taken(&before, mesh, type_)? * self.elements(type_)
            }
        };
        u64::try_from(elements * u128::from(type_.dtype.bytes())).map_err(|_| "too many bytes".to_owned())
    }

    /// How many elements a device holds.
    fn elements(&self, type_: &Type) -> u128 {
        let dims = self.dims.iter().zip(&type_.shape);
        dims.map(|(digits, &extent)| u128::from(held(digits, extent))).product()
    }

    /// How many elements a device holds by both, where along each dimension it holds by one part
    /// of what it holds by the other.
    fn shared(&self, other: &Self, type_: &Type) -> u128 {
        let dims = self.dims.iter().zip(&other.dims).zip(&type_.shape);
        dims.map(|((a, b), &extent)| u128::from(held(a, extent).min(held(b, extent)))).product()
    }

    /// Takes part of what is held: blocks that digits number, innermost.
    fn gain(&mut self, mesh: &Mesh, type_: &Type, dim: usize, digits: &[Digit]) -> Result<(), String> {
        axes_of(mesh, digits)?;
        let Some(own) = self.dims.get_mut(dim) else { return Err(format!("no dimension {dim}")) };
        *own = canonical(own.drain(..).chain(digits.iter().cloned()));
        let blocks = own.iter().try_fold(1u64, |blocks, digit| blocks.checked_mul(digit.size));
        let extent = type_.shape[dim];
        if blocks.is_none_or(|blocks| !extent.is_multiple_of(blocks) || (extent == 0 && blocks > 1)) {
            return Err(format!("dimension {dim} of extent {extent} does not fall into equal blocks"));
        }
        if self.is_complete(mesh) { Ok(()) } else { Err("some blocks or addends are lost".to_owned()) }
    }

    /// Collects the blocks that the innermost digits of a dimension number; the axes of the groups.
    fn lose(&mut self, mesh: &Mesh, dim: usize, count: usize) -> Result<Vec<AxisId>, String> {
        let Some(own) = self.dims.get_mut(dim) else { return Err(format!("no dimension {dim}")) };
        if count == 0 || count > own.len() {
            return Err(format!("takes {count} digits of dimension {dim}, which has {}", own.len()));
        }
        let lost = own.split_off(own.len() - count);
        *own = canonical(own.drain(..));
        let axes = axes_of(mesh, &lost)?;
        let lost: Vec<&Digit> = lost.iter().filter(|digit| !all_held(digit)).collect();
        if cover(mesh, &axes, &lost, 1) != Cover::Once {
            return Err("a group does not hold each block once".to_owned());
        }
        self.exchanged(mesh, &axes)?;
        Ok(axes)
    }

    /// Whether the devices of groups along these axes hold the same apart from what they exchange.
    fn exchanged(&self, mesh: &Mesh, axes: &[AxisId]) -> Result<(), String> {
        let digits: Vec<&Digit> = self.dims.iter().flatten().collect();
        let addends = self.owed.iter().any(|axis| axes.contains(axis));
        if agree(mesh, axes, &digits) && !addends {
            return Ok(());
        }
        Err("devices of a group hold other blocks or addends of what they exchange".to_owned())
    }

    /// Numbers the blocks that devices hold otherwise.
    fn permute(&mut self, mesh: &Mesh, type_: &Type, dims: &[Vec<Digit>]) -> Result<(), String> {
        let after = Layout { dims: dims.to_vec(), owed: self.owed.clone() };
        after.check(mesh, type_).map_err(|error| error.to_string())?;
        self.dims = dims.iter().cloned().map(canonical).collect();
        Ok(())
    }

    /// How many devices hold other blocks than before, if each finds them with a device that had
    /// the same addends.
    fn taken(&self, before: &Self, mesh: &Mesh, type_: &Type) -> Result<u128, String> {
        let block = |held: &Self, device: &[u64]| -> Vec<Vec<Factor>> {
            let dims = held.dims.iter().zip(&type_.shape);
            let addends = held.owed.iter().map(|axis| vec![(0, Some(device[axis.0]))]);
            dims.map(|(digits, &extent)| share(digits, extent, device)).chain(addends).collect()
        };
        let there: BTreeSet<_> = devices(mesh).map(|device| block(before, &device)).collect();
        let mut taken = 0;
        for device in devices(mesh) {
            let own = block(self, &device);
            if !there.contains(&own) {
                return Err("no device holds a block that another takes".to_owned());
            }
            taken += u128::from(own != block(before, &device));
        }
        Ok(taken)
    }

    /// Adds up the addends along these axes.
    fn pay(&mut self, axes: &[AxisId]) -> Result<(), String> {
        if axes.is_empty() {
            return Err("adds up nothing".to_owned());
        }
        for axis in axes {
            let place = self.owed.iter().position(|owed| owed == axis);
            let Some(place) = place else { return Err("adds up a sum that is not owed".to_owned()) };
            self.owed.remove(place);
        }
        Ok(())
    }

    /// Whether some device holds each addend of each block.
    fn is_complete(&self, mesh: &Mesh) -> bool {
        let addends: Vec<Digit> = self.owed.iter().map(|&axis| Digit::axis(mesh, axis)).collect();
        let digits: Vec<&Digit> = self.dims.iter().flatten().filter(|digit| !all_held(digit)).collect();
        let digits = [&digits[..], &addends.iter().collect::<Vec<_>>()].concat();
        let axes: Vec<AxisId> = (0..mesh.axes.len()).map(AxisId).collect();
        cover(mesh, &axes, &digits, 1) != Cover::Not
    }
}

/// The axes whose coordinates digits are: those along which blocks are exchanged.
fn axes_of(mesh: &Mesh, digits: &[Digit]) -> Result<Vec<AxisId>, String> {
    let mut axes = Vec::new();
    for digit in digits.iter().filter(|digit| !all_held(digit)) {
        let Some(axis) = coordinate(mesh, digit) else {
            return Err("exchanges blocks that no single axis numbers".to_owned());
        };
        axes.push(axis);
    }
    let last = digits.last().is_some_and(|digit| !all_held(digit));
    if last && digits.iter().all(|digit| digit.size > 0) {
        return Ok(axes);
    }
    Err("digits end in one whose blocks are all held".to_owned())
}

/// How many groups of devices there are along those axes, and how many devices are in one.
fn groups(mesh: &Mesh, axes: &[AxisId]) -> (u128, u128) {
    let peers = axes.iter().map(|axis| u128::from(mesh.axes[axis.0].size)).product();
    (u128::from(mesh.devices()) / peers, peers)
}
