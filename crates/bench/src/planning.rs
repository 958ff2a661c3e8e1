//! `bench planning`: full-size models to plans for machines that need not be there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use autoparallel::mesh::sizes;
use bytes::Bytes;
use calibrate::host;
use clap::Args;
use cost_models::quantity;
use driver::pipeline::{self, Decisions, Phases, Prepared, Target, Training};
use files::model_file::ModelFile;
use files::{Failure, Say};
use files::{machine, readable};
use import::{Bindings, Dim, Model};
use kernels::Array;
use plan::{Loss, NoDecay, Plan, Precision, Recipe};
use planner_ir::{DType, Graph, Mesh, Optimizer, Real, ValueId};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Report;

/// The machines, each with its meshes. What fits none of a machine is tried on the next one.
const TARGETS: [(&str, &[&[u64]]); 2] =
    [("h100-80g-8x", &[&[8], &[2, 4], &[2, 2, 2]]), ("h100-80g-64x", &[&[4, 4, 4]])];
/// How often the sequence is halved for a model that takes shorter ones only.
const HALVINGS: u32 = 3;
/// The machine for what fits on none of those.
const LARGER: (&str, &[u64]) = ("h100-80g-512x", &[8, 8, 8]);

/// `bench planning`.
#[derive(Args, Clone, Debug)]
pub struct Planning {
    /// A folder with models, or with folders of models (.onnx or .onnx.gz)
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Only models whose path contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Sequences of a step
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub batch: u64,
    /// Tokens of a sequence
    #[arg(long, default_value_t = 1024, value_name = "N")]
    pub sequence: u64,
    /// Machines and meshes, such as h100-80g-8x/2x4, instead of the usual ones; may be repeated
    #[arg(long = "target", value_name = "MACHINE/MESH")]
    pub targets: Vec<String>,
    /// Plan training steps (AdamW, recomputation as the search decides): of the output `loss`, or
    /// of the cross-entropy of `logits` where there is none
    #[arg(long)]
    pub train: bool,
    /// Memory limit of a device; the default is the machine's
    #[arg(long, value_name = "BYTES", value_parser = quantity::parse_bytes)]
    pub memory: Option<u64>,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// What was measured of a model.
struct Measured {
    name: String,
    /// Tokens of a sequence: those asked for, or as many as it takes.
    sequence: u64,
    /// The nodes of the imported and of the raised graph.
    nodes: [usize; 2],
    import: Spent,
    raise: Spent,
    planned: Vec<Planned>,
}

/// What a stage took.
#[derive(Clone, Copy)]
struct Spent {
    seconds: f64,
    /// The most memory that was resident in it (bytes).
    memory: Option<u64>,
}

/// What was measured of a plan.
struct Planned {
    machine: String,
    mesh: Mesh,
    /// What the spaces of the blocks take, built one after another (seconds).
    space: f64,
    /// The search whole.
    search: Spent,
    /// The check of the plan (seconds).
    check: f64,
    plan: Result<Found, String>,
}

/// What there is to say of a plan.
struct Found {
    /// The time of a step (seconds).
    seconds: f64,
    /// How far it may be above the best, as a part of the proven bound; 0 if it is the best.
    gap: f64,
    space: plan::SpaceSize,
}

/// Plans every model of a folder, and says what it took.
pub(crate) fn measure(options: &Planning, say: &Say<'_>) -> Result<Report, Failure> {
    let targets = targets(options)?;
    let mut text = String::new();
    let mut lines = Vec::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "| model | batch, sequence | nodes | import | raise | target | space | search | check | step | gap | e-nodes | classes | unique blocks | peak memory |"
    );
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for path in models(&options.dir)?.iter().filter(|it| it.display().to_string().contains(&options.only)) {
        say(path.display().to_string().into());
        let measured = match of_model(path, options, &targets, say) {
            Ok(measured) => measured,
            Err(failure) => {
                let _ = writeln!(text, "| {} | refused: {failure} | | | | | | | | | | | | | |", name(path));
                lines.push(
                    json!({ "benchmark": "planning", "model": name(path), "refused": failure.to_string() }),
                );
                continue;
            }
        };
        for planned in &measured.planned {
            let _ = writeln!(text, "{}", row(options, &measured, planned));
            lines.push(line(options, &measured, planned));
        }
    }
    if lines.is_empty() {
        return Err(Failure::file(&options.dir, "no model is in this folder or the folders in it"));
    }
    Ok(Report { text, lines })
}

/// The machines and meshes, and whether the usual larger one follows.
fn targets(options: &Planning) -> Result<Vec<(String, Mesh)>, Failure> {
    if options.targets.is_empty() {
        let all = TARGETS.iter().flat_map(|(machine, meshes)| {
            meshes.iter().map(|sizes| ((*machine).to_owned(), Mesh::of_sizes(sizes)))
        });
        return Ok(all.collect());
    }
    let one = |text: &String| {
        let expected =
            || Failure::Usage(format!("`{text}` is no target, expected one such as h100-80g-8x/2x4"));
        let (machine, mesh) = text.split_once('/').ok_or_else(expected)?;
        Ok((machine.to_owned(), Mesh::parse(mesh).map_err(|_| expected())?))
    };
    options.targets.iter().map(one).collect()
}

