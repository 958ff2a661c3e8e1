//! Tests of the text form.

mod random;

pub(crate) use random::{graph as random_graph, plain_op as random_op};

use arbtest::arbtest;
use expect_test::{Expect, expect};

use super::{parse_graph, parse_layout, parse_op, parse_partition};
use crate::data::Type;
use crate::graph::{Graph, Output, Source};
use crate::layout::{Digit, Layout};
use crate::mesh::{AxisId, Mesh};
use crate::op::{Contract, Label, Op};
use crate::partition::{Partition, Slots, Ways};
use crate::{Binary, DType};

const SMALL: &str = r#"graph "gpt2" {
  %0 = input "input_ids" : i64[2,16]
  %1 = weight "transformer.wte.weight" : f32[211,32]
  %2 = gather dim=0 %1 %0 : f32[2,16,32] # origin "node_embedding"
  %3 = contract "abk,kn->abn" %2 %1 : f32[2,16,32]
  %4, %5 = top_k dim=1 k=2 extreme=largest %3 : f32[2,2], i64[2,2]
  %6 = constant type=f32[3] data=[1.5,-0.0,nan] : f32[3]
  %7 = constant type=f16[1] data=0x003c : f16[1]
  %8 = region body={
    takes 1
    %1 = dynamic_shape %0
    %2, %3 = dynamic_split dim=0 %1 %1
    return %2 : i64[1]
  } %4 : i64[1]
  return "logits" %3, "pre\"sent" %5
}
"#;

/// The one place that knows how an error is shown.
fn check_error(text: &str, expected: Expect) {
    expected.assert_eq(&parse_graph(text).unwrap_err().to_string());
}

#[test]
fn a_program_is_printed_as_it_is_read() {
    assert_eq!(parse_graph(SMALL).unwrap().to_string(), SMALL);
}

#[test]
fn comments_and_empty_lines_are_skipped() {
    let text =
        "// first\ngraph \"\" { // second\n\n %0 = input \"//\" : f32[] // third\nreturn\n// last\n}//";
    let graph = parse_graph(text).unwrap();
    assert_eq!(graph.values[0].source, Source::Input("//".to_owned()));
}

#[test]
fn programs_are_read_as_they_were_printed() {
    arbtest(|u| {
        let graph = random::graph(u)?;
        let text = graph.to_string();
        assert_eq!(parse_graph(&text).as_ref(), Ok(&graph), "{text}");
        Ok(())
    });
}

#[test]
fn operations_are_read_as_they_were_printed() {
    arbtest(|u| {
        let op = random::op(u, 0)?;
        let text = op.to_string();
        assert_eq!(parse_op(&text).as_ref(), Ok(&op), "{text}");
        Ok(())
    });
}

#[test]
fn no_bytes_make_the_parser_panic() {
    arbtest(|u| {
        let bytes: Vec<u8> = u.arbitrary()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mesh = Mesh::of_sizes(&[2, 3]);
        drop((
            parse_graph(&text),
            parse_op(&text),
            parse_layout(&mesh, &text),
            parse_partition(&mesh, &text),
        ));
        Ok(())
    });
}

