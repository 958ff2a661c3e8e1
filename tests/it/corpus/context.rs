//! Ring attention: plans in which the sequence is split everywhere, and keys and values go around.

use plan::{Assignment, Plan};
use planner_ir::{Motion, Node, Op, Partition, Ways};
use search::MachinePrices;

use super::{cases, expect_none, faults_of, trial};
use crate::training::manners::{Manner, Preferring, is_striped};

/// Models, and on how many ranks their tokens fall into equal parts: one whose mask hides what comes
/// later; with fewer heads of keys than of queries; one that is causal without a mask's help; causal
/// ones on stripes of the sequence, with a mask of padding and without; one whose halves go both ways
/// around; one that looks both ways.
const MODELS: [(&str, &[u64], Manner); 9] = [
    ("gpt2-eager-legacy2.9-op17-static io0", &[2, 4], Manner::Context),
    ("gpt2-eager-legacy2.9-op17-static io0", &[2, 4], Manner::Striped),
    ("llama-nomask-dynamo2.15-op23-static io0", &[4], Manner::Striped),
    ("llama-eager-legacy2.9-op17-static io0", &[2, 4], Manner::Context),
    ("llama-nomask-dynamo2.15-op23-static io0", &[4], Manner::Context),
    ("llama-nomask-dynamo2.15-op23-static io0", &[4], Manner::BothWays),
    ("llama-ortcpu-hf5.23-op20-dyn io0", &[2], Manner::Context),
    ("llama-ortcpu-hf5.23-op20-dyn io0", &[2], Manner::Striped),
    ("bert-eager-legacy2.9-op17-static io0", &[2, 4], Manner::Context),
];

/// Operands of attention and of its gradient, and results of the gradient, that keys index.
const KEYS_AND_VALUES: [usize; 2] = [1, 2];

/// Says what attention does not let keys and values go around in as many steps as there are ranks;
/// or how many operations do.
pub(crate) fn rings(plan: &Plan, is_kind: impl Fn(&Op) -> bool) -> Result<usize, String> {
    let nodes = plan.graph.nodes.iter().zip(&plan.assignments);
    let mut found = 0;
    for (node, assignment) in nodes.filter(|it| is_kind(&it.0.op)) {
        let Assignment::Computed { partition, .. } = assignment else {
            return Err(format!("{}: no partition", node.origin));
        };
        if partition.steps != plan.mesh.devices() || !is_ring(plan, node, partition) {
            return Err(format!("{}: {partition:?} is no ring", node.origin));
        }
        found += 1;
    }
    Ok(found)
}

/// How many operations have their tokens in stripes.
pub(crate) fn in_stripes(plan: &Plan, is_kind: impl Fn(&Op) -> bool) -> usize {
    partitioned(plan, is_kind, is_striped)
}

/// How many operations have half of each block go the other way around.
pub(crate) fn both_ways(plan: &Plan, is_kind: impl Fn(&Op) -> bool) -> usize {
    partitioned(plan, is_kind, |it| it.ways == Ways::Both)
}

fn partitioned(plan: &Plan, is_kind: impl Fn(&Op) -> bool, is: impl Fn(&Partition) -> bool) -> usize {
    let is = |assignment: &Assignment| match assignment {
        Assignment::Computed { partition, .. } => is(partition),
        Assignment::Prepared => false,
    };
    let nodes = plan.graph.nodes.iter().zip(&plan.assignments);
    nodes.filter(|it| is_kind(&it.0.op) && is(it.1)).count()
}

/// Whether keys and values go around, and with them their gradients.
fn is_ring(plan: &Plan, node: &Node, partition: &Partition) -> bool {
    let loops = node.op.loops(&plan.graph.types_of(&node.operands), &plan.graph.types_of(&node.results));
    let rotates = |motion: Motion| matches!(motion, Motion::Rotating(_));
    let gradient = matches!(node.op, Op::AttentionGradient { .. });
    KEYS_AND_VALUES.iter().all(|&it| {
        rotates(partition.operand_motion(&loops, it))
            && (!gradient || rotates(partition.result_motion(&loops, it)))
    })
}

/// Plans a case with its sequence split over so many ranks.
fn check(subject: &cases::Subject, manner: Manner, ranks: u64) -> Result<(), String> {
    let (mesh, machine) = trial::machine(&ranks.to_string());
    let prices = MachinePrices::new(&machine, &mesh).map_err(|error| format!("{error:?}"))?;
    let (graph, sections) = (&subject.prepared.graph, &subject.prepared.sections);
    let prices = Preferring::new(manner, prices, graph, sections);
    let plan = subject.plan(&mesh, &machine, &prices)?;
    let attention = |op: &Op| matches!(op, Op::Attention(_));
    let all = graph.nodes.iter().filter(|node| attention(&node.op)).count();
    let found = rings(&plan, attention)?;
    if found == 0 || found != all {
        return Err(format!("{found} rings of {all} operations"));
    }
    let in_stripes = in_stripes(&plan, attention);
    if manner == Manner::Striped && in_stripes != all {
        return Err(format!("{in_stripes} in stripes of {all} operations"));
    }
    let both = both_ways(&plan, attention);
    if both != if manner == Manner::BothWays { all } else { 0 } {
        return Err(format!("{both} go both ways of {all} operations"));
    }
    subject.check(&plan)
}

#[test]
fn keys_and_values_go_around_and_attention_is_that_of_the_oracle() {
    let (all, _) = cases::all();
    let mut failures = Vec::new();
    for (title, ranks, manner) in MODELS {
        let Some(case) = all.iter().find(|case| case.title == title) else {
            println!("left out: {title}, which is not there");
            continue;
        };
        let subject = case.open().unwrap();
        for &ranks in ranks {
            let what = format!("{title} on {ranks}, {manner:?}");
            failures.extend(faults_of(&what, || {
                let wrong = check(&subject, manner, ranks).err();
                wrong.map(|error| format!("{what}: {error}")).into_iter().collect()
            }));
        }
    }
    expect_none(&failures);
}
