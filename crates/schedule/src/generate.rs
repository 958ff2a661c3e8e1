//! How schedules that have names come about: one order for each group.

use super::{Schedule, Task, Work};

/// All forward tasks, then all backward tasks.
///
/// Source: Huang et al., "GPipe", NeurIPS 2019, section 2.3. Backward tasks are in the order of the
/// micro-batches, as gradients are summed; the paper draws them the other way round, which takes as
/// long and holds as much.
pub(super) fn all_then_all(groups: usize, micro_batches: usize) -> Schedule {
    in_turn(groups, micro_batches, |_| micro_batches)
}

/// So many forward tasks, then a backward and a forward task in turn, by the number of groups after
/// a group.
///
/// Source: Narayanan et al., "PipeDream-Flush", SC21, section 2.2.1 (`after + 1`); Zhuang et al.,
/// "On Optimizing the Communication of Model Parallelism", MLSys 2023, section 4 (`2 after + 1`).
pub(super) fn in_turn(groups: usize, micro_batches: usize, ahead: impl Fn(usize) -> usize) -> Schedule {
    let of_group = |group: usize| {
        let ahead = ahead(groups - 1 - group).min(micro_batches);
        turns(ahead, micro_batches, |work, number| Task { work, chunk: 0, micro_batch: number })
    };
    Schedule { chunks: 1, splits_backward: false, groups: (0..groups).map(of_group).collect() }
}

/// One forward, one backward with several chunks: each chunk works on as many micro-batches as there
/// are groups before the next chunk does.
///
/// Source: Narayanan et al., SC21, section 2.2.2; Megatron-LM, `core/pipeline_parallel/schedules.py`.
pub(super) fn interleaved(groups: usize, chunks: usize, micro_batches: usize) -> Schedule {
    let task = |work, number: usize| {
        let (round, within) = (number / (groups * chunks), number % (groups * chunks));
        let chunk = match work {
            Work::Forward => within / groups,
            Work::Backward | Work::Weight => chunks - 1 - within / groups,
        };
        Task { work, chunk, micro_batch: round * groups + within % groups }
    };
    let of_group = |group: usize| {
        let all = chunks * micro_batches;
        let ahead = 2 * (groups - 1 - group) + (chunks - 1) * groups + 1;
        turns(ahead.min(all), all, task)
    };
    Schedule { chunks, splits_backward: false, groups: (0..groups).map(of_group).collect() }
}

/// One forward, one backward, in which group `g` puts off gradients of weights by `depth g`
/// micro-batches, and has `(depth − 1)` more forward tasks ahead for each group after it.
///
/// At most `1 + depth (G − 1)` micro-batches are in flight in any of `G` groups.
///
/// Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.1, figures 2 and 3:
/// H1 and H2 are depth 1 and 2.
pub(super) fn zero_bubble(groups: usize, micro_batches: usize, depth: usize) -> Schedule {
    let task = |work, micro_batch| Task { work, chunk: 0, micro_batch };
    let of_group = |group: usize| {
        let ahead = (1 + depth * (groups - 1 - group)).min(micro_batches);
        let put_off = depth * group;
        let mut tasks: Vec<Task> = (0..ahead).map(|it| task(Work::Forward, it)).collect();
        for number in 0..micro_batches {
            tasks.push(task(Work::Backward, number));
            tasks.extend(number.checked_sub(put_off).map(|it| task(Work::Weight, it)));
            if ahead + number < micro_batches {
                tasks.push(task(Work::Forward, ahead + number));
            }
        }
        tasks.extend((micro_batches.saturating_sub(put_off)..micro_batches).map(|it| task(Work::Weight, it)));
        tasks
    };
    Schedule { chunks: 1, splits_backward: true, groups: (0..groups).map(of_group).collect() }
}

/// So many forward tasks, then a backward and a forward one in turn until all are done.
fn turns(ahead: usize, all: usize, task: impl Fn(Work, usize) -> Task) -> Vec<Task> {
    let mut tasks: Vec<Task> = (0..ahead).map(|it| task(Work::Forward, it)).collect();
    for number in 0..all {
        tasks.push(task(Work::Backward, number));
        if ahead + number < all {
            tasks.push(task(Work::Forward, ahead + number));
        }
    }
    tasks
}
