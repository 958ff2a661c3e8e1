//! `calibrate --device cuda --nccl` of GPUs that are not there and whose speeds are planted: the file has what
//! was planted; what cannot be measured is one message.

use std::fs;
use std::process::Command;

use cost_models::machine::{json, shipped};
use serde_json::Value;

use super::{Folder, complaint, expect_done, launch, launched, libraries, on, shardloom, words};

/// How fast a GPU is that computes.
const GPU: [(&str, f64); 22] = [
    ("planted", 1.0),
    ("processors", 120.0),
    ("memory_bytes", 8.0e9),
    ("launch", 2.5e-6),
    ("event", 1.5e-6),
    ("copy_start", 1e-9),
    ("copy", 1e15),
    ("memory", 2.9145e12),
    ("bf16", 7.9152e14),
    ("f16", 8.2e14),
    ("f32", 4.8e13),
    ("f64", 4.4e13),
    ("feed", 8e10),
    ("tile_start", 5e-7),
    ("product_start", 3e-6),
    ("sustained", 0.8),
    ("heating", 0.002),
    ("input_gradient", 0.96),
    ("weight_gradient", 0.9),
    ("attention", 3e14),
    ("attention_gradient", 2.5e14),
    ("outliers", 0.04),
];

/// How fast exchanges are, and which number of a file says so, as a part of what.
const LINKS: [(&str, f64, &str, f64); 19] = [
    ("ring", 4.2e11, "node.ring_share", 4.5e11),
    ("pair", 3.5e11, "node.pair_share", 4.5e11),
    ("exchange", 3.9e11, "node.exchange_share", 4.5e11),
    ("local", 9e11, "transport.local_rate", 1.0),
    ("switch", 2.5e11, "transport.in_switch.share", 4.5e11),
    ("switch_start", 3.2e-5, "transport.in_switch.start", 1.0),
    ("eager_start", 5e-6, "transport.eager.start", 1.0),
    ("eager_fill", 6e-7, "transport.eager.fill", 1.0),
    ("eager_hop", 8e-7, "transport.eager.hop", 1.0),
    ("eager_share", 0.04, "transport.eager.share", 1.0),
    // These are as NCCL's table has them.
    ("packed_start", 1.4e-5, "transport.packed.start", 1.0),
    ("packed_fill", 7e-6, "transport.packed.fill", 1.0),
    ("packed_hop", 1.9e-6, "transport.packed.hop", 1.0),
    ("packed_share", 0.75, "transport.packed.share", 1.0),
    ("bulk_start", 8.4e-6, "transport.bulk.start", 1.0),
    ("bulk_fill", 1.6e-5, "transport.bulk.fill", 1.0),
    ("bulk_hop", 3.4e-6, "transport.bulk.hop", 1.0),
    ("bulk_share", 1.0, "transport.bulk.share", 1.0),
    ("noise", 0.01, "", 1.0),
];

/// What is hidden by larger parts of the time is not found as exactly (parts).
const NEAR: f64 = 0.05;
const HIDDEN: [(&str, f64); 3] =
    [("transport.eager.fill", 0.5), ("transport.packed.fill", 0.25), ("transport.bulk.fill", 0.25)];

/// So many ranks that measure GPUs of these speeds, whose name is known.
fn calibrating(folder: &Folder, ranks: u32, more: &[&str]) -> Command {
    let of_links = LINKS.iter().map(|it| (it.0, it.1));
    let lines = GPU.into_iter().chain(of_links).map(|(name, value)| format!("{name} {value:e}\n"));
    let text: String = lines.collect();
    let speeds = folder.path("speeds");
    fs::write(&speeds, format!("name NVIDIA H100 80GB HBM3\n{text}")).unwrap();
    let (cache, libraries) = (folder.path("cache"), libraries());
    let arguments = ["calibrate", "--nccl", "--device", "cuda", "--libraries", libraries.to_str().unwrap()]
        .into_iter()
        .chain(["--cache", &cache])
        .chain(more.iter().copied())
        .map(str::to_owned);
    let mut command = launch(ranks, &[], &arguments.collect::<Vec<_>>());
    command.env("EMULATED_GPUS", ranks.to_string()).env("EMULATED_SPEEDS", &speeds);
    command
}

