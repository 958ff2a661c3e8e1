//! Ways are those of the moves that they number.

use planner_ir::{AxisId, DType, Digit, Mesh, Move};

use super::*;
use crate::prices::Work;

/// Every step takes as long.
struct Even;

impl Prices for Even {
    fn work(&self, _work: &Work<'_>) -> f64 {
        1.0
    }

    fn step(&self, _type: &Type, _step: &Move, _before: &Layout, _after: &Layout) -> f64 {
        1.0
    }
}

#[test]
fn values_whose_moves_come_in_another_order_have_ways_of_their_own() {
    let mesh = Mesh::of_sizes(&[2, 2]);
    let type_ = Type::new(DType::F32, [8, 8]);
    let whole = Layout::replicated(2);
    let steps = [0, 1].map(|at| Move::Slice { dim: at, digits: vec![Digit::axis(&mesh, AxisId(at))] });
    let split = |step: &Move| step.apply(&mesh, &type_, &whole).unwrap();
    let layouts = [whole.clone(), split(&steps[0]), split(&steps[1])];
    let edge = |number: usize| Edge { from: 0, to: number + 1, step: steps[number].clone() };
    let orders = [[edge(0), edge(1)], [edge(1), edge(0)]];
    let found = Found::default();
    for edges in &orders {
        let ways = found.ways((&type_, &layouts, edges), &Even);
        for to in [1, 2] {
            let moves = ways.moves(edges, 0, to);
            assert_eq!(moves.iter().map(|&it| edges[it].to).collect::<Vec<_>>(), [to]);
        }
    }
}
