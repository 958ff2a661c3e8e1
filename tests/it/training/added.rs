//! Gradients of micro-batches that the products add which make them: where what is at rest owes the sum over devices,
//! and nowhere else.

use driver::pipeline::{Phases, Training};
use lower::{Action, Block, Program};
use plan::{Plan, Recompute};
use planner_ir::{Node, Op, Phase};
use search::MachinePrices;

use super::cases::{ADAMW, Case, gpt2, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::machine;
use crate::outside::root;

/// The cheapest plan of this manner on two ranks, of two micro-batches.
fn planned(case: &Case, manner: Manner) -> Plan {
    let (mesh, machine) = machine("2");
    let training = Training { phases: Phases::Together, ..case.training(ADAMW, Recompute::Nothing) };
    let prepared = case.prepared(&training, &parted(&case.batch(0), 2));
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let prices = Preferring::new(manner, prices, &prepared.graph, &prepared.sections);
    let plan = case.plan_of(&prepared, &mesh, &machine, &prices).unwrap();
    check_plan(&plan).unwrap();
    plan
}

/// How many products add, and how many might that do not.
fn added(plan: &Plan) -> [usize; 2] {
    let nodes = plan.graph.nodes.iter().filter(|it| it.phase == Phase::Gradient);
    let adds = nodes.map(|it| it.op.addends(it.operands.len()).len()).sum();
    [adds, rewrite::added(&plan.graph).len()]
}

#[test]
fn products_add_where_what_is_at_rest_owes_what_they_owe() {
    let case = gpt2();
    let case = case.stretched(4, 1);
    let mut count = None;
    for manner in [0, 1, 2, 3].map(Manner::Data).into_iter().chain([Manner::Tensor]) {
        let plan = planned(&case, manner);
        let [adds, apart] = added(&plan);
        let count = *count.get_or_insert(adds + apart);
        assert!(count > 4 && adds + apart == count, "{manner:?}: {adds} and {apart} of {count}");
        let expected = if matches!(manner, Manner::Data(2..)) { [0, count] } else { [count, 0] };
        assert_eq!([adds, apart], expected, "{manner:?}");
        case.check_training(&plan, ADAMW, 2).unwrap_or_else(|error| panic!("{manner:?}: {error}"));
    }
}

/// The gradients of experts' weights add as those of other products do: of each of which the whole is a parameter. Up and
/// gate weights are parts of one here, and their gradients are put together before they are added.
#[test]
fn gradients_of_experts_add_to_sums() {
    let case = Case::load(&root().join("tests/models/training/mixtral_batchedmm/dynamo.onnx"));
    let case = case.stretched(4, 1);
    for (manner, adds) in [(Manner::Data(0), true), (Manner::Data(1), true), (Manner::Data(2), false)] {
        let plan = planned(&case, manner);
        let of_experts = |it: &&Node| matches!(it.op, Op::ExpertsGradient { .. });
        let found: Vec<Vec<usize>> = plan.graph.nodes.iter().filter(of_experts).map(results).collect();
        assert!(!found.is_empty());
        let expected: &[usize] = if adds { &[4] } else { &[] };
        assert!(found.iter().all(|it| it == expected), "{manner:?}: {found:?}");
        case.check_training(&plan, ADAMW, 2).unwrap_or_else(|error| panic!("{manner:?}: {error}"));
        if adds {
            check_places(&lower::lower(&plan).unwrap());
        }
    }
}

/// Whether sums of experts' gradients are made where they were, and over nothing else.
fn check_places(programs: &[Program]) {
    let mut found = 0;
    for (rank, program) in programs.iter().enumerate() {
        for (number, it) in program.instructions.iter().enumerate() {
            let Action::Compute(compute) = &it.action else { continue };
            let addends = compute.op.addends(compute.operands.len());
            let [(addend, result)] = addends[..] else { continue };
            let Op::ExpertsGradient { .. } = *compute.op else { continue };
            let storage = |block: &Block| program.buffer(block.buffer).storage;
            assert_eq!(storage(&compute.operands[addend]), storage(&compute.results[result]));
            found += 1;
            // With the weights where the sum is made, they are read when some of it has been written over.
            let mut wrong = programs.to_vec();
            let Action::Compute(compute) = &mut wrong[rank].instructions[number].action else {
                unreachable!("it adds")
            };
            compute.operands.swap(addend, result);
            let error = lower::verify(&wrong).unwrap_err().to_string();
            assert!(error.contains("is read, perhaps after it is written over"), "{error}");
        }
    }
    assert!(found >= programs.len(), "{found} sums");
}

/// The results that an operation adds to something.
fn results(node: &Node) -> Vec<usize> {
    node.op.addends(node.operands.len()).into_iter().map(|it| it.1).collect()
}
