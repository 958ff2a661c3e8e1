//! Sizes and values that a plan is for: those by which nothing is computed, names that are given twice, and
//! inputs that are part of the program.

use std::fs;
use std::path::Path;

use files::arrays;
use kernels::Array;
use serde_json::Value;

use super::{Folder, fails, says, works};

fn corpus(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name).to_str().unwrap().to_owned()
}

/// The mean of the later tokens' squares: a number, also of no tokens.
#[test]
fn numbers_that_are_made_of_nothing_are_refused() {
    let folder = Folder::new("nothing");
    let (model, path) = (corpus("cases/faults/nothing_to_compute/model.onnx"), folder.path("plan.json"));
    let output = folder.path("outputs.npz");
    let plan = ["plan", &model, "-o", &path, "--machine", "cpu-2x"];
    let train = ["--mode", "train", "--loss", "loss"];
    let commands: [&[&str]; 5] = [
        &["import", &model],
        &["run", &model, "--ranks", "2", "-o", &output],
        &[&plan[..], &["--mesh", "2"]].concat(),
        &[&plan[..], &["--mesh", "2"], &train].concat(),
        &[&plan[..], &["--mesh", "2", "--stages", "1"], &train].concat(),
    ];
    for command in commands {
        works(&[command, &["--dim", "batch=2", "--dim", "sequence=2"]].concat());
        let _ = (fs::remove_file(&path), fs::remove_file(&output));
        for sizes in [["batch=0", "sequence=2"], ["batch=2", "sequence=0"], ["batch=2", "sequence=1"]] {
            let message = fails(2, &[command, &["--dim", sizes[0], "--dim", sizes[1]]].concat());
            says(
                &message,
                &["output `loss` f32[] is made of no elements, by `mean`, which takes", "`--dim`"],
            );
        }
    }
    let auto = ["--stages", "auto", "--global-batch", "2"];
    let searched = [&plan[..], &train, &auto, &["--dim", "sequence=1"]].concat();
    says(&fails(2, &searched), &["is made of no elements"]);
    assert!(!Path::new(&path).exists() && !Path::new(&output).exists());
    // A sweep goes on to others.
    let sweep = ["sweep", &model, "--machine", "cpu-2x", "--over", "batch=2,4", "--dim", "sequence=1"];
    let said = works(&[&sweep[..], &train].concat());
    assert_eq!(said.matches("is made of no elements").count(), 2, "{said}");
    // Inputs say sizes as well.
    let inputs = folder.path("inputs.npz");
    let none = Array::of(vec![0, 2, 4], &[0.0_f32; 0]).unwrap();
    arrays::write(Path::new(&inputs), &[("x".to_owned(), none)].into()).unwrap();
    says(&fails(2, &["run", &model, "--ranks", "2", "--inputs", &inputs, "-o", &output]), &["no elements"]);
}

/// A cache in which nothing is yet is no reason to refuse.
#[test]
fn a_cache_may_be_empty() {
    let folder = Folder::new("empty-cache");
    let model = corpus("models/gpt2-past-dynamo2.9-op18-dyn/model.onnx");
    let output = folder.path("outputs.npz");
    let sizes = ["batch=2", "seq=4", "past=0", "total=4"].map(|it| ["--dim", it]);
    works(&[&["run", &model, "--ranks", "2", "-o", &output][..], sizes.as_flattened()].concat());
}

/// What a plan was made with decides what is computed: other values are refused, not ignored.
#[test]
fn values_that_are_part_of_a_plan_are_what_is_given() {
    let folder = Folder::new("values");
    let place = |name: &str| corpus(&format!("models/t5-seq2seq-optimum0.1-op17-dyn/{name}"));
    let (model, given) = (place("decoder_model_merged.onnx"), place("decoder_model_merged.io0.npz"));
    let (plan, output, other) = (folder.path("p.json"), folder.path("o.npz"), folder.path("other.npz"));
    works(&["plan", &model, "--machine", "cpu-2x", "--mesh", "2", "--inputs", &given, "-o", &plan]);
    let mut arrays = arrays::read(Path::new(&given)).unwrap();
    let flag = arrays.keys().find(|it| it.ends_with("use_cache_branch")).unwrap().clone();
    let was = arrays[&flag].bytes()[0] != 0;
    let run = |inputs| ["run", &plan, "--inputs", inputs, "-o", &output];
    let said = works(&run(&given));
    assert!(said.contains("control    `use_cache_branch` decides what is computed"), "{said}");
    arrays.insert(flag, Array::of_truths(vec![1], &[!was]).unwrap());
    arrays::write(Path::new(&other), &arrays).unwrap();
    let message = fails(2, &run(&other));
    let expected =
        format!("`use_cache_branch` is {}, and the program is for {}", u8::from(!was), u8::from(was));
    says(&message, &["other.npz", &expected, "plan again"]);
    // The plan is evaluated beside its model, which is imported for that value.
    let check = ["check", &plan, "--model", &model];
    let passed = works(&check);
    assert!(passed.contains("evaluated on one rank it computes what the model does"), "{passed}");
    says(&fails(2, &[&check[..], &["--inputs", &other]].concat()), &[&expected]);
}

