//! Plans in the words of other runtimes.

mod arguments; // what runtimes are told, held against what they take
mod families; // what Megatron-LM is told of models
mod scored; // what is written for frameworks that train, read back
mod traces; // what is simulated, read back
mod narrow; // plans with products of 8 and 4 bits
mod serving; // plans of inference in the words of servers

use std::fs;

use plan::Plan;
use plan::json::{Content, read_any};
use planner_ir::{Source, StateKind};
use serde_json::Value;

use crate::cli::{Folder, as_it_is, fails, says, works};
use crate::pages::compare;
use crate::tidy::root;

/// A Llama of a few layers.
fn config(layers: u64) -> String {
    format!(
        r#"{{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": {layers},
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
            "max_position_embeddings": 128, "torch_dtype": "bfloat16"}}"#
    )
}

/// A plan of it in this folder.
fn planned(folder: &Folder, layers: u64, more: &[&str]) -> String {
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config(layers)).unwrap();
    let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-4x", "--in-time", "never"];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=16"];
    works(&[&fixed[..], &sizes, more].concat());
    plan
}

/// Training with data parallel and tensor parallel devices, as Megatron-LM has them.
const TRAINED: [&str; 8] =
    ["--mode", "train", "--loss", "loss", "--precision", "bf16", "--microbatches", "2"];
/// Devices share experts.
const SHARED: [&str; 2] = ["--pin", "*.ReduceSum_*=[-,a,-,-,-]"];
const TENSOR: [&str; 16] = [
    "--mesh",
    "data=2,model=2",
    "--pin",
    "*.mlp.gate_proj=[data,-,-,model]",
    "--pin",
    "*.mlp.up_proj=[data,-,-,model]",
    "--pin",
    "*.mlp.down_proj=[data,-,model,-]",
    "--pin",
    "*.self_attn.o_proj=[data,model,-,-,-]",
    "--pin",
    "*.self_attn.q_proj=[data,-,-,model,-]",
    "--pin",
    "*.self_attn.k_proj=[data,-,-,model,-]",
    "--pin",
    "*.self_attn.v_proj=[data,-,-,model,-]",
];

/// What an export prints and writes: the module of Python, which is always the same, left out; and what steps
/// take, which is the price model's.
fn exported(folder: &Folder, plan: &str, target: &str) -> String {
    let to = folder.path(target);
    let printed = works(&["export", plan, "--to", target, "-o", &to]);
    let printed = printed.lines().filter(|line| !line.starts_with("plan ") && !line.starts_with("there "));
    let mut text: String = printed.map(|line| line.replace(&format!("{to}/"), "") + "\n").collect();
    let mut files: Vec<String> =
        fs::read_dir(&to).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    files.sort_unstable();
    for file in
        files.iter().filter(|it| !matches!(it.as_str(), "shardloom_dtensor.py" | "shardloom_autoparallel.py"))
    {
        text += &format!("---- {file}\n{}", fs::read_to_string(format!("{to}/{file}")).unwrap());
    }
    text
}

const TARGETS: [&str; 7] = ["dtensor", "jax", "shardy", "torchtitan", "megatron", "bridge", "deepspeed"];

fn golden(name: &str, layers: u64, more: &[&str]) {
    let folder = Folder::new(&format!("export-{name}"));
    let plan = planned(&folder, layers, more);
    let whole: &[&str] = if name == "tensor" { &["autoparallel"] } else { &[] };
    for target in TARGETS.iter().chain(whole) {
        compare(&format!("tests/cases/export/{name}-{target}.txt"), &exported(&folder, &plan, target));
    }
}

#[test]
fn data_and_tensor_parallel_plans() {
    golden("tensor", 2, &[&TRAINED[..], &TENSOR].concat());
}

