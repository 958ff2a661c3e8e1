//! The forward program again, and its gradients backward.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Masters, Precision, Recipe};
use planner_ir::{
    Attention, Binary, DType, Emit, Graph, Node, NodeId, Op, Phase, Site, Source, State, StateKind, Type,
    ValueId,
};

use crate::TrainError;
use crate::late::late_conversions;
use crate::tiles::Tiles;

/// A forward program being made a training step.
pub(crate) struct Tape<'a> {
    /// The forward program.
    from: &'a Graph,
    /// For each of its values, who uses it.
    users: Vec<Vec<NodeId>>,
    /// In what it computes.
    precision: Precision,
    /// Where parameters are in f32.
    masters: Masters,
    /// How many micro-batches a step has.
    micro_batches: u64,
    /// For each of its operations, its block.
    places: &'a [usize],
    /// For each of its operations, whether it is done again for the gradients.
    again: &'a [bool],
    /// The step.
    pub(crate) to: Graph,
    /// For each operation of the step, the block that it belongs to.
    pub(crate) homes: Vec<usize>,
    /// For each operation of the step that goes with a forward one, such as its gradients, that one.
    pub(crate) forward: Vec<Option<NodeId>>,
    /// The forward operation, in the step, whose gradients are being added.
    current: Option<NodeId>,
    /// For each value of the forward program, the step's.
    pub(crate) map: Vec<ValueId>,
    /// For each operation of the forward program, its results in the step.
    made: Vec<Vec<ValueId>>,
    /// The results of operations that were done again.
    remade: BTreeMap<NodeId, Vec<ValueId>>,
    /// The results of norms as the gradients of products read them.
    read: BTreeMap<ValueId, ValueId>,
    /// For each value of the forward program, in which phase its gradient is made, if it has one.
    phases: Vec<Option<Phase>>,
    /// For each value of the forward program, the gradient towards it, as far as it is known.
    gradients: Vec<Option<ValueId>>,
    /// The parameters, in order.
    pub(crate) parameters: Vec<Parameter>,
    /// For values of the forward program that are parameters, which.
    parameter_of: BTreeMap<ValueId, usize>,
}

/// A parameter of the step.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    /// Its name in the model file.
    pub(crate) name: String,
    /// The parameter at rest.
    pub(crate) value: ValueId,
    /// What the optimizer changes: the parameter in full precision if there is one beside, else the
    /// parameter itself.
    pub(crate) changed: ValueId,
    /// The gradient at rest.
    pub(crate) gradient: ValueId,
    /// The gradient as far as it is summed.
    pub(crate) summed: ValueId,
    /// Whether all that is made of it is added to the gradient at rest, which is zero at first: that of
    /// several micro-batches, or of several blocks. What alone there is takes its place.
    accumulates: bool,
    /// The block that adds to the gradient last, once one has.
    pub(crate) home: Option<usize>,
    /// Its uses in slices.
    tiles: Option<Tiles>,
}

impl Parameter {
    /// The block that changes it.
    pub(crate) fn block(&self) -> usize {
        self.home.unwrap_or(0)
    }
}

impl<'a> Tape<'a> {
    /// The forward program, with the weights of these names as parameters.
    pub(crate) fn forward(
        from: &'a Graph,
        places: &'a [usize],
        again: &'a [bool],
        trained: &BTreeSet<String>,
        recipe: &Recipe,
    ) -> Self {
        let mut tape = Self {
            from,
            users: from.users(),
            precision: recipe.precision,
            masters: recipe.masters,
            micro_batches: recipe.micro_batches,
            places,
            again,
            to: Graph { name: from.name.clone(), ..Graph::default() },
            homes: Vec::new(),
            forward: Vec::new(),
            current: None,
            map: vec![ValueId(0); from.values.len()],
            made: vec![Vec::new(); from.nodes.len()],
            remade: BTreeMap::new(),
            read: BTreeMap::new(),
            phases: phases(from, trained),
            gradients: vec![None; from.values.len()],
            parameters: Vec::new(),
            parameter_of: BTreeMap::new(),
        };
        for value in from.value_ids() {
            let it = from.value(value);
            tape.map[value.0] = match &it.source {
                Source::Result { .. } => continue,
                Source::Weight(name) if trained.contains(name) => tape.parameter(value, name),
                source => tape.to.push_value(it.type_.clone(), source.clone()),
            };
        }
        for index in late_conversions(from, places) {
            let node = &from.nodes[index];
            let results = tape.forward_node(node, places[index]);
            if tape.is_kept_norm(NodeId(index)) {
                // The forward part reads it as a value of its own, too: see `read_again`.
                let shape = tape.to.type_of(results[0]).shape.clone();
                let op = Op::Reshape { shape };
                let view = tape.push(Phase::Forward, op, results.clone(), node, places[index]);
                tape.map[node.results[0].0] = view[0];
            }
            tape.made[index] = results;
        }
        tape
    }

