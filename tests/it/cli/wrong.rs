//! What users do wrong: one clear message, and the right exit code.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Folder, example, fails, planned, shardloom, works};

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "no `{part}` in: {message}");
    }
}

#[test]
fn arguments_that_make_no_sense() {
    for arguments in [&[][..], &["fly"], &["run"], &["plan", "m.onnx"], &["run", "m.onnx", "--ranks", "0"]] {
        assert!(fails(1, arguments).contains("Usage:") || arguments.len() > 3, "{arguments:?}");
    }
    let model = example("model.onnx");
    says(&fails(1, &["run", &model]), &["--ranks 4"]);
    says(&fails(1, &["plan", &model, "--machine", "cpu-2x", "--dim", "batch"]), &["`batch=2`"]);
    says(&fails(1, &["plan", &model, "--machine", "cpu-2x", "--memory", "much"]), &["`70GiB`"]);
    says(&fails(1, &["run", &model, "--ranks", "2", "-o", "outputs.txt"]), &["outputs.txt", "`.npz`"]);
    says(
        &fails(1, &["plan", &model, "--machine", "cpu-4x", "--mesh", "2x3"]),
        &["mesh 2x3 has 6 devices", "cpu-4x has 4"],
    );
    says(
        &fails(1, &["plan", &model, "--machine", "h300-8x"]),
        &["`h300`", "v100-16g, v100-16g-10gbe, ", "a100-40g, a100-80g, ", ", mi250x-64g, cpu"],
    );
}

#[test]
fn files_that_are_not_there_or_not_what_they_should_be() {
    let folder = Folder::new("files");
    let model = example("model.onnx");
    says(&fails(2, &["import", "missing.onnx"]), &["missing.onnx", "cannot be read"]);
    says(&fails(2, &["explain", "missing.json"]), &["missing.json", "cannot be read"]);
    says(&fails(2, &["import", folder.0.to_str().unwrap()]), &["is a folder"]);
    let whole = fs::read(&model).unwrap();
    for length in [0, 1, 100, whole.len() / 2, whole.len() - 1] {
        let cut = folder.path("cut.onnx");
        fs::write(&cut, &whole[..length]).unwrap();
        says(&fails(2, &["run", &cut, "--ranks", "2", "-o", &folder.path("o.npz")]), &["cut.onnx: "]);
    }
    let text = folder.path("text.npz");
    fs::write(&text, "no archive").unwrap();
    says(&fails(2, &["run", &model, "--ranks", "2", "--inputs", &text]), &["text.npz: is not a .npz file"]);
}

#[test]
fn what_never_ends_is_not_read() {
    let folder = Folder::new("endless");
    let model = example("model.onnx");
    let [endless, plan, inputs, machine] = ["model-endless.onnx", "plan.json", "inputs.npz", "machine.json"]
        .map(|name| {
            let path = folder.path(name);
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            path
        });
    for arguments in [
        vec!["import", &endless],
        vec!["explain", &plan],
        vec!["run", &model, "--ranks", "2", "--inputs", &inputs],
        vec!["plan", &model, "--machine", &machine],
    ] {
        says(&fails(2, &arguments), &["is a pipe, a device or a socket, expected a file"]);
    }
}

#[test]
fn dimensions_that_the_model_lacks() {
    let message = fails(1, &["import", &example("model.onnx"), "--dim", "batch=2"]);
    says(&message, &["there is no dimension `batch`, there are none"]);
}

#[test]
fn inputs_that_are_not_those_of_the_model() {
    let folder = Folder::new("inputs");
    let model = example("model.onnx");
    let output = folder.path("o.npz");
    let plan = planned(&folder, "plan.json", &[]);
    let write = |name: &str, arrays: &[(&str, kernels::Array)]| {
        let path = folder.path(name);
        let arrays = arrays.iter().map(|(name, array)| ((*name).to_owned(), array.clone())).collect();
        files::arrays::write(path.as_ref(), &arrays).unwrap();
        path
    };
    let ids = kernels::Array::of([2, 16], &[1_i64; 32]).unwrap();
    let short = kernels::Array::of([2, 8], &[1_i64; 16]).unwrap();
    let real = kernels::Array::of([2, 16], &[1.0_f32; 32]).unwrap();
    let cases = [
        (write("a.npz", &[("input_ids", ids.clone())]), "`attention_mask` is missing"),
        (
            write("b.npz", &[("input_ids", ids.clone()), ("attention_mask", real)]),
            "`attention_mask` is f32[2,16]",
        ),
        (
            write("c.npz", &[("input_ids", ids.clone()), ("attention_mask", short)]),
            "`attention_mask` is i64[2,8]",
        ),
        (write("d.npz", &[("input_ids", ids.clone()), ("mask", ids)]), "`mask` is not an input"),
    ];
    for (inputs, part) in cases {
        let message = fails(2, &["run", &plan, "--inputs", &inputs, "-o", &output]);
        says(&message, &[part, "expected `input_ids` i64[2,16], `attention_mask` i64[2,16]"]);
        let message = shardloom_fails(&["run", &model, "--ranks", "2", "--inputs", &inputs, "-o", &output]);
        assert!(message.contains("attention_mask"), "{message}");
    }
    assert!(!folder.0.join("o.npz").exists());
}