/// Models that are loaded in parts, with experts too, and those that accelerate shards.
#[test]
fn training_with_transformers() {
    let split = [&TRAINED[..], &TENSOR].concat();
    // Examples are split, so that little memory shards states.
    let examples = ["*.mlp.gate_proj=[a,-,-,-]", "*.mlp.up_proj=[a,-,-,-]", "*.mlp.down_proj=[a,-,-,-]"];
    let examples = examples.map(|it| ["--pin", it]).concat();
    let little = ["--mesh", "4", "--memory", "1200000B", "--recompute", "full"];
    let sharded = [&TRAINED[..], &little, &examples].concat();
    for (name, more) in [("tensor", split), ("sharded", sharded)] {
        let folder = Folder::new(&format!("export-hf-{name}"));
        let plan = planned(&folder, 2, &more);
        compare(&format!("tests/cases/export/{name}-hf.txt"), &exported(&folder, &plan, "hf"));
    }
    let folder = Folder::new("export-hf-experts");
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, serving::experts(8)).unwrap();
    let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-4x", "--mesh", "4"];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--for", "hf"];
    let examples = ["--pin", "*.self_attn.q_proj=[a,-,-,-,-]"];
    works(&[&fixed[..], &sizes, &TRAINED, &SHARED, &examples].concat());
    compare("tests/cases/export/experts-hf.txt", &exported(&folder, &plan, "hf"));
}

/// Of a plan that splits some products of a module no part is written, but what is lost.
#[test]
fn parts_of_modules_are_not_written() {
    let folder = Folder::new("export-parts");
    // Heads of values are split, those of queries and keys are not.
    let mut pins = TENSOR.map(|it| it.replace("q_proj=[data,-,-,model,-]", "q_proj=[data,-,-,-,-]"));
    pins.iter_mut().for_each(|it| *it = it.replace("k_proj=[data,-,-,model,-]", "k_proj=[data,-,-,-,-]"));
    let pins: Vec<&str> = pins.iter().map(String::as_str).collect();
    for (target, title, how) in [
        ("hf", "transformers", &TRAINED[..]),
        ("deepspeed", "AutoTP", &TRAINED),
        // What is at rest is prepared of weights.
        ("hf", "transformers", &[]),
    ] {
        let plan = planned(&folder, 2, &[how, &pins].concat());
        let text = exported(&folder, &plan, target);
        let lost = format!(
            "`model.layers.*.self_attn` is not in parts: {title} does not split products beside others that are whole"
        );
        assert!(text.contains(&lost), "{text}");
        assert!(!text.contains("v_proj") && !text.contains("o_proj"), "{text}");
        assert!(text.contains("gate_proj") && text.contains("down_proj"), "{text}");
    }
}

#[test]
fn pipelines() {
    golden("pipeline", 5, &[&TRAINED[..], &["--stages", "2", "--mesh", "2", "--schedule", "zb-h1"]].concat());
}

/// A stage that ends inside of a layer is no stage elsewhere; nor are chunks where groups have one stage.
#[test]
fn chunks() {
    let chunks =
        ["--stages", "2", "--chunks", "2", "--mesh", "2", "--schedule", "interleaved", "--recompute", "full"];
    golden("chunks", 4, &[&TRAINED[..], &chunks].concat());
}

/// What predicts tokens after the next, latent attention, layers without experts, and a table that two stages have:
/// Megatron-LM is told all of it, torchtitan lacks the first.
#[test]
fn models_like_deepseek_v3() {
    let folder = Folder::new("export-further");
    let plan = folder.path("plan.json");
    let config = root().join("tests/cases/models/deepseek_v3_further/config.json");
    let fixed = ["plan", "--config", config.to_str().unwrap(), "-o", &plan, "--machine", "h100-80g-4x"];
    let sizes = ["--dim", "batch=4", "--dim", "sequence=16", "--stages", "2", "--mesh", "2"];
    works(&[&fixed[..], &sizes, &TRAINED, &SHARED].concat());
    for target in ["megatron", "bridge", "torchtitan"] {
        compare(&format!("tests/cases/export/further-{target}.txt"), &exported(&folder, &plan, target));
    }
    let machine = ["--machine", "h100-80g-4x"];
    let (arguments, setup) = (folder.path("megatron/megatron.sh"), folder.path("setup.toml"));
    let scored = works(&[&["score", "--megatron", &arguments, "-o", &setup][..], &machine].concat());
    let read = fs::read_to_string(setup).unwrap();
    assert!(read.contains("mtp_num_layers = 2") && !scored.contains("not understood"), "{scored}\n{read}");
}

/// The plan of a file.
fn read(path: &str) -> Plan {
    match read_any(&fs::read(path).unwrap()).unwrap() {
        Content::Plan(plan) => *plan,
        _ => panic!("{path} is no plan"),
    }
}

