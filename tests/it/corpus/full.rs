//! Graphs of full size, without weights: they are imported and planned.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use cost_models::machine::shipped;
use driver::pipeline::{self, Prepared};
use files::model_file::ModelFile;
use flate2::read::GzDecoder;
use import::{Bindings, Dim};
use plan::Plan;
use planner_ir::Mesh;
use search::MachinePrices;

use super::{expect_none, faults_of};
use crate::outside;

/// What the models are planned for.
const MACHINE: &str = "h100-80g-8x";

/// Sequences in a batch.
const BATCH: u64 = 8;

/// Positions in a sequence, and before it where there is a cache.
const SEQUENCE: u64 = 1024;

/// Positions in a sequence of models that have no more.
const SHORT: (&str, u64) = ("bert", 512);

/// The size of a dimension that is called so.
fn size(model: &str, symbol: &str, index: usize) -> u64 {
    match symbol {
        _ if index == 0 => BATCH,
        _ if model.starts_with(SHORT.0) => SHORT.1,
        "total" => 2 * SEQUENCE,
        _ => SEQUENCE,
    }
}

/// The compressed models.
pub(crate) fn models() -> Vec<PathBuf> {
    outside::models("full").into_iter().map(|it| it.join("model.onnx.gz")).collect()
}

pub(crate) fn title(path: &Path) -> String {
    path.parent().and_then(Path::file_name).unwrap().to_string_lossy().into_owned()
}

/// A model as it is in its file.
pub(crate) fn unpacked(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The sizes of a model's symbols.
pub(crate) fn bound(path: &Path, model: &import::Model) -> Bindings {
    let mut bindings = Bindings::default();
    for input in model.inputs() {
        for (index, dim) in input.dims.iter().flatten().enumerate() {
            if let Dim::Symbol(symbol) = dim {
                bindings.dims.insert(symbol.clone(), size(&title(path), symbol, index));
            }
        }
    }
    bindings
}

fn prepare(path: &Path) -> Result<Prepared, String> {
    let model = import::read(unpacked(path).into()).map_err(|error| error.to_string())?;
    let bindings = bound(path, &model);
    let file = ModelFile::new(path, String::new(), model);
    let imported = pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| error.to_string())?;
    pipeline::prepare(&imported, &mut |_, _| {}).map_err(|error| error.to_string())
}

fn plan(prepared: &Prepared, mesh: &str) -> Result<Plan, String> {
    let mesh = Mesh::parse(mesh).unwrap();
    let machine = shipped::named(MACHINE).unwrap();
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let request = search::Request {
        graph: &prepared.graph,
        sections: &prepared.sections,
        mesh: &mesh,
        capacity: machine.usable_memory().0,
        prices: &prices,
        model: &plan::ModelFile { path: "model.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] },
        machine: &plan::MachineName { name: machine.full_name(), devices: machine.devices(), sha256: None },
        live: search::Live::ONE,
        steps: rewrite::Steps::Auto,
        pinned: None,
        fixed: &[],
        trail: None,
        memory: &search::counted,
        enough: &|_| false,
    };
    search::plan(&request).map_err(|error| error.to_string())
}

#[test]
fn graphs_of_full_size_are_planned() {
    let mut failures = Vec::new();
    for path in models() {
        let title = title(&path);
        failures.extend(faults_of(&title, || {
            let start = Instant::now();
            let prepared = match prepare(&path) {
                Ok(prepared) => prepared,
                Err(error) => return vec![format!("{title}: {error}")],
            };
            let prepared_in = start.elapsed();
            match plan(&prepared, "8") {
                Err(error) => vec![format!("{title}: {error}")],
                Ok(plan) => {
                    println!(
                        "{title}: prepared in {prepared_in:?}, planned in {:?}",
                        start.elapsed() - prepared_in
                    );
                    let checked = plan::check(&plan);
                    checked.err().map(|error| format!("{title}: rejected: {error}")).into_iter().collect()
                }
            }
        }));
    }
    expect_none(&failures);
}

#[test]
fn plans_do_not_depend_on_the_number_of_threads() {
    let wanted = ["gpt3_2.6b-loss-fp32", "llama2_7b-fwd-op23-bf16"];
    for path in models().iter().filter(|path| wanted.contains(&title(path).as_str())) {
        let texts = [1, 2].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| plan::json::write(&plan(&prepare(path).unwrap(), "2x4").unwrap()))
        });
        assert!(texts[0] == texts[1], "{}: two plans", title(path));
    }
}
