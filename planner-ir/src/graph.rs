//! A program: values and operations, each after what it uses.

use std::collections::BTreeSet;

use crate::data::Type;
use crate::op::{Binary, Op};
use crate::shared::Shared;

/// Which value of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub usize);

/// Which operation of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// A program in static single assignment: every value is made once.
///
/// A program either answers (inference) or trains: then it is one training step, see
/// [`Training`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Graph {
    /// What it is called.
    pub name: String,
    /// The values; a result comes after its operation's operands.
    pub values: Shared<Value>,
    /// The operations, each after those whose results it uses.
    pub nodes: Shared<Node>,
    /// What the program returns.
    pub outputs: Vec<Output>,
    /// What makes the program a training step, if it is one.
    pub training: Option<Training>,
}

/// What makes a program a training step.
///
/// The operations of the phases forward, backward and gradient run once for each micro-batch, on
/// inputs of their own; those of the phase update run once, after the last micro-batch. States
/// are what is left from one run to the next. An update uses of the micro-batches' results only
/// states (and what they become).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Training {
    /// How many micro-batches a step has; at least 1.
    pub micro_batches: u64,
    /// What states become, in order of the states: each state once.
    pub carried: Vec<Carried>,
}

/// A state and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The state, as the step finds it.
    pub state: ValueId,
    /// What takes its place: after each micro-batch for gradients and totals, after the step for
    /// all others. Of the same type; kept in the layout in which the state is at rest.
    pub next: ValueId,
}

/// A value of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its type.
    pub type_: Type,
    /// Where it comes from.
    pub source: Source,
}

/// What the names of inputs and outputs start with that stages of a pipeline take from one another: no
/// name of an ONNX value does that a tool has written.
pub const CROSSING: &str = "crossing:";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Given at every run, by this name.
    Input(String),
    /// Read from the model file, by this name.
    Weight(String),
    /// Kept from one run to the next; only in a training step.
    State(State),
    /// Computed.
    Result {
        /// By which operation.
        node: NodeId,
        /// Which of its results.
        index: usize,
    },
}

/// What a training step keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct State {
    /// What of it.
    pub kind: StateKind,
    /// Of which parameter: the weight's name in the model file. Of which total.
    pub name: String,
}

/// What of a parameter a training step keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateKind {
    /// The parameter that the model computes with: at first the weight of that name, converted.
    Parameter,
    /// The parameter in full precision, where the model computes with less: at first the weight.
    Master,
    /// The optimizer's running mean of gradients, or momentum: at first zeros.
    FirstMoment,
    /// The optimizer's running mean of squared gradients: at first zeros.
    SecondMoment,
    /// The sum of the micro-batches' gradients: zeros before each step's first micro-batch, unless that
    /// writes it.
    Gradient,
    /// A number summed over micro-batches, such as the loss: zero before each step's first.
    Total,
    /// The largest magnitudes of the micro-batches' values: zeros before each step's first.
    Largest,
    /// The largest magnitudes of a value in the last steps, the last one's last: at first zeros.
    History,
}

impl StateKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Parameter,
        Self::Master,
        Self::FirstMoment,
        Self::SecondMoment,
        Self::Gradient,
        Self::Total,
        Self::Largest,
        Self::History,
    ];

    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::Master => "master",
            Self::FirstMoment => "first_moment",
            Self::SecondMoment => "second_moment",
            Self::Gradient => "gradient",
            Self::Total => "total",
            Self::Largest => "largest",
            Self::History => "history",
        }
    }

    /// Whether it is summed over micro-batches, or the largest of them: it starts from zero in each step, and
    /// what it becomes takes its place after each micro-batch.
    pub fn is_summed(self) -> bool {
        matches!(self, Self::Gradient | Self::Total | Self::Largest)
    }
}

