//! Cases by programs that only say what they were asked.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// A program that writes down what it is given, and then does this.
fn program(folder: &Folder, name: &str, does: &str) -> PathBuf {
    let path = folder.path.join(name);
    let asked = folder.path.join("asked");
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\n{does}\n", asked.display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn options(only: &str, programs: Vec<PathBuf>) -> Frameworks {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/configs");
    Frameworks { only: only.to_owned(), configs, programs, limit: 60, ledger: None }
}

/// What a program prints that has planned.
fn prints(seconds: f64) -> String {
    let json = json!({
        "seconds": seconds, "expected": { "seconds": 2.5 }, "tokens_per_second_per_device": 1234.4,
    });
    format!("echo '{json}'")
}

#[test]
fn each_case_is_asked_of_each_build() {
    let folder = Folder::new("frameworks-builds", None).unwrap();
    let one = program(&folder, "one", &prints(2.0));
    let other = program(&folder, "other", &prints(3.0));
    let report = measure(&options("llama3_8b 2048x", vec![one, other]), &|_| {}).unwrap();
    assert_eq!(report.lines.len(), 2 * 4);
    let asked = std::fs::read_to_string(folder.path.join("asked")).unwrap();
    let [first, ..] = asked.lines().collect::<Vec<_>>()[..] else { panic!("{asked}") };
    assert!(
        first.starts_with("plan --config /") && first.contains(
            "/tests/configs/llama3_8b.json --machine h100-80g-2048x --mode train --loss loss --optimizer adamw \
             --stages auto --global-batch 2048 --dim sequence=8192 --for torchtitan --json -o "
        ),
        "{first}"
    );
    assert_eq!(report.lines[1]["seconds"], 3.0);
    assert!(report.text.contains("| torchtitan | llama3_8b | h100-80g-2048x | 2.000 s | 2.500 s | 1234 | "));
    assert!(
        report.text.contains("steps 1.500 x in the mean, 1.500 x at most; 4 of 4 cases are planned by both"),
        "{}",
        report.text
    );
}

#[test]
fn what_is_refused_is_an_answer_and_what_fails_is_none() {
    let folder = Folder::new("frameworks-refused", None).unwrap();
    let refuses = program(&folder, "refuses", "echo 'error: nothing fits' >&2; exit 2");
    let both = vec![refuses.clone(), refuses];
    let report = measure(&options("megatron deepseek_v3 h100-80g-64x", both), &|_| {}).unwrap();
    assert!(report.text.contains(": 0 of 1 cases are planned by both"), "{}", report.text);
    let sleeps = program(&folder, "sleeps", "sleep 20");
    let short = Frameworks { limit: 1, ..options("megatron deepseek_v3 h100-80g-64x", vec![sleeps]) };
    let late = measure(&short, &|_| {}).unwrap();
    assert!(late.text.contains("| not over |") && late.lines[0]["over"].is_string(), "{}", late.text);
    let absent = vec![folder.path.join("absent")];
    let why = measure(&options("megatron deepseek_v3 h100-80g-64x", absent), &|_| {}).unwrap_err();
    assert!(why.to_string().contains("cannot be started"), "{why}");
    assert_eq!(report.lines[0]["refused"], "error: nothing fits");
    assert!(report.text.contains("| megatron | deepseek_v3 | h100-80g-64x | refused | "), "{}", report.text);
    let fails = program(&folder, "fails", "echo 'error: no such option' >&2; exit 1");
    let why = measure(&options("megatron deepseek_v3 h100-80g-64x", vec![fails]), &|_| {}).unwrap_err();
    assert!(why.to_string().contains("megatron deepseek_v3 h100-80g-64x: error: no such option"), "{why}");
    let nothing = program(&folder, "nothing", "true");
    let why = measure(&options("megatron deepseek_v3 h100-80g-64x", vec![nothing]), &|_| {}).unwrap_err();
    assert!(why.to_string().contains("printed no JSON"), "{why}");
    let elsewhere = Frameworks { configs: folder.path.clone(), ..options("megatron", vec![]) };
    let why = measure(&elsewhere, &|_| {}).unwrap_err();
    assert!(why.to_string().contains("deepseek_v3.json: there is no such file"), "{why}");
    let why = measure(&options("no such case", vec![]), &|_| {}).unwrap_err();
    assert!(why.to_string().contains("torchtitan deepseek_v3 h100-80g-64x, "), "{why}");
}
