//! What does not fit together: one message, and an end.

use std::process::{Command, Output};

use super::{Folder, complaint, free_port, launch, plan, rank, shardloom, words};

const TOKEN: &str = "a token of this test and no other";

/// All of them at the same time.
fn all(commands: Vec<Command>) -> Vec<Output> {
    let started: Vec<_> = commands.into_iter().map(|mut it| it.spawn().unwrap()).collect();
    started.into_iter().map(|it| it.wait_with_output().unwrap()).collect()
}

#[test]
fn another_number_of_ranks_is_refused() {
    let folder = Folder::new("number");
    let done = launch(3, &[], &folder.training(plan(false), "three", "1")).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    let expected = "[0] error: the plan is for 4 ranks, but 3 processes have been started: start 4";
    assert!(complaint(&done).starts_with(expected), "{}", words(&done));
}

#[test]
fn ranks_with_different_plans_are_refused() {
    let (folder, port) = (Folder::new("plans"), free_port());
    let (one, other) = (folder.training(plan(false), "one", "1"), folder.training(plan(true), "one", "1"));
    let of = |number: u32| rank(number, 4, port, TOKEN, if number == 3 { &other } else { &one });
    let done = all((0..4).map(of).collect());
    assert!(
        complaint(&done[0]).starts_with("error: ranks 0 and 3 differ in the plan: "),
        "{}",
        words(&done[0])
    );
    for done in &done {
        assert_eq!(done.status.code(), Some(2), "{}", words(done));
    }
    assert!(done[1..].iter().all(|it| words(it).is_empty()));
}

#[test]
fn a_rank_of_another_job_is_turned_away() {
    let (folder, port) = (Folder::new("token"), free_port());
    let mut arguments = folder.training(plan(false), "one", "1");
    arguments.extend(["--join-limit", "4"].map(str::to_owned));
    let done = all(vec![
        rank(0, 2, port, TOKEN, &arguments),
        rank(1, 2, port, "the token of quite another job", &arguments),
    ]);
    assert_eq!(done.iter().map(|it| it.status.code()).collect::<Vec<_>>(), [Some(4), Some(4)]);
    let expected =
        format!("error: rank 1 has not come to rank 0 at 127.0.0.1:{port} in 4 s; 1 connections came that");
    assert!(complaint(&done[0]).starts_with(&expected), "{}", words(&done[0]));
    let expected = format!("error: rank 1 is turned away at 127.0.0.1:{port}: it has another token");
    assert!(complaint(&done[1]).starts_with(&expected), "{}", words(&done[1]));
}

#[test]
fn a_port_in_use_is_named() {
    let (folder, taken) = (Folder::new("port"), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let port = taken.local_addr().unwrap().port();
    let arguments = folder.training(plan(false), "one", "1");
    let done = rank(0, 2, port, TOKEN, &arguments).output().unwrap();
    assert_eq!(done.status.code(), Some(4));
    assert!(complaint(&done).contains(&format!("cannot listen at 127.0.0.1:{port}: the port is in use")));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let arguments = Folder::new("sense").training(plan(false), "one", "1");
    let mut half = shardloom(&[]);
    half.args(&arguments).env("RANK", "1");
    let mut short = rank(0, 2, free_port(), "short", &arguments);
    let mut plans = shardloom(&["launch", "-n", "2", "plan", "model.onnx", "--machine", "cpu-2x"]);
    let mut starts = launch(4, &["--restarts", "1"], &arguments);
    let mut many = rank(0, 2, free_port(), TOKEN, &arguments);
    many.env("WORLD_SIZE", "18446744073709551615");
    let mut alone = shardloom(&[]);
    alone.args(&arguments).args(["--lost-after", "3"]);
    let cases: [(&mut Command, i32, &str); 6] = [
        (&mut many, 2, "error: by torchrun there are 18446744073709551615 processes, expected at most 4096"),
        (&mut half, 2, "error: `RANK` is set and `WORLD_SIZE` is not"),
        (&mut short, 2, "error: `SHARDLOOM_TOKEN`: the token has 5 characters, expected 16 or more"),
        (&mut plans, 1, "error: `plan` is one process's work: `launch` starts `run`"),
        (&mut starts, 1, "error: `--restarts` goes with `train --checkpoint DIR --continue`"),
        (&mut alone, 1, "error: `--lost-after` goes with ranks that are processes"),
    ];
    for (command, code, expected) in cases {
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{}", words(&done));
        assert!(complaint(&done).starts_with(expected), "{}", words(&done));
    }
}
