//! Tests of what plans are said to do, on steps partitioned by hand.

use arbtest::arbtest;
use expect_test::{Expect, expect};
use planner_ir::{Mesh, parse_graph, parse_partition};

use super::strategy;
use crate::samples::steps::{Ways, step};
use crate::{Assignment, Exchanged, Recompute, check, samples};

/// The one place that knows how a step is named; its plan is a right one.
fn said(mesh: &str, ways: Ways<'_>, expected: Expect) {
    let plan = step(mesh, ways, 1);
    assert_eq!(check(&plan), Ok(()));
    expected.assert_eq(&strategy(&plan).join("; "));
}

const NONE: Ways<'_> = Ways::NONE;
const DATA: Ways<'_> = Ways { data: Some("a"), ..NONE };
const ZERO_1: Ways<'_> = Ways { moments: Some("a"), ..DATA };
const ZERO_2: Ways<'_> = Ways { gradients: Some("a"), ..ZERO_1 };
const ZERO_3: Ways<'_> = Ways { parameters: Some("a"), ..ZERO_2 };

#[test]
fn states_split_along_the_axis_of_the_data() {
    said("a=2", NONE, expect!["replicated over a"]);
    said("a=2", DATA, expect!["data parallel over a"]);
    said("a=2", ZERO_1, expect!["data parallel over a; ZeRO-1 over a"]);
    said("a=2", ZERO_2, expect!["data parallel over a; ZeRO-2 over a"]);
    said("a=2", ZERO_3, expect!["data parallel over a; ZeRO-3 (FSDP) over a"]);
}

#[test]
fn parameters_split_in_products() {
    let tensor = Ways { tensor: Some("b"), ..NONE };
    said("b=2", tensor, expect!["tensor parallel over b: columns then rows (98 % of the parameters)"]);
    said(
        "b=2",
        Ways { sequence: Some("b"), ..tensor },
        expect![
            "tensor parallel over b: columns then rows (98 % of the parameters); sequence parallel over b"
        ],
    );
    said(
        "a=2,b=2",
        Ways { tensor: Some("b"), sequence: Some("b"), ..ZERO_1 },
        expect![
            "data parallel over a; ZeRO-1 over a; tensor parallel over b: columns then rows (98 % of the parameters); sequence parallel over b"
        ],
    );
    said(
        "a=2,b=2",
        Ways { tensor: Some("b"), ..ZERO_3 },
        expect![
            "data parallel over a; ZeRO-3 (FSDP) over a; tensor parallel over b: columns then rows (98 % of the parameters)"
        ],
    );
    said("c=2", Ways { context: Some("c"), ..NONE }, expect!["context parallel over c"]);
    said(
        "a=2,c=1,b=2",
        Ways { context: Some("b"), ..ZERO_2 },
        expect!["data parallel over a; ZeRO-2 over a; context parallel over b"],
    );
}

#[test]
fn parameters_that_differ_are_counted() {
    let down = Ways { only: Some("down"), ..ZERO_3 };
    said(
        "a=2",
        down,
        expect!["data parallel over a; ZeRO-1 over a (51 % of the parameters), ZeRO-3 (FSDP) of 49 %"],
    );
    said(
        "a=2",
        Ways { only: Some("up"), parameters: None, ..down },
        expect!["data parallel over a; ZeRO-1 over a (51 % of the parameters), ZeRO-2 of 49 %"],
    );
    said(
        "a=2",
        Ways { only: Some("norm"), moments: None, ..down },
        expect!["data parallel over a; ZeRO-3 (FSDP) over a (2 % of the parameters)"],
    );
    said("a=2,c=2", Ways { moments: Some("c"), ..DATA }, expect!["data parallel over a; ZeRO-1 over c"]);
}

#[test]
fn micro_batches_and_blocks_that_are_recomputed_or_spelled_out_are_counted() {
    let mut plan = step("a=2", ZERO_2, 4);
    assert_eq!(check(&plan), Ok(()));
    let recompute = &mut plan.recipe.as_mut().unwrap().recompute;
    recompute.clear();
    recompute.extend(vec![Recompute::Selective; 27]);
    recompute.extend(vec![Recompute::AllBut(vec![2, 5]), Recompute::AllBut(vec![2])]);
    recompute.extend([Recompute::AllBut(vec![]), Recompute::Full, Recompute::Nothing]);
    plan.recipe.as_mut().unwrap().spelled = vec![0, 30];
    expect!["data parallel over a; ZeRO-2 over a; 4 micro-batches; selective recompute in 27 of 32 blocks; partial recompute in 3 of 32 blocks; full recompute in 1 of 32 blocks; norms spelled out in 2 of 32 blocks"].assert_eq(&strategy(&plan).join("; "));
}

