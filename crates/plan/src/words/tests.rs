//! Tests of the words.

use expect_test::{Expect, expect};
use planner_ir::{Mesh, Phase, parse_graph, parse_partition};

use super::{operation_in_words, partition_in_words};
use crate::Assignment;
use crate::samples::steps::{Ways, step};

/// The one place that knows how the first operation of a program is called.
fn check(statement: &str, operands: &[&str], partition: &str, expected: Expect) {
    let mut text = "graph \"\" {\n".to_owned();
    for (index, type_) in operands.iter().enumerate() {
        text += &format!("  %{index} = input \"x{index}\" : {type_}\n");
    }
    let names: Vec<String> = (0..operands.len()).map(|it| format!("%{it}")).collect();
    let (op, result) = statement.split_once(" : ").unwrap();
    text += &format!("  %{} = {op} {} : {result}\n  return\n}}\n", operands.len(), names.join(" "));
    let graph = parse_graph(&text).unwrap();
    let mesh = Mesh::of_sizes(&[2, 4, 2]);
    let node = &graph.nodes[0];
    let types = (graph.types_of(&node.operands), graph.types_of(&node.results));
    let partition = parse_partition(&mesh, partition).unwrap();
    assert_eq!(partition.check(&mesh, &node.op.loops(&types.0, &types.1)), Ok(()));
    expected.assert_eq(&partition_in_words(&mesh, &node.op, &types.0, &types.1, &partition));
}

#[test]
fn products() {
    let check = |partition: &str, expected: Expect| {
        check("contract \"abk,kn->abn\" : f32[4,8,32]", &["f32[4,8,16]", "f32[16,32]"], partition, expected);
    };
    check("[-,-,-,-]", expect!["replicated"]);
    check("[-,-,-,b]", expect!["column (n over b)"]);
    check("[-,-,b,-]", expect!["row (k over b; partial)"]);
    check("[a,-,-,b]", expect!["data (batch over a), column (n over b)"]);
    check("[a,b,-,c]", expect!["data (batch over a), sequence over b, column (n over c)"]);
    check("[-,-,-,a.b]", expect!["column (n over a, b)"]);
    check("[-,-,b,-] passes a", expect!["row (k over b; partial), sums over a pass"]);
}

#[test]
fn batched_products() {
    let operands = ["f32[4,8,6,16]", "f32[4,8,16,32]"];
    let statement = "contract \"abmk,abkn->abmn\" : f32[4,8,6,32]";
    check(statement, &operands, "[a,b,c,-,-]", expect!["data (batch over a), heads over b, m over c"]);
}

#[test]
fn attention() {
    let statement = "attention scale=1.0 causal=false softcap=0.0 window=none : f32[4,8,16,32]";
    let operands = ["f32[4,8,16,32]", "f32[4,4,16,32]", "f32[4,4,16,32]"];
    let words = expect!["data (batch over a), heads over b, sequence over c"];
    check(statement, &operands, "[a,b,-,c,-,-,-]", words);
    check(statement, &operands, "[-,b,a,-,-,-,-]", expect!["heads over b, a"]);
}

#[test]
fn look_ups() {
    let check = |partition: &str, expected: Expect| {
        check("gather dim=0 : f32[4,8,32]", &["f32[64,32]", "i64[4,8]"], partition, expected);
    };
    check("[b,-,-,-]", expect!["vocabulary over b; partial"]);
    check("[-,b,a,c]", expect!["hidden over b, data (batch over a), sequence over c"]);
}

#[test]
fn experts() {
    let check = |partition: &str, expected: Expect| {
        let operands = ["f32[8,16]", "f32[8,4]", "f32[4,32,16]", "f32[4,32,16]", "f32[4,16,32]"];
        check("experts activation=silu active=2 : f32[8,16]", &operands, partition, expected);
    };
    check("[a,c,-,-,-]", expect!["data (tokens over a), experts over c; partial"]);
    check("[-,-,b,-,-]", expect!["units over b; partial"]);
}

#[test]
fn other_operations() {
    check("gelu : f32[4,8]", &["f32[4,8]"], "[a,b]", expect!["data (batch over a), dimension 1 over b"]);
    check("gelu : f32[4,8,4]", &["f32[4,8,4]"], "[a,b,-]", expect!["data (batch over a), sequence over b"]);
    check("add : f32[4]", &["f32[4]", "f32[4]"], "[-] passes a", expect!["sums over a pass"]);
    check(
        "reduce_sum dims=[1] : f32[4,1]",
        &["f32[4,8]"],
        "[-,b]",
        expect!["dimension 1 of operand 0 over b; partial"],
    );
}

