//! A program on one device, operation by operation.

use std::collections::BTreeMap;

use kernels::{Array, KernelError};
use planner_ir::{Carried, Graph, NodeId, Phase, Source, State, StateKind, ValueId};

use crate::error::{RunError, expect_type};
use crate::source::Sources;
use crate::stored::{Stored, converted, whole};

/// The outputs of a program, each operation computed whole: what every plan has to compute.
pub fn reference(graph: &Graph, sources: Sources) -> Result<BTreeMap<String, Array>, RunError> {
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let kept: Vec<ValueId> = graph.outputs.iter().map(|output| output.value).collect();
    let values = evaluate(graph, &nodes, &kept, &BTreeMap::new(), sources, &mut |_, _| Ok(()))?;
    Ok(outputs(graph, &values))
}

/// Training steps on one device, each operation computed whole: what every plan has to compute.
pub struct Reference<'a> {
    graph: &'a Graph,
    weights: &'a dyn Stored,
    states: BTreeMap<ValueId, Array>,
}

/// Looks at a value of a step: in which micro-batch, or none in the update.
pub(crate) type Look<'a> = &'a mut dyn FnMut(Option<usize>, ValueId, &Array) -> Result<(), RunError>;

impl<'a> Reference<'a> {
    /// Parameters start as the weights of their names, converted; other states start from zero.
    pub fn new(graph: &'a Graph, weights: &'a dyn Stored) -> Result<Self, RunError> {
        let mut states = BTreeMap::new();
        for value in graph.value_ids() {
            let Source::State(State { kind, name }) = &graph.value(value).source else { continue };
            let type_ = graph.type_of(value);
            let at_first = match kind {
                StateKind::Parameter | StateKind::Master => converted(weights, name, type_)?,
                _ => zeros(graph, value)?,
            };
            states.insert(value, at_first);
        }
        Ok(Self { graph, weights, states })
    }

