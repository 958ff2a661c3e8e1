//! The rules of the partition space on numbers: every term they make computes what the operation
//! does, and every move leads to the layout it says.

use std::collections::BTreeMap;

use planner_ir::{Graph, Layout, Mesh, Move, Node, Output, Partition, Route, Slots, Source, ValueId, Ways};
use rewrite::{Choice, Offer, Space, Splits, Steps, space};

use super::cases::{self, Case};
use super::simulate::World;
use super::steps;
use crate::tier::first;

/// How many sets of operands partitions in time are checked with.
const TRIALS: usize = 4;

/// The operation alone, on inputs.
fn alone(case: &Case) -> Graph {
    let mut graph = Graph::default();
    let operands = case.operand_types().into_iter().enumerate();
    let operands =
        operands.map(|(index, it)| graph.push_value(it, Source::Input(format!("x{index}")))).collect();
    let results = graph.push_node(case.op.clone(), operands, case.result_types(), String::new());
    let output = |(index, value)| Output { name: format!("y{index}"), value };
    graph.outputs = results.into_iter().enumerate().map(output).collect();
    graph
}

/// The space of a case.
fn space_of(graph: &Graph, mesh: &Mesh, steps: Steps) -> Space {
    space(graph, mesh, &[], Offer { steps, splits: Splits::All, striped: None }).unwrap()
}

/// The layouts of the operands and of the results of a choice.
fn layouts_of(space: &Space, node: &Node, choice: &Choice) -> [Vec<Layout>; 2] {
    let layouts = |values: &[ValueId], numbers: &[usize]| -> Vec<Layout> {
        let layout = |(value, &number): (&ValueId, &usize)| space.layouts[value.0][number].clone();
        values.iter().zip(numbers).map(layout).collect()
    };
    [layouts(&node.operands, &choice.operands), layouts(&node.results, &choice.results)]
}

/// Checks every choice and every move of a case's space in one step; how many choices there were.
fn check(case: &Case, mesh: &Mesh) -> usize {
    let graph = alone(case);
    let space = space_of(&graph, mesh, Steps::One);
    let Some(node) = graph.nodes.first() else { return 0 };
    let mut worlds: Vec<World<'_>> = case.trials.iter().map(|trial| World::new(case, trial, mesh)).collect();
    for choice in space.choices[0].iter() {
        let [operands, results] = match choice.partition.routed[..] {
            [] => layouts_of(&space, node, choice),
            _ => met(case, mesh, &choice.partition, layouts_of(&space, node, choice)),
        };
        let right = worlds.iter_mut().all(|world| world.is_right(&operands, &results));
        assert!(right, "{} on {mesh}: {}", case.op, choice.partition.display(mesh));
    }
    check_moves(&graph, &space, mesh);
    space.choices[0].len()
}

/// The layouts in which an operation whose rows are routed is computed: those at rest with all rows of a group
/// gathered, and before the sums of what is made of rows are scattered.
fn met(case: &Case, mesh: &Mesh, partition: &Partition, at_rest: [Vec<Layout>; 2]) -> [Vec<Layout>; 2] {
    let types = [case.operand_types(), case.result_types()];
    let loops = case.op.loops(&types[0], &types[1]);
    let met = partition.met();
    let operands: Vec<Layout> = (0..types[0].len()).map(|it| met.operand(&loops, it)).collect();
    let results: Vec<Layout> = (0..types[1].len()).map(|it| met.result(&loops, it)).collect();
    let all = [(&loops.operands, &operands), (&loops.results, &results)];
    for (side, (index, met)) in all.into_iter().enumerate() {
        for (number, (dims, met)) in index.iter().zip(met).enumerate() {
            let (type_, at_rest) = (&types[side][number], &at_rest[side][number]);
            let gathered = Move::AllGather { dim: 0, digits: partition.routed.len() };
            let scattered = Move::ReduceScatter { dim: 0, digits: partition.routed.clone() };
            let (from, step, to) = match (partition.route(&loops, dims), side) {
                (Route::Stays, _) => {
                    assert_eq!(at_rest, met);
                    continue;
                }
                // What says which row uses what has rows at rest, and parts where it is used.
                (Route::Gates, _) => {
                    let parts = |layout: &Layout| layout.dims[1].clone();
                    assert_eq!((parts(at_rest), parts(met)), (vec![], partition.loops[1].clone()));
                    continue;
                }
                (Route::Rows, 0) => (at_rest, gathered, met),
                (Route::Rows, _) => (met, scattered, at_rest),
            };
            assert_eq!(step.apply(mesh, type_, from).as_ref(), Ok(to), "{}", partition.display(mesh));
        }
    }
    [operands, results]
}

