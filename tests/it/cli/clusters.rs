//! Planning whole clusters: what is chosen, and what cannot be.

use std::fs;

use plan::Proof;
use plan::json::{Content, read_any};
use serde_json::Value;

use super::{Folder, fails, works};
use crate::tidy::root;
use crate::tier::first;

/// Plans of the small model, with so many examples in a step.
fn arguments(command: &str, examples: &str, more: &[&str]) -> Vec<String> {
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let fixed = [command, model.to_str().unwrap(), "--mode", "train", "--dim", "sequence=16"];
    let wanted = ["--loss", "cross-entropy:logits,labels", "--global-batch", examples];
    [&fixed[..], &wanted, more].concat().into_iter().map(str::to_owned).collect()
}

fn borrowed(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// The step that the cheapest plan takes with these decisions (seconds), and the words about it.
fn cheapest(folder: &Folder, machine: &str, pins: &[&str]) -> (f64, String) {
    let path = folder.path("p.json");
    let pins = pins.iter().flat_map(|pin| ["--pin", pin]);
    let fixed = ["--stages", "auto", "--machine", machine, "-o", &path];
    let more: Vec<&str> = fixed.into_iter().chain(pins).collect();
    let words = works(&borrowed(&arguments("plan", "4", &more)));
    let text = works(&["--json", "explain", &path]);
    let said: Value = serde_json::from_str(&text).unwrap();
    (said["seconds"].as_f64().unwrap(), words)
}

/// Every setup of two devices and four examples, pinned one by one.
fn setups() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for [groups, data, tensor] in [[1, 1, 2], [1, 2, 1], [2, 1, 1]] {
        for micro_batches in [1, 2, 4] {
            // A micro-batch has an example for each place at least.
            if micro_batches * data > 4 {
                continue;
            }
            for again in ["none", "full"] {
                let plain = ["schedule=1f1b"].as_slice();
                let known =
                    ["schedule=1f1b", "schedule=eager-1f1b", "schedule=zb-h1", "schedule=interleaved"];
                for schedule in if groups == 1 { plain } else { &known } {
                    let interleaved = schedule.ends_with("interleaved");
                    if interleaved && micro_batches % groups != 0 {
                        continue;
                    }
                    let mut pins = vec![
                        format!("pp={groups}"),
                        format!("dp={data}"),
                        format!("tp={tensor}"),
                        format!("microbatches={micro_batches}"),
                        format!("recompute={again}"),
                        (*schedule).to_owned(),
                    ];
                    pins.extend(interleaved.then(|| "chunks=2".to_owned()));
                    all.push(pins);
                }
            }
        }
    }
    all
}

#[test]
fn none_of_all_setups_of_a_small_machine_is_cheaper_than_the_one_that_is_chosen() {
    let folder = Folder::new("every-setup");
    let (chosen, words) = cheapest(&folder, "cpu-2x", &[]);
    assert!(words.starts_with("chosen "), "{words}");
    let mut seen = 0;
    for pins in setups() {
        let (seconds, _) = cheapest(&folder, "cpu-2x", &borrowed(&pins));
        assert!(chosen <= seconds * (1.0 + 1e-9), "{chosen} was chosen, {pins:?} takes {seconds}");
        seen += usize::from(seconds <= chosen * (1.0 + 1e-9));
    }
    assert!(seen > 0, "what was chosen is none of them");
}

/// More that is asked makes no plan worse, and no bound less close.
#[test]
fn a_thorough_search_is_no_worse() {
    let folder = Folder::new("thorough");
    let path = folder.path("p.json");
    let mut closer = 0;
    for machine in first(2, &["cpu-4x", "a100-80g-8x", "h100-80g-32x"]) {
        let found = |more: &[&str]| {
            let fixed = ["--stages", "auto", "--machine", machine, "-o", &path];
            works(&borrowed(&arguments("plan", "32", &[&fixed[..], more].concat())));
            let Content::Pipeline(made) = read_any(&fs::read(&path).unwrap()).unwrap() else {
                panic!("no pipeline")
            };
            let Proof::Gap { lower_bound } = made.proof else { panic!("{:?}", made.proof) };
            (made.seconds(), lower_bound)
        };
        let ((seconds, bound), (thorough, close)) = (found(&[]), found(&["--thorough"]));
        assert!(thorough <= seconds, "{machine}: {thorough}, {seconds} without");
        assert!(close >= bound || thorough < seconds, "{machine}: {close}, {bound} without");
        closer += usize::from(close > bound);
    }
    assert!(closer > 0);
}

