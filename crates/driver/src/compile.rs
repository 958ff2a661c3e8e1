//! A model file and arguments to a plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autoparallel::limits;
use autoparallel::mesh;
use cost_models::machine::Machine;
use export::Target as Runtime;
use files::given::{self, Given};
use files::impossible;
use files::model_file::{self, ModelFile};
use files::{Doing, Failure, Of};
use import::{Bindings, ImportError};
use kernels::Array;
use launch::Listener;
pub use models::Use;
use plan::{Control, Plan, Recipe};
use planner_ir::{DType, Graph, Mesh, Type};
use rewrite::Steps;

use crate::pipeline::{self, Observer, Prepared, Stage, Target, parameters};
use crate::ways;

/// What the sizes of a model's dimensions are.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// Of dimensions by their names.
    pub dims: Vec<(String, u64)>,
    /// A file of arrays for the inputs, whose shapes say the sizes too.
    pub inputs: Option<PathBuf>,
}

/// The best of several meshes, with all memory, in time steps where they help.
impl Default for Wanted {
    fn default() -> Self {
        Self { mesh: None, memory: None, steps: Steps::Auto, runtime: None }
    }
}

/// The name and the size of a dimension: `batch=2`.
pub fn dimension(text: &str) -> Result<(String, u64), String> {
    const EXPECTED: &str = "expected a name and a size such as `batch=2`";
    let (name, size) = text.rsplit_once('=').ok_or(EXPECTED)?;
    let size = size.trim().parse().map_err(|_| EXPECTED)?;
    Ok((name.trim().to_owned(), size))
}

/// What a plan is made for, besides the machine.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The devices' coordinates; without it several are tried.
    pub mesh: Option<Mesh>,
    /// What a device may hold (bytes); without it, what the machine says.
    pub memory: Option<u64>,
    /// Whether operations may be done in time steps.
    pub steps: Steps,
    /// What runs the plan, if that is another runtime.
    pub runtime: Option<Runtime>,
}

/// What is said of a configuration's key that is not in the model.
pub fn left_out(path: &Path, what: &str) -> String {
    format!("warning: {}: left out: {what}", path.display())
}

/// A model with its dimensions bound, as a graph.
#[derive(Debug)]
pub struct Imported {
    /// The file.
    pub file: ModelFile,
    /// The arrays that are given.
    pub given: Option<Given>,
    /// The inputs whose values are part of the graph.
    pub controls: Vec<Control>,
    /// What a user should know of the names of dimensions, in words.
    pub warnings: Vec<String>,
    /// The graph.
    pub graph: Graph,
    /// What the plan says of the model.
    pub header: plan::ModelFile,
}

/// Reads a model, of a configuration the graph for a use, and binds its dimensions, to train it if there is a recipe.
pub fn imported(
    (path, of): (&Path, Use),
    bound: &Bound,
    recipe: Option<&Recipe>,
    observe: Observer<'_>,
    listener: &dyn Listener,
) -> Result<Imported, Failure> {
    listener.say(format!("reading {}", path.display()).into());
    let file = model_file::open_for(path, of)?;
    file.left_out.iter().for_each(|it| listener.remark(&left_out(path, it)));
    let given = bound.inputs.as_deref().map(given::read).transpose()?;
    let parameters = recipe.map(|it| parameters::single(&file, &it.roles)).unwrap_or_default();
    let mut bindings = Bindings { dims: dims(&bound.dims)?, parameters, ..Bindings::default() };
    if let (Some(given), Some(path)) = (&given, &bound.inputs) {
        let known: Vec<&str> = file.model.inputs().iter().map(|input| input.name.as_str()).collect();
        if let Some(name) = given.inputs.keys().find(|name| !known.contains(&name.as_str())) {
            let known = known.join("`, `");
            return Err(Failure::file(path, format!("`{name}` is not an input, expected `{known}`")));
        }
        let shape = |(name, type_): (&String, &Type)| (name.clone(), type_.shape.clone());
        bindings.inputs = given.inputs.iter().map(shape).collect();
    }
    let apart = file.model.dimensions(&bindings).map_err(|error| refusal(&file, &error))?.apart;
    let warnings = apart.iter().map(|it| format!("{}: {it}", path.display())).collect();
    let graph = graph(&file, &mut bindings, given.as_ref(), observe)?;
    let header = header(&file, &bindings, &graph);
    refuse_impossible(&graph, &header, BTreeMap::new())?;
    let controls = given.iter().map(|it| it.controls(bindings.controls.keys())).next().transpose()?;
    Ok(Imported { file, given, controls: controls.unwrap_or_default(), warnings, graph, header })
}

