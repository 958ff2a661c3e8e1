//! Which dimensions of a reshaped value are which.

use std::ops::Range;

/// Dimensions that a reshape makes of one another: equal products, as few as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) from: Range<usize>,
    pub(super) to: Range<usize>,
}

impl Group {
    /// Whether one dimension stays as it is.
    pub(super) fn is_same(&self) -> bool {
        self.from.len() == 1 && self.to.len() == 1
    }
}

/// The groups of a reshape, in order; `None` if there are no elements.
pub(super) fn groups(from: &[u64], to: &[u64]) -> Option<Vec<Group>> {
    if from.contains(&0) || to.contains(&0) {
        return None;
    }
    let mut groups = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        let start = (i, j);
        let next = (from.get(i).copied(), to.get(j).copied());
        match next {
            (Some(a), Some(b)) if a == b => (i, j) = (i + 1, j + 1),
            (_, Some(1)) => j += 1,
            (Some(1), _) => i += 1,
            (Some(a), Some(b)) => {
                let (mut a, mut b) = (a, b);
                (i, j) = (i + 1, j + 1);
                while a != b {
                    if a < b {
                        a *= from.get(i)?;
                        i += 1;
                    } else {
                        b *= to.get(j)?;
                        j += 1;
                    }
                }
            }
            _ => return None,
        }
        groups.push(Group { from: start.0..i, to: start.1..j });
    }
    Some(groups)
}

/// Whether a reshape splits no dimension.
pub(super) fn merges(groups: &[Group]) -> bool {
    groups.iter().all(|group| group.to.len() <= 1)
}

/// The shape that a value of shape `small`, repeated to `from`, takes when that is reshaped to
/// `to`; `None` if it is repeated along a part of a dimension.
pub(super) fn repeated(small: &[u64], from: &[u64], to: &[u64]) -> Option<Vec<u64>> {
    let missing = from.len().checked_sub(small.len())?;
    let extent = |dim: usize| if dim < missing { 1 } else { small[dim - missing] };
    let mut shape = Vec::new();
    for group in groups(from, to)? {
        let part = || group.from.clone();
        if part().all(|dim| extent(dim) == from[dim]) {
            shape.extend_from_slice(&to[group.to]);
        } else if part().all(|dim| extent(dim) == 1) {
            shape.extend(group.to.map(|_| 1));
        } else {
            return None;
        }
    }
    let leading = shape.iter().take_while(|&&it| it == 1).count();
    // Leading dimensions that the value lacked stay away.
    let kept = if missing > 0 { leading.min(shape.len()) } else { 0 };
    Some(shape.split_off(kept))
}
