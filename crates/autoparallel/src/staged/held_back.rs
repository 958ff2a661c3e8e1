//! Schedules that hold less than the one that was asked for, where memory ends.

use plan::Pipeline;
use schedule::Kind;

use super::Order;

/// An order of work, and those that do the same with less memory.
pub(super) fn orders(wanted: &Order) -> Vec<Order> {
    let mut all = vec![wanted.clone()];
    if let Order::Named(kind) = wanted {
        all.extend(std::iter::successors(kind.held_back(), |it| it.held_back()).map(Order::Named));
    }
    all
}

/// The schedule that has a name and is that of a pipeline.
pub fn kind(pipeline: &Pipeline) -> Option<Kind> {
    pipeline.schedule.kind()
}

/// A schedule that would take no longer than a pipeline's if it fitted, and does not fit.
pub struct TooMuch {
    /// Its name.
    pub kind: Kind,
    /// The group that would hold the most.
    pub group: usize,
    /// How much (bytes).
    pub bytes: u64,
}

/// The schedules with more forward tasks ahead than a pipeline's for which there is not enough memory.
pub fn too_much(pipeline: &Pipeline) -> Vec<TooMuch> {
    let own = kind(pipeline);
    let held = |kind: Kind| {
        let micro_batches = usize::try_from(pipeline.micro_batches()).ok()?;
        let groups = pipeline.schedule.groups.len();
        let schedule = kind.schedule(groups, pipeline.schedule.chunks, micro_batches).ok()?;
        let other = Pipeline { schedule, ..pipeline.clone() };
        let memory = lower::pipelined(&other).and_then(|it| it.memory()).ok()?;
        let bytes = memory.iter().map(|it| plan::held(it));
        let beyond = |&(group, bytes): &(usize, u64)| bytes.saturating_sub(pipeline.capacity_of(group));
        let (group, bytes) = bytes.enumerate().max_by_key(|it| (beyond(it), it.1))?;
        (beyond(&(group, bytes)) > 0).then_some(TooMuch { kind, group, bytes })
    };
    let ahead = Kind::ALL.into_iter().filter(|kind| own.is_some() && kind.held_back() == own);
    ahead.filter_map(held).collect()
}
