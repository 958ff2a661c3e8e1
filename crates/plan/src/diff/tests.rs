//! Tests of differences.

use arbtest::arbtest;
use expect_test::expect;
use planner_ir::{AxisId, Digit, Op, parse_layout, parse_partition};

use super::diff;
use crate::samples::steps::{Ways, step};
use crate::{Assignment, Copy, Term, communication, samples};

#[test]
fn a_plan_does_not_differ_from_itself() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        assert_eq!(diff(&plan, &plan).to_string(), "the plans do not differ\n");
        Ok(())
    });
}

#[test]
fn differences_of_any_plans_are_there_both_ways() {
    arbtest(|u| {
        let (one, two) = (samples::random(u)?, samples::random(u)?);
        let (there, back) = (diff(&one, &two), diff(&two, &one));
        let count = |list: &[super::Repeated]| list.iter().map(|it| it.count).sum::<u64>();
        assert_eq!(count(&there.operations), count(&back.operations));
        assert_eq!(count(&there.values), count(&back.values));
        assert_eq!(there.transfers.len(), back.transfers.len());
        if one.mesh != two.mesh {
            assert!(there.header.iter().any(|change| change.what == "mesh"));
        }
        Ok(())
    });
}

#[test]
fn what_moved_and_what_it_bought() {
    let before = samples::example();
    let mut after = before.clone();
    let mesh = &before.mesh;
    // Everything by data: nothing is owed, and nothing moves.
    for (value, text) in ["[a,-]", "[-,-]", "[-,-]", "[a,-]", "[a,-]", "[a,-]"].into_iter().enumerate() {
        after.layouts[value] = parse_layout(mesh, text).unwrap();
    }
    for (assignment, text) in after.assignments.iter_mut().zip(["[a,-,-]", "[a,-]", "[a,-,-]"]) {
        let Assignment::Computed { partition, .. } = assignment else { panic!("prepared") };
        *partition = parse_partition(mesh, text).unwrap();
    }
    after.transfers.clear();
    after.outputs = vec![Copy::Made];
    after.estimate = vec![
        Term { name: "matrix products".to_owned(), seconds: 9e-6 },
        Term { name: "element-wise".to_owned(), seconds: 2.25e-6 },
    ];
    after.memory[0].bytes = 1024;
    after.memory[1].bytes = 64;
    assert_eq!(crate::check(&after), Ok(()));
    after.machine.name = "h200-141g-2x".to_owned();
    after.capacity = 141_000_000_000;
    expect![[r#"
        machine: h100-80g-2x (2 devices) -> h200-141g-2x (2 devices)
        capacity: 80.0 GB -> 141.0 GB
        strategy: tensor parallel over a: columns then rows -> data parallel over a
        what moved
          contract `/up/MatMul`: column (n over a) -> data (batch over a)
          gelu: dimension 1 over a -> data (batch over a)
          contract `/down/MatMul`: row (k over a; partial) -> data (batch over a)
          input `x` is held: [-,-] -> [a,-]
          weight `up` is held: [-,a] -> [-,-]
          weight `down` is held: [a,-] -> [-,-]
          contract `/up/MatMul` is held: [-,a] -> [a,-]
          gelu is held: [-,a] -> [a,-]
          contract `/down/MatMul` is held: [-,-] owes a -> [a,-]
          - all-reduce of contract `/down/MatMul`
        what it bought
          time: 23.250 us -> 11.250 us (-51.6 %)
            all-reduce: 12.000 us -> 0.000 ns
          memory, weights: 512 B -> 1.0 kB
          memory, inputs: 128 B -> 64 B
          received, all-reduce: 256 B -> 0 B
    "#]]
    .assert_eq(&diff(&before, &after).to_string());
}

#[test]
fn repeated_layers_are_one_change() {
    let mut before = samples::deep(12);
    for assignment in &mut before.assignments {
        if let Assignment::Computed { partition, .. } = assignment {
            partition.loops.iter_mut().for_each(Vec::clear);
            partition.passed.clear();
        }
    }
    let mut after = before.clone();
    for (node, assignment) in before.graph.nodes.iter().zip(&mut after.assignments) {
        if let (Op::Contract(_), Assignment::Computed { partition, .. }) = (&node.op, assignment) {
            partition.loops[2].push(Digit::axis(&before.mesh, AxisId(1)));
        }
    }
    let lines: Vec<String> = diff(&before, &after)
        .operations
        .iter()
        .map(|it| format!("{} x {}: {} -> {}\n", it.count, it.change.what, it.change.before, it.change.after))
        .collect();
    expect![[r#"
        12 x contract `/transformer/layers.*/q/*`: replicated -> column (n over b)
        12 x contract `/transformer/layers.*/k/*`: replicated -> column (n over b)
        12 x contract `/transformer/layers.*/v/*`: replicated -> column (n over b)
        12 x contract `/transformer/layers.*/o/*`: replicated -> column (n over b)
        12 x contract `/transformer/layers.*/up/*`: replicated -> column (n over b)
    "#]]
    .assert_eq(&lines.concat());
}

#[test]
fn communication_is_counted_by_kind() {
    let plan = samples::example();
    let shown = |plan| communication(plan).iter().map(|it| format!("{it:?}\n")).collect::<String>();
    expect![[r#"
        Traffic { name: "all-reduce", count: 1, bytes: 256 }
    "#]]
    .assert_eq(&shown(&plan));
    expect![[r#"
        Traffic { name: "all-gather", count: 6, bytes: 2688 }
        Traffic { name: "all-to-all", count: 2, bytes: 320 }
        Traffic { name: "reduce-scatter", count: 1, bytes: 128 }
        Traffic { name: "slice", count: 6, bytes: 0 }
    "#]]
    .assert_eq(&shown(&samples::small()));
}

#[test]
fn what_states_become_and_recipes_are_compared() {
    let data = Ways { data: Some("a"), ..Ways::NONE };
    let before = step("a=2", data, 1);
    let mut after = step("a=2", Ways { moments: Some("a"), gradients: Some("a"), ..data }, 2);
    let recipe = after.recipe.as_mut().unwrap();
    recipe.clip = Some(1.0);
    recipe.no_decay.vectors = true;
    expect![[r#"
        capacity: 27.9 kB -> 21.7 kB
        micro-batches: 1 -> 2
        clip: none -> 1
        without decay: none -> vectors
        strategy: data parallel over a -> data parallel over a; ZeRO-2 over a; 2 micro-batches
        what moved
          add: sums over a pass -> dimension 1 over a
          2 x add: sums over a pass -> dimension 0 over a
          2 x update_adamw: replicated -> dimension 0 over a
          update_adamw: replicated -> dimension 1 over a
          first_moment `norm` is held: [-] -> [a]
          second_moment `norm` is held: [-] -> [a]
          gradient `norm` is held: [-] owes a -> [a]
          first_moment `up` is held: [-,-] -> [a,-]
          second_moment `up` is held: [-,-] -> [a,-]
          gradient `up` is held: [-,-] owes a -> [a,-]
          first_moment `down` is held: [-,-] -> [-,a]
          second_moment `down` is held: [-,-] -> [-,a]
          gradient `down` is held: [-,-] owes a -> [-,a]
          add is held: [-,-] owes a -> [-,a]
          add is held: [-,-] owes a -> [a,-]
          add is held: [-] owes a -> [a]
          update_adamw is held: [-] -> [a]
          2 x result * of update_adamw is held: [-] -> [a]
          update_adamw is held: [-,-] -> [a,-]
          2 x result * of update_adamw is held: [-,-] -> [a,-]
          update_adamw is held: [-,-] -> [-,a]
          2 x result * of update_adamw is held: [-,-] -> [-,a]
          parameter `norm` is replaced by: what is made -> all-gather
          parameter `up` is replaced by: what is made -> all-gather
          parameter `down` is replaced by: what is made -> all-gather
          - 3 x all-reduce of add
          + 3 x all-gather of update_adamw
          + 2 x reduce-scatter of contract
          + reduce-scatter of reshape
          + slice of parameter `down`
          + slice of parameter `norm`
          + slice of parameter `up`
        what it bought
          time: 29.000 us -> 58.000 us (+100.0 %)
            element-wise: 19.000 us -> 33.000 us
            matrix products: 6.000 us -> 12.000 us
            all-reduce: 4.000 us -> 1.000 us
            reduce-scatter: 0.000 ns -> 6.000 us
            slice: 0.000 ns -> 3.000 us
            all-gather: 0.000 ns -> 3.000 us
          memory, optimizer: 8.3 kB -> 4.1 kB
          memory, gradients: 4.1 kB -> 2.0 kB
          received, all-reduce: 8.3 kB -> 8 B
          received, all-gather: 0 B -> 4.1 kB
          received, reduce-scatter: 0 B -> 8.3 kB
    "#]]
    .assert_eq(&diff(&before, &after).to_string());
}
