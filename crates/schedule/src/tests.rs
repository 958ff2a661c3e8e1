//! Schedules against what their papers say of them, exhaustively where worlds are small.

mod closed; // closed forms against timelines
mod faults; // what is wrong is found, and what is right is not
mod played; // timelines against a pipeline that is played tick by tick

use super::*;

/// Every schedule with a name of at most 4 groups, 3 chunks and 6 micro-batches.
pub(super) fn small() -> Vec<(Kind, [usize; 3])> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        for groups in 1..=4 {
            for chunks in if kind.interleaves() { 2..=3 } else { 1..=1 } {
                for micro_batches in 1..=6_usize {
                    if !kind.interleaves() || micro_batches.is_multiple_of(groups) {
                        found.push((kind, [groups, chunks, micro_batches]));
                    }
                }
            }
        }
    }
    found
}

/// A schedule with a name, verified.
pub(super) fn named(kind: Kind, [groups, chunks, micro_batches]: [usize; 3]) -> Verified {
    let schedule = kind.schedule(groups, chunks, micro_batches).unwrap();
    assert_eq!(schedule.splits_backward, kind.splits_backward());
    verify(schedule, groups * chunks, micro_batches).unwrap_or_else(|faults| panic!("{kind}: {faults}"))
}

/// With few micro-batches schedules are equal, and are called what `plan` calls them.
#[test]
fn equal_schedules_have_one_name() {
    let kind = |kind: Kind, sizes| named(kind, sizes).schedule().kind().unwrap();
    for (made, sizes) in small() {
        let name = kind(made, sizes);
        assert_eq!(kind(name, sizes), name);
        let first = Kind::OneForwardOneBackward;
        assert!(made != first || name == first, "{sizes:?}: {name}");
    }
    assert_eq!(kind(Kind::GPipe, [2, 1, 1]), Kind::OneForwardOneBackward);
    assert_eq!(kind(Kind::GPipe, [2, 1, 4]), Kind::GPipe);
}

#[test]
fn schedules_with_names_can_be_run() {
    let all = small();
    assert_eq!(all.len(), 7 * 24 + 2 * 2 * (6 + 3 + 2 + 1));
    for (kind, sizes) in all {
        let verified = named(kind, sizes);
        assert_eq!(verified.schedule().micro_batches(), sizes[2]);
        assert_eq!(verified.order().count(), verified.schedule().groups.iter().map(Vec::len).sum::<usize>());
    }
}

#[test]
fn every_stage_finishes_micro_batches_in_their_order() {
    for (kind, sizes) in small() {
        let verified = named(kind, sizes);
        let schedule = verified.schedule();
        for tasks in &schedule.groups {
            for chunk in 0..schedule.chunks {
                for work in schedule.works() {
                    let of_chunk = tasks.iter().filter(|it| it.chunk == chunk && it.work == *work);
                    assert!(of_chunk.map(|it| it.micro_batch).eq(0..sizes[2]), "{kind} {sizes:?} {work:?}");
                }
            }
        }
    }
}

#[test]
fn a_stage_holds_as_many_micro_batches_as_its_schedule_is_known_for() {
    for (kind, [groups, chunks, micro_batches]) in small() {
        let found = live(&named(kind, [groups, chunks, micro_batches]));
        for (group, found) in found.into_iter().enumerate() {
            let expected = held(kind, [groups, chunks, micro_batches], group);
            assert_eq!(found.together, expected, "{kind} {groups} {chunks} {micro_batches} {group}");
            let parts: usize = found.chunks.iter().sum();
            assert!(parts >= expected && found.chunks.iter().all(|it| *it <= micro_batches));
            assert!(chunks > 1 || parts == expected);
        }
    }
}

#[test]
fn gradients_of_weights_wait_for_as_many_micro_batches_as_the_schedule_is_known_for() {
    for (kind, sizes) in small().into_iter().filter(|it| it.1[1] == 1) {
        let verified = named(kind, sizes);
        let last = verified.schedule().last_work();
        let expected: Vec<usize> = (0..sizes[0]).map(|group| held_apart(kind, sizes, group)).collect();
        assert_eq!(between(&verified, Work::Backward, last), expected, "{kind} {sizes:?}");
    }
}

