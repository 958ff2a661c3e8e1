//! Which piece of a value each device holds.

use std::fmt;

use crate::data::Type;
use crate::mesh::{AxisId, Mesh};
use crate::odometer::advance;

/// One digit of the block number along a dimension: `(Σ coefficient · x[axis] + step · t + offset)
/// mod size`, where x are a device's coordinates and t is the time step.
///
/// A digit without terms and without a step is *free*: a device holds its blocks for all values
/// of the digit. Free digits stand between others where a dimension is a product of loops and an
/// inner one is split (the heads of a packed query-key-value projection).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digit {
    /// How many values it has.
    pub size: u64,
    /// The axes named, with their coefficients, ascending.
    pub terms: Vec<(AxisId, i64)>,
    /// The coefficient of time: 0 if it is spatial.
    pub step: i64,
    /// The constant.
    pub offset: i64,
}

impl Digit {
    /// The plain digit: the device's coordinate along an axis.
    pub fn axis(mesh: &Mesh, axis: AxisId) -> Self {
        Self { size: mesh.size(axis), terms: vec![(axis, 1)], step: 0, offset: 0 }
    }

    /// A digit whose blocks are all held.
    pub fn free(size: u64) -> Self {
        Self { size, terms: vec![], step: 0, offset: 0 }
    }

    /// Whether all its blocks are held.
    pub fn is_free(&self) -> bool {
        self.terms.is_empty() && self.step == 0
    }

    /// Its axis, if it is the plain digit of one.
    pub fn plain(&self) -> Option<AxisId> {
        match self.terms[..] {
            [(axis, 1)] if self.step == 0 && self.offset == 0 => Some(axis),
            _ => None,
        }
    }

    /// The digit with time and the constant subtracted.
    pub(crate) fn back(&self) -> Self {
        let size = i128::from(self.size.max(1));
        let turned = |it: i64| i64::try_from((-i128::from(it)).rem_euclid(size)).unwrap_or(0);
        Self { step: turned(self.step), offset: turned(self.offset), ..self.clone() }
    }

    /// Its value for a device at a time step.
    pub fn at(&self, coordinates: &[u64], step: u64) -> u64 {
        let size = i128::from(self.size);
        let mut sum = i128::from(self.offset) + i128::from(self.step) * i128::from(step);
        for &(axis, coefficient) in &self.terms {
            sum += i128::from(coefficient) * i128::from(coordinates[axis.0]);
        }
        u64::try_from(sum.rem_euclid(size)).unwrap_or(0)
    }
}

/// Which piece of a value each device holds.
///
/// Along each dimension, digits (outermost first) number equal blocks; the device holds the
/// blocks whose number has its digits. Where axes are owed, what the devices along them hold are
/// addends: the value is their sum. Along every other axis that no digit names, the value is
/// replicated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    /// For each dimension its digits, outermost first, in canonical form: no digit of size 1, no
    /// two free digits in a row, no free digit last.
    pub dims: Vec<Vec<Digit>>,
    /// The axes over which a sum is owed, ascending.
    pub owed: Vec<AxisId>,
}

/// One factor of a dimension, as a device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// How many blocks there are.
    pub size: u64,
    /// Which one the device holds; all of them if there is none.
    pub index: Option<u64>,
}

/// Why a layout does not suit a mesh and a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Not as many dimensions as the type has; found, expected.
    Rank(usize, usize),
    /// An axis that the mesh lacks.
    Axis(AxisId),
    /// A digit whose size is not that of an axis it names; found, expected.
    Size(u64, u64),
    /// A dimension whose blocks are not equal: which, its extent, how many blocks.
    Uneven(usize, u64, u64),
    /// Blocks that no device holds.
    NotOnto,
    /// An axis that is both split over and owed, or owed twice.
    Owed(AxisId),
    /// A sum owed of truth values.
    NoSums,
    /// A digit that depends on time.
    Temporal,
    /// Digits that are not in canonical form, in this dimension.
    Form(usize),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank(found, expected) => {
                write!(f, "layout has {found} dimensions, expected {expected}")
            }
            Self::Axis(axis) => write!(f, "layout names axis {}, which the mesh lacks", axis.0),
            Self::Size(found, expected) => {
                write!(f, "digit of size {found}, expected its axis's {expected}")
            }
            Self::Uneven(dim, extent, blocks) => {
                write!(f, "dimension {dim} of extent {extent} does not fall into {blocks} equal blocks")
            }
            Self::NotOnto => f.write_str("no device holds some of the blocks"),
            Self::Owed(axis) => write!(f, "axis {} is owed and used otherwise too", axis.0),
            Self::NoSums => f.write_str("a sum of truth values cannot be owed"),
            Self::Temporal => f.write_str("a layout at rest cannot depend on time"),
            Self::Form(dim) => write!(f, "the digits of dimension {dim} are not in canonical form"),
        }
    }
}