    /// A parameter's states. Where the model only uses it converted to less precision, the
    /// parameter is in that precision, beside a master; unless there is to be none, or nothing else.
    fn parameter(&mut self, weight: ValueId, name: &str) -> ValueId {
        let type_ = self.from.type_of(weight).clone();
        let state = |kind| Source::State(State { kind, name: name.to_owned() });
        let masters = self.precision != Precision::Bf16Stochastic;
        let narrow = self.only_conversion(weight).filter(|(dtype, _)| masters || *dtype == DType::BF16);
        let (dtype, used) = match (narrow, self.masters) {
            (Some((_, used)), Masters::Alone) if masters => (type_.dtype, used),
            (narrow, _) => narrow.unwrap_or((type_.dtype, weight)),
        };
        let value = self.to.push_value(Type::new(dtype, &type_.shape[..]), state(StateKind::Parameter));
        let full = Type::new(DType::F32, &type_.shape[..]);
        let changed = if masters && dtype != DType::F32 {
            self.to.push_value(full.clone(), state(StateKind::Master))
        } else {
            value
        };
        let gradient = self.to.push_value(full, state(StateKind::Gradient));
        let mut homes = self.users[used.0].iter().map(|user| self.places[user.0]);
        let first = homes.next();
        let accumulates = self.micro_batches > 1 || homes.any(|home| Some(home) != first);
        // The model computes with the weight, or with what it is converted to.
        self.parameter_of.extend([weight, used].map(|it| (it, self.parameters.len())));
        self.parameters.push(Parameter {
            name: name.to_owned(),
            value,
            changed,
            gradient,
            summed: gradient,
            accumulates,
            home: None,
            tiles: Tiles::of(self.from, used, &self.users[used.0]),
        });
        value
    }

    /// The type to which the only user of a weight converts it, and the result.
    fn only_conversion(&self, weight: ValueId) -> Option<(DType, ValueId)> {
        let [only] = self.users[weight.0][..] else { return None };
        let first = self.from.node(only);
        match first.op {
            Op::Cast(dtype) if dtype.is_float() => Some((dtype, first.results[0])),
            _ => None,
        }
    }

    fn forward_node(&mut self, node: &Node, home: usize) -> Vec<ValueId> {
        let operands: Vec<ValueId> = node.operands.iter().map(|operand| self.map[operand.0]).collect();
        // A parameter that is in the precision already.
        let converted = matches!(node.op, Op::Cast(dtype) if self.to.type_of(operands[0]).dtype == dtype);
        let results =
            if converted { operands } else { self.push(Phase::Forward, self.op(node), operands, node, home) };
        for (from, &to) in node.results.iter().zip(&results) {
            self.map[from.0] = to;
        }
        results
    }

    /// Whether an operation is a norm whose result is kept for the backward part.
    fn is_kept_norm(&self, id: NodeId) -> bool {
        let node = self.from.node(id);
        let norm = matches!(node.op, Op::LayerNorm { .. } | Op::RmsNorm { .. });
        norm && !self.again[id.0] && self.phases[node.results[0].0].is_some()
    }

    /// The operation, with what its gradient needs of it.
    fn op(&self, node: &Node) -> Op {
        let has_gradient = node.results.iter().any(|result| self.phases[result.0].is_some());
        match node.op {
            Op::Attention(attention) if has_gradient => {
                Op::Attention(Attention { statistics: true, ..attention })
            }
            _ => node.op.clone(),
        }
    }

    fn push(
        &mut self,
        phase: Phase,
        op: Op,
        operands: Vec<ValueId>,
        node: &Node,
        home: usize,
    ) -> Vec<ValueId> {
        let types = self.to.types_of(&operands);
        let types = op
            .infer(&types)
            .unwrap_or_else(|error| panic!("`{}` of the forward program: {error}", node.origin));
        let results = self.to.push_node_in(phase, op, operands, types, node.origin.clone());
        self.record(home);
        results
    }

