//! Setups that some schedule can order.

use files::Failure;
use plan::Recompute;
use schedule::Kind;

use super::{Pins, Question, Setup};
use crate::limits::Limits;

/// What `--stages auto` chooses among.
const TRIED: [Kind; 4] = [Kind::OneForwardOneBackward, Kind::Eager, Kind::ZeroBubbleH1, Kind::Interleaved];

/// How many chunks an interleaved schedule may have.
const CHUNKS: [usize; 2] = [2, 4];

/// Keeps the setups of a model of so many blocks that one of these schedules can order; of a runtime it is said which it
/// has.
///
/// # Errors
/// If that leaves none, with what one of them lacks.
pub(super) fn keep(
    setups: &mut Vec<Setup>,
    blocks: usize,
    schedules: &dyn Fn(&Setup) -> Vec<(Kind, usize)>,
    pins: &Pins,
) -> Result<(), Failure> {
    let mut lacks = None;
    setups.retain(|setup| {
        let mut ordered = false;
        for (kind, chunks) in schedules(setup) {
            match refused(setup, kind, chunks, blocks) {
                None => ordered = true,
                Some(refused) => lacks = lacks.take().or(Some(refused)),
            }
        }
        ordered
    });
    if setups.is_empty() {
        return Err(Failure::Usage(lacks.unwrap_or_else(|| {
            let has = |limits: &&Limits| pins.schedule.is_some_and(|it| !limits.schedules.contains(&it));
            if let Some(limits) = pins.limits.as_ref().filter(has) {
                let tried = TRIED.iter().filter(|it| limits.schedules.contains(it));
                let names: Vec<&str> = tried.map(|it| it.name()).collect();
                return format!(
                    "no schedule has what is pinned: {} has {}; pin one of them, or plan without `--for`",
                    limits.title,
                    names.join(", ")
                );
            }
            "no schedule has what is pinned: `--stages auto` chooses among 1f1b, eager-1f1b and zb-h1 with one \
             stage in each of several groups, and interleaved with more; `--stages N --schedule NAME` takes any"
                .to_owned()
        })));
    }
    Ok(())
}

/// Why a schedule cannot order a setup.
fn refused(setup: &Setup, kind: Kind, chunks: usize, blocks: usize) -> Option<String> {
    let count = usize::try_from(setup.micro_batches).unwrap_or(usize::MAX);
    if let Err(error) = kind.check(setup.groups, chunks, count) {
        return Some(error.to_string());
    }
    let stages = setup.groups.checked_mul(chunks);
    stages.is_none_or(|stages| stages > blocks).then(|| {
        format!(
            "{} groups with {chunks} stages each of a model of {blocks} blocks, expected {blocks} stages at most: \
             pin fewer groups or chunks",
            setup.groups
        )
    })
}

/// The schedules that suit a setup.
pub(super) fn schedules(question: &Question<'_>, setup: &Setup) -> Vec<(Kind, usize)> {
    let mut all = vec![(Kind::OneForwardOneBackward, 1)];
    if setup.groups > 1 {
        all.extend([(Kind::Eager, 1), (Kind::ZeroBubbleH1, 1)]);
        let chunks = question.pins.chunks.map_or(CHUNKS.to_vec(), |pinned| vec![pinned]);
        all.extend(chunks.into_iter().filter(|&it| it > 1).map(|chunks| (Kind::Interleaved, chunks)));
    }
    all.retain(|&(kind, chunks)| suits(question.pins, kind, &setup.recompute, chunks));
    all
}

/// Whether a schedule is looked at where this is computed again.
pub(super) fn suits(pins: &Pins, kind: Kind, again: &Recompute, chunks: usize) -> bool {
    // What the backward part computes again would be kept for the gradients of weights: nothing is won.
    let keeps = *again == Recompute::Full && kind.splits_backward();
    pins.allows(kind, chunks) && (!keeps || pins.schedule.is_some())
}
