//! Entries that a step writes into a cache of fixed size are written where that is.

use plan::{Form, Kept};
use planner_ir::{Graph, Op, Scatter, Source, ValueId};

/// Lets a step write its entries over the cache that it finds, of each part that it returns with them in it and uses
/// in no other way.
pub(super) fn in_place(graph: &mut Graph, kept: &[Kept]) {
    let users = graph.users();
    for part in kept.iter().filter(|it| it.form == Form::Entries) {
        let Some(present) = graph.outputs.iter().find(|it| it.name == part.present) else { continue };
        let Source::Result { node, .. } = graph.value(present.value).source else { continue };
        let is_past =
            |it: ValueId| matches!(&graph.value(it).source, Source::Input(name) if *name == part.past);
        let found = &graph.nodes[node.0];
        let alone = |it: &&ValueId| {
            is_past(**it)
                && users[it.0] == [node]
                && found.operands.iter().filter(|other| other == it).count() == 1
                && graph.outputs.iter().all(|output| output.value != **it)
        };
        if found.operands.first().filter(alone).is_none() {
            continue;
        }
        if let Op::ScatterElements { scatter: way @ Scatter::Replace, .. }
        | Op::ScatterNd { scatter: way @ Scatter::Replace } = &mut graph.nodes[node.0].op
        {
            *way = Scatter::Write;
        }
    }
}