#[test]
fn no_change_of_a_program_makes_the_parser_panic() {
    const PIECES: [&str; 12] = [
        "{",
        "}",
        "\n",
        "\"",
        "%",
        "99999999999999999999999",
        "[",
        "]",
        "->",
        "é",
        "\\u{",
        "takes 4294967295",
    ];
    arbtest(|u| {
        let mut text = random::graph(u)?.to_string();
        for _ in 0..u.int_in_range(1..=4)? {
            let mut place = |text: &String| -> arbtest::arbitrary::Result<usize> {
                let at = u.int_in_range(0..=text.len())?;
                Ok((at..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap())
            };
            let (from, to) = (place(&text)?, place(&text)?);
            let cut = to.min(from + 12);
            let cut = (0..=cut).rev().find(|&it| text.is_char_boundary(it)).unwrap();
            text.replace_range(from.min(cut)..cut.max(from.min(cut)), u.choose(&PIECES)?);
        }
        if let Ok(graph) = parse_graph(&text) {
            assert_eq!(parse_graph(&graph.to_string()), Ok(graph));
        }
        Ok(())
    });
}

#[test]
fn errors_say_where_and_what() {
    check_error("grape", expect!["line 1, column 1: found `grape`, expected `graph`"]);
    check_error(
        "graph \"g\" {\n  %1 = input \"x\" : f32[]\n",
        expect!["line 2, column 3: found `%1`, expected `%0`, the next value"],
    );
    check_error(
        "graph \"g\" {\n  %0 = gatherr dim=0 %1\n",
        expect!["line 2, column 8: found `gatherr`, expected an operation"],
    );
    check_error(
        "graph \"g\" {\n  %0 = gather dim=x %1\n",
        expect!["line 2, column 19: found `x`, expected a number from 0"],
    );
    check_error(
        "graph \"g\" {\n  %0 = gather %1\n",
        expect!["line 2, column 15: found `%1`, expected `dim=`"],
    );
    check_error(
        "graph \"g\" {\n  %0 = select %1 %2 %3 : f32[2,99999999999999999999]\n",
        expect!["line 2, column 32: found `99999999999999999999]`, expected a number from 0"],
    );
    check_error(
        "graph \"g\" {\n  %0 = select\n",
        expect!["line 2, column 14: found the end of the line, expected 1 types, one for each result, not 0"],
    );
    check_error("graph \"g\" {", expect!["line 1, column 12: found the end, expected an operation"]);
    let deep = "graph \"g\" { %0 = ".to_owned() + &"region body={ takes 0\n".repeat(40);
    check_error(&deep, expect!["line 33, column 13: found `{`, expected 32 nested regions at most"]);
}

#[test]
fn layouts_are_read_as_they_were_printed() {
    let names = Mesh::parse("data=2,3=2,t=4,x2=2").unwrap();
    arbtest(|u| {
        let digit = |u: &mut arbtest::arbitrary::Unstructured<'_>| {
            let axis = AxisId(u.int_in_range(0..=3)?);
            match u.int_in_range(0..=2)? {
                0 => Ok(Digit::axis(&names, axis)),
                1 => Ok(Digit::free(u.int_in_range(1..=5)?)),
                _ => Ok(Digit {
                    size: u.int_in_range(1..=4)?,
                    terms: (0..u.int_in_range(0..=3)?)
                        .map(|_| Ok((AxisId(u.int_in_range(0..=3)?), u.int_in_range(-2..=2)?)))
                        .collect::<Result<_, _>>()?,
                    step: u.int_in_range(-1..=1)?,
                    offset: u.int_in_range(-1..=1)?,
                }),
            }
        };
        let mut dims = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            dims.push((0..u.int_in_range(0..=3)?).map(|_| digit(u)).collect::<Result<Vec<_>, _>>()?);
        }
        let routed = dims.first().cloned().unwrap_or_default();
        let owed: Vec<AxisId> = names.axis_ids().filter(|it| it.0 % 2 == dims.len() % 2).collect();
        let layout = Layout { dims: dims.clone(), owed: owed.clone() };
        let text = layout.display(&names).to_string();
        assert_eq!(parse_layout(&names, &text), Ok(layout), "{text}");
        let partition = Partition {
            steps: u.int_in_range(0..=2)?,
            loops: dims,
            streams: owed.iter().copied().take(u.int_in_range(0..=2)?).collect(),
            passed: owed,
            through: u.arbitrary()?,
            ways: if u.arbitrary()? { Ways::Both } else { Ways::One },
            slots: if u.arbitrary()? { Slots::One } else { Slots::Two },
            routed_by: if routed.is_empty() { 1 } else { u.int_in_range(1..=3)? },
            routed,
        };
        let text = partition.display(&names).to_string();
        assert_eq!(parse_partition(&names, &text), Ok(partition), "{text}");
        Ok(())
    });
}

#[test]
fn the_forms_of_digits() {
    let mesh = Mesh::of_sizes(&[2, 2, 2]);
    let show = |text: &str| match parse_layout(&mesh, text) {
        Ok(layout) => layout.display(&mesh).to_string(),
        Err(error) => error.to_string(),
    };
    expect!["[-,a.b] owes c"].assert_eq(&show("[-, a . b] owes c"));
    expect!["[*3.a]"].assert_eq(&show("[*3.(1*a:2)]"));
    expect!["[(a-b+2*@t+1:2),(-c:2)]"].assert_eq(&show("[(a-1*b+2*@t+1:2),(-c:2)]"));
    expect!["line 1, column 2: found `d]`, expected one of the axes `a`, `b`, `c`"].assert_eq(&show("[d]"));
}

/// A program as large as one of 80 layers.
fn large() -> Graph {
    let mut graph = Graph { name: "large".to_owned(), ..Graph::default() };
    let square = Type::new(DType::F32, [8192, 8192]);
    let mut value = graph.push_value(square.clone(), Source::Input("x".to_owned()));
    for layer in 0..3000 {
        let weight = graph.push_value(square.clone(), Source::Weight(format!("model.layers.{layer}.weight")));
        let labels = |pair: [u8; 2]| pair.map(Label).to_vec();
        let op =
            Op::Contract(Contract { left: labels([0, 1]), right: labels([1, 2]), result: labels([0, 2]) });
        let types = vec![square.clone()];
        let made =
            graph.push_node(op, vec![value, weight], types.clone(), format!("/model/{layer}/MatMul"))[0];
        value = graph.push_node(Op::Binary(Binary::Add), vec![value, made], types, String::new())[0];
    }
    graph.outputs.push(Output { name: "y".to_owned(), value });
    graph
}

#[test]
fn a_large_program_is_read_as_it_was_printed() {
    let graph = large();
    let start = std::time::Instant::now();
    let text = graph.to_string();
    let printed = start.elapsed();
    assert!(parse_graph(&text).as_ref() == Ok(&graph));
    println!("{} nodes: {printed:?} to print, {:?} in all", graph.nodes.len(), start.elapsed());
}
