//! Steps of training that PyTorch made, against the same on ranks of the GPU: graphs with `oracle.json` and
//! `oracle.safetensors` beside them.
//!
//! The first has the losses of three steps (`sgd_losses`), and for each graph which parameter each initializer
//! is, and whether transposed; the other the batches (`in0/NAME`) and the parameters after the steps
//! (`sgd3/NAME`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use driver::pipeline::{self, Target};
use files::Failure;
use files::model_file::{self, ModelFile};
use files::{arrays, machine, readable};
use import::Bindings;
use kernels::Array;
use lower::Program;
use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{Mesh, Op, Optimizer, Real};
use serde_json::Value;

use super::training::{Fed, Left, farthest, internal, loss_of, on_gpu};
use super::{APART, SECTION};
use crate::gpu::{Given, Row};

/// On which meshes.
const MESHES: [&[u64]; 3] = [&[1], &[2], &[2, 2]];

/// How PyTorch stepped.
const OPTIMIZER: Optimizer = Optimizer::Momentum { momentum: Real(0.9), decay: Real(0.0) };
const LEARNING: f32 = 0.05;

/// A gradient that PyTorch's own in f32 is this far off from is noise, of which steps are made.
const NOISE: f64 = 1e-2;

/// A row for each graph and mesh.
pub(super) fn rows(given: &Given<'_>, folder: &Path) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for path in graphs(folder)? {
        let named = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = format!("{}/{}", path.parent().map(named).unwrap_or_default(), named(&path));
        match Case::open(&path) {
            Err(error) => rows.push(Row::new(&SECTION, format!("{name}, trained")).left_out(error)),
            Ok(case) => rows.extend(MESHES.map(|sizes| {
                let mesh = Mesh::of_sizes(sizes);
                let what = format!("{name}, trained on {} ranks", autoparallel::mesh::sizes(&mesh));
                (given.say)(what.clone().into());
                let row = Row::new(&SECTION, what);
                match case.planned(&mesh) {
                    // There are models that are not trained so.
                    Err(error) => row.left_out(error),
                    Ok(programs) => match on_gpu(given, &case.file, programs, LEARNING, &case.steps) {
                        Err(error) => row.failed(error),
                        Ok(found) => row.apart(farthest(&found, &case.expected(&found)), APART),
                    },
                }
            })),
        }
    }
    Ok(rows)
}

/// The graphs that have such files beside them, sorted.
fn graphs(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let below = |path: &Path| -> Result<Vec<PathBuf>, Failure> {
        let failed = |error: std::io::Error| Failure::file(path, format!("cannot be read: {error}"));
        let entries = std::fs::read_dir(path).map_err(failed)?;
        entries.map(|it| it.map(|it| it.path()).map_err(failed)).collect()
    };
    let mut graphs = Vec::new();
    for case in below(folder)?.into_iter().filter(|it| it.join("oracle.json").is_file()) {
        graphs.extend(below(&case)?.into_iter().filter(|it| it.extension().is_some_and(|it| it == "onnx")));
    }
    graphs.sort();
    Ok(graphs)
}

/// A graph, and what PyTorch made of it.
struct Case {
    file: ModelFile,
    /// What each step is given.
    steps: Vec<Fed>,
    /// The losses of steps, and parameters after the last, by the names of initializers.
    left: Left,
    /// What PyTorch did not train.
    frozen: Vec<String>,
}

