//! The command line: what works, and one clear message for what does not.

use std::fs;

use serde_json::Value;

use super::cases::path;
use crate::cli::{Folder, fails, says, works};

const MODEL: &str = "llama-past-dynamo2.9-op18-dyn";

fn model(name: &str) -> String {
    path(name).expect("it is in the repository").to_str().unwrap().to_owned()
}

/// A plan for so many sequences, on a mesh.
pub(super) fn planned(folder: &Folder, name: &str, mesh: &str, more: &[&str]) -> String {
    let (model, to) = (model(MODEL), folder.path(name));
    let devices: u64 = mesh.split('x').map(|it| it.parse::<u64>().unwrap()).product();
    let machine = format!("cpu-{devices}x");
    let fixed = ["plan", &model, "--machine", &machine, "--mesh", mesh, "--mode", "generate", "-o", &to];
    works(&[&fixed[..], &["--in-time", "never"], more].concat());
    to
}

/// What is made of each sequence.
fn made(arguments: &[&str]) -> Vec<Vec<i64>> {
    let out = works(&[&["generate"], arguments, &["--json"]].concat());
    let last: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    serde_json::from_value(last["sequences"].clone()).unwrap()
}

#[test]
fn tokens_are_made_by_the_command_line() {
    let folder = Folder::new("generation");
    let one = planned(&folder, "one.json", "1", &["--batch", "2", "--context", "14", "--prompt", "4"]);
    let four = planned(
        &folder,
        "four.json",
        "2x2",
        &["--batch", "2", "--context", "14", "--prompt", "4", "--cache-layout", "[a,b,-,-]"],
    );
    let prompts = folder.path("prompts.txt");
    fs::write(&prompts, "5 6 7,8,9\n\n10, 11\n").unwrap();
    let greedy = made(&[&one, "--prompts", &prompts, "--max-new-tokens", "6"]);
    assert_eq!(greedy.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    assert_eq!(made(&[&four, "--prompts", &prompts, "--max-new-tokens", "6"]), greedy);
    // Lines are printed as tokens come.
    let text = works(&["generate", &one, "--prompts", &prompts, "--max-new-tokens", "6"]);
    let columns = (0..6).map(|step| format!("{} {}", greedy[0][step], greedy[1][step]));
    assert_eq!(text.lines().collect::<Vec<_>>(), columns.collect::<Vec<_>>());

    // The same seed gives the same tokens on every mesh, another one others.
    let ids = ["--prompt-ids", "5,6,7", "--prompt-ids", "5,6,7", "--max-new-tokens", "8"];
    let drawn = |plan: &str, seed: &str| {
        let manner = ["--temperature", "1.5", "--top-k", "50", "--top-p", "0.9", "--seed", seed];
        made(&[&[plan], &ids[..], &manner].concat())
    };
    let first = drawn(&one, "1");
    assert_eq!(drawn(&one, "1"), first);
    assert_eq!(drawn(&four, "1"), first);
    assert_ne!(drawn(&one, "2"), first);
    // Equal prompts have random numbers of their own.
    assert_ne!(first[0], first[1]);
    // Little room to choose is no choice.
    let little = made(&[&[one.as_str()], &ids[..], &["--temperature", "2", "--top-k", "1"]].concat());
    assert_eq!(little, made(&[&[one.as_str()], &ids[..]].concat()));

    // A sequence ends with a token that stops it, the other one goes on.
    let stop = greedy[0][1].to_string();
    let stopped = made(&[&one, "--prompts", &prompts, "--max-new-tokens", "6", "--stop", &stop]);
    let until = |tokens: &[i64]| {
        let end = tokens.iter().position(|it| it.to_string() == stop).map_or(tokens.len(), |it| it + 1);
        tokens[..end].to_vec()
    };
    assert_eq!(stopped, [until(&greedy[0]), until(&greedy[1])]);

    // Where there is no more room, it ends: the last token needs no place.
    let full = made(&[&one, "--prompts", &prompts, "--max-new-tokens", "99"]);
    assert_eq!(full.iter().map(Vec::len).collect::<Vec<_>>(), [10, 13]);
    assert_eq!(full[0][..6], greedy[0]);

    for command in ["check", "explain", "simulate"] {
        let out = works(&[command, &four]);
        assert!(out.contains("prefill") && out.contains("decode"), "{command}: {out}");
    }
    let model = model(MODEL);
    let out = works(&["check", &four, "--model", &model]);
    assert_eq!(out.matches("it computes what the model does").count(), 2, "{out}");
    assert!(works(&["diff", &four, &four]).contains("cache       the same"));
    let other = works(&["diff", &one, &four]);
    assert!(
        other.contains("cache       another: parts such as ") && !other.contains("the same\n"),
        "{other}"
    );
}

#[test]
fn what_makes_no_sense_is_said_in_one_line() {
    let folder = Folder::new("generation-wrong");
    let plan = planned(&folder, "plan.json", "1", &["--context", "8", "--prompt", "4"]);
    let generate = |code: u8, more: &[&str]| fails(code, &[&["generate", &plan], more].concat());
    says(
        &generate(2, &["--prompt-ids", "1,2,3,4,5,6,7,8,9"]),
        &["prompt 1 has 9 tokens", "room for 8", "--context"],
    );
    says(&generate(2, &["--prompt-ids", "1,211"]), &["token 211", "from 0 to 210"]);
    says(&generate(2, &["--prompt-ids", "1,-2"]), &["token -2", "from 0 to 210"]);
    says(
        &generate(2, &["--prompt-ids", "1", "--prompt-ids", "2"]),
        &["for 1 sequences", "2 prompts", "--batch 2"],
    );
    let empty = folder.path("empty.txt");
    fs::write(&empty, "\n").unwrap();
    says(&generate(2, &["--prompts", &empty]), &["there are 0 prompts"]);
    fs::write(&empty, "1 2 x\n").unwrap();
    says(&generate(2, &["--prompts", &empty]), &["line 1: `x`"]);
    says(&generate(2, &["--prompts", &folder.path("none.txt")]), &["none.txt"]);
    assert!(generate(1, &["--prompt-ids", "1,x"]).contains("expected a number"));
    assert!(generate(1, &["--prompt-ids", "1", "--top-p", "0"]).contains("above 0, at most 1"));
    assert!(generate(1, &["--prompt-ids", "1", "--temperature=-1"]).contains("expected a number from 0"));
    assert!(generate(1, &[]).contains("--prompt-ids"));

    let text = fs::read_to_string(&plan).unwrap();
    let tampered = folder.path("tampered.json");
    fs::write(&tampered, text.replacen("\"capacity\":8", "\"capacity\":9", 1)).unwrap();
    says(&fails(2, &["generate", &tampered, "--prompt-ids", "1"]), &["checksum"]);
    says(&fails(2, &["run", &plan]), &["is a plan of generation"]);
    says(
        &fails(2, &["train", &plan, "--data", "x", "--steps", "1", "--lr", "1"]),
        &["is a plan of generation, not to train"],
    );

    let (model, to) = (model(MODEL), folder.path("no.json"));
    let plan_of = |code: u8, model: &str, more: &[&str]| {
        fails(
            code,
            &[&["plan", model, "--machine", "cpu-1x", "--mode", "generate", "-o", &to], more].concat(),
        )
    };
    let no_cache = root_model("gpt2-eager-legacy2.9-op17-static");
    says(
        &plan_of(2, &no_cache, &["--context", "8"]),
        &["it has no cache", "`logits`", "--kept INPUT=OUTPUT"],
    );
    says(&plan_of(1, &model, &[]), &["--context 1024"]);
    says(&plan_of(1, &model, &["--context", "8", "--prompt", "8"]), &["expected 1 to 7"]);
    says(&plan_of(1, &model, &["--context", "8", "--cache-layout", "[-,-,a,-]"]), &["--cache-layout"]);
    says(&plan_of(2, &model, &["--context", "8", "--role", "mask=x"]), &["no `x` for mask"]);
    says(&plan_of(2, &model, &["--context", "8", "--kept", "a=b"]), &["no input `a`"]);
    assert!(
        plan_of(1, &model, &["--context", "8", "--role", "eyes=x"])
            .contains("tokens, mask, positions, logits")
    );
    let message = fails(1, &["plan", &model, "--machine", "cpu-1x", "--context", "8", "-o", &to]);
    says(&message, &["`--context` goes with `--mode generate`"]);
    assert!(!folder.0.join("no.json").exists());
}

fn root_model(name: &str) -> String {
    crate::tidy::root().join("tests/models").join(name).join("model.onnx").to_str().unwrap().to_owned()
}
