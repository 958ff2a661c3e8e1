//! Until when exchanges have to be over.

use std::ops::Range;

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

/// For each instruction of a stretch, the first exchange that it leads to and that something has to wait for; the end of
/// the stretch if there is none.
pub(super) fn leads(depends: &Depends, needed: &[usize], waited: impl Fn(usize) -> bool) -> Vec<usize> {
    let end = needed.len();
    let mut leads = vec![end; end];
    for it in (0..end).rev() {
        let by = |&after: &usize| if waited(after) && needed[after] < end { after } else { leads[after] };
        leads[it] = depends.after[it].iter().map(by).min().unwrap_or(end);
    }
    leads
}

/// For each exchange that computing waits for, what of operations before it has room beside it and, where too little is
/// computed in between that leads to no exchange, beside those that it leads to (seconds). An operation has room beside
/// one exchange, of which it may be the longer.
pub(super) fn beside(leads: &[usize], seconds: &[f64], is: impl Fn(usize) -> (bool, bool)) -> Vec<f64> {
    let end = leads.len();
    let free = |range: Range<usize>| {
        let free = range.filter(|&it| is(it).1 && leads[it] == end).map(|it| seconds[it]);
        free.fold((0.0, 0.0_f64), |(sum, longest), it| (sum + it, longest.max(it)))
    };
    let mut beside = vec![0.0; end + 1];
    let waited: Vec<usize> = (0..end).filter(|&it| is(it).0).collect();
    for (number, &it) in waited.iter().enumerate().rev() {
        let before = free(number.checked_sub(1).map_or(0, |it| waited[it])..it);
        let after = free(it..leads[it]);
        let one = if seconds[it] > 0.0 { seconds[it].max(before.1).max(after.1) } else { 0.0 };
        beside[it] = one + (beside[leads[it]] - (after.0 - after.1)).max(0.0);
    }
    beside
}

/// The first exchange that reads what an operation makes: that one is to be issued when it can be.
fn first_exchange(depends: &Depends, exchanges: &[bool], operation: usize) -> usize {
    let after = depends.after[operation].iter().copied().filter(|&it| exchanges[it]);
    after.min().unwrap_or(exchanges.len())
}

/// Which exchanges nothing that is computed in the stretch comes before, but of what is at rest.
fn ahead(depends: &Depends, exchanges: &[bool]) -> Vec<bool> {
    let mut ahead = vec![false; exchanges.len()];
    for it in (0..exchanges.len()).filter(|&it| exchanges[it]) {
        ahead[it] = depends.before[it].iter().all(|&before| ahead[before] || depends.known[before]);
    }
    ahead
}