#[test]
fn what_is_chosen_is_checked_and_trains_as_one_rank_does() {
    let folder = Folder::new("chosen-pipeline");
    let (_, words) = cheapest(&folder, "cpu-4x", &["pp=2", "tp=2"]);
    assert!(words.contains("2 groups of mesh 2"), "{words}");
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let passed = works(&["check", &folder.path("p.json"), "--model", model.to_str().unwrap()]);
    assert!(passed.contains("cut as it says"), "{passed}");
    let alone = folder.path("alone.json");
    let one = ["plan", model.to_str().unwrap(), "--machine", "cpu-1x", "--mode", "train", "-o", &alone];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--loss", "cross-entropy:logits,labels"];
    works(&[&one[..], &sizes].concat());
    let data = root().join("tests/texts/constitution.txt");
    let losses = |plan: &str| -> Vec<f64> {
        let weights = folder.path("w.safetensors");
        let fixed = ["train", plan, "--data", data.to_str().unwrap(), "--tokens", "u8", "--lr", "0.01"];
        let left = works(&[&fixed[..], &["--steps", "3", "--weights", &weights]].concat());
        let losses = left.lines().filter(|line| line.starts_with("step"));
        let loss = |line: &str| line.split("loss").nth(1).unwrap().split_whitespace().next().unwrap().parse();
        losses.map(|line| loss(line).unwrap()).collect()
    };
    let (found, expected) = (losses(&folder.path("p.json")), losses(&alone));
    assert_eq!(expected.len(), 3);
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 2e-4, "{found}, expected {expected}");
    }
}

/// Groups of one and two devices, cut in every way: none is much cheaper than the one that is chosen.
#[test]
fn blocks_are_dealt_to_groups_whose_meshes_differ() {
    let folder = Folder::new("dealt-unequal");
    let fixed = ["stages=1,2", "microbatches=2", "recompute=none", "schedule=1f1b"];
    let (chosen, words) = cheapest(&folder, "cpu-3x", &fixed);
    assert!(words.contains("1 group of mesh 1, 1 group of mesh 2, 2 micro-batches"), "{words}");
    let Content::Pipeline(made) = read_any(&fs::read(folder.path("p.json")).unwrap()).unwrap() else {
        panic!("no pipeline")
    };
    let blocks = made.recipe.recompute.len();
    let mut least = f64::INFINITY;
    for second in 1..blocks {
        let cut = format!("cut=0,{second}");
        let (seconds, _) = cheapest(&folder, "cpu-3x", &[&fixed[..], &[cut.as_str()]].concat());
        least = least.min(seconds);
    }
    assert!(least.is_finite() && chosen <= least * 1.05, "{chosen} chosen, {least} by another cut");
    assert!(chosen >= least * (1.0 - 1e-9), "{chosen} chosen, which no cut takes: {least}");
}

/// On nodes of one kind too groups may differ: four blocks on eight devices, the first two on four of them.
#[test]
fn groups_that_differ_win_where_blocks_do_not_divide() {
    let folder = Folder::new("unequal-wins");
    let model = root().join("tests/models/llama-fwd-dynamo2.15-op23-dyn/model.onnx");
    let path = folder.path("p.json");
    let fixed = ["plan", model.to_str().unwrap(), "--mode", "train", "--dim", "seq=64", "-o", &path];
    let wanted = ["--loss", "cross-entropy:logits,labels", "--global-batch", "8", "--machine", "cpu-8x"];
    let made = |pins: &[&str]| {
        let pins: Vec<&str> = pins.iter().flat_map(|pin| ["--pin", pin]).collect();
        let words = works(&[&fixed[..], &wanted, &["--stages", "auto"], &pins].concat());
        let said: Value = serde_json::from_str(&works(&["--json", "explain", &path])).unwrap();
        (said["seconds"].as_f64().unwrap(), words)
    };
    let mut least = f64::INFINITY;
    for meshes in ["8", "2x4", "4x2", "4,4", "2x2,2x2", "2,2,2,2"] {
        least = least.min(made(&[&format!("stages={meshes}")]).0);
    }
    let three = made(&["pp=3"]).0;
    let (chosen, words) = made(&[]);
    assert!(words.starts_with("chosen     1 group of mesh 2x2, 2 groups of mesh 2, "), "{words}");
    assert!(words.contains("none of all there are is below"), "{words}");
    // So many groups are only of meshes that differ.
    assert!((three / chosen - 1.0).abs() < 0.02, "{three}, {chosen}");
    assert!(chosen < least, "{chosen} was chosen, groups that are alike take {least}");
    let passed = works(&["check", &path, "--model", model.to_str().unwrap()]);
    assert!(passed.contains("cut as it says"), "{passed}");
}

