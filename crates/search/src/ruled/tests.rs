//! Tests of which partitions rules leave.

use plan::Parallelism;
use planner_ir::{Dims, Graph, Mesh, NodeId, Partition, parse_graph, parse_partition};

use super::{OverExperts, Ruled, Rules};

/// Queries of four heads, normalised each for itself before they are transposed, and behind; what goes from layer to
/// layer, normalised and added.
const HEADS: &str = r#"graph "" {
  %0 = input "x" : f32[2,4,32]
  %1 = weight "q" : f32[32,4,8]
  %2 = weight "of heads" : f32[8]
  %3 = weight "of tokens" : f32[32]
  %4 = contract "abk,khd->abhd" %0 %1 : f32[2,4,4,8]
  %5 = rms_norm dims=1 epsilon=0 %4 %2 : f32[2,4,4,8]
  %6 = transpose permutation=[0,2,1,3] %5 : f32[2,4,4,8]
  %7 = rms_norm dims=1 epsilon=0 %6 %2 : f32[2,4,4,8]
  %8 = add %7 %7 : f32[2,4,4,8]
  %9 = rms_norm dims=1 epsilon=0 %0 %3 : f32[2,4,32]
  %10 = add %9 %0 : f32[2,4,32]
  return
}
"#;

/// Which of these are left of an operation, on two devices that are for this.
fn left(role: Parallelism, sequence: bool, node: usize, partitions: &[&'static str]) -> Vec<&'static str> {
    let graph: Graph = parse_graph(HEADS).unwrap();
    let mesh = Mesh::of_sizes(&[2]);
    let axis = Ruled { role, experts: OverExperts::AsOthers, shards: false };
    let rules = Rules { axes: vec![axis], sequence, zero: 0, exact: false, sums_once: false };
    let all: Vec<Partition> = partitions.iter().map(|it| parse_partition(&mesh, it).unwrap()).collect();
    let left = rules.left((&graph, &Dims::of(&graph)), NodeId(node), &all.iter().collect::<Vec<_>>());
    partitions.iter().zip(left).filter(|it| it.1).map(|it| *it.0).collect()
}

const WHOLE: &str = "[-,-,-,-]";
const SECOND: &str = "[-,a,-,-]";
const THIRD: &str = "[-,-,a,-]";
const OF_HEADS: [&str; 3] = [WHOLE, SECOND, THIRD];
const OF_TOKENS: [&str; 2] = ["[-,-,-]", "[-,a,-]"];

/// Tensor parallel devices split heads in whatever is between products, as those; sequences only where it is said.
#[test]
fn norms_of_heads_are_split_by_heads() {
    let tensor = |sequence, node| left(Parallelism::Tensor, sequence, node, &OF_HEADS);
    assert_eq!(tensor(false, 1), [WHOLE, THIRD]);
    // Loops are in the order of what is transposed.
    assert_eq!(tensor(false, 2), [WHOLE, THIRD]);
    assert_eq!(tensor(false, 3), [WHOLE, SECOND]);
    assert_eq!(tensor(false, 4), [WHOLE, SECOND]);
    assert_eq!(tensor(true, 1), OF_HEADS);
    for node in [5, 6] {
        assert_eq!(left(Parallelism::Tensor, false, node, &OF_TOKENS), [OF_TOKENS[0]]);
        assert_eq!(left(Parallelism::Tensor, true, node, &OF_TOKENS), OF_TOKENS);
    }
}

/// Context parallel ones split sequences there, and no heads.
#[test]
fn norms_of_heads_are_split_by_sequences() {
    let context = |node| left(Parallelism::Context, false, node, &OF_HEADS);
    assert_eq!(context(1), [SECOND]);
    assert_eq!(context(2), [SECOND]);
    assert_eq!(context(3), [THIRD]);
}