/// Refuses a program that computes nothing, or of which it is known before it runs that it cannot. Of some
/// inputs a number is known that they will have.
pub fn refuse_impossible(
    graph: &Graph,
    header: &plan::ModelFile,
    known: BTreeMap<String, Array>,
) -> Result<(), Failure> {
    let path = Path::new(&header.path);
    impossible::refuse_empty(graph, header).map_err(|error| Failure::file(path, error))?;
    impossible::refuse(path, graph, known)
}

fn dims(given: &[(String, u64)]) -> Result<BTreeMap<String, u64>, Failure> {
    let mut dims = BTreeMap::new();
    for (name, size) in given {
        if dims.insert(name.clone(), *size).is_some_and(|other| other != *size) {
            return Err(Failure::Usage(format!("dimension `{name}` is given two sizes")));
        }
    }
    Ok(dims)
}

/// The graph. If control flow depends on inputs that are given, they become part of it.
fn graph(
    file: &ModelFile,
    bindings: &mut Bindings,
    given: Option<&Given>,
    observe: Observer<'_>,
) -> Result<Graph, Failure> {
    let mut outcome = pipeline::import(file, bindings, observe);
    for widest in [Widest::Truth, Widest::Number] {
        let (Err(ImportError::DependsOnData { .. }), Some(given)) = (&outcome, given) else { break };
        for (name, _) in given.inputs.iter().filter(|(_, type_)| may_control(type_, widest)) {
            bindings.controls.insert(name.clone(), given.input(name)?);
        }
        outcome = pipeline::import(file, bindings, observe);
    }
    outcome.map_err(|error| refusal(file, &error))
}

/// Which inputs may decide control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Widest {
    /// One truth value.
    Truth,
    /// One truth value or integer.
    Number,
}

fn may_control(type_: &Type, widest: Widest) -> bool {
    let single = type_.rank() <= 1 && type_.elements() == 1;
    let kind = match widest {
        Widest::Truth => type_.dtype == DType::Bool,
        Widest::Number => !type_.dtype.is_float(),
    };
    single && kind
}

/// Why a model cannot be imported, and what would help.
pub fn refusal(file: &ModelFile, error: &ImportError) -> Failure {
    match error {
        ImportError::Unbound(symbols) => {
            let flags: Vec<String> = symbols.iter().map(|it| format!("--dim {}=..", it.symbol)).collect();
            let message =
                format!("{}: {error}: `{}` or `--inputs FILE`", file.path.display(), flags.join(" "));
            Failure::Usage(message)
        }
        ImportError::Binding(_) => Failure::Usage(format!("{}: {error}", file.path.display())),
        ImportError::DependsOnData { .. } => {
            Failure::file(&file.path, format!("{error} with `--inputs FILE`"))
        }
        other => Failure::file(&file.path, other),
    }
}

/// What a plan says of a model that was imported with these bindings.
pub fn header(file: &ModelFile, bindings: &Bindings, graph: &Graph) -> plan::ModelFile {
    let dims = recorded(file, bindings, graph);
    plan::ModelFile { path: file.path.display().to_string(), sha256: file.sha256.clone(), dims }
}

