//! Training in stages: what users do, and what they do wrong.

use std::fs;

use plan::json::{Content, read_any, write_pipeline};
use serde_json::Value;

use super::{Folder, fails, says, works};
use crate::tidy::root;

/// The model that is trained, its data, and how it is planned, but for the machine.
fn arguments(more: &[&str]) -> Vec<String> {
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let fixed = [
        "plan",
        model.to_str().unwrap(),
        "--dim",
        "batch=1",
        "--dim",
        "sequence=16",
        "--loss",
        "cross-entropy:logits,labels",
        "--microbatches",
        "4",
    ];
    fixed.iter().chain(more).map(|it| (*it).to_owned()).collect()
}

/// A pipeline, or another plan, in a file of this folder.
fn planned(folder: &Folder, name: &str, more: &[&str]) -> String {
    let path = folder.path(name);
    let arguments = arguments(&[&["--mode", "train", "-o", &path], more].concat());
    works(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    path
}

/// The message of a plan that is refused, and not written.
fn refused(folder: &Folder, code: u8, more: &[&str]) -> String {
    let path = folder.path("refused.json");
    let arguments = arguments(&[&["-o", &path], more].concat());
    let message = fails(code, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!folder.0.join("refused.json").exists());
    message
}

/// Losses and weights of so many steps.
pub(super) fn trained(folder: &Folder, plan: &str, steps: &str, more: &[&str]) -> (Vec<String>, Vec<u8>) {
    let data = root().join("tests/texts/constitution.txt");
    let weights = folder.path("weights.safetensors");
    let fixed = ["train", plan, "--data", data.to_str().unwrap(), "--tokens", "u8", "--lr", "0.01"];
    let left = works(&[&fixed[..], &["--steps", steps, "--weights", &weights], more].concat());
    let losses = left.lines().filter(|line| line.starts_with("step"));
    let loss = |line: &str| line.split("  ").find(|it| it.starts_with("loss")).unwrap().to_owned();
    (losses.map(loss).collect(), fs::read(&weights).unwrap())
}

const TWO: [&str; 6] = ["--machine", "cpu-2x", "--stages", "2", "--mesh", "1"];

#[test]
fn pipelines_that_make_no_sense() {
    let folder = Folder::new("pipelines");
    let train = ["--mode", "train"];
    let with = |code: u8, more: &[&str]| refused(&folder, code, &[&train, more].concat());
    let message = with(1, &["--machine", "cpu-64x", "--stages", "64", "--mesh", "1"]);
    says(&message, &["64 stages of a model of", "blocks", "give fewer stages"]);
    let message = with(1, &["--machine", "cpu-4x", "--stages", "3"]);
    says(&message, &["4 devices do not fall into 3 groups"]);
    let message = with(1, &["--machine", "cpu-4x", "--stages", "2", "--mesh", "4"]);
    says(&message, &["2 groups of mesh 4 are 8 devices", "has 4", "give a mesh of 2 devices"]);
    let message = with(1, &[&TWO[..], &["--schedule", "fast"]].concat());
    says(&message, &["`fast`", "1f1b", "no file of that name"]);
    let message = with(1, &[&TWO[..], &["--schedule", "interleaved"]].concat());
    says(&message, &["interleaved"]);
    let message = with(1, &[&TWO[..], &["--chunks", "2"]].concat());
    says(&message, &["1f1b"]);
    let message = with(1, &[&TWO[..], &["--chunks", "0"]].concat());
    says(&message, &["0 stages of a model of"]);
    for cut in ["1,2", "0,2,1", "0,0", "0,99", "0", "0,1,2"] {
        with(1, &[&TWO[..], &["--cut", cut]].concat());
    }
    says(&with(1, &[&TWO[..], &["--cut", "0,2,3"]].concat()), &["names 3 stages, expected 2"]);
    says(&with(1, &[&TWO[..], &["--cut", "2,0"]].concat()), &["[2, 0]"]);
    says(&refused(&folder, 1, &TWO), &["goes with `--mode train`"]);
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let answers = [&["plan", model.to_str().unwrap(), "--dim", "batch=1", "--dim", "sequence=16"], &TWO[..]];
    says(&fails(1, &answers.concat()), &["`--stages` goes with `--mode train`"]);
    let message = with(2, &[&TWO[..], &["--memory", "20kB"]].concat());
    says(&message, &["does not fit"]);
    // Meshes that are none, too few, or in the way of each other.
    let meshes = |meshes: &str, machine: &str, more: &[&str]| {
        with(1, &[&["--machine", machine, "--stages", meshes], more].concat())
    };
    assert!(meshes("2,x", "cpu-4x", &[]).contains("`x` is no mesh of a group, expected sizes such as `2x2`"));
    says(&meshes("1,2", "cpu-4x", &[]), &["meshes 1, 2 are 3 devices, expected 4"]);
    assert!(meshes("1,0,3", "cpu-4x", &[]).contains("`0` is no mesh of a group"));
    says(&meshes("1,1,2", "cpu-4x", &["--mesh", "2"]), &["leave `--mesh` out"]);
    says(&meshes("1,1,2", "cpu-4x", &["--cut", "0,1"]), &["names 2 stages, expected 3"]);
    let across = ["from rank 4 would lie on parts of nodes of 8", "another order"];
    says(&meshes("4,2x4,4", "a100-80g-16x", &[]), &across);
    says(&meshes("8", "a100-80g-24x", &["--mesh", "3"]), &["from rank 6 would lie on parts of nodes of 8"]);
}

/// Groups of one and of two devices: planned, checked, simulated, told; the larger one has more blocks.
#[test]
fn groups_whose_meshes_differ() {
    let folder = Folder::new("unequal");
    let path = planned(&folder, "p.json", &["--machine", "cpu-4x", "--stages", "1,2,1"]);
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let passed = works(&["check", &path, "--model", model.to_str().unwrap()]);
    assert!(passed.contains("cut as it says"), "{passed}");
    let Content::Pipeline(made) = read_any(&fs::read(&path).unwrap()).unwrap() else { panic!("no pipeline") };
    let first: Vec<u64> = made.stages.iter().map(|stage| stage.first_device).collect();
    assert_eq!(first, [0, 1, 3]);
    let devices: Vec<u64> = made.stages.iter().map(|stage| stage.plan.mesh.devices()).collect();
    assert_eq!(devices, [1, 2, 1]);
    let told: Value = serde_json::from_str(&works(&["--json", "explain", &path])).unwrap();
    assert_eq!(told["stages"].as_array().map(Vec::len), Some(3));
}

#[test]
fn schedules_of_files() {
    let folder = Folder::new("schedules");
    let path = folder.path("schedule.txt");
    let with = |code: u8, text: &str| {
        fs::write(&path, text).unwrap();
        refused(&folder, code, &[&["--mode", "train", "--schedule", &path], &TWO[..]].concat())
    };
    // Each group would wait for the other.
    let cycle = "B0 F0 F1 B1 F2 B2 F3 B3\nF0 B0 F1 B1 F2 B2 F3 B3\n";
    assert!(with(1, cycle).contains("the schedule cannot be kept"));
    let other = "F0 B0 F1 B1 F2 B2 F3 B3\nF1 F0 B0 B1 F2 B2 F3 B3\n";
    says(&with(1, other), &["the schedule cannot be kept", "wait"]);
    let three = "F0 B0 F1 B1 F2 B2 F3 B3\n".repeat(3);
    assert!(with(1, &three).contains("cannot be kept"));
    let few = "F0 B0 F1 B1\nF0 B0 F1 B1\n";
    assert!(with(1, few).contains("cannot be kept"));
    says(&with(2, "F0 X1\nF0 B0\n"), &["schedule.txt", "`F`, `B` or `W`"]);
    fs::write(&path, "F0 F1 B0 F2 B1 F3 B2 B3\nF0 B0 F1 B1 F2 B2 F3 B3\n").unwrap();
    planned(&folder, "p.json", &[&["--schedule", &path], &TWO[..]].concat());
}

#[test]
fn files_of_pipelines_that_were_changed() {
    let folder = Folder::new("changed-pipeline");
    let path = planned(&folder, "p.json", &TWO);
    let text = fs::read_to_string(&path).unwrap();
    let data = root().join("tests/texts/constitution.txt");
    let train = ["train", &path, "--data", data.to_str().unwrap(), "--tokens", "u8", "--steps", "1"];
    let weights = folder.path("w.safetensors");
    let train = [&train[..], &["--lr", "0.1", "--weights", &weights]].concat();
    fs::write(&path, text.replacen("\"capacity\": ", "\"capacity\": 1", 1)).unwrap();
    says(&fails(2, &train), &["p.json", "checksum", "changed"]);
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    says(&fails(2, &train), &["p.json", "the file ends here"]);
    let Ok(Content::Pipeline(whole)) = read_any(text.as_bytes()) else { panic!("it is no pipeline") };
    let changed = |change: &dyn Fn(&mut plan::Pipeline)| {
        let mut pipeline = (*whole).clone();
        change(&mut pipeline);
        fs::write(&path, write_pipeline(&pipeline)).unwrap();
        fails(2, &train)
    };
    assert!(changed(&|it| it.crossings[0].to[0].chunks = 0).contains("[crossing]"));
    assert!(changed(&|it| it.stages[1].first_block = 0).contains("[stage]"));
    assert!(changed(&|it| it.schedule.groups[0].truncate(1)).contains("[schedule]"));
    let message = changed(&|it| it.crossings[0].to[0].strategy = "pigeon".to_owned());
    says(&message, &["there is no strategy `pigeon`", "broadcast"]);
    let message = changed(&|it| it.stages[1].first_block += 1);
    says(&message, &["not those of the training step"]);
    let message = changed(&|it| drop(it.crossings.pop()));
    assert!(!message.is_empty());
    assert!(changed(&|it| it.recipe.clip = Some(1.0)).contains("of another recipe"));
    let message = changed(&|it| {
        it.recipe.clip = Some(1.0);
        it.stages.iter_mut().for_each(|stage| stage.plan.recipe = Some(it.recipe.clone()));
    });
    says(&message, &["not those of the training step"]);
    assert!(!folder.0.join("w.safetensors").exists());
}

/// What a pipeline says of its times and memory is held against prices and programs, with its model and without.
#[test]
fn what_a_pipeline_says_is_what_its_machine_and_programs_make() {
    let folder = Folder::new("mispriced-pipeline");
    let path = planned(&folder, "p.json", &["--machine", "cpu-4x", "--stages", "2", "--mesh", "2"]);
    let text = fs::read_to_string(&path).unwrap();
    let Ok(Content::Pipeline(whole)) = read_any(text.as_bytes()) else { panic!("it is no pipeline") };
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let model = ["--model", model.to_str().unwrap()];
    let passed = works(&[&["check", &path][..], &model].concat());
    for expected in ["its times are those of the prices of `cpu-4x`", "a step of its 4 ranks is that of one"]
    {
        assert!(passed.contains(expected), "{passed}");
    }
    let checked = |change: &dyn Fn(&mut plan::Pipeline), expected: &[&str]| {
        let mut pipeline = (*whole).clone();
        change(&mut pipeline);
        fs::write(&path, write_pipeline(&pipeline)).unwrap();
        for more in [&[][..], &model] {
            says(&fails(2, &[&["check", &path], more].concat()), expected);
        }
    };
    let terms = |it: &mut plan::Pipeline, from: usize, to: usize| {
        let moved = it.estimate[from].seconds / 2.0;
        it.estimate[from].seconds -= moved;
        it.estimate[to].seconds += moved;
    };
    checked(&|it| terms(it, 0, 1), &["term `busiest stage` takes", "by the prices of its machine"]);
    checked(&|it| it.crossings[0].to[0].seconds *= 0.9, &["crossing `", "to stage 1 takes"]);
    checked(&|it| it.crossings[0].to[0].bytes += 4, &["crossing `", "bytes", "expected"]);
    let more = |memory: &mut [plan::Holding]| {
        memory.iter_mut().find(|it| it.kind == "activations").unwrap().bytes += 4;
    };
    checked(&|it| more(&mut it.stages[1].plan.memory), &["a device of stage 1 by itself holds"]);
    checked(&|it| more(&mut it.memory[0]), &["a device of group 0 holds"]);
    checked(&|it| it.stages[0].adapters += 1, &["stage 0: its nodes have 2 adapters, expected 1"]);
    // What one operation takes less, the sum takes less.
    checked(
        &|it| {
            let plan = &mut it.stages[1].plan;
            let (graph, mut saved) = (&plan.graph, (0.0, ""));
            for (node, assignment) in graph.node_ids().zip(&mut plan.assignments) {
                if let plan::Assignment::Computed { seconds, .. } = assignment
                    && saved.0 == 0.0
                {
                    *seconds /= 2.0;
                    let runs = u32::try_from(graph.runs(node)).unwrap();
                    saved = (*seconds * f64::from(runs), plan::class_names(&graph.node(node).op).term);
                }
            }
            plan.estimate.iter_mut().filter(|it| it.name == saved.1).for_each(|it| it.seconds -= saved.0);
            plan.proof = plan::Proof::Optimal;
        },
        &["stage 1: operation ", "by the prices of its machine"],
    );
    let one = planned(&folder, "one.json", &["--machine", "cpu-2x", "--mesh", "2"]);
    let mut plan = plan::json::read(&fs::read(&one).unwrap()).unwrap();
    let moved = plan.estimate[0].seconds / 2.0;
    plan.estimate[0].seconds -= moved;
    plan.estimate[1].seconds += moved;
    fs::write(&one, plan::json::write(&plan)).unwrap();
    says(&fails(2, &["check", &one]), &["term `", "by the prices of its machine"]);
}

/// A run goes on from a plan as a pipeline, and as one of other stages, to the same losses.
#[test]
fn checkpoints_go_from_plans_to_pipelines_and_back() {
    let folder = Folder::new("resumed");
    let alone = planned(&folder, "alone.json", &["--machine", "cpu-1x"]);
    let two = planned(&folder, "two.json", &[&TWO[..], &["--schedule", "zb-h1"]].concat());
    let inside = ["--machine", "cpu-2x", "--stages", "2", "--mesh", "1", "--chunks", "2"];
    let four = planned(&folder, "four.json", &[&inside[..], &["--schedule", "interleaved"]].concat());
    let number = |loss: &String| loss.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
    let (expected, _) = trained(&folder, &alone, "6", &[]);
    assert_eq!(expected.len(), 6);
    let kept = folder.path("kept");
    let mut losses = Vec::new();
    for (plan, steps) in [(&alone, "2"), (&two, "4"), (&four, "5"), (&alone, "6")] {
        let first = losses.is_empty();
        let more = ["--checkpoint", &kept, "--every", "1", "--resume", &kept];
        let (found, _) = trained(&folder, plan, steps, if first { &more[..4] } else { &more });
        losses.extend(found);
    }
    assert_eq!(losses.len(), 6, "{losses:?}");
    for (found, expected) in losses.iter().zip(&expected) {
        assert!((number(found) - number(expected)).abs() < 2e-4, "{losses:?}, expected {expected:?}");
    }
}

/// Where what was asked for does not fit, a schedule that holds less is taken, and both `plan` and
/// `explain` say so.
#[test]
fn eager_schedules_give_way_where_memory_ends() {
    let folder = Folder::new("held-back");
    let four = ["--machine", "cpu-4x", "--stages", "4", "--mesh", "1", "--recompute", "none"];
    let told = |path: &str| serde_json::from_str::<Value>(&works(&["--json", "explain", path])).unwrap();
    let most = |said: &Value| {
        let group = |it: &Value| -> u64 {
            it.as_array().unwrap().iter().map(|it| it["bytes"].as_u64().unwrap()).sum()
        };
        said["memory"].as_array().unwrap().iter().map(group).max().unwrap()
    };
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let path = folder.path("p.json");
    let fixed = ["plan", model.to_str().unwrap(), "--mode", "train", "-o", &path];
    // Enough of each micro-batch that the first group holds the most.
    let sizes = ["--dim", "batch=8", "--dim", "sequence=64", "--microbatches", "8"];
    let loss = ["--loss", "cross-entropy:logits,labels"];
    let with = |schedule: &str, memory: Option<u64>| {
        let memory = memory.map(|it| it.to_string());
        let memory: Vec<&str> = memory.iter().flat_map(|it| ["--memory", it.as_str()]).collect();
        works(&[&fixed[..], &sizes, &loss, &four, &["--schedule", schedule], &memory].concat());
        path.clone()
    };
    for (eager, plain) in [("eager-1f1b", "1f1b"), ("eager-1f1b-delayed", "1f1b-delayed"), ("zb-h2", "zb-h1")]
    {
        let unheld = told(&with(eager, None));
        assert_eq!(unheld["schedule_name"], eager);
        let [large, small] = [most(&unheld), most(&told(&with(plain, None)))];
        assert!(small < large, "{eager}: {small} of {large}");
        let path = with(eager, Some(small));
        let held = told(&path);
        assert_eq!(held["schedule_name"], plain);
        assert!(most(&held) <= small);
        let words = works(&["explain", &path]);
        let expected = format!("by {eager} group ");
        assert!(words.contains(&expected) && words.contains("it does not fit"), "{words}");
        assert!(works(&["check", &path]).contains("they hold what the pipeline says"));
    }
}

/// Two kinds of nodes, by their names and in one file: planned, checked, simulated, told; and what is not.
#[test]
fn nodes_of_two_kinds() {
    let folder = Folder::new("kinds");
    let names = "a100-80g-2x+v100-16g-2x";
    let stages = ["--stages", "2", "--mesh", "2"];
    let by_name = planned(&folder, "names.json", &[&["--machine", names], &stages[..]].concat());
    let file = folder.path("cluster.json");
    let write = |kinds: &str| fs::write(&file, format!("{{\"format\": 2, \"kinds\": [{kinds}]}}")).unwrap();
    let kind = |name: &str| format!("{{\"devices\": 2, \"machine\": {name}}}");
    write(&[kind("\"a100-80g\""), kind(cost_models::machine::shipped::text("v100-16g").unwrap())].join(", "));
    let by_file = planned(&folder, "file.json", &[&["--machine", &file], &stages[..]].concat());
    assert_eq!(fs::read_to_string(&by_name).unwrap(), fs::read_to_string(&by_file).unwrap());
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let passed = works(&["check", &by_name, "--model", model.to_str().unwrap()]);
    assert!(passed.contains("cut as it says"), "{passed}");
    let seconds = |more: &[&str]| -> f64 {
        let said = works(&[&["--json", "simulate", &by_name], more].concat());
        let said: Value = serde_json::from_str(&said).unwrap();
        said["seconds"].as_f64().unwrap()
    };
    let own = seconds(&[]);
    assert_eq!(seconds(&["--machine", &file]).to_bits(), own.to_bits());
    assert!(seconds(&["--machine", "a100-80g-4x"]) < own);
    assert!(works(&["explain", &by_name]).contains(names));
    planned(&folder, "each.json", &["--machine", names, "--stages", "1,1,2"]);
    // What is not: one mesh on two kinds, groups across them, kinds that are missing or do not go together.
    let train = ["--mode", "train"];
    let with = |code: u8, more: &[&str]| refused(&folder, code, &[&train, more].concat());
    says(&with(1, &["--machine", names, "--mesh", "4"]), &["nodes of 2 kinds", "--stages N"]);
    says(&with(1, &["--machine", names, "--stages", "1"]), &["would lie on two kinds of nodes"]);
    says(&with(1, &["--machine", "a100-80g-2x+", "--stages", "2"]), &["lacks a kind of nodes"]);
    says(
        &with(1, &["--machine", "a100-80g-2x+x", "--stages", "2"]),
        &["`x`, expected `<device>-<devices>x`"],
    );
    says(
        &with(1, &["--machine", "a100-80g-2x+v100-16g-4x", "--stages", "3"]),
        &["have 4 devices, expected 2"],
    );
    says(
        &with(1, &["--machine", names, "--devices", "4", "--stages", "2"]),
        &["`--devices`", "leave it out"],
    );
    write(&kind("\"a100-80g\""));
    let one = fails(2, &["simulate", &by_name, "--machine", &file]);
    says(&one, &["the plan is for 4 devices", "has 2"]);
    write("");
    says(&with(2, &["--machine", &file, "--stages", "2"]), &["cluster.json", "one kind of nodes at least"]);
    write("{}");
    says(&with(2, &["--machine", &file, "--stages", "2"]), &["cluster.json", "missing field `devices`"]);
}