/// What a device holds of a shape, by placements as they are written.
fn local(shape: &[u64], placements: &Value, mesh: &Value) -> Vec<u64> {
    let mut local = shape.to_vec();
    for (placement, axis) in placements.as_array().unwrap().iter().zip(mesh.as_array().unwrap()) {
        if let Some(dim) = placement.get("shard") {
            local[usize::try_from(dim.as_u64().unwrap()).unwrap()] /= axis["size"].as_u64().unwrap();
        }
    }
    local
}

/// Each parameter, and what is kept of it, is held by each device as the plan says; buffers are not there.
#[test]
fn placements_hold_what_the_plan_holds() {
    for more in [&TENSOR[..], &["--mesh", "4", "--memory", "1200000B"]] {
        let folder = Folder::new("export-held");
        let plan = planned(&folder, 2, &[&TRAINED[..], more].concat());
        let to = folder.path("out");
        works(&["export", &plan, "--to", "dtensor", "-o", &to]);
        let plan = read(&plan);
        let said: Value =
            serde_json::from_slice(&fs::read(format!("{to}/placements.json")).unwrap()).unwrap();
        let stage = &said["stages"][0];
        let parameters = stage["parameters"].as_object().unwrap();
        let (mut count, mut split) = (0, 0);
        for value in plan.graph.value_ids() {
            let Source::State(state) = &plan.graph.value(value).source else { continue };
            let key = match state.kind {
                StateKind::Parameter => "at_rest",
                StateKind::Gradient => "gradient",
                StateKind::FirstMoment => "optimizer",
                _ => continue,
            };
            count += usize::from(key == "at_rest");
            let (shape, layout) = (&plan.graph.type_of(value).shape, &plan.layouts[value.0]);
            let held = local(shape, &parameters[&state.name][key], &stage["mesh"]);
            assert_eq!(held, layout.local_shape(shape), "{} {key}", state.name);
            split += usize::from(held != *shape);
        }
        assert_eq!(parameters.len(), count);
        assert!(split > 10, "{split} are split");
    }
}

/// What a step takes by the plan, and as the target runs it (seconds).
fn prices(folder: &Folder, plan: &str, target: &str) -> [f64; 2] {
    let to = folder.path(&format!("priced-{target}"));
    let said: Value =
        serde_json::from_str(&works(&["export", plan, "--to", target, "-o", &to, "--json"])).unwrap();
    [&said["seconds"], &said["there"]["seconds"]].map(|it| it.as_f64().unwrap_or_else(|| panic!("{said:#}")))
}

/// What is lost costs something: a schedule that a target lacks, and devices that do the same.
#[test]
fn what_is_lost_is_priced() {
    let folder = Folder::new("export-priced");
    let stages = ["--stages", "2", "--mesh", "2", "--schedule", "zb-h1"];
    let plan = planned(&folder, 4, &[&TRAINED[..], &stages].concat());
    let [own, torchtitan] = prices(&folder, &plan, "torchtitan");
    let [_, megatron] = prices(&folder, &plan, "megatron");
    // Small products are computed by all devices alike, which no target does, and torchtitan has the schedule.
    assert!(own < torchtitan && torchtitan < megatron, "{own} {torchtitan} {megatron}");
    // Products split as Megatron-LM does cost as much there, but for what single operations do besides.
    let plan = planned(&folder, 2, &[&TRAINED[..], &TENSOR].concat());
    let [own, megatron] = prices(&folder, &plan, "deepspeed");
    assert!((0.99 * own..1.03 * own).contains(&megatron), "{own} {megatron}");
}