/// Which part of a training step an operation belongs to. All of inference is forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The model's results, the loss.
    #[default]
    Forward,
    /// Gradients of values that were computed, and forward operations that are done again for
    /// them.
    Backward,
    /// Gradients of parameters.
    Gradient,
    /// New parameters and optimizer states.
    Update,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Gradient, Self::Update];

    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Gradient => "gradient",
            Self::Update => "update",
        }
    }
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
    /// Which part of a training step it belongs to.
    pub phase: Phase,
}

/// A value that a program returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name in the model file.
    pub name: String,
    /// The value.
    pub value: ValueId,
}

impl Node {
    /// What it adds to, each with the result: both operands of a sum, or what products are added to.
    pub fn addends(&self) -> Vec<(ValueId, ValueId)> {
        let pairs = match self.op {
            Op::Binary(Binary::Add) => (0..self.operands.len()).map(|operand| (operand, 0)).collect(),
            _ => self.op.addends(self.operands.len()),
        };
        // Of an operation that is not right there may be fewer.
        let value = |(operand, result)| Some((*self.operands.get(operand)?, *self.results.get(result)?));
        pairs.into_iter().filter_map(value).collect()
    }

    /// What it adds up of what micro-batches make, each with the result, if one of these is such a sum.
    fn adds_up(&self) -> Vec<(ValueId, ValueId)> {
        if self.phase == Phase::Update { vec![] } else { self.addends() }
    }
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

    /// Adds a forward operation whose results have these types.
    pub fn push_node(
        &mut self,
        op: Op,
        operands: Vec<ValueId>,
        types: Vec<Type>,
        origin: String,
    ) -> Vec<ValueId> {
        self.push_node_in(Phase::Forward, op, operands, types, origin)
    }

