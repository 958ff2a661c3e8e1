//! Configurations as models: against transformers, against exported graphs, and of full size.

mod gradients; // gradients of an oracle
mod narrow; // states of recurrences in bf16
mod oracles; // weights and outputs of exported models
mod sizes; // public configurations

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use files::arrays;
use files::inputs::Random;
use kernels::Array;
use models::onnx::{Data, Element, Parameter};
use models::{ExpertWeights, Use, Wanted};
use planner_ir::{DType, Type};
use rayon::prelude::*;
use safetensors::tensor::{Dtype, TensorView};

use crate::cli::{Folder, shardloom, works};
use crate::tidy::root;

/// The tokens of an oracle that come at once, before the others are made behind a cache.
const PROMPT: u64 = 6;

/// The tokens that the cases have.
const VOCABULARY: usize = 19;

/// Cases whose angles change with the length of a sequence: what a prompt leaves is not what the whole has.
const BY_LENGTH: [&str; 1] = ["llama_dynamic"];

/// The folders of the cases.
pub(crate) fn cases() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests/cases/models")).unwrap();
    let mut folders: Vec<PathBuf> = entries.map(|it| it.unwrap().path()).filter(|it| it.is_dir()).collect();
    folders.sort_unstable();
    folders
}

/// The weights of a configuration's model, those that only its loss has among them.
fn parameters(config: &Path) -> Vec<Parameter> {
    let text = fs::read_to_string(config).unwrap();
    let wanted = Wanted { experts: ExpertWeights::Apart, ..Wanted::of(Use::Loss) };
    models::written(&text, &wanted, Data::Absent).unwrap().parameters
}

/// The bytes of a weight that is made of its name.
fn made(parameter: &Parameter) -> Vec<u8> {
    assert_eq!(parameter.element, Element::F32, "{}", parameter.name);
    let mut random = Random::new(0, &parameter.name);
    let (middle, spread) = if parameter.shape.len() == 1 { (1.0, 0.3) } else { (0.0, 0.7) };
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
    let mut number = || (middle + spread * random.number()) as f32;
    (0..parameter.count()).flat_map(|_| number().to_le_bytes()).collect()
}

/// The weights of all experts of a layer together, of those of each.
fn together(weights: &[Weight]) -> Vec<Weight> {
    let mut all: BTreeMap<String, BTreeMap<u64, &Weight>> = BTreeMap::new();
    for weight in weights {
        let Some((before, after)) = weight.0.split_once(".experts.") else { continue };
        // Where a checkpoint has them together, they are so here.
        let Some((number, after)) = after.split_once('.') else { continue };
        let name = format!("{before}.experts.{after}");
        all.entry(name).or_default().insert(number.parse().unwrap(), weight);
    }
    let stacked = |(name, experts): (String, BTreeMap<u64, &Weight>)| {
        let count = u64::try_from(experts.len()).unwrap();
        let shape = [&[count], &experts[&0].1[..]].concat();
        (name, shape, experts.values().flat_map(|it| it.2.clone()).collect())
    };
    all.into_iter().map(stacked).collect()
}

/// All weights of a configuration, in whichever way experts have them.
pub(crate) fn weights(config: &Path) -> Vec<Weight> {
    let mut weights: Vec<_> =
        parameters(config).iter().map(|it| (it.name.clone(), it.shape.clone(), made(it))).collect();
    weights.extend(together(&weights));
    weights
}

/// A weight: its name, its shape, its bytes.
type Weight = (String, Vec<u64>, Vec<u8>);