/// Plans for a target are those that it runs: nothing is lost, and what it runs takes as long.
#[test]
fn plans_for_a_target_are_as_it_runs_them() {
    let staged: &[&str] = &["--stages", "2"];
    for (target, more) in [
        ("megatron", &[][..]),
        ("torchtitan", &[]),
        ("hf", &[]),
        ("deepspeed", staged),
        ("megatron", staged),
        ("bridge", staged),
    ] {
        let folder = Folder::new("export-for");
        let plan = planned(&folder, 4, &[&TRAINED[..], &["--for", target], more].concat());
        let to = folder.path("out");
        let text = works(&["export", &plan, "--to", target, "-o", &to, "--json"]);
        let said: Value = serde_json::from_str(&text).unwrap();
        let [own, there] = [&said["seconds"], &said["there"]["seconds"]].map(|it| it.as_f64().unwrap());
        assert!((own - there).abs() < 1e-9 * own, "{target} {more:?}: {own} {there}");
        let lost: Vec<&str> =
            said["lost"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
        // Little that is not sharded as the rest is, or gradients that are, take as long either way.
        let known = [
            "is said in code",
            "are not sharded: the target has ZeRO-3 for all",
            "sequences split between products: AutoTP keeps them whole there",
        ];
        let is_known = |it: &&str| known.iter().any(|known| it.contains(known));
        assert!(lost.iter().all(is_known), "{target} {more:?}: {lost:?}");
        let degrees =
            ["data", "tensor", "context", "pipeline"].map(|it| said["strategy"][it].as_u64().unwrap());
        assert_eq!(degrees.iter().product::<u64>(), 4, "{degrees:?}");
    }
}

/// A whole cluster is searched among what a target runs.
#[test]
fn clusters_are_planned_for_a_target() {
    let folder = Folder::new("export-cluster");
    let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&model, config(4)).unwrap();
    let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-8x", "--dim", "sequence=16"];
    let asked =
        ["--stages", "auto", "--global-batch", "16", "--for", "megatron", "--pin", "pp=2", "--pin", "tp=2"];
    let text = works(&[&fixed[..], &TRAINED[..6], &asked].concat());
    assert!(text.contains("data x tensor parallel") || text.contains("context"), "{text}");
    let to = folder.path("out");
    let text = works(&["export", &plan, "--to", "megatron", "-o", &to, "--json"]);
    let said: Value = serde_json::from_str(&text).unwrap();
    let [own, there] = [&said["seconds"], &said["there"]["seconds"]].map(|it| it.as_f64().unwrap());
    assert!((own - there).abs() < 1e-9 * own, "{own} {there}");
    assert_eq!(said["strategy"]["pipeline"], 2);
}

/// A plan of a cluster is the setup that is fastest by the figures of the target, whatever schedule that has, and is told
/// so: nothing is lost, and a step takes as long there.
#[test]
fn clusters_are_planned_by_the_figures_of_a_target() {
    let folder = Folder::new("export-led");
    let (dense, plan) = (folder.path("config.json"), folder.path("plan.json"));
    fs::write(&dense, config(4)).unwrap();
    let experts = root().join("tests/cases/models/deepseek_v3_further/config.json");
    let experts = experts.to_str().unwrap();
    for (model, target, pins, degrees) in [
        (&*dense, "torchtitan", &["pp=2"][..], [("pipeline", 2), ("experts", 1)]),
        (&dense, "torchtitan", &["pp=1"], [("pipeline", 1), ("experts", 1)]),
        // Experts lie along tensor parallel devices too.
        (experts, "megatron", &["pp=2", "tp=2", "ep=4"], [("tensor", 2), ("experts", 4)]),
    ] {
        let fixed =
            ["plan", "--config", model, "-o", &plan, "--machine", "h100-80g-8x", "--dim", "sequence=16"];
        let asked = ["--stages", "auto", "--global-batch", "16", "--for", target, "--force", "--json"];
        let pins: Vec<&str> = pins.iter().flat_map(|it| ["--pin", it]).collect();
        let planned = works(&[&fixed[..], &TRAINED[..6], &asked, &pins].concat());
        let planned: Value = serde_json::from_str(&planned).unwrap();
        let to = folder.path("out");
        let text = works(&["export", &plan, "--to", target, "-o", &to, "--force", "--json"]);
        let said: Value = serde_json::from_str(&text).unwrap();
        let [own, there] = [&said["seconds"], &said["there"]["seconds"]].map(|it| it.as_f64().unwrap());
        assert!((own - there).abs() < 1e-9 * own, "{model} {target}: {own} {there}");
        assert_eq!(said["expected"]["seconds"], planned["expected"]["seconds"], "{model} {target}");
        let lost: Vec<&Value> = said["lost"].as_array().unwrap().iter().collect();
        // Of so few tokens it is as fast to have all of them on each device.
        let known = |it: &&&Value| it.as_str().is_some_and(|it| it.contains("without split sequences"));
        assert!(lost.iter().filter(|it| !known(it)).count() == 0 || target == "torchtitan", "{lost:?}");
        for (name, degree) in degrees {
            assert_eq!(said["strategy"][name], degree, "{model} {target}: {said}");
        }
    }
}

