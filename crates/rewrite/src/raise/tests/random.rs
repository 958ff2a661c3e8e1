//! Random graphs compute the same after raising.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{
    Binary, Contract, DType, Graph, Label, Op, Output, Real, Reduction, Source, Type, Unary, ValueId,
};

use super::evaluate::{Dice, difference, evaluate};
use crate::raise::raise;

/// A random operation on a value, and what else it reads.
fn operation(choices: &mut Unstructured<'_>, graph: &mut Graph, x: ValueId) -> Result<(Op, Vec<ValueId>)> {
    let shape = graph.type_of(x).shape.clone();
    let rank = shape.len();
    let dim = choices.choose_index(rank)?;
    let name = format!("weight.{}", graph.values.len());
    Ok(match choices.int_in_range(0..=10)? {
        0 => {
            let mut merged = shape.clone();
            let at = choices.choose_index(rank)?;
            if at + 1 < rank {
                let extent = merged.remove(at + 1);
                merged[at] *= extent;
            }
            (Op::Reshape { shape: merged }, vec![x])
        }
        1 => {
            let mut split = shape.clone();
            if split[dim].is_multiple_of(2) && rank < 4 {
                split[dim] /= 2;
                split.insert(dim + usize::from(choices.arbitrary::<bool>()?), 2);
            }
            (Op::Reshape { shape: split }, vec![x])
        }
        2 => {
            let mut permutation: Vec<usize> = (0..rank).collect();
            permutation.swap(dim, choices.choose_index(rank)?);
            (Op::Transpose { permutation }, vec![x])
        }
        3 => {
            let mut sizes = shape.clone();
            sizes[dim] = sizes[dim].div_ceil(2);
            let mut starts = vec![0; rank];
            starts[dim] = choices.int_in_range(0..=shape[dim] - sizes[dim])?;
            (Op::Slice { starts, steps: vec![1; rank], sizes }, vec![x])
        }
        4 => {
            let from = choices.choose_index(rank)?;
            let bias = graph.push_value(Type::new(DType::F32, &shape[from..]), Source::Weight(name));
            (Op::Binary(*choices.choose(&[Binary::Add, Binary::Mul, Binary::Sub])?), vec![x, bias])
        }
        5 => {
            let value = Real(*choices.choose(&[0.5, 2.0, 1.0, -0.25])?);
            let number = Op::Fill { result: Type::new(DType::F32, vec![]), value };
            let number =
                graph.push_node(number, vec![], vec![Type::new(DType::F32, vec![])], String::new())[0];
            (Op::Binary(*choices.choose(&[Binary::Mul, Binary::Div])?), vec![x, number])
        }
        6 => {
            let out = choices.int_in_range(1..=4)?;
            let weight = Type::new(DType::F32, vec![shape[dim], out]);
            let weight = graph.push_value(weight, Source::Weight(name));
            let left: Vec<Label> = (0..u8::try_from(rank).unwrap()).map(Label).collect();
            let (summed, made) = (left[dim], Label(u8::try_from(rank).unwrap()));
            let mut result = left.clone();
            result[dim] = made;
            (Op::Contract(Contract { left, right: vec![summed, made], result }), vec![x, weight])
        }
        7 => (Op::Softmax { dim }, vec![x]),
        8 => (Op::Unary(*choices.choose(&[Unary::Tanh, Unary::Neg, Unary::Sigmoid, Unary::Silu])?), vec![x]),
        9 => (Op::Reduce { reduction: Reduction::Mean, dims: vec![dim] }, vec![x]),
        _ => (Op::Binary(Binary::Mul), vec![x, x]),
    })
}

#[test]
fn random_graphs_compute_the_same_after_raising() {
    arbtest::arbtest(|choices| {
        let mut graph = Graph::default();
        let mut x = graph.push_value(Type::new(DType::F32, vec![2, 4, 6]), Source::Input("x".to_owned()));
        let mut made = vec![x];
        for _ in 0..choices.int_in_range(1..=14)? {
            let (op, operands) = operation(choices, &mut graph, x)?;
            let types = op.infer(&graph.types_of(&operands)).unwrap();
            x = graph.push_node(op, operands, types, String::new())[0];
            // Sometimes an earlier value of the same type joins.
            let alike = made.iter().copied().find(|&it| graph.type_of(it) == graph.type_of(x));
            if let Some(other) = alike.filter(|_| choices.ratio(1, 3).unwrap_or(false)) {
                let types = vec![graph.type_of(x).clone()];
                x = graph.push_node(Op::Binary(Binary::Mul), vec![x, other], types, String::new())[0];
            }
            made.push(x);
        }
        graph.outputs.push(Output { name: "y".to_owned(), value: x });
        let raised = raise(&graph).unwrap();
        planner_ir::verify(&raised.graph).unwrap();
        let mut dice = Dice { state: 7, below: 2 };
        let given = |graph: &Graph| -> Vec<Type> {
            let outside = graph.values.iter().filter(|it| !matches!(it.source, Source::Result { .. }));
            outside.map(|it| it.type_.clone()).collect()
        };
        assert_eq!(given(&raised.graph), given(&graph));
        let outside: Vec<_> = given(&graph).iter().map(|it| dice.array(it)).collect();
        let expected = evaluate(&graph, &outside).unwrap();
        let found = evaluate(&raised.graph, &outside).unwrap();
        let apart = difference(&found[0], &expected[0]);
        assert!(apart < 1e-4, "off by {apart:e}:\n{graph}\n{}", raised.graph);
        Ok(())
    });
}
