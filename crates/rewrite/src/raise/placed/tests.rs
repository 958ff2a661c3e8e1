//! What is taken from places that are known is the same when it is moved.

use kernels::Array;
use planner_ir::{Binary, DType, Graph, Op, Output, Real, Scatter, Source, Type, ValueId};

use super::placed;
use crate::raise::share::shared;
use crate::raise::tests::evaluate::{Dice, evaluate};

/// A graph by hand.
#[derive(Default)]
struct Sketch(Graph);

impl Sketch {
    fn input(&mut self, shape: &[u64]) -> ValueId {
        let name = format!("x{}", self.0.values.len());
        self.0.push_value(Type::new(DType::I64, shape), Source::Input(name))
    }

    fn op(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        let types = op.infer(&self.0.types_of(operands)).unwrap();
        self.0.push_node(op, operands.to_vec(), types, String::new())[0]
    }

    /// Integers along one of so many dimensions, repeated along the others.
    fn along(&mut self, shape: &[u64], dim: usize, [start, step]: [f64; 2]) -> ValueId {
        let (start, step) = (Real(start), Real(step));
        let range = self.op(Op::Iota { dtype: DType::I64, length: shape[dim], start, step }, &[]);
        let ones = (0..shape.len()).map(|at| if at == dim { shape[dim] } else { 1 }).collect();
        let range = self.op(Op::Reshape { shape: ones }, &[range]);
        self.op(Op::Expand { shape: shape.to_vec() }, &[range])
    }

    /// Indices that stand beside each other.
    fn beside(&mut self, indices: &[ValueId]) -> ValueId {
        let mut parts = Vec::new();
        for &it in indices {
            let shape = [&self.0.type_of(it).shape[..], &[1]].concat();
            parts.push(self.op(Op::Reshape { shape }, &[it]));
        }
        let dim = self.0.type_of(parts[0]).rank() - 1;
        self.op(Op::Concat { dim }, &parts)
    }

    /// The graph with gathers as movement, if it computes the same.
    fn moved(mut self, y: ValueId) -> Graph {
        self.0.outputs.push(Output { name: "y".to_owned(), value: y });
        let found = shared(&placed(&self.0));
        planner_ir::verify(&found).unwrap();
        let mut dice = Dice { state: 1, below: 1000 };
        let outside = self.0.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
        let arrays: Vec<Array> = outside.map(|it| dice.array(&it.type_)).collect();
        let [expected, found_y] = [&self.0, &found].map(|it| evaluate(it, &arrays).unwrap().remove(0));
        assert_eq!(found_y.type_(), expected.type_(), "{}", self.0);
        assert_eq!(found_y.bytes(), expected.bytes(), "{}\n{found}", self.0);
        found
    }
}

fn gathers(graph: &Graph) -> usize {
    graph.nodes.iter().filter(|it| matches!(it.op, Op::Gather { .. } | Op::GatherNd { .. })).count()
}

#[test]
fn padding_by_batch_and_key_is_the_padding_in_another_shape() {
    for (batch, keys) in [(1, 5), (3, 5), (2, 600)] {
        let mut sketch = Sketch::default();
        let x = sketch.input(&[batch, keys]);
        let shape = [batch, 1, 1, keys];
        let indices = [sketch.along(&shape, 0, [0.0, 1.0]), sketch.along(&shape, 3, [0.0, 1.0])];
        let indices = sketch.beside(&indices);
        let y = sketch.op(Op::GatherNd { batch_dims: 0 }, &[x, indices]);
        let found = sketch.moved(y);
        assert_eq!(
            found.nodes.iter().filter(|it| !matches!(it.op, Op::Reshape { .. })).count(),
            0,
            "{found}"
        );
    }
}

#[test]
fn gathers_from_any_even_places_are_movement() {
    for (start, step) in [(0.0, 1.0), (1.0, 2.0), (-6.0, 1.0), (5.0, -1.0), (-1.0, -2.0)] {
        for to in 0..3 {
            let mut sketch = Sketch::default();
            let x = sketch.input(&[6, 4]);
            let shape = [3, 3, 3];
            let place = sketch.along(&shape, to, [start, step]);
            let y = sketch.op(Op::Gather { dim: 0 }, &[x, place]);
            assert_eq!(gathers(&sketch.moved(y)), 0);
            let mut sketch = Sketch::default();
            let x = sketch.input(&[6, 4]);
            let place = sketch.along(&shape, to, [start, step]);
            let other = sketch.along(&shape, (to + 1) % 3, [3.0, -1.0]);
            let places = sketch.beside(&[place, other]);
            let y = sketch.op(Op::GatherNd { batch_dims: 0 }, &[x, places]);
            assert_eq!(gathers(&sketch.moved(y)), 0);
        }
    }
}

