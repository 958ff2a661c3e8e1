//! Until when exchanges have to be over.

use super::depends::Depends;

/// For each exchange of a stretch, the first operation that has to wait for it; the end of the stretch if nothing has
/// to. What may be issued as early as there is room has to be over for what reads it. What computing comes before is
/// read by something that may come later itself, until something needs that.
pub(super) fn needed(depends: &Depends, exchanges: &[bool]) -> Vec<usize> {
    let end = exchanges.len();
    let computed = |after: &[usize]| after.iter().copied().filter(|&it| !exchanges[it]).min().unwrap_or(end);
    let is_ahead = ahead(depends, exchanges);
    let mut needed = vec![end; end];
    for it in (0..end).rev().filter(|&it| exchanges[it]) {
        let by = |&after: &usize| {
            if exchanges[after] {
                needed[after]
            } else if depends.stays[after] || is_ahead[it] {
                after
            } else {
                computed(&depends.after[after]).min(first_exchange(depends, exchanges, after))
            }
        };
        needed[it] = depends.after[it].iter().map(by).min().unwrap_or(end);
    }
    needed
}

/// The first exchange that reads what an operation makes: that one is to be issued when it can be.
fn first_exchange(depends: &Depends, exchanges: &[bool], operation: usize) -> usize {
    let after = depends.after[operation].iter().copied().filter(|&it| exchanges[it]);
    after.min().unwrap_or(exchanges.len())
}

/// Which exchanges nothing that is computed in the stretch comes before.
fn ahead(depends: &Depends, exchanges: &[bool]) -> Vec<bool> {
    let mut ahead = vec![false; exchanges.len()];
    for it in (0..exchanges.len()).filter(|&it| exchanges[it]) {
        ahead[it] = depends.before[it].iter().all(|&before| ahead[before]);
    }
    ahead
}
