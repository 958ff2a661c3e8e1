//! Products of one value by several weights as one wider product.
//!
//! ```text
//! q = x Wq                                 y = x [Wq Wk Wv]
//! k = x Wk           becomes               q, k, v = slices of y
//! v = x Wv
//! ```
//!
//! Raising takes such products apart, whatever the exporter wrote. Which is better depends on the
//! machine and on the partition: one product starts once, reads x once and fills a device better;
//! its slices are copies. So both are offered to the search, block by block. The weights are put
//! together when the program is prepared; where they are slices of one stored weight that together
//! are that weight, it is taken as it is stored.
//!
//! What fuses in a block depends on the block alone, so that a program in which only some blocks
//! are fused has, in each, the operations that it would have if all were, in the same order.

mod group; // which products are one

use planner_ir::{Graph, NodeId, Op, Output, Source, ValueId};

use crate::blocks::{Blocks, reformed, with_local_constants};
use group::{Group, groups};

/// The program in which the segments that `which` accepts, by number, have their products fused.
///
/// Its segments are those of the blocks, one by one; where nothing fuses they are equal. A run of
/// repetitions of which only some are fused is several blocks.
pub fn fused(blocks: &Blocks, which: &dyn Fn(usize) -> bool) -> Blocks {
    reformed(blocks, which, &fused_body)
}

/// The body with its products fused; nothing if none are.
fn fused_body(body: &Graph) -> Option<Graph> {
    let groups = groups(body);
    if groups.is_empty() {
        return None;
    }
    let mut making = Making {
        body,
        to: Graph { name: body.name.clone(), ..Graph::default() },
        values: vec![None; body.values.len()],
    };
    for id in body.value_ids() {
        let value = body.value(id);
        if !matches!(value.source, Source::Result { .. }) {
            making.values[id.0] = Some(making.to.push_value(value.type_.clone(), value.source.clone()));
        }
    }
    for id in body.node_ids() {
        let group = groups.iter().find(|group| group.members.iter().any(|member| member.node == id));
        match group {
            _ if making.is_made(id) => {}
            Some(group) => making.fuse(group),
            None => making.copy(id),
        }
    }
    let Making { mut to, values, .. } = making;
    let output = |it: &Output| Some(Output { name: it.name.clone(), value: values[it.value.0]? });
    to.outputs = body.outputs.iter().filter_map(output).collect();
    // Slices of a weight that is taken whole are gone.
    Some(with_local_constants(&to))
}

/// A body while it is made.
struct Making<'a> {
    body: &'a Graph,
    to: Graph,
    /// For each value of the body, the one that was made of it.
    values: Vec<Option<ValueId>>,
}

impl Making<'_> {
    fn is_made(&self, id: NodeId) -> bool {
        self.body.node(id).results.iter().all(|result| self.values[result.0].is_some())
    }

    /// The node as it is, after what it uses.
    fn copy(&mut self, id: NodeId) {
        let node = self.body.node(id);
        let operands = node.operands.iter().map(|&operand| self.bring(operand)).collect();
        let types = self.body.types_of(&node.results);
        let results = self.to.push_node(node.op.clone(), operands, types, node.origin.clone());
        for (old, new) in node.results.iter().zip(results) {
            self.values[old.0] = Some(new);
        }
    }

    /// What was made of a value; it is made if it is not yet there, as a weight that stands
    /// before the later ones of a group.
    fn bring(&mut self, value: ValueId) -> ValueId {
        if let (None, Source::Result { node, .. }) = (self.values[value.0], &self.body.value(value).source) {
            self.copy(*node);
        }
        self.values[value.0].unwrap_or_else(|| unreachable!("values from outside are there first"))
    }

    /// The products of a group as one, and its slices.
    fn fuse(&mut self, group: &Group) {
        let origin = &self.body.node(group.members[0].node).origin;
        let x = self.bring(group.x);
        let extents: Vec<u64> =
            group.members.iter().map(|it| self.body.type_of(it.weight).shape[group.along]).collect();
        let weight = match group.stored {
            Some(stored) => {
                let whole = self.bring(stored);
                let mut shape = self.body.type_of(group.members[0].weight).shape.clone();
                shape[group.along] = extents.iter().sum();
                match self.to.type_of(whole).shape == shape {
                    true => whole,
                    false => self.push(Op::Reshape { shape }, vec![whole], origin),
                }
            }
            None => {
                let weights = group.members.iter().map(|member| self.bring(member.weight)).collect();
                self.push(Op::Concat { dim: group.along }, weights, origin)
            }
        };
        let y = self.push(Op::Contract(group.contract.clone()), vec![x, weight], origin);
        let dim = group.result_dim();
        let mut start = 0;
        for (member, extent) in group.members.iter().zip(extents) {
            let result = self.body.node(member.node).results[0];
            let sizes = self.body.type_of(result).shape.clone();
            let mut starts = vec![0; sizes.len()];
            starts[dim] = start;
            let steps = vec![1; sizes.len()];
            let origin = &self.body.node(member.node).origin;
            let slice = self.push(Op::Slice { starts, steps, sizes }, vec![y], origin);
            self.values[result.0] = Some(slice);
            start += extent;
        }
    }

    fn push(&mut self, op: Op, operands: Vec<ValueId>, origin: &str) -> ValueId {
        let types = op.infer(&self.to.types_of(&operands));
        let types = types.unwrap_or_else(|error| unreachable!("products of a group fit each other: {error}"));
        self.to.push_node(op, operands, types, origin.to_owned())[0]
    }
}

#[cfg(test)]
mod tests;