/// The mask's places and the sequences are called alike, as exporters do.
#[test]
fn generation_takes_names_of_two_sizes_apart() {
    let folder = Folder::new("generation-apart");
    let model = corpus("models/gpt2-past-dynamo2.9-op18-dyn/model.onnx");
    let mut bytes = fs::read(&model).unwrap();
    let symbol = [&[0x12, 5][..], b"total"].concat();
    let at = bytes.windows(symbol.len()).position(|it| it == symbol).unwrap();
    bytes[at + 2..at + symbol.len()].copy_from_slice(b"batch");
    let (renamed, plan) = (folder.path("renamed.onnx"), folder.path("plan.json"));
    fs::write(&renamed, bytes).unwrap();
    let tokens = |model: &str| {
        let fixed = ["plan", model, "--machine", "cpu-2x", "--mesh", "2", "-o", &plan, "--mode", "generate"];
        let sizes = ["--batch", "2", "--context", "16", "--prompt", "4", "--json"];
        let said: Value = serde_json::from_str(&works(&[&fixed[..], &sizes].concat())).unwrap();
        works(&["check", &plan, "--model", model]);
        let prompts = ["--prompt-ids", "1,2,3", "--prompt-ids", "4,5", "--max-new-tokens", "4"];
        (said, works(&[&["generate", &plan][..], &prompts].concat()))
    };
    let (said, expected) = tokens(&model);
    assert_eq!(said["warnings"].as_array().unwrap().len(), 0, "{said}");
    let (said, found) = tokens(&renamed);
    let warning = said["warnings"][0].as_str().unwrap();
    says(warning, &["attention_mask[1] is 16", "`batch`", "is 2 elsewhere"]);
    assert_eq!(found, expected);
    // What generating gives a size is not given another one.
    let fixed = ["plan", &model, "--machine", "cpu-2x", "-o", &plan, "--mode", "generate", "--context", "16"];
    says(&fails(1, &[&fixed[..], &["--dim", "seq=5"]].concat()), &["`--dim seq=5`", "leave it out"]);
}

/// Warnings of names are part of what is said for programs, in stages too.
#[test]
fn names_of_two_sizes_are_said_in_stages_too() {
    let folder = Folder::new("stages-apart");
    let place = |name: &str| corpus(&format!("cases/faults/one_symbol_two_sizes/{name}"));
    let (model, data, plan) = (place("model.onnx"), place("data.npz"), folder.path("plan.json"));
    let train = ["--mode", "train", "--loss", "cross-entropy:logits,targets", "--inputs", &data];
    let fixed = ["plan", &model, "--machine", "cpu-2x", "-o", &plan, "--json"];
    for more in [&["--mesh", "2"][..], &["--stages", "1", "--mesh", "2"]] {
        let said: Value = serde_json::from_str(&works(&[&fixed[..], &train, more].concat())).unwrap();
        says(said["warnings"][0].as_str().unwrap(), &["taken as a dimension of its own"]);
    }
}

/// Steps of prompts and of single tokens take turns in one memory, on ranks as in what is planned.
#[test]
fn ranks_hold_of_both_steps_what_the_plan_says() {
    let folder = Folder::new("generation-memory");
    let plan = folder.path("plan.json");
    let read = |arguments: &[&str]| serde_json::from_str::<Value>(&works(arguments)).unwrap();
    for model in ["gpt2-past-dynamo2.9-op18-dyn", "llama-fp32-genai0.18", "llama-past-dynamo2.9-op18-dyn"] {
        let model = corpus(&format!("models/{model}/model.onnx"));
        // Where entries come at the first empty place, prompts are taken at once.
        let prompts = if model.contains("genai") { ["5", "8"] } else { ["1", "4"] };
        for (mesh, prompt) in ["2", "1"].into_iter().zip(prompts) {
            let machine = format!("cpu-{mesh}x");
            let fixed = ["plan", &model, "--machine", &machine, "--mesh", mesh, "-o", &plan, "--json"];
            let sizes = ["--mode", "generate", "--batch", "2", "--context", "16", "--prompt", prompt];
            let planned = read(&[&fixed[..], &sizes].concat())["held_bytes"].as_u64().unwrap();
            let prompts = ["--prompt-ids", "1,2,3,4,5", "--prompt-ids", "6,7", "--max-new-tokens", "3"];
            let made = works(&[&["--json", "generate", &plan][..], &prompts].concat());
            let made: Value = serde_json::from_str(made.lines().last().unwrap()).unwrap();
            for held in made["held_bytes"].as_array().unwrap() {
                assert_eq!(held.as_u64(), Some(planned), "{model} on {mesh}, prompts by {prompt}");
            }
            assert_eq!(read(&["explain", &plan, "--json"])["held_bytes"], planned);
            assert!(works(&["check", &plan]).contains(&format!("a device holds {planned} bytes")));
        }
    }
}
