//! Nested loops over strided memory.

use crate::error::KernelError;

/// One loop: how often it runs, and how far each of N places moves each time (elements).
///
/// Strides are added with wrap-around, so that places can also move backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level<const N: usize> {
    pub(crate) extent: usize,
    pub(crate) strides: [usize; N],
}

/// Loops around each other, the first outermost.
#[derive(Clone, Debug)]
pub(crate) struct Nest<const N: usize> {
    outer: Vec<Level<N>>,
    row: Level<N>,
}

impl<const N: usize> Nest<N> {
    /// The nest of these loops, with loops that go on where the next ends made one.
    pub(crate) fn new(levels: impl IntoIterator<Item = Level<N>>) -> Self {
        let mut outer: Vec<Level<N>> = Vec::new();
        for level in levels {
            if level.extent == 1 {
                continue;
            }
            match outer.last_mut() {
                Some(last) if goes_on(last, &level) => {
                    *last = Level { extent: last.extent * level.extent, strides: level.strides };
                }
                _ => outer.push(level),
            }
        }
        let row = outer.pop().unwrap_or(Level { extent: 1, strides: [1; N] });
        Self { outer, row }
    }

    /// The innermost loop.
    pub(crate) fn row(&self) -> Level<N> {
        self.row
    }

    /// The loops around the innermost.
    pub(crate) fn outer(&self) -> &[Level<N>] {
        &self.outer
    }

    /// Calls for each run of the innermost loop with where it begins.
    pub(crate) fn for_each_row(&self, starts: [usize; N], mut row: impl FnMut([usize; N])) {
        if self.row.extent > 0 {
            for_each(&self.outer, starts, &mut row);
        }
    }
}

/// Calls for each combination of the loops' indices with the places.
pub(crate) fn for_each<const N: usize>(
    levels: &[Level<N>],
    starts: [usize; N],
    body: &mut impl FnMut([usize; N]),
) {
    let Some((level, inner)) = levels.split_first() else {
        body(starts);
        return;
    };
    let mut places = starts;
    for _ in 0..level.extent {
        if inner.is_empty() {
            body(places);
        } else {
            for_each(inner, places, body);
        }
        for (place, stride) in places.iter_mut().zip(level.strides) {
            *place = place.wrapping_add(stride);
        }
    }
}

/// Whether the inner loop ends where the next run of it begins, at each place.
fn goes_on<const N: usize>(outer: &Level<N>, inner: &Level<N>) -> bool {
    (0..N).all(|place| outer.strides[place] == inner.strides[place].wrapping_mul(inner.extent))
}

/// How far apart neighbours along each dimension lie (elements).
pub(crate) fn row_major(extents: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; extents.len()];
    for dim in (1..extents.len()).rev() {
        strides[dim - 1] = strides[dim] * extents[dim];
    }
    strides
}

/// The strides of a value repeated to a shape: 0 where it repeats.
pub(crate) fn repeated(extents: &[usize], target: &[usize]) -> Result<Vec<usize>, KernelError> {
    let misfit = || {
        let shape = |extents: &[usize]| {
            extents.iter().map(|&extent| u64::try_from(extent).unwrap_or(u64::MAX)).collect()
        };
        KernelError::Shape { of: "a repeated value", found: shape(extents), expected: shape(target) }
    };
    let missing = target.len().checked_sub(extents.len()).ok_or_else(misfit)?;
    let own = row_major(extents);
    let mut strides = vec![0; target.len()];
    for (dim, &extent) in extents.iter().enumerate() {
        if extent == target[missing + dim] {
            strides[missing + dim] = own[dim];
        } else if extent != 1 {
            return Err(misfit());
        }
    }
    Ok(strides)
}

/// The loops over a result and operands that are repeated to its shape; the result is place 0.
pub(crate) fn broadcast<const N: usize>(
    result: &[usize],
    operands: &[&[usize]],
) -> Result<Nest<N>, KernelError> {
    let mut strides = vec![row_major(result)];
    for operand in operands {
        strides.push(repeated(operand, result)?);
    }
    Ok(Nest::new(
        (0..result.len()).map(|dim| Level {
            extent: result[dim],
            strides: std::array::from_fn(|place| strides[place][dim]),
        }),
    ))
}
