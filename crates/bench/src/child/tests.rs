//! Programs that end by themselves, that do not, and that are not there.

use std::process::Command;
use std::time::{Duration, Instant};

use super::run;

fn shell(script: &str, limit: Duration) -> Result<super::Ended, String> {
    run(Command::new("sh").args(["-c", script]), limit)
}

#[test]
fn what_a_program_says_and_ends_with_is_known() {
    let ended = shell("echo said; echo why >&2; exit 3", Duration::from_secs(60)).unwrap();
    assert_eq!((ended.status.code(), ended.out.as_str(), ended.why().as_str()), (Some(3), "said\n", "why"));
    let silent = shell("exit 4", Duration::from_secs(60)).unwrap();
    assert!(silent.why().contains('4'), "{}", silent.why());
    let missing = run(&mut Command::new("no-such-program"), Duration::from_secs(60)).unwrap_err();
    assert!(missing.starts_with("`no-such-program` cannot be started: "), "{missing}");
}

#[test]
fn a_program_that_takes_too_long_is_ended_with_what_it_started() {
    let start = Instant::now();
    // What it starts keeps what it says to open.
    let late = shell("sleep 30 & sleep 30", Duration::from_millis(100)).unwrap_err();
    assert_eq!(late, "`sh` was not over after 0 s");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}
