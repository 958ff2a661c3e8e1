//! Tests of the rules. Which layouts are right is tested against arithmetic, in a small world.

use arbtest::arbtest;
use expect_test::{Expect, expect};

use super::{verify, verify_layouts};
use crate::data::{DType, Type};
use crate::graph::{NodeId, Source, ValueId};
use crate::mesh::Mesh;
use crate::text::{parse_graph, parse_layout, parse_op};

/// The one place that knows how a program is read and its violations are shown.
fn check(text: &str, expected: Expect) {
    let graph = parse_graph(&format!("graph \"g\" {{\n{text}\n}}")).unwrap();
    expected.assert_eq(&verify(&graph).map_or_else(|found| found.to_string(), |()| String::new()));
}

#[test]
fn a_program_that_obeys_is_accepted() {
    check(
        "%0 = input \"x\" : f32[2,4]\n%1 = weight \"w\" : f32[4,3]\n%2 = contract \"ab,bc->ac\" %0 %1 : f32[2,3]
%3, %4 = top_k dim=1 k=2 extreme=largest %2 : f32[2,2], i64[2,2]\nreturn \"y\" %3, \"z\" %4",
        expect![""],
    );
}

#[test]
fn a_training_step_that_obeys_is_accepted() {
    check(
        "%0 = parameter \"w\" : f32[3]\n%1 = gradient \"w\" : f32[3]\n%2 = input \"x\" : f32[3]
%3 = mul %0 %2 : f32[3]\n%4 = add %1 %2 : f32[3] in gradient\n%5 = sub %0 %4 : f32[3] in update
return \"y\" %3\ntrain 2 %0 becomes %5, %1 becomes %4",
        expect![""],
    );
}

