//! Where a training step went wrong: the first value that is not finite.

use std::collections::BTreeMap;
use std::fmt;

use kernels::Array;
use planner_ir::{Graph, NodeId, Phase, Source, State, ValueId};

use crate::error::RunError;
use crate::reference::Reference;
use crate::stored::Stored;

/// The first value of a step, among those that made its outputs what they are, that is not
/// finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFinite {
    /// What it is.
    pub place: Place,
    /// In which micro-batch, from 0; none if it is in the update.
    pub micro_batch: Option<usize>,
}

/// What a value that is not finite is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// What an operation makes from finite numbers.
    Operation {
        /// Which operation.
        node: NodeId,
        /// What the model file calls it.
        origin: String,
        /// Which part of the step it belongs to.
        phase: Phase,
    },
    /// What was given, by this name.
    Given(String),
    /// A state, as the step found it.
    State(State),
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Operation { node, origin, phase } => {
                let name =
                    if origin.is_empty() { format!("operation {}", node.0) } else { format!("`{origin}`") };
                write!(f, "{name} ({})", phase.name())?;
            }
            Place::Given(name) => write!(f, "what is given as `{name}`")?,
            Place::State(State { kind, name }) => write!(f, "the {} `{name}` before the step", kind.name())?,
        }
        match self.micro_batch {
            Some(number) => write!(f, " in micro-batch {number}"),
            None => Ok(()),
        }
    }
}

/// How far from finite the elements of a value are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flaw {
    /// Some are infinite.
    Infinite,
    /// Some are no numbers.
    NotANumber,
}

/// Repeats a step on one device, from the states before it, and says where the first value that
/// is not finite came from; none if all outputs and all that states become are finite.
///
/// A session leaves states as they were where an output is not finite: what `Session::gather`
/// gives then is what this needs. From an output that is not finite it goes back to operands that
/// are not, numbers that are none before infinite ones. Infinite values that weights and constants
/// alone make, such as masks, are taken to be meant.
pub fn not_finite(
    graph: &Graph,
    weights: &dyn Stored,
    states: &BTreeMap<State, Array>,
    micro_batches: &[BTreeMap<String, Array>],
    inputs: &BTreeMap<String, Array>,
) -> Result<Option<NotFinite>, RunError> {
    let mut reference = Reference::new(graph, weights)?;
    for (state, whole) in states {
        reference.set(state, whole.clone())?;
    }
    let mut flaws = Flaws { graph, parts: vec![BTreeMap::new(); micro_batches.len() + 1] };
    let update = micro_batches.len();
    reference.train_looking(micro_batches, inputs, &mut |micro_batch, value, array| {
        let failed = |error| RunError::Whole(format!("value {}", value.0), error);
        if let Some(flaw) = flaw_of(array).map_err(failed)? {
            flaws.parts[micro_batch.unwrap_or(update)].insert(value, flaw);
        }
        Ok(())
    })?;
    let outputs = graph.outputs.iter().map(|output| output.value);
    let carried = graph.training.iter().flat_map(|it| &it.carried).map(|it| it.next);
    let found = outputs.chain(carried).find_map(|value| flaws.at(update, value));
    Ok(found.map(|(part, value)| flaws.first(part, value)))
}

fn flaw_of(array: &Array) -> Result<Option<Flaw>, kernels::KernelError> {
    if !array.dtype().is_float() {
        return Ok(None);
    }
    let flaw = |it: f64| match () {
        () if it.is_nan() => Some(Flaw::NotANumber),
        () if it.is_infinite() => Some(Flaw::Infinite),
        () => None,
    };
    Ok(array.to_floats()?.into_iter().filter_map(flaw).max())
}

/// What is not finite in which part of a step: the micro-batches, then the update.
struct Flaws<'a> {
    graph: &'a Graph,
    parts: Vec<BTreeMap<ValueId, Flaw>>,
}

impl Flaws<'_> {
    /// In which part a value of a part has been made, if it is not finite there.
    fn at(&self, part: usize, value: ValueId) -> Option<(usize, ValueId)> {
        let update = self.parts.len() - 1;
        let made_before = match self.graph.value(value).source {
            Source::Result { node, .. } => part == update && self.graph.node(node).phase != Phase::Update,
            _ => false,
        };
        let part = if made_before { part.checked_sub(1)? } else { part };
        self.parts[part].contains_key(&value).then_some((part, value))
    }

    /// What a value that is not finite goes back to.
    fn before(&self, part: usize, value: ValueId) -> Option<(usize, ValueId)> {
        match &self.graph.value(value).source {
            Source::Result { node, .. } => {
                let prepared = self.graph.prepared();
                let operands = self.graph.node(*node).operands.iter();
                let mut flaws: Vec<(Flaw, usize, ValueId)> = operands
                    .filter_map(|&operand| {
                        let (part, operand) = self.at(part, operand)?;
                        let flaw = self.parts[part][&operand];
                        let meant = flaw == Flaw::Infinite && prepared[operand.0];
                        (!meant).then_some((flaw, part, operand))
                    })
                    .collect();
                // The first of the worst.
                flaws.sort_by_key(|it| std::cmp::Reverse(it.0));
                flaws.first().map(|&(_, part, operand)| (part, operand))
            }
            Source::State(state) if state.kind.is_summed() => {
                self.at(part.checked_sub(1)?, self.graph.next(value)?)
            }
            _ => None,
        }
    }

    fn first(&self, mut part: usize, mut value: ValueId) -> NotFinite {
        while let Some(before) = self.before(part, value) {
            (part, value) = before;
        }
        let place = match &self.graph.value(value).source {
            Source::Result { node, .. } => {
                let it = self.graph.node(*node);
                Place::Operation { node: *node, origin: it.origin.clone(), phase: it.phase }
            }
            Source::Input(name) | Source::Weight(name) => Place::Given(name.clone()),
            Source::State(state) => Place::State(state.clone()),
        };
        NotFinite { place, micro_batch: (part + 1 < self.parts.len()).then_some(part) }
    }
}
