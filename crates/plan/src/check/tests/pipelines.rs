//! Pipelines made wrong in one place.

use std::collections::BTreeSet;

use arbtest::arbtest;
use planner_ir::{DType, Layout, Op, Real};

use crate::check::{PIPELINE_RULES, check_pipeline};
use crate::pipeline::Pipeline;
use crate::samples::pipelines;
use crate::{Holding, Precision, Proof, Term};

#[test]
fn right_pipelines_are_accepted() {
    arbtest(|u| {
        for pipeline in [pipelines::random(u)?, pipelines::rounded(u)?] {
            assert_eq!(check_pipeline(&pipeline), Ok(()), "{}", crate::json::write_pipeline(&pipeline));
        }
        Ok(())
    })
    .budget_ms(500);
}

/// What is made wrong, the rule that finds it, a part of the message, and the change.
type Mutant = (&'static str, &'static str, &'static str, fn(&mut Pipeline));

const MUTANTS: [Mutant; 43] = [
    ("a task is gone", "schedule", " is missing", |it| it.schedule.groups[0].truncate(5)),
    ("a task comes twice", "schedule", "", |it| {
        let first = it.schedule.groups[0][0];
        it.schedule.groups[0].push(first);
    }),
    ("a group that does all backward first", "schedule", "", |it| it.schedule.groups[0].reverse()),
    ("a group more", "schedule", "", |it| it.schedule.groups.push(vec![])),
    ("no groups", "schedule", "", |it| it.schedule.groups.clear()),
    ("a stage less", "schedule", "", |it| drop(it.stages.pop())),
    ("no stages", "schedule", "", |it| it.stages.clear()),
    ("more micro-batches", "schedule", "", |it| it.recipe.micro_batches += 1),
    ("endless micro-batches", "schedule", "", |it| it.recipe.micro_batches = u64::MAX),
    ("other micro-batches in a stage", "stage", "its micro-batches are Some(5), expected 6", |it| {
        it.stages[1].plan.graph.training.as_mut().unwrap().micro_batches = 5;
    }),
    ("a stage that answers", "stage", "its micro-batches are None", |it| {
        it.stages[1].plan.graph.training = None;
    }),
    ("blocks that are not those from the first", "stage", "stage 0: it starts at block 1", |it| {
        it.stages[0].first_block = 1;
    }),
    ("blocks in another order", "stage", "stage 1: it starts at block 0", |it| it.stages[1].first_block = 0),
    ("devices that two groups have", "stage", "several groups", |it| {
        for stage in (1..it.stages.len()).step_by(it.schedule.groups.len()) {
            it.stages[stage].first_device = 0;
        }
    }),
    ("devices that nobody has", "stage", "", |it| {
        it.stages.iter_mut().for_each(|stage| stage.first_device += 1);
    }),
    ("devices behind the last", "stage", "", |it| it.stages[0].first_device = u64::MAX),
    ("a machine of other size", "stage", "the machine has", |it| it.machine.devices += 1),
    ("stages of two models", "stage", "stage 1: it is of another model file", |it| {
        it.stages[1].plan.model.sha256 = "f".repeat(64);
    }),
    ("a stage of another recipe", "stage", "stage 1: it is of another recipe", |it| {
        it.stages[1].plan.recipe.as_mut().unwrap().clip = Some(2.0);
    }),
    ("another recipe than that of the stages", "stage", "stage 0: it is of another recipe", |it| {
        it.recipe.precision = Precision::Bf16;
    }),
    ("nodes without adapters", "stage", "stage 1: its nodes have no adapters", |it| {
        it.stages[1].adapters = 0
    }),
    ("nodes without devices", "stage", "no devices", |it| it.devices_per_node = 0),
    (
        "an input of two types",
        "input",
        "stage 1, input `rate`: is f64[], expected f32[], as in stage 0",
        |it| {
            it.stages[1].plan.graph.values[2].type_.dtype = DType::F64;
        },
    ),
    ("a group of which no memory is said", "memory", "expected", |it| drop(it.memory.pop())),
    ("memory of a group that is none", "memory", "expected", |it| it.memory.push(vec![])),
    ("more than fits", "memory", "group 1: holds 2048 bytes, and a device may hold 2047", |it| {
        it.capacity = 2047;
    }),
    (
        "more than fits on its nodes",
        "memory",
        "group 1: holds 2048 bytes, and a device may hold 2047",
        |it| {
            it.stages[1].plan.capacity = 2047;
        },
    ),
    ("endless memory", "memory", "group 0: holds 18446744073709551615 bytes", |it| {
        it.memory[0].push(Holding { kind: "more".to_owned(), bytes: u64::MAX });
    }),
    ("less time than a group needs", "estimate", "expected from", |it| it.estimate.clear()),
    ("more time than everything needs", "estimate", "expected from", |it| {
        it.estimate.push(Term { name: "more".to_owned(), seconds: 1.0 });
    }),
    ("no number of seconds", "estimate", "expected a number from 0", |it| it.estimate[0].seconds = f64::NAN),
    ("a bound above the time", "proof", "a lower bound of 1 seconds", |it| {
        it.proof = Proof::Gap { lower_bound: 1.0 };
    }),
    ("two of a name", "crossing", "another one is called so", |it| {
        it.crossings[1].name = it.crossings[0].name.clone();
    }),
    ("from no stage", "crossing", "there is no stage 99", |it| it.crossings[0].from = 99),
    ("from a stage that does not give it", "crossing", "stage 1 gives no such output", |it| {
        it.crossings[0].from = 1;
    }),
    ("to no stage", "crossing", "stage 99 does not take it as f32[8,16]", |it| {
        it.crossings[0].to[0].stage = 99;
    }),
    ("to where it comes from", "crossing", "it arrives at stage 0 out of order", |it| {
        it.crossings[0].to[0].stage = 0;
    }),
    ("twice to a stage", "crossing", "it arrives at stage 1 out of order", |it| {
        let again = it.crossings[0].to[0].clone();
        it.crossings[0].to.push(again);
    }),
    ("to nobody", "crossing", "it arrives nowhere", |it| it.crossings[0].to.clear()),
    ("a crossing less", "crossing", "stage 0: it takes `crossing:0b`, which does not arrive there", |it| {
        it.crossings.remove(1);
    }),
    ("a crossing less, as its sender sees it", "crossing", "stage 1: it gives `crossing:0b`", |it| {
        it.crossings.remove(1);
    }),
    ("in no time", "crossing", "its seconds are below 0", |it| it.crossings[0].to[0].seconds = -1.0),
    ("in no chunks", "crossing", "its chunks are none", |it| it.crossings[0].to[0].chunks = 0),
];

/// Of parameters that are rounded by chance.
const ROUNDED: [Mutant; 5] = [
    (
        "another number of one stage",
        "precision",
        "stage 1: rounds `v` by another chance than stage 0",
        |it| {
            it.stages[1].plan.graph.nodes[26 - STARTS].op = one(3.0);
        },
    ),
    ("another seed in one stage", "precision", "rounds `v` by another chance than stage 0", |it| {
        let last = it.stages.len() - 1;
        it.stages[last].plan.graph.nodes[28 - STARTS].op = Op::RoundStochastically { seed: 7 };
    }),
    ("another input in one stage", "precision", "stage 1: rounds `v` by another chance than stage 0", |it| {
        it.stages[1].plan.graph.values[3].source = planner_ir::Source::Input("other".to_owned());
    }),
    (
        "two parameters alike",
        "precision",
        "stage 1: rounds `w1` by the chance by which stage 0 rounds `w0`",
        |it| {
            it.stages[1].plan.graph.nodes[21 - STARTS].op = one(1.0);
        },
    ),
    (
        "a parameter of two types",
        "input",
        "stage 1, parameter `v`: is f32[16,16], expected bf16[16,16]",
        |it| {
            it.stages[1].plan.graph.values[6].type_.dtype = DType::F32;
        },
    ),
];

/// How many values of such a stage are no results.
const STARTS: usize = 8;

fn one(number: f64) -> Op {
    Op::Fill { result: planner_ir::Type::new(DType::I64, []), value: Real(number) }
}

#[test]
fn every_mutant_of_a_pipeline_is_found_by_its_rule() {
    let mut rules = BTreeSet::new();
    arbtest(|u| {
        let [plain, rounded] = [pipelines::random(u)?, pipelines::rounded(u)?];
        let of = |pipeline, mutants: &'static [Mutant]| mutants.iter().map(move |it| (pipeline, it));
        for (pipeline, &(name, rule, message, mutate)) in of(&plain, &MUTANTS).chain(of(&rounded, &ROUNDED)) {
            let mut mutant = pipeline.clone();
            mutate(&mut mutant);
            let found = check_pipeline(&mutant).expect_err(name);
            let is_it = |it: &&planner_ir::Violation| it.rule == rule && it.to_string().contains(message);
            assert!(found.0.iter().any(|it| is_it(&it)), "{name}: {found}");
            rules.insert(rule);
        }
        Ok(())
    })
    .budget_ms(800);
    assert_eq!(rules, BTreeSet::from(PIPELINE_RULES));
}

/// A crossing whose ends do not fit: another type, or a sum still owed.
#[test]
fn ends_of_crossings_have_one_type_and_owe_nothing() {
    let mut owed = 0;
    arbtest(|u| {
        let pipeline = pipelines::random(u)?;
        let mut other = pipeline.clone();
        let taken = &mut other.stages[1].plan.graph.values[0];
        assert_eq!(taken.source, planner_ir::Source::Input("crossing:0".to_owned()));
        taken.type_.shape[0] = 4;
        let found = check_pipeline(&other).unwrap_err().to_string();
        assert!(
            found.contains("stage 1 does not take it as f32[8,16], without sums owed [crossing]"),
            "{found}"
        );
        let mesh = &pipeline.stages[1].plan.mesh;
        if let Some(axis) = mesh.axis_ids().find(|axis| mesh.size(*axis) > 1) {
            owed += 1;
            let mut other = pipeline.clone();
            other.stages[1].plan.layouts[0] = Layout { owed: vec![axis], ..Layout::replicated(2) };
            let found = check_pipeline(&other).unwrap_err().to_string();
            assert!(found.contains("without sums owed [crossing]"), "{found}");
        }
        Ok(())
    })
    .budget_ms(300);
    assert!(owed > 0);
}

/// The stages of a group are on the same devices.
#[test]
fn chunks_of_a_group_are_together() {
    let mut moved = 0;
    arbtest(|u| {
        let mut pipeline = pipelines::random(u)?;
        if pipeline.schedule.chunks > 1 {
            moved += 1;
            let last = pipeline.stages.len() - 1;
            pipeline.stages[last].first_device += 1;
            let found = check_pipeline(&pipeline).unwrap_err().to_string();
            let expected = format!("stage {last}: it is on other devices than other stages of its group");
            assert!(found.contains(&expected), "{found}");
        }
        Ok(())
    })
    .budget_ms(200);
    assert!(moved > 0);
}

/// What the rules of plans find in a stage names the stage.
#[test]
fn faults_of_a_stage_name_it() {
    arbtest(|u| {
        let mut pipeline = pipelines::random(u)?;
        let last = pipeline.stages.len() - 1;
        pipeline.stages[last].plan.estimate.push(Term { name: "more".to_owned(), seconds: 1.0 });
        let found = check_pipeline(&pipeline).unwrap_err();
        let place = format!("stage {last}, estimate");
        assert!(found.0.iter().any(|it| it.place == place && it.rule == "estimate"), "{found}");
        Ok(())
    })
    .budget_ms(200);
}
