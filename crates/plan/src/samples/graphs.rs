//! Random programs of a few operations.

use arbtest::arbitrary::{Result, Unstructured};
use planner_ir::{
    Attention, Binary, Blind, Contract, DType, Graph, Label, Op, Output, Real, Reduction, Source, Type,
    Unary, ValueId,
};

/// A program of a few operations on values of small shapes.
pub(super) fn random(u: &mut Unstructured<'_>) -> Result<Graph> {
    let mut graph = Graph { name: "random".to_owned(), ..Graph::default() };
    let f32s = |shape: &[u64]| Type::new(DType::F32, shape);
    graph.push_value(f32s(&[8, 16]), Source::Input("x".to_owned()));
    graph.push_value(f32s(&[16, 16]), Source::Weight("w".to_owned()));
    graph.push_value(f32s(&[24, 16]), Source::Weight("table".to_owned()));
    graph.push_value(Type::new(DType::I64, [8]), Source::Input("ids".to_owned()));
    for _ in 0..u.int_in_range(1..=7)? {
        let (op, count) = operation(u)?;
        let operands: Vec<ValueId> =
            (0..count).map(|_| u.choose_index(graph.values.len()).map(ValueId)).collect::<Result<_>>()?;
        // The types of this model are few, so that random operands fit often.
        if let Ok(types) = op.infer(&graph.types_of(&operands)) {
            let origin = format!("/node{}", graph.nodes.len());
            graph.push_node(op, operands, types, origin);
        }
    }
    for _ in 0..u.int_in_range(1..=2)? {
        let value = ValueId(u.choose_index(graph.values.len())?);
        graph.outputs.push(Output { name: format!("y{}", graph.outputs.len()), value });
    }
    // The last one made is returned, so that most of the program is used.
    graph.outputs.push(Output { name: "last".to_owned(), value: ValueId(graph.values.len() - 1) });
    Ok(graph)
}

/// An operation and how many operands it has.
fn operation(u: &mut Unstructured<'_>) -> Result<(Op, usize)> {
    let contract = |left: [u8; 2], right: [u8; 2], result: [u8; 2]| {
        let labels = |it: [u8; 2]| it.map(Label).to_vec();
        Op::Contract(Contract { left: labels(left), right: labels(right), result: labels(result) })
    };
    let attention = Attention {
        scale: Real(0.5),
        causal: true,
        softcap: Real(0.0),
        window: None,
        blind: Blind::Zero,
        sinks: false,
        statistics: false,
    };
    Ok(match u.int_in_range(0..=14)? {
        0..=2 => (contract([0, 1], [1, 2], [0, 2]), 2),
        3 => (contract([0, 1], [2, 1], [0, 2]), 2),
        4 | 5 => (Op::Binary(*u.choose(&[Binary::Add, Binary::Mul, Binary::Max])?), 2),
        6 => (Op::Unary(*u.choose(&[Unary::Gelu, Unary::Neg])?), 1),
        7 => (Op::Transpose { permutation: vec![1, 0] }, 1),
        8 => (Op::Reduce { reduction: *u.choose(&[Reduction::Sum, Reduction::Max])?, dims: vec![1] }, 1),
        9 => (Op::Softmax { dim: 1 }, 1),
        10 => (Op::Gather { dim: 0 }, 2),
        11 => (Op::Reshape { shape: vec![1, 4, 8, 4] }, 1),
        12 => (Op::Attention(attention), 3),
        13 => (Op::Concat { dim: 0 }, 2),
        _ => (Op::Reshape { shape: vec![8, 16] }, 1),
    })
}
