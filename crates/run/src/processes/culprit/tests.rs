//! Chains of waits, and who is at their ends.

use super::*;

/// For each rank, for whom it says that it waits; nothing of those that are not there.
fn found(own: u64, ranks: &[u64], says: &[(u64, Option<u64>)]) -> (u64, String) {
    let doing = |rank: u64| {
        let said = says.iter().find(|it| it.0 == rank)?;
        Some(Doing { step: 3, program: 1, instruction: 10 + rank, waits_for: said.1 })
    };
    culprit(&Wait { own, ranks, seconds: 9 }, &doing, &|rank| Some(format!("host-{rank}")))
}

#[test]
fn the_one_at_the_end_of_a_chain_is_named() {
    let expected = "rank 2 on `host-2` has not gone on: it is in step 3 of this start, instruction 12 of \
                    program 1, and rank 0 has waited 9 s, which is the limit";
    for says in [&[(2, None)][..], &[(1, Some(3)), (3, Some(2)), (2, None)]] {
        let first = if says.len() == 1 { 2 } else { 1 };
        assert_eq!(found(0, &[first, 5], says), (2, expected.to_owned()));
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_named() {
    let words = |own, says: &[(u64, Option<u64>)]| found(own, &[1], says).1;
    assert_eq!(words(0, &[(1, Some(2)), (2, Some(0))]), "ranks 0, 1, 2 wait for each other, for 9 s");
    assert_eq!(words(0, &[(1, Some(2)), (2, Some(1))]), "ranks 1, 2 wait for each other, for 9 s");
}

#[test]
fn where_ranks_say_nothing_those_waited_for_are_named() {
    let expected = "rank 0 has waited 9 s for ranks 1, 3, which is the limit";
    assert_eq!(found(0, &[1, 3], &[]), (1, expected.to_owned()));
    assert_eq!(found(4, &[1], &[]).1, "rank 4 has waited 9 s for rank 1, which is the limit");
    // One that says so waits for one that says nothing.
    assert_eq!(
        found(0, &[1], &[(1, Some(2))]),
        (2, "rank 0 has waited 9 s for rank 1, which is the limit".to_owned())
    );
}
