//! Operations whose partition a user fixes.

use std::fs;

use plan::json::{Content, read, read_any};
use plan::{Assignment, Plan};
use serde_json::Value;

use super::pipelines::trained;
use super::{Folder, example, fails, planned, works};
use crate::tidy::root;

fn plan_in(path: &str) -> Plan {
    read(&fs::read(path).unwrap()).unwrap()
}

/// The partitions of forward operations whose names end so.
fn partitions(plan: &Plan, end: &str) -> Vec<String> {
    let of = |(node, it): (&planner_ir::Node, &Assignment)| match it {
        Assignment::Computed { partition, .. } => (node.phase == planner_ir::Phase::Forward
            && node.origin.ends_with(end))
        .then(|| partition.display(&plan.mesh).to_string()),
        Assignment::Prepared => None,
    };
    plan.graph.nodes.iter().zip(&plan.assignments).filter_map(of).collect()
}

#[test]
fn what_the_free_plan_chose_changes_nothing_and_anything_else_costs_no_less() {
    let folder = Folder::new("pins");
    let free = plan_in(&planned(&folder, "free.json", &["--mesh", "4"]));
    let own: Vec<String> = partitions(&free, "mlp.c_fc.Reshape_1");
    let [first, second] = [0, 1].map(|layer| format!("*/h.{layer}/mlp/c_fc/*={}", own[2 * layer]));
    let same = ["--mesh", "4", "--pin", &first, "--pin", &second];
    let same = plan_in(&planned(&folder, "same.json", &same));
    assert_eq!(same.pins.len(), 2);
    let (pins, space, proof) = (Vec::new(), free.space.clone(), free.proof);
    assert_eq!(Plan { pins, space, proof, ..same }, free);
    // Rows of one layer, in time in the other: on ranks they compute the same.
    let (rows, rings) = ("*/h.0/mlp/c_fc/*=[-,-,a,-]", "*/h.1/mlp/c_fc/*=4 steps [-,a,(a+@t:4),-]");
    let path = planned(&folder, "other.json", &["--mesh", "4", "--pin", rows, "--pin", rings]);
    let other = plan_in(&path);
    let found = partitions(&other, "mlp.c_fc.Reshape_1");
    assert_eq!((found[0].as_str(), found[2].as_str()), ("[-,-,a,-]", "4 steps [-,a,(a+@t:4),-]"));
    assert!(other.seconds() > free.seconds());
    let (inputs, output) = (example("io0.npz"), folder.path("outputs.npz"));
    let said = works(&["run", &path, "--inputs", &inputs, "-o", &output, "--ranks", "cpu", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert!(said["expected"]["logits"]["largest_difference"].as_f64().unwrap() < 1e-4);
    let told = works(&["explain", &path]);
    assert!(told.contains(&format!("\npinned      {rows}, 1 operation\npinned      {rings}, 1 operation\n")));
    // Queries, keys and values are one product, unless one of them is fixed.
    let tight = ["--mesh", "4", "--memory", "119kB"];
    let is_one = |plan: &Plan| {
        let mut values =
            plan.graph.nodes.iter().filter(|node| node.origin.ends_with("h.1.attn.c_attn.Transpose_1"));
        values.any(|node| {
            matches!(node.op, planner_ir::Op::Slice { .. })
                && plan.graph.types_of(&node.operands)[0].rank() == 4
        })
    };
    assert!(is_one(&plan_in(&planned(&folder, "tight.json", &tight))));
    let pin = ["--pin", "*/h.1/attn/c_attn/Transpose=[-,a,-,-,-]"];
    let apart = plan_in(&planned(&folder, "apart.json", &[&tight[..], &pin].concat()));
    assert!(!is_one(&apart));
    assert!(partitions(&apart, "h.1.attn.c_attn.Transpose").contains(&"[-,a,-,-,-]".to_owned()));
    // Of what one product for all of them cannot have, each is computed alone.
    let heads = ["--pin", "*/h.1/attn/c_attn/Transpose_1=[-,-,a,-,-]"];
    let heads = plan_in(&planned(&folder, "heads.json", &[&tight[..], &heads].concat()));
    assert!(!is_one(&heads));
    assert!(partitions(&heads, "h.1.attn.c_attn.Transpose_1").contains(&"[-,-,a,-,-]".to_owned()));
    // The check says so of a plan that was fixed otherwise.
    let mut wrong = other;
    wrong.pins[0].operations = "*/h.1/mlp/c_fc/*".to_owned();
    let violations = plan::check(&wrong).unwrap_err();
    assert!(violations.0.iter().all(|it| it.rule == "pin") && violations.0.len() == 1, "{violations}");
}

/// Where memory is very short, what is found among fewer partitions is found among all.
#[test]
fn what_a_restricted_search_finds_in_little_memory_the_free_one_finds() {
    let folder = Folder::new("little-memory");
    for memory in ["72kB", "84kB"] {
        let little = ["--mesh", "4", "--memory", memory];
        let free = plan_in(&planned(&folder, "free.json", &little));
        let at_once =
            plan_in(&planned(&folder, "once.json", &[&little[..], &["--in-time", "never"]].concat()));
        assert!(free.seconds() <= at_once.seconds(), "{} {}", free.seconds(), at_once.seconds());
        assert!(free.space.left_out.is_empty(), "{:?}", free.space);
    }
}

/// What other plans cost is of plans that have what is fixed, too.
#[test]
fn other_plans_have_what_is_fixed() {
    let folder = Folder::new("pinned-otherwise");
    let free = plan_in(&planned(&folder, "free.json", &["--mesh", "4"]));
    let path = planned(&folder, "p.json", &["--mesh", "4", "--pin", "*/h.0/mlp/c_fc/*=[-,-,a,-]"]);
    let least = plan_in(&path).seconds() * (1.0 - 1e-9);
    assert!(least > free.seconds());
    let said: Value = serde_json::from_str(&works(&["--json", "explain", "--alternatives", &path])).unwrap();
    let prices = |list: &str| said[list].as_array().unwrap().clone();
    let [others, alternatives] = ["otherwise", "alternatives"].map(prices);
    let seconds: Vec<f64> =
        others.iter().chain(&alternatives).filter_map(|it| it["price"]["seconds"].as_f64()).collect();
    assert!(seconds.len() > 5 && seconds.iter().all(|it| *it >= least), "{least}: {seconds:?}");
    let is_fixed = |it: &&Value| it["origin"].as_str().unwrap().ends_with("h.0.mlp.c_fc.Reshape_1");
    let impossible = alternatives.iter().filter(is_fixed).filter_map(|it| it["price"]["impossible"].as_str());
    let impossible: Vec<&str> = impossible.collect();
    assert_eq!(impossible, ["there is no other way that has what is pinned"], "{alternatives:?}");
}

#[test]
fn stages_are_planned_with_what_is_fixed() {
    let folder = Folder::new("pinned-stages");
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let training = ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--dim", "sequence=16"];
    let fixed = ["plan", model.to_str().unwrap()];
    // The products of each layer that go up, and the first step's loss.
    let made = |more: &[&str], pin: &[&str]| {
        let path = folder.path("p.json");
        let said = works(&[&fixed[..], &training, &["-o", &path], more, pin].concat());
        let Content::Pipeline(it) = read_any(&fs::read(&path).unwrap()).unwrap() else { panic!("{said}") };
        let stages = it.stages.iter().map(|stage| &stage.plan);
        let of = |end| stages.clone().flat_map(|plan| partitions(plan, end)).collect::<Vec<_>>();
        let products =
            ["Reshape_40", "Reshape_86", "Reshape_132", "Reshape_178"].map(|end| of(end)[0].clone());
        let pinned: usize = stages.map(|plan| plan.pins.len()).sum();
        let (losses, _) = trained(&folder, &path, "1", &[]);
        let loss: f64 = losses[0].split_whitespace().last().unwrap().parse().unwrap();
        (it.seconds(), products, pinned, loss)
    };
    let rows = "[-,-,a,-]";
    let two =
        ["--machine", "cpu-4x", "--stages", "2", "--mesh", "2", "--dim", "batch=2", "--microbatches", "2"];
    let free = made(&two, &[]);
    assert!(!free.1.iter().any(|it| it == rows), "{free:?}");
    let one = made(&two, &["--pin", "*Reshape_132=[-,-,a,-]"]);
    let is_rows = one.1.each_ref().map(|it| it == rows);
    assert_eq!((is_rows, one.2), ([false, false, true, false], 1));
    assert!(one.0 > free.0 && (one.3 - free.3).abs() < 1e-4, "{one:?} {free:?}");
    // Stages of a layer each are alike, but for what is fixed of one.
    let four = ["--machine", "cpu-8x", "--stages", "4", "--cut", "0,2,3,4"];
    let four = [&four[..], &two[4..]].concat();
    let one = made(&four, &["--pin", "*Reshape_86=[-,-,a,-]"]);
    assert_eq!(one.1.each_ref().map(|it| it == rows), [false, true, false, false]);
    // All that is searched: one operation, and one in each block that repeats.
    let auto = ["--machine", "cpu-4x", "--stages", "auto", "--global-batch", "4"];
    let free = made(&auto, &["--pin", "pp=2"]);
    let one = made(&auto, &["--pin", "pp=2", "--pin", "*Reshape_86=[-,-,a,-]"]);
    assert_eq!((one.1[1].as_str(), one.2), (rows, 1));
    let all = made(&auto, &["--pin", "pp=2", "--pin", "*Reshape_*=[-,-,a,-]"]);
    assert_eq!((all.1.each_ref().map(|it| it == rows), all.2), ([true; 4], 2));
    assert!(free.0 < one.0 && one.0 < all.0, "{free:?} {one:?} {all:?}");
    assert!((all.3 - free.3).abs() < 1e-4);
    // The last product on the one mesh that has an axis `b`: the stages before it may be on any.
    let eight = ["--machine", "cpu-8x", "--stages", "auto", "--global-batch", "4"];
    let last = ["--pin", "stages=4,2x2", "--pin", "*MatMul_195=[-,-,b,-]"];
    assert_eq!(made(&eight, &last).2, 1);
}

#[test]
fn what_cannot_be_fixed_of_any_setup() {
    let folder = Folder::new("pins-of-setups");
    let (model, path) = (root().join("tests/models/gpt2-bytes.onnx"), folder.path("p.json"));
    let fixed = ["plan", model.to_str().unwrap(), "--machine", "cpu-8x", "--stages", "auto", "-o", &path];
    let training = ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--dim", "sequence=16"];
    let refused = |code: u8, pins: &[&str]| {
        let pins = [&["--global-batch", "4", "--pin", "recompute=none"], pins].concat();
        fails(code, &[&fixed[..], &training, &pins].concat())
    };
    assert_eq!(
        refused(2, &["--pin", "*Reshape_*=[-,-,q,-]", "--pin", "pp=2"]),
        "error: no pipeline: none of 5 setups can have what is fixed; on mesh 2x2: `--pin *Reshape_*=[-,-,q,-]` \
         has no partition: line 1, column 6: found `q,-]`, expected one of the axes `a`, `b`\n"
    );
    // A micro-batch of one example has a loop less.
    assert_eq!(
        refused(1, &["--pin", "*MatMul_195=[a]"]),
        "error: `--pin *MatMul_195=[a]`: operations of that name have 3 or 4 loops, expected a partition of as \
         many\n"
    );
    let apart = ["--pin", "*MatMul_195=[-,-,a]", "--pin", "*MatMul_195=[-,-,-,a]"];
    assert!(
        refused(1, &apart)
            .starts_with("error: no number of micro-batches has operations of all that is fixed")
    );
    let twice = ["--pin", "*MatMul_195=[-,a,-]", "--pin", "*MatMul_19*=[-,-,a]", "--pin", "pp=2"];
    assert!(refused(2, &twice).contains("MatMul_195`: leave one out"));
    // The last product is in no stage on a mesh that has the axis.
    let last = refused(2, &["--pin", "stages=2x2,4", "--pin", "*MatMul_195=[-,-,b,-]"]);
    assert!(last.contains("; on mesh 4: `--pin *MatMul_195=[-,-,b,-]` has no partition: "), "{last}");
    assert!(!folder.0.join("p.json").exists());
}

/// What is fixed of one of several blocks that are alike is not looked at while setups are priced: those that
/// cannot have it are left out when one is planned stage by stage.
#[test]
fn what_is_fixed_of_one_block_leaves_meshes_out() {
    let folder = Folder::new("pinned-block");
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let path = folder.path("p.json");
    let fixed = ["plan", model.to_str().unwrap(), "--mode", "train", "--loss", "cross-entropy:logits,labels"];
    let more = ["--dim", "sequence=16", "--stages", "auto", "--machine", "cpu-2x", "--global-batch", "8"];
    let pinned = ["--pin", "*Reshape_99=[-,-,a,-]", "-o", &path];
    works(&[&fixed[..], &more, &pinned].concat());
    assert!(works(&["explain", &path]).contains("[-,-,a,-]"));
    works(&["check", &path]);
}

#[test]
fn what_cannot_be_fixed() {
    let folder = Folder::new("pins-refused");
    let (model, path) = (example("model.onnx"), folder.path("p.json"));
    let refused = |code: u8, pins: &[&str]| {
        let pins = pins.iter().flat_map(|pin| ["--pin", pin]);
        let fixed = ["plan", &model, "--machine", "cpu-4x", "--mesh", "4", "-o", &path];
        let message = fails(code, &fixed.into_iter().chain(pins).collect::<Vec<_>>());
        assert!(!folder.0.join("p.json").exists());
        message
    };
    assert_eq!(
        refused(1, &["*/h.1/mlp/c_fx/*=[-,-,a,-]"]),
        "error: `--pin */h.1/mlp/c_fx/*=[-,-,a,-]` names no operation that is computed at every step, near are \
         `model.transformer.h.1.mlp.c_fc.Reshape_1`, `model.transformer.h.0.mlp.c_fc.Reshape_1`, \
         `model.transformer.h.1.mlp.c_proj.Reshape_1`, `model.transformer.h.0.mlp.c_proj.Reshape_1`; `explain` \
         prints all, and `*` stands for any text\n"
    );
    assert_eq!(
        refused(2, &["*/c_fc/*=[-,-,q,-]"]),
        "error: no plan on mesh 4: `--pin */c_fc/*=[-,-,q,-]` has no partition: line 1, column 6: found `q,-]`, \
         expected one of the axes `a`\n"
    );
    assert_eq!(
        refused(1, &["*/c_fc/*=[-,a]"]),
        "error: `--pin */c_fc/*=[-,a]`: operations of that name have 3 or 4 loops, expected \
         a partition of as many\n"
    );
    assert_eq!(
        refused(2, &["*/h.1/mlp/c_fc/*=[a,-,-]"]),
        "error: no plan on mesh 4: `--pin */h.1/mlp/c_fc/*=[a,-,-]`: \
         `model.transformer.h.1.mlp.c_fc.Reshape_1` cannot be computed so, expected one of\n  \
         [-,-,-]: replicated\n  [-,-,-] passes a: sums over a pass\n  [-,-,a]: dimension 2 over a\n  \
         [-,*4.a,-]: sequence over a\n  [-,a,-]: sequence over a\n"
    );
    assert_eq!(
        refused(2, &["*/c_fc/*=[-,-,a,-]", "*/h.1/mlp/*=[-,a,-,-]"]),
        "error: no plan on mesh 4: `--pin */c_fc/*=[-,-,a,-]` and `--pin */h.1/mlp/*=[-,a,-,-]` are both of \
         `model.transformer.h.1.mlp.c_fc.Reshape_1`: leave one out\n"
    );
    assert_eq!(
        refused(2, &["*/c_fc/*=4 steps both ways [-,a,(a+@t:4),-]"]),
        "error: no plan on mesh 4: `--pin */c_fc/*=4 steps both ways [-,a,(a+@t:4),-]` says how blocks are \
         exchanged, which is always chosen: leave `both ways`, `in place` and `by` out\n"
    );
    assert_eq!(
        refused(1, &["tp=2"]),
        "error: without `--stages auto` no setup is searched: expected `--pin OPERATION=PARTITION` only\n"
    );
    assert!(refused(1, &["tp"]).contains("`--pin tp` is no decision"));
    assert!(refused(1, &["=[-,a]"]).contains("`--pin =[-,a]` is no decision"));
    // An operation may be called as a decision.
    assert!(refused(1, &["tp=[-,a]"]).contains("`--pin tp=[-,a]` names no operation"));
}
