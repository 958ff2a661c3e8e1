//! How a value gets from one layout to another.
//!
//! Every move acts on the innermost digits of a dimension, so that what a device holds before
//! and after is made of contiguous blocks of the other. A change of an outer digit is a sequence
//! of moves, or a permutation of the blocks that devices hold.

use std::collections::BTreeMap;
use std::fmt;

use crate::data::Type;
use crate::layout::{Digit, Layout, LayoutError, named_axes};
use crate::mesh::{AxisId, Mesh};

/// One move of a value, by all devices of a mesh at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Move {
    /// Each device keeps one block of what it holds; nothing is sent.
    Slice {
        /// Along which dimension.
        dim: usize,
        /// The digits that the dimension gains, innermost.
        digits: Vec<Digit>,
    },
    /// Devices collect each other's blocks.
    AllGather {
        /// Along which dimension.
        dim: usize,
        /// How many of its innermost digits go; they are plain, or free between plain ones.
        digits: usize,
    },
    /// A sum owed is made, and every device has it.
    AllReduce {
        /// The axes that no longer owe, ascending.
        axes: Vec<AxisId>,
    },
    /// A sum owed is made, and each device has one block of it.
    ReduceScatter {
        /// Along which dimension.
        dim: usize,
        /// The digits that the dimension gains; the axes they name no longer owe.
        digits: Vec<Digit>,
    },
    /// Blocks along one dimension become blocks along another.
    AllToAll {
        /// The dimension whose innermost digit goes.
        from: usize,
        /// The dimension that gains digits.
        to: usize,
        /// The digits it gains; the last one names the axis of the digit that goes.
        digits: Vec<Digit>,
    },
    /// Each device takes a block of the same size from the nearest device that has it, itself
    /// first: see [`sources`].
    Permute {
        /// For each dimension the digits after it: of the sizes of those before.
        dims: Vec<Vec<Digit>>,
    },
}

/// Why a move cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The layout that it would lead to is none.
    Layout(LayoutError),
    /// A dimension that the value lacks.
    Dimension(usize),
    /// Fewer digits than go, or one that is not plain.
    Digits(usize),
    /// An axis over which no sum is owed.
    NotOwed(AxisId),
    /// A sum owed over an axis of the digits, or digits that name no axis.
    Gained,
    /// Blocks that are numbered otherwise, or that some device would have to add up.
    Blocks,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(error) => error.fmt(f),
            Self::Dimension(dim) => write!(f, "no dimension {dim}"),
            Self::Digits(dim) => write!(f, "dimension {dim} lacks the digits that go"),
            Self::NotOwed(axis) => write!(f, "no sum is owed over axis {}", axis.0),
            Self::Gained => f.write_str("the digits gained are not ones of free axes"),
            Self::Blocks => f.write_str("not each device finds the block it takes"),
        }
    }
}

impl std::error::Error for MoveError {}

impl Move {
    /// Whether something is exchanged, and not only a part of what a device has taken.
    #[must_use]
    pub fn travels(&self) -> bool {
        !matches!(self, Self::Slice { .. })
    }

    /// The layout after this move of a value of that type.
    pub fn apply(&self, mesh: &Mesh, type_: &Type, before: &Layout) -> Result<Layout, MoveError> {
        let mut after = before.clone();
        match self {
            Self::Slice { dim, digits } => gain(&mut after, *dim, digits)?,
            Self::AllGather { dim, digits } => {
                lose(&mut after, *dim, *digits)?;
            }
            Self::AllReduce { axes } => pay(&mut after, axes)?,
            Self::ReduceScatter { dim, digits } => {
                pay(&mut after, &axes_of(digits))?;
                gain(&mut after, *dim, digits)?;
            }
            Self::AllToAll { from, to, digits } => {
                let lost = lose(&mut after, *from, 1)?;
                if axes_of(digits) != axes_of(&lost) {
                    return Err(MoveError::Gained);
                }
                gain(&mut after, *to, digits)?;
            }
            Self::Permute { dims } => {
                let sizes = |dims: &[Vec<Digit>]| -> Vec<Vec<(u64, bool)>> {
                    let size = |digit: &Digit| (digit.size, digit.is_free());
                    dims.iter().map(|digits| digits.iter().map(size).collect()).collect()
                };
                if sizes(dims) != sizes(&after.dims) || dims == &after.dims {
                    return Err(MoveError::Blocks);
                }
                after.dims.clone_from(dims);
                after.check(mesh, type_).map_err(MoveError::Layout)?;
                sources(mesh, before, &after).ok_or(MoveError::Blocks)?;
            }
        }
        let after = after.canonical();
        after.check(mesh, type_).map_err(MoveError::Layout)?;
        Ok(after)
    }

    /// The axes along which devices exchange something, in the order of their digits.
    pub fn axes(&self, before: &Layout) -> Vec<AxisId> {
        match self {
            Self::Slice { .. } => vec![],
            Self::AllGather { dim, digits } => {
                let held = &before.dims[*dim];
                axes_of(&held[held.len().saturating_sub(*digits)..])
            }
            Self::AllReduce { axes } => axes.clone(),
            Self::ReduceScatter { digits, .. } | Self::AllToAll { digits, .. } => axes_of(digits),
            Self::Permute { dims } => {
                let changed = dims.iter().flatten().zip(before.dims.iter().flatten()).filter(|(a, b)| a != b);
                named_axes(changed.flat_map(|(a, b)| [a, b]))
            }
        }
    }

