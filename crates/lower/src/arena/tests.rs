//! Places against a search among all that were placed before.

use std::ops::Range;

use super::room::Room;

/// The start of the smallest gap that is free, the lowest of equal ones, found among all.
fn best_gap(places: &[(Range<u64>, Range<usize>)], bytes: u64, when: &Range<usize>) -> u64 {
    let meets = |other: &Range<usize>| other.start < when.end && when.start < other.end;
    let mut taken: Vec<&Range<u64>> = places.iter().filter(|it| meets(&it.1)).map(|it| &it.0).collect();
    taken.sort_by_key(|it| (it.start, it.end));
    let (mut free, mut best) = (0, None);
    for it in taken {
        if it.start >= free + bytes && best.is_none_or(|(size, _)| it.start - free < size) {
            best = Some((it.start - free, free));
        }
        free = free.max(it.end);
    }
    best.map_or(free, |(_, offset)| offset)
}

#[test]
fn the_best_gap_is_found() {
    arbtest::arbtest(|u| {
        let moments = u.int_in_range(1..=20)?;
        let mut room = Room::new(moments);
        let mut places = Vec::new();
        for _ in 0..u.int_in_range(0..=30)? {
            let first = u.int_in_range(0..=moments - 1)?;
            let when = first..u.int_in_range(first + 1..=moments)?;
            let bytes = u.int_in_range(1..=5)?;
            let expected = best_gap(&places, bytes, &when);
            assert_eq!(
                room.take(bytes, when.clone()),
                expected,
                "{bytes} bytes at {when:?} after {places:?}"
            );
            places.push((expected..expected + bytes, when));
        }
        Ok(())
    });
}

#[test]
fn a_chain_leaves_few_runs() {
    let moments = 4096;
    let mut room = Room::new(moments);
    for moment in 0..moments - 1 {
        assert!(room.take(64, moment..moment + 2) <= 64);
    }
    assert!(room.runs() <= 4 * moments, "{} runs", room.runs());
}
