//! Tests of what is said of training steps.

use expect_test::expect;
use planner_ir::{AxisId, Digit, Mesh, Op, Optimizer, Partition, Real, ValueId, parse_graph, parse_layout};

use crate::samples::steps::{Ways, step};
use crate::{Assignment, Copy, Exchanged, Plan, check, samples};

const DATA: Ways<'_> = Ways { data: Some("a"), ..Ways::NONE };
const ZERO_1: Ways<'_> = Ways { moments: Some("a"), ..DATA };
const ZERO_2: Ways<'_> = Ways { gradients: Some("a"), ..ZERO_1 };
const ZERO_3: Ways<'_> = Ways { parameters: Some("a"), ..ZERO_2 };

/// Source: Rajbhandari et al., "ZeRO", 2020, section 5: with `P` bytes of parameters, `P` of
/// gradients and `2 P` of what AdamW keeps of them, the stages hold an `n`-th of one after another.
#[test]
fn states_take_what_the_stages_of_zero_say() {
    const P: u64 = (16 + 16 * 32 + 32 * 16) * 4;
    const TOTAL: u64 = 4;
    for n in [2, 4] {
        let held = |ways| {
            let plan = step(&format!("a={n}"), ways, 2);
            assert_eq!(check(&plan), Ok(()));
            ["weights", "gradients", "optimizer"]
                .map(|kind| plan.memory.iter().find(|it| it.kind == kind).unwrap().bytes)
        };
        assert_eq!(held(DATA), [P, P + TOTAL, 2 * P]);
        assert_eq!(held(ZERO_1), [P, P + TOTAL, 2 * P / n]);
        assert_eq!(held(ZERO_2), [P, P / n + TOTAL, 2 * P / n]);
        assert_eq!(held(ZERO_3), [P / n, P / n + TOTAL, 2 * P / n]);
    }
}

#[test]
fn violations_of_steps_name_place_found_and_expected() {
    let right = step("a=2", ZERO_2, 3);
    let shown = |change: &dyn Fn(&mut Plan)| {
        let mut plan = right.clone();
        change(&mut plan);
        check(&plan).unwrap_err().to_string()
    };
    let lines = shown(&|plan| {
        let recipe = plan.recipe.as_mut().unwrap();
        (recipe.micro_batches, recipe.clip) = (2, Some(0.0));
        plan.layouts[5].owed.push(AxisId(0));
        plan.carried[4] = Copy::Made;
        plan.carried[5] = plan.carried[1];
        plan.graph.outputs[0].value = ValueId(20);
        for node in &mut plan.graph.nodes {
            if let Op::Update(Optimizer::AdamW { epsilon, .. }) = &mut node.op {
                *epsilon = Real(0.5);
            }
        }
    });
    expect![[r#"
        %5: axis 0 is owed and used otherwise too [layout-form]
        %5: owes sums over `a` at rest, expected none [rest]
        operation 21, operand 2: owes sums over `a`, expected over no axis [operand-owed]
        output `loss`: returns %20, expected what the update makes [output]
        state %8: becomes a copy of %37, expected one of %40 [carried-copy]
        recipe: 2 micro-batches, expected the program's 3 [recipe]
        recipe: clips to a norm of 0, expected a number above 0 [recipe]
        operation 21: is `update_adamw beta1=0.9 beta2=0.95 epsilon=0.5 decay=0.125`, expected the recipe's `update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.125` or without decay [recipe]
        operation 22: is `update_adamw beta1=0.9 beta2=0.95 epsilon=0.5 decay=0.125`, expected the recipe's `update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.125` or without decay [recipe]
        operation 23: is `update_adamw beta1=0.9 beta2=0.95 epsilon=0.5 decay=0.125`, expected the recipe's `update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.125` or without decay [recipe]
        transfer 8 of %40: nothing reads the copy: it is not made [transfer-read]"#]].assert_eq(&lines);
    // The slice of a parameter for its update is read forward too.
    let lines = shown(&|plan| {
        let is_slice = |transfer: &crate::Transfer| transfer.value.0 == 8;
        let slice = plan.transfers.iter().position(is_slice).unwrap();
        let Assignment::Computed { operands, .. } = &mut plan.assignments[1] else { panic!("prepared") };
        operands[1] = Copy::Transferred(slice);
    });
    expect![[r#"
        operation 1, operand 1: held as [a,-], expected [-,-] [operand-layout]
        operation 22: reads in the update transfer 5 of %8, which is made for every micro-batch, expected a copy made in the update [part]
        estimate: terms add up to 0.00008099999999999999 seconds, expected 0.00008299999999999997 [estimate]"#]].assert_eq(&lines);
    expect!["recipe: none for a training step, expected one [recipe]"]
        .assert_eq(&shown(&|plan| plan.recipe = None));
}

#[test]
fn a_summed_loop_makes_pieces_of_the_results_that_it_indexes() {
    let graph = parse_graph(
        r#"graph "gradient" {
  %0 = input "q" : f32[2,2,8,4]
  %1 = input "k" : f32[2,2,8,4]
  %2 = input "v" : f32[2,2,8,4]
  %3 = input "y" : f32[2,2,8,4]
  %4 = input "statistics" : f32[2,2,8,2]
  %5 = input "dy" : f32[2,2,8,4]
  %6, %7, %8 = attention_gradient scale=1.0 causal=false softcap=0.0 window=none mask=false %0 %1 %2 %3 %4 %5 : f32[2,2,8,4], f32[2,2,8,4], f32[2,2,8,4]
  return
}
"#,
    )
    .unwrap();
    let mesh = Mesh::of_sizes(&[2]);
    let node = &graph.nodes[0];
    let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
    let queries = loops.results[0][2][0];
    let mut partition = Partition::replicated(&loops);
    partition.loops[queries.0].push(Digit::axis(&mesh, AxisId(0)));
    let mut plan = samples::empty(graph, mesh.clone());
    let layout = |text: &str| parse_layout(&mesh, text).unwrap();
    let (rows, whole) = ("[-,-,a,-]", "[-,-,-,-]");
    plan.layouts = [rows, whole, whole, rows, rows, rows, rows, "[-,-,-,-] owes a", "[-,-,-,-] owes a"]
        .map(layout)
        .to_vec();
    let operands = vec![Copy::Made; 6];
    let bytes = vec![];
    plan.assignments[0] =
        Assignment::Computed { partition, operands, bytes, seconds: 0.0, exchanged: Exchanged::default() };
    let mut plan = samples::with_memory(plan);
    assert_eq!(check(&plan), Ok(()));
    plan.layouts[7] = layout(whole);
    expect!["operation 0, result 1: owes sums of its own over no axis, expected over `a` [result-owed]"]
        .assert_eq(&check(&plan).unwrap_err().to_string());
}