    /// Adds an operation of a phase whose results have these types.
    pub fn push_node_in(
        &mut self,
        phase: Phase,
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
        self.nodes.push(Node { op, operands, results: results.clone(), origin, phase });
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

    /// The input that an operation writes its result over, which then is where the input was; none in a training
    /// step, whose micro-batches have inputs of their own.
    ///
    /// # Panics
    /// If the graph lacks it.
    pub fn written(&self, node: NodeId) -> Option<ValueId> {
        let node = self.node(node);
        let operand = *node.operands.get(node.op.written()?)?;
        let is_input = matches!(self.values.get(operand.0)?.source, Source::Input(_));
        (is_input && self.training.is_none()).then_some(operand)
    }

    /// How often an operation runs in one run of the program.
    ///
    /// # Panics
    /// If the graph lacks it.
    pub fn runs(&self, node: NodeId) -> u64 {
        match (&self.training, self.node(node).phase) {
            (Some(training), Phase::Forward | Phase::Backward | Phase::Gradient) => training.micro_batches,
            _ => 1,
        }
    }

    /// What a state becomes, if the value is a state.
    pub fn next(&self, state: ValueId) -> Option<ValueId> {
        let carried = &self.training.as_ref()?.carried;
        carried.iter().find(|it| it.state == state).map(|it| it.next)
    }

    /// For each operation, whether it uses states and weights alone, or what such operations make:
    /// so a stored parameter is taken apart.
    pub fn on_parameters(&self) -> Vec<bool> {
        let mut on: Vec<bool> = Vec::new();
        for node in &self.nodes {
            let from = |operand: &ValueId| match self.value(*operand).source {
                Source::Input(_) => false,
                Source::State(_) | Source::Weight(_) => true,
                Source::Result { node, .. } => on[node.0],
            };
            let all = node.operands.iter().all(from);
            on.push(all);
        }
        on
    }

    /// For each value, whether a micro-batch may have it before it begins: it is at rest and no sum of what micro-batches
    /// make, or it is computed of such alone, as a parameter that is converted.
    pub fn known_before(&self) -> Vec<bool> {
        let mut known: Vec<bool> = self
            .values
            .iter()
            .map(|value| match &value.source {
                Source::Weight(_) => true,
                Source::State(state) => !state.kind.is_summed(),
                Source::Input(_) | Source::Result { .. } => false,
            })
            .collect();
        for node in &self.nodes {
            let all = node.operands.iter().all(|operand| known[operand.0]);
            node.results.iter().for_each(|result| known[result.0] = all);
        }
        known
    }

    /// The same with other names of inputs, weights, states and outputs, and none of operations.
    #[must_use]
    pub fn renamed(&self, mut rename: impl FnMut(&mut String)) -> Self {
        let mut graph = self.clone();
        for value in &mut graph.values {
            match &mut value.source {
                Source::Input(name) | Source::Weight(name) => rename(name),
                Source::State(state) => rename(&mut state.name),
                Source::Result { .. } => {}
            }
        }
        graph.nodes.iter_mut().for_each(|node| node.origin.clear());
        graph.outputs.iter_mut().for_each(|output| rename(&mut output.name));
        graph
    }

    /// For each value, whether it is computed from weights and constants alone (or is one): such
    /// values are made once, before the first run. What a state becomes is made in every run.
    pub fn prepared(&self) -> Vec<bool> {
        let mut prepared = vec![false; self.values.len()];
        let becomes: BTreeSet<ValueId> =
            self.training.iter().flat_map(|training| &training.carried).map(|it| it.next).collect();
        for (index, value) in self.values.iter().enumerate() {
            prepared[index] = matches!(value.source, Source::Weight(_));
        }
        for node in &self.nodes {
            let all = node.operands.iter().all(|operand| prepared[operand.0]);
            for result in &node.results {
                prepared[result.0] = all && !becomes.contains(result);
            }
        }
        prepared
    }

    /// For each value that is a sum over micro-batches, the gradient or total that it is of: that as the step
    /// finds it, what becomes of it as more is added, and, where nothing is added to what the step finds, what
    /// its place is written with first.
    pub fn sums(&self) -> Vec<Option<ValueId>> {
        let is_summed = |value: ValueId| match &self.value(value).source {
            Source::State(state) => state.kind.is_summed(),
            _ => false,
        };
        let mut sums: Vec<Option<ValueId>> =
            self.value_ids().map(|value| is_summed(value).then_some(value)).collect();
        for (addend, sum) in self.nodes.iter().flat_map(Node::adds_up) {
            sums[sum.0] = sums[sum.0].or(sums[addend.0]);
        }
        for it in self.training.iter().flat_map(|training| &training.carried).filter(|it| is_summed(it.state))
        {
            let mut value = it.next;
            while sums[value.0].is_none() {
                sums[value.0] = Some(it.state);
                let Source::Result { node, .. } = self.value(value).source else { break };
                let adds = self.node(node).adds_up();
                let Some(first) = adds.iter().find(|it| it.1 == value) else { break };
                value = first.0;
            }
        }
        sums
    }

    /// For each value, whether all that becomes of its elements are elements of gradients of parameters, or of what is
    /// made of parameters alone: sums over micro-batches, and what is only converted, ordered otherwise and added to
    /// such. So it is with what an operation that makes gradients of activations and of parameters at once makes of the
    /// latter.
    pub fn for_sums(&self) -> Vec<bool> {
        let is_gradient = |state: ValueId| matches!(&self.value(state).source, Source::State(state) if state.kind == StateKind::Gradient);
        let is_sum: Vec<bool> = self.sums().into_iter().map(|it| it.is_some_and(is_gradient)).collect();
        let (mut used, mut only) = (vec![false; self.values.len()], vec![true; self.values.len()]);
        for output in &self.outputs {
            only[output.value.0] = false;
        }
        for node in self.nodes.iter().rev() {
            let for_sums = |it: &ValueId| is_sum[it.0] || (used[it.0] && only[it.0]);
            let on = node.op.keeps_elements()
                && (node.phase == Phase::Gradient || node.results.iter().all(for_sums));
            for operand in &node.operands {
                used[operand.0] = true;
                only[operand.0] &= on;
            }
        }
        self.value_ids().map(|it| is_sum[it.0] || (used[it.0] && only[it.0])).collect()
    }
}
