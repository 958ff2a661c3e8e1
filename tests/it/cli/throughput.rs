//! Plans in the field's numbers: tokens a second, floating-point operations, utilisation.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cost_models::model_flops::StepWork;
use driver::Nobody;
use driver::compile::{Bound, Use, imported};
use driver::pipeline::{Decisions, Phases, Training, prepare_training};
use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{Optimizer, Real};
use serde_json::Value;

use super::{Folder, fails, works};
use crate::tidy::root;

/// What a step of a configuration needs, found in its program.
fn in_program(config: &Path, batch: u64, sequence: u64) -> StepWork {
    let recipe = Recipe {
        precision: Precision::Bf16,
        micro_batches: 2,
        ..Recipe::new(Loss::Output("loss".to_owned()), Optimizer::Sgd { decay: Real(0.0) })
    };
    let dims = vec![("batch".to_owned(), batch), ("sequence".to_owned(), sequence)];
    let bound = Bound { dims, inputs: None };
    let imported = imported((config, Use::Loss), &bound, Some(&recipe), &mut |_, _| {}, &Nobody).unwrap();
    // Recomputation does not count.
    let decisions = Decisions::Only(Recompute::Full);
    let training = Training { recipe, decisions, phases: Phases::Together };
    let prepared = prepare_training(&imported.file, &imported.graph, &training, &mut |_, _| {}).unwrap();
    StepWork::of(&prepared.graph, &|_| false)
}

/// What a stated setup of as many examples needs.
fn stated(sizes: &str) -> StepWork {
    let more = "machine = \"h100-80g\"\nframework = \"nemo\"\nworld_size = 1\nprecision = \"bf16\"\n";
    predict::config::read(&format!("{more}{sizes}"), &|name| Err(name.to_owned())).unwrap().setup.work()
}

#[test]
fn a_program_and_its_stated_setup_need_the_same() {
    let folder = Folder::new("throughput-setups");
    let gpt3 = folder.path("config.json");
    let gpt2 = fs::read_to_string(root().join("tests/configs/gpt2.json")).unwrap();
    let sizes = [
        ("\"n_embd\": 768", "\"n_embd\": 12288"),
        ("\"n_head\": 12", "\"n_head\": 96"),
        ("\"n_layer\": 12", "\"n_layer\": 96"),
        ("\"n_ctx\": 1024", "\"n_ctx\": 2048"),
        ("\"n_positions\": 1024", "\"n_positions\": 2048"),
        ("\"vocab_size\": 50257", "\"vocab_size\": 51200"),
    ];
    let text = sizes.iter().fold(gpt2, |text, (from, to)| text.replace(from, to));
    fs::write(&gpt3, text).unwrap();
    let llama = root().join("tests/configs/llama3_8b.json");
    let mixtral = root().join("tests/configs/mixtral_8x7b.json");
    const OF_MIXTRAL: &str = "num_layers = 32\nhidden_size = 4096\nnum_attention_heads = 32\nnum_query_groups = 8\n\
                              ffn_hidden_size = 14336\nswiglu = true\nvocab_size = 32000\nseq_length = 4096\n\
                              num_experts = 8\nmoe_router_topk = 2\n";
    // A layer that predicts a further token is joined to the others by a product, and passes through the head.
    let (further, sizes_of_further) =
        (folder.path("further.json"), format!("{OF_MIXTRAL}mtp_num_layers = 1\n"));
    let text = fs::read_to_string(&mixtral).unwrap();
    fs::write(&further, text.replacen('{', "{\"num_nextn_predict_layers\": 1,", 1)).unwrap();
    let of = [
        (
            llama.as_path(),
            8192,
            "num_layers = 32\nhidden_size = 4096\nnum_attention_heads = 32\nnum_query_groups = 8\n\
             ffn_hidden_size = 14336\nswiglu = true\nvocab_size = 128256\nseq_length = 8192\n",
        ),
        (
            Path::new(&gpt3),
            2048,
            "num_layers = 96\nhidden_size = 12288\nnum_attention_heads = 96\nffn_hidden_size = 49152\n\
             vocab_size = 51200\nseq_length = 2048\n",
        ),
        (mixtral.as_path(), 4096, OF_MIXTRAL),
        (Path::new(&further), 4096, &sizes_of_further),
    ];
    for (config, sequence, sizes) in of {
        let program = in_program(config, 1, sequence);
        let setup = stated(&format!("{sizes}micro_batch_size = 1\nglobal_batch_size = 2\n"));
        assert_eq!(program.tokens, 2 * sequence, "{}", config.display());
        assert_eq!(setup.tokens, program.tokens);
        let parts = |work: &StepWork| {
            let all = work.flops.all();
            [all.products.0, all.attention.0, all.seen.0]
        };
        for (found, expected) in parts(&program).into_iter().zip(parts(&setup)) {
            assert!((found / expected - 1.0).abs() < 1e-9, "{}: {program:?}, {setup:?}", config.display());
        }
        let all = program.flops.all();
        assert!((all.seen.0 / all.attention.0 - 0.5).abs() < 1e-9, "half of causal attention is seen");
    }
}

