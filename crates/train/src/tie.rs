//! Parameters that an exporter wrote twice, made one again: the copies become uses of the first.

use plan::Tie;
use planner_ir::{Emit, Graph, Op, Phase, Source, Type, ValueId};

use crate::TrainError;
use crate::ends::end;

/// The program with the copies replaced by what they are copies of.
pub fn tied(graph: &Graph, ties: &[Tie]) -> Result<Graph, TrainError> {
    for tie in ties {
        check(graph, ties, tie)?;
    }
    let mut to = Graph { name: graph.name.clone(), ..Graph::default() };
    let mut map = vec![ValueId(0); graph.values.len()];
    let tie_of = |source: &Source| match source {
        Source::Weight(name) => ties.iter().find(|tie| tie.copy == *name),
        _ => None,
    };
    for (index, value) in graph.values.iter().enumerate() {
        let made = matches!(value.source, Source::Result { .. });
        if !made && tie_of(&value.source).is_none() {
            map[index] = to.push_value(value.type_.clone(), value.source.clone());
        }
    }
    for (index, value) in graph.values.iter().enumerate() {
        let Some(tie) = tie_of(&value.source) else { continue };
        let original = Source::Weight(tie.original.clone());
        let original = to.value_ids().find(|it| to.value(*it).source == original);
        let Some(original) = original else { unreachable!("copies are of weights of the program") };
        let mut emit = Emit { graph: &mut to, phase: Phase::Forward, origin: &tie.copy };
        map[index] = match tie.transposed {
            true => emit.one(Op::Transpose { permutation: vec![1, 0] }, &[original]),
            false => original,
        };
    }
    for node in &graph.nodes {
        let operands = node.operands.iter().map(|operand| map[operand.0]).collect();
        let types = graph.types_of(&node.results);
        let results = to.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (from, result) in node.results.iter().zip(results) {
            map[from.0] = result;
        }
    }
    end(&mut to, graph, &map);
    Ok(to)
}

/// Whether a weight of the program may be a copy of another one that is none.
fn check(graph: &Graph, ties: &[Tie], tie: &Tie) -> Result<(), TrainError> {
    let type_of = |name: &String| {
        let found = graph.values.iter().find(|it| it.source == Source::Weight(name.clone()));
        found.map(|it| it.type_.clone())
    };
    let expected = type_of(&tie.original).and_then(|type_| match (tie.transposed, &type_.shape[..]) {
        (false, _) => Some(type_),
        (true, &[rows, columns]) => Some(Type::new(type_.dtype, [columns, rows])),
        (true, _) => None,
    });
    let fits = expected.is_some() && type_of(&tie.copy) == expected;
    let once = ties.iter().filter(|it| it.copy == tie.copy).count() == 1;
    if fits && once && ties.iter().all(|it| it.copy != tie.original) {
        return Ok(());
    }
    Err(TrainError::Tie(tie.copy.clone(), tie.original.clone()))
}