/// Two kinds of nodes: what is chosen is no dearer than meshes that are pinned, is checked, and says a bound.
#[test]
fn nodes_of_two_kinds_are_planned_as_a_whole() {
    let folder = Folder::new("auto-kinds");
    let names = "a100-80g-2x+v100-16g-2x";
    let (chosen, words) = cheapest(&folder, names, &["recompute=none", "microbatches=2"]);
    assert!(words.starts_with("chosen ") && words.contains("all there are"), "{words}");
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let passed = works(&["check", &folder.path("p.json"), "--model", model.to_str().unwrap()]);
    assert!(passed.contains("cut as it says"), "{passed}");
    for meshes in ["2,2", "1,1,2"] {
        let pins = ["recompute=none", "microbatches=2", &format!("stages={meshes}")];
        let (seconds, _) = cheapest(&folder, names, &pins);
        assert!(chosen <= seconds * 1.02, "{chosen} was chosen, {meshes} takes {seconds}");
    }
    let (_, words) = cheapest(&folder, names, &["pp=3", "recompute=none", "microbatches=2"]);
    assert!(words.contains("2 micro-batches") && words.contains("3 groups of devices"), "{words}");
}

/// `tp`, `cp` and `dp` mean what Megatron-LM means: products are split in columns and rows, sequences, examples.
#[test]
fn pins_say_what_axes_are_for() {
    let folder = Folder::new("roles");
    let path = folder.path("p.json");
    let config = root().join("tests/configs/qwen2_7b.json").display().to_string();
    let fixed = [
        "plan",
        &config,
        "--machine",
        "h100-80g-16x",
        "--stages",
        "auto",
        "--global-batch",
        "32",
        "-o",
        &path,
    ];
    let training = ["--mode", "train", "--loss", "loss", "--precision", "bf16", "--dim", "sequence=4096"];
    let said = |pins: &[&str]| {
        let pins: Vec<&str> = pins.iter().flat_map(|pin| ["--pin", pin]).collect();
        works(&[&fixed[..], &training, &pins].concat())
    };
    let tensor = said(&["tp=4", "pp=2"]);
    for part in
        ["2 groups of mesh 2x4", "data x tensor parallel", "tensor parallel over b: columns then rows"]
    {
        assert!(tensor.contains(part), "no `{part}` in: {tensor}");
    }
    assert!(!tensor.contains("context parallel"), "{tensor}");
    let context = said(&["tp=2", "cp=2", "pp=1"]);
    for part in ["mesh 4x2x2", "data x context x tensor parallel", "context parallel over b"] {
        assert!(context.contains(part), "no `{part}` in: {context}");
    }
    let data = said(&["dp=16"]);
    assert!(data.contains("mesh 16") && data.contains("data parallel over a"), "{data}");
    assert!(!data.contains("context parallel") && !data.contains("tensor parallel"), "{data}");
}