#[test]
fn places_in_what_was_flattened_are_taken_apart() {
    let mut sketch = Sketch::default();
    let x = sketch.input(&[3, 5]);
    let flat = sketch.op(Op::Reshape { shape: vec![15, 1] }, &[x]);
    let shape = [3, 1, 1, 5];
    let [rows, columns] = [sketch.along(&shape, 0, [0.0, 5.0]), sketch.along(&shape, 3, [0.0, 1.0])];
    let places = sketch.op(Op::Binary(Binary::Add), &[rows, columns]);
    let y = sketch.op(Op::Gather { dim: 0 }, &[flat, places]);
    assert_eq!(gathers(&sketch.moved(y)), 0);
}

#[test]
fn places_that_overlap_or_lie_on_a_diagonal_are_gathered() {
    // Windows that overlap.
    let mut sketch = Sketch::default();
    let x = sketch.input(&[6]);
    let shape = [3, 3];
    let [rows, columns] = [0, 1].map(|dim| sketch.along(&shape, dim, [0.0, 1.0]));
    let places = sketch.op(Op::Binary(Binary::Add), &[rows, columns]);
    let y = sketch.op(Op::Gather { dim: 0 }, &[x, places]);
    assert_eq!(gathers(&sketch.moved(y)), 1);
    // A diagonal.
    let mut sketch = Sketch::default();
    let x = sketch.input(&[3, 3]);
    let along = sketch.along(&[3], 0, [0.0, 1.0]);
    let places = sketch.beside(&[along, along]);
    let y = sketch.op(Op::GatherNd { batch_dims: 0 }, &[x, places]);
    assert_eq!(gathers(&sketch.moved(y)), 1);
}

#[test]
fn scattering_each_element_to_its_own_place_is_nothing() {
    for shape in [[2u64, 1, 3, 3], [1, 1, 40, 40]] {
        let mut sketch = Sketch::default();
        let [x, y] = [(); 2].map(|()| sketch.input(&shape));
        let places: Vec<ValueId> = (0..4).map(|dim| sketch.along(&shape, dim, [0.0, 1.0])).collect();
        let places = sketch.beside(&places);
        let z = sketch.op(Op::ScatterNd { scatter: Scatter::Replace }, &[x, places, y]);
        assert!(sketch.moved(z).nodes.is_empty());
    }
    // The other way round along one dimension.
    let mut sketch = Sketch::default();
    let [x, y] = [(); 2].map(|()| sketch.input(&[3, 2]));
    let places = [sketch.along(&[3, 2], 0, [2.0, -1.0]), sketch.along(&[3, 2], 1, [0.0, 1.0])];
    let places = sketch.beside(&places);
    let z = sketch.op(Op::ScatterNd { scatter: Scatter::Replace }, &[x, places, y]);
    assert!(!sketch.moved(z).nodes.is_empty());
}

#[test]
fn documents_that_positions_say_are_one() {
    // Positions, whether each is one more than that before it, and how many were not.
    for length in [8u64, 2000] {
        let mut sketch = Sketch::default();
        let positions = sketch.along(&[2, length], 1, [0.0, 1.0]);
        let taken =
            |start, size| Op::Slice { starts: vec![0, start], steps: vec![1, 1], sizes: vec![2, size] };
        let first = sketch.op(taken(0, 1), &[positions]);
        let one = Op::Fill { result: Type::new(DType::I64, []), value: Real(1.0) };
        let one = sketch.op(one, &[]);
        let before = sketch.op(Op::Binary(Binary::Sub), &[first, one]);
        let all = sketch.op(Op::Concat { dim: 1 }, &[before, positions]);
        let [later, earlier] = [1, 0].map(|start| sketch.op(taken(start, length), &[all]));
        let apart = sketch.op(Op::Binary(Binary::Sub), &[later, earlier]);
        let next = sketch.op(Op::Binary(Binary::Equal), &[apart, one]);
        let new = sketch.op(Op::Unary(planner_ir::Unary::Not), &[next]);
        let new = sketch.op(Op::Cast(DType::I64), &[new]);
        let documents = sketch.op(Op::CumSum { dim: 1, exclusive: false, reverse: false }, &[new]);
        let found = sketch.moved(documents);
        let ops: Vec<&Op> = found.nodes.iter().map(|it| &it.op).collect();
        assert!(matches!(ops[..], [Op::Fill { .. }]), "{found}");
    }
}