/// Writes weights as a checkpoint.
pub(crate) fn write_weights(path: &str, weights: &[Weight]) {
    let view = |shape: &[u64], bytes| {
        let shape = shape.iter().map(|&it| usize::try_from(it).unwrap()).collect();
        TensorView::new(Dtype::F32, shape, bytes).unwrap()
    };
    let views = weights.iter().map(|(name, shape, bytes)| (name.as_str(), view(shape, bytes)));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

fn arrays_at(path: &Path) -> BTreeMap<String, Array> {
    arrays::read(path).unwrap()
}

/// The places `from..to` of the second dimension of an array.
fn places(array: &Array, from: u64, to: u64) -> Array {
    let mut shape = array.type_().shape.clone();
    let inner = shape[2..].iter().product::<u64>() * array.type_().dtype.bytes();
    let length = shape[1];
    let at = |batch: u64, place: u64| usize::try_from((batch * length + place) * inner).unwrap();
    let bytes: Vec<u8> =
        (0..shape[0]).flat_map(|it| array.bytes()[at(it, from)..at(it, to)].to_vec()).collect();
    shape[1] = to - from;
    Array::from_bytes(Type::new(array.type_().dtype, shape), &bytes).unwrap()
}

/// One case, in a folder of its own.
struct Case {
    folder: Folder,
    oracle: BTreeMap<String, Array>,
    config: String,
}

impl Case {
    /// `test` tells folders of tests apart.
    fn new(from: &Path, test: &str) -> Self {
        let name = from.file_name().unwrap().to_str().unwrap();
        let folder = Folder::new(&format!("models-{test}-{name}"));
        let config = from.join("config.json");
        write_weights(&folder.path("model.safetensors"), &weights(&config));
        let oracle = arrays_at(&from.join("oracle.npz"));
        Self { folder, oracle, config: config.to_str().unwrap().to_owned() }
    }

    /// Writes the model for a use; where it is.
    fn model(&self, of: &str) -> String {
        self.model_with(of, "apart")
    }

    /// The same with weights of experts held so.
    fn model_with(&self, of: &str, experts: &str) -> String {
        let (path, weights) =
            (self.folder.path(&format!("{of}-{experts}.onnx")), self.folder.path("model.safetensors"));
        works(&[
            "model",
            "--config",
            &self.config,
            "--for",
            of,
            "--weights",
            &weights,
            "-o",
            &path,
            "--experts",
            experts,
            "--quiet",
        ]);
        path
    }

    /// Runs a model on inputs and against expected outputs; what it gives.
    fn run(&self, model: &str, ranks: &str, given: &BTreeMap<String, Array>) -> BTreeMap<String, Array> {
        let [inputs, outputs] =
            ["inputs", "outputs"].map(|it| self.folder.path(&format!("{it}.safetensors")));
        arrays::write(Path::new(&inputs), given).unwrap();
        let left = shardloom(&["run", model, "--ranks", ranks, "--inputs", &inputs, "-o", &outputs]);
        assert_eq!((left.code, left.err.as_str()), (0, ""), "{model} on {ranks} ranks: {}", left.out);
        arrays_at(Path::new(&outputs))
    }

    fn given(&self, names: &[&str]) -> BTreeMap<String, Array> {
        names.iter().map(|&it| (it.to_owned(), self.oracle[it].clone())).collect()
    }

    /// Logits and loss of whole sequences, on one and two ranks.
    fn whole(&self) {
        let model = self.model("loss");
        for ranks in ["1", "2"] {
            self.run(&model, ranks, &self.given(&["in/input_ids", "in/labels", "out/logits", "out/loss"]));
        }
        let together = self.model_with("loss", "together");
        self.run(&together, "2", &self.given(&["in/input_ids", "in/labels", "out/logits", "out/loss"]));
        self.run(&self.model("forward"), "2", &self.given(&["in/input_ids", "out/logits"]));
    }

    /// The first tokens at once and the others behind what they leave, against all of them at once.
    fn continued(&self) {
        let (tokens, logits) = (&self.oracle["in/input_ids"], &self.oracle["out/logits"]);
        let [batch, all] = <[u64; 2]>::try_from(tokens.type_().shape.as_slice()).unwrap();
        let first = BTreeMap::from([
            ("in/input_ids".to_owned(), places(tokens, 0, PROMPT)),
            ("out/logits".to_owned(), places(logits, 0, PROMPT)),
        ]);
        let left = self.run(&self.model("prefill"), "1", &first);
        let mut then = BTreeMap::from([
            ("in/input_ids".to_owned(), places(tokens, PROMPT, all)),
            ("out/logits".to_owned(), places(logits, PROMPT, all)),
        ]);
        let integers = |shape: [u64; 2], numbers: Vec<i64>| {
            let bytes: Vec<u8> = numbers.into_iter().flat_map(i64::to_le_bytes).collect();
            Array::from_bytes(Type::new(DType::I64, shape.to_vec()), &bytes).unwrap()
        };
        let count = |it: u64| usize::try_from(it).unwrap();
        then.insert("in/attention_mask".to_owned(), integers([batch, all], vec![1; count(batch * all)]));
        let new = (PROMPT..all).map(|it| i64::try_from(it).unwrap());
        let positions = (0..batch).flat_map(|_| new.clone()).collect();
        then.insert("in/position_ids".to_owned(), integers([batch, all - PROMPT], positions));
        for (name, array) in left {
            if let Some(part) = name.strip_prefix("present.") {
                then.insert(format!("in/past_key_values.{part}"), array);
            }
        }
        self.run(&self.model("decode"), "2", &then);
    }
}

impl Case {
    /// The likeliest token after these, by the logits of the whole sequence.
    fn likeliest(&self, forward: &str, tokens: &[i64]) -> i64 {
        let bytes: Vec<u8> = tokens.iter().flat_map(|it| it.to_le_bytes()).collect();
        let length = u64::try_from(tokens.len()).unwrap();
        let array = Array::from_bytes(Type::new(DType::I64, vec![1, length]), &bytes).unwrap();
        let logits = self.run(forward, "1", &[("in/input_ids".to_owned(), array)].into())["logits"].clone();
        let logits = logits.to_floats().unwrap();
        let last = &logits[logits.len() - VOCABULARY..];
        let best = (0..VOCABULARY).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
        i64::try_from(best).unwrap()
    }
}

/// The tokens that a decoder makes are the likeliest by the logits of whole sequences: of prompts of different lengths
/// beside each other, taken in several steps, on several ranks.
#[test]
fn tokens_are_those_of_whole_sequences() {
    let narrow = &[("2", "2")][..];
    let wide = &[("1", "1"), ("2", "2"), ("4", "4"), ("4", "2x2")][..];
    for (name, ranks) in [
        ("llama", narrow),
        ("deepseek_v3", narrow),
        ("gemma2", narrow),
        ("gpt_oss", narrow),
        ("mamba2", wide),
        ("qwen3_next", wide),
    ] {
        let case = Case::new(&root().join("tests/cases/models").join(name), "tokens");
        let (decoder, plan) = (case.model("decode"), case.folder.path("plan.json"));
        let forward = case.model("forward");
        let prompts = [vec![3_i64, 1, 4, 1, 5], vec![9, 2]];
        let expected = prompts.clone().map(|mut tokens| {
            for _ in 0..4 {
                tokens.push(case.likeliest(&forward, &tokens));
            }
            tokens
        });
        for &(devices, mesh) in ranks {
            let machine = format!("cpu-{devices}x");
            let how = ["--machine", &machine, "--mesh", mesh, "--mode", "generate", "--batch", "2"];
            works(&[&["plan", &decoder, "--context", "12", "--prompt", "4", "-o", &plan], &how[..]].concat());
            works(&["check", &plan, "--model", &decoder, "--quiet"]);
            let ids =
                prompts.each_ref().map(|it| it.iter().map(i64::to_string).collect::<Vec<_>>().join(","));
            let asked = ["--prompt-ids", &ids[0], "--prompt-ids", &ids[1], "--max-new-tokens", "4", "--json"];
            let said = works(&[&["generate", &plan], &asked[..]].concat());
            let lines = serde_json::Deserializer::from_str(&said).into_iter::<serde_json::Value>();
            let last = lines.last().unwrap().unwrap();
            let made: [Vec<i64>; 2] = serde_json::from_value(last["sequences"].clone()).unwrap();
            for ((made, prompt), expected) in made.iter().zip(&prompts).zip(&expected) {
                let all = [&prompt[..], &made[..]].concat();
                assert_eq!(all, *expected, "{name} on {mesh} after {prompt:?}");
            }
        }
    }
}

#[test]
fn what_is_written_computes_what_transformers_does() {
    let cases = cases();
    assert!(cases.len() > 20, "{} cases", cases.len());
    cases.par_iter().for_each(|path| {
        let case = Case::new(path, "whole");
        case.whole();
        if BY_LENGTH.iter().all(|it| !path.ends_with(it)) {
            case.continued();
        }
    });
}

/// The graph is what it says: attention is found, and sees what it should, in every layer.
#[test]
fn attention_is_found_in_every_layer() {
    for (name, expected) in [
        ("llama", "2 causal\n"),
        ("mistral", "2 causal within 4 keys\n"),
        ("gemma2", "1 causal; 1 causal within 4 keys\n"),
        ("deepseek_v3", "2 causal\n"),
        ("mixtral", "2 causal\n"),
        ("gpt_oss", "1 causal; 1 causal within 4 keys\n"),
        ("gpt_neox", "2 causal\n"),
    ] {
        let config = root().join("tests/cases/models").join(name).join("config.json");
        let config = config.to_str().unwrap();
        let said = works(&["import", config, "--dim", "batch=2", "--dim", "sequence=9"]);
        assert!(said.contains(&format!("attention  {expected}")), "{name}: {said}");
        let is_mixed = ["deepseek_v3", "gpt_oss", "mixtral"].contains(&name);
        assert_eq!(said.contains("experts"), is_mixed, "{name}: {said}");
        assert!(!said.contains("kept whole"), "{name}: {said}");
    }
}

/// States that go from token to token are found in every layer that has them, whose keys are not repeated.
#[test]
fn recurrences_are_found_in_every_layer() {
    for (name, expected) in [("mamba2", "2 selective scan"), ("qwen3_next", "3 gated delta rule")] {
        let config = root().join("tests/cases/models").join(name).join("config.json");
        let how = ["--dim", "batch=2", "--dim", "sequence=9", "--dump-after", "raise"];
        let said = works(&[&["import", config.to_str().unwrap()], &how[..]].concat());
        assert!(said.contains(expected), "{name}: {said}");
        let heads = said.lines().find(|it| it.contains("= selective_scan") || it.contains("= gated_delta"));
        let keys = heads.unwrap().split_whitespace().skip_while(|it| *it != "=").nth(3).unwrap();
        let shape = said.lines().find(|it| it.trim_start().starts_with(&format!("{keys} = "))).unwrap();
        assert!(shape.contains(": f32[2,9,2,6]"), "{name}: {shape}");
    }
}

/// The same of numbers of 16 bits, with a cache: conversions do not hide what is there.
#[test]
fn narrow_models_are_understood_as_wide_ones() {
    cases().par_iter().for_each(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let folder = Folder::new(&format!("models-narrow-{name}"));
        let (config, model) = (path.join("config.json"), folder.path("model.onnx"));
        // A model of states alone has no cache that grows.
        let past = if name == "mamba2" { "" } else { " --dim past_length=7" };
        for (of, sizes) in [
            ("loss", "--dim batch=2 --dim sequence=9"),
            ("decode", &format!("--dim batch=2 --dim sequence=2 --dim total_length=9{past}")),
        ] {
            let found = |dtype: &str| -> String {
                let config = config.to_str().unwrap();
                works(&["model", "--config", config, "--for", of, "--dtype", dtype, "-o", &model]);
                let sizes: Vec<&str> = sizes.split(' ').collect();
                let said = works(&[&["import", &model][..], &sizes].concat());
                assert!(!said.contains("kept whole"), "{name}: {said}");
                let lines = said.lines().filter(|it| it.starts_with("found") || it.starts_with("attention"));
                lines.collect::<Vec<_>>().join("; ")
            };
            let wide = found("f32");
            assert!(wide.contains("causal") || wide.contains("2 selective scan"), "{name}: {wide}");
            assert_eq!([found("bf16"), found("f16")], [wide.clone(), wide], "{name} for {of}");
        }
    });
}