#[test]
fn states_and_phases_keep_their_rules() {
    check(
        "%0 = parameter \"w\" : f32[3]\n%1 = neg %0 : f32[3] in backward\nreturn",
        expect![[r#"
            %0: a state outside a training step [training-only]
            %1: phase backward outside a training step [training-only]"#]],
    );
    check(
        "%0 = parameter \"w\" : f32[3]\n%1 = parameter \"w\" : f32[3]\n%2 = gradient \"w\" : f32[4]
%3 = neg %0 : f32[3]\n%4 = neg %3 : f32[3] in update\n%5 = neg %2 : f32[4]
return\ntrain 0 %0 becomes %3, %1 becomes %9, %2 becomes %4",
        expect![[r#"
            %1: parameter `w` is another state too [unique-state-names]
            the step: has no micro-batches, expected at least one [training-only]
            %0: becomes %3, which the update does not make [carried-once]
            %1: becomes %9, which does not exist [carried-once]
            %2: is f32[4] and becomes f32[3] [carried-once]
            %2: becomes %4, which a micro-batch does not make [carried-once]
            %4: an update uses %3, which one micro-batch makes [phases]
            %5: phase forward after an update [phases]"#]],
    );
    check(
        "%0 = parameter \"w\" : f32[3]\nreturn\ntrain 1",
        expect!["the step: 0 states become something, expected all 1, in order [carried-once]"],
    );
}

#[test]
fn what_is_written_over_is_an_input_that_nothing_else_uses() {
    let scattered = |data: &str, rest: &str| {
        format!(
            "%0 = input \"cache\" : f32[1,4]\n%1 = weight \"w\" : f32[1,4]\n%2 = input \"at\" : i64[1,1]\n\
             %3 = input \"x\" : f32[1,1]\n%4 = input \"z\" : f32[1,4]\n%5 = neg %4 : f32[1,4]\n\
             %6 = scatter_elements dim=1 scatter=write {data} %2 %3 : f32[1,4]\n{rest}"
        )
    };
    check(&scattered("%0", "return \"y\" %6"), expect![""]);
    let at_rest = expect![
        "%6: is written over %1, which is no input of a program that answers, expected one [written-over]"
    ];
    check(&scattered("%1", "return \"y\" %6"), at_rest);
    let made = expect![
        "%6: is written over %5, which is no input of a program that answers, expected one [written-over]"
    ];
    check(&scattered("%5", "return \"y\" %6"), made);
    let read = expect![
        "%6: is written over %0, which is used besides, expected nothing else that uses it [written-over]"
    ];
    check(&scattered("%0", "%7 = neg %0 : f32[1,4]\nreturn \"y\" %6"), read);
    let returned = expect![
        "%6: is written over %0, which is used besides, expected nothing else that uses it [written-over]"
    ];
    check(&scattered("%0", "return \"y\" %6, \"z\" %0"), returned);
    let trains = expect![
        "%6: is written over %0, which is no input of a program that answers, expected one [written-over]"
    ];
    check(&scattered("%0", "return \"y\" %6\ntrain 1"), trains);
}

/// Addends that there are not, and results: they are told of as other faults are.
#[test]
fn addends_that_are_not_there_are_violations() {
    for (adds, operands) in [("[9]", "%0 %1"), ("[2,3,4]", "%0")] {
        let text = format!(
            "%0 = parameter \"w\" : f32[3]\n%1 = gradient \"w\" : f32[3]\n%2 = experts_gradient activation=silu \
             active=1 adds={adds} {operands} : f32[3] in backward\n%3 = sub %0 %2 : f32[3] in update\nreturn\n\
             train 2 %0 becomes %3, %1 becomes %2"
        );
        let graph = parse_graph(&format!("graph \"g\" {{\n{text}\n}}")).unwrap();
        let found = verify(&graph).unwrap_err().to_string();
        assert!(
            found.contains("%1: becomes %2, to which what micro-batches before made is not added"),
            "{found}"
        );
        assert!(found.contains("%2: "), "{found}");
    }
}

#[test]
fn every_violation_is_reported() {
    check(
        "%0 = input \"x\" : f32[2,4]\n%1 = input \"x\" : f32[99999999999,99999999999]
%2 = neg %3 : f32[2,4]\n%3 = neg %0 : f32[4]\n%4 = neg %9 : f32[4]\n%5 = dynamic_shape %0 : i64[2]
%6, %7 = neg %0 : f32[2,4], f32[2,4] # origin \"twice\"\n%8 = add %0 : f32[2,4]\nreturn \"y\" %3, \"y\" %77",
        expect![[r#"
            %1: f32[99999999999,99999999999] has too many elements, expected 2^56 at most [shape-sane]
            %1: `x` is another input's name too [unique-input-names]
            %2: uses %3, which comes later [defined-before-use]
            %2: is f32[2,4], expected f32[4] [types-infer]
            %3: is f32[4], expected f32[2,4] [types-infer]
            %4: uses %9, which does not exist [defined-before-use]
            %5: `dynamic_shape` outside a region, expected in one [dynamic-only-in-region]
            %6 (`twice`): 2 results, expected 1 [results-count]
            %8: 1 operands, expected 2 [types-infer]
            output `y`: is %77, which does not exist [outputs-exist]
            output `y`: another output has its name too [unique-output-names]"#]],
    );
}

#[test]
fn regions_are_well_numbered() {
    check(
        "%0 = input \"x\" : f32[4]
%1, %2 = region body={\ntakes 2\n%2 = neg %2\n%3 = dynamic_if yes={\ntakes 1\nreturn %1 : f32[4]\n} no={\ntakes 0\nreturn\n} %0\nreturn %9 : f32[4]\n} %0 : f32[4], f32[4]
return",
        expect![[r#"
            %1, in its region %2: uses %2, which comes later [region-numbering]
            %1, in its region %3: 1 operands, expected 1 and a condition [region-numbering]
            %1, in its region %3: its region returns %1, which does not exist [region-numbering]
            %1, in its region %3: 1 results, expected 0 [region-numbering]
            %1: its region returns %9, which does not exist [region-numbering]
            %1: 1 operands, expected what its region takes [types-infer]"#]],
    );
}

#[test]
fn sources_and_order_are_checked() {
    let text = "graph \"g\" {\n%0 = input \"x\" : f32[]\n%1 = neg %0 : f32[]\n%2 = neg %1 : f32[]\nreturn\n}";
    let mut graph = parse_graph(text).unwrap();
    graph.nodes.swap(0, 1);
    graph.values[0].source = Source::Result { node: NodeId(7), index: 0 };
    graph.nodes[1].results.push(ValueId(12));
    expect![[r#"
        %0: is no result 0 of operation 7, which it says it is [single-source]
        %1: is no result 0 of operation 0, which it says it is [single-source]
        %2: is no result 0 of operation 1, which it says it is [single-source]
        %2: its result 0 is %2, which has another source [single-source]
        %1: its result 0 is %1, which has another source [single-source]
        %1: its result 1 is %12, which has another source [single-source]
        %1: %1 comes too late or twice [ordered]
        %1: 2 results, expected 1 [results-count]"#]]
    .assert_eq(&verify(&graph).unwrap_err().to_string());
}

/// The same for layouts around an operation on f32 values; each is a shape and a layout.
fn check_layouts(op: &str, operands: &[(&[u64], &str)], results: &[(&[u64], &str)], expected: Expect) {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let types = |values: &[(&[u64], &str)]| -> Vec<Type> {
        values.iter().map(|(shape, _)| Type::new(DType::F32, *shape)).collect()
    };
    let layouts = |values: &[(&[u64], &str)]| -> Vec<_> {
        values.iter().map(|(_, layout)| parse_layout(&mesh, layout).unwrap()).collect()
    };
    let op = parse_op(op).unwrap();
    let (operand_layouts, result_layouts) = (layouts(operands), layouts(results));
    let found =
        verify_layouts(&mesh, &op, &types(operands), &types(results), &operand_layouts, &result_layouts);
    expected.assert_eq(&match found {
        Ok(partition) => partition.display(&mesh).to_string(),
        Err(found) => found.to_string(),
    });
}

#[test]
fn a_product_is_split_by_its_loops() {
    let product = "contract \"mk,kn->mn\"";
    let check = |x, w, y, expected| {
        check_layouts(product, &[(&[4, 4], x), (&[4, 4], w)], &[(&[4, 4], y)], expected);
    };
    check("[-,-]", "[-,a]", "[-,a]", expect!["[-,-,a]"]);
    check("[-,a]", "[a,-]", "[-,-] owes a", expect!["[-,a,-]"]);
    check("[-,a]", "[a,-]", "[-,-]", expect!["result 0: owes sums none, should owe a [owed-sum]"]);
    check(
        "[-,a]",
        "[b,-]",
        "[-,-] owes a",
        expect!["operand 1, dimension 0: splits a loop [b], should [a] [agree]"],
    );
    check("[-,-] owes b", "[-,a]", "[-,a] owes b", expect!["[-,-,a] passes b"]);
    check(
        "[-,-] owes b",
        "[-,-] owes b",
        "[-,-] owes b",
        expect![[r#"
        operand 0: owes sums b, in which the results are not linear [linear]
        operand 1: owes sums b, in which the results are not linear [linear]"#]],
    );
    check("[(a+b:2),-]", "[-,-]", "[(a+b:2),-]", expect!["[(a+b:2),-,-]"]);
    check("[a,(a+b:2)]", "[(a+b:2),-]", "[a,-] owes b", expect!["[a,(a+b:2),-]"]);
    check(
        "[-,*3.a]",
        "[-,-] owes a,b",
        "[-,(a+@t:2)]",
        expect![[r#"
        operand 0: dimension 1 of extent 4 does not fall into 6 equal blocks [even-split]
        result 0: a layout at rest cannot depend on time [at-rest]"#]],
    );
}

#[test]
fn each_rule_of_layouts_is_named() {
    check_layouts(
        "add",
        &[(&[4], "[-] owes a"), (&[4], "[-]")],
        &[(&[4], "[-] owes a")],
        expect!["operand 0: owes sums a, in which the results are not linear [linear]"],
    );
    check_layouts(
        "softmax dim=0",
        &[(&[4], "[a]")],
        &[(&[4], "[a]")],
        expect!["loop 0: is split, should be whole [whole-loop]"],
    );
    check_layouts(
        "triangle triangle=upper diagonal=0",
        &[(&[4, 4], "[*2.a,-]")],
        &[(&[4, 4], "[*2.a,-]")],
        expect!["loop 0: has strided blocks, should have contiguous ones [contiguous]"],
    );
    check_layouts(
        "reshape shape=[6,2]",
        &[(&[2, 6], "[-,a]")],
        &[(&[6, 2], "[a,-]")],
        expect![[r#"
        operand 0, dimension 1: [-,a] reaches from one loop into another [nested]
        result 0, dimension 0: splits a loop [a], should [-] [agree]"#]],
    );
    check_layouts(
        "neg",
        &[(&[4], "[a]")],
        &[(&[2, 2], "[a,-]")],
        expect!["result 0, dimension 1: splits a loop [-], should [a] [agree]"],
    );
    check_layouts(
        "scatter_nd scatter=add",
        &[(&[4, 4], "[-,-]"), (&[2, 1], "[a,-]"), (&[2, 4], "[a,-]")],
        &[(&[4, 4], "[-,-] owes a")],
        expect!["operand 0: owes sums none, should owe a [added-once]"],
    );
}

#[test]
fn no_program_makes_the_verifier_panic() {
    arbtest(|u| {
        let graph = crate::text::random_graph(u)?;
        drop(verify(&graph));
        Ok(())
    });
}

#[test]
fn no_operands_make_inference_panic() {
    arbtest(|u| {
        let op = crate::text::random_op(u)?;
        let mut types = Vec::new();
        for _ in 0..u.int_in_range(0..=5)? {
            let dtype = *u.choose(&DType::ALL)?;
            let shape = (0..u.int_in_range(0..=4)?)
                .map(|_| u.int_in_range(0..=4))
                .collect::<Result<Vec<u64>, _>>()?;
            types.push(Type { dtype, shape });
        }
        if let Ok(results) = op.infer(&types) {
            let loops = op.loops(&types, &results);
            for (type_, dims) in types.iter().chain(&results).zip(loops.operands.iter().chain(&loops.results))
            {
                let extents =
                    dims.iter().map(|dim| dim.iter().map(|&it| loops.get(it).size).product::<u64>());
                for (product, &extent) in extents.zip(&type_.shape) {
                    assert!(product == extent || product == 1, "{op}: {types:?}");
                }
            }
        }
        Ok(())
    });
}
