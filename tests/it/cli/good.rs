//! What works.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Folder, example, fails, planned, shardloom, works};
use crate::tier::is_long;

/// The largest difference from what is expected, of each output.
fn differences(json: &str) -> Vec<f64> {
    let said: Value = serde_json::from_str(json).unwrap();
    let expected = said["expected"].as_object().unwrap();
    expected.values().map(|it| it["largest_difference"].as_f64().unwrap()).collect()
}

#[test]
fn a_model_runs_on_ranks_and_gives_the_expected_outputs() {
    let folder = Folder::new("run");
    let (model, inputs, output) = (example("model.onnx"), example("io0.npz"), folder.path("outputs.npz"));
    for (ranks, mesh) in [("1", "1"), ("2", "2"), ("4", "2x2")] {
        let run =
            ["run", &model, "--ranks", ranks, "--mesh", mesh, "--inputs", &inputs, "-o", &output, "--json"];
        let said = works(&run);
        let differences = differences(&said);
        assert!(differences.len() == 1 && differences[0] < 1e-4, "{mesh}: {differences:?}");
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(said["plan"]["seconds"].as_f64().unwrap() > 0.0);
        assert!(said["measured_seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(said["outputs"]["logits"]["shape"], serde_json::json!([2, 16, 211]));
        let there: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(there, ["outputs.npz"], "nothing but the outputs is left");
    }
}

#[test]
fn a_plan_runs_checks_and_is_explained() {
    let folder = Folder::new("plan");
    let (model, inputs, output) =
        (example("model.onnx"), example("io0.npz"), folder.path("outputs.safetensors"));
    let plan = planned(&folder, "plan.json", &["--mesh", "data=2,model=2"]);
    let said = works(&["run", &plan, "--inputs", &inputs, "-o", &output, "--ranks", "cpu", "--json"]);
    assert!(differences(&said)[0] < 1e-4);
    assert!(fs::metadata(&output).unwrap().len() > 2 * 16 * 211 * 4);

    let said = works(&["check", &plan, "--model", &model]);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok  ")).count(), 8, "{said}");
    assert!(said.contains("evaluated on one rank it computes what the model does"), "{said}");
    assert!(said.contains("run on its 4 ranks it computes what it does on one"), "{said}");

    let said = works(&["explain", &plan]);
    for part in [
        "data=2,model=2",
        "time of a step",
        "memory of the fullest device",
        "\nblock 2, ",
        "all computed whole (replicated)",
        "only batches split",
    ] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    // Each alternative is a search, which is shorter on one axis.
    let plan = planned(&folder, "alternatives.json", &["--mesh", "4"]);
    let said: Value = serde_json::from_str(&works(&["explain", &plan, "--json", "--alternatives"])).unwrap();
    let now = said["seconds"].as_f64().unwrap();
    let prices = said["otherwise"].as_array().unwrap().iter().chain(said["alternatives"].as_array().unwrap());
    let mut priced = 0;
    for it in prices {
        if let Some(seconds) = it["price"]["seconds"].as_f64() {
            assert!(seconds >= now * (1.0 - 1e-9), "nothing beats an optimal plan: {it}");
            priced += 1;
        }
    }
    assert!(priced > 3, "{priced} priced");
    let above = |list: &str, index: usize| {
        said[list][index]["price"]["seconds"].as_f64().is_some_and(|seconds| seconds > now * 1.01)
    };
    assert!(above("otherwise", 0), "computing everything everywhere takes longer: {}", said["otherwise"]);
    let length = said["alternatives"].as_array().unwrap().len();
    assert!((0..length).any(|index| above("alternatives", index)), "some choice matters");
}

#[test]
fn inputs_that_decide_control_flow_become_part_of_the_program() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/t5-seq2seq-optimum0.1-op17-dyn");
    let place = |name: &str| models.join(name).to_str().unwrap().to_owned();
    let (model, inputs) = (place("decoder_model_merged.onnx"), place("decoder_model_merged.io0.npz"));
    let folder = Folder::new("control");
    let (output, plan) = (folder.path("outputs.npz"), folder.path("plan.json"));
    let run = ["run", &model, "--ranks", "2", "--inputs", &inputs, "-o", &output];
    assert!(works(&run).contains("control    `use_cache_branch` decides"));
    let said = works(&[&run[..], &["--json"]].concat());
    assert!(differences(&said).iter().all(|it| *it < 1e-4), "{said}");
    works(&["plan", &model, "--machine", "cpu-2x", "--inputs", &inputs, "-o", &plan]);
    let said = works(&["run", &plan, "--inputs", &inputs, "-o", &output, "--json"]);
    assert!(differences(&said).iter().all(|it| *it < 1e-4), "{said}");
    // Without values the branch is not known.
    let dims = [
        "batch_size=2",
        "decoder_sequence_length=4",
        "encoder_sequence_length=9",
        "past_decoder_sequence_length=5",
    ];
    let mut import = vec!["import", model.as_str()];
    import.extend(dims.iter().flat_map(|it| ["--dim", *it]));
    assert!(fails(2, &import).contains("--inputs FILE"));
}

#[test]
fn the_mesh_is_chosen_among_several_and_always_the_same_way() {
    let folder = Folder::new("mesh");
    let (model, first, second) =
        (example("model.onnx"), folder.path("first.json"), folder.path("second.json"));
    let said = works(&["plan", &model, "--machine", "cpu-4x", "-o", &first]);
    assert!(said.contains("tried      4 (") && said.contains(", 2x2 ("), "{said}");
    let seconds = |plan: &str| plan::json::read(&fs::read(plan).unwrap()).unwrap().seconds();
    for mesh in ["4", "2x2"] {
        let other = planned(&folder, "other.json", &["--mesh", mesh]);
        assert!(seconds(&first) <= seconds(&other), "{mesh}");
    }
    works(&["plan", &model, "--machine", "cpu-4x", "-o", &second]);
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
    assert_eq!(works(&["diff", &first, &second]), "the plans do not differ\n");
    let other = planned(&folder, "other.json", &["--mesh", "4"]);
    assert!(works(&["diff", &first, &other]).contains("mesh: "));
}

#[test]
fn stages_are_shown_and_stopped_after() {
    let folder = Folder::new("stages");
    let (model, dumps) = (example("model.onnx"), folder.path("dumps"));
    works(&[
        "run",
        &model,
        "--ranks",
        "2",
        "--dump-after",
        "all",
        "--dump-dir",
        &dumps,
        "--stop-after",
        "lower",
    ]);
    let mut names: Vec<_> = fs::read_dir(&dumps).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["01-import.txt", "02-raise.txt", "04-plan.txt", "05-lower.txt"]);
    let raised = works(&["import", &model, "--dump-after", "raise", "--quiet"]);
    let graph = planner_ir::parse_graph(&raised).unwrap();
    assert!(graph.nodes.iter().any(|node| matches!(node.op, planner_ir::Op::Attention(_))));
    let said = works(&[
        "plan",
        &model,
        "--machine",
        "cpu-2x",
        "--stop-after",
        "import",
        "-o",
        &folder.path("no.json"),
    ]);
    assert_eq!(said, "stopped after import\n");
    assert!(!folder.0.join("no.json").exists());
}

