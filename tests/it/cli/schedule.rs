//! Schedules of pipelines: drawn, written down, and refused.

use std::fs;

use super::{Folder, shardloom};
use crate::tidy::root;

fn json(arguments: &[&str]) -> serde_json::Value {
    let left = shardloom(&[&["schedule"], arguments, &["--json"]].concat());
    assert_eq!((left.code, left.err.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&left.out).unwrap()
}

fn refused(arguments: &[&str]) -> (u8, String) {
    let left = shardloom(&[&["schedule"], arguments].concat());
    assert!(left.out.is_empty(), "{}", left.out);
    (left.code, left.err)
}

#[test]
fn times_are_those_of_the_papers() {
    // What other simulators say of eager 1F1B, and what its paper does of live micro-batches.
    let of = |name: &str, stages: &str, micro_batches: &str, more: &[&str]| {
        let sizes = [name, "--stages", stages, "--micro-batches", micro_batches, "--message", "1"];
        json(&[&sizes, more].concat())
    };
    assert_eq!(of("1f1b", "8", "32", &[])["makespan"], 185.0);
    assert_eq!(of("1f1b", "8", "32", &["--blocking"])["makespan"], 192.0);
    let eager = of("eager-1f1b", "8", "32", &[]);
    assert_eq!((&eager["makespan"], &eager["groups"][0]["holds"]), (&131.0.into(), &15.into()));
    assert_eq!(of("eager-1f1b-delayed", "8", "32", &[])["makespan"], 124.0);
}

#[test]
fn a_named_schedule_is_the_same_from_a_file() {
    let folder = Folder::new("schedule");
    let named = ["interleaved", "--stages", "6", "--chunks", "3", "--micro-batches", "4", "--message", "0.5"];
    let (named, file) = (json(&named), folder.path("own.txt"));
    fs::write(&file, named["text"].as_str().unwrap()).unwrap();
    let (svg, again) = (folder.path("own.svg"), json(&["--file", &file, "--message", "0.5"]));
    for key in ["stages", "chunks", "micro_batches", "makespan", "bubble", "groups", "messages", "text"] {
        assert_eq!(named[key], again[key], "{key}");
    }
    let drawn = shardloom(&["schedule", "--file", &file, "--svg", &svg, "--width", "60"]);
    assert!(drawn.out.lines().all(|line| line.len() <= 80), "{}", drawn.out);
    assert_eq!(fs::read_to_string(&svg).unwrap().matches("<title>").count(), 2 * 3 * 4 * 2);
}

#[test]
fn what_makes_no_sense_is_said() {
    let sizes = |stages, micro_batches| ["--stages", stages, "--micro-batches", micro_batches];
    let with = |name: &'static str, rest: &[&'static str], more: &[&'static str]| {
        refused(&[&[name], rest, more].concat())
    };
    let (code, error) = with("2f2b", &sizes("4", "8"), &[]);
    assert!(code == 1 && error.contains("no schedule is called `2f2b`, expected one of `gpipe`"), "{error}");
    let (code, error) = with("interleaved", &sizes("8", "6"), &[]);
    assert_eq!(code, 1);
    assert!(error.contains("has 6 micro-batches, expected a multiple of its 4 pipeline ranks"), "{error}");
    let (code, error) = with("interleaved", &sizes("5", "6"), &[]);
    assert!(code == 1 && error.contains("5 stages, expected a multiple of the 2 chunks"), "{error}");
    let (code, error) = with("1f1b", &sizes("4", "8"), &["--forward", "1,2,3"]);
    assert!(code == 1 && error.contains("--forward has 3 times, expected one"), "{error}");
    let (code, error) = with("1f1b", &sizes("4", "8"), &["--crossing", "3-1=2"]);
    assert!(code == 1 && error.contains("a crossing from stage 3 to 1"), "{error}");
    let (code, error) = with("1f1b", &sizes("4", "8"), &["--crossing", "3"]);
    assert!(code == 1 && error.contains("such as `0-3=0.5`"), "{error}");
    let (code, error) = with("1f1b", &sizes("200", "100"), &["--svg", "never.svg"]);
    assert!(code == 1 && error.contains("too long to draw"), "{error}");
    let circle = root().join("tests/cases/schedules/circle.txt").to_str().unwrap().to_owned();
    let (code, error) = refused(&["--file", &circle, "--stages", "3"]);
    assert!(
        code == 1 && error.contains("`--stages` goes with the name of a schedule; a file says it"),
        "{error}"
    );
}
