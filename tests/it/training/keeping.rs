//! What is kept value by value: when, how much faster, and that the steps are the same.

use std::path::Path;

use driver::pipeline::{self, Decisions, Phases, Prepared, Target, Training};
use files::model_file::{self, ModelFile};
use import::Bindings;
use plan::{Loss, Plan, Precision, Recipe, Recompute};
use planner_ir::{Graph, Optimizer};

use super::cases::{self, ADAMW, Case, MOMENTUM, SGD, parted};
use super::chosen::check_plan;
use super::expect_none;
use crate::corpus::machine;

/// More than any of these steps takes (bytes).
const AMPLE: u64 = 1 << 40;

/// The plan of least time with this much memory.
fn planned(prepared: &Prepared, mesh: &str, capacity: u64) -> Result<Plan, String> {
    let (mesh, machine) = machine(mesh);
    let target = Target {
        machine: &machine,
        mesh: &mesh,
        capacity,
        steps: rewrite::Steps::Auto,
        live: search::Live::ONE,
        rules: None,
    };
    let header = plan::ModelFile { path: "model.onnx".to_owned(), sha256: "0".repeat(64), dims: vec![] };
    let prices = pipeline::prices(&target).map_err(|error| error.to_string())?;
    pipeline::planned(prepared, &header, &target, &prices).map_err(|error| error.to_string())
}

fn held(plan: &Plan) -> u64 {
    plan.memory.iter().map(|it| it.bytes).sum()
}

fn decisions(plan: &Plan) -> &[Recompute] {
    plan.recipe.as_ref().map_or(&[], |recipe| &recipe.recompute)
}

/// How many blocks of a plan keep some of their values.
fn partly(plan: &Plan) -> usize {
    decisions(plan).iter().filter(|it| matches!(it, Recompute::AllBut(_))).count()
}

impl Case {
    fn prepared_by(&self, optimizer: Optimizer, decisions: Decisions, parts: u64) -> Prepared {
        let training = Training { decisions, ..self.training(optimizer, Recompute::Nothing) };
        self.prepared(&training, &parted(&self.batch(0), parts))
    }
}

/// Plans with less memory than everything takes and more than the least, run; and in how many of
/// them blocks keep some values only.
fn check(case: &Case, mesh: &str, optimizer: Optimizer) -> Result<usize, String> {
    let ample = planned(&case.prepared_by(optimizer, Decisions::Values, 1), mesh, AMPLE)?;
    let only = Decisions::Only(Recompute::Full);
    let least = planned(&case.prepared_by(optimizer, only, 1), mesh, AMPLE)?;
    if !decisions(&ample).iter().all(|it| *it == Recompute::Nothing) {
        return Err("something is recomputed though memory is ample".to_owned());
    }
    let prepared = case.prepared_by(optimizer, Decisions::Values, 1);
    let mut found = 0;
    for quarter in [1, 3] {
        let apart = held(&ample).saturating_sub(held(&least));
        let plan = planned(&prepared, mesh, held(&least) + apart / 4 * quarter)?;
        check_plan(&plan)?;
        found += usize::from(partly(&plan) > 0);
        case.check_training(&plan, optimizer, 1)?;
    }
    Ok(found)
}

/// A GPT-2 that is part of the repository, and its training.
fn bytes_model() -> (ModelFile, Graph, Recipe) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/gpt2-bytes.onnx");
    let file = model_file::open(&path).unwrap();
    let dims = [("batch".to_owned(), 512), ("sequence".to_owned(), 64)];
    let bindings = Bindings { dims: dims.into(), ..Bindings::default() };
    let imported = pipeline::import(&file, &bindings, &mut |_, _| {}).unwrap();
    let loss = Loss::CrossEntropy { logits: "logits".to_owned(), labels: "labels".to_owned() };
    let recipe = Recipe { precision: Precision::F32, ..Recipe::new(loss, ADAMW) };
    (file, imported, recipe)
}