/// Checks every move of a space.
fn check_moves(graph: &Graph, space: &Space, mesh: &Mesh) {
    for value in graph.value_ids() {
        for edge in space.moves[value.0].iter() {
            let (before, after) = (&space.layouts[value.0][edge.from], &space.layouts[value.0][edge.to]);
            let moved = edge.step.apply(mesh, graph.type_of(value), before);
            assert_eq!(moved.as_ref(), Ok(after), "{:?} of {}", edge.step, before.display(mesh));
        }
    }
}

/// Checks the choices of a case's space that take several steps, one of so many, and every move; how
/// many were checked.
fn check_in_time(case: &Case, mesh: &Mesh, one_of: usize) -> usize {
    let graph = alone(case);
    let space = space_of(&graph, mesh, Steps::Offered);
    let node = &graph.nodes[0];
    let timed = space.choices[0].iter().filter(|it| it.partition.steps > 1).step_by(one_of);
    let mut checked = 0;
    for choice in timed {
        let partition = &choice.partition;
        assert_eq!((partition.ways, partition.slots), (Ways::One, Slots::Two), "what rules make");
        let [operands, results] = layouts_of(&space, node, choice);
        let steps = steps::Steps::new(case, mesh, partition);
        let right = case.trials.iter().take(TRIALS).all(|trial| steps.is_right(trial, &operands, &results));
        assert!(right, "{} on {mesh}: {}", case.op, partition.display(mesh));
        checked += 1;
    }
    check_moves(&graph, &space, mesh);
    checked
}

#[test]
fn every_partition_that_a_rule_makes_computes_the_right_thing() {
    let groups = [cases::elementwise(), cases::products(), cases::product_gradients(), cases::reductions()];
    let others = [cases::movement(), cases::indexing(), cases::rest()];
    let mut checked = 0;
    for case in groups.into_iter().chain(others).flatten() {
        let constant = case.operand_types().is_empty();
        for sizes in first(3, &[&[2][..], &[4], &[2, 2], &[2, 2, 2]]) {
            let choices = check(&case, &Mesh::of_sizes(sizes));
            // What has no operands is made once, whole: it is not partitioned.
            assert!(choices > 0 || constant, "{} has no partition", case.op);
            checked += choices;
        }
    }
    println!("{checked} partitions computed on numbers");
    assert!(checked > 1000);
}

#[test]
fn every_partition_in_time_that_a_rule_makes_computes_the_right_thing() {
    let small = [cases::products(), cases::product_gradients(), cases::indexing()].into_iter().flatten();
    let mut checked: BTreeMap<(&str, &[u64]), usize> = BTreeMap::new();
    let mut check = |case: &Case, sizes: &'static [u64], one_of: usize| {
        let found = check_in_time(case, &Mesh::of_sizes(sizes), one_of);
        *checked.entry((case.op.name(), sizes)).or_default() += found;
    };
    let in_time = cases::in_time();
    for case in &in_time {
        check(case, &[3], 1);
        check(case, &[3, 3], 3);
    }
    for case in small.chain(in_time) {
        check(&case, &[2], 1);
        check(&case, &[4], 1);
        check(&case, &[2, 2], 1);
        check(&case, &[2, 2, 2], 7);
    }
    for op in ["contract", "gather", "gather_gradient", "conv", "experts", "attention", "attention_gradient"]
    {
        for sizes in [&[2][..], &[3], &[4], &[2, 2]] {
            assert!(checked[&(op, sizes)] > 0, "{op} has no partition in time on {sizes:?}");
        }
    }
    let checked: usize = checked.values().sum();
    println!("{checked} partitions in time computed on numbers");
    assert!(checked > 4000);
}
