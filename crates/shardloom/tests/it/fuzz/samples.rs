//! What is changed: real models and single operators, plans, machine files, a checkpoint, commands.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use files::arrays;
use serde_json::Value;

use super::child::run;

/// How far results on other ranks may be, in parts of the largest.
const TOLERANCE: f64 = 2e-2;

/// A model.
pub(super) struct Model {
    pub(super) bytes: Vec<u8>,
    /// A file of its inputs, if it has symbolic dimensions.
    pub(super) inputs: Option<String>,
    /// What it is trained by.
    pub(super) loss: Option<&'static str>,
}

/// All of them.
pub(super) struct Samples {
    pub(super) models: Vec<Model>,
    pub(super) nodes: Vec<Model>,
    /// Plans, and the models that they are of.
    pub(super) plans: Vec<(Value, String)>,
    pub(super) machines: Vec<Value>,
    /// The path of a small model.
    pub(super) small: String,
    pub(super) checkpoint: Checkpoint,
    pub(super) commands: Vec<Vec<String>>,
}

/// A checkpoint after the first of two steps.
pub(super) struct Checkpoint {
    folder: PathBuf,
    plan: String,
    data: String,
    /// What comes of the second step.
    pub(super) weights: Vec<u8>,
}

/// The models of the repository that are small enough, and what their losses are.
const MODELS: [(&str, Option<&str>); 7] = [
    ("bert-fill-optimum0.1-op18-ortopt", None),
    ("gpt2-eager-legacy2.9-op17-static", Some("cross-entropy:logits,labels")),
    ("gpt2-past-dynamo2.9-op18-dyn", None),
    ("llama-fp16-legacy2.9-op17-dyn", Some("cross-entropy:logits,labels")),
    ("llama-fwd-dynamo2.15-op23-dyn", Some("cross-entropy:logits,labels")),
    ("vit-fwd-dynamo2.9-op18-static", None),
    ("gpt2-bf16-dynamo2.9-op20-dyn", None),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn works(arguments: &[&str]) {
    let ended = run(arguments);
    assert_eq!(ended.code, Ok(0), "{arguments:?}: {}", ended.said);
}

impl Samples {
    /// All of them, made once.
    pub(super) fn get() -> &'static Self {
        static ALL: OnceLock<Samples> = OnceLock::new();
        ALL.get_or_init(|| {
            let folder = std::env::temp_dir().join(format!("shardloom-fuzz-samples-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self::made(&folder)
        })
    }

    fn made(folder: &Path) -> Self {
        let models: Vec<Model> = MODELS.iter().map(|(name, loss)| real(name, *loss, folder)).collect();
        let mut nodes = single_operators();
        nodes.extend(faults());
        let small = text(&root().join("tests/models").join(MODELS[1].0).join("model.onnx"));
        let machines = ["h100-80g", "cpu", "a100-80g-pairs"].map(|name| {
            let path = root().join(format!("cost-models/machines/{name}.json"));
            serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
        });
        let plan = |name: &str, how: &[&str]| {
            let path = text(&folder.join(name));
            works(&[&["-q", "plan", &small, "-o", &path], how].concat());
            (serde_json::from_slice(&fs::read(path).unwrap()).unwrap(), small.clone())
        };
        let loss = ["--loss", "cross-entropy:logits,labels"];
        let plans = vec![
            plan("two.json", &["--machine", "cpu-2x", "--mesh", "2"]),
            plan("four.json", &["--machine", "cpu-4x", "--mesh", "2x2"]),
            plan(
                "train.json",
                &[&["--machine", "cpu-2x", "--mesh", "2", "--mode", "train"][..], &loss].concat(),
            ),
        ];
        let two = text(&folder.join("two.json"));
        let commands = commands(&small, &two);
        let checkpoint = Checkpoint::made(folder);
        Self { models, nodes, plans, machines: machines.into(), small, checkpoint, commands }
    }
}

/// A model of the repository, with its inputs without what is expected.
fn real(name: &str, loss: Option<&'static str>, folder: &Path) -> Model {
    let from = root().join("tests/models").join(name);
    let arrays = arrays::read(&from.join("io0.npz")).unwrap();
    let given: BTreeMap<_, _> = arrays.into_iter().filter(|(name, _)| name.starts_with("in/")).collect();
    let inputs = folder.join(format!("{name}.npz"));
    arrays::write(&inputs, &given).unwrap();
    Model { bytes: fs::read(from.join("model.onnx")).unwrap(), inputs: Some(text(&inputs)), loss }
}

/// The models of single operators, out of their archive.
fn single_operators() -> Vec<Model> {
    let packed = fs::read(root().join("tests/models/node/cases.tar.gz")).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let (mut rest, mut found) = (&bytes[..], Vec::new());
    // A header of 512 bytes: the name, and from 124 the size in octal digits.
    while let Some((header, after)) = rest.split_at_checked(512).filter(|(header, _)| header[0] != 0) {
        let field = |from: usize, to: usize| {
            let field = header[from..to].split(|it| *it == 0 || *it == b' ').next().unwrap();
            std::str::from_utf8(field).unwrap()
        };
        let size = usize::from_str_radix(field(124, 136), 8).unwrap();
        if field(0, 100).ends_with("model.onnx") {
            found.push(Model { bytes: after[..size].to_vec(), inputs: None, loss: None });
        }
        rest = &after[size.next_multiple_of(512)..];
    }
    assert!(found.len() > 100, "{} models", found.len());
    found
}

/// The models that were found to do harm.
fn faults() -> Vec<Model> {
    let all = files(&root().join("tests/cases/faults")).into_iter();
    let models = all.filter(|it| it.extension().is_some_and(|it| it == "onnx"));
    let small = models.map(|it| fs::read(it).unwrap()).filter(|it| it.len() < 200_000);
    small.map(|bytes| Model { bytes, inputs: None, loss: None }).collect()
}

/// The files below a folder, sorted.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all.sort();
    all
}

/// Commands that work.
fn commands(model: &str, plan: &str) -> Vec<Vec<String>> {
    let setup = text(&root().join("tests/cases/predict/llama-70b.toml"));
    let lines = [
        format!("run {model} --ranks 2 --mesh 2 --steps 1 -o OUT"),
        format!("plan {model} --machine h100-80g-4x --mesh 2x2 --memory 70GiB -o OUT"),
        format!(
            "plan {model} --machine cpu-2x --mode train --loss cross-entropy:logits,labels --microbatches 2 --clip 1 -o OUT"
        ),
        format!(
            "plan {model} --machine cpu-4x --mode train --loss cross-entropy:logits,labels --stages 2 --mesh 2 --schedule 1f1b -o OUT"
        ),
        format!("plan {model} --machine cpu-2x --pin node=[a,-] --in-time auto -o OUT"),
        format!("import {model} --json"),
        format!("check {plan} --model {model}"),
        format!("explain {plan} --alternatives"),
        format!("simulate {plan} --trace OUT"),
        format!("simulate {plan} --machine h100-80g-2x"),
        format!("diff {plan} {plan}"),
        format!("kernels {plan} --json"),
        format!("run {plan} -o OUT"),
        format!("predict --config {setup} --json"),
        "schedule 1f1b --stages 4 --micro-batches 8".to_owned(),
        "schedule interleaved --stages 4 --micro-batches 8 --svg OUT".to_owned(),
        "machines h100-80g-8x".to_owned(),
    ];
    let mut all: Vec<Vec<String>> =
        lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    let partition = ["partition", "2 steps [a,(a+b+@t:2),b]", "--mesh", "2x2", "--svg", "OUT"];
    all.push(partition.map(str::to_owned).to_vec());
    all
}

impl Checkpoint {
    fn made(folder: &Path) -> Self {
        let model = text(&root().join("tests/models/gpt2-bytes.onnx"));
        let data = text(&root().join("tests/texts/constitution.txt"));
        let plan = text(&folder.join("learns.json"));
        let dims = ["--dim", "batch=2", "--dim", "sequence=16"];
        let how = ["--machine", "cpu-1x", "--mode", "train", "--loss", "cross-entropy:logits,labels"];
        works(&[&["-q", "plan", &model, "-o", &plan][..], &dims, &how].concat());
        let mut made = Self { folder: folder.join("checkpoint"), plan, data, weights: vec![] };
        let (weights, to) = (text(&folder.join("weights.safetensors")), text(&made.folder));
        let mut steps = made.steps(&weights);
        steps.extend(["--checkpoint", &to, "--every", "1", "--keep", "2"].map(str::to_owned));
        works(&steps.iter().map(String::as_str).collect::<Vec<_>>());
        made.weights = fs::read(weights).unwrap();
        // As it was after the first step.
        let latest = made.folder.join("latest");
        let newest = fs::read_to_string(&latest).unwrap();
        fs::remove_dir_all(made.folder.join(newest.trim())).unwrap();
        fs::write(latest, newest.replace('2', "1")).unwrap();
        made
    }

    fn steps(&self, weights: &str) -> Vec<String> {
        let words = ["-q", "train", &self.plan, "--data", &self.data, "--tokens", "u8"];
        let more = ["--steps", "2", "--lr", "1e-3", "--weights", weights];
        words.into_iter().chain(more).map(str::to_owned).collect()
    }

    /// What goes on from a checkpoint.
    pub(super) fn further(&self, checkpoint: &str, weights: &str) -> Vec<String> {
        let mut words = self.steps(weights);
        words.extend(["--resume", checkpoint].map(str::to_owned));
        words
    }

    /// A copy of it in another folder.
    pub(super) fn copied(&self, to: &Path) -> PathBuf {
        let copy = to.join("checkpoint");
        for file in files(&self.folder) {
            let place = copy.join(file.strip_prefix(&self.folder).unwrap());
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(&file, place).unwrap();
        }
        copy
    }
}

/// Refuses arrays that differ.
pub(super) fn compare(found: &str, expected: &str) -> Result<(), String> {
    let [found, expected] = [found, expected].map(|path| arrays::read(Path::new(path)).unwrap());
    if !found.keys().eq(expected.keys()) {
        return Err(format!("{:?}, not {:?}", found.keys(), expected.keys()));
    }
    for (name, expected) in &expected {
        let [found, expected] = [&found[name], expected].map(|it| it.to_floats().unwrap());
        let finite = expected.iter().filter(|it| it.is_finite());
        let largest = finite.fold(1e-30_f64, |largest, it| largest.max(it.abs()));
        let is_same = |a: f64, b: f64| {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= TOLERANCE * largest
        };
        let wrong = found.iter().zip(&expected).find(|(a, b)| !is_same(**a, **b));
        if let Some((a, b)) = wrong.filter(|_| found.len() == expected.len()) {
            return Err(format!("`{name}` has {a}, not {b}"));
        }
        if found.len() != expected.len() {
            return Err(format!("`{name}` has {} elements, not {}", found.len(), expected.len()));
        }
    }
    Ok(())
}
