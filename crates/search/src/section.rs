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
    /// The values that several sections or repetitions have in common.
    pub shared: Vec<SharedValue>,
    /// The values that the whole program returns.
    pub returned: Vec<ValueId>,
    /// Where it stands.
    pub repetitions: Vec<Repetition>,
}

/// A value that several sections or repetitions have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedValue {
    /// The value in its section.
    pub value: ValueId,
    /// Its number among all shared values.
    pub number: usize,
    /// In which layouts it may be shared.
    pub sharing: Sharing,
}

/// In which layouts a value may be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// In any, the same for all: a weight, which has to lie somewhere.
    Anywhere,
    /// Every device has the whole value, and takes what it needs: a mask, a rotary table, what an
    /// encoder hands to every layer of a decoder. Searching their layouts jointly would multiply
    /// the work by the product of their numbers, for what one all-gather costs at most.
    Whole,
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
        let shared = || self.sharing(value).is_some();
        let made = matches!(self.graph.value(value).source, Source::Result { .. });
        !made && (self.entry.contains(&value) || shared())
    }

    /// In which layouts a value may be shared, if it is.
    pub fn sharing(&self, value: ValueId) -> Option<Sharing> {
        self.shared.iter().find(|it| it.value == value).map(|it| it.sharing)
    }
}
