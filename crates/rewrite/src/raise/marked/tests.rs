//! Features written into embeddings where tokens say so.

use kernels::Array;
use planner_ir::{Graph, Op, parse_graph};

use super::marked;
use crate::raise::tests::evaluate::evaluate;

/// Rows of 2 numbers at the places of a mask of 2 x 3, as many as are marked.
const ROWS: &str = "graph \"rows\" {
  %0 = input \"mask\" : bool[2,3]
  %1 = input \"data\" : f32[2,3,2]
  %2 = input \"rows\" : f32[3,2]
  %3 = region body={
    takes 3
    %3 = dynamic_non_zero %0
    %4 = transpose permutation=[1,0] %3
    %5 = scatter_nd scatter=replace %1 %4 %2
    return %5 : f32[2,3,2]
  } %0 %1 %2 : f32[2,3,2]
  return \"y\" %3
}
";

/// Single numbers, of which the first are taken, as many as are marked; then others at the same places.
const FIRST: &str = "graph \"first\" {
  %0 = input \"mask\" : i64[6]
  %1 = input \"data\" : f32[6]
  %2 = input \"rows\" : f32[4]
  %3 = region body={
    takes 3
    %3 = constant type=i64[1] data=[0]
    %4 = constant type=i64[1] data=[1]
    %5 = dynamic_non_zero %0
    %6 = transpose permutation=[1,0] %5
    %7 = dynamic_shape %6
    %8 = slice starts=[0] steps=[1] sizes=[1] %7
    %9 = dynamic_slice %2 %3 %8 %3 %4
    %10 = scatter_nd scatter=replace %1 %6 %9
    %11 = tanh %10
    %12 = scatter_nd scatter=replace %11 %6 %9
    return %12 : f32[6]
  } %0 %1 %2 : f32[6]
  return \"y\" %3
}
";

fn graph(text: &str) -> Graph {
    parse_graph(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn regions(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|node| matches!(node.op, Op::Region(_))).count()
}

/// The raised graph has no region, and gives the same for all masks, or an error where the other does.
fn check(text: &str, marks: usize, mask: impl Fn(&[bool]) -> Array, others: &[Array]) {
    let old = graph(text);
    let new = marked(&old);
    assert_eq!((regions(&old), regions(&new)), (1, 0), "{new}");
    let (mut same, mut refused) = (0, 0);
    for pattern in 0..1_u32 << marks {
        let truths: Vec<bool> = (0..marks).map(|at| pattern >> at & 1 == 1).collect();
        let given = [vec![mask(&truths)], others.to_vec()].concat();
        match (evaluate(&old, &given), evaluate(&new, &given)) {
            (Ok(old), Ok(new)) => {
                assert_eq!(old, new, "{truths:?}");
                same += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            (old, new) => panic!("{truths:?}: {old:?}, {new:?}"),
        }
    }
    assert!(same > 0 && refused > 0);
}

fn numbers(shape: &[u64], start: f32) -> Array {
    let count = u16::try_from(shape.iter().product::<u64>()).unwrap();
    let numbers: Vec<f32> = (0..count).map(|it| start + f32::from(it)).collect();
    Array::of(shape, &numbers).unwrap()
}

#[test]
fn rows_at_marked_places_are_chosen() {
    let mask = |truths: &[bool]| Array::of_truths([2, 3], truths).unwrap();
    check(ROWS, 6, mask, &[numbers(&[2, 3, 2], 1.0), numbers(&[3, 2], 100.0)]);
}

#[test]
fn rows_that_are_cut_to_their_number_are_chosen_again_and_again() {
    let mask = |truths: &[bool]| {
        let numbers: Vec<i64> = truths.iter().map(|&it| if it { 7 } else { 0 }).collect();
        Array::of([6], &numbers).unwrap()
    };
    check(FIRST, 6, mask, &[numbers(&[6], 0.5), numbers(&[4], 100.0)]);
}

#[test]
fn what_is_more_than_that_stays_a_region() {
    for (from, to) in [
        ("scatter_nd scatter=replace %1", "scatter_nd scatter=add %1"),
        ("transpose permutation=[1,0] %3", "transpose permutation=[0,1] %3"),
    ] {
        assert_eq!(regions(&marked(&graph(&ROWS.replace(from, to)))), 1, "{to}");
    }
}
