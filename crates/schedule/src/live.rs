//! What is held at once: a stage holds what its forward work on a micro-batch leaves for
//! the backward work until the last part of that is done.

use super::{Verified, Work};

/// How many micro-batches a group holds at once, at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// For each chunk.
    pub chunks: Vec<usize>,
    /// Of all chunks together: their peaks may come at different times.
    pub together: usize,
}

/// For each group, how many micro-batches it holds at once.
pub fn live(verified: &Verified) -> Vec<Live> {
    let schedule = verified.schedule();
    let last = schedule.last_work();
    let of_group = |tasks: &Vec<super::Task>| {
        let mut held = vec![0_usize; schedule.chunks];
        let mut live = Live { chunks: held.clone(), together: 0 };
        for task in tasks {
            if task.work == Work::Forward {
                held[task.chunk] += 1;
                live.chunks[task.chunk] = live.chunks[task.chunk].max(held[task.chunk]);
                live.together = live.together.max(held.iter().sum());
            } else if task.work == last {
                held[task.chunk] -= 1;
            }
        }
        live
    };
    schedule.groups.iter().map(of_group).collect()
}

/// For each stage, of how many micro-batches at once, at most, one kind of work is done and another,
/// later one is not; 0 if they are the same.
pub fn between(verified: &Verified, from: Work, to: Work) -> Vec<usize> {
    let schedule = verified.schedule();
    let mut most = vec![0; schedule.stages()];
    for (group, tasks) in schedule.groups.iter().enumerate() {
        let mut now = vec![0_usize; schedule.chunks];
        for task in tasks.iter().filter(|_| from != to) {
            let most = &mut most[schedule.stage(group, task.chunk)];
            if task.work == from {
                now[task.chunk] += 1;
                *most = now[task.chunk].max(*most);
            } else if task.work == to {
                now[task.chunk] = now[task.chunk].saturating_sub(1);
            }
        }
    }
    most
}
