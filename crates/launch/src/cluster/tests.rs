//! What launchers say, and when processes start together.

mod contract; // environments, and what they say

use super::*;

fn facts(ranks: u64, plan: &str) -> Said {
    Ok((Some(ranks), vec![("plan".to_owned(), plan.to_owned()), ("steps".to_owned(), "3".to_owned())]))
}

fn refused(said: &[Said]) -> String {
    let failure = disagreement(said).unwrap();
    assert_eq!(failure.code(), 2);
    failure.to_string()
}

#[test]
fn processes_that_agree_start() {
    assert_eq!(disagreement(&[facts(2, "a"), facts(2, "a")]), None);
    // Where no rank is to start, any number will do.
    assert_eq!(disagreement(&[Ok((None, Vec::new())), Ok((None, Vec::new()))]), None);
}

#[test]
fn another_plan_another_number_and_a_failure_are_named() {
    let words = refused(&[facts(3, "a"), facts(3, "a"), facts(3, "b")]);
    assert_eq!(words, "ranks 0 and 2 differ in plan: a and b; all have to be started alike");
    let words = refused(&[facts(4, "a"), facts(4, "a")]);
    let expected = "the plan is for 4 ranks, but 2 processes have been started: start 4, or plan again";
    assert_eq!(words, expected);
    assert_eq!(refused(&[facts(2, "a"), Err((2, "no such file".to_owned()))]), "rank 1: no such file");
}

#[test]
fn a_node_begins_where_the_host_is_another_or_its_ranks_are_counted_anew() {
    let said = |all: &[(&str, Option<u64>)]| -> Vec<(String, Option<u64>)> {
        all.iter().map(|(host, local)| ((*host).to_owned(), *local)).collect()
    };
    assert_eq!(nodes(&said(&[("a", None), ("a", None), ("b", None), ("b", None)])), [0, 0, 1, 1]);
    assert_eq!(nodes(&said(&[("a", Some(0)), ("a", Some(1)), ("a", Some(0)), ("a", Some(1))])), [0, 0, 1, 1]);
    assert_eq!(nodes(&said(&[("a", Some(0)), ("b", Some(1))])), [0, 1]);
}

#[test]
fn failures_keep_their_exit_codes() {
    for code in [1, 2, 3, 4, 7] {
        let failure = Failure::of_code(code, "why".to_owned());
        assert_eq!((failure.code(), failure.to_string().as_str()), (code, "why"));
    }
    let full = |error: io::ErrorKind| Failure::unwritten(Path::new("a"), &error.into()).code();
    assert_eq!([io::ErrorKind::StorageFull, io::ErrorKind::FileTooLarge].map(full), [7, 7]);
    assert_eq!(full(io::ErrorKind::PermissionDenied), 2);
}
