//! Training steps whose products are in time steps, forward and backward.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Assignment, Plan, Recompute};
use planner_ir::{Graph, Loops, Move, Node, NodeId, Op, Optimizer, Phase, Source, ValueId};
use rayon::prelude::*;
use rewrite::Steps;
use search::MachinePrices;

use super::cases::{self, ADAMW, Case, MOMENTUM, parted};
use super::chosen::check_plan;
use super::forms::{Form, LAYERS, Site};
use super::manners::{Manner, Preferring};
use super::roles::stems;
use super::{expect_none, faults_of};
use crate::corpus::machine;
use crate::tier::first;

/// On what ranks train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Threads,
    /// Threads, and a GPU that is not there.
    Both,
}

/// What is planned, and what trains by it.
struct Trial {
    model: &'static str,
    mesh: &'static str,
    form: Form,
    optimizer: Optimizer,
    /// How often a batch is there.
    times: u64,
    on: On,
    /// Some of the operations that are in steps.
    of: &'static [&'static str],
}

const PRODUCTS: [&str; 1] = ["contract"];
const TABLES: [&str; 3] = ["contract", "gather", "gather_gradient"];
const WINDOWS: [&str; 3] = ["contract", "conv", "conv_weight_gradient"];
const EXPERTS: [&str; 2] = ["experts", "experts_gradient"];
const EXPERTS_AND_TABLES: [&str; 5] =
    ["contract", "gather", "gather_gradient", "experts", "experts_gradient"];

impl Trial {
    const fn new(model: &'static str, mesh: &'static str, form: Form, optimizer: Optimizer) -> Self {
        Self { model, mesh, form, optimizer, times: 1, on: On::Threads, of: &PRODUCTS }
    }

    const fn of(self, of: &'static [&'static str]) -> Self {
        Self { of, ..self }
    }

    const fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    const fn also_on_a_gpu(self) -> Self {
        Self { on: On::Both, ..self }
    }
}

/// Each form first, on models of different kinds: what the gate tries.
const TRIALS: [Trial; 20] = [
    Trial::new("gpt2/legacy.onnx", "2x2", Form::Square(2), ADAMW).also_on_a_gpu(),
    Trial::new("llama/legacy.onnx", "2x2", Form::Summa(2), ADAMW),
    Trial::new("gpt2/legacy.onnx", "2x2x2", Form::Tesseract(2), ADAMW),
    Trial::new("llama/legacy.onnx", "2x2x2", Form::Squares(2), ADAMW),
    Trial::new("qwen3/legacy.onnx", "2x2", Form::Ring(2), MOMENTUM).of(&TABLES),
    Trial::new("qwen3/legacy.onnx", "3", Form::Ring(3), ADAMW),
    Trial::new("mixtral/legacy.onnx", "4", Form::Ring(4), ADAMW).of(&EXPERTS_AND_TABLES),
    Trial::new("t5/legacy.onnx", "4", Form::Ring(4), ADAMW).of(&TABLES),
    Trial::new("vit/legacy.onnx", "4", Form::Ring(4), ADAMW).times(4).of(&WINDOWS),
    Trial::new("mixtral/legacy.onnx", "8", Form::Ring(8), MOMENTUM).of(&EXPERTS_AND_TABLES),
    Trial::new("llama/legacy.onnx", "2x2", Form::Square(2), MOMENTUM),
    Trial::new("gpt2/legacy.onnx", "2x2", Form::Summa(2), MOMENTUM).also_on_a_gpu(),
    Trial::new("llama/legacy.onnx", "2x2x2", Form::Tesseract(2), MOMENTUM),
    Trial::new("llama/legacy.onnx", "2x2", Form::Ring(2), ADAMW).of(&TABLES).also_on_a_gpu(),
    Trial::new("mixtral_batchedmm/dynamo.onnx", "3", Form::Ring(3), MOMENTUM).of(&EXPERTS),
    Trial::new("mixtral_batchedmm/dynamo.onnx", "4", Form::Ring(4), MOMENTUM).of(&EXPERTS_AND_TABLES),
    Trial::new("gpt2/legacy.onnx", "4", Form::Ring(4), MOMENTUM).of(&TABLES).also_on_a_gpu(),
    Trial::new("bert/legacy.onnx", "4", Form::Ring(4), ADAMW).of(&TABLES),
    Trial::new("gemma2/dynamo.onnx", "4", Form::Ring(4), MOMENTUM).of(&TABLES),
    Trial::new("opt/legacy.onnx", "8", Form::Ring(8), ADAMW).of(&TABLES),
];

