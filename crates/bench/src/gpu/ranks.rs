//! Plans on several ranks of one GPU against one rank on a processor: what they compute, and what they learn.

mod around; // products in time steps
mod training; // steps of training
mod oracle; // steps of training that PyTorch made

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::Device;
use driver::compile::{self, Bound, Use};
use driver::pipeline::cluster::Pins;
use driver::pipeline::{self, Target};
use files::Failure;
use files::folder::Folder;
use files::model_file::ModelFile;
use files::{inputs, machine};
use kernels::Array;
use launch::{Nobody, gpu};
use model_zoo::folder::Writer;
use model_zoo::gpt2::{self, Size, Start};
use planner_ir::Mesh;
use rewrite::Steps;
use run::Session;

use super::equal::apart;
use super::{Given, Row, Section};

const SECTION: Section = Section {
    name: "ranks on the GPU against one on a processor",
    beside: "what one rank on a processor makes in three steps, outputs or losses and trained parameters, and what \
             lies beside a model; all have to be right",
};

/// On which meshes.
const MESHES: [&[u64]; 5] = [&[1], &[2], &[4], &[8], &[2, 2]];

/// Plans of the model that is written for this in which blocks of its products rotate over a square of ranks, or
/// are streamed along its rows and columns.
///
/// Source: Cannon, "A Cellular Computer to Implement the Kalman Filter Algorithm", 1969; van de Geijn and Watts,
/// "SUMMA: Scalable Universal Matrix Multiplication Algorithm", 1997.
const PINNED: [(&str, &str); 2] = [
    ("products over a square of 2x2 ranks", "*Reshape*=2 steps [-,a,(a+b+@t:2),b]"),
    ("products streamed over 2x2 ranks", "*Reshape*=2 steps [-,a,(@t:2),b] streams a,b"),
];

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
    for (number, (name, path, bound)) in models.into_iter().enumerate() {
        (given.say)(format!("{name}: one rank on a processor").into());
        let model = match Model::open(&path, &bound) {
            Ok(model) => model,
            Err(error) => {
                rows.push(Row::new(&SECTION, name).left_out(error));
                continue;
            }
        };
        let pinned =
            PINNED.map(|(what, pin)| Manner { what: what.to_owned(), mesh: &[2, 2], pin: Some(pin) });
        // Only of the model that is written it is known what its products are called.
        let pinned = pinned.into_iter().filter(|_| number == 0);
        for manner in MESHES.map(Manner::cheapest).into_iter().chain(pinned) {
            (given.say)(format!("{name}, {}", manner.what).into());
            let row = Row::new(&SECTION, format!("{name}, {}", manner.what));
            rows.push(match model.apart(given, &manner) {
                Ok(apart) => row.apart(apart, model.most),
                Err(error) => row.failed(error),
            });
        }
    }
    let or_why = |what: &str, rows: Result<Vec<Row>, Failure>| {
        rows.unwrap_or_else(|error| vec![Row::new(&SECTION, what).failed(error)])
    };
    rows.extend(or_why("a GPT-2 of 2 layers, trained", training::rows(given)));
    if let Some(folder) = &given.options.models {
        rows.extend(or_why("what PyTorch trained", oracle::rows(given, folder)));
    }
    Ok(rows)
}

/// How a model is planned.
struct Manner {
    what: String,
    mesh: &'static [u64],
    /// How some operations are computed; else all as is cheapest.
    pin: Option<&'static str>,
}

impl Manner {
    fn cheapest(mesh: &'static [u64]) -> Self {
        let ranks: u64 = mesh.iter().product();
        let grid = if mesh.len() > 1 { " in a grid" } else { "" };
        Self { what: format!("{ranks} ranks{grid}"), mesh, pin: None }
    }
}

/// What a model is given that has no inputs beside it.
fn given_dims() -> Bound {
    Bound { dims: DIMS.map(|(name, size)| (name.to_owned(), size)).to_vec(), inputs: None }
}

/// What beside a model has its inputs, and what comes of them.
const ORACLE: &str = "io0.npz";

/// The models in the folders of a folder, by their names, and what they are given.
fn found(folder: &Path) -> Result<Vec<(String, PathBuf, Bound)>, Failure> {
    let failed = |error: std::io::Error| Failure::file(folder, format!("cannot be read: {error}"));
    let mut models = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path().join("model.onnx");
        if path.is_file() {
            let inputs = Some(path.with_file_name(ORACLE)).filter(|it| it.is_file());
            let name = entry.file_name().to_string_lossy().into_owned();
            let bound = match inputs {
                Some(_) => Bound { dims: Vec::new(), inputs },
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
    fn open(path: &Path, bound: &Bound) -> Result<Self, Failure> {
        let imported = compile::imported((path, Use::Forward), bound, None, &mut |_, _| {}, &Nobody)?;
        let prepared = pipeline::prepare(&imported.graph, &mut |_, _| {})?;
        let narrow = |type_: &planner_ir::Type| type_.dtype.is_float() && type_.dtype.bytes() < 4;
        let most =
            if imported.graph.values.iter().any(|it| narrow(&it.type_)) { APART_NARROW } else { APART };
        let ignored: Vec<&str> = imported.file.model.inputs().iter().map(|it| it.name.as_str()).collect();
        let given = match &imported.given {
            None => inputs::made(&imported.graph, 0),
            Some(it) => it.fitting(&imported.graph, &imported.controls, &ignored)?,
        };
        let oracle = imported.given.iter().flat_map(|it| it.outputs.keys().map(move |name| (name, it)));
        let oracle = oracle.map(|(name, it)| Ok((name.clone(), it.output(name)?)));
        let oracle = oracle.collect::<Result<BTreeMap<_, _>, Failure>>()?;
        let (file, header) = (imported.file, imported.header);
        let mut model = Self { file, prepared, header, given, expected: Vec::new(), most };
        let plan = model.plan(&Manner::cheapest(&[1]))?;
        let programs = pipeline::lower(&plan, &mut |_, _| {})?;
        let mut session = Session::new(programs, &model.file).map_err(failed)?;
        let own = session.step(&model.given).map_err(failed)?.outputs;
        model.expected = vec![own, oracle];
        Ok(model)
    }

    fn plan(&self, manner: &Manner) -> Result<plan::Plan, Failure> {
        let mesh = Mesh::of_sizes(manner.mesh);
        let machine = machine::named(&format!("cpu-{}x", mesh.devices()), None)?;
        let target = Target::of(&machine, &mesh);
        let Some(pin) = manner.pin else {
            return pipeline::plan(&self.prepared, &self.header, &target, &mut |_, _| {});
        };
        let fixed = Pins::parse(&[pin.to_owned()])?.of_operations()?;
        let target = Target { steps: Steps::Offered, ..target };
        pipeline::plan(&self.prepared.clone().fixing(fixed)?, &self.header, &target, &mut |_, _| {})
    }

    /// How far outputs of ranks are from what is expected, in the worst of three steps: as they are issued,
    /// captured, and issued again.
    fn apart(&self, given: &Given<'_>, manner: &Manner) -> Result<f64, Failure> {
        let plan = self.plan(manner)?;
        let programs = pipeline::lower(&plan, &mut |_, _| {})?;
        let device = Device::together(&gpu::settings(&given.options.cuda), &programs)
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
