//! Who is the reason where a wait is too long.

use super::flight::Doing;

/// A wait that is too long.
pub(super) struct Wait<'a> {
    /// Who waits.
    pub(super) own: u64,
    /// For whom.
    pub(super) ranks: &'a [u64],
    /// Since when (seconds).
    pub(super) seconds: u64,
}

/// Whom the ranks that are waited for wait for themselves, where they say so: the one at the end, and
/// what is said of it.
pub(super) fn culprit(
    wait: &Wait<'_>,
    doing: &dyn Fn(u64) -> Option<Doing>,
    host: &dyn Fn(u64) -> Option<String>,
) -> (u64, String) {
    let &Wait { own, ranks, seconds } = wait;
    let mut chain = vec![own];
    let mut next = ranks.first().copied().unwrap_or(own);
    let mut last = None;
    while !chain.contains(&next) {
        chain.push(next);
        last = doing(next).map(|doing| (next, doing));
        match last {
            Some((_, Doing { waits_for: Some(other), .. })) => next = other,
            _ => break,
        }
    }
    let names = |ranks: &[u64]| ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match last {
        Some((rank, Doing { step, program, instruction, waits_for: None })) => {
            let host = host(rank).unwrap_or_default();
            let words = format!(
                "rank {rank} on `{host}` has not gone on: it is in step {step} of this start, instruction \
                 {instruction} of program {program}, and rank {own} has waited {seconds} s, which is the limit"
            );
            (rank, words)
        }
        Some((rank, _)) => {
            let start = chain.iter().position(|it| *it == next).unwrap_or(0);
            let words = format!("ranks {} wait for each other, for {seconds} s", names(&chain[start..]));
            (rank, words)
        }
        None => {
            let word = if ranks.len() == 1 { "rank" } else { "ranks" };
            let names = names(ranks);
            let words = format!("rank {own} has waited {seconds} s for {word} {names}, which is the limit");
            (next, words)
        }
    }
}

#[cfg(test)]
mod tests;
