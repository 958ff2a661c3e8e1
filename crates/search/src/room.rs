//! Less memory given to what is counted, until all that is held fits, and then all that may be faster.

/// What was made with some memory given.
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// What it was counted to hold when it was made: no more than what was given (bytes).
    pub counted: u64,
    /// All that it holds (bytes).
    pub held: u64,
    /// Whether something made with less may be faster than all that was made and fits.
    pub is_open: bool,
}

/// Why nothing that fits was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom<E> {
    /// With all of the memory given nothing was made, for this reason.
    Refused(E),
    /// Nothing that was made holds less than this (bytes).
    Nearest(u64),
}

/// How often something is made until something fits.
const ROUNDS: usize = 8;

/// What is given to count is found to within this part of the capacity.
const PART: u64 = 64;

/// Makes things until one holds no more than the capacity (bytes), and then up to `more` of those that were passed by.
///
/// `make` is given the capacity first, and makes the fastest that is counted to hold no more than it is given. After
/// something that holds too much it is given what leaves room for what was held beside what was counted; where nothing
/// is made with that, half as much less, for other things may need less room beside. Between what was given and what
/// is counted there is nothing else. What lies above that, and holds too much where it was counted, is made from the
/// top: what a smaller capacity has made, a larger one has too, or something faster.
pub fn within<E>(
    capacity: u64,
    more: usize,
    mut make: impl FnMut(u64) -> Result<Tried, E>,
) -> Result<(), NoRoom<E>> {
    let (mut given, mut refused, mut most) = (capacity, 0, capacity);
    let mut tried: Vec<[u64; 2]> = Vec::new();
    let mut nearest = u64::MAX;
    for _ in 0..ROUNDS {
        match make(given) {
            Ok(Tried { counted, held, .. }) => {
                tried.push([counted, given]);
                nearest = nearest.min(held);
                if held <= capacity {
                    break;
                }
                most = most.min(counted.saturating_sub(1));
                given = most.min(capacity.saturating_sub(held.saturating_sub(counted)));
            }
            Err(error) if tried.is_empty() => return Err(NoRoom::Refused(error)),
            Err(_) => refused = given,
        }
        if most <= refused || refused > 0 && most - refused < capacity / PART {
            break;
        }
        if given <= refused {
            given = refused + (most - refused).div_ceil(2);
        }
    }
    // With all of the memory the fastest was made: none is passed by.
    let fits_at_once = nearest <= capacity && tried.len() == 1;
    let more = if fits_at_once { 0 } else { more };
    for _ in 0..more {
        let Some(given) = untried(capacity, &tried).filter(|it| *it > refused) else { break };
        let Ok(Tried { counted, held, is_open }) = make(given) else { break };
        tried.push([counted, given]);
        nearest = nearest.min(held);
        if !is_open {
            break;
        }
    }
    if nearest <= capacity { Ok(()) } else { Err(NoRoom::Nearest(nearest)) }
}

/// The most memory with which something else may be made than before: what was counted, and with what was given
/// (bytes).
fn untried(capacity: u64, tried: &[[u64; 2]]) -> Option<u64> {
    let mut given = capacity;
    while let Some([counted, _]) = tried.iter().find(|[counted, most]| (*counted..=*most).contains(&given)) {
        given = counted.checked_sub(1)?;
    }
    Some(given)
}

#[cfg(test)]
mod tests;
