//! Training with parameters in f32 alone, which are converted where they are used.
//!
//! A master that a parameter in bf16 follows, and a parameter that is converted for each use, are the same number: so
//! both leave the same bits, on any mesh. One copy less is held, and what is gathered is in bf16 in both.

use plan::{Masters, Plan, Precision, Recompute, communication};
use planner_ir::{Op, Phase};
use run::Session;
use search::MachinePrices;

use super::cases::{ADAMW, Arrays, Case, gpt2, parted, step_inputs};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::gpu::session;
use crate::corpus::machine;
use crate::emulated::emulated;

const STEPS: usize = 3;
const RATE: f32 = 1e-3;

/// The plan of a step of micro-batches in a manner, or of least time.
fn planned(
    case: &Case,
    (precision, masters): (Precision, Masters),
    (mesh, manner): (&str, Option<Manner>),
    (again, parts): (Recompute, u64),
) -> Plan {
    let mut training = case.training(ADAMW, again);
    (training.recipe.precision, training.recipe.masters) = (precision, masters);
    let prepared = case.prepared(&training, &parted(&case.batch(0), parts));
    let (mesh, machine) = machine(mesh);
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let plan = match manner {
        None => case.plan_of(&prepared, &mesh, &machine, &prices),
        Some(manner) => {
            let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
            case.plan_of(&prepared, &mesh, &machine, &prices)
        }
    };
    let plan = plan.unwrap();
    check_plan(&plan).unwrap();
    plan
}

/// What some steps leave: parameters in f32, wherever they are, and what the optimizer keeps.
fn left(case: &Case, plan: &Plan, mut session: Session, parts: u64) -> Arrays {
    for number in 1..=STEPS {
        let batch = parted(&case.batch(number - 1), parts);
        session.train(&batch, &step_inputs(&plan.graph, RATE, number)).unwrap();
    }
    session.check_replicas().unwrap();
    let mut left = Arrays::new();
    for state in session.states() {
        let array = session.gather(&state).unwrap();
        if !array.dtype().is_half() {
            let kind = if state.kind.name() == "master" { "parameter" } else { state.kind.name() };
            left.insert(format!("{kind} {}", state.name), array);
        }
    }
    left
}

/// Whether both leave the same bits.
fn same(case: &Case, precision: Precision, of: (&str, Option<Manner>), how: (Recompute, u64)) {
    let [beside, alone] = [Masters::Beside, Masters::Alone].map(|masters| {
        let plan = planned(case, (precision, masters), of, how.clone());
        left(case, &plan, case.session(&plan).unwrap(), how.1)
    });
    let parameters = beside.keys().filter(|it| it.starts_with("parameter")).count();
    assert!(beside.keys().eq(alone.keys()) && parameters > 10, "{precision} on {of:?}");
    for (name, array) in &alone {
        assert!(*array == beside[name], "{precision} on {of:?}: `{name}` is another");
    }
}

#[test]
fn parameters_in_f32_alone_learn_as_masters_do() {
    let case = gpt2().stretched(2, 1);
    for of in [
        ("1", None),
        ("2", Some(Manner::Data(0))),
        ("2", Some(Manner::Data(3))),
        ("2", Some(Manner::Tensor)),
        ("2x2", None),
    ] {
        same(&case, Precision::Bf16, of, (Recompute::Nothing, 2));
    }
    for again in [Recompute::Selective, Recompute::Full] {
        same(&case, Precision::Bf16, ("1", None), (again, 1));
    }
    same(&gpt2().stretched(4, 32), Precision::Fp8, ("1", None), (Recompute::Nothing, 2));
}

#[test]
fn a_gpu_converts_parameters_as_ranks_do() {
    let case = gpt2().stretched(2, 1);
    let how = (Recompute::Nothing, 2);
    let plan = planned(&case, (Precision::Bf16, Masters::Alone), ("2", Some(Manner::Data(3))), how);
    let programs = lower::lower(&plan).unwrap();
    let on_gpu = left(&case, &plan, session(&emulated(), programs, &case.file).unwrap(), 2);
    let expected = left(&case, &plan, case.session(&plan).unwrap(), 2);
    let parameters: Vec<&String> = expected.keys().filter(|it| it.starts_with("parameter")).collect();
    assert!(parameters.len() > 10);
    for name in parameters {
        let (found, expected) = (on_gpu[name].to_floats().unwrap(), expected[name].to_floats().unwrap());
        // A step of AdamW is about the rate, whichever way.
        let apart: f64 = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).sum();
        let (mean, count) = (apart / f64::from(u32::try_from(found.len()).unwrap()), expected.len());
        assert!(found.len() == count && mean < 0.05 * f64::from(RATE), "`{name}`: {mean}");
    }
}

/// Of ZeRO-3: four bytes less for each parameter of a product, which none but its own uses hold in bf16.
#[test]
fn parameters_in_f32_alone_take_four_bytes_and_are_gathered_in_two() {
    let case = gpt2().stretched(4, 1);
    let [beside, alone] = [Masters::Beside, Masters::Alone].map(|masters| {
        planned(&case, (Precision::Bf16, masters), ("4", Some(Manner::Data(3))), (Recompute::Nothing, 2))
    });
    let held = |plan: &Plan, kinds: &[&str]| -> u64 {
        plan.memory.iter().filter(|it| kinds.contains(&&*it.kind)).map(|it| it.bytes).sum()
    };
    assert!(held(&beside, &["masters"]) > 0 && held(&alone, &["masters"]) == 0);
    let [of_beside, of_alone] = [&beside, &alone].map(|it| held(it, &["weights", "masters"]));
    assert!(10 * of_alone < 7 * of_beside, "{of_alone} of {of_beside} bytes");
    let moved = |plan: &Plan| -> u64 { communication(plan).iter().map(|it| it.bytes).sum() };
    assert!(100 * moved(&alone) < 101 * moved(&beside), "{} of {} bytes", moved(&alone), moved(&beside));
    // What a parameter is converted to is made again for the gradients rather than kept.
    let conversions = |phase| {
        let on = alone.graph.on_parameters();
        let is = |(node, on): (&planner_ir::Node, bool)| {
            on && node.phase == phase && matches!(node.op, Op::Cast(_))
        };
        alone.graph.nodes.iter().zip(on).filter(|it| is(*it)).count()
    };
    assert!(conversions(Phase::Forward) > 4 && conversions(Phase::Backward) > 4);
}
