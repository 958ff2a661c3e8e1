//! Plans on several ranks of one GPU against one rank on a processor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::Device;
use import::Bindings;
use kernels::Array;
use planner_ir::Mesh;
use run::Session;

use super::equal::apart;
use super::{Given, Row};
use crate::bench::folder::Folder;
use crate::bench::gpt2::{self, Size, Start};
use crate::bench::onnx::Writer;
use crate::failure::Failure;
use crate::model_file::{self, ModelFile};
use crate::pipeline::{self, Target};
use crate::{gpu, inputs, machine};

/// On how many ranks.
const RANKS: [u64; 4] = [1, 2, 4, 8];

/// The model that is written for this: everything in it falls into 8 parts.
const SIZE: Size = Size { layers: 2, hidden: 64, heads: 8, vocabulary: 208, positions: 64 };

/// What is bound to dimensions that have names.
const DIMS: [(&str, u64); 2] = [("batch", 8), ("sequence", 32)];

/// How far outputs may be from the reference, as a part of the largest number, in 32 bits and in fewer.
const APART: f64 = 1e-3;
const APART_NARROW: f64 = 3e-2;

/// A row for each model and number of ranks.
pub(super) fn rows(given: &Given<'_>) -> Result<Vec<Row>, Failure> {
    let folder = Folder::new("gpu-ranks", None)?;
    let written = gpt2::write(Writer::small(&folder.path), SIZE, Start::Alike, 0)
        .map_err(|error| Failure::unwritten(&folder.path, &error))?;
    let mut models = vec![("a GPT-2 of 2 layers".to_owned(), written)];
    if let Some(folder) = &given.options.models {
        models.extend(found(folder)?);
    }
    let mut rows = Vec::new();
    for (name, path) in models {
        (given.say)(format!("{name}: one rank on a processor"));
        match Model::open(&path) {
            Ok(model) => rows.extend(RANKS.map(|ranks| {
                (given.say)(format!("{name} on {ranks} ranks"));
                let row =
                    Row::new("ranks on the GPU against one on a processor", format!("{name}, {ranks} ranks"));
                match model.apart(given, ranks) {
                    Ok(apart) => row.apart(apart, model.most),
                    Err(error) => row.left_out(error),
                }
            })),
            Err(error) => {
                rows.push(Row::new("ranks on the GPU against one on a processor", name).left_out(error))
            }
        }
    }
    Ok(rows)
}

/// The models in the folders of a folder, by their names.
fn found(folder: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let failed = |error: std::io::Error| Failure::file(folder, format!("cannot be read: {error}"));
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path().join("model.onnx");
        if path.is_file() {
            models.push((entry.file_name().to_string_lossy().into_owned(), path));
        }
    }
    models.sort();
    Ok(models)
}

/// A model with what one rank on a processor makes of it.
struct Model {
    file: ModelFile,
    prepared: pipeline::Prepared,
    header: plan::ModelFile,
    given: BTreeMap<String, Array>,
    expected: BTreeMap<String, Array>,
    most: f64,
}

impl Model {
    fn open(path: &Path) -> Result<Self, Failure> {
        let file = model_file::open(path)?;
        let dims: Vec<(String, u64)> = DIMS.map(|(name, size)| (name.to_owned(), size)).to_vec();
        let bindings = Bindings { dims: dims.iter().cloned().collect(), ..Bindings::default() };
        let imported =
            pipeline::import(&file, &bindings, &mut |_, _| {}).map_err(|error| Failure::file(path, error))?;
        let prepared = pipeline::prepare(&imported, &mut |_, _| {})?;
        let header = plan::ModelFile { path: path.display().to_string(), sha256: file.sha256.clone(), dims };
        let narrow = |type_: &planner_ir::Type| type_.dtype.is_float() && type_.dtype.bytes() < 4;
        let most = if imported.values.iter().any(|it| narrow(&it.type_)) { APART_NARROW } else { APART };
        let mut model = Self {
            file,
            prepared,
            header,
            given: inputs::made(&imported, 0),
            expected: BTreeMap::new(),
            most,
        };
        let plan = model.plan(1)?;
        let programs = pipeline::lower(&plan, &mut |_, _| {})?;
        let mut session = Session::new(programs, &model.file).map_err(failed)?;
        model.expected = session.step(&model.given).map_err(failed)?.outputs;
        Ok(model)
    }

    fn plan(&self, ranks: u64) -> Result<plan::Plan, Failure> {
        let machine = machine::named(&format!("cpu-{ranks}x"), None)?;
        let mesh = Mesh::of_sizes(&[ranks]);
        let target = Target::of(&machine, &mesh);
        pipeline::plan(&self.prepared, &self.header, &target, &mut |_, _| {})
    }

    /// How far outputs of so many ranks are from those of one, in the worst of three steps: as they are issued,
    /// captured, and issued again.
    fn apart(&self, given: &Given<'_>, ranks: u64) -> Result<f64, Failure> {
        let plan = self.plan(ranks)?;
        let programs = pipeline::lower(&plan, &mut |_, _| {})?;
        let device = Device::together(&gpu::settings(&given.on), &programs)
            .map_err(|error| Failure::Input(error.to_string()))?;
        let mut session = Session::on(Box::new(device), None, programs, &self.file).map_err(failed)?;
        let mut worst = 0.0_f64;
        for _ in 0..3 {
            let outputs = session.step(&self.given).map_err(failed)?.outputs;
            for (name, expected) in &self.expected {
                worst = worst.max(outputs.get(name).map_or(f64::INFINITY, |found| apart(found, expected)));
            }
        }
        Ok(worst)
    }
}

fn failed(error: run::RunError) -> Failure {
    Failure::input("run", error)
}
