//! The rules of the partition space on numbers: every term they make computes what the operation
//! does, and every move leads to the layout it says.

use planner_ir::{Graph, Layout, Mesh, Output, Source};
use rewrite::space;

use super::cases::{self, Case};
use super::simulate::World;

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

/// Checks every choice and every move of a case's space; how many choices there were.
fn check(case: &Case, mesh: &Mesh) -> usize {
    let graph = alone(case);
    let space = space(&graph, mesh, &[], rewrite::Offer { steps: rewrite::Steps::One, ..Default::default() })
        .unwrap();
    let Some(node) = graph.nodes.first() else { return 0 };
    let mut worlds: Vec<World<'_>> = case.trials.iter().map(|trial| World::new(case, trial, mesh)).collect();
    for choice in &space.choices[0] {
        let layouts = |values: &[planner_ir::ValueId], numbers: &[usize]| -> Vec<Layout> {
            let layout =
                |(value, &number): (&planner_ir::ValueId, &usize)| space.layouts[value.0][number].clone();
            values.iter().zip(numbers).map(layout).collect()
        };
        let operands = layouts(&node.operands, &choice.operands);
        let results = layouts(&node.results, &choice.results);
        let right = worlds.iter_mut().all(|world| world.is_right(&operands, &results));
        assert!(right, "{} on {mesh}: {}", case.op, choice.partition.display(mesh));
    }
    for value in graph.value_ids() {
        for edge in &space.moves[value.0] {
            let (before, after) = (&space.layouts[value.0][edge.from], &space.layouts[value.0][edge.to]);
            let moved = edge.step.apply(mesh, graph.type_of(value), before);
            assert_eq!(moved.as_ref(), Ok(after), "{:?} of {}", edge.step, before.display(mesh));
        }
    }
    space.choices[0].len()
}

#[test]
fn every_partition_that_a_rule_makes_computes_the_right_thing() {
    let groups = [cases::elementwise(), cases::products(), cases::product_gradients(), cases::reductions()];
    let others = [cases::movement(), cases::indexing(), cases::rest()];
    let mut checked = 0;
    for case in groups.into_iter().chain(others).flatten() {
        let constant = case.operand_types().is_empty();
        for sizes in [&[2][..], &[4], &[2, 2], &[2, 2, 2]] {
            let choices = check(&case, &Mesh::of_sizes(sizes));
            // What has no operands is made once, whole: it is not partitioned.
            assert!(choices > 0 || constant, "{} has no partition", case.op);
            checked += choices;
        }
    }
    println!("{checked} partitions computed on numbers");
    assert!(checked > 1000);
}
