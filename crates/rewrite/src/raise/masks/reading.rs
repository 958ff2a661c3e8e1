//! What is known of values: whatever a program is given, or given what models usually are.

use std::collections::BTreeMap;

use planner_ir::{Graph, Node, Op, Source, Type, ValueId};

use crate::raise::form::bounds::Bounds;
use crate::raise::form::{self, Bands, Form};

/// How what a program is given is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reading {
    /// It may be anything.
    Any,
    /// Integers called a mask of attention are truth values, and what is taken of a table by positions
    /// is added to scores, and as small.
    Usual,
    /// As usual, and no mask of attention hides anything.
    Present,
}

/// What is taken of a table and added to scores is no larger than this.
const BIAS: f64 = 512.0;

/// What is known of every value of a graph.
pub(super) fn forms(graph: &Graph, reading: Reading) -> Vec<Form> {
    forms_if(graph, reading, &BTreeMap::new())
}

/// The same, if these truth values are all true, or all false.
pub(super) fn forms_if(graph: &Graph, reading: Reading, truths: &BTreeMap<ValueId, bool>) -> Vec<Form> {
    let said = |truth: bool| Bounds::one(f64::from(u8::from(truth)));
    let given = |id: ValueId| {
        let bounds = match reading {
            _ if truths.contains_key(&id) => said(truths[&id]),
            Reading::Usual if is_mask(graph, id) => Bounds::either(0.0, 1.0),
            Reading::Present if is_mask(graph, id) => Bounds::one(1.0),
            _ => Bounds::any(graph.type_of(id).dtype),
        };
        Form::Bands(Bands::all(bounds))
    };
    let mut forms: Vec<Form> = graph.value_ids().map(given).collect();
    for node in &graph.nodes {
        if let [result] = node.results[..] {
            let operands: Vec<(&Form, &Type)> =
                node.operands.iter().map(|&it| (&forms[it.0], graph.type_of(it))).collect();
            forms[result.0] = if let Some(&truth) = truths.get(&result) {
                Form::Bands(Bands::all(said(truth)))
            } else if reading != Reading::Any && is_bias(graph, node) {
                Form::Bands(Bands::all(Bounds::between(-BIAS, BIAS)))
            } else {
                form::form(&node.op, &operands, graph.type_of(result))
            };
        }
    }
    forms
}

/// Whether a value is an input that says which keys are there.
pub(super) fn is_mask(graph: &Graph, id: ValueId) -> bool {
    let value = graph.value(id);
    let Source::Input(name) = &value.source else { return false };
    let called = ["attention_mask", "padding_mask"].iter().any(|it| name.contains(it));
    called && !value.type_.dtype.is_float()
}

/// Whether an operation takes numbers of a table, as biases of positions are.
fn is_bias(graph: &Graph, node: &Node) -> bool {
    let (Op::Gather { .. }, [table, _]) = (&node.op, &node.operands[..]) else { return false };
    let table = graph.value(*table);
    table.type_.dtype.is_float() && matches!(table.source, Source::Weight(_))
}
