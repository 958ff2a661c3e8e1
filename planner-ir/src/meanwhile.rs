//! What may be computed while rows go to an operation and come back.
//!
//! A token goes to experts that few tokens use and, in many models, through experts that all tokens use; what both
//! make is added. So what the latter make neither comes of the former nor leads to them, and may be computed while
//! rows are exchanged for them. It is found from where results are added: what else is added there, and what that is
//! computed from, in the same phase.

use std::collections::BTreeSet;

use crate::graph::{Graph, NodeId, Source, ValueId};
use crate::op::OpClass;

/// An operation whose rows may be routed, and what is computed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meanwhile {
    /// The operation.
    pub routed: NodeId,
    /// Operations of its phase that neither come of it nor lead to it, up to what is added to its results; in order.
    pub computed: Vec<NodeId>,
}

impl Graph {
    /// For each operation whose rows may be routed, in order, what may be computed while they are exchanged: what is
    /// added to its results where nothing but sums and other orders of elements lies between.
    pub fn meanwhile(&self) -> Vec<Meanwhile> {
        let routed = |node: &NodeId| matches!(self.node(*node).op.class(), OpClass::Experts(_));
        let mut all = self.node_ids().filter(routed).peekable();
        if all.peek().is_none() {
            return Vec::new();
        }
        let users = self.users();
        all.map(|routed| Meanwhile { routed, computed: self.beside(routed, &users) }).collect()
    }

    fn beside(&self, routed: NodeId, users: &[Vec<NodeId>]) -> Vec<NodeId> {
        let mut computed = BTreeSet::new();
        let sums = self.sums_of(routed, users);
        let operands = |node: NodeId| self.node(node).operands.iter().filter_map(|it| self.maker(*it));
        let mut left: Vec<NodeId> = sums.iter().copied().flat_map(operands).collect();
        while let Some(node) = left.pop() {
            let is_of_phase = self.node(node).phase == self.node(routed).phase;
            let is_known = node == routed || sums.contains(&node) || computed.contains(&node);
            if is_of_phase
                && !is_known
                && !self.leads(node, routed, users)
                && !self.leads(routed, node, users)
            {
                computed.insert(node);
                left.extend(operands(node));
            }
        }
        computed.into_iter().collect()
    }

    /// The operations of its phase that only add up or reorder what an operation makes, up to the first sum that
    /// something else computes with.
    fn sums_of(&self, node: NodeId, users: &[Vec<NodeId>]) -> BTreeSet<NodeId> {
        let mut sums = BTreeSet::new();
        let mut left = vec![node];
        while let Some(it) = left.pop() {
            let used = self.node(it).results.iter().flat_map(|it| &users[it.0]);
            let used = used.copied().filter(|it| self.node(*it).phase == self.node(node).phase);
            let (added, computed): (Vec<NodeId>, Vec<NodeId>) =
                used.partition(|it| self.node(*it).op.keeps_elements());
            if it == node || computed.is_empty() {
                left.extend(added.into_iter().filter(|it| sums.insert(*it)));
            }
        }
        sums
    }

    /// Whether something of what one operation makes becomes an operand of another one.
    fn leads(&self, from: NodeId, to: NodeId, users: &[Vec<NodeId>]) -> bool {
        let mut seen = BTreeSet::new();
        let mut left = vec![from];
        while let Some(node) = left.pop() {
            if node == to {
                return true;
            }
            let after = self.node(node).results.iter().flat_map(|it| &users[it.0]);
            left.extend(after.copied().filter(|it| *it <= to && seen.insert(*it)));
        }
        false
    }

    fn maker(&self, value: ValueId) -> Option<NodeId> {
        match self.value(value).source {
            Source::Result { node, .. } => Some(node),
            Source::Input(_) | Source::Weight(_) | Source::State(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