#[test]
fn gradients_sum_over_the_batch_and_parameters_have_none() {
    let plan =
        step("a=2,b=2", Ways { data: Some("a"), tensor: Some("b"), moments: Some("a"), ..Ways::NONE }, 1);
    let shown = plan.graph.nodes.iter().enumerate().map(|(index, node)| {
        let op = node.op.to_string();
        let kind = op.split_whitespace().next().unwrap_or_default();
        format!("{} {kind}: {}\n", node.phase.name(), operation_in_words(&plan, index))
    });
    expect![[r#"
        forward rms_norm: data (batch over a)
        forward contract: data (batch over a), column (n over b)
        forward gelu: data (batch over a), dimension 2 over b
        forward contract: data (batch over a), row (k over b; partial)
        forward add: data (batch over a)
        forward reduce_sum: dimension 0 of operand 0 over a; partial
        forward reshape: sums over a pass
        forward add: sums over a pass
        backward neg: data (batch over a)
        backward contract: data (batch over a), column (n over b)
        gradient contract: data (batch over a; partial), dimension 0 over b
        gradient add: dimension 0 over b, sums over a pass
        backward unary_gradient: data (batch over a), dimension 2 over b
        gradient contract: data (batch over a; partial), dimension 1 over b
        gradient add: dimension 1 over b, sums over a pass
        backward contract: data (batch over a), row (k over b; partial)
        backward mul: data (batch over a)
        gradient reduce_sum: dimension 0 of operand 0 over a; partial
        gradient reshape: sums over a pass
        gradient add: sums over a pass
        update reciprocal: replicated
        update update_adamw: dimension 0 over a
        update update_adamw: dimension 0 over a, dimension 1 over b
        update update_adamw: dimension 0 over b, dimension 1 over a
        update mul: replicated
    "#]]
    .assert_eq(&shown.collect::<String>());
}

#[test]
fn products_in_time() {
    let check = |partition: &str, expected: Expect| {
        check("contract \"mk,kn->mn\" : bf16[16,16]", &["bf16[16,16]", "bf16[16,16]"], partition, expected);
    };
    check(
        "2 steps [a,-,(a-@t:2)]",
        expect!["data (batch over a), column (n in 2 steps), rotates W over a (1 shift of 256 B)"],
    );
    check(
        "2 steps [a,(a-@t:2),-]",
        expect!["data (batch over a), row (k in 2 steps), rotates W over a (1 shift of 256 B)"],
    );
    check(
        "2 steps [(a+@t:2),-,a]",
        expect!["column (n over a), data (batch in 2 steps), ring all-gather of X over a (1 shift of 256 B)"],
    );
    check(
        "2 steps [(a+@t+1:2),a,-]",
        expect![
            "row (k over a), data (batch in 2 steps), ring reduce-scatter of Y over a (1 shift of 512 B)"
        ],
    );
    check("2 steps [a,(a+c+@t:2),c]", expect!["2-D square over a, c"]);
    check("2 steps [a,b.(a+c+@t:2),c]", expect!["row (k over b; partial), 2.5-D square over a, c"]);
    check("2 steps [a,(@t:2),c] streams a,c", expect!["SUMMA over a, c"]);
    check("2 steps [b.a,(@t:2),c] streams a,c", expect!["Tesseract 2x2x4 over a, c, b"]);
    check(
        "2 steps [-,(@t:2),a] streams a",
        expect!["column (n over a), row (k in 2 steps), broadcasts X over a (2 blocks of 256 B)"],
    );
    check("2 steps [b,(@t:2),-]", expect!["data (batch over b), row (k in 2 steps), in 2 steps"]);
}

#[test]
fn rotated_gradients_are_weights() {
    let mut plan = step("a=2", Ways { data: Some("a"), ..Ways::NONE }, 1);
    let gradient = plan
        .graph
        .nodes
        .iter()
        .position(|node| node.phase == Phase::Gradient && matches!(node.op, planner_ir::Op::Contract(_)));
    let node = gradient.unwrap();
    let mesh = plan.mesh.clone();
    let text = "2 steps [a,-,(a+@t+1:2),-]";
    if let Assignment::Computed { partition, .. } = &mut plan.assignments[node] {
        *partition = parse_partition(&mesh, text).unwrap();
    }
    let it = &plan.graph.nodes[node];
    let loops = it.op.loops(&plan.graph.types_of(&it.operands), &plan.graph.types_of(&it.results));
    assert_eq!(loops.loops.len(), 4, "{loops:?}");
    expect![
        "data (batch over a), dimension 0 in 2 steps, rotates the gradient of W over a (1 shift of 1.0 kB)"
    ]
    .assert_eq(&operation_in_words(&plan, node));
}
