//! What training writes: parameters that a file has twice, and nothing that is not finite.

use std::fs;
use std::path::PathBuf;

use files::{arrays, model_file};
use kernels::Array;
use planner_ir::Op;

use super::cases::{self, Case};

/// A folder of its own, gone afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shardloom-it-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The exit code of a command, and what it says.
fn call(arguments: &[&str]) -> (u8, String) {
    let arguments = ["shardloom".to_owned()].into_iter().chain(crate::cli::forced(arguments));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = shardloom::main_with(arguments, &mut out, &mut err);
    out.extend(err);
    (code, String::from_utf8(out).unwrap())
}

/// The plan and the data of a model of the oracles, as files.
fn planned(name: &str, folder: &Folder) -> Option<(Case, String, String)> {
    let path = cases::all().into_iter().find(|path| path.ends_with(name))?;
    let case = Case::load(&path);
    let (data, plan) = (folder.path("data.safetensors"), folder.path("plan.json"));
    arrays::write(std::path::Path::new(&data), &case.batch(0)).unwrap();
    let model = path.display().to_string();
    let options =
        ["--mode", "train", "--loss", "loss", "--machine", "cpu-2x", "--inputs", &data, "-o", &plan];
    let (code, said) = call(&[&["plan", &model][..], &options].concat());
    assert_eq!(code, 0, "{said}");
    Some((case, plan, data))
}

#[test]
fn both_copies_of_a_tied_parameter_are_written() {
    let folder = Folder::new("tied");
    let Some((case, plan, data)) = planned("gpt2/dynamo.onnx", &folder) else { return };
    let (model, weights) = (folder.path("out.onnx"), folder.path("weights.safetensors"));
    let options = ["--steps", "2", "--lr", "1e-2", "--export", &model, "--weights", &weights];
    let (code, said) = call(&[&["train", &plan, "--data", &data][..], &options].concat());
    assert_eq!(code, 0, "{said}");
    let after = model_file::open(std::path::Path::new(&model)).unwrap();
    let written = arrays::read(std::path::Path::new(&weights)).unwrap();
    let of = |parameter: &str| -> Vec<&String> {
        case.parameters.iter().filter(|(_, it)| it.0 == parameter).map(|(name, _)| name).collect()
    };
    let names = of("model.transformer.wte.weight");
    assert_eq!(names.len(), 2, "{names:?}");
    let is_matrix = |name: &&String| case.parameters[name.as_str()].1 == "identity";
    let straight = names.iter().copied().find(is_matrix).unwrap();
    let exchanged = names.iter().copied().find(|name| !is_matrix(name)).unwrap();
    let transpose = |it: &Array| {
        let op = Op::Transpose { permutation: vec![1, 0] };
        kernels::evaluate(&op, &[it]).unwrap().remove(0)
    };
    let trained = run::whole(&after, straight).unwrap();
    assert_ne!(trained, run::whole(&case.file, straight).unwrap());
    assert_eq!(run::whole(&after, exchanged).unwrap(), transpose(&trained));
    assert_eq!(written[exchanged], transpose(&written[straight]));
}

#[test]
fn states_that_are_not_finite_are_not_written() {
    let folder = Folder::new("infinite");
    let Some((_, plan, data)) = planned("gpt2/legacy.onnx", &folder) else { return };
    let (weights, checkpoints) = (folder.path("weights.safetensors"), folder.path("checkpoints"));
    let options = ["--weights", &weights, "--checkpoint", &checkpoints, "--every", "1"];
    let train = ["train", &plan, "--data", &data, "--steps", "1", "--lr", "1e38"];
    let (code, said) = call(&[&train[..], &options].concat());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("nothing of this step is written"), "{said}");
    assert!(!fs::exists(&weights).unwrap());
    // Nothing but what keeps a second job out.
    let left = fs::read_dir(&checkpoints).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), [".lock"]);
}