/// The models in a folder and in its folders, sorted.
fn models(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = |folder: &Path| -> Result<Vec<PathBuf>, Failure> {
        let failed = |error: std::io::Error| Failure::file(folder, format!("cannot be read: {error}"));
        std::fs::read_dir(folder).map_err(failed)?.map(|it| it.map(|it| it.path()).map_err(failed)).collect()
    };
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            files.extend(entries(&path)?);
        } else {
            files.push(path);
        }
    }
    let is_model = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".onnx") || name.ends_with(".onnx.gz")
    };
    files.retain(is_model);
    files.sort();
    Ok(files)
}

fn of_model(
    path: &Path,
    options: &Planning,
    targets: &[(String, Mesh)],
    say: &Say<'_>,
) -> Result<Measured, Failure> {
    let bytes: Bytes = readable::unpacked(path)?.into();
    let mut sequence = options.sequence;
    let (mut imported, mut import) = spent(|| imported(path, &bytes, options.batch, sequence));
    for _ in 0..HALVINGS {
        if imported.is_ok() {
            break;
        }
        sequence /= 2;
        let shorter = spent(|| self::imported(path, &bytes, options.batch, sequence));
        if shorter.0.is_ok() {
            (imported, import) = shorter;
        }
    }
    let (file, header, graph) = imported?;
    let (prepared, raise) = spent(|| match options.train {
        false => pipeline::prepare(&graph, &mut |_, _| {}),
        true => pipeline::prepare_training(&file, &graph, &training(&graph), &mut |_, _| {}),
    });
    let prepared = prepared?;
    let nodes = [graph.nodes.len(), prepared.graph.nodes.len()];
    drop(graph);
    let mut planned = Vec::new();
    for (machine, mesh) in targets {
        say(format!("{} on {machine}, mesh {}", path.display(), sizes(mesh)).into());
        planned.push(of_target(&prepared, &header, machine, mesh, options.memory)?);
    }
    if options.targets.is_empty() && planned.iter().all(|it| it.plan.is_err()) {
        planned.push(of_target(&prepared, &header, LARGER.0, &Mesh::of_sizes(LARGER.1), options.memory)?);
    }
    Ok(Measured { name: name(path), sequence, nodes, import, raise, planned })
}

/// A model as a graph, and what plans say of it.
fn imported(
    path: &Path,
    bytes: &Bytes,
    batch: u64,
    sequence: u64,
) -> Result<(ModelFile, plan::ModelFile, Graph), Failure> {
    let sha256 = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let model = import::read(bytes.clone()).map_err(|error| Failure::file(path, error))?;
    let file = ModelFile::new(path, sha256, model);
    let bindings = bindings(&file.model, batch, sequence);
    let graph = pipeline::import(&file, &bindings, &mut |_, _| {});
    let graph = graph.map_err(|error| Failure::file(path, error))?;
    let dims = bindings.dims.into_iter().collect();
    let header = plan::ModelFile { path: path.display().to_string(), sha256: file.sha256.clone(), dims };
    Ok((file, header, graph))
}

/// What to make of a model that is trained.
fn training(graph: &Graph) -> Training {
    let has_loss = graph.outputs.iter().any(|output| output.name == "loss");
    let loss = match has_loss {
        true => Loss::Output("loss".to_owned()),
        false => Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() },
    };
    let [beta1, beta2, epsilon, decay] = [0.9, 0.95, 1e-8, 0.1].map(Real);
    let recipe = Recipe {
        precision: Precision::F32,
        no_decay: NoDecay { names: vec![], vectors: true },
        ..Recipe::new(loss, Optimizer::AdamW { beta1, beta2, epsilon, decay })
    };
    Training { recipe, decisions: Decisions::Values, phases: Phases::Together }
}

/// What a model is called: its file, or its folder if all are called the same.
fn name(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = file.trim_end_matches(".gz").trim_end_matches(".onnx");
    let folder = path.parent().and_then(Path::file_name).filter(|_| stem == "model");
    folder.map_or_else(|| stem.to_owned(), |it| it.to_string_lossy().into_owned())
}