#[test]
fn what_is_printed_is_read_again() {
    for (kind, sizes) in small() {
        let schedule = kind.schedule(sizes[0], sizes[1], sizes[2]).unwrap();
        assert_eq!(schedule.to_string().parse(), Ok(schedule), "{kind} {sizes:?}");
    }
}

#[test]
fn schedules_are_those_that_are_drawn_in_papers() {
    let check = |kind: Kind, sizes: [usize; 3], expected: &str| {
        let schedule = kind.schedule(sizes[0], sizes[1], sizes[2]).unwrap();
        assert_eq!(schedule.to_string().trim_end(), expected, "{kind}");
    };
    check(Kind::GPipe, [2, 1, 2], "F0 F1 B0 B1\nF0 F1 B0 B1");
    check(Kind::OneForwardOneBackward, [2, 1, 3], "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2");
    check(Kind::OneForwardOneBackwardDelayed, [2, 1, 2], "F0 F1 B0 W0 B1 W1\nF0 B0 W0 F1 B1 W1");
    check(Kind::Eager, [2, 1, 4], "F0 F1 F2 B0 F3 B1 B2 B3\nF0 B0 F1 B1 F2 B2 F3 B3");
    check(
        Kind::Interleaved,
        [2, 2, 2],
        "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0\nF0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0",
    );
    // Qi et al., figures 2 and 3, the last of 4 devices.
    let last = |kind: Kind| kind.schedule(4, 1, 8).unwrap().to_string().lines().last().unwrap().to_owned();
    assert_eq!(
        last(Kind::ZeroBubbleH1),
        "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7"
    );
    assert_eq!(
        last(Kind::ZeroBubbleH2),
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 W0 F7 B7 W1 W2 W3 W4 W5 W6 W7"
    );
}

#[test]
fn there_is_no_schedule_of_nothing_of_too_much_or_of_the_wrong_sizes() {
    let message = |kind: &str, sizes: [usize; 3]| {
        let kind: Result<Kind, KindError> = kind.parse();
        kind.and_then(|kind| kind.schedule(sizes[0], sizes[1], sizes[2])).unwrap_err().to_string()
    };
    assert_eq!(
        message("2f2b", [1, 1, 1]),
        "no schedule is called `2f2b`, expected one of `gpipe`, `1f1b`, `1f1b-delayed`, `eager-1f1b`, \
         `eager-1f1b-delayed`, `interleaved`, `interleaved-delayed`, `zb-h1`, `zb-h2`"
    );
    assert_eq!(message("gpipe", [0, 1, 1]), "a schedule has 0 pipeline ranks, expected 1 at least");
    assert_eq!(message("zb-h1", [2, 1, 0]), "a schedule has 0 micro-batches, expected 1 at least");
    assert_eq!(message("interleaved", [2, 0, 4]), "a schedule has 0 chunks, expected 1 at least");
    assert_eq!(
        message("interleaved", [4, 2, 6]),
        "schedule `interleaved` has 6 micro-batches, expected a multiple of its 4 pipeline ranks"
    );
    assert_eq!(
        message("interleaved", [4, 1, 8]),
        "schedule `interleaved` has 1 chunk in a pipeline rank, expected 2 at least (`1f1b` has 1)"
    );
    assert_eq!(
        message("1f1b", [4, 2, 8]),
        "schedule `1f1b` has 2 chunks in a pipeline rank, expected 1 (`interleaved` has more)"
    );
    let too_much = "a schedule has more than 16777216 tasks";
    assert_eq!(message("1f1b", [usize::MAX, 1, usize::MAX]), too_much);
    assert_eq!(message("1f1b", [1 << 12, 1, 1 << 12]), too_much);
    for kind in Kind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
    }
}
