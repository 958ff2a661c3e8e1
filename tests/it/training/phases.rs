//! Gradients partitioned otherwise than the operations that they are of.

use driver::pipeline::{Phases, Training};
use plan::{Assignment, Plan, Recompute};
use planner_ir::{Op, Phase};
use search::MachinePrices;

use super::cases::{ADAMW, Case, gpt2, parted};
use super::chosen::check_plan;
use super::manners::{Manner, Preferring};
use crate::corpus::machine;

/// The cheapest plan where operations forward are dear to split, and products backward to leave
/// whole.
fn planned(case: &Case, phases: Phases, ranks: &str) -> Plan {
    let (mesh, machine) = machine(ranks);
    let training = Training { phases, ..case.training(ADAMW, Recompute::Nothing) };
    let prepared = case.prepared(&training, &parted(&case.batch(0), 1));
    let prices = MachinePrices::new(&machine, &mesh).unwrap();
    let prices = Preferring::new(Manner::Backward, prices, &prepared.graph, &prepared.sections);
    let plan = case.plan_of(&prepared, &mesh, &machine, &prices).unwrap();
    check_plan(&plan).unwrap();
    plan
}

/// How many products of a phase several devices share.
fn shared(plan: &Plan, phase: Phase) -> usize {
    let split = |assignment: &Assignment| match assignment {
        Assignment::Computed { partition, .. } => {
            partition.loops.iter().flatten().any(|digit| !digit.is_free())
        }
        _ => false,
    };
    let nodes = plan.graph.nodes.iter().zip(&plan.assignments);
    nodes.filter(|(node, it)| node.phase == phase && matches!(node.op, Op::Contract(_)) && split(it)).count()
}

#[test]
fn gradients_may_be_partitioned_otherwise_and_train_as_pytorch() {
    let case = gpt2();
    for ranks in ["2", "4"] {
        let plan = planned(&case, Phases::Apart, ranks);
        assert_eq!(shared(&plan, Phase::Forward), 0);
        assert!(shared(&plan, Phase::Backward) > 0);
        case.check_training(&plan, ADAMW, 1).unwrap();
        // By the derived map the phases are partitioned alike.
        let plan = planned(&case, Phases::Together, ranks);
        let [forward, backward] = [Phase::Forward, Phase::Backward].map(|phase| shared(&plan, phase));
        assert_eq!((forward, backward), (0, 0));
    }
}