fn bytes_step(decisions: Decisions) -> Prepared {
    let (file, imported, recipe) = bytes_model();
    let training = Training { recipe, decisions, phases: Phases::Together };
    pipeline::prepare_training(&file, &imported, &training, &mut |_, _| {}).unwrap()
}

#[test]
fn what_is_kept_is_said_by_numbers_of_operations() {
    let (file, imported, recipe) = bytes_model();
    let raised = rewrite::raise(&imported).unwrap();
    let blocks = rewrite::blocks(&train::forward(&raised.graph, &recipe).unwrap());
    let sizes: Vec<usize> = blocks.segments.iter().map(|segment| segment.nodes.len()).collect();
    let derived = |of: &dyn Fn(usize) -> Recompute| {
        let recompute = sizes.iter().map(|&size| of(size)).collect();
        let derived = pipeline::derived(&file, &imported, &Recipe { recompute, ..recipe.clone() });
        derived.map(|it| it.0.graph).map_err(|failure| failure.to_string())
    };
    let [nothing, full] = [Recompute::Nothing, Recompute::Full].map(|it| derived(&|_| it.clone()));
    assert_eq!(derived(&|size| Recompute::AllBut((0..size).collect())), nothing);
    assert_eq!(derived(&|_| Recompute::AllBut(vec![])), full);
    let some = derived(&|size| Recompute::AllBut((0..size / 2).collect()));
    assert!(some.is_ok() && some != nothing && some != full);
    for wrong in [|size: usize| vec![0, size], |_| vec![1, 0], |_| vec![0, 0]] {
        let error = derived(&|size| Recompute::AllBut(wrong(size))).unwrap_err();
        assert!(error.contains("what is kept of block 0 is not a list of its operations"), "{error}");
    }
}

#[test]
fn keeping_some_values_is_faster_than_any_mixture_of_whole_decisions() {
    let [blocks, values, full] =
        [Decisions::Blocks, Decisions::Values, Decisions::Only(Recompute::Full)].map(bytes_step);
    for mesh in ["1", "4"] {
        let ample = planned(&values, mesh, AMPLE).unwrap();
        assert!(decisions(&ample).iter().all(|it| *it == Recompute::Nothing), "{:?}", decisions(&ample));
        let least = held(&planned(&full, mesh, AMPLE).unwrap());
        let mut most = 0.0;
        for part in [2, 5] {
            let capacity = least + (held(&ample) - least) / 8 * part;
            let [whole, single] = [&blocks, &values].map(|it| planned(it, mesh, capacity).unwrap());
            check_plan(&single).unwrap();
            assert!(held(&single) <= capacity && partly(&whole) == 0);
            let faster = whole.seconds() / single.seconds() - 1.0;
            println!("mesh {mesh}, {part}/8: {} s and {} s", whole.seconds(), single.seconds());
            assert!(faster > -1e-9, "{} and {}", whole.seconds(), single.seconds());
            if partly(&single) > 0 && faster > most {
                most = faster;
            }
        }
        assert!(most > 0.001, "no more than {most} of the time is won on mesh {mesh}");
    }
}

#[test]
fn steps_that_keep_some_values_train_as_pytorch() {
    let mut failures = Vec::new();
    let (mut plans, mut found) = (0, 0);
    for (model, mesh, optimizer) in [
        ("gpt2/legacy.onnx", "1", ADAMW),
        ("gpt2/legacy.onnx", "2", SGD),
        ("gpt2/legacy.onnx", "4", MOMENTUM),
        ("llama/legacy.onnx", "2", SGD),
    ] {
        let all = cases::all();
        let Some(path) = all.iter().find(|path| path.to_string_lossy().contains(model)) else { continue };
        let case = Case::load(path);
        plans += 2;
        match check(&case, mesh, optimizer) {
            Ok(partly) => found += partly,
            Err(error) => failures.push(format!("{} on {mesh}: {error}", case.title)),
        }
    }
    expect_none(&failures);
    println!("{found} of {plans} plans keep some values of blocks");
    assert!(plans == 0 || found >= plans / 2, "{found} of {plans} plans");
}
