//! Tests of what loops run over, in programs whose dimensions have different extents.

use super::{Dims, Over};
use crate::graph::{Graph, Node};
use crate::loops::{LoopId, Loops};
use crate::parse_graph;

/// Two examples of three tokens with four heads of eight numbers; of keys and values two heads, and five in a cache.
const ATTENTION: &str = r#"
  %0 = input "x" : f32[2,3,32]
  %1 = input "past" : f32[2,2,5,8]
  %2 = weight "q" : f32[32,4,8]
  %3 = weight "k" : f32[32,2,8]
  %4 = weight "norm" : f32[8]
  %5 = contract "abk,khd->abhd" %0 %2 : f32[2,3,4,8]
  %6 = rms_norm dims=1 epsilon=0 %5 %4 : f32[2,3,4,8]
  %7 = transpose permutation=[0,2,1,3] %6 : f32[2,4,3,8]
  %8 = add %7 %7 : f32[2,4,3,8]
  %9 = contract "abk,khd->ahbd" %0 %3 : f32[2,2,3,8]
  %10 = rms_norm dims=1 epsilon=0 %9 %4 : f32[2,2,3,8]
  %11 = concat dim=2 %1 %10 : f32[2,2,8,8]
  %12 = silu %11 : f32[2,2,8,8]
  %13 = slice starts=[0,0,0,4] steps=[1,1,1,1] sizes=[2,3,4,4] %6 : f32[2,3,4,4]
  %14 = silu %13 : f32[2,3,4,4]
  %15 = slice starts=[0,1,0,0] steps=[1,1,1,1] sizes=[2,2,4,8] %6 : f32[2,2,4,8]
  %16 = silu %15 : f32[2,2,4,8]
  %17 = reshape shape=[2,3,32] %6 : f32[2,3,32]
  %18 = add %17 %0 : f32[2,3,32]
  %19 = reshape shape=[6,32] %18 : f32[6,32]
  %20 = silu %19 : f32[6,32]
  %21 = reshape shape=[2,3,4,8] %20 : f32[2,3,4,8]
  %22 = silu %21 : f32[2,3,4,8]
"#;

fn parsed(program: &str) -> Graph {
    parse_graph(&format!("graph \"\" {{{program}return\n}}\n")).unwrap()
}

fn in_words(over: Over) -> String {
    let Over { examples, sequence, inner, experts } = over;
    let names = [(examples, "examples"), (sequence, "sequence"), (inner, "inner"), (experts, "experts")];
    names.iter().filter(|it| it.0).map(|it| it.1).collect::<Vec<_>>().join("|")
}

fn loops(graph: &Graph, node: &Node) -> Loops {
    node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results))
}

/// For each operation the dimensions of its result, and whether it is of heads.
fn said(program: &str) -> Vec<String> {
    let graph = parsed(program);
    let dims = Dims::of(&graph);
    let one = |node: &Node| {
        let loops = loops(&graph, node);
        let dim = |it: &Vec<LoopId>| {
            let all: Vec<String> = it.iter().map(|it| in_words(dims.over(node, &loops, *it))).collect();
            all.join("*")
        };
        let all: Vec<String> = loops.results[0].iter().map(dim).collect();
        let heads = if dims.has_heads(node, &loops) { " heads" } else { "" };
        format!("%{} {}{heads}", node.results[0].0, all.join(", "))
    };
    graph.nodes.iter().map(one).collect()
}

/// Heads are numbers of a token wherever they stand: before and behind a transposition, in norms, sums and a cache.
#[test]
fn heads_are_no_sequences() {
    let before = "examples, sequence, inner, inner";
    let behind = "examples, inner, sequence, inner";
    let all = said(ATTENTION);
    let of = |value: &str| {
        let found = all.iter().find_map(|it| it.strip_prefix(&format!("%{value} ")));
        found.unwrap_or_else(|| panic!("no {value} in {all:?}"))
    };
    for value in ["5", "6", "14", "16", "22"] {
        assert_eq!(of(value).replace(" heads", ""), before, "{value} of {all:?}");
    }
    for value in ["7", "8", "9", "10", "12"] {
        assert_eq!(of(value).replace(" heads", ""), behind, "{value} of {all:?}");
    }
    for value in ["6", "8", "10"] {
        assert!(of(value).ends_with(" heads"), "{value} of {all:?}");
    }
    assert_eq!(of("17"), "examples, sequence, inner*inner");
    assert_eq!(of("18"), "examples, sequence, inner");
    assert_eq!(of("20"), "examples|sequence, sequence|inner");
}

/// What no operation tells the place does, and of two dimensions it tells little.
#[test]
fn places_tell_where_nothing_else_does() {
    let program = r#"
  %0 = input "ids" : f32[2,3]
  %1 = input "cache" : f32[2,4,3,8]
  %2 = input "hidden" : f32[2,3,32]
  %3 = weight "norm" : f32[32]
  %4 = silu %0 : f32[2,3]
  %5 = silu %1 : f32[2,4,3,8]
  %6 = rms_norm dims=1 epsilon=0 %2 %3 : f32[2,3,32]
  %7 = reshape shape=[2,3,4,8] %2 : f32[2,3,4,8]
  %8 = silu %7 : f32[2,3,4,8]
"#;
    assert_eq!(
        said(program),
        [
            "%4 examples|sequence, sequence|inner",
            "%5 examples, inner, sequence, inner heads",
            "%6 examples, sequence, inner",
            "%7 examples, sequence, inner, inner heads",
            "%8 examples, sequence, inner, inner heads",
        ]
    );
}

/// A product of each head with the same weight has a row for each.
#[test]
fn heads_that_share_a_weight_are_heads() {
    let program = r#"
  %0 = input "x" : f32[2,3,32]
  %1 = weight "q" : f32[32,4,8]
  %2 = weight "w" : f32[8,5]
  %3 = contract "abk,khd->abhd" %0 %1 : f32[2,3,4,8]
  %4 = contract "abhd,de->abhe" %3 %2 : f32[2,3,4,5]
"#;
    assert_eq!(said(program)[1], "%4 examples, sequence, inner, inner heads");
}
