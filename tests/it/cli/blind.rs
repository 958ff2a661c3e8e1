//! Rows all of whose keys are hidden by a large finite mask: planned as rings of ranks they are what the
//! oracle says, and a check sees it if they are not.

use super::{Folder, fails, says, works};
use crate::outside;

fn file(name: &str) -> String {
    outside::root().join("tests/cases/faults/attention_blind_rows").join(name).to_str().unwrap().to_owned()
}

#[test]
fn rings_of_rows_that_see_no_key_give_the_mean_of_all() {
    let folder = Folder::new("blind");
    let (model, inputs) = (file("model.onnx"), file("io0.npz"));
    let (plan, output) = (folder.path("plan.json"), folder.path("outputs.npz"));
    for ranks in [2, 3, 4] {
        let machine = format!("cpu-{ranks}x");
        let mesh = ranks.to_string();
        let pin = format!("node_matmul_1={ranks} steps [-,-,a,(a+@t:{ranks}),-,-]");
        let made = ["--machine", &machine, "--mesh", &mesh, "--inputs", &inputs, "--pin", &pin];
        works(&[&["plan", &model, "-o", &plan][..], &made].concat());
        // What differs from the oracle is refused.
        works(&["run", &plan, "--inputs", &inputs, "-o", &output]);
        let checked = works(&["check", &plan, "--model", &model]);
        let on_ranks = format!(
            "run on its {ranks} ranks it computes what it does on one: on inputs that are made, the same with padding"
        );
        assert!(checked.contains(&on_ranks), "{checked}");
        let checked = works(&["check", &plan, "--model", &model, "--inputs", &inputs]);
        assert!(checked.contains("its outputs are the 1 that the inputs' file expects"), "{checked}");
    }
}

#[test]
fn a_step_of_ranks_is_held_against_that_of_one() {
    let folder = Folder::new("blind-step");
    let (model, plan) = (file("model.onnx"), folder.path("plan.json"));
    let training =
        ["--mode", "train", "--loss", "cross-entropy:logits,labels", "--mesh", "3", "--machine", "cpu-3x"];
    let sizes = ["--dim", "batch=2", "--dim", "seq=12", "-o", &plan];
    works(&[&["plan", &model][..], &training, &sizes].concat());
    let checked = works(&["check", &plan, "--model", &model]);
    assert!(checked.contains("a step of its 3 ranks is that of one"), "{checked}");
    let message = fails(1, &["check", &plan, "--model", &model, "--inputs", &file("io0.npz")]);
    says(&message, &["`--inputs` goes with a plan that answers"]);
}

/// Raised operations round otherwise than those of the file, in 16 bits by more.
#[test]
fn plans_of_models_in_16_bits_compute_what_these_do() {
    let folder = Folder::new("blind-16");
    let plan = folder.path("plan.json");
    for name in ["gpt2-bf16-dynamo2.9-op20-dyn", "llama-fp16-legacy2.9-op17-dyn"] {
        let file =
            |of: &str| outside::root().join("tests/models").join(name).join(of).to_str().unwrap().to_owned();
        let (model, inputs) = (file("model.onnx"), file("io0.npz"));
        works(&["plan", &model, "-o", &plan, "--machine", "cpu-2x", "--mesh", "2", "--inputs", &inputs]);
        let checked = works(&["check", &plan, "--model", &model]);
        let on_ranks = "it computes what it does on one: on inputs that are made, the same with padding";
        assert!(checked.contains(on_ranks), "{checked}");
        let checked = works(&["check", &plan, "--model", &model, "--inputs", &inputs]);
        assert!(checked.contains("its outputs are the 1 that the inputs' file expects"), "{checked}");
    }
}
