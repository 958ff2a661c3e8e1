//! Steps of training that PyTorch made, on a GPU that is not there.

use std::path::Path;

use files::folder::Folder;
use launch::arguments::CudaArguments;

use super::rows;
use crate::emulated::{Emulated, emulated};
use crate::gpu::Given;
use crate::gpu::options::OnGpu;
use crate::gpu::row::Verdict;
use crate::outside::root;

/// For each row whether it is right.
fn verdicts(gpu: &Emulated, folder: &Path) -> Vec<Option<Verdict>> {
    let [libraries, cache] = [&gpu.libraries, &gpu.cache].map(|it| Some(it.clone()));
    let options = OnGpu {
        only: vec![],
        quick: true,
        like: None,
        machine: None,
        calibrated: None,
        models: Some(folder.to_owned()),
        python: String::new(),
        sanitizer: None,
        cuda: CudaArguments { libraries, cache },
        ledger: None,
    };
    let machine = files::machine::named("h100-80g-8x", None).unwrap();
    let given = Given { options: &options, machine, command: String::new(), say: &|_| {} };
    let rows = rows(&given, folder).unwrap();
    rows.iter().for_each(|row| println!("{}: {:?} {:?}", row.what, row.verdict, row.figures));
    rows.iter().map(|row| row.verdict).collect()
}

#[test]
fn ranks_learn_what_pytorch_did() {
    let from = root().join("tests/models/training/gpt2");
    let folder = Folder::new("gpu-oracle", None).unwrap();
    let case = folder.path.join("gpt2");
    std::fs::create_dir_all(&case).unwrap();
    for name in ["legacy.onnx", "oracle.safetensors"] {
        std::fs::copy(from.join(name), case.join(name)).unwrap();
    }
    let oracle = std::fs::read_to_string(from.join("oracle.json")).unwrap();
    std::fs::write(case.join("oracle.json"), &oracle).unwrap();
    let gpu = emulated();
    assert_eq!(verdicts(&gpu, &folder.path), [Some(Verdict::Right); 3]);
    // Another loss of the second step.
    let other = oracle.replacen("6.9286", "6.8286", 1);
    assert_ne!(oracle, other);
    std::fs::write(case.join("oracle.json"), other).unwrap();
    assert_eq!(verdicts(&gpu, &folder.path), [Some(Verdict::Wrong); 3]);
    // Nothing of a graph of that name.
    std::fs::write(case.join("oracle.json"), oracle.replace("legacy.onnx", "other.onnx")).unwrap();
    assert_eq!(verdicts(&gpu, &folder.path), [None]);
}
