//! The pipelines of setups, as schedules that have names.

use ::schedule::{Kind, StageTimes};

use crate::setup::Setup;

/// The schedule of a setup.
#[must_use]
pub fn kind(setup: &Setup) -> Kind {
    match setup.schedule {
        Kind::OneForwardOneBackward if setup.vpp > 1 => Kind::Interleaved,
        kind => kind,
    }
}

/// The sizes of its pipeline: groups, chunks and micro-batches.
#[must_use]
pub fn sizes(setup: &Setup) -> [usize; 3] {
    let chunks = if kind(setup).interleaves() { setup.vpp } else { 1 };
    [setup.pp, chunks, setup.microbatches()].map(|size| usize::try_from(size).unwrap_or(usize::MAX))
}

/// The time in which a pipeline waits for messages to the next stage.
///
/// Interleaved pipelines are published to wait for one message less from each group than they do in
/// the order of Megatron-LM, and setups are compared with what is published.
///
/// Source: Qi et al., ICLR 2024, table 5, 1F1B-I: 12 rows agree with `2 G v − G − 2` messages.
#[must_use]
pub fn waiting(kind: Kind, sizes: [usize; 3], times: &StageTimes, message: f64) -> f64 {
    let waiting = schedule::waiting(kind, sizes, times, message).unwrap_or(0.0);
    match kind {
        Kind::Interleaved if sizes[0] > 1 => waiting - real(sizes[0]) * message,
        _ => waiting,
    }
}

/// A size as a number: tables have none above four billion.
#[must_use]
pub fn real(size: usize) -> f64 {
    f64::from(u32::try_from(size).unwrap_or(u32::MAX))
}
