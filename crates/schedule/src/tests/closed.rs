//! Closed forms and published figures against timelines.

use super::*;

/// Times of a pipeline in which forward takes 1 and gradients 1 each, by another simulator: stages
/// and micro-batches, time of a message, and 1F1B blocking, 1F1B, eager blocking, eager, and eager
/// with gradients of weights apart.
const OTHER: [([usize; 2], f64, [f64; 5]); 8] = [
    ([2, 16], 0.00, [51.0, 51.0, 51.0, 51.0, 50.0]),
    ([2, 16], 0.25, [55.25, 55.0, 55.25, 51.5, 50.5]),
    ([2, 16], 1.00, [68.0, 67.0, 68.0, 53.0, 52.0]),
    ([4, 16], 0.25, [65.75, 64.0, 63.5, 58.5, 55.5]),
    ([4, 16], 0.50, [74.5, 71.0, 72.0, 60.0, 57.0]),
    ([4, 16], 1.00, [92.0, 85.0, 89.0, 63.0, 60.0]),
    ([8, 32], 0.25, [135.75, 134.0, 133.5, 120.5, 113.5]),
    ([8, 32], 1.00, [192.0, 185.0, 189.0, 131.0, 124.0]),
];

#[test]
fn eager_pipelines_take_what_another_simulator_says() {
    let times = StageTimes { forward: 1.0, backward: 1.0, weight: 1.0 };
    for ([stages, micro_batches], message, expected) in OTHER {
        let manners = [
            (Kind::OneForwardOneBackward, Overlap::Blocking),
            (Kind::OneForwardOneBackward, Overlap::Overlapped),
            (Kind::Eager, Overlap::Blocking),
            (Kind::Eager, Overlap::Overlapped),
            (Kind::EagerDelayed, Overlap::Overlapped),
        ];
        for ((kind, overlap), expected) in manners.into_iter().zip(expected) {
            let verified = named(kind, [stages, 1, micro_batches]);
            let found = makespan(&verified, &Durations::equal(stages, times, message, overlap)).unwrap();
            assert!((found - expected).abs() < 1e-9, "{kind} {stages} {message}: {found} {expected}");
        }
    }
}

/// Compares the closed form of a schedule with its timeline for many times; how many of the times it
/// knows, and of how many.
fn compare(kind: Kind, sizes: [usize; 3]) -> [u32; 2] {
    let verified = named(kind, sizes);
    let stages = sizes[0] * sizes[1];
    let mut known = [0, 0];
    let times = |number: u32| {
        let [forward, backward, weight] = [1 + number % 3, 1 + number / 3 % 3, number / 9].map(f64::from);
        StageTimes { forward, backward, weight }
    };
    for times in (0..36).map(times) {
        for message in [0.0, 0.125, 0.5, 1.0, 1.5, 2.0, 3.0, 7.0] {
            let durations = Durations::equal(stages, times, message, Overlap::Overlapped);
            let found = makespan(&verified, &durations).unwrap();
            let closed = closed_form(kind, sizes, &times, message);
            known = [known[0] + u32::from(closed.is_some()), known[1] + 1];
            assert!(
                closed.is_none_or(|closed| (closed - found).abs() < 1e-9),
                "{kind} {sizes:?} {times:?} {message}: {found}, not {closed:?}"
            );
        }
    }
    known
}

#[test]
fn closed_forms_are_what_timelines_say() {
    for kind in Kind::ALL {
        let mut known = [0, 0];
        for groups in 1..=6 {
            for chunks in if kind.interleaves() { 2..=3 } else { 1..=1 } {
                for micro_batches in 1..=16_usize {
                    if !kind.interleaves() || micro_batches.is_multiple_of(groups) {
                        let more = compare(kind, [groups, chunks, micro_batches]);
                        known = [known[0] + more[0], known[1] + more[1]];
                    }
                }
            }
        }
        assert!(known[0] * 5 > known[1] * 2, "{kind}: {known:?}");
    }
}

/// Source: Qi et al., ICLR 2024, table 5, two rows: times of a stage and of a message, and what part
/// of the longest time of a group is idle by 1F1B, ZB-H1 and ZB-H2.
const BUBBLES: [([f64; 4], [f64; 3]); 2] = [
    ([18.522, 18.086, 9.337, 0.601], [0.2431, 0.1585, 0.1083]),
    ([29.718, 29.444, 19.927, 0.527], [0.2347, 0.1323, 0.0698]),
];

#[test]
fn bubbles_are_those_that_are_published() {
    let kinds = [Kind::OneForwardOneBackward, Kind::ZeroBubbleH1, Kind::ZeroBubbleH2];
    for ([forward, backward, weight, message], published) in BUBBLES {
        let times = StageTimes { forward, backward, weight };
        let work = 24.0 * times.total();
        for (kind, published) in kinds.into_iter().zip(published) {
            let durations = Durations::equal(8, times, message, Overlap::Overlapped);
            let found = timeline(&named(kind, [8, 1, 24]), &durations).unwrap();
            let longest =
                found.groups.iter().map(|it| it[it.len() - 1].end - it[0].start).fold(0.0, f64::max);
            let found = 1.0 - work / longest;
            assert!((found - published).abs() < 1e-4, "{kind}: {found}, not {published}");
            let idle = bubble(kind, 8, &times) + waiting(kind, [8, 1, 24], &times, message).unwrap();
            assert!((idle / longest - published).abs() < 1e-4, "{kind}: {idle} of {longest}");
        }
    }
}