/// Sizes for the symbols of a model: the first dimension of inputs is the batch, others are the
/// sequence; a past is as long as the sequence. A single truth value is true.
fn bindings(model: &Model, batch: u64, sequence: u64) -> Bindings {
    let mut bindings = Bindings::default();
    for unbound in model.symbols() {
        let name = unbound.symbol.to_lowercase();
        let is_batch = name.contains("batch") || unbound.places.iter().all(|place| place.ends_with("[0]"));
        let holds_past = name.contains('+') || name.contains("total") || name.contains("mask");
        let size = match () {
            () if is_batch => batch,
            () if holds_past => 2 * sequence,
            () => sequence,
        };
        bindings.dims.insert(unbound.symbol, size);
    }
    for input in model.inputs() {
        let is_single = input.dims.iter().flatten().all(|dim| matches!(dim, Dim::Number(1)));
        let shape: Vec<u64> = input.dims.iter().flatten().map(|_| 1).collect();
        if let (DType::Bool, true, Ok(truth)) = (input.dtype, is_single, Array::of_truths(shape, &[true])) {
            bindings.controls.insert(input.name.clone(), truth);
        }
    }
    bindings
}

fn of_target(
    prepared: &Prepared,
    header: &plan::ModelFile,
    name: &str,
    mesh: &Mesh,
    memory: Option<u64>,
) -> Result<Planned, Failure> {
    let machine = machine::named(name, None)?;
    let capacity = memory.unwrap_or(machine.usable_memory().0);
    let target = Target { capacity, ..Target::of(&machine, mesh) };
    let prices = pipeline::prices(&target)?;
    let start = Instant::now();
    for section in &prepared.sections {
        let shared = section.shared.iter().map(|it| it.value);
        let ends = section.entry.iter().chain(&section.exit).chain(&section.returned).copied();
        let boundary: Vec<ValueId> = ends.chain(shared).collect();
        rewrite::space(&section.graph, mesh, &boundary, rewrite::Splits::All.into())
            .map_err(|error| Failure::internal("plan", error))?;
    }
    let space = start.elapsed().as_secs_f64();
    let (plan, search) = spent(|| pipeline::planned(prepared, header, &target, &prices));
    let start = Instant::now();
    if let Ok(plan) = &plan {
        plan::check(plan).map_err(|error| Failure::internal("plan", error))?;
    }
    let check = start.elapsed().as_secs_f64();
    let plan = plan.as_ref().map(found).map_err(ToString::to_string);
    Ok(Planned { machine: name.to_owned(), mesh: mesh.clone(), space, search, check, plan })
}

fn found(plan: &Plan) -> Found {
    let seconds = plan.seconds();
    let lower_bound = plan.proof.bound(seconds);
    let gap = (seconds - lower_bound) / lower_bound;
    Found { seconds, gap, space: plan.space.clone() }
}

/// What a computation takes.
fn spent<T>(compute: impl FnOnce() -> T) -> (T, Spent) {
    host::forget_peak();
    let start = Instant::now();
    let made = compute();
    let seconds = start.elapsed().as_secs_f64();
    (made, Spent { seconds, memory: host::peak_memory() })
}

fn row(options: &Planning, measured: &Measured, planned: &Planned) -> String {
    let [before, after] = measured.nodes;
    let memory = [measured.import, measured.raise, planned.search]
        .map(|it| it.memory.map_or_else(|| "?".to_owned(), quantity::bytes))
        .join(", ");
    let found = match &planned.plan {
        Ok(found) => format!(
            "{} | {} | {} | {} | {} of {}",
            quantity::seconds(found.seconds),
            quantity::gap(found.gap).unwrap_or_else(|| "0".to_owned()),
            found.space.nodes,
            found.space.classes,
            found.space.unique_blocks,
            found.space.blocks
        ),
        Err(why) => format!("{why} | | | |"),
    };
    format!(
        "| {} | {}, {} | {before} -> {after} | {} | {} | {} {} | {} | {} | {} | {found} | {memory} |",
        measured.name,
        options.batch,
        measured.sequence,
        quantity::seconds(measured.import.seconds),
        quantity::seconds(measured.raise.seconds),
        planned.machine,
        sizes(&planned.mesh),
        quantity::seconds(planned.space),
        quantity::seconds(planned.search.seconds),
        quantity::seconds(planned.check),
    )
}

fn line(options: &Planning, measured: &Measured, planned: &Planned) -> Value {
    let mut line = json!({
        "benchmark": "planning",
        "model": measured.name,
        "train": options.train,
        "batch": options.batch,
        "sequence": measured.sequence,
        "nodes": measured.nodes,
        "import_seconds": measured.import.seconds,
        "import_peak_bytes": measured.import.memory,
        "raise_seconds": measured.raise.seconds,
        "raise_peak_bytes": measured.raise.memory,
        "machine": planned.machine,
        "mesh": sizes(&planned.mesh),
        "space_seconds": planned.space,
        "search_seconds": planned.search.seconds,
        "search_peak_bytes": planned.search.memory,
        "check_seconds": planned.check,
    });
    match &planned.plan {
        Ok(found) => {
            line["predicted_seconds"] = json!(found.seconds);
            line["gap"] = json!(found.gap);
            line["e_nodes"] = json!(found.space.nodes);
            line["classes"] = json!(found.space.classes);
            line["unique_blocks"] = json!(found.space.unique_blocks);
            line["blocks"] = json!(found.space.blocks);
        }
        Err(why) => line["refused"] = json!(why),
    }
    line
}