#[test]
fn a_step_that_keeps_some_values_says_so_and_is_derived_again() {
    let folder = Folder::new("kept");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/gpt2-bytes.onnx");
    let plan = folder.path("plan.json");
    let train = ["plan", model, "--mode", "train", "--loss", "cross-entropy:logits,labels", "-o", &plan];
    let sizes = ["--dim", "batch=512", "--dim", "sequence=64", "--machine", "h100-80g-8x", "--devices", "1"];
    let said = works(&[&train[..], &sizes].concat());
    assert!(!said.contains("recompute") && !said.contains("keeps"), "{said}");
    let said = works(&[&train[..], &sizes, &["--memory", "450MB"]].concat());
    assert!(said.contains("partial recompute in") && said.contains("values where gradients read"), "{said}");
    let said = works(&["check", &plan, "--model", model]);
    assert!(said.contains("its program is the training step of its recipe"), "{said}");
    let said: Value = serde_json::from_str(&works(&["explain", &plan, "--json"])).unwrap();
    let less = |block: &&Value| block["kept"].is_object();
    let blocks: Vec<&Value> = said["blocks"].as_array().unwrap().iter().filter(less).collect();
    assert!(!blocks.is_empty());
    for kept in blocks.iter().map(|block| &block["kept"]) {
        assert!(kept["bytes"].as_u64() < kept["needed_bytes"].as_u64(), "{kept}");
        assert!(kept["seconds"].as_f64() > Some(0.0), "{kept}");
    }
}

