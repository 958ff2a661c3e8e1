//! Training with the products of linear layers in 8 and in 4 bits.

use driver::pipeline::Training;
use kernels::Array;
use plan::{Plan, Precision, Recompute};
use planner_ir::{Graph, Op, Source, State, StateKind};
use run::{Reference, Session};
use search::MachinePrices;

use super::against::apart;
use super::cases::{ADAMW, Arrays, Case, floats, gpt2, parted, step_inputs};
use super::chosen::check_plan;
use crate::corpus::{check_bytes, machine};
use crate::emulated::emulated;
use crate::one_number::said;
use crate::tidy::root;
use crate::tier::first;

const STEPS: usize = 6;
const RATE: f32 = 3e-3;

/// The recipes, and how far a loss after some steps may be from that of bf16, relative to it.
const NARROW: [(Precision, f64); 4] = [
    (Precision::Fp8, 1e-2),
    (Precision::Fp8Delayed, 1e-2),
    (Precision::Mxfp8, 1e-2),
    (Precision::Nvfp4, 6e-2),
];

fn training(case: &Case, precision: Precision, again: Recompute) -> Training {
    let mut training = case.training(ADAMW, again);
    training.recipe.precision = precision;
    training
}

/// How many products are narrow, and how many are not.
fn products(plan: &Graph) -> [usize; 2] {
    let count = |is: fn(&Op) -> bool| plan.nodes.iter().filter(|it| is(&it.op)).count();
    [count(|it| matches!(it, Op::ScaledContract { .. })), count(|it| matches!(it, Op::Contract(_)))]
}

/// Micro-batches with what makes the chances of each another's.
pub(super) fn seeded(graph: &Graph, mut batch: Vec<Arrays>, step: usize) -> Vec<Arrays> {
    let has = graph.values.iter().any(|it| it.source == Source::Input(train::SEED.to_owned()));
    for (number, inputs) in batch.iter_mut().enumerate().filter(|_| has) {
        let seed = i64::try_from(1000 * step + 100 * number).unwrap();
        inputs.insert(train::SEED.to_owned(), Array::of::<i64>([], &[seed]).unwrap());
    }
    batch
}

/// The losses of some steps of one device on the same batch.
fn losses(case: &Case, precision: Precision) -> Vec<f64> {
    let batch = parted(&case.batch(0), 1);
    let graph = case.prepared(&training(case, precision, Recompute::Nothing), &batch).graph;
    let [narrow, _] = products(&graph);
    assert_eq!(narrow > 0, precision != Precision::Bf16, "{precision}");
    let mut device = Reference::new(&graph, &case.file).unwrap();
    let step = |number| {
        let batch = seeded(&graph, parted(&case.batch(0), 1), number);
        let outputs = device.train(&batch, &step_inputs(&graph, RATE, number)).unwrap();
        floats(&outputs[train::LOSS])[0]
    };
    (1..=STEPS).map(step).collect()
}

/// A case whose products are large enough.
fn case() -> Case {
    gpt2().stretched(4, 32)
}

#[test]
fn a_model_learns_with_narrow_products_beside_bf16() {
    let case = case();
    let expected = losses(&case, Precision::Bf16);
    assert!(expected[STEPS - 1] < 0.95 * expected[0], "{expected:?}");
    for (precision, allowed) in NARROW {
        let found = losses(&case, precision);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < allowed * expected, "{precision}: {found}, bf16 {expected}");
        }
        assert!(found.iter().zip(&expected).any(|(a, b)| a.to_bits() != b.to_bits()), "{precision} is bf16");
    }
}

/// The plan of a step for a mesh.
fn planned(case: &Case, training: &Training, parts: u64, mesh: &str) -> Plan {
    let prepared = case.prepared(training, &parted(&case.batch(0), parts));
    let (mesh, machine) = machine(mesh);
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let plan = case.plan_of(&prepared, &mesh, &machine, &prices).unwrap();
    check_plan(&plan).unwrap();
    plan
}

