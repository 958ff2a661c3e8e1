//! Steps that write in place against those that make their cache anew.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{Type, parse_graph};
use run::Sources;

use super::*;

/// A step whose cache of keys, `[2, 3, 6, 4]`, becomes what `body` makes, `%last`, and which returns twice that.
fn step(body: &str, last: &str, besides: &str) -> Graph {
    let text = format!(
        r#"graph "step" {{
            %0 = input "past" : f32[2,3,6,4]
            %1 = input "new" : f32[2,3,2,4]
            %2 = input "at" : i64[2,1]
            {body}
            return "present" {last}{besides}
        }}"#
    );
    parse_graph(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// As exporters of `index_put` write it.
const SLICES: &str = r#"%3 = transpose permutation=[2,0,1,3] %0 : f32[6,2,3,4]
            %4 = transpose permutation=[2,0,1,3] %1 : f32[2,2,3,4]
            %5 = scatter_nd scatter=replace %3 %2 %4 : f32[6,2,3,4]
            %6 = transpose permutation=[1,2,0,3] %5 : f32[2,3,6,4]
            %7 = add %6 %6 : f32[2,3,6,4]"#;

const ELEMENTS: &str = r#"%3 = reshape shape=[1,1,2,1] %2 : i64[1,1,2,1]
            %4 = expand shape=[2,3,2,4] %3 : i64[2,3,2,4]
            %5 = scatter_elements dim=2 scatter=replace %0 %4 %1 : f32[2,3,6,4]
            %6 = add %5 %5 : f32[2,3,6,4]"#;

fn kept() -> Vec<Kept> {
    vec![Kept { past: "past".to_owned(), present: "present".to_owned(), form: Form::Entries, window: None }]
}

/// How often a step writes in place; it makes what it did.
fn written(graph: &Graph) -> usize {
    let made = in_place(graph, &kept());
    planner_ir::verify(&made).unwrap();
    let numbers = |shape: &[u64]| {
        let count = u16::try_from(shape.iter().product::<u64>()).unwrap();
        Array::of(shape.to_vec(), &(0..count).map(|it| f32::from(it) + 0.5).collect::<Vec<_>>()).unwrap()
    };
    let inputs = BTreeMap::from([
        ("past".to_owned(), numbers(&[2, 3, 6, 4])),
        ("new".to_owned(), numbers(&[2, 3, 2, 4])),
        ("at".to_owned(), Array::of([2, 1], &[4_i64, -6]).unwrap()),
    ]);
    let weights = &BTreeMap::<String, Array>::new();
    let sources = Sources { inputs: &inputs, weights };
    assert_eq!(run::reference(&made, sources).unwrap(), run::reference(graph, sources).unwrap());
    assert_eq!(made.outputs.len(), graph.outputs.len());
    made.nodes.iter().filter(|it| it.op.written() == Some(0)).count()
}

#[test]
fn entries_are_written_where_the_cache_is() {
    let slices = step(SLICES, "%6", ", \"y\" %7");
    assert_eq!(written(&slices), 1);
    // The places are not brought to the front any more: only new entries are turned.
    let large = |graph: &Graph| {
        let turned = |it: &&planner_ir::Node| matches!(it.op, Op::Transpose { .. });
        let types = graph.nodes.iter().filter(turned).map(|it| graph.type_of(it.results[0]));
        types.map(Type::elements).max()
    };
    assert_eq!([large(&slices), large(&in_place(&slices, &kept()))], [Some(144), Some(48)]);
    assert_eq!(written(&step(ELEMENTS, "%5", ", \"y\" %6")), 1);
}

#[test]
fn what_is_used_besides_is_made_anew() {
    for (body, last, besides) in [
        // The cache as it was is returned, or used.
        (SLICES, "%6", ", \"y\" %0"),
        (ELEMENTS, "%5", ", \"y\" %0"),
        (&*format!("{SLICES}\n%8 = neg %0 : f32[2,3,6,4]"), "%6", ", \"y\" %8"),
        // The places at the front are.
        (SLICES, "%6", ", \"y\" %5"),
        // What is returned is no more what was written.
        (SLICES, "%7", ""),
        (ELEMENTS, "%6", ""),
        // Another order than it was.
        (
            &*SLICES
                .replace("[1,2,0,3] %5 : f32[2,3,6,4]", "[2,1,0,3] %5 : f32[3,2,6,4]")
                .replace("%6 %6 : f32[2,3,6,4]", "%6 %6 : f32[3,2,6,4]"),
            "%6",
            "",
        ),
    ] {
        assert_eq!(written(&step(body, last, besides)), 0, "{body}, {last}{besides}");
    }
}
