//! Other randomness in each step, and in each layer.

use planner_ir::{Binary, DType, Emit, Graph, Op, Phase, Source, Type, ValueId};

use crate::SEED;
use crate::ends::end;

/// The program with a seed for each dropout: an input, plus how many dropouts come before. Layers
/// hand the sum on, so that equal ones stay equal.
pub(crate) fn with_seeds(graph: &Graph) -> Graph {
    if !graph.nodes.iter().any(|node| matches!(node.op, Op::Dropout { .. })) {
        return graph.clone();
    }
    let mut to = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut seed = to.push_value(Type::new(DType::I64, []), Source::Input(SEED.to_owned()));
    let mut map = vec![ValueId(0); graph.values.len()];
    for (index, value) in graph.values.iter().enumerate() {
        if !matches!(value.source, Source::Result { .. }) {
            map[index] = to.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for node in &graph.nodes {
        let mut operands: Vec<ValueId> = node.operands.iter().map(|operand| map[operand.0]).collect();
        let mut op = node.op.clone();
        if let Op::Dropout { seed: own, .. } = &mut op {
            *own = 0;
            let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &node.origin };
            let one = emit.number(DType::I64, 1.0);
            seed = emit.one(Op::Binary(Binary::Add), &[seed, one]);
            operands.push(seed);
        }
        let results = to.push_node(op, operands, graph.types_of(&node.results), node.origin.clone());
        for (from, result) in node.results.iter().zip(results) {
            map[from.0] = result;
        }
    }
    end(&mut to, graph, &map);
    to
}