/// What two steps leave of the parameters in full.
fn left(case: &Case, plan: &Plan, mut session: Session, parts: u64) -> Arrays {
    for number in 1..=2 {
        let batch = seeded(&plan.graph, parted(&case.batch(number - 1), parts), number);
        let outcome = session.train(&batch, &step_inputs(&plan.graph, RATE, number)).unwrap();
        check_bytes(plan, &outcome.received).unwrap();
    }
    session.check_replicas().unwrap();
    let masters = session.states().into_iter().filter(|it| it.kind == StateKind::Master);
    masters.map(|it| (it.name.clone(), session.gather(&it).unwrap())).collect()
}

/// Scales follow from whole values, so that several ranks quantise as one does: what differs is the order of
/// sums, and the few numbers that this moves to the next one of 8 bits.
#[test]
fn several_ranks_make_the_step_of_one() {
    let case = case();
    for (precision, _) in NARROW {
        for (again, parts) in [(Recompute::Nothing, 1), (Recompute::Full, 2)] {
            let training = training(&case, precision, again);
            let alone = planned(&case, &training, parts, "1");
            let expected = left(&case, &alone, case.session(&alone).unwrap(), parts);
            assert!(!expected.is_empty());
            for mesh in first(1, &["2x2", "2", "4"]) {
                let plan = planned(&case, &training, parts, mesh);
                let found = left(&case, &plan, case.session(&plan).unwrap(), parts);
                for (name, expected) in &expected {
                    let before = floats(&run::whole(&case.file, name).unwrap());
                    let moved = |after: &[f64]| -> Vec<f64> {
                        before.iter().zip(after).map(|(before, after)| after - before).collect()
                    };
                    let off = apart(&moved(&floats(&found[name])), &moved(&floats(expected)), 1e-3);
                    assert!(off < 0.2, "{precision}, {mesh}: {name} is off by {off}");
                }
            }
        }
    }
}

/// With scales of steps before, magnitudes are found with the values and remembered: of the first step, whose
/// scales are 1, they are those of the step itself, and in the second they are what `fp8` finds nearly.
#[test]
fn magnitudes_are_remembered_from_step_to_step() {
    let case = case();
    for (again, parts) in [(Recompute::Nothing, 1), (Recompute::Full, 2)] {
        let training = training(&case, Precision::Fp8Delayed, again);
        let graph = case.prepared(&training, &parted(&case.batch(0), parts)).graph;
        assert!(!graph.nodes.iter().any(|it| matches!(it.op, Op::Amax { .. })), "no pass of its own");
        let of = |kind| -> Vec<State> {
            let states = graph.values.iter().filter_map(|it| match &it.source {
                Source::State(state) if state.kind == kind => Some(state.clone()),
                _ => None,
            });
            states.collect()
        };
        let (histories, largest) = (of(StateKind::History), of(StateKind::Largest));
        assert!(!histories.is_empty() && histories.len() == largest.len());
        let mut device = Reference::new(&graph, &case.file).unwrap();
        let mut before: Vec<Vec<f64>> = vec![vec![0.0; 1024]; histories.len()];
        for number in 1..=3 {
            let batch = parted(&case.batch(number - 1), parts);
            device.train(&batch, &step_inputs(&graph, RATE, number)).unwrap();
            for ((history, largest), before) in histories.iter().zip(&largest).zip(&mut before) {
                let most = floats(device.state(largest).unwrap()).into_iter().fold(0.0, f64::max);
                assert!(most > 0.0, "{}", largest.name);
                before.remove(0);
                before.push(most);
                assert_eq!(
                    floats(device.state(history).unwrap()),
                    *before,
                    "{}, step {number}",
                    history.name
                );
            }
        }
        // Ranks find the same but for the order of sums, wherever a value lies.
        let plan = planned(&case, &training, parts, "2");
        let mut session = case.session(&plan).unwrap();
        for number in 1..=3 {
            let batch = parted(&case.batch(number - 1), parts);
            session.train(&batch, &step_inputs(&plan.graph, RATE, number)).unwrap();
        }
        for (history, expected) in histories.iter().zip(&before) {
            let off = apart(&floats(&session.gather(history).unwrap()), expected, 0.0);
            assert!(off < 0.05, "{} is off by {off}", history.name);
        }
    }
}

