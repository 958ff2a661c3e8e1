//! Tests of what is made within a capacity.

use super::*;

/// Of things of so many bytes counted and held, the first that is counted to fit.
fn first_of(things: &[(u64, u64)], capacity: u64) -> (Result<u64, NoRoom<()>>, Vec<u64>) {
    let mut asked = Vec::new();
    let made = within(capacity, |given| {
        asked.push(given);
        let found = things.iter().find(|(counted, _)| *counted <= given);
        found.map(|&(counted, held)| Tried { made: held, counted, held }).ok_or(())
    });
    (made, asked)
}

#[test]
fn what_fits_at_once_is_taken() {
    assert_eq!(first_of(&[(100, 100)], 100), (Ok(100), vec![100]));
}

#[test]
fn what_is_refused_at_once_is_refused() {
    assert_eq!(first_of(&[(101, 101)], 100), (Err(NoRoom::Refused(())), vec![100]));
}

#[test]
fn room_is_made_for_all_that_is_held_beside() {
    // Far less is counted than there is, and 20 more are held than are counted.
    assert_eq!(first_of(&[(85, 105), (82, 102), (79, 99)], 100), (Ok(99), vec![100, 80]));
}

#[test]
fn what_holds_little_beside_is_found_after_what_holds_much() {
    assert_eq!(first_of(&[(90, 140), (88, 95)], 100), (Ok(95), vec![100, 50, 70, 80, 85, 87, 88]));
}

#[test]
fn the_nearest_is_told() {
    let (made, asked) = first_of(&[(90, 140), (80, 110)], 100);
    assert_eq!(made, Err(NoRoom::Nearest(110)));
    assert!(asked.len() <= ROUNDS && asked.is_sorted_by(|a, b| a != b), "{asked:?}");
}