#[test]
fn a_file_has_what_was_planted_of_exchanges() {
    let folder = Folder::new("gpus-planted");
    let output = folder.path("found.json");
    let done = calibrating(&folder, 4, &["-o", &output]).output().unwrap();
    expect_done(&done);
    let out = String::from_utf8_lossy(&done.stdout).into_owned();
    for part in
        ["all-reduce of 8 B among 4 ranks", "all-gather of", "broadcast of", "did not count", "2 ranks"]
    {
        assert!(out.contains(part), "no `{part}` in {out}");
    }
    let text = fs::read_to_string(&output).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    let mut measured = 0;
    for (name, number, field, of) in LINKS.iter().filter(|it| !it.2.is_empty()) {
        let known = found.pointer(&format!("/{}", field.replace('.', "/"))).unwrap();
        let value = known["value"].as_f64().unwrap();
        let near = HIDDEN.iter().find(|it| it.0 == *field).map_or(NEAR, |it| it.1);
        assert!((value * of / number - 1.0).abs() < near, "{name}: {value:e} for {:e}\n{out}", number / of);
        let source = known["source"].as_str().unwrap();
        measured += usize::from(source.contains("NCCL 2.30.7, 4 ranks on one node"));
    }
    assert!(measured >= 12, "{measured} numbers are measured");
    // What was not measured is as it was, with where it is from; the GPU is measured too.
    let (own, like) = (json::read("found", &text).unwrap(), shipped::named("h100-80g-8x").unwrap());
    assert_eq!((&own.network, &own.node.wiring), (&like.network, &like.node.wiring));
    assert_eq!(found["device"]["products"]["processors"]["value"], 120);

    // What was measured is there the next time; of other ranks it is not.
    let again = calibrating(&folder, 4, &["-o", &output]).output().unwrap();
    expect_done(&again);
    let out = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_eq!(out.matches("measurements were there from before").count(), 2, "{out}");
    assert!(!out.contains("did not count"), "{out}");
    assert_eq!(fs::read_to_string(&output).unwrap(), text);
}

#[test]
fn exchanges_that_cannot_be_measured_are_one_message() {
    let folder = Folder::new("gpus-unmeasured");
    let output = folder.path("found.json");
    let refused = |command: &mut Command, code: i32| {
        let done = command.output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{}", words(&done));
        complaint(&done)
    };
    const LAUNCH: &str = "start at least two, one for each GPU, with `shardloom launch -n N calibrate";
    let alone = [&["calibrate", "--nccl", "-o", &output].map(str::to_owned)[..], &on(&libraries())].concat();
    let alone: Vec<&str> = alone.iter().map(String::as_str).collect();
    let said = refused(&mut shardloom(&alone), 1);
    assert!(said.contains(LAUNCH), "{said}");
    let said = refused(&mut calibrating(&folder, 1, &["-o", &output]), 1);
    assert!(said.contains(LAUNCH), "{said}");
    let said = refused(&mut calibrating(&folder, 2, &["-o", &folder.path("no/found.json")]), 2);
    assert!(said.contains("no/found.json: cannot be written"), "{said}");
    let said = refused(&mut calibrating(&folder, 2, &["-o", &output, "--like", "toaster"]), 1);
    assert!(said.contains("`--like toaster`: expected one of"), "{said}");
    let said = refused(calibrating(&folder, 2, &["-o", &output]).env("EMULATED_NCCL", "old"), 2);
    assert!(said.contains("libnccl.so.2 is version 2.16.2"), "{said}");
    let mut plain = launched(2, &["calibrate", "-o", &output].map(str::to_owned));
    let said = refused(&mut plain, 1);
    assert!(said.contains("`calibrate --nccl`"), "{said}");
    assert!(!std::path::Path::new(&output).exists());
}