/// The message of a command that fails for whatever reason of the user's.
fn shardloom_fails(arguments: &[&str]) -> String {
    let left = super::shardloom(arguments);
    assert!(left.code == 1 || left.code == 2, "{}: {}", left.code, left.err);
    left.err
}

#[test]
fn plans_that_were_changed_or_are_of_another_model() {
    let folder = Folder::new("tampered");
    let plan = planned(&folder, "plan.json", &[]);
    let text = fs::read_to_string(&plan).unwrap();
    let changed = folder.path("changed.json");
    fs::write(&changed, text.replacen("\"capacity\": ", "\"capacity\": 1", 1)).unwrap();
    assert_ne!(fs::read_to_string(&changed).unwrap(), text);
    for command in ["run", "explain", "check"] {
        says(&fails(2, &[command, &changed]), &["checksum", "the plan was changed"]);
    }
    fs::write(&changed, &text[..text.len() / 2]).unwrap();
    says(&fails(2, &["check", &changed]), &["changed.json", "the file ends here"]);

    // Another model: the same file with a byte of a weight changed.
    let mut bytes = fs::read(example("model.onnx")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let other = folder.path("other.onnx");
    fs::write(&other, bytes).unwrap();
    for arguments in [["run", &plan, "--model", &other], ["check", &plan, "--model", &other]] {
        says(&fails(2, &arguments), &["made of another model", "SHA-256"]);
    }
    says(&fails(1, &["run", &plan, "--ranks", "8"]), &["8 ranks, but the plan is for 4"]);
}

#[test]
fn a_plan_whose_numbers_are_wrong_is_rejected_by_the_rule_it_breaks() {
    let folder = Folder::new("rules");
    let path = planned(&folder, "plan.json", &[]);
    let mut wrong = plan::json::read(&fs::read(&path).unwrap()).unwrap();
    wrong.estimate[0].seconds *= 2.0;
    wrong.memory[0].bytes += 1;
    fs::write(&path, plan::json::write(&wrong)).unwrap();
    for command in ["check", "run", "explain"] {
        says(&fails(2, &[command, &path]), &["the plan is rejected", "[estimate]", "[memory]"]);
    }
}

#[test]
fn a_plan_that_computes_something_else_is_rejected() {
    let folder = Folder::new("other");
    let path = planned(&folder, "plan.json", &[]);
    let mut wrong = plan::json::read(&fs::read(&path).unwrap()).unwrap();
    let norm = wrong.graph.nodes.iter_mut().find_map(|node| match &mut node.op {
        planner_ir::Op::LayerNorm { epsilon, .. } => Some(epsilon),
        _ => None,
    });
    *norm.unwrap() = planner_ir::Real(10.0);
    fs::write(&path, plan::json::write(&wrong)).unwrap();
    // It is a sound plan, but not of this model.
    assert!(works(&["check", &path]).starts_with("ok  "));
    let message = fails(2, &["check", &path, "--model", &example("model.onnx")]);
    says(&message, &["the plan is rejected", "does not compute what the model does: `logits`"]);
    // Nor is one whose weights the model lacks.
    for value in &mut wrong.graph.values {
        if let planner_ir::Source::Weight(name) = &mut value.source {
            name.push('x');
        }
    }
    fs::write(&path, plan::json::write(&wrong)).unwrap();
    let message = fails(2, &["check", &path, "--model", &example("model.onnx")]);
    says(&message, &["the plan is rejected: the model has no weight `"]);
}

#[test]
fn machine_files_that_lack_something() {
    let folder = Folder::new("machine");
    let (model, path) = (example("model.onnx"), folder.path("machine.json"));
    let text = cost_models::machine::shipped::text("cpu").unwrap();
    let mut file: Value = serde_json::from_str(text).unwrap();
    fs::write(&path, file.to_string()).unwrap();
    let plan = ["plan", &model, "--machine", &path, "-o", &folder.path("p.json")];
    says(&fails(1, &plan), &["does not say how many devices there are", "--devices"]);
    file["device"].as_object_mut().unwrap().remove("memory_bandwidth");
    fs::write(&path, file.to_string()).unwrap();
    says(&fails(2, &plan), &["machine.json", "missing field `memory_bandwidth`"]);
    says(&fails(2, &["machines", "show", &path]), &["missing field `memory_bandwidth`"]);
}

#[test]
fn too_little_memory_is_said_in_bytes_with_what_would_help() {
    let folder = Folder::new("memory");
    let (model, plan) = (example("model.onnx"), folder.path("p.json"));
    let message = fails(2, &["plan", &model, "--machine", "cpu-4x", "--memory", "10kB", "-o", &plan]);
    says(&message, &["does not fit", "10.00 kB", " bytes are missing", "more devices", "would help"]);
    assert!(!folder.0.join("p.json").exists());
}

#[test]
fn outputs_that_cannot_be_written_leave_nothing() {
    let folder = Folder::new("unwritable");
    let model = example("model.onnx");
    let nowhere = folder.path("no/such/folder/outputs.npz");
    let message = fails(2, &["run", &model, "--ranks", "2", "-o", &nowhere]);
    says(&message, &["outputs.npz: cannot be written"]);
    let nowhere = folder.path("no/plan.json");
    says(&fails(2, &["plan", &model, "--machine", "cpu-2x", "-o", &nowhere]), &["cannot be written"]);
    // A folder of that name.
    let taken = folder.path("taken.npz");
    fs::create_dir(&taken).unwrap();
    says(&fails(2, &["run", &model, "--ranks", "2", "-o", &taken]), &["cannot be written"]);
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["taken.npz"]);
}

