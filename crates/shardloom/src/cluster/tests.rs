//! What launchers say, and when processes start together.

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
fn launchers_say_rank_and_size() {
    let set = |all: &'static [(&'static str, &'static str)]| {
        move |name: &str| all.iter().find(|it| it.0 == name).map(|it| it.1.to_owned())
    };
    assert_eq!(Launched::of(set(&[])), None);
    let open = set(&[("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")]);
    assert_eq!(Launched::of(open), Some(Launched { rank: 3, size: 4 }));
    let other = set(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
    assert_eq!(Launched::of(other), Some(Launched { rank: 0, size: 2 }));
    assert_eq!(Launched::of(set(&[("PMI_SIZE", "2")])), None);
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
