//! Pipelines by the clock, against the timelines of their schedules.

use std::collections::BTreeMap;

use schedule::{
    self, Crossing, Durations, Kind, Overlap, StageTimes, Task as Part, Verified, Work, makespan,
};

use crate::{Flow, Link, Schedule, Task, run};

/// How long a pipeline takes by the clock: tasks last, and messages move over links, one for each
/// crossing in each direction.
fn seconds(verified: &Verified, durations: &Durations) -> f64 {
    let pipeline = verified.schedule();
    let mut clock = Schedule::default();
    let mut links: BTreeMap<(usize, Work), (Link, Option<Task>)> = BTreeMap::new();
    // What the next task of a group waits for, and that of a stage for a micro-batch.
    let mut behind: Vec<Option<Task>> = vec![None; pipeline.groups.len()];
    let mut there: BTreeMap<(usize, Work, usize), Vec<Task>> = BTreeMap::new();
    for (place, &Part { work, chunk, micro_batch }) in verified.order() {
        let stage = pipeline.stage(place.group, chunk);
        let times = &durations.stages[stage];
        let time = match work {
            Work::Forward => times.forward,
            Work::Backward if pipeline.splits_backward => times.backward,
            Work::Backward => times.backward + times.weight,
            Work::Weight => times.weight,
        };
        let mut before = there.remove(&(stage, work, micro_batch)).unwrap_or_default();
        before.extend(behind[place.group]);
        let task = clock.lasting(time, &before);
        let mut last = task;
        for (crossing, it) in durations.crossings.iter().enumerate() {
            let (from, to, time) = match work {
                Work::Forward => (it.from, it.to, it.forward),
                Work::Backward => (it.to, it.from, it.backward),
                Work::Weight => continue,
            };
            if from != stage {
                continue;
            }
            let mut sent = task;
            if pipeline.home(from).0 != pipeline.home(to).0 && time > 0.0 {
                let (link, earlier) =
                    links.entry((crossing, work)).or_insert_with(|| (clock.link(1.0), None));
                let flow = Flow { latency: 0.0, bytes: time, rate: 1.0, uses: vec![(*link, 1.0)] };
                let before: Vec<Task> = earlier.iter().copied().chain([last]).collect();
                sent = clock.moving(flow, &before);
                *earlier = Some(sent);
                if durations.overlap == Overlap::Blocking {
                    last = sent;
                }
            }
            there.entry((to, work, micro_batch)).or_default().push(sent);
        }
        behind[place.group] = Some(last);
    }
    run(&clock).unwrap().last()
}

fn verified(kind: Kind, sizes: [usize; 3]) -> Verified {
    let schedule = kind.schedule(sizes[0], sizes[1], sizes[2]).unwrap();
    schedule::verify(schedule, sizes[0] * sizes[1], sizes[2]).unwrap()
}

fn close(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-3
}

#[test]
fn pipelines_by_the_clock_take_what_their_timelines_say() {
    let times = StageTimes { forward: 1.0, backward: 1.25, weight: 0.75 };
    for kind in Kind::ALL {
        let chunks = if kind.interleaves() { 2 } else { 1 };
        for (groups, micro_batches) in [(1, 3), (2, 8), (4, 16), (8, 32)] {
            let verified = verified(kind, [groups, chunks, micro_batches]);
            for overlap in [Overlap::Blocking, Overlap::Overlapped] {
                for message in [0.0, 0.125, 1.0, 4.0] {
                    let durations = Durations::equal(groups * chunks, times, message, overlap);
                    let expected = makespan(&verified, &durations).unwrap();
                    let found = seconds(&verified, &durations);
                    assert!(
                        close(found, expected),
                        "{kind} {groups} {overlap:?} {message}: {found} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn so_do_pipelines_of_different_stages_whose_values_pass_some() {
    for kind in [Kind::OneForwardOneBackward, Kind::Eager, Kind::ZeroBubbleH1] {
        let verified = verified(kind, [4, 1, 9]);
        let stage = |forward: f64| StageTimes { forward, backward: 1.5 * forward, weight: 0.5 };
        let crossing = |from, to, time| Crossing { from, to, forward: time, backward: 0.75 * time };
        let crossings =
            vec![crossing(0, 1, 0.5), crossing(1, 2, 1.5), crossing(2, 3, 0.25), crossing(0, 3, 2.0)];
        let stages = [1.0, 2.0, 0.5, 1.25].map(stage).to_vec();
        for overlap in [Overlap::Blocking, Overlap::Overlapped] {
            let durations = Durations { stages: stages.clone(), crossings: crossings.clone(), overlap };
            let expected = makespan(&verified, &durations).unwrap();
            let found = seconds(&verified, &durations);
            assert!(close(found, expected), "{kind} {overlap:?}: {found} {expected}");
        }
    }
}