/// What a product with a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pass {
    /// Y = X W.
    Result,
    /// dX = dY Wᵀ.
    Input,
    /// dW = Xᵀ dY, perhaps with dX.
    Weight,
}

/// The loops of an operation, and which of its operands are of parameters.
fn about(graph: &Graph, stems: &[bool], node: &Node) -> (Loops, Vec<bool>) {
    let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
    (loops, node.operands.iter().map(|it| stems[it.0]).collect())
}

/// The operations that the form takes.
fn taken(graph: &Graph, form: Form) -> Vec<NodeId> {
    let stems = stems(graph);
    let takes = |id: &NodeId| {
        let Node { op, phase, .. } = graph.node(*id);
        let (loops, of_parameters) = about(graph, &stems, graph.node(*id));
        form.takes(&Site { op, loops: &loops, of_parameters: &of_parameters, phase: *phase })
    };
    graph.node_ids().filter(takes).collect()
}

fn pass(node: &Node) -> Pass {
    match (&node.op, node.phase) {
        (Op::ExpertsGradient { .. }, _) | (_, Phase::Gradient) => Pass::Weight,
        (_, Phase::Forward) => Pass::Result,
        _ => Pass::Input,
    }
}

/// How many operations of each kind and pass have a partition of the form, and how many there are.
fn counted(plan: &Plan, form: Form) -> BTreeMap<(&'static str, Pass), (usize, usize)> {
    let graph = &plan.graph;
    let stems = stems(graph);
    let mut counts = BTreeMap::new();
    for id in taken(graph, form) {
        let node = graph.node(id);
        let Assignment::Computed { partition, .. } = &plan.assignments[id.0] else { continue };
        let (loops, of_parameters) = about(graph, &stems, node);
        let site = Site { op: &node.op, loops: &loops, of_parameters: &of_parameters, phase: node.phase };
        let count: &mut (usize, usize) = counts.entry((node.op.name(), pass(node))).or_default();
        count.0 += usize::from(form.is_of(partition, &site));
        count.1 += 1;
    }
    counts
}

/// The values that parameters of products are on their way to the products, and their gradients on
/// their way to the updates, and what the updates make; but what is cut into parameters of several
/// products, or put together of their gradients.
fn of_products(graph: &Graph, form: Form) -> BTreeSet<ValueId> {
    let stems = stems(graph);
    let mut found = BTreeSet::new();
    for id in taken(graph, form) {
        let node = graph.node(id);
        let (loops, of_parameters) = about(graph, &stems, node);
        let site = Site { op: &node.op, loops: &loops, of_parameters: &of_parameters, phase: node.phase };
        found.extend(node.operands.iter().copied().filter(|it| stems[it.0]));
        let gradients = node.results.iter().zip(site.of_gradients()).filter(|it| it.1);
        found.extend(gradients.map(|it| *it.0));
    }
    let shapes = |node: &Node| matches!(node.op, Op::Reshape { .. } | Op::Transpose { .. });
    for node in graph.nodes.iter().rev().filter(|node| shapes(node) && stems[node.operands[0].0]) {
        if found.contains(&node.results[0]) {
            found.insert(node.operands[0]);
        }
    }
    for node in &graph.nodes {
        let later = matches!(node.phase, Phase::Gradient | Phase::Update) || shapes(node);
        let from = node.operands.iter().any(|it| !stems[it.0] && found.contains(it));
        if later && from && !matches!(node.op, Op::Concat { .. }) {
            found.extend(node.results.iter().copied());
        }
    }
    found.retain(|it| graph.type_of(*it).rank() > 1);
    found
}