/// What is planned of a configuration is what is written of it.
#[test]
fn a_configuration_is_planned_as_its_model_is() {
    let folder = Folder::new("models-planned");
    let config = root().join("tests/cases/models/llama/config.json");
    let config = config.to_str().unwrap();
    for (of, sizes) in [
        ("forward", "--dim batch=2 --dim sequence=8"),
        ("loss", "--dim batch=2 --dim sequence=8 --mode train --loss loss"),
        ("decode", "--mode generate --batch 2 --context 12 --prompt 4"),
    ] {
        let (model, plans) = (folder.path(&format!("{of}.onnx")), ["a", "b", "c"].map(|it| folder.path(it)));
        works(&["model", "--config", config, "--for", of, "-o", &model]);
        for (given, plan) in [vec![model.as_str()], vec![config], vec!["--config", config]].iter().zip(&plans)
        {
            let how = ["--machine", "cpu-2x", "--mesh", "2", "-o", plan];
            works(&[&["plan"], &given[..], &how[..], &sizes.split(' ').collect::<Vec<_>>()].concat());
            // The model is found again by what the plan says of it.
            works(&["check", plan, "--quiet"]);
            works(&["explain", plan, "--quiet"]);
        }
        let [written, direct, again] = plans.map(|it| fs::read_to_string(it).unwrap());
        assert!(direct == again, "{of}");
        let same = written.replace(&model, config);
        let other = same.lines().zip(direct.lines()).find(|(one, other)| {
            one != other && !one.contains("\"checksum\"") && !one.contains("\"derivation\"")
        });
        assert!(other.is_none() && same.lines().count() == direct.lines().count(), "{of}: {other:?}");
    }
}

