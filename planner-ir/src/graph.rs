//! A program: values and operations, each after what it uses.

use crate::data::Type;
use crate::op::Op;

/// Which value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub usize);

/// Which operation of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A program in static single assignment: every value is made once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Graph {
    /// What it is called.
    pub name: String,
    /// The values; a result comes after its operation's operands.
    pub values: Vec<Value>,
    /// The operations, each after those whose results it uses.
    pub nodes: Vec<Node>,
    /// What the program returns.
    pub outputs: Vec<Output>,
}

/// A value of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its type.
    pub type_: Type,
    /// Where it comes from.
    pub source: Source,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Given at every run, by this name.
    Input(String),
    /// Read from the model file, by this name.
    Weight(String),
    /// Computed.
    Result {
        /// By which operation.
        node: NodeId,
        /// Which of its results.
        index: usize,
    },
}

/// An operation of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// From which values.
    pub operands: Vec<ValueId>,
    /// Which values.
    pub results: Vec<ValueId>,
    /// What the model file calls it, for messages.
    pub origin: String,
}

/// A value that a program returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name in the model file.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

impl Graph {
    /// The value of that number.
    ///
    /// # Panics
    /// If the graph lacks it.
    pub fn value(&self, value: ValueId) -> &Value {
        &self.values[value.0]
    }

    /// The operation of that number.
    ///
    /// # Panics
    /// If the graph lacks it.
    pub fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.0]
    }

    /// The type of a value.
    ///
    /// # Panics
    /// If the graph lacks it.
    pub fn type_of(&self, value: ValueId) -> &Type {
        &self.values[value.0].type_
    }

    /// The types of several values.
    pub fn types_of(&self, values: &[ValueId]) -> Vec<Type> {
        values.iter().map(|&value| self.type_of(value).clone()).collect()
    }

    /// Every value's number.
    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId)
    }

    /// Every operation's number.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// Adds a value that no operation makes.
    pub fn push_value(&mut self, type_: Type, source: Source) -> ValueId {
        self.values.push(Value { type_, source });
        ValueId(self.values.len() - 1)
    }

    /// Adds an operation whose results have these types.
    pub fn push_node(
        &mut self,
        op: Op,
        operands: Vec<ValueId>,
        types: Vec<Type>,
        origin: String,
    ) -> Vec<ValueId> {
        let node = NodeId(self.nodes.len());
        let results: Vec<ValueId> = types
            .into_iter()
            .enumerate()
            .map(|(index, type_)| self.push_value(type_, Source::Result { node, index }))
            .collect();
        self.nodes.push(Node { op, operands, results: results.clone(), origin });
        results
    }

    /// For each value, the operations that use it, in order (once each, however often they do).
    pub fn users(&self) -> Vec<Vec<NodeId>> {
        let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for operand in &node.operands {
                if users[operand.0].last() != Some(&NodeId(index)) {
                    users[operand.0].push(NodeId(index));
                }
            }
        }
        users
    }

    /// For each value, whether it is computed from weights and constants alone (or is one): such
    /// values are made once, before the first run.
    pub fn prepared(&self) -> Vec<bool> {
        let mut prepared = vec![false; self.values.len()];
        for (index, value) in self.values.iter().enumerate() {
            prepared[index] = matches!(value.source, Source::Weight(_));
        }
        for node in &self.nodes {
            let all = node.operands.iter().all(|operand| prepared[operand.0]);
            for result in &node.results {
                prepared[result.0] = all;
            }
        }
        prepared
    }
}