/// The nearest `ep` devices share experts, others have the same ones; `zero` is the highest stage.
#[test]
fn experts_and_shards_are_pinned() {
    let folder = Folder::new("experts-pinned");
    let path = folder.path("p.json");
    let config = root().join("tests/cases/models/mixtral/config.json").display().to_string();
    let fixed = ["plan", &config, "--machine", "h100-80g-8x", "--stages", "auto", "--global-batch", "32"];
    let training = ["--mode", "train", "--loss", "loss", "--precision", "bf16", "--dim", "sequence=64"];
    let arguments = |pins: &[&str]| -> Vec<String> {
        let pins = pins.iter().flat_map(|pin| ["--pin", pin]);
        let all = fixed.into_iter().chain(training).chain(pins).chain(["-o", &path, "--force"]);
        all.map(str::to_owned).collect()
    };
    let said = |pins: &[&str]| works(&borrowed(&arguments(pins)));
    let two = said(&["pp=1", "tp=1", "ep=2", "zero=0"]);
    for part in ["1 group of mesh 4x2", "data x data parallel", "expert parallel over b"] {
        assert!(two.contains(part), "no `{part}` in: {two}");
    }
    assert!(!two.contains("expert parallel over a") && !two.contains("ZeRO"), "{two}");
    let all = said(&["tp=1", "ep=4", "dp=4", "pp=2"]);
    assert!(all.contains("2 groups of mesh 4") && all.contains("expert parallel over a"), "{all}");
    let nearest = said(&["pp=1", "tp=2", "ep=4", "zero=0"]);
    for part in ["1 group of mesh 2x2x2", "data x data x tensor parallel", "expert parallel over b, c"] {
        assert!(nearest.contains(part), "no `{part}` in: {nearest}");
    }
    let none = said(&["pp=1", "tp=1", "ep=1", "zero=3"]);
    assert!(!none.contains("expert parallel") && none.contains("1 group of mesh 8"), "{none}");
    // With little memory states are sharded as far as is pinned, and no further.
    let mut before = f64::INFINITY;
    for (stage, has, has_not) in [
        ("zero=0", "data parallel over a", "ZeRO"),
        ("zero=1", "ZeRO-1", "ZeRO-3"),
        ("zero=3", "ZeRO-3", "ZeRO-1"),
    ] {
        let pins = ["pp=1", "tp=1", "ep=1", stage];
        let little: Vec<String> =
            arguments(&pins).into_iter().chain(["--memory", "250kB"].map(str::to_owned)).collect();
        let text = works(&borrowed(&little));
        assert!(text.contains(has) && !text.contains(has_not), "{stage}: {text}");
        let Content::Pipeline(pipeline) = read_any(&fs::read(&path).unwrap()).unwrap() else { panic!() };
        assert!(pipeline.seconds() <= before, "{stage}: {text}");
        before = pipeline.seconds();
    }
    // A pin is no faster than what is free.
    let seconds = |pins: &[&str]| {
        said(pins);
        let Content::Pipeline(pipeline) = read_any(&fs::read(&path).unwrap()).unwrap() else { panic!() };
        pipeline.seconds()
    };
    let free = seconds(&[]);
    let narrow: [&[&str]; 6] =
        [&["ep=4", "zero=0"], &["tp=2", "ep=4"], &["zero=1"], &["ep=2"], &["ep=4"], &["ep=1"]];
    for pins in first(2, &narrow) {
        assert!(free <= seconds(pins) * (1.0 + 1e-9), "{pins:?} is faster than {free} s");
    }
    // Three devices share nothing of eight; there are four stages of ZeRO.
    let refused = |pins: &[&str]| fails(1, &borrowed(&arguments(pins)));
    let three = refused(&["ep=3"]);
    assert!(three.contains("experts over the nearest ep of a group"), "{three}");
    assert!(refused(&["zero=4"]).contains("a stage of ZeRO, 0 to 3"), "{}", refused(&["zero=4"]));
    assert!(refused(&["stages=4,4", "ep=2"]).contains("leave the pins of pp, tp, cp, dp, ep and zero out"));
}

