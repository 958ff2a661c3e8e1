//! Which tier of tests runs: the gate, or the long one of `.ci/run`, which sets `SHARDLOOM_LONG`.
//!
//! Tests that plan many setups have a few of them in the gate, one of each kind, and all in the long tier.

/// Whether tests try all that they know, instead of what takes the gate a few seconds.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SHARDLOOM_LONG").is_some()
}

/// The first of these in the gate, all in the long tier.
pub(crate) fn first<T>(count: usize, all: &[T]) -> &[T] {
    if is_long() { all } else { &all[..count] }
}

/// One of so many of these in the gate, all in the long tier.
pub(crate) fn one_of<T>(count: usize, all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().step_by(if is_long() { 1 } else { count })
}
