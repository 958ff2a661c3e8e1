//! Training with parameters in bf16 alone, which are rounded by chance after each step.
//!
//! What a parameter is rounded by depends on its place in the whole model and value alone: a plan
//! changes an element only where it changes what is rounded, and that falls to the other side of the
//! same chance. Plans of which the arithmetic is the same leave the same bits.

use driver::pipeline::{Prepared, Training};
use plan::{Plan, Precision, Recipe, Recompute};
use planner_ir::{DType, Graph, Op, Source, State, StateKind, parse_graph};
use run::{Reference, Session};
use search::MachinePrices;

use super::cases::{ADAMW, Arrays, Case, SGD, floats, gpt2, parted, step_inputs};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::gpu::session;
use crate::corpus::machine;
use crate::emulated::emulated;
use kernels::Array;

const STEPS: usize = 3;
const RATE: f32 = 1e-3;

/// How many elements of parameters may differ where only the order of sums does. By other chances,
/// half of them do.
const DIFFERING: f64 = 0.06;

/// A small model's loss, `sum((w x - t)^2)`, of parameters from a file.
const SQUARES: &str = r#"graph "squares" {
  %0 = input "x" : f32[64,64]
  %1 = input "t" : f32[64,64]
  %2 = weight "w" : f32[64,64]
  %3 = mul %2 %0 : f32[64,64]
  %4 = sub %3 %1 : f32[64,64]
  %5 = mul %4 %4 : f32[64,64]
  %6 = reduce_sum dims=[0,1] %5 : f32[1,1]
  %7 = reshape shape=[] %6 : f32[]
  return "loss" %7
}
"#;

/// The training step of the small model.
fn squares() -> Graph {
    let recipe = Recipe {
        precision: Precision::Bf16Stochastic,
        ..Recipe::new(plan::Loss::Output("loss".to_owned()), SGD)
    };
    let forward = train::forward(&parse_graph(SQUARES).unwrap(), &recipe).unwrap();
    let blocks = rewrite::blocks(&forward);
    let recompute = vec![Recompute::Nothing; blocks.segments.len()];
    train::step(&blocks, &Recipe { recompute, ..recipe }).unwrap().graph
}

/// The same step with parameters rounded to the nearest.
fn to_the_nearest(graph: &Graph) -> Graph {
    let mut graph = graph.clone();
    for node in &mut graph.nodes {
        if matches!(node.op, Op::RoundStochastically { .. }) {
            node.op = Op::Cast(DType::BF16);
            node.operands.truncate(1);
        }
    }
    planner_ir::verify(&graph).unwrap();
    graph
}

/// The parameter of the small model after some steps.
fn after(graph: &Graph, steps: usize, rate: f32) -> Vec<f64> {
    let filled = |number: f32| Array::of::<f32>([64, 64], &[number; 64 * 64]).unwrap();
    let weights = Arrays::from([("w".to_owned(), filled(1.0))]);
    let mut device = Reference::new(graph, &weights).unwrap();
    let batch = Arrays::from([("x".to_owned(), filled(1.0)), ("t".to_owned(), filled(1.25))]);
    for number in 1..=steps {
        device.train(std::slice::from_ref(&batch), &step_inputs(graph, rate, number)).unwrap();
    }
    floats(device.state(&State { kind: StateKind::Parameter, name: "w".to_owned() }).unwrap())
}

/// Steps from 1 towards 1.25 by a 128th of twice the distance are a quarter of what bf16 tells apart,
/// and less and less of it.
#[test]
fn steps_too_small_for_bf16_are_made_on_the_average() {
    const COUNT: usize = 300;
    const RATE: f32 = 1.0 / 256.0;
    let graph = squares();
    planner_ir::verify(&graph).unwrap();
    assert!(after(&to_the_nearest(&graph), COUNT, RATE).iter().all(|&it| it.to_bits() == 1.0_f64.to_bits()));
    let found = after(&graph, COUNT, RATE);
    let mean = found.iter().sum::<f64>() / 4096.0;
    let left = (1.0 - 2.0 * f64::from(RATE)).powi(i32::try_from(COUNT).unwrap());
    let expected = 1.25 - 0.25 * left;
    assert!((mean - expected).abs() < 1e-3, "{mean}, expected {expected}");
    // Each by chances of its own.
    assert!(found.iter().any(|&it| it < expected) && found.iter().any(|&it| it > expected));
}

fn training(case: &Case, precision: Precision) -> Training {
    let mut training = case.training(ADAMW, Recompute::Nothing);
    training.recipe.precision = precision;
    training
}

/// The plan of a step in a manner, or of least time.
fn planned(case: &Case, prepared: &Prepared, mesh: &str, manner: Option<Manner>) -> Plan {
    let (mesh, machine) = machine(mesh);
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let plan = match manner {
        None => case.plan_of(prepared, &mesh, &machine, &prices),
        Some(manner) => {
            let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
            case.plan_of(prepared, &mesh, &machine, &prices)
        }
    };
    let plan = plan.unwrap();
    check_plan(&plan).unwrap();
    plan
}