/// The one place that knows how a program without training is named.
fn answers(program: &str, partitions: &[&str], expected: Expect) {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let graph = parse_graph(&format!("graph \"\" {{\n{program}\nreturn\n}}\n")).unwrap();
    let mut plan = samples::empty(graph, mesh.clone());
    for (assignment, text) in plan.assignments.iter_mut().zip(partitions) {
        let partition = parse_partition(&mesh, text).unwrap();
        let (operands, bytes) = (vec![], vec![]);
        *assignment = Assignment::Computed {
            partition,
            operands,
            bytes,
            seconds: 0.0,
            exchanged: Exchanged::default(),
        };
    }
    expected.assert_eq(&strategy(&plan).join("; "));
}

#[test]
fn inference_is_named_alike() {
    expect!["tensor parallel over a: columns then rows"].assert_eq(&strategy(&samples::example()).join("; "));
    let look_up = "%0 = input \"ids\" : i64[4,8]\n%1 = weight \"table\" : f32[64,32]
%2 = gather dim=0 %1 %0 : f32[4,8,32]";
    answers(look_up, &["[b,a,-,-]"], expect!["tensor parallel over a: columns; vocabulary parallel over b"]);
    answers(look_up, &["[-,-,a,b]"], expect!["data parallel over a; context parallel over b"]);
    let experts = "%0 = input \"x\" : f32[8,16]\n%1 = input \"gates\" : f32[8,4]
%2 = weight \"up\" : f32[4,32,16]\n%3 = weight \"gate\" : f32[4,32,16]\n%4 = weight \"down\" : f32[4,16,32]
%5 = experts activation=silu active=2 %0 %1 %2 %3 %4 : f32[8,16]";
    answers(experts, &["[a,b,-,-,-]"], expect!["data parallel over a; expert parallel over b"]);
    answers(experts, &["[-,a,b,-,-]"], expect!["expert parallel over a; tensor parallel over b: units"]);
    // Heads that are normalised each for itself are no sequences.
    let heads =
        "%0 = input \"x\" : f32[4,8,32]\n%1 = weight \"w\" : f32[32,4,8]\n%2 = weight \"norm\" : f32[8]
%3 = contract \"abk,khd->abhd\" %0 %1 : f32[4,8,4,8]\n%4 = rms_norm dims=1 epsilon=0 %3 %2 : f32[4,8,4,8]";
    let norm = |partition| ["[b,-,-,a,-]", partition];
    answers(
        heads,
        &norm("[b,-,a,-]"),
        expect!["tensor parallel over a: columns (99 % of the weights); data parallel over b"],
    );
    answers(
        heads,
        &norm("[b,a,-,-]"),
        expect![
            "tensor parallel over a: columns (99 % of the weights); sequence parallel over a; data parallel over b"
        ],
    );
    // A batch of sequences in one dimension: the inner part of it is the sequence.
    let rows = "%0 = input \"x\" : f32[32,16]\n%1 = weight \"w\" : f32[16,8]
%2 = contract \"ab,bc->ac\" %0 %1 : f32[32,8]";
    answers(rows, &["[a.*2.b,-,-]"], expect!["data parallel over a; context parallel over b"]);
    answers(rows, &["[a.b,-,-]"], expect!["data parallel over a, b"]);
    answers(rows, &["[-,-,a.b]"], expect!["tensor parallel over a, b: columns"]);
}

#[test]
fn something_is_said_of_every_axis_of_any_plan() {
    arbtest(|u| {
        let plan = samples::random(u)?;
        let said = strategy(&plan).join("; ");
        for axis in plan.mesh.axes.iter().filter(|axis| axis.size > 1) {
            let named = |word: &str| word.trim_matches(',').trim_matches(':') == axis.name;
            assert!(said.replace(';', "").split(' ').any(named), "{} in {said}", axis.name);
        }
        Ok(())
    });
}