/// A configuration, and the refusal that is expected of `model`, with exit code 2.
fn refused(key: &str, value: &str, expected: &str) {
    let folder = Folder::new(&format!("models-refused-{key}-{}", value.len()));
    let text = fs::read_to_string(root().join("tests/cases/models/llama/config.json")).unwrap();
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    object.insert(key.to_owned(), serde_json::from_str(value).unwrap());
    let (config, model) = (folder.path("config.json"), folder.path("model.onnx"));
    fs::write(&config, serde_json::to_string(&object).unwrap()).unwrap();
    for arguments in [
        vec!["model", "--config", &config, "-o", &model],
        vec!["plan", &config, "--machine", "cpu-2x", "--dim", "batch=1", "--dim", "sequence=4", "-o", &model],
    ] {
        let left = shardloom(&arguments);
        assert_eq!(left.code, 2, "{}", left.err);
        assert!(left.err.contains(&config) && left.err.contains(expected), "{}", left.err);
        assert!(!Path::new(&model).exists());
    }
}

#[test]
fn what_a_configuration_says_and_is_not_known_is_refused() {
    for (key, value, expected) in [
        ("model_type", "\"unheard_of\"", "`model_type` is \"unheard_of\", expected one of deepseek_v2, "),
        ("model_type", "\"mamba\"", "`model_type` is \"mamba\", whose scan has other projections"),
        ("hidden_act", "\"swiglu_of_theirs\"", "`hidden_act` is \"swiglu_of_theirs\", expected silu, "),
        (
            "rope_scaling",
            "{\"rope_type\":\"spiral\"}",
            "`rope_scaling.rope_type` is \"spiral\", expected default, ",
        ),
        ("rope_scaling", "{\"type\":\"linear\"}", "`rope_scaling.factor` is missing, expected a number"),
        (
            "rope_scaling",
            "{\"type\":\"linear\",\"factor\":2,\"by\":3}",
            "`rope_scaling.by` is 3: what that changes",
        ),
        (
            "logit_scale",
            "0.5",
            "`logit_scale` is 0.5: what that changes in a model of type `llama` is not known",
        ),
        ("num_attention_heads", "0", "`num_attention_heads` is 0, expected a whole number above 0"),
        ("num_key_value_heads", "3", "`num_key_value_heads` is 3, expected a divisor of the 4 heads"),
        ("head_dim", "5", "`head_dim` is 5, expected an even number above 0"),
        ("torch_dtype", "\"int4\"", "`torch_dtype` is \"int4\", expected float32, bfloat16 or float16"),
        ("layer_types", "[\"full_attention\"]", "expected 2 types, one for each layer"),
        ("hidden_size", "\"wide\"", "`hidden_size` is \"wide\", expected a whole number above 0"),
    ] {
        refused(key, value, expected);
    }
}

