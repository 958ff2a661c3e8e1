//! Models whose file is in f16: in what they are trained is what the recipe says, as of any file.

use std::path::Path;

use driver::pipeline;
use files::model_file::{self, ModelFile};
use import::Bindings;
use kernels::Array;
use plan::{Loss, Precision, Recipe, Recompute};
use planner_ir::{DType, Graph, Node, Op, Source, State, StateKind, Type};
use run::Reference;

use super::cases::{ADAMW, Arrays, floats, step_inputs};

const STEPS: usize = 4;
const RATE: f32 = 1e-2;

fn opened(name: &str) -> ModelFile {
    model_file::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)).unwrap()
}

fn recipe(loss: &str, precision: Precision) -> Recipe {
    let loss = match loss.split_once(',') {
        Some((logits, labels)) => Loss::CrossEntropy { logits: logits.to_owned(), labels: labels.to_owned() },
        None => Loss::Output(loss.to_owned()),
    };
    Recipe { precision, clip: Some(1.0), ..Recipe::new(loss, ADAMW) }
}

/// The step of a model as it was imported.
fn step(imported: &Graph, recipe: &Recipe) -> Graph {
    planner_ir::verify(imported).unwrap();
    let raised = rewrite::raise(imported).unwrap();
    let blocks = rewrite::blocks(&train::forward(&raised.graph, recipe).unwrap());
    let recompute = vec![Recompute::Nothing; blocks.segments.len()];
    let step = train::step(&blocks, &Recipe { recompute, ..recipe.clone() }).unwrap();
    planner_ir::verify(&step.graph).unwrap();
    step.graph
}

fn cast(array: &Array, dtype: DType) -> Array {
    kernels::evaluate(&Op::Cast(dtype), &[array]).unwrap().remove(0)
}

/// A model as an exporter writes it in f16: everything that was f32, also what is converted.
fn halved(graph: &Graph) -> Graph {
    let half = |type_: &Type| match type_.dtype {
        DType::F32 => Type::new(DType::F16, &type_.shape[..]),
        _ => type_.clone(),
    };
    let mut graph = graph.clone();
    for value in &mut graph.values {
        value.type_ = half(&value.type_);
    }
    for node in &mut graph.nodes {
        match &mut node.op {
            Op::Cast(dtype) | Op::Iota { dtype, .. } if *dtype == DType::F32 => *dtype = DType::F16,
            Op::Fill { result, .. } => *result = half(result),
            Op::Constant { result, data } if result.dtype == DType::F32 => {
                let numbers = Array::from_bytes(result.clone(), data).unwrap();
                (*data, *result) = (cast(&numbers, DType::F16).bytes().to_vec(), half(result));
            }
            _ => {}
        }
    }
    graph
}

/// The losses of some steps on one batch.
fn losses(graph: &Graph, weights: &Arrays, batch: &Arrays) -> Vec<f64> {
    let mut device = Reference::new(graph, weights).unwrap();
    let of_step = |number| {
        let outputs = device.train(std::slice::from_ref(batch), &step_inputs(graph, RATE, number)).unwrap();
        floats(&outputs[train::LOSS])[0]
    };
    (1..=STEPS).map(of_step).collect()
}

/// Whether nothing is made in a type, but constants, which are as the file has them.
fn makes_none(graph: &Graph, dtypes: &[DType]) -> Result<(), String> {
    let is_it = |it: &planner_ir::ValueId| dtypes.contains(&graph.type_of(*it).dtype);
    let makes = |node: &&Node| !matches!(node.op, Op::Constant { .. }) && node.results.iter().any(is_it);
    match graph.nodes.iter().find(makes) {
        Some(node) => Err(format!("`{}` (`{}`) makes {:?}", node.op, node.origin, dtypes)),
        None => Ok(()),
    }
}