/// The sizes of the model's dimensions, by name: what `--dim` says, and what the inputs' types say.
fn recorded(file: &ModelFile, bindings: &Bindings, graph: &Graph) -> Vec<(String, u64)> {
    let mut bindings = bindings.clone();
    for (name, type_) in given::expected(graph) {
        if file.model.inputs().iter().any(|input| input.name == name) {
            bindings.inputs.entry(name.to_owned()).or_insert_with(|| type_.shape.clone());
        }
    }
    let dimensions = file.model.dimensions(&bindings);
    let sizes = dimensions.map_or_else(|_| bindings.dims, |dimensions| dimensions.sizes);
    sizes.into_iter().collect()
}

/// A plan, and the other meshes that were tried.
#[derive(Debug)]
pub struct Chosen {
    /// The plan.
    pub plan: Plan,
    /// For each mesh, the time of a step (seconds) or why there is no plan.
    pub tried: Vec<(Mesh, Result<f64, Failure>)>,
}

impl Chosen {
    /// What a step takes on each mesh that was tried (seconds); nothing where there is no plan.
    pub fn seconds(&self) -> Vec<(Mesh, Option<f64>)> {
        let of =
            |(mesh, outcome): &(Mesh, Result<f64, Failure>)| (mesh.clone(), outcome.as_ref().ok().copied());
        self.tried.iter().map(of).collect()
    }
}

/// The cheapest plan, on the mesh that is given or on the best of several; of equal ones the first.
pub fn planned(
    prepared: &Prepared,
    imported: &Imported,
    machine: &Machine,
    wanted: &Wanted,
    observe: Observer<'_>,
    listener: &dyn Listener,
) -> Result<Chosen, Failure> {
    let capacity = wanted.memory.unwrap_or(machine.usable_memory().0);
    let ways = ways::of_program(wanted.runtime, wanted.mesh.as_ref(), machine, &prepared.graph)?;
    let mut best: Option<Plan> = None;
    let mut tried = Vec::new();
    let count = ways.len();
    for (number, (mesh, rules)) in (1..).zip(ways) {
        let parallel =
            rules.as_ref().map_or_else(String::new, |it| format!(", {} parallel", limits::in_words(it)));
        let on = format!("mesh {}{parallel}", mesh::sizes(&mesh));
        listener.say(match count {
            1 => format!("planning on {on}").into(),
            _ => Doing::one("planning", number, Of::All(count)).named(on),
        });
        let steps = wanted.steps;
        let target =
            Target { machine, mesh: &mesh, capacity, steps, live: search::Live::ONE, rules: rules.as_ref() };
        let outcome = pipeline::plan(prepared, &imported.header, &target, &mut |_, _| {});
        if let Err(failure @ Failure::Usage(_)) = outcome {
            return Err(failure);
        }
        tried.push((mesh, outcome.as_ref().map(Plan::seconds).map_err(Clone::clone)));
        if let Ok(plan) = outcome
            && best.as_ref().is_none_or(|best| plan.seconds() < best.seconds())
        {
            best = Some(plan);
        }
    }
    let Some(plan) = best else { return Err(none_fits(&tried)) };
    let plan = Plan { controls: imported.controls.clone(), ..plan };
    observe(Stage::Plan, &plan::json::write(&plan));
    Ok(Chosen { plan, tried })
}

/// The refusal of the finest mesh, the last one, and which others were tried.
fn none_fits(tried: &[(Mesh, Result<f64, Failure>)]) -> Failure {
    let Some(((_, Err(last)), others)) = tried.split_last() else {
        return Failure::internal("plan", "no mesh was tried");
    };
    if others.is_empty() {
        return last.clone();
    }
    let others: Vec<String> = others.iter().map(|(mesh, _)| mesh::sizes(mesh)).collect();
    let others = others.join(", ");
    last.clone().saying(|last| format!("{last} (there is none on mesh {others} either)"))
}