    /// What all devices together receive, by the algorithm that needs least (bytes).
    ///
    /// With n devices in a group and S the bytes of the whole that the group holds: an all-gather
    /// and an all-to-all move what each device lacks; a reduce-scatter as much; an all-reduce is a
    /// reduce-scatter and an all-gather. In a permutation, each device that changes its block
    /// receives one.
    pub fn bytes(&self, mesh: &Mesh, type_: &Type, before: &Layout, after: &Layout) -> u64 {
        if let Self::Permute { .. } = self {
            let sources = sources(mesh, before, after).unwrap_or_default();
            let moved = (0..).zip(sources).filter(|(device, source)| device != source).count();
            return u64::try_from(moved).unwrap_or(u64::MAX) * after.local_bytes(type_);
        }
        let group: u64 = self.axes(before).iter().map(|&axis| mesh.size(axis)).product();
        let held_before = before.local_bytes(type_);
        let held_after = after.local_bytes(type_);
        let groups = mesh.devices() / group.max(1);
        groups
            * match self {
                Self::Slice { .. } | Self::Permute { .. } => 0,
                Self::AllGather { .. } => (group - 1) * held_after,
                Self::AllReduce { .. } => 2 * (group - 1) * held_before,
                Self::ReduceScatter { .. } | Self::AllToAll { .. } => (group - 1) * held_before,
            }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Slice { .. } => "slice",
            Self::AllGather { .. } => "all-gather",
            Self::AllReduce { .. } => "all-reduce",
            Self::ReduceScatter { .. } => "reduce-scatter",
            Self::AllToAll { .. } => "all-to-all",
            Self::Permute { .. } => "permute",
        }
    }
}

/// From which device each one takes its block when blocks are permuted: of those that have it and
/// the same addend, itself; otherwise one that differs along the fewest axes, the first of such.
pub fn sources(mesh: &Mesh, before: &Layout, after: &Layout) -> Option<Vec<u64>> {
    let block = |layout: &Layout, coordinates: &[u64]| -> Vec<u64> {
        let digits = layout.dims.iter().flatten().filter(|digit| !digit.is_free());
        let addends = layout.owed.iter().map(|axis| coordinates[axis.0]);
        digits.map(|digit| digit.at(coordinates, 0)).chain(addends).collect()
    };
    let mut holders: BTreeMap<Vec<u64>, Vec<u64>> = BTreeMap::new();
    for device in 0..mesh.devices() {
        holders.entry(block(before, &mesh.coordinates(device))).or_default().push(device);
    }
    let source = |device: u64| {
        let own = mesh.coordinates(device);
        let far = |&holder: &u64| mesh.coordinates(holder).iter().zip(&own).filter(|(a, b)| a != b).count();
        holders.get(&block(after, &own))?.iter().copied().min_by_key(far)
    };
    (0..mesh.devices()).map(source).collect()
}

/// The axes of plain digits, in order.
fn axes_of(digits: &[Digit]) -> Vec<AxisId> {
    digits.iter().filter_map(Digit::plain).collect()
}

fn gain(layout: &mut Layout, dim: usize, digits: &[Digit]) -> Result<(), MoveError> {
    let right = digits.last().is_some_and(|last| last.plain().is_some())
        && digits.iter().all(|digit| digit.is_free() || digit.plain().is_some());
    if !right {
        return Err(MoveError::Gained);
    }
    let axes = layout.axes();
    if axes_of(digits).iter().any(|axis| axes.contains(axis) || layout.owed.contains(axis)) {
        return Err(MoveError::Gained);
    }
    layout.dims.get_mut(dim).ok_or(MoveError::Dimension(dim))?.extend_from_slice(digits);
    Ok(())
}

/// Takes the innermost digits of a dimension away.
fn lose(layout: &mut Layout, dim: usize, count: usize) -> Result<Vec<Digit>, MoveError> {
    let digits = layout.dims.get_mut(dim).ok_or(MoveError::Dimension(dim))?;
    if count == 0 || count > digits.len() {
        return Err(MoveError::Digits(dim));
    }
    let lost = digits.split_off(digits.len() - count);
    let plain = lost.iter().all(|digit| digit.is_free() || digit.plain().is_some());
    // Where a digit that stays depends on an axis too, a group along it lacks some blocks.
    let (axes, kept) = (axes_of(&lost), layout.axes());
    let whole = axes.iter().all(|axis| !kept.contains(axis));
    if plain && whole && !axes.is_empty() { Ok(lost) } else { Err(MoveError::Digits(dim)) }
}

fn pay(layout: &mut Layout, axes: &[AxisId]) -> Result<(), MoveError> {
    if axes.is_empty() {
        return Err(MoveError::Gained);
    }
    for axis in axes {
        let place = layout.owed.iter().position(|owed| owed == axis).ok_or(MoveError::NotOwed(*axis))?;
        layout.owed.remove(place);
    }
    Ok(())
}
