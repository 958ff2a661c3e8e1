//! Until when exchanges have to be over.

use super::depends::Depends;

/// For each exchange of a stretch, the first operation that has to wait for it: what it is read by may come
/// later itself, until something needs that. The end of the stretch if nothing has to wait.
pub(super) fn needed(depends: &Depends, exchanges: &[bool]) -> Vec<usize> {
    let end = exchanges.len();
    let computed = |after: &[usize]| after.iter().copied().filter(|&it| !exchanges[it]).min().unwrap_or(end);
    let mut needed = vec![end; end];
    for it in (0..end).rev().filter(|&it| exchanges[it]) {
        let by = |&after: &usize| {
            if exchanges[after] {
                needed[after]
            } else if depends.stays[after] {
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
