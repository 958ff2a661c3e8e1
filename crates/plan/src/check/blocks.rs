//! Which blocks devices hold, by counting: no rule about layouts is used, only what a digit is.
//!
//! A device's share of a dimension is the set of indices whose digits are the device's. It is
//! written as factors, outermost first: of one either a single index is held or all. Neighbouring
//! factors of a kind are one factor, so that equal sets are written alike: the run of indices
//! without a gap is the innermost factor, the distance of runs the next, and so on.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{AxisId, Digit, Mesh};

/// A factor of a dimension: its size, and which index of it is held if not all are.
pub(super) type Factor = (u64, Option<u64>);

/// The value of a digit for a device at a time step.
pub(super) fn value(digit: &Digit, coordinates: &[u64], step: u64) -> u64 {
    let terms = digit.terms.iter().map(|&(axis, by)| i128::from(by) * i128::from(coordinates[axis.0]));
    let sum = terms.sum::<i128>() + i128::from(digit.step) * i128::from(step) + i128::from(digit.offset);
    u64::try_from(sum.rem_euclid(i128::from(digit.size))).unwrap_or(0)
}

/// Whether a device holds blocks for every value of the digit.
pub(super) fn all_held(digit: &Digit) -> bool {
    digit.terms.is_empty() && digit.step == 0
}

/// The axis whose coordinate a digit is.
pub(super) fn coordinate(mesh: &Mesh, digit: &Digit) -> Option<AxisId> {
    match digit.terms[..] {
        [(axis, 1)] if digit.step == 0 && digit.offset == 0 && digit.size == mesh.axes[axis.0].size => {
            Some(axis)
        }
        _ => None,
    }
}

/// A device's share of a dimension of that extent, which the digits divide.
pub(super) fn share(digits: &[Digit], extent: u64, coordinates: &[u64]) -> Vec<Factor> {
    let mut factors: Vec<Factor> = Vec::new();
    let mut inner = extent;
    for digit in digits {
        inner /= digit.size;
        let index = (!all_held(digit)).then(|| value(digit, coordinates, 0));
        add(&mut factors, (digit.size, index));
    }
    add(&mut factors, (inner, None));
    factors
}

/// Adds a factor inside of those before.
pub(super) fn add(factors: &mut Vec<Factor>, factor: Factor) {
    match (factors.last_mut(), factor) {
        (_, (1, _)) => {}
        (Some((size, None)), (more, None)) => *size *= more,
        (Some((size, Some(index))), (more, Some(inner))) => {
            *size *= more;
            *index = *index * more + inner;
        }
        _ => factors.push(factor),
    }
}

/// How many indices of a dimension a device holds.
pub(super) fn held(digits: &[Digit], extent: u64) -> u64 {
    extent / digits.iter().filter(|digit| !all_held(digit)).map(|digit| digit.size).product::<u64>()
}

/// Whether every device holds the same by both.
pub(super) fn same(mesh: &Mesh, left: &[Vec<Digit>], right: &[Vec<Digit>], shape: &[u64]) -> bool {
    if left == right {
        return true;
    }
    let all = |dims: &[Vec<Digit>], coordinates: &[u64]| -> Vec<Vec<Factor>> {
        dims.iter().zip(shape).map(|(digits, &extent)| share(digits, extent, coordinates)).collect()
    };
    left.len() == right.len()
        && devices(mesh).all(|coordinates| all(left, &coordinates) == all(right, &coordinates))
}

/// Whether digits have the same values for all devices that differ along those axes only.
pub(super) fn agree(mesh: &Mesh, axes: &[AxisId], digits: &[&Digit]) -> bool {
    let names = |digit: &&&Digit| digit.terms.iter().any(|term| axes.contains(&term.0));
    let digits: Vec<&Digit> = digits.iter().filter(names).copied().collect();
    digits.is_empty()
        || devices(mesh).all(|coordinates| {
            let first = first(&coordinates, axes);
            digits.iter().all(|digit| value(digit, &coordinates, 0) == value(digit, &first, 0))
        })
}

/// How often a group of devices that differ along those axes only, and their time steps, have each
/// combination of the digits' values: once, once at least, or never some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    Once,
    Often,
    Not,
}

/// The worst cover of any group.
pub(super) fn cover(mesh: &Mesh, axes: &[AxisId], digits: &[&Digit], steps: u64) -> Cover {
    let total = digits.iter().try_fold(1u64, |total, digit| total.checked_mul(digit.size));
    let members = axes.iter().map(|axis| mesh.axes[axis.0].size).product::<u64>().saturating_mul(steps);
    let Some(total) = total.filter(|&total| total <= members) else { return Cover::Not };
    let mut groups: BTreeMap<Vec<u64>, BTreeSet<Vec<u64>>> = BTreeMap::new();
    for coordinates in devices(mesh) {
        let group = groups.entry(first(&coordinates, axes)).or_default();
        for step in 0..steps {
            group.insert(digits.iter().map(|digit| value(digit, &coordinates, step)).collect());
        }
    }
    match groups.values().all(|group| u64::try_from(group.len()) == Ok(total)) {
        false => Cover::Not,
        true if total == members => Cover::Once,
        true => Cover::Often,
    }
}

/// The first device of a group.
fn first(coordinates: &[u64], axes: &[AxisId]) -> Vec<u64> {
    let mut first = coordinates.to_vec();
    for axis in axes {
        first[axis.0] = 0;
    }
    first
}

/// The coordinates of every device.
pub(super) fn devices(mesh: &Mesh) -> impl Iterator<Item = Vec<u64>> {
    let mut next = Some(vec![0; mesh.axes.len()]);
    std::iter::from_fn(move || {
        let this = next.take()?;
        let mut after = this.clone();
        for (coordinate, axis) in after.iter_mut().zip(&mesh.axes) {
            *coordinate += 1;
            if *coordinate < axis.size {
                next = Some(after);
                return Some(this);
            }
            *coordinate = 0;
        }
        Some(this)
    })
}

/// Digits without those of size 1, with neighbouring free ones merged and none of them last.
pub(super) fn canonical(digits: impl IntoIterator<Item = Digit>) -> Vec<Digit> {
    let mut canonical: Vec<Digit> = Vec::new();
    for digit in digits {
        match canonical.last_mut() {
            _ if digit.size == 1 => {}
            Some(last) if all_held(last) && all_held(&digit) => last.size *= digit.size,
            _ => canonical.push(digit),
        }
    }
    while canonical.last().is_some_and(all_held) {
        canonical.pop();
    }
    canonical
}
