//! Published figures.

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
