//! Plans on several ranks of one GPU against one rank on a processor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::Device;
use kernels::Array;
use planner_ir::Mesh;
use run::Session;

use super::equal::apart;
use super::{Given, Row};
use crate::arguments::ModelArguments;
use crate::bench::folder::Folder;
use crate::bench::gpt2::{self, Size, Start};
use crate::bench::onnx::Writer;
use crate::failure::Failure;
use crate::model_file::ModelFile;
use crate::pipeline::{self, Target};
use crate::progress::{Progress, Wish};
use crate::{compile, given, gpu, inputs, machine};

/// On which meshes.
const MESHES: [&[u64]; 5] = [&[1], &[2], &[4], &[8], &[2, 2]];

/// The model that is written for this: everything in it falls into 8 parts.
const SIZE: Size = Size { layers: 2, hidden: 64, heads: 8, vocabulary: 208, positions: 64 };

/// What is bound to dimensions that have names, where no inputs say it.
const DIMS: [(&str, u64); 2] = [("batch", 8), ("sequence", 32)];

/// How far outputs may be from the reference, as a part of the largest number, in 32 bits and in fewer.
const APART: f64 = 1e-3;
const APART_NARROW: f64 = 3e-2;

/// A row for each model and number of ranks.
pub(super) fn rows(given: &Given<'_>) -> Result<Vec<Row>, Failure> {
    let folder = Folder::new("gpu-ranks", None)?;
    let written = gpt2::write(Writer::small(&folder.path), SIZE, Start::Alike, 0)
        .map_err(|error| Failure::unwritten(&folder.path, &error))?;
    let mut models = vec![("a GPT-2 of 2 layers".to_owned(), written, given_dims())];
    if let Some(folder) = &given.options.models {
        models.extend(found(folder)?);
    }
    let mut rows = Vec::new();
    for (name, path, bound) in models {
        (given.say)(format!("{name}: one rank on a processor"));
        match Model::open(&path, &bound) {
            Ok(model) => rows.extend(MESHES.map(|sizes| {
                let mesh = Mesh::of_sizes(sizes);
                let ranks = match sizes {
                    [ranks] => format!("{ranks} ranks"),
                    _ => format!("{} ranks in a grid", mesh.devices()),
                };
                (given.say)(format!("{name} on {ranks}"));
                let row = Row::new("ranks on the GPU against one on a processor", format!("{name}, {ranks}"));
                match model.apart(given, &mesh) {
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

/// What a model is given that has no inputs beside it.
fn given_dims() -> ModelArguments {
    ModelArguments { dims: DIMS.map(|(name, size)| (name.to_owned(), size)).to_vec(), inputs: None }
}

/// What beside a model has its inputs, and what comes of them.
const ORACLE: &str = "io0.npz";

/// The models in the folders of a folder, by their names, and what they are given.
fn found(folder: &Path) -> Result<Vec<(String, PathBuf, ModelArguments)>, Failure> {
    let failed = |error: std::io::Error| Failure::file(folder, format!("cannot be read: {error}"));
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path().join("model.onnx");
        if path.is_file() {
            let inputs = Some(path.with_file_name(ORACLE)).filter(|it| it.is_file());
            let name = entry.file_name().to_string_lossy().into_owned();
            let bound = match inputs {
                Some(_) => ModelArguments { dims: Vec::new(), inputs },
                None => given_dims(),
            };
            models.push((name, path, bound));
        }
    }
    models.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(models)
}

/// A model with what one rank on a processor makes of it, and what others say comes of it.
struct Model {
    file: ModelFile,
    prepared: pipeline::Prepared,
    header: plan::ModelFile,
    given: BTreeMap<String, Array>,
    expected: Vec<BTreeMap<String, Array>>,
    most: f64,
}

impl Model {
    fn open(path: &Path, bound: &ModelArguments) -> Result<Self, Failure> {
        let imported = compile::imported(path, bound, &mut |_, _| {}, &Progress::new(Wish::Hidden))?;
        let prepared = pipeline::prepare(&imported.graph, &mut |_, _| {})?;
        let narrow = |type_: &planner_ir::Type| type_.dtype.is_float() && type_.dtype.bytes() < 4;
        let most =
            if imported.graph.values.iter().any(|it| narrow(&it.type_)) { APART_NARROW } else { APART };
        let ignored: Vec<&str> = imported.file.model.inputs().iter().map(|it| it.name.as_str()).collect();
        let given = match &imported.given {
            None => inputs::made(&imported.graph, 0),
            Some(it) => given::fitting(&imported.graph, &it.inputs, &ignored)
                .map_err(|error| Failure::file(path, error))?,
        };
        let oracle = imported.given.map(|it| it.outputs).unwrap_or_default();
        let (file, header) = (imported.file, imported.header);
        let mut model = Self { file, prepared, header, given, expected: Vec::new(), most };
        let plan = model.plan(&Mesh::of_sizes(&[1]))?;
        let programs = pipeline::lower(&plan, &mut |_, _| {})?;
        let mut session = Session::new(programs, &model.file).map_err(failed)?;
        let own = session.step(&model.given).map_err(failed)?.outputs;
        model.expected = vec![own, oracle];
        Ok(model)
    }

    fn plan(&self, mesh: &Mesh) -> Result<plan::Plan, Failure> {
        let machine = machine::named(&format!("cpu-{}x", mesh.devices()), None)?;
        let target = Target::of(&machine, mesh);
        pipeline::plan(&self.prepared, &self.header, &target, &mut |_, _| {})
    }

    /// How far outputs of the ranks of a mesh are from what is expected, in the worst of three steps: as they
    /// are issued, captured, and issued again.
    fn apart(&self, given: &Given<'_>, mesh: &Mesh) -> Result<f64, Failure> {
        let plan = self.plan(mesh)?;
        let programs = pipeline::lower(&plan, &mut |_, _| {})?;
        let device = Device::together(&gpu::settings(&given.on), &programs)
            .map_err(|error| Failure::Input(error.to_string()))?;
        let mut session = Session::on(Box::new(device), None, programs, &self.file).map_err(failed)?;
        let mut worst = 0.0_f64;
        for _ in 0..3 {
            let outputs = session.step(&self.given).map_err(failed)?.outputs;
            for (name, expected) in self.expected.iter().flatten() {
                worst = worst.max(outputs.get(name).map_or(f64::INFINITY, |found| apart(found, expected)));
            }
        }
        Ok(worst)
    }
}

fn failed(error: run::RunError) -> Failure {
    Failure::input("run", error)
}
