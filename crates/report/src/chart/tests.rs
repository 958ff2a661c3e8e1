//! Charts as text, and what every picture has.

use expect_test::{Expect, expect};
use schedule::{Durations, Kind, Overlap, StageTimes, Timeline, Verified, timeline, verify};

use super::{Chart, marks, short_time};

/// A schedule and its timeline.
fn played(kind: Kind, sizes: [usize; 3], message: f64) -> (Verified, Timeline) {
    let stages = sizes[0] * sizes[1];
    let schedule = kind.schedule(sizes[0], sizes[1], sizes[2]).unwrap();
    let verified = verify(schedule, stages, sizes[2]).unwrap();
    let times = StageTimes { forward: 1.0, backward: 1.0, weight: 1.0 };
    let timeline = timeline(&verified, &Durations::equal(stages, times, message, Overlap::Overlapped));
    (verified, timeline.unwrap())
}

fn check(kind: Kind, sizes: [usize; 3], (message, width): (f64, usize), expected: &Expect) {
    let (verified, timeline) = played(kind, sizes, message);
    let chart = Chart { schedule: verified.schedule(), timeline: &timeline };
    let text = chart.text(width);
    assert!(text.lines().all(|line| line.len() <= width + 2), "{text}");
    expected.assert_eq(&text);
}

#[test]
fn tasks_are_words_for_as_long_as_they_last() {
    check(
        Kind::OneForwardOneBackward,
        [2, 1, 3],
        (0.0, 100),
        &expect![[r#"
        stage 0  F0F1    B0==F2B1==  B2==
        stage 1    F0B0==F1B1==F2B2==
                 0                   10
    "#]],
    );
    check(
        Kind::ZeroBubbleH1,
        [2, 1, 3],
        (0.5, 100),
        &expect![[r#"
        stage 0  F0F1    B0W0F2B1W1  B2W2
        stage 1     F0B0F1B1W0  F2B2W1W2
                 0                   10
    "#]],
    );
    check(
        Kind::Interleaved,
        [2, 2, 2],
        (0.0, 100),
        &expect![[r#"
        group 0  F0.0F1.0F0.1F1.1        B0.1====    B1.1====B0.0====B1.0====
        group 1      F0.0F1.0F0.1B0.1====F1.1B1.1====B0.0====B1.0====
                 0                   5                   10                  15
    "#]],
    );
}

#[test]
fn where_there_is_no_room_tasks_are_letters() {
    check(
        Kind::Interleaved,
        [2, 2, 4],
        (0.25, 80),
        &expect![[r#"
        group 0  F0F1 F0F1F2   B0.1F3B1.1F2B0.0F3B1.0  B2.1  B3.1B2.0 B3.0
        group 1     F0F1 F0B0.1F1B1.1F2B0.0F3B1.0F2B2.1F3B3.1B2.0 B3.0
                 0                   10                  20
    "#]],
    );
    check(
        Kind::GPipe,
        [2, 1, 12],
        (0.0, 48),
        &expect![[r#"
        stage 0  FFFFFFFFFFFF   B0B1B2B3B4B5B6B7B8B9B=B=
        stage 1   FFFFFFFFFFFFB0B1B2B3B4B5B6B7B8B9B=B=
                 0                   20
    "#]],
    );
    check(
        Kind::GPipe,
        [2, 1, 12],
        (0.0, 20),
        &expect![[r#"
        stage 0  FFF BBBBBBB
        stage 1  FFFFBBBBBB
                 0
    "#]],
    );
}

#[test]
fn a_picture_has_a_bar_for_each_task_and_a_line_for_each_message() {
    for (kind, sizes) in [(Kind::Interleaved, [2, 2, 4]), (Kind::ZeroBubbleH1, [4, 1, 8])] {
        let (verified, timeline) = played(kind, sizes, 0.25);
        let chart = Chart { schedule: verified.schedule(), timeline: &timeline };
        assert!(chart.is_small());
        let svg = chart.svg("a < b");
        let works = chart.schedule.works().len();
        assert_eq!(svg.matches("<title>").count(), sizes[0] * sizes[1] * sizes[2] * works);
        assert_eq!(svg.matches("stroke-width=\"0.7\"").count(), timeline.messages.len());
        assert_eq!(svg.matches("#dddddd").count(), marks(timeline.makespan, 20).len());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}

#[test]
fn marks_are_round_numbers() {
    assert_eq!(marks(9.0, 3), [0.0, 5.0]);
    assert_eq!(marks(57.0, 6), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
    assert_eq!(marks(0.05, 5), [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]);
    assert_eq!(marks(0.0, 5), [0.0]);
    assert_eq!([0.0, 12.5, 1.0 / 3.0, 20.0].map(short_time), ["0", "12.5", "0.333", "20"]);
}