impl Case {
    fn open(path: &Path) -> Result<Self, Failure> {
        let oracle = path.with_file_name("oracle.json");
        let refused = |why: String| Failure::file(&oracle, why);
        let text = readable::text(&oracle)?;
        // Losses that diverged are NaN, which JSON has no word for.
        let oracle_json: Value =
            serde_json::from_str(&text.replace("NaN", "null")).map_err(|error| refused(error.to_string()))?;
        let arrays = arrays::read(&path.with_file_name("oracle.safetensors"))?;
        let file = model_file::open(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let map = oracle_json["graphs"][&*name]["initializer_to_param"].as_object();
        let map = map.ok_or_else(|| refused(format!("says nothing of the initializers of `{name}`")))?;
        let mut left = Left::new();
        let mut steps = Vec::new();
        let losses = oracle_json["sgd_losses"].as_array().cloned().unwrap_or_default();
        for (number, loss) in losses.iter().map_while(Value::as_f64).enumerate() {
            let prefix = format!("in{number}/");
            let batch = arrays.iter().filter_map(|(name, array)| Some((name.strip_prefix(&prefix)?, array)));
            let batch: BTreeMap<String, Array> =
                batch.map(|(name, array)| (name.to_owned(), array.clone())).collect();
            if batch.is_empty() {
                return Err(refused(format!("has more losses than there are batches: {}", losses.len())));
            }
            steps.push(vec![batch]);
            left.insert(
                loss_of(steps.len().try_into().unwrap_or(0)),
                Array::of([], &[loss]).map_err(internal)?,
            );
        }
        let whole = steps.len() == losses.len();
        let said = |it: &Value, at: usize| it[at].as_str().unwrap_or_default().to_owned();
        let parameters: BTreeMap<&String, (String, String)> =
            map.iter().map(|(name, it)| (name, (said(it, 0), said(it, 1)))).collect();
        let mut frozen = Vec::new();
        for (name, (parameter, how)) in &parameters {
            let copies = parameters.values().filter(|it| it.0 == *parameter).count();
            if !arrays.contains_key(&format!("grad/{parameter}")) && copies == 1 {
                frozen.push((*name).clone());
                continue;
            }
            let noise = oracle_json["grad_f32_vs_f64_rel_l2_and_norm"][parameter][0].as_f64();
            let after = arrays.get(&format!("sgd3/{parameter}"));
            if let Some(after) = after.filter(|_| whole && noise.is_none_or(|it| it < NOISE)) {
                left.insert((*name).clone(), turned(after, how)?);
            }
        }
        let there = |name: &String| file.model.weights().iter().any(|it| it.0 == name.as_str());
        frozen.retain(there);
        Ok(Self { file, steps, left, frozen })
    }

    /// What is expected of what was found: of what an exporter left out there is nothing.
    fn expected(&self, found: &Left) -> Left {
        let of = self.left.iter().filter(|(name, _)| found.contains_key(*name));
        of.map(|(name, array)| (name.clone(), array.clone())).collect()
    }

    fn planned(&self, mesh: &Mesh) -> Result<Vec<Program>, Failure> {
        let batch =
            self.steps.first().and_then(|it| it.first()).ok_or_else(|| internal("there is no step"))?;
        let inputs = batch.iter().map(|(name, it)| (name.clone(), it.shape().to_vec())).collect();
        let bindings = Bindings { inputs, ..Bindings::default() };
        let imported = pipeline::import(&self.file, &bindings, &mut |_, _| {})
            .map_err(|error| Failure::file(&self.file.path, error))?;
        let recipe = Recipe {
            precision: Precision::F32,
            roles: plan::Roles { frozen: self.frozen.clone(), ..plan::Roles::default() },
            ..Recipe::new(Loss::Output("loss".to_owned()), OPTIMIZER)
        };
        let training = pipeline::Training {
            recipe,
            decisions: pipeline::Decisions::Only(Recompute::Nothing),
            phases: pipeline::Phases::Together,
        };
        let prepared = pipeline::prepare_training(&self.file, &imported, &training, &mut |_, _| {})?;
        let machine = machine::named(&format!("cpu-{}x", mesh.devices()), None)?;
        let target = Target::of(&machine, mesh);
        let path = self.file.path.display().to_string();
        let header = plan::ModelFile { path, sha256: self.file.sha256.clone(), dims: vec![] };
        let plan = pipeline::plan(&prepared, &header, &target, &mut |_, _| {})?;
        pipeline::lower(&plan, &mut |_, _| {})
    }
}

/// A parameter as an exporter wrote it.
fn turned(array: &Array, how: &str) -> Result<Array, Failure> {
    if how != "transpose" {
        return Ok(array.clone());
    }
    let op = Op::Transpose { permutation: vec![1, 0] };
    let made = kernels::evaluate(&op, &[array]).map_err(internal)?;
    made.into_iter().next().ok_or_else(|| internal("a transpose of nothing"))
}

#[cfg(test)]
mod tests;
