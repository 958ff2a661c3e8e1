//! How long a pipeline of equal stages takes, in closed form.
//!
//! With `G` groups of `v` chunks, `m` micro-batches, a stage's times `F`, `B`, `W` and their sum `T`
//! for one micro-batch, and `c` for a message between neighbours, beside tasks:
//!
//! ```text
//!                      work and bubble              waiting for messages
//! gpipe                m T + (G − 1) T              2 (G − 1) c
//! 1f1b                 m T + (G − 1) T              2 r c
//! 1f1b-delayed         m T + (G − 1) (F + B)        2 min(r, G − 1) c + max(r − G + 1, 0) h
//! eager-1f1b           m T + (G − 1) T              2 (G − 1) c
//! eager-1f1b-delayed   m T + (G − 1) (F + B)        2 (G − 1) c
//! interleaved          v m T + (G − 1) T            2 (G v − 1) c
//! interleaved-delayed  v m T + (G − 1) (F + B)
//! zb-h1                m T + (G − 1) (F + B − W)    2 min(r, 2 G − 2) c + max(r − 2 G + 2, 0) h
//! zb-h2                m T + (G − 1) (F + B − 2 W)  2 (G − 1) c
//!
//! r = m + G − 2 − ⌈(m − 1)/G⌉        h = max(2 c − W, 0)
//! ```
//!
//! By 1F1B a message's time passes `2 r` times: there and back for each micro-batch but one in `G`.
//! Where gradients of weights come after what the stage before waits for, each hides `W` of a there
//! and back, but for the first ones. The others have tasks enough ahead to hide all but the way there
//! and the way back; [`closed_form`] knows how long messages may be for that.
//!
//! Source: Narayanan et al., SC21, section 2.2; Zhuang et al., MLSys 2023, section 4; Qi et al.,
//! ICLR 2024, table 1, for what there is without messages. What messages add is that of timelines,
//! with which all of this is compared.

use super::{Kind, StageTimes};

/// The time in which a group has nothing to do between its first task and its last, without
/// messages, where gradients of weights take no longer than forward tasks and than gradients of what
/// stages take.
pub fn bubble(kind: Kind, groups: usize, times: &StageTimes) -> f64 {
    let StageTimes { forward, backward, weight } = times;
    let idle = match kind {
        Kind::GPipe | Kind::OneForwardOneBackward | Kind::Eager | Kind::Interleaved => {
            forward + backward + weight
        }
        Kind::OneForwardOneBackwardDelayed | Kind::EagerDelayed | Kind::InterleavedDelayed => {
            forward + backward
        }
        Kind::ZeroBubbleH1 => forward + backward - weight,
        Kind::ZeroBubbleH2 => forward + backward - 2.0 * weight,
    };
    real(groups.saturating_sub(1)) * idle
}

/// What messages of that time between neighbours add, if there is a closed form.
///
/// They are short enough to be hidden by those schedules that hide any.
pub fn waiting(kind: Kind, sizes: [usize; 3], times: &StageTimes, message: f64) -> Option<f64> {
    let [groups, chunks, micro_batches] = sizes;
    let others = groups.saturating_sub(1);
    // There and back so many times; all but the first ones beside gradients of weights.
    let there_and_back = |first: usize| {
        let after = micro_batches.saturating_sub(1);
        let rounds = others + after - after.div_ceil(groups.max(1));
        let beside = (2.0 * message - times.weight).max(0.0);
        2.0 * real(rounds.min(first)) * message + real(rounds.saturating_sub(first)) * beside
    };
    match kind {
        _ if others == 0 => Some(0.0),
        Kind::GPipe | Kind::Eager | Kind::EagerDelayed | Kind::ZeroBubbleH2 => {
            Some(2.0 * real(others) * message)
        }
        Kind::OneForwardOneBackward => Some(there_and_back(usize::MAX)),
        Kind::OneForwardOneBackwardDelayed => Some(there_and_back(others)),
        Kind::ZeroBubbleH1 => Some(there_and_back(2 * others)),
        Kind::Interleaved => Some(2.0 * real((groups * chunks).saturating_sub(1)) * message),
        Kind::InterleavedDelayed => (message <= 0.0).then_some(0.0),
    }
}

/// How long a pipeline of equal stages takes, if there is a closed form for such times; sizes are
/// groups, chunks and micro-batches, and messages go beside tasks.
pub fn closed_form(kind: Kind, sizes: [usize; 3], times: &StageTimes, message: f64) -> Option<f64> {
    let [groups, chunks, micro_batches] = sizes;
    let StageTimes { forward, backward, weight } = *times;
    let shorter = forward.min(backward);
    let known = match kind {
        _ if groups == 1 => true,
        Kind::GPipe | Kind::Interleaved => message <= forward.min(backward + weight),
        Kind::OneForwardOneBackward => message <= times.total(),
        Kind::OneForwardOneBackwardDelayed => 2.0 * message <= forward + backward,
        Kind::Eager | Kind::EagerDelayed => 2.0 * message <= times.total(),
        Kind::InterleavedDelayed => weight <= shorter,
        Kind::ZeroBubbleH1 => {
            weight <= shorter && 2.0 * message <= forward + backward && micro_batches >= groups
        }
        Kind::ZeroBubbleH2 => {
            weight <= shorter && 2.0 * message <= forward + backward && micro_batches >= 2 * groups - 1
        }
    };
    let work = real(chunks * micro_batches) * times.total();
    let idle = bubble(kind, groups, times) + waiting(kind, sizes, times, message)?;
    // The last group starts when the first micro-batch has come to it.
    let first = real(groups.saturating_sub(1)) * (forward + message);
    known.then_some(work + if kind == Kind::ZeroBubbleH2 { idle.max(first) } else { idle })
}

/// How many micro-batches a group holds at once, of all its chunks together.
pub fn held(kind: Kind, [groups, chunks, micro_batches]: [usize; 3], group: usize) -> usize {
    let after = groups.saturating_sub(group + 1);
    let held = match kind {
        Kind::GPipe => micro_batches,
        Kind::OneForwardOneBackward | Kind::OneForwardOneBackwardDelayed => after + 1,
        Kind::Eager | Kind::EagerDelayed => 2 * after + 1,
        Kind::Interleaved | Kind::InterleavedDelayed => 2 * after + chunks.saturating_sub(1) * groups + 1,
        Kind::ZeroBubbleH1 => groups,
        Kind::ZeroBubbleH2 => (2 * groups).saturating_sub(1),
    };
    held.min(chunks * micro_batches)
}

/// Of these, how many are there whose backward part is done or being done and whose gradients of weights are not made:
/// of each there is what products were given and the gradients of what they make, whether values are computed again or
/// not. None where both are one part.
///
/// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, table 1 and figure 3.
pub fn held_apart(kind: Kind, sizes: [usize; 3], group: usize) -> usize {
    let apart = match kind {
        Kind::GPipe | Kind::OneForwardOneBackward | Kind::Eager | Kind::Interleaved => 0,
        Kind::OneForwardOneBackwardDelayed | Kind::EagerDelayed | Kind::InterleavedDelayed => 1,
        Kind::ZeroBubbleH1 => group + 1,
        Kind::ZeroBubbleH2 => 2 * group + 1,
    };
    apart.min(held(kind, sizes, group))
}

/// A count as a number: schedules have fewer than four billion of anything.
fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
