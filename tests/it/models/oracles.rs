//! Configurations beside the graphs that PyTorch's exporters made of the same ones: with the weights of these
//! they give what these give, and their plans take as long.

use std::fs;
use std::io::Read;
use std::path::Path;

use files::arrays;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::{arrays_at, write_weights};
use crate::cli::{Folder, shardloom, works};
use crate::outside::models;
use crate::tidy::root;

/// The sizes of the small exported models.
const SIZES: &str = r#""vocab_size":211,"hidden_size":HIDDEN,"intermediate_size":52,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,"rms_norm_eps":1e-6"#;

/// The configuration that a small model was exported with, all but its width; those of other models are not
/// written.
fn config(name: &str) -> Option<String> {
    let own = match name {
        "gpt2" => {
            let text = r#"{"model_type":"gpt2","vocab_size":211,"n_positions":64,"n_embd":HIDDEN,"n_inner":INNER,
                "n_layer":2,"n_head":4}"#;
            return Some(text.to_owned());
        }
        "llama" | "llama_op23" => r#""model_type":"llama""#,
        "qwen3" => r#""model_type":"qwen3","head_dim":12"#,
        "gemma2" => r#""model_type":"gemma2","head_dim":12,"sliding_window":8"#,
        // Newer exports have one weight for all experts.
        "mixtral" => r#""model_type":"mixtral","num_local_experts":4,"num_experts_per_tok":2"#,
        _ => return None,
    };
    let sizes =
        if name == "mixtral" { SIZES.replace("52", "48").replace("1e-6", "1e-5") } else { SIZES.to_owned() };
    Some(format!("{{{own},{sizes}}}"))
}

/// The first step of training oracles: weights by their names, tokens, labels, loss.
#[test]
fn with_the_weights_of_an_export_the_loss_is_that_of_pytorch() {
    let mut tried = 0;
    for path in models("training") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(text) = config(name) else { continue };
        let folder = Folder::new(&format!("models-oracle-{name}"));
        let oracle = arrays_at(&path.join("oracle.safetensors"));
        let embedding = ["transformer.wte", "model.embed_tokens"];
        let embedding = embedding.iter().find_map(|it| oracle.get(&format!("param/model.{it}.weight")));
        let width = embedding.unwrap().type_().shape[1];
        let text = text.replace("HIDDEN", &width.to_string()).replace("INNER", &(2 * width).to_string());
        let weights = oracle.iter().filter_map(|(key, array)| {
            let key = key.strip_prefix("param/model.")?;
            Some((key.to_owned(), array.type_().shape.clone(), array.bytes().to_vec()))
        });
        let [config, weights_at, model, inputs] =
            ["config.json", "w.safetensors", "m.onnx", "i.safetensors"].map(|it| folder.path(it));
        write_weights(&weights_at, &weights.collect::<Vec<_>>());
        fs::write(&config, text).unwrap();
        works(&[
            "model",
            "--config",
            &config,
            "--for",
            "loss",
            "--experts",
            "apart",
            "--weights",
            &weights_at,
            "-o",
            &model,
        ]);
        let given =
            ["input_ids", "labels"].map(|it| (format!("in/{it}"), oracle[&format!("in0/{it}")].clone()));
        arrays::write(Path::new(&inputs), &given.into()).unwrap();
        let outputs = folder.path("o.safetensors");
        let left = shardloom(&["run", &model, "--ranks", "2", "--inputs", &inputs, "-o", &outputs]);
        assert_eq!((left.code, left.err.as_str()), (0, ""), "{name}: {}", left.out);
        let found = arrays_at(Path::new(&outputs))["loss"].to_floats().unwrap()[0];
        let said: Value =
            serde_json::from_str(&fs::read_to_string(path.join("oracle.json")).unwrap()).unwrap();
        let expected = said["loss0"].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-5 * expected, "{name}: {found}, expected {expected}");
        tried += 1;
    }
    assert!(tried >= 2, "{tried} models");
}

/// Llama 2 7B, as exported without data and as written of its configuration.
#[test]
fn plans_take_as_long_as_those_of_exported_graphs() {
    let folder = Folder::new("models-exported");
    let text = |dtype: &str| {
        format!(
            r#"{{"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
            "num_attention_heads":32,"num_key_value_heads":32,"vocab_size":32000,"rms_norm_eps":1e-5,
            "max_position_embeddings":4096,"torch_dtype":"{dtype}"}}"#
        )
    };
    let train = "--mode train --loss loss --precision bf16 --in-time never";
    for (name, dtype, mesh, how) in [
        ("llama2_7b-fwd-op23-bf16", "bfloat16", "8", ""),
        ("llama2_7b-fwd-op23-bf16", "bfloat16", "2x4", "--in-time never"),
        ("llama2_7b-loss-fp32", "float32", "8", train),
    ] {
        let [exported, config] = ["model.onnx", "config.json"].map(|it| folder.path(it));
        let packed =
            fs::File::open(root().join("tests/models/full").join(name).join("model.onnx.gz")).unwrap();
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        fs::write(&exported, bytes).unwrap();
        fs::write(&config, text(dtype)).unwrap();
        let planned = |model: &str, sequence: &str| -> [f64; 2] {
            let plan = folder.path("plan.json");
            let all =
                ["plan", model, "--machine", "h100-80g-8x", "--mesh", mesh, "--dim", "batch=8", "--dim"];
            let all = all.into_iter().chain([sequence, "-o", &plan, "--json"]);
            let all: Vec<&str> = all.chain(how.split(' ').filter(|it| !it.is_empty())).collect();
            let said: Value = serde_json::from_str(&works(&all)).unwrap();
            // What is exchanged takes about as long as what is computed.
            let seconds = said["seconds"].as_f64().unwrap();
            let bound = said["proof"]["lower_bound"].as_f64().unwrap_or(seconds);
            assert!(seconds <= 1.15 * bound, "{model}: {seconds}, at least {bound}");
            let bytes =
                said["memory"].as_array().unwrap().iter().map(|it| it["bytes"].as_f64().unwrap()).sum();
            [said["seconds"].as_f64().unwrap(), bytes]
        };
        let (expected, found) = (planned(&exported, "seq=1024"), planned(&config, "sequence=1024"));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-4, "{name} on {mesh}: {found}, expected {expected}");
        }
    }
}