    /// Notes where the operations that were added belong.
    fn record(&mut self, home: usize) {
        self.homes.resize(self.to.nodes.len(), home);
        self.forward.resize(self.to.nodes.len(), self.current);
    }

    /// The operation of the step that makes a value.
    fn maker(&self, value: ValueId) -> Option<NodeId> {
        match self.to.value(value).source {
            Source::Result { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The gradients of a value of the forward program, which is one number, towards everything
    /// that leads to it.
    pub(crate) fn backward(&mut self, loss: ValueId) -> Result<(), TrainError> {
        let home = self.home_of(loss);
        let type_ = self.from.type_of(loss).clone();
        self.gradients[loss.0] = Some(self.emit(home, "loss", |emit| emit.filled(type_, 1.0)));
        for index in (0..self.from.nodes.len()).rev() {
            self.node_backward(NodeId(index))?;
        }
        self.current = None;
        for index in 0..self.parameters.len() {
            self.flush(index);
        }
        Ok(())
    }

    /// The block that makes a value; of what is not made, the last one.
    pub(crate) fn home_of(&self, value: ValueId) -> usize {
        match self.from.value(value).source {
            Source::Result { node, .. } => self.places[node.0],
            _ => self.places.iter().copied().max().unwrap_or(0),
        }
    }

    /// Adds operations to a block.
    pub(crate) fn emit<T>(&mut self, home: usize, origin: &str, add: impl FnOnce(&mut Emit<'_>) -> T) -> T {
        let mut emit = Emit { graph: &mut self.to, phase: Phase::Backward, origin };
        let result = add(&mut emit);
        self.record(home);
        result
    }

    /// For each operation of the forward program, the one of the step that does it forward.
    pub(crate) fn makers(&self) -> impl Iterator<Item = Option<NodeId>> {
        let ids = self.from.node_ids();
        ids.map(|id| if self.is_identity(id) { None } else { self.maker(self.made[id.0][0]) })
    }

    fn node_backward(&mut self, id: NodeId) -> Result<(), TrainError> {
        let from = self.from;
        let node = from.node(id);
        let towards: Vec<Option<ValueId>> =
            node.results.iter().map(|result| self.gradients[result.0]).collect();
        let wanted: Vec<Option<Phase>> = node.operands.iter().map(|operand| self.phases[operand.0]).collect();
        if towards.iter().all(Option::is_none) || wanted.iter().all(Option::is_none) {
            return Ok(());
        }
        let home = self.places[id.0];
        self.current = self.maker(self.made[id.0][0]);
        let product = matches!(node.op, Op::Contract(_));
        let operands: Vec<ValueId> = node
            .operands
            .iter()
            .map(|&operand| if product { self.read_again(operand, home) } else { self.read(operand, home) })
            .collect();
        let results = self.results(id, home);
        let op = self.op(node);
        let mut gradients = towards;
        gradients.resize(results.len(), None);
        let site = Site { operands: &operands, results: &results, gradients: &gradients, wanted: &wanted };
        let found = self.emit(home, &node.origin, |emit| op.gradient(&site, emit));
        let found = found.map_err(|error| TrainError::Gradient(node.origin.clone(), error))?;
        for (&operand, gradient) in node.operands.iter().zip(found) {
            if let Some(gradient) = gradient {
                self.add(operand, gradient, node, home);
            }
        }
        Ok(())
    }

    /// Whether an operation of the forward program is none in the step.
    fn is_identity(&self, id: NodeId) -> bool {
        let node = self.from.node(id);
        matches!(node.op, Op::Cast(_)) && self.made[id.0][0] == self.map[node.operands[0].0]
    }

    /// A value of the forward program, for gradients of a block: done again if it is of this block
    /// and not kept.
    fn read(&mut self, value: ValueId, home: usize) -> ValueId {
        match self.from.value(value).source {
            Source::Result { node, index } if self.places[node.0] == home => self.results(node, home)[index],
            _ => self.map[value.0],
        }
    }

    /// The result of a norm as the gradients of the products after it read it: the same elements, as
    /// a value of the backward part. So it may be kept as the norm makes it, split, and moved to
    /// where the products need it once more, rather than be kept as they need it.
    ///
    /// Source: Korthikanti et al., 2022, section 4.2.2: sequence parallelism keeps its part only.
    fn read_again(&mut self, value: ValueId, home: usize) -> ValueId {
        let from = self.from;
        let read = self.read(value, home);
        let Source::Result { node: id, .. } = from.value(value).source else { return read };
        let node = from.node(id);
        if !self.is_kept_norm(id) || self.places[id.0] != home {
            return read;
        }
        if let Some(&again) = self.read.get(&value) {
            return again;
        }
        let user = self.current;
        self.current = self.maker(self.map[value.0]);
        let again = self.emit(home, &node.origin, |emit| {
            let shape = emit.type_of(read).shape;
            emit.one(Op::Reshape { shape }, &[read])
        });
        self.current = user;
        self.read.insert(value, again);
        again
    }

    fn results(&mut self, id: NodeId, home: usize) -> Vec<ValueId> {
        if !self.again[id.0] || self.is_identity(id) {
            return self.made[id.0].clone();
        }
        if let Some(results) = self.remade.get(&id) {
            return results.clone();
        }
        let from = self.from;
        let node = from.node(id);
        let operands = node.operands.iter().map(|&operand| self.read(operand, home)).collect();
        let user = self.current;
        self.current = self.maker(self.made[id.0][0]);
        let results = self.push(Phase::Backward, self.op(node), operands, node, home);
        self.current = user;
        self.remade.insert(id, results.clone());
        results
    }

    /// Adds to the gradient towards a value.
    fn add(&mut self, value: ValueId, gradient: ValueId, node: &Node, home: usize) {
        if let Some(&index) = self.parameter_of.get(&value) {
            return self.add_to_parameter(index, gradient, node, home);
        }
        let phase = self.phases[value.0].unwrap_or(Phase::Backward);
        let sum = match self.gradients[value.0] {
            None => gradient,
            Some(before) => self.emit(home, &node.origin, |emit| {
                emit.phase = phase;
                emit.one(Op::Binary(Binary::Add), &[before, gradient])
            }),
        };
        self.gradients[value.0] = Some(sum);
    }

    fn add_to_parameter(&mut self, index: usize, gradient: ValueId, node: &Node, home: usize) {
        let mut gradient = gradient;
        if let Some(mut tiles) = self.parameters[index].tiles.take() {
            let whole = self.emit(home, &node.origin, |emit| {
                emit.phase = Phase::Gradient;
                tiles.add(emit, &node.op, gradient)
            });
            self.parameters[index].tiles = Some(tiles);
            match whole {
                Some(whole) => gradient = whole,
                None => return,
            }
        }
        self.sum(index, gradient, &node.origin, home);
    }

    /// Adds to a parameter's gradient what is in its shape.
    fn sum(&mut self, index: usize, gradient: ValueId, origin: &str, home: usize) {
        let Parameter { summed: before, gradient: at_rest, accumulates, .. } = self.parameters[index];
        let summed = self.emit(home, origin, |emit| {
            emit.phase = Phase::Gradient;
            let wide = emit.type_of(gradient).dtype == DType::F32;
            // What is converted is a value of its own; of what is not others may be the gradients, too.
            let starts = before == at_rest && !accumulates && !wide;
            let gradient = if wide { gradient } else { emit.one(Op::Cast(DType::F32), &[gradient]) };
            if starts { gradient } else { emit.one(Op::Binary(Binary::Add), &[before, gradient]) }
        });
        self.parameters[index].summed = summed;
        self.parameters[index].home = Some(home);
    }

    /// Adds what is known of a gradient of which some slices are zero.
    fn flush(&mut self, index: usize) {
        let Some(mut tiles) = self.parameters[index].tiles.take() else { return };
        let home = self.places.iter().copied().min().unwrap_or(0);
        let whole = self.emit(home, "", |emit| {
            emit.phase = Phase::Gradient;
            tiles.finish(emit)
        });
        if let Some(whole) = whole {
            self.sum(index, whole, "", home);
        }
    }
}

/// For each value, in which phase its gradient is made: nothing if no parameter leads to it.
fn phases(graph: &Graph, trained: &BTreeSet<String>) -> Vec<Option<Phase>> {
    let mut phases = vec![None; graph.values.len()];
    let prepared = graph.prepared();
    for (index, value) in graph.values.iter().enumerate() {
        if matches!(&value.source, Source::Weight(name) if trained.contains(name)) {
            phases[index] = Some(Phase::Gradient);
        }
    }
    for node in &graph.nodes {
        let leads = node.operands.iter().any(|operand| phases[operand.0].is_some());
        for result in node.results.iter().filter(|result| leads && graph.type_of(**result).dtype.is_float()) {
            phases[result.0] = Some(if prepared[result.0] { Phase::Gradient } else { Phase::Backward });
        }
    }
    phases
}
