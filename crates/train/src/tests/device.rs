//! A training step computed on one device, on whole values.

use std::collections::BTreeMap;

use kernels::Array;
use planner_ir::{Graph, Op, Phase, Source, StateKind, ValueId};

/// Values by name.
pub(crate) type Arrays = BTreeMap<String, Array>;

/// A training step and its states.
pub(crate) struct Device<'a> {
    graph: &'a Graph,
    weights: &'a dyn Fn(&str) -> Array,
    states: BTreeMap<ValueId, Array>,
}

impl<'a> Device<'a> {
    pub(crate) fn new(graph: &'a Graph, weights: &'a dyn Fn(&str) -> Array) -> Self {
        let mut device = Self { graph, weights, states: BTreeMap::new() };
        for value in graph.value_ids() {
            let it = graph.value(value);
            let Source::State(state) = &it.source else { continue };
            let array = match state.kind {
                StateKind::Parameter | StateKind::Master => {
                    let mut cast =
                        kernels::evaluate(&Op::Cast(it.type_.dtype), &[&weights(&state.name)]).unwrap();
                    cast.remove(0)
                }
                _ => Array::zeros(it.type_.clone()).unwrap(),
            };
            device.states.insert(value, array);
        }
        device
    }

    /// The state of that kind and name.
    pub(crate) fn state(&self, kind: StateKind, name: &str) -> Option<&Array> {
        let is = |value: &&ValueId| match &self.graph.value(**value).source {
            Source::State(state) => state.kind == kind && state.name == name,
            _ => false,
        };
        self.states.keys().find(is).map(|value| &self.states[value])
    }

    /// One step; its outputs. Gradients and totals are left as the step made them.
    pub(crate) fn step(&mut self, micro_batches: &[Arrays], step_inputs: &Arrays) -> Arrays {
        let graph = self.graph;
        let training = graph.training.as_ref().unwrap();
        assert_eq!(u64::try_from(micro_batches.len()).unwrap(), training.micro_batches);
        let summed = |value: ValueId| matches!(&graph.value(value).source, Source::State(state) if state.kind.is_summed());
        for (value, array) in &mut self.states {
            if summed(*value) {
                array.bytes_mut().fill(0);
            }
        }
        for micro in micro_batches {
            let mut values = BTreeMap::new();
            self.run(false, micro, &mut values);
            for it in training.carried.iter().filter(|it| summed(it.state)) {
                self.states.insert(it.state, values[&it.next].clone());
            }
        }
        let mut values = BTreeMap::new();
        for it in training.carried.iter().filter(|it| summed(it.state)) {
            values.insert(it.next, self.states[&it.state].clone());
        }
        self.run(true, step_inputs, &mut values);
        for it in training.carried.iter().filter(|it| !summed(it.state)) {
            self.states.insert(it.state, values[&it.next].clone());
        }
        graph.outputs.iter().map(|output| (output.name.clone(), values[&output.value].clone())).collect()
    }

    fn run(&self, update: bool, inputs: &Arrays, values: &mut BTreeMap<ValueId, Array>) {
        for node in self.graph.nodes.iter().filter(|node| (node.phase == Phase::Update) == update) {
            for operand in &node.operands {
                values.entry(*operand).or_insert_with(|| match &self.graph.value(*operand).source {
                    Source::Input(name) => inputs.get(name).unwrap_or_else(|| panic!("input {name}")).clone(),
                    Source::Weight(name) => (self.weights)(name),
                    Source::State(_) => self.states[operand].clone(),
                    Source::Result { .. } => panic!("%{} is used before it is made", operand.0),
                });
            }
            let operands: Vec<&Array> = node.operands.iter().map(|operand| &values[operand]).collect();
            let results = kernels::evaluate(&node.op, &operands)
                .unwrap_or_else(|error| panic!("{} ({}): {error}", node.origin, node.op));
            for (&value, result) in node.results.iter().zip(results) {
                assert_eq!(result.type_(), self.graph.type_of(value), "{}", node.origin);
                values.insert(value, result);
            }
        }
    }
}
