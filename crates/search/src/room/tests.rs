//! Tests of what is made within a capacity.

use super::*;

/// Of things of so many bytes counted and held, the first of which is the fastest, the first that holds no more than
/// the capacity of those that were made, and what was given.
fn first_of(things: &[(u64, u64)], capacity: u64, more: usize) -> (Result<u64, NoRoom<()>>, Vec<u64>) {
    let (mut asked, mut best) = (Vec::new(), None);
    let made = within(capacity, more, |given| {
        asked.push(given);
        let found = things.iter().position(|(counted, _)| *counted <= given).ok_or(())?;
        let (counted, held) = things[found];
        let is_best = held <= capacity && best.is_none_or(|best| found < best);
        best = if is_best { Some(found) } else { best };
        Ok(Tried { counted, held, is_open: best.is_none_or(|best| found < best) })
    });
    (made.map(|()| best.map_or(0, |it| things[it].1)), asked)
}

#[test]
fn what_fits_at_once_is_taken() {
    assert_eq!(first_of(&[(100, 100)], 100, 9), (Ok(100), vec![100]));
}

#[test]
fn what_is_refused_at_once_is_refused() {
    assert_eq!(first_of(&[(101, 101)], 100, 9), (Err(NoRoom::Refused(())), vec![100]));
}

#[test]
fn room_is_made_for_all_that_is_held_beside() {
    // Far less is counted than there is, and 20 more are held than are counted.
    assert_eq!(first_of(&[(85, 105), (82, 102), (79, 99)], 100, 0), (Ok(99), vec![100, 80]));
}

#[test]
fn what_holds_little_beside_is_found_after_what_holds_much() {
    let asked = vec![100, 50, 70, 80, 85, 87, 88];
    assert_eq!(first_of(&[(90, 140), (88, 95)], 100, 0), (Ok(95), asked));
}

#[test]
fn what_was_passed_by_is_made_from_the_top_until_it_fits() {
    let things = [(90, 140), (85, 101), (80, 100), (70, 99), (49, 50)];
    assert_eq!(first_of(&things, 100, 0), (Ok(50), vec![100, 50]));
    assert_eq!(first_of(&things, 100, 1), (Ok(50), vec![100, 50, 89]));
    assert_eq!(first_of(&things, 100, 9), (Ok(100), vec![100, 50, 89, 84]));
}

#[test]
fn what_was_passed_by_is_made_where_nothing_fits_before() {
    // What fits is counted to hold nearly all, where what is given is not told so closely.
    let things = [(999, 2000), (998, 1001), (997, 1000)];
    let [without, with] = [0, 9].map(|more| first_of(&things, 1000, more));
    assert_eq!(without.0, Err(NoRoom::Nearest(2000)));
    assert_eq!((with.0, &with.1[without.1.len()..]), (Ok(1000), &[998, 997][..]));
}

#[test]
fn more_is_no_slower() {
    // Things the fastest of which is counted to hold most, each with something beside that is not counted.
    for seed in 0..200_u64 {
        let beside = |at: u64| (at * 7919 + seed * 104_729) % 1009 % 23;
        let things: Vec<(u64, u64)> = (0..30).map(|at| (100 - 3 * at, 100 - 3 * at + beside(at))).collect();
        let mut before = None;
        for capacity in 1..130 {
            let mut best = None;
            let made = within(capacity, 40, |given| {
                let found = things.iter().position(|(counted, _)| *counted <= given).ok_or(())?;
                let (counted, held) = things[found];
                if held <= capacity {
                    best = Some(best.map_or(found, |best: usize| best.min(found)));
                }
                Ok::<_, ()>(Tried { counted, held, is_open: best.is_none_or(|best| found < best) })
            });
            assert_eq!(made.is_ok(), best.is_some());
            assert!(before.is_none_or(|before| best.is_some_and(|best| best <= before)), "{seed} {capacity}");
            before = best;
        }
    }
}

#[test]
fn the_nearest_is_told() {
    let (made, asked) = first_of(&[(90, 140), (80, 110)], 100, 9);
    assert_eq!(made, Err(NoRoom::Nearest(110)));
    assert!(asked.len() <= ROUNDS + 9 && asked.is_sorted_by(|a, b| a != b), "{asked:?}");
}
