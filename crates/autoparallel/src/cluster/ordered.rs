//! Setups that some schedule can order.

use files::Failure;
use schedule::Kind;

use super::{Pins, Setup};
use crate::limits::Limits;

/// What `--stages auto` chooses among.
const TRIED: [Kind; 4] = [Kind::OneForwardOneBackward, Kind::Eager, Kind::ZeroBubbleH1, Kind::Interleaved];

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
