//! The parts of a program that the search looks at one by one: its blocks, and how they join.

use planner_ir::{Graph, NodeId, Source, ValueId};

/// A block of a program, and every place where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The block as a program of its own: what it takes from outside are inputs, and weights are
    /// weights. Its outputs are those of the whole program.
    pub graph: Graph,
    /// The inputs that are the exits of the section before (or of the repetition before).
    pub entry: Vec<ValueId>,
    /// The values that are the entries of what comes after, one by one.
    pub exit: Vec<ValueId>,
    /// The values that several sections or repetitions have in common: the value here, and the
    /// number of the common value.
    pub shared: Vec<(ValueId, usize)>,
    /// The values that the whole program returns.
    pub returned: Vec<ValueId>,
    /// Where it stands.
    pub repetitions: Vec<Repetition>,
}

/// One place where a block stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// For each value of the block, that of the whole program.
    pub values: Vec<ValueId>,
    /// For each operation of the block, that of the whole program.
    pub nodes: Vec<NodeId>,
}

impl Section {
    /// A whole program as one section.
    pub fn whole(graph: &Graph) -> Self {
        let mut returned: Vec<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
        returned.sort_unstable();
        returned.dedup();
        Self {
            graph: graph.clone(),
            entry: vec![],
            exit: vec![],
            shared: vec![],
            returned,
            repetitions: vec![Repetition {
                values: graph.value_ids().collect(),
                nodes: graph.node_ids().collect(),
            }],
        }
    }

    /// Whether a value comes from outside: the section before, or what is shared.
    pub fn is_outside(&self, value: ValueId) -> bool {
        let shared = || self.shared.iter().any(|&(it, _)| it == value);
        let made = matches!(self.graph.value(value).source, Source::Result { .. });
        !made && (self.entry.contains(&value) || shared())
    }
}
