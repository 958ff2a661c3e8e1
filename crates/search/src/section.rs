//! The parts of a program that the search looks at one by one: its blocks, and how they join.

use planner_ir::{Graph, NodeId, Source, ValueId};

/// A block of a program, and every place where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The block as a program of its own: what it takes from outside are inputs, and weights are
    /// weights. Its outputs are those of the whole program.
    pub graph: Graph,
    /// What it has in common with the section before (or the repetition before): inputs that are
    /// made there, and in a training step what is made here and flows back.
    pub entry: Vec<ValueId>,
    /// What it has in common with what comes after: its entries, one by one.
    pub exit: Vec<ValueId>,
    /// The inputs that what comes after makes: in a training step, the gradients that flow back.
    pub from_after: Vec<ValueId>,
    /// Values that are handed on in the layout of an entry or exit: pairs of this and of the value,
    /// which is not an entry or exit itself. Gradients cross boundaries like what they are of.
    pub tied: Vec<(ValueId, ValueId)>,
    /// The values that several sections or repetitions have in common.
    pub shared: Vec<SharedValue>,
    /// The values that the whole program returns.
    pub returned: Vec<ValueId>,
    /// For each operation of a gradient, or done again for one, the forward operation that it
    /// belongs to: the two are partitioned together.
    pub forward: Vec<Option<NodeId>>,
    /// Where it stands.
    pub repetitions: Vec<Repetition>,
}

/// A program and its sections, in order.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// The program.
    pub graph: &'a Graph,
    /// Its sections.
    pub sections: &'a [Section],
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
            from_after: vec![],
            tied: vec![],
            shared: vec![],
            returned,
            forward: vec![None; graph.nodes.len()],
            repetitions: vec![Repetition {
                values: graph.value_ids().collect(),
                nodes: graph.node_ids().collect(),
            }],
        }
    }

    /// Whether a value comes from outside: the sections before and after, or what is shared.
    pub fn is_outside(&self, value: ValueId) -> bool {
        self.enters(value) || !self.is_made(value) && self.sharing(value).is_some()
    }

    /// Whether a value comes from the section before or after.
    pub fn enters(&self, value: ValueId) -> bool {
        !self.is_made(value) && (self.entry.contains(&value) || self.from_after.contains(&value))
    }

    /// Whether sections that are neighbours have a value in common: in any layout, whether it is shared
    /// besides or not.
    pub fn crosses(&self, value: ValueId) -> bool {
        let tied = || self.tied.iter().any(|&(_, it)| it == value);
        self.entry.contains(&value) || self.exit.contains(&value) || tied()
    }

    /// Whether a value is made here and used elsewhere, or returned, or handed on to a neighbour though it
    /// is shared.
    pub fn is_delivered(&self, value: ValueId) -> bool {
        if self.is_outside(value) {
            return !self.enters(value) && self.exit.contains(&value);
        }
        self.returned.contains(&value) || self.crosses(value) || self.sharing(value).is_some()
    }

    /// Whether a value that neighbours have in common is shared from here on.
    pub fn is_given(&self, value: ValueId) -> bool {
        let here = self.enters(value) || self.is_made(value) && self.crosses(value);
        here && self.sharing(value).is_some()
    }

    /// Whether an operation of the section makes a value.
    pub fn is_made(&self, value: ValueId) -> bool {
        matches!(self.graph.value(value).source, Source::Result { .. })
    }

    /// In which layouts a value may be shared, if it is.
    pub fn sharing(&self, value: ValueId) -> Option<Sharing> {
        self.shared.iter().find(|it| it.value == value).map(|it| it.sharing)
    }
}