/// Says what parameter or gradient of a product is not at home: moved outside of the products, or
/// held by a device in more than its part. Gradients are summed over layers, and what makes several
/// at once begins with parts that are one device further.
fn check_home(plan: &Plan, form: Form) -> Result<(), String> {
    let values = of_products(&plan.graph, form);
    let parameters = |it: &&ValueId| matches!(plan.graph.value(**it).source, Source::State(_));
    if !values.iter().any(|it| parameters(&it)) {
        return Err("no parameter of a product".to_owned());
    }
    let parts = match form {
        Form::Ring(side) => side,
        Form::Square(side) | Form::Squares(side) | Form::Summa(side) | Form::Tesseract(side) => side * side,
    };
    for &value in &values {
        let type_ = plan.graph.type_of(value);
        let held = plan.layouts[value.0].local_type(type_).elements();
        if held * parts != type_.elements() {
            return Err(format!("{held} of {} elements of {value:?} are held", type_.elements()));
        }
    }
    let summed = |it: &Move| *it == Move::AllReduce { axes: vec![LAYERS] };
    let allowed = |it: &Move| match form {
        Form::Squares(_) | Form::Tesseract(_) => summed(it),
        Form::Ring(_) => matches!(it, Move::Permute { .. }),
        Form::Square(_) | Form::Summa(_) => false,
    };
    let mut moved =
        plan.transfers.iter().filter(|it| values.contains(&it.value) && it.bytes.iter().any(|it| *it > 0));
    if let Form::Squares(_) | Form::Tesseract(_) = form
        && !moved.clone().any(|it| it.moves.iter().any(summed))
    {
        return Err("no gradient is summed over layers".to_owned());
    }
    moved.find(|it| !it.moves.iter().all(allowed)).map_or(Ok(()), |it| {
        let source = &plan.graph.value(it.value).source;
        Err(format!("{:?} of {source:?} is moved by {:?} to {:?}", it.value, it.moves, it.layout))
    })
}

impl Trial {
    /// What it trains, if it is there.
    fn case(&self) -> Option<Case> {
        let mut all = cases::all().into_iter();
        let path = all.find(|path| path.to_string_lossy().contains(self.model))?;
        Some(Case::load(&path).stretched(self.times, self.form.side()))
    }

    fn planned(&self, case: &Case) -> Result<Plan, String> {
        let (mesh, machine) = machine(self.mesh);
        let training = case.training(self.optimizer, Recompute::Nothing);
        let prepared = case.prepared(&training, &parted(&case.batch(0), 1));
        let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
        let manner = Manner::InTime(self.form);
        let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
        case.plan_in(&prepared, &mesh, &machine, &prices, Steps::Offered)
    }

    fn check(&self, case: &Case) -> Result<(), String> {
        let Self { form, optimizer, .. } = *self;
        let plan = self.planned(case)?;
        check_plan(&plan)?;
        let counts = counted(&plan, form);
        println!("{} {form:?}: {counts:?}", case.title);
        if let Some((what, (found, all))) = counts.iter().find(|it| it.1.0 != it.1.1) {
            return Err(format!("{found} of {all} of {what:?} are in steps"));
        }
        let kinds: BTreeSet<&str> = counts.keys().map(|it| it.0).collect();
        let passes = counts.keys().filter(|it| it.0 == "contract").count();
        if !self.of.iter().all(|it| kinds.contains(it)) || (passes != 3 && kinds.contains("contract")) {
            return Err(format!("not all are there: {counts:?}"));
        }
        check_home(&plan, form)?;
        case.check_training(&plan, optimizer, 1)?;
        match self.on {
            On::Threads => Ok(()),
            On::Both => case.check_on_gpu(&plan, optimizer, 1).map_err(|error| format!("on a GPU: {error}")),
        }
    }
}

/// What is planned for each trial on a GPU whose model is there, lowered.
pub(crate) fn programs() -> Vec<(String, Result<Vec<lower::Program>, String>)> {
    let of = |trial: &Trial| {
        let case = trial.case()?;
        let lowered = |plan: Plan| lower::lower(&plan).map_err(|error| format!("not lowered: {error}"));
        let what = format!("{} by {:?} on {}", trial.model, trial.form, trial.mesh);
        Some((what, trial.planned(&case).and_then(lowered)))
    };
    TRIALS.par_iter().filter(|it| it.on == On::Both).filter_map(of).collect()
}

#[test]
fn products_in_time_steps_train_as_pytorch() {
    let wanted = std::env::var("MODEL").unwrap_or_default();
    let mut failures = Vec::new();
    for trial in first(10, &TRIALS).iter().filter(|it| it.model.contains(&wanted)) {
        let Some(case) = trial.case() else { continue };
        let what = format!("{} by {:?} on {}", trial.model, trial.form, trial.mesh);
        let start = std::time::Instant::now();
        failures.extend(faults_of(&what, || {
            let wrong = trial.check(&case).err();
            wrong.map(|error| format!("{what}: {error}")).into_iter().collect()
        }));
        println!("  {what}: {:?}", start.elapsed());
    }
    expect_none(&failures);
}