    /// Runs one training step: for each micro-batch its inputs, and the inputs of the step. The
    /// outputs; states that last are changed if these are finite.
    pub fn train(
        &mut self,
        micro_batches: &[BTreeMap<String, Array>],
        inputs: &BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>, RunError> {
        self.train_looking(micro_batches, inputs, &mut |_, _, _| Ok(()))
    }

    /// The same, looking at every value that is made.
    pub(crate) fn train_looking(
        &mut self,
        micro_batches: &[BTreeMap<String, Array>],
        inputs: &BTreeMap<String, Array>,
        look: Look,
    ) -> Result<BTreeMap<String, Array>, RunError> {
        let graph = self.graph;
        let training = graph.training.as_ref();
        let training = training.ok_or_else(|| RunError::Program("it is no training step".to_owned()))?;
        if u64::try_from(micro_batches.len()) != Ok(training.micro_batches) {
            return Err(RunError::MicroBatches(micro_batches.len(), training.micro_batches));
        }
        let (summed, lasting): (Vec<Carried>, Vec<Carried>) = training
            .carried
            .iter()
            .partition(|it| state_of(graph, it.state).is_some_and(|it| it.kind.is_summed()));
        let (updates, repeated): (Vec<NodeId>, Vec<NodeId>) =
            graph.node_ids().partition(|&node| graph.node(node).phase == Phase::Update);
        for it in &summed {
            self.states.insert(it.state, zeros(graph, it.state)?);
        }
        for (number, inputs) in micro_batches.iter().enumerate() {
            let kept: Vec<ValueId> = summed.iter().map(|it| it.next).collect();
            let sources = Sources { inputs, weights: self.weights };
            let look = &mut |value, array: &Array| look(Some(number), value, array);
            let values = evaluate(graph, &repeated, &kept, &self.states, sources, look)?;
            self.states.extend(summed.iter().map(|it| (it.state, values[&it.next].clone())));
        }
        let mut given = self.states.clone();
        given.extend(summed.iter().map(|it| (it.next, self.states[&it.state].clone())));
        let kept: Vec<ValueId> =
            graph.outputs.iter().map(|it| it.value).chain(lasting.iter().map(|it| it.next)).collect();
        let sources = Sources { inputs, weights: self.weights };
        let look = &mut |value, array: &Array| look(None, value, array);
        let values = evaluate(graph, &updates, &kept, &given, sources, look)?;
        let outputs = outputs(graph, &values);
        for (name, output) in &outputs {
            let failed = |error| RunError::Whole(name.clone(), error);
            if output.dtype().is_float() && !is_finite(output).map_err(failed)? {
                return Ok(outputs);
            }
        }
        self.states.extend(lasting.iter().map(|it| (it.state, values[&it.next].clone())));
        Ok(outputs)
    }

    /// The whole of a state.
    pub fn state(&self, state: &State) -> Option<&Array> {
        let found = self.states.keys().find(|&&value| state_of(self.graph, value) == Some(state))?;
        self.states.get(found)
    }

    /// Replaces a state.
    pub fn set(&mut self, state: &State, whole: Array) -> Result<(), RunError> {
        let found = self.states.keys().find(|&&value| state_of(self.graph, value) == Some(state));
        let value = *found.ok_or_else(|| RunError::State(state.clone()))?;
        expect_type(&state.name, whole.type_(), self.graph.type_of(value))?;
        self.states.insert(value, whole);
        Ok(())
    }
}

/// Which state a value is.
pub(crate) fn state_of(graph: &Graph, value: ValueId) -> Option<&State> {
    match &graph.value(value).source {
        Source::State(state) => Some(state),
        _ => None,
    }
}

/// Whether all elements are.
pub(crate) fn is_finite(array: &Array) -> Result<bool, KernelError> {
    Ok(array.to_floats()?.iter().all(|it| it.is_finite()))
}

fn zeros(graph: &Graph, value: ValueId) -> Result<Array, RunError> {
    let name = state_of(graph, value).map_or("", |state| &state.name);
    Array::zeros(graph.type_of(value).clone()).map_err(|error| RunError::Whole(name.to_owned(), error))
}

fn outputs(graph: &Graph, values: &BTreeMap<ValueId, Array>) -> BTreeMap<String, Array> {
    graph.outputs.iter().map(|output| (output.name.clone(), values[&output.value].clone())).collect()
}

/// Some operations of a program in order: the values that are kept.
fn evaluate(
    graph: &Graph,
    nodes: &[NodeId],
    kept: &[ValueId],
    given: &BTreeMap<ValueId, Array>,
    sources: Sources,
    look: &mut dyn FnMut(ValueId, &Array) -> Result<(), RunError>,
) -> Result<BTreeMap<ValueId, Array>, RunError> {
    let mut last = vec![0; graph.values.len()];
    for (index, &node) in nodes.iter().enumerate() {
        graph.node(node).operands.iter().for_each(|operand| last[operand.0] = index);
    }
    for value in kept {
        last[value.0] = nodes.len();
    }
    let mut values: BTreeMap<ValueId, Array> = BTreeMap::new();
    for (index, &id) in nodes.iter().enumerate() {
        let node = graph.node(id);
        for &operand in &node.operands {
            bring(graph, operand, given, sources, &mut values, look)?;
        }
        let operands: Vec<&Array> = node.operands.iter().map(|operand| &values[operand]).collect();
        let failed = |error| RunError::Whole(node.origin.clone(), error);
        let results = kernels::evaluate(&node.op, &operands).map_err(failed)?;
        for (&value, result) in node.results.iter().zip(results) {
            expect_type(&node.origin, result.type_(), graph.type_of(value))?;
            look(value, &result)?;
            values.insert(value, result);
        }
        for &operand in node.operands.iter().filter(|operand| last[operand.0] == index) {
            values.remove(&operand);
        }
    }
    for &value in kept {
        bring(graph, value, given, sources, &mut values, look)?;
    }
    values.retain(|value, _| kept.contains(value));
    Ok(values)
}

/// Makes an input, weight or state a value that is there.
fn bring(
    graph: &Graph,
    value: ValueId,
    given: &BTreeMap<ValueId, Array>,
    sources: Sources,
    values: &mut BTreeMap<ValueId, Array>,
    look: &mut dyn FnMut(ValueId, &Array) -> Result<(), RunError>,
) -> Result<(), RunError> {
    if values.contains_key(&value) {
        return Ok(());
    }
    if let Some(array) = given.get(&value) {
        look(value, array)?;
        values.insert(value, array.clone());
        return Ok(());
    }
    let (name, array) = match &graph.value(value).source {
        Source::Input(name) => {
            let given = sources.inputs.get(name).cloned();
            (name, given.ok_or_else(|| RunError::Missing(name.clone()))?)
        }
        Source::Weight(name) => (name, whole(sources.weights, name)?),
        Source::State(state) => return Err(RunError::State(state.clone())),
        Source::Result { .. } => {
            return Err(RunError::Program("a result is used before it is made".to_owned()));
        }
    };
    expect_type(name, array.type_(), graph.type_of(value))?;
    look(value, &array)?;
    values.insert(value, array);
    Ok(())
}
