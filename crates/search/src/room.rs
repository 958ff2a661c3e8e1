//! Less memory given to what is counted, until all that is held fits.

/// What was made with some memory given.
#[derive(Clone, Copy, Debug)]
pub struct Tried<T> {
    /// The thing.
    pub made: T,
    /// What it was counted to hold when it was made: no more than what was given (bytes).
    pub counted: u64,
    /// All that it holds (bytes).
    pub held: u64,
}

/// Why nothing that fits was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom<E> {
    /// With all of the memory given nothing was made, for this reason.
    Refused(E),
    /// Nothing that was made holds less than this (bytes).
    Nearest(u64),
}

/// How often something is made.
const ROUNDS: usize = 8;

/// What is given to count is found to within this part of the capacity.
const PART: u64 = 64;

/// The first thing made that holds no more than the capacity (bytes).
///
/// `make` is given the capacity first. After something that holds too much it is given what leaves
/// room for what was held beside what was counted; where nothing is made with that, half as much
/// less, for other things may need less room beside.
pub fn within<T, E>(capacity: u64, mut make: impl FnMut(u64) -> Result<Tried<T>, E>) -> Result<T, NoRoom<E>> {
    let (mut given, mut refused, mut most) = (capacity, 0, capacity);
    let mut nearest = None;
    for _ in 0..ROUNDS {
        match (make(given), nearest) {
            (Ok(it), _) if it.held <= capacity => return Ok(it.made),
            (Ok(Tried { counted, held, .. }), _) => {
                nearest = Some(nearest.map_or(held, |nearest| held.min(nearest)));
                most = most.min(counted.saturating_sub(1));
                given = most.min(capacity.saturating_sub(held.saturating_sub(counted)));
            }
            (Err(error), None) => return Err(NoRoom::Refused(error)),
            (Err(_), Some(_)) => refused = given,
        }
        if most <= refused || refused > 0 && most - refused < capacity / PART {
            break;
        }
        if given <= refused {
            given = refused + (most - refused).div_ceil(2);
        }
    }
    Err(NoRoom::Nearest(nearest.unwrap_or(capacity)))
}

#[cfg(test)]
mod tests;