/// Of a configuration nothing is predicted: it says no setup.
#[test]
fn a_configuration_is_no_setup() {
    let config = root().join("tests/configs/llama3_8b.json");
    let left = shardloom(&["predict", "--config", config.to_str().unwrap()]);
    assert_eq!(left.code, 2);
    assert!(left.err.contains("is the configuration of a model, expected a setup in TOML"), "{}", left.err);
}

/// A setup may name a configuration: its sizes count where the setup says no others.
#[test]
fn a_setup_takes_sizes_from_a_configuration() {
    let folder = Folder::new("models-setup");
    let of_run = "machine = \"h100-80g\"\nseq_length = 4096\nworld_size = 8\nglobal_batch_size = 8\n\
                  zero_stage = 1\n";
    let sizes = "num_layers = 32\nhidden_size = 4096\nnum_attention_heads = 32\nnum_query_groups = 8\n\
                 ffn_hidden_size = 14336\nswiglu = true\nvocab_size = 128256\nkv_channels = 128\n\
                 untie_embeddings_and_output_weights = true\n";
    std::fs::copy(root().join("tests/configs/llama3_8b.json"), folder.path("config.json")).unwrap();
    let priced = |name: &str, text: String| {
        let path = folder.path(name);
        std::fs::write(&path, text).unwrap();
        shardloom(&["predict", "--config", &path, "--json"])
    };
    let of = "model_config = \"config.json\"\n";
    let stated = priced("stated.toml", format!("{of_run}{sizes}"));
    let named = priced("named.toml", format!("{of_run}{of}"));
    assert!(named.code == 0 && named.out == stated.out, "{} {}", named.err, stated.err);
    let other = priced("other.toml", format!("{of_run}{of}num_layers = 16\n"));
    assert!(other.code == 0 && other.out != stated.out, "{}", other.err);
    let missing = priced("missing.toml", format!("{of_run}model_config = \"none.json\"\n"));
    assert!(missing.code == 2 && missing.err.contains("none.json"), "{} {}", missing.code, missing.err);
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let folder = Folder::new("models-weights");
    let config = root().join("tests/cases/models/llama/config.json");
    let mut all: Vec<_> =
        parameters(&config).iter().map(|it| (it.name.clone(), it.shape.clone(), made(it))).collect();
    let (weights, model) = (folder.path("w.safetensors"), folder.path("model.onnx"));
    let config = config.to_str().unwrap();
    let refusal = |model: &str| {
        let left = shardloom(&["model", "--config", config, "--weights", &weights, "-o", model]);
        assert_eq!(left.code, 2, "{}", left.err);
        left.err
    };
    let (name, shape, _) = &mut all[3];
    shape.reverse();
    shape.push(1);
    let expected = format!("`{name}` is f32");
    write_weights(&weights, &all);
    let said = refusal(&model);
    assert!(said.contains(&expected) && said.contains("expected f32"), "{said}");
    let gone = all.remove(3).0;
    write_weights(&weights, &all);
    let said = refusal(&model);
    assert!(said.contains(&format!("there is no weight `{gone}`")), "{said}");
    let elsewhere = Folder::new("models-elsewhere");
    let said = refusal(&elsewhere.path("model.onnx"));
    assert!(said.contains("where the model is written: write it beside"), "{said}");
}