#[test]
fn decisions_that_cannot_be() {
    let folder = Folder::new("no-setup");
    let path = folder.path("refused.json");
    let with = |code: u8, examples: &str, more: &[&str]| {
        let fixed = ["--stages", "auto", "--machine", "cpu-4x", "-o", &path];
        fails(code, &borrowed(&arguments("plan", examples, &[&fixed[..], more].concat())))
    };
    let says = |message: &str, parts: &[&str]| {
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        parts.iter().for_each(|part| assert!(message.contains(part), "no `{part}` in: {message}"));
    };
    for pins in [&["pp=5"][..], &["tp=8"], &["pp=2", "tp=4"], &["dp=3"], &["microbatches=3"]] {
        let pins: Vec<&str> = pins.iter().flat_map(|pin| ["--pin", pin]).collect();
        says(&with(1, "4", &pins), &["no setup of cpu-4x", "what is pinned", "4 devices in nodes of"]);
    }
    for pin in
        ["stages=", "stages=2,x", "cut=0,x", "pp", "pp=0", "pp=many", "xx=1", "recompute=some", "tp=-1", ""]
    {
        says(&with(1, "4", &["--pin", pin]), &["`--pin ", "expected"]);
    }
    says(&with(1, "4", &["--pin", "schedule=fast"]), &["`fast`", "1f1b"]);
    says(&with(1, "4", &["--mesh", "2"]), &["`--stages auto` chooses the mesh"]);
    says(&with(1, "4", &["--dim", "batch=4"]), &["`--stages auto` chooses the mesh and the size of `batch`"]);
    says(&with(2, "4", &["--memory", "20kB"]), &["fit", "20.00 kB"]);
    // As many groups as can only be where they differ: the reason is what there is of those.
    says(&with(2, "4", &["--pin", "pp=3", "--memory", "1kB"]), &["none of", "fit 1.00 kB"]);
    says(&with(1, "4", &["--pin", "pp=3", "--pin", "schedule=gpipe"]), &["1f1b, eager-1f1b or zb-h1"]);
    // More groups than the model has blocks.
    let many = ["--stages", "auto", "--machine", "cpu-64x", "--pin", "pp=64", "-o", &path];
    let message = fails(1, &borrowed(&arguments("plan", "64", &many)));
    says(&message, &["more groups are pinned than the model has blocks"]);
    // Schedules that cannot order what is pinned beside them.
    let pinned = |pins: &[&str]| {
        let pins: Vec<&str> = pins.iter().flat_map(|pin| ["--pin", pin]).collect();
        with(1, "4", &pins)
    };
    let message = pinned(&["schedule=interleaved", "pp=2", "microbatches=1"]);
    says(&message, &["interleaved", "1 micro-batches", "2 "]);
    says(&pinned(&["chunks=64", "pp=4"]), &["4 groups with 64 stages each", "blocks"]);
    for pins in [&["schedule=gpipe"][..], &["schedule=1f1b", "chunks=2"], &["schedule=zb-h1", "pp=1"]] {
        says(&pinned(pins), &["no schedule has what is pinned", "`--stages N --schedule NAME`"]);
    }
    let there = |pin| with(1, "4", &["--for", "megatron", "--pin", pin]);
    says(
        &there("schedule=zb-h1"),
        &["no schedule has what is pinned: Megatron-LM has ", "1f1b", "plan without"],
    );
    // What is said twice, and of what the model has not.
    says(&pinned(&["tp=2", "tp=4"]), &["`--pin tp=2` and `--pin tp=4` say tp twice"]);
    says(&pinned(&["zero=1", "zero=1"]), &["say zero twice"]);
    says(&pinned(&["ep=2"]), &["`--pin ep=2`: the model has no experts to share"]);
    says(&there("ep=2"), &["`--pin ep=2`: the model has no experts to share"]);
    // Meshes of groups, and cuts, that do not go together.
    let both = ["stages=2,2", "tp=2"];
    says(
        &pinned(&both),
        &[
            "`--pin stages=..` says the mesh of each group",
            "leave the pins of pp, tp, cp, dp, ep and zero out",
        ],
    );
    says(&pinned(&["cut=0,2"]), &["`--pin cut=..` is of groups", "give `--pin stages=..`"]);
    says(&pinned(&["stages=2,2", "cut=0,1,2"]), &["names 3 stages, expected 2"]);
    says(&pinned(&["stages=2,2", "cut=1,2"]), &["[1, 2]", "ascend from 0"]);
    says(&pinned(&["stages=2,2", "cut=0,99"]), &["names block 99 of a model of"]);
    says(&pinned(&["stages=2,1"]), &["meshes 2, 1 are 3 devices, expected 4"]);
    says(&pinned(&["stages=2,2", "schedule=gpipe"]), &["no schedule has what is pinned", "one stage each"]);
    says(&pinned(&["stages=2,2", "microbatches=3"]), &["no setup of cpu-4x has what is pinned"]);
    let kinds = ["--stages", "auto", "--machine", "a100-80g-2x+v100-16g-2x", "-o", &path];
    let with_kinds =
        |pin| fails(1, &borrowed(&arguments("plan", "4", &[&kinds[..], &["--pin", pin]].concat())));
    says(&with_kinds("stages=4"), &["would lie on two kinds of nodes"]);
    says(&with_kinds("tp=2"), &["on nodes of one kind", "give `--pin stages=..`"]);
    // How many examples there are is part of the question.
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let none =
        ["plan", model.to_str().unwrap(), "--machine", "cpu-2x", "--stages", "auto", "--mode", "train"];
    let loss = ["--loss", "cross-entropy:logits,labels", "--dim", "sequence=16", "-o", &path];
    says(&fails(1, &[&none[..], &loss].concat()), &["`--global-batch N`"]);
    assert!(!folder.0.join("refused.json").exists());
}