/// The states that some steps leave.
fn trained(case: &Case, graph: &Graph, mut session: Session, parts: u64) -> Arrays {
    for number in 1..=STEPS {
        let batch = parted(&case.batch(number - 1), parts);
        session.train(&batch, &step_inputs(graph, RATE, number)).unwrap();
    }
    session.check_replicas().unwrap();
    let states = session.states().into_iter();
    states.map(|it| (format!("{} {}", it.kind.name(), it.name), session.gather(&it).unwrap())).collect()
}

/// The states that some steps leave on one device, by chances that count from so many more.
fn alone(case: &Case, graph: &Graph, more: i64) -> Arrays {
    let mut device = Reference::new(graph, &case.file).unwrap();
    for number in 1..=STEPS {
        let mut inputs = step_inputs(graph, RATE, number);
        let [first] = inputs[train::ROUNDING].elements::<i64>().unwrap() else { panic!("one number") };
        let shifted = Array::of::<i64>(vec![], &[first + 500_000 * more]).unwrap();
        inputs.insert(train::ROUNDING.to_owned(), shifted);
        device.train(&parted(&case.batch(number - 1), 2), &inputs).unwrap();
    }
    let states = graph.values.iter().filter_map(|value| match &value.source {
        Source::State(state) if !state.kind.is_summed() => {
            Some((format!("{} {}", state.kind.name(), state.name), device.state(state).unwrap().clone()))
        }
        _ => None,
    });
    states.collect()
}

/// Which part of the elements of all parameters differ.
fn differing(found: &Arrays, expected: &Arrays) -> f64 {
    assert!(found.keys().eq(expected.keys()));
    let (mut differ, mut all) = (0_u32, 0_u32);
    for (name, array) in found.iter().filter(|(name, _)| name.starts_with("parameter")) {
        assert_eq!(array.dtype(), DType::BF16, "{name}");
        for (a, b) in floats(array).iter().zip(floats(&expected[name])) {
            differ += u32::from(a.to_bits() != b.to_bits());
            all += 1;
        }
    }
    f64::from(differ) / f64::from(all)
}

#[test]
fn chances_do_not_depend_on_the_plan() {
    let case = gpt2();
    let case = case.stretched(2, 1);
    let prepared = case.prepared(&training(&case, Precision::Bf16Stochastic), &parted(&case.batch(0), 2));
    // The program of one device, in which products add to sums.
    let program = planned(&case, &prepared, "1", None).graph;
    let (expected, other) = (alone(&case, &program, 0), alone(&case, &program, 1));
    let part = differing(&other, &expected);
    assert!(part > 5.0 * DIFFERING, "by other chances {part} of the elements differ");
    let plans = [
        ("1", None),
        ("2", Some(Manner::Data(0))),
        ("2", Some(Manner::Data(1))),
        ("2", Some(Manner::Data(3))),
        ("2", Some(Manner::Tensor)),
        ("4", Some(Manner::Sequence)),
        ("2x2", None),
    ];
    let left = plans.map(|(mesh, manner)| {
        let plan = planned(&case, &prepared, mesh, manner);
        let left = trained(&case, &plan.graph, case.session(&plan).unwrap(), 2);
        let part = differing(&left, &expected);
        assert!(part < DIFFERING, "{manner:?} on {mesh}: {part} of the elements differ");
        left
    });
    // One device has all sums; where moments lie changes none.
    assert!(left[0] == expected && left[1] == left[2], "other bits");
    let plan = planned(&case, &prepared, "2", Some(Manner::Tensor));
    let programs = lower::lower(&plan).unwrap();
    let gpu = emulated();
    let on_gpu = session(&gpu, programs, &case.file).unwrap();
    let part = differing(&trained(&case, &plan.graph, on_gpu, 2), &expected);
    assert!(part < DIFFERING, "on a GPU {part} of the elements differ");
}

#[test]
fn parameters_in_bf16_alone_take_two_bytes_and_have_no_master() {
    let case = gpt2();
    let held = [Precision::Bf16, Precision::Bf16Stochastic].map(|precision| {
        let prepared = case.prepared(&training(&case, precision), &parted(&case.batch(0), 1));
        let plan = planned(&case, &prepared, "1", None);
        ["weights", "masters", "optimizer"]
            .map(|kind| plan.memory.iter().find(|it| it.kind == kind).map_or(0, |it| it.bytes))
    });
    let [beside, alone] = held;
    assert!(beside[1] > 0 && alone[1] == 0, "{beside:?} {alone:?}");
    assert_eq!(alone[2], beside[2], "two moments in f32");
    let parameters = alone[2] / 8;
    assert!(alone[0] >= 2 * parameters && alone[0] < 2 * parameters + parameters / 10, "{alone:?}");
}