/// The types of the states of a kind.
fn states(graph: &Graph, wanted: StateKind) -> Vec<DType> {
    let of = |value: &planner_ir::Value| match &value.source {
        Source::State(State { kind, .. }) if *kind == wanted => Some(value.type_.dtype),
        _ => None,
    };
    let mut found: Vec<DType> = graph.values.iter().filter_map(of).collect();
    found.dedup();
    found
}

#[test]
fn a_file_in_f16_is_trained_as_the_same_in_f32() {
    let file = opened("gpt2-loss.onnx");
    let dims = file.model.symbols().into_iter().map(|it| (it.symbol.clone(), 8)).collect();
    let imported =
        pipeline::import(&file, &Bindings { dims, ..Bindings::default() }, &mut |_, _| {}).unwrap();
    let named = file.model.weights().into_iter();
    let half: Arrays = named
        .map(|(name, _)| (name.to_owned(), cast(&run::whole(&file, name).unwrap(), DType::F16)))
        .collect();
    let full: Arrays = half.iter().map(|(name, it)| (name.clone(), cast(it, DType::F32))).collect();
    let batch: Arrays = imported
        .values
        .iter()
        .filter_map(|value| {
            let Source::Input(name) = &value.source else { return None };
            let count = i64::try_from(value.type_.elements()).unwrap();
            let numbers: Vec<i64> = (0..count).map(|it| it * 7 % 31).collect();
            Some((name.clone(), Array::of::<i64>(&value.type_.shape[..], &numbers).unwrap()))
        })
        .collect();
    for precision in [Precision::F32, Precision::Bf16, Precision::Bf16Stochastic] {
        let recipe = recipe("loss", precision);
        let [ours, sibling] = [&halved(&imported), &imported].map(|it| step(it, &recipe));
        makes_none(&ours, &[DType::F16]).unwrap();
        for kind in [StateKind::Parameter, StateKind::Master, StateKind::FirstMoment, StateKind::Gradient] {
            assert_eq!(states(&ours, kind), states(&sibling, kind), "{precision} {kind:?}");
        }
        let (found, expected) = (losses(&ours, &half, &batch), losses(&sibling, &full, &batch));
        assert!(expected[STEPS - 1] < 0.9 * expected[0], "{precision}: nothing is learned: {expected:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-3 * expected, "{precision}: {found}, expected {expected}");
        }
    }
}

/// Files as exporters write them convert here and there.
#[test]
fn files_in_less_than_f32_are_trained_in_what_is_asked_for() {
    for name in ["llama-fp16-legacy2.9-op17-dyn/model.onnx", "gpt2-bf16-dynamo2.9-op20-dyn/model.onnx"] {
        let file = opened(name);
        let dims = file.model.symbols().into_iter().map(|it| (it.symbol.clone(), 8)).collect();
        let bindings = Bindings { dims, ..Bindings::default() };
        let imported = pipeline::import(&file, &bindings, &mut |_, _| {}).unwrap();
        let logits = &imported.outputs[0].name;
        for (precision, without) in [
            (Precision::F32, &[DType::F16, DType::BF16][..]),
            (Precision::Bf16, &[DType::F16]),
            (Precision::Bf16Stochastic, &[DType::F16]),
        ] {
            let step = step(&imported, &recipe(&format!("{logits},labels"), precision));
            makes_none(&step, without).unwrap_or_else(|error| panic!("{name} in {precision}: {error}"));
            let wide = states(&step, StateKind::Master);
            assert!(wide.iter().all(|it| *it == DType::F32), "{name} in {precision}: masters in {wide:?}");
        }
        let step = step(&imported, &recipe(&format!("{logits},labels"), Precision::File));
        let own = if name.contains("bf16") { DType::BF16 } else { DType::F16 };
        makes_none(&step, &[own]).expect_err("what the file has is computed");
        assert!(states(&step, StateKind::Parameter).contains(&own), "{name}");
        assert_eq!(states(&step, StateKind::Master), [DType::F32], "{name}");
    }
}