impl std::error::Error for LayoutError {}

impl Layout {
    /// Every device holds the whole value of that rank.
    pub fn replicated(rank: usize) -> Self {
        Self { dims: vec![Vec::new(); rank], owed: Vec::new() }
    }

    /// The same layout in canonical form.
    pub fn canonical(mut self) -> Self {
        self.dims = self.dims.into_iter().map(canonical_digits).collect();
        self.owed.sort_unstable();
        self
    }

    /// Whether every device holds the whole value.
    pub fn is_replicated(&self) -> bool {
        self.owed.is_empty() && self.dims.iter().all(Vec::is_empty)
    }

    /// The axes that digits name, ascending.
    pub fn axes(&self) -> Vec<AxisId> {
        named_axes(self.dims.iter().flatten())
    }

    /// Into how many blocks the value falls: what one device holds is one of so many equal parts.
    pub fn parts(&self) -> u64 {
        self.dims.iter().flatten().filter(|digit| !digit.is_free()).map(|digit| digit.size).product()
    }

    /// The shape of what one device holds.
    pub fn local_shape(&self, shape: &[u64]) -> Vec<u64> {
        self.local(shape).collect()
    }

    /// What one device holds of a value (bytes).
    pub fn local_bytes(&self, type_: &Type) -> u64 {
        self.local(&type_.shape).product::<u64>() * type_.dtype.bytes()
    }

    fn local(&self, shape: &[u64]) -> impl Iterator<Item = u64> {
        let local = |(digits, &extent): (&Vec<Digit>, &u64)| {
            let blocks: u64 =
                digits.iter().filter(|digit| !digit.is_free()).map(|digit| digit.size).product();
            extent / blocks
        };
        self.dims.iter().zip(shape).map(local)
    }

    /// The type of what one device holds.
    pub fn local_type(&self, type_: &Type) -> Type {
        Type::new(type_.dtype, self.local_shape(&type_.shape))
    }

    /// For each dimension, its factors as a device sees them, outermost first; the last one is
    /// what a block holds. Their sizes multiply to the extent.
    pub fn pieces(&self, mesh: &Mesh, device: u64, shape: &[u64]) -> Vec<Vec<Piece>> {
        let coordinates = mesh.coordinates(device);
        let dim = |(digits, &extent): (&Vec<Digit>, &u64)| {
            let mut pieces: Vec<Piece> = digits
                .iter()
                .map(|digit| Piece {
                    size: digit.size,
                    index: (!digit.is_free()).then(|| digit.at(&coordinates, 0)),
                })
                .collect();
            let blocks: u64 = digits.iter().map(|digit| digit.size).product();
            pieces.push(Piece { size: extent / blocks, index: None });
            pieces
        };
        self.dims.iter().zip(shape).map(dim).collect()
    }

    /// For each dimension the first index that a device holds, if it holds one contiguous run.
    pub fn start(&self, mesh: &Mesh, device: u64, shape: &[u64]) -> Option<Vec<u64>> {
        let dim = |pieces: Vec<Piece>| {
            let contiguous =
                pieces.split_last().is_some_and(|(_, outer)| outer.iter().all(|it| it.index.is_some()));
            contiguous.then(|| pieces.iter().fold(0, |start, it| start * it.size + it.index.unwrap_or(0)))
        };
        self.pieces(mesh, device, shape).into_iter().map(dim).collect()
    }