/// What is kept of a linear layer's operand is what products read: 8 bits.
#[test]
fn what_is_kept_is_narrow() {
    let case = case();
    let kept = [Precision::Bf16, Precision::Fp8, Precision::Nvfp4].map(|precision| {
        let plan = planned(&case, &training(&case, precision, Recompute::Nothing), 1, "1");
        plan.memory.iter().find(|it| it.kind == "activations").map_or(0, |it| it.bytes)
    });
    assert!(kept[1] < kept[0] && kept[2] < kept[1], "{kept:?}");
}

/// No kernel of a GPU multiplies such numbers: that is said before anything is done.
#[test]
fn gpus_refuse_narrow_products() {
    let case = case();
    let gpu = emulated();
    for precision in [Precision::Fp8, Precision::Nvfp4] {
        let plan = planned(&case, &training(&case, precision, Recompute::Nothing), 1, "1");
        let programs = lower::lower(&plan).unwrap();
        let found = crate::corpus::gpu::session(&gpu, programs, &case.file).err().map(|it| it.to_string());
        let found = found.unwrap_or_default();
        assert!(found.contains("8-bit or 4-bit") && found.contains("--precision bf16"), "{found}");
    }
}

/// Parameters and states are those of bf16.
#[test]
fn states_are_those_of_bf16() {
    let case = case();
    let all = [Precision::Bf16, Precision::Fp8, Precision::Mxfp8, Precision::Nvfp4];
    let states = all.map(|precision| {
        let batch = parted(&case.batch(0), 1);
        let graph = case.prepared(&training(&case, precision, Recompute::Nothing), &batch).graph;
        let of = graph.values.iter().filter(|it| matches!(it.source, Source::State(_)));
        of.map(|it| (it.type_.clone(), it.source.clone())).collect::<Vec<_>>()
    });
    assert!(states.iter().all(|it| *it == states[0]));
}

/// What a step of Llama 3 8B takes on eight devices of a machine, as a plan says (seconds).
fn step_of_llama(machine: &str, precision: &str) -> f64 {
    let path = std::env::temp_dir()
        .join(format!("shardloom-narrow-{}-{machine}-{precision}.json", std::process::id()));
    let (config, plan) = (root().join("tests/configs/llama3_8b.json"), path.display().to_string());
    let how = format!(
        "--machine {machine}-8x --mesh 8 --dim batch=8 --dim sequence=8192 --mode train --loss loss \
         --precision {precision} -o {plan}"
    );
    let config = config.display().to_string();
    let mut arguments = vec!["plan", &config];
    arguments.extend(how.split_whitespace());
    said(&arguments);
    let simulated: serde_json::Value = serde_json::from_str(&said(&["simulate", &plan, "--json"])).unwrap();
    std::fs::remove_file(&path).unwrap();
    simulated["estimated_seconds"].as_f64().unwrap()
}

/// Products of 8 bits have twice the rate of 16, attention and passes none: a step is between half as long and
/// as long. Without units for them, or for their scales, it is longer.
#[test]
fn steps_in_8_bits_are_shorter_where_there_are_units_for_them() {
    let cases = [
        ("h100-80g", "fp8", true),
        ("a100-80g", "fp8", false),
        ("h100-80g", "mxfp8", false),
        ("b200-180g", "mxfp8", true),
        ("b200-180g", "nvfp4", true),
    ];
    for &(machine, narrow, shorter) in first(2, &cases) {
        let [wide, found] = ["bf16", narrow].map(|precision| step_of_llama(machine, precision));
        let right = if shorter { 0.5 * wide < found && found < 0.9 * wide } else { wide < found };
        assert!(right, "{machine}, {narrow}: {found}, in bf16 {wide}");
    }
}