/// The numbers that commands say of a plan, checked against each other.
fn figures(said: &Value, seconds: &str) -> [f64; 3] {
    let at = |name: &str| said[name].as_f64().unwrap_or_else(|| panic!("no {name}: {said}"));
    let seconds = at(seconds);
    assert!((at("tokens_per_second") * seconds / at("tokens_per_step") - 1.0).abs() < 1e-9, "{said}");
    let devices = at("tokens_per_second") / at("tokens_per_second_per_device");
    let flops = at("tflops_per_device") * 1e12 * devices * seconds;
    assert!((flops / at("model_flops") - 1.0).abs() < 1e-9, "{said}");
    assert!(0.0 < at("mfu_causal") && at("mfu_causal") <= at("mfu") && at("mfu") <= 1.0, "{said}");
    assert!(said["flops_convention"].as_str().unwrap().contains("attention whole"), "{said}");
    [at("model_flops"), at("tokens_per_step"), at("mfu") * seconds * devices]
}

#[test]
fn all_commands_say_the_same_of_a_step_in_stages_or_not() {
    let folder = Folder::new("throughput");
    let model = root().join("tests/models/gpt2-bytes.onnx");
    let model = model.to_str().unwrap();
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&works(&[arguments, &["--json"]].concat())).unwrap()
    };
    let train = ["--dim", "sequence=16", "--mode", "train", "--loss", "cross-entropy:logits,labels"];
    let mut all = Vec::new();
    for (number, how) in [
        &["--machine", "cpu-2x", "--dim", "batch=4", "--microbatches", "1"][..],
        &["--machine", "cpu-2x", "--dim", "batch=2", "--microbatches", "2", "--recompute", "full"],
        &["--machine", "cpu-2x", "--dim", "batch=1", "--microbatches", "4", "--stages", "2", "--mesh", "1"],
    ]
    .into_iter()
    .enumerate()
    {
        let plan = folder.path(&format!("{number}.json"));
        let planned = [&["plan", model, "-o", &plan], how, &train].concat();
        all.push(figures(&json(&planned), "seconds"));
        all.push(figures(&json(&["explain", &plan]), "seconds"));
        all.push(figures(&json(&["simulate", &plan]), "seconds"));
        let others = fails(2, &["explain", &plan, "--machine", "cpu-4x"]);
        assert!(others.contains("cpu-4x"), "{others}");
        for command in ["explain", "simulate"] {
            let text = works(&[command, &plan]);
            for word in [" tokens/s, ", " tokens/s/device", " TFLOP/s/device, MFU ", "(attention whole; "] {
                assert!(text.contains(word), "{command}: no `{word}` in\n{text}");
            }
        }
    }
    let over = ["--machine", "cpu-2x", "--over", "devices=1,2", "--global-batch", "4"];
    let swept = json(&[&["sweep", model], &over[..], &train].concat());
    all.extend(swept.as_array().unwrap().iter().map(|point| figures(point, "step_seconds")));
    let of = |it: &[f64; 3]| it.map(|number| format!("{number:.9e}"));
    let different: BTreeSet<[String; 3]> = all.iter().map(of).collect();
    assert_eq!(different.len(), 1, "{different:?}");
}