/// A cluster on which no setup fits by the figures of a target is refused, and what comes nearest is said.
#[test]
fn clusters_on_which_no_setup_of_a_target_fits_are_refused() {
    let config = root().join("tests/configs/llama3.1_70b.json");
    let fixed =
        ["plan", "--config", config.to_str().unwrap(), "-o", "refused.json", "--dim", "sequence=4096"];
    let asked = ["--machine", "h100-80g-8x", "--stages", "auto", "--global-batch", "64", "--for", "megatron"];
    let said = fails(2, &[&fixed[..], &TRAINED[..6], &asked].concat());
    let nearest = "setups that Megatron-LM runs fits, by its figures: what comes nearest, data ";
    says(&said, &[nearest, "recompute full, holds ", " of 82.2 GB of a device; more devices"]);
}

#[test]
fn what_is_there_is_not_written_over() {
    let folder = Folder::new("export-force");
    let plan = planned(&folder, 2, &[&TRAINED[..], &["--mesh", "4"]].concat());
    let to = folder.path("out");
    let arguments = ["export", &plan, "--to", "megatron", "-o", &to];
    let first = works(&arguments);
    let file = format!("{to}/megatron.sh");
    fs::write(&file, "mine").unwrap();
    let left = as_it_is(&arguments);
    assert_eq!(left.code, 1, "{}", left.err);
    says(&left.err, &["megatron.sh: is there already", "`--force`"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(works(&[&arguments[..], &["--force"]].concat()), first);
    assert_ne!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn plans_for_targets_that_make_no_sense() {
    let folder = Folder::new("export-nonsense");
    let refused = |code: u8, more: &[&str]| {
        let (model, plan) = (folder.path("config.json"), folder.path("plan.json"));
        fs::write(&model, config(2)).unwrap();
        let fixed = ["plan", "--config", &model, "-o", &plan, "--machine", "h100-80g-4x"];
        let sizes = ["--dim", "batch=4", "--dim", "sequence=16"];
        fails(code, &[&fixed[..], &sizes, more].concat())
    };
    says(&refused(1, &["--for", "megatron"]), &["`--for` goes with `--mode train`"]);
    let message = refused(1, &[&TRAINED[..], &["--for", "dtensor"]].concat());
    says(&message, &["`--for dtensor` limits nothing but time steps"]);
    let schedule = ["--for", "megatron", "--stages", "2", "--schedule", "zb-h1"];
    let message = refused(1, &[&TRAINED[..], &schedule].concat());
    says(&message, &["Megatron-LM has no such schedule, expected `--schedule` 1f1b or interleaved"]);
    let message = refused(1, &[&TRAINED[..], &["--for", "hf", "--stages", "2"]].concat());
    says(&message, &["transformers has no pipelines: leave `--stages` out"]);
    let message = refused(1, &[&TRAINED[..], &["--for", "megatron", "--stages", "2,2"]].concat());
    says(&message, &["Megatron-LM has one mesh for all stages, expected `--stages N`"]);
}

#[test]
fn what_cannot_be_exported_is_said() {
    let folder = Folder::new("export-refused");
    let plan = planned(&folder, 1, &["--mesh", "4"]);
    let to = folder.path("out");
    let message = fails(2, &["export", &plan, "--to", "megatron", "-o", &to]);
    says(&message, &["the plan is for inference, Megatron-LM trains: expected a plan of `--mode train`"]);
    assert!(!folder.0.join("out").exists());
    let staged = planned(&folder, 2, &[&TRAINED[..], &["--stages", "2", "--mesh", "2"]].concat());
    let message = fails(2, &["export", &staged, "--to", "hf", "-o", &to]);
    says(&message, &["the plan is a pipeline, transformers has none"]);
    let plan = planned(&folder, 1, &["--mesh", "4"]);
    let message = fails(1, &["export", &plan, "--to", "other", "-o", &to]);
    assert!(
        message
            .contains("`other` is no target, expected one of dtensor, autoparallel, jax, shardy, torchtitan"),
        "{message}"
    );
    // Weights of a plan for inference lie somewhere, too.
    works(&["export", &plan, "--to", "dtensor", "-o", &to]);
    let said: Value = serde_json::from_slice(&fs::read(format!("{to}/placements.json")).unwrap()).unwrap();
    let names: Vec<&String> = said["stages"][0]["parameters"].as_object().unwrap().keys().collect();
    assert!(names.iter().any(|it| *it == "model.layers.0.mlp.down_proj.weight"), "{names:?}");
    assert!(!names.iter().any(|it| it.contains("inv_freq")), "{names:?}");
}