#[test]
fn a_model_without_its_weights_is_planned_but_not_run() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/llama-fp32-genai0.18");
    let folder = Folder::new("weightless");
    let (model, output, plan) = (folder.path("model.onnx"), folder.path("o.npz"), folder.path("p.json"));
    fs::write(&model, fs::read(models.join("model.onnx")).unwrap()).unwrap();
    let inputs = models.join("io0.npz");
    let inputs = inputs.to_str().unwrap();
    let message = fails(2, &["run", &model, "--ranks", "2", "--inputs", inputs, "-o", &output]);
    says(&message, &["weights are in `model.onnx.data`, which is not there", "can be planned, but not run"]);
    works(&["plan", &model, "--machine", "cpu-2x", "--inputs", inputs, "-o", &plan]);
    says(&works(&["check", &plan, "--model", &model]), &["its weights are not there to evaluate it"]);
    says(&fails(2, &["run", &plan, "-o", &output]), &["can be planned, but not run"]);
}

#[test]
fn outputs_that_are_not_what_was_expected() {
    let folder = Folder::new("expected");
    let (model, output) = (example("model.onnx"), folder.path("outputs.npz"));
    let mut arrays = files::arrays::read(Path::new(&example("io0.npz"))).unwrap();
    let logits = arrays["out/logits"].clone();
    let mut run = |expected: kernels::Array| {
        arrays.insert("out/logits".to_owned(), expected);
        let inputs = folder.path("io.npz");
        files::arrays::write(Path::new(&inputs), &arrays).unwrap();
        shardloom(&["run", &model, "--ranks", "2", "--inputs", &inputs, "-o", &output])
    };
    let mut wrong: Vec<f32> = logits.elements::<f32>().unwrap().to_vec();
    wrong[7] += 0.5;
    let left = run(kernels::Array::of([2, 16, 211], &wrong).unwrap());
    assert_eq!(left.code, 2);
    says(&left.out, &["expected   `logits` differs by 5.0"]);
    says(&left.err, &["io.npz: expects other numbers of `logits`: 5.0"]);
    let left = run(kernels::Array::of([1], &wrong[..1]).unwrap());
    assert_eq!(left.code, 2);
    says(&left.err, &["`logits` cannot be compared: no such output, or of another shape"]);
    assert_eq!(run(logits.clone()).code, 0);
}

/// What has an output `loss` is trained for that where nothing is said; else the outputs are named, and the option.
#[test]
fn a_loss_that_is_not_named_is_the_output_of_that_name() {
    let folder = Folder::new("loss");
    let path = folder.path("plan.json");
    let plan = |model: &str| {
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join(model).to_str().unwrap().to_owned();
        let words =
            ["plan", &model, "-o", &path, "--force", "--machine", "cpu-2x", "--mesh", "2"].map(str::to_owned);
        [&words[..], &["--mode", "train", "--dim", "batch=2", "--dim", "sequence=2"].map(str::to_owned)]
            .concat()
    };
    let own = plan("cases/faults/nothing_to_compute/model.onnx");
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let written = [&["--loss", "loss"][..], &[]].map(|named| {
        works(&[&own[..], named].concat());
        fs::read(&path).unwrap()
    });
    assert!(written[0] == written[1]);
    let other = plan("models/gpt2-bytes.onnx");
    let other: Vec<&str> = other.iter().map(String::as_str).collect();
    says(
        &fails(2, &other),
        &[
            "there is no output `loss`, there are `logits`",
            "`--loss` names one",
            "`cross-entropy:LOGITS,LABELS`",
        ],
    );
}
