//! Gradients of what an oracle has gradients of: one step of plain descent.

use std::path::Path;

use super::{Case, arrays_at};
use crate::cli::works;
use crate::tidy::root;

/// The parameters after one step by `p' = p - g`, on one rank and on two.
#[test]
fn a_step_follows_the_gradients_of_transformers() {
    let case = Case::new(&root().join("tests/cases/models/gpt_oss"), "gradients");
    let model = case.model("loss");
    let before = arrays_at(Path::new(&case.folder.path("model.safetensors")));
    let data = case.folder.path("data.npz");
    let inputs = ["input_ids", "labels"];
    let given = inputs.map(|it| (it.to_owned(), case.oracle[&format!("in/{it}")].clone()));
    files::arrays::write(Path::new(&data), &given.into()).unwrap();
    let expected: Vec<(&str, Vec<f64>)> = case
        .oracle
        .iter()
        .filter_map(|(name, it)| Some((name.strip_prefix("gradient/")?, it.to_floats().unwrap())))
        .collect();
    assert!(expected.len() > 10, "{} gradients", expected.len());
    for ranks in ["1", "2"] {
        let [plan, weights] =
            ["json", "safetensors"].map(|it| case.folder.path(&format!("made-{ranks}.{it}")));
        let machine = format!("cpu-{ranks}x");
        let sizes = ["--dim", "batch=2", "--dim", "sequence=9"];
        let how =
            ["--machine", &machine, "--mode", "train", "--loss", "loss", "--optimizer", "sgd", "-o", &plan];
        works(&[&["plan", &model], &sizes[..], &how[..]].concat());
        let step = ["--steps", "1", "--lr", "1", "--weights", &weights];
        works(&[&["train", &plan, "--data", &data], &step[..]].concat());
        let after = arrays_at(Path::new(&weights));
        for (name, expected) in &expected {
            let [old, new] = [&before, &after].map(|it| it[*name].to_floats().unwrap());
            let size = expected.iter().fold(0.0_f64, |size, it| size.max(it.abs()));
            for (place, ((old, new), expected)) in old.iter().zip(&new).zip(expected).enumerate() {
                let found = old - new;
                let near = (found - expected).abs() <= 1e-4 * size + 1e-6;
                assert!(near, "{name}[{place}] on {ranks}: {found}, expected {expected}");
            }
        }
    }
}