#[test]
fn sweeps_say_the_same_each_time() {
    let folder = Folder::new("sweep");
    let (csv, svg) = (folder.path("s.csv"), folder.path("s.svg"));
    let swept = |over: &str| {
        let more = ["--machine", "cpu-4x", "--over", over, "--csv", &csv, "--svg", &svg];
        let text = works(&borrowed(&arguments("sweep", "4", &more)));
        [text, fs::read_to_string(&csv).unwrap(), fs::read_to_string(&svg).unwrap()]
    };
    let first = swept("devices=1,2,4");
    assert_eq!(swept("devices=1,2,4"), first);
    let rows: Vec<Vec<String>> =
        first[1].lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
    assert_eq!(rows[0][..2], ["devices", "step_seconds"]);
    assert_eq!(rows.len(), 4);
    for (row, (devices, line)) in rows[1..].iter().zip(["1", "2", "4"].iter().zip(first[0].lines())) {
        assert_eq!(row[0], *devices);
        assert_eq!(row.len(), rows[0].len());
        assert!(line.starts_with(devices) && line.contains(&format!("{} group", row[3])), "{line}");
    }
    // More devices do not take longer: what fewer do, they could do too, on meshes of this model.
    let seconds: Vec<f64> = rows[1..].iter().map(|row| row[1].parse().unwrap()).collect();
    assert!(seconds.is_sorted_by(|a, b| a >= b), "{seconds:?}");
    assert!(first[2].starts_with("<svg"));
    // What does not fit is a row without numbers.
    let refused = swept("memory=20kB,1GB");
    let rows: Vec<&str> = refused[1].lines().collect();
    assert_eq!(rows[1], "20000,,,,,,,,,,");
    assert!(rows[2].starts_with("1000000000,0."), "{}", rows[2]);
    for over in ["devices", "devices=", "devices=0", "colour=1", "memory=much"] {
        let message = fails(1, &borrowed(&arguments("sweep", "4", &["--machine", "cpu-4x", "--over", over])));
        assert!(message.contains(&format!("`--over {over}` is no sweep")), "{message}");
    }
}

/// A model, a machine, how many examples a step has, and what is asked of fewer setups.
type Case<'a> = (&'a [&'a str], &'a str, &'a str, &'a [&'a [&'a str]]);

/// What is asked of the whole cluster finds no worse than what is asked of a part of its setups, by more than ways
/// have to promise to be planned.
#[test]
fn what_is_left_open_is_not_worse_than_what_is_pinned() {
    let folder = Folder::new("auto-free");
    let path = folder.path("p.json");
    let bytes = root().join("tests/models/gpt2-bytes.onnx").display().to_string();
    let llama = root().join("tests/configs/llama3_8b.json").display().to_string();
    let small = [&bytes, "--dim", "sequence=64", "--loss", "cross-entropy:logits,labels"];
    let large = ["--config", &llama, "--dim", "sequence=4096", "--loss", "loss", "--precision", "bf16"];
    let whole = ["--pin", "pp=1", "--pin", "tp=1"];
    let pins: [&[&str]; 3] = [&["--pin", "pp=2"], &["--pin", "tp=2"], &["--pin", "recompute=full"]];
    let others: [&[&str]; 2] = [&["--for", "deepspeed"], &["--for", "megatron"]];
    let cases: [Case<'_>; 3] = [
        (&small, "cpu-8x", "16", &pins),
        (&small, "h100-80g-16x", "64", &others),
        // Gathers of weights that run beside computing are what makes the whole cluster one group.
        (&large, "h100-80g-64x", "64", &[&whole]),
    ];
    for (model, machine, examples, narrow) in first(2, &cases) {
        let fixed = ["plan", "--mode", "train", "--stages", "auto", "--machine", machine, "-o", &path];
        let seconds = |more: &[&str]| {
            works(&[&fixed[..], *model, &["--global-batch", examples], more].concat());
            let said: Value = serde_json::from_str(&works(&["--json", "explain", &path])).unwrap();
            said["seconds"].as_f64().unwrap()
        };
        let free = seconds(&[]);
        for more in first(1, narrow) {
            let narrow = seconds(more);
            assert!(free <= 1.01 * narrow, "{machine}: {free} s, with {more:?} {narrow} s");
        }
    }
}