    /// Whether this is a layout of values of that type on the mesh.
    pub fn check(&self, mesh: &Mesh, type_: &Type) -> Result<(), LayoutError> {
        if self.dims.len() != type_.rank() {
            return Err(LayoutError::Rank(self.dims.len(), type_.rank()));
        }
        for (dim, digits) in self.dims.iter().enumerate() {
            check_digits(mesh, digits)?;
            if digits.iter().any(|digit| digit.step != 0) {
                return Err(LayoutError::Temporal);
            }
            if !is_canonical(digits) {
                return Err(LayoutError::Form(dim));
            }
            let blocks = digits.iter().try_fold(1u64, |blocks, digit| blocks.checked_mul(digit.size));
            let extent = type_.shape[dim];
            match blocks {
                Some(blocks) if extent.is_multiple_of(blocks) && (extent > 0 || blocks == 1) => {}
                blocks => return Err(LayoutError::Uneven(dim, extent, blocks.unwrap_or(u64::MAX))),
            }
        }
        let axes = self.axes();
        for (index, &axis) in self.owed.iter().enumerate() {
            if axis.0 >= mesh.axes.len() {
                return Err(LayoutError::Axis(axis));
            }
            if axes.contains(&axis) || self.owed[..index].iter().any(|&before| before >= axis) {
                return Err(LayoutError::Owed(axis));
            }
        }
        if !self.owed.is_empty() && !type_.dtype.has_sums() {
            return Err(LayoutError::NoSums);
        }
        let digits: Vec<&Digit> = self.dims.iter().flatten().filter(|digit| !digit.is_free()).collect();
        if onto(&mesh.sizes(), &digits, 1) { Ok(()) } else { Err(LayoutError::NotOnto) }
    }
}

/// Digits without those of size 1, with neighbouring free ones merged and without trailing ones.
pub(crate) fn canonical_digits(digits: Vec<Digit>) -> Vec<Digit> {
    let mut canonical: Vec<Digit> = Vec::new();
    for digit in digits.into_iter().filter(|digit| digit.size != 1) {
        match canonical.last_mut() {
            Some(last) if last.is_free() && digit.is_free() => last.size *= digit.size,
            _ => canonical.push(digit),
        }
    }
    if canonical.last().is_some_and(Digit::is_free) {
        canonical.pop();
    }
    canonical
}

/// Whether digits are what [`canonical_digits`] makes of them.
fn is_canonical(digits: &[Digit]) -> bool {
    let merged = |pair: &[Digit]| pair.iter().all(Digit::is_free);
    digits.iter().all(|digit| digit.size != 1)
        && !digits.windows(2).any(merged)
        && !digits.last().is_some_and(Digit::is_free)
}

pub(crate) fn named_axes<'a>(digits: impl Iterator<Item = &'a Digit>) -> Vec<AxisId> {
    let mut axes: Vec<AxisId> = digits.flat_map(|digit| digit.terms.iter().map(|term| term.0)).collect();
    axes.sort_unstable();
    axes.dedup();
    axes
}

/// Whether digits name axes of the mesh and have their sizes.
pub(crate) fn check_digits(mesh: &Mesh, digits: &[Digit]) -> Result<(), LayoutError> {
    for digit in digits {
        for &(axis, _) in &digit.terms {
            if axis.0 >= mesh.axes.len() {
                return Err(LayoutError::Axis(axis));
            }
            if mesh.size(axis) != digit.size {
                return Err(LayoutError::Size(digit.size, mesh.size(axis)));
            }
        }
        if digit.size == 0 {
            return Err(LayoutError::Size(0, 1));
        }
    }
    Ok(())
}

/// Whether devices, on axes of these sizes, and time steps reach every combination of the digits' values.
pub(crate) fn onto(sizes: &[u64], digits: &[&Digit], steps: u64) -> bool {
    let whole = |digit: &Digit| digit.plain().filter(|&axis| sizes[axis.0] == digit.size);
    let distinct = |at: usize, axis: AxisId| digits[..at].iter().all(|before| before.plain() != Some(axis));
    if digits.iter().enumerate().all(|(at, digit)| whole(digit).is_some_and(|axis| distinct(at, axis))) {
        return true;
    }
    let Some(total) = digits.iter().try_fold(1u64, |total, digit| total.checked_mul(digit.size)) else {
        return false;
    };
    // There are no more combinations than devices and steps.
    let most = sizes.iter().try_fold(steps, |most, &size| most.checked_mul(size));
    let Some(count) = most.filter(|&most| total <= most).and_then(|_| usize::try_from(total).ok()) else {
        return false;
    };
    let mut reached = vec![false; count];
    let mut coordinates = vec![0; sizes.len()];
    loop {
        for step in 0..steps {
            let number = digits.iter().fold(0, |number, it| number * it.size + it.at(&coordinates, step));
            if let Some(it) = usize::try_from(number).ok().and_then(|number| reached.get_mut(number)) {
                *it = true;
            }
        }
        if !advance(&mut coordinates, sizes) {
            return !reached.contains(&false);
        }
    }
}

#[cfg(test)]
mod tests;