#[test]
fn models_and_machines_are_told() {
    let said = works(&["import", &example("model.onnx")]);
    for part in ["input      input_ids i64[2,16]", "output     logits f32[2,16,211]", "2 attention"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    assert!(works(&["machines"]).contains("h100-80g"));
    let first = "`shardloom calibrate -o machine.json`";
    assert!(works(&["machines", "show", "cpu"]).contains(first));
    assert!(!works(&["machines", "show", "h100-80g-8x"]).contains(first));
    let said = works(&["machines", "show", "h100-80g-8x"]);
    assert!(said.contains("1 node of 8") && said.contains("device.memory_bandwidth"), "{said}");
}

/// Calls `visit` with every object of a machine file that has a source.
fn sourced(value: &Value, visit: &mut impl FnMut(&Value)) {
    let Some(fields) = value.as_object() else { return };
    if fields.contains_key("source") {
        visit(value);
        return;
    }
    fields.values().for_each(|inner| sourced(inner, visit));
}

#[test]
fn every_number_of_a_machine_is_shown_with_its_unit_and_source() {
    let text = works(&["machines", "show", "v100-16g"]);
    let file: Value = serde_json::from_str(&works(&["machines", "show", "v100-16g", "--json"])).unwrap();
    let mut count = 0;
    sourced(&file, &mut |number| {
        count += 1;
        assert!(text.contains(number["source"].as_str().unwrap()), "{number}");
        let unit = match number["unit"].as_str() {
            Some(unit) if unit != "1" && unit != "count" => format!(" {unit}\n"),
            _ => String::new(),
        };
        let Some(value) = number.get("value") else { return };
        assert!(text.contains(&format!("  {value}{unit}")), "{number}: {text}");
    });
    assert!(count > 60, "{count} numbers");
}

#[test]
fn help_teaches_with_examples() {
    assert!(works(&["--help"]).contains("shardloom run model.onnx --ranks 4"));
    for command in ["run", "plan", "explain", "check", "diff", "import", "machines", "calibrate"] {
        let said = works(&[command, "--help"]);
        assert!(said.contains("Example") && said.contains(&format!("  shardloom {command} ")), "{said}");
    }
    assert_eq!(shardloom(&["--version"]).code, 0);
}

#[test]
fn plans_of_this_machine_run_beside_their_prices() {
    let folder = Folder::new("local");
    // What measuring takes is the long tier's; in the gate it is the prices of another host that they run beside.
    let machine = if is_long() { folder.path("host.json") } else { "cpu-4x".to_owned() };
    if is_long() {
        works(&["calibrate", "--device", "cpu", "-o", &machine]);
    }
    let said =
        works(&["validate", "--local", "--machine", &machine, "--steps", "1", "--rounds", "1", "--json"]);
    let trials: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(trials.len(), 6 * 5);
    for trial in &trials {
        let [predicted, measured] = ["predicted", "measured"].map(|it| trial[it].as_f64().unwrap());
        // How near they are depends on what else the machine does.
        assert!(predicted > 1e-4 && measured > 1e-4, "{trial}");
    }
    let operations = trials[0]["operations"].as_array().unwrap();
    assert!(operations.iter().any(|it| it["name"] == "contract"), "{operations:?}");
}
