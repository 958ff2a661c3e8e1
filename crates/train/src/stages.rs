//! A training step cut into the stages of a pipeline: a program for each, and what crosses between
//! them.
//!
//! ```text
//! F1 → F2 │ F3 → F4        a stage has blocks of the model: their forward operations, their
//!         │     ↓          gradients, the updates of their parameters. What it uses of another
//! B1 ← B2 │ B3 ← B4        stage is an input, and an output there, of the same name
//! U1   U2 │ U3   U4
//! ```
//!
//! What depends on inputs alone, such as a mask, is computed by each stage that uses it. A parameter
//! that several stages use is a state of each: each sums the gradients of its own uses, the sums
//! cross once in a step, and all make the same update. What the step returns, every stage returns:
//! each sees whether it is finite.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{
    Binary, CROSSING, Carried, Graph, NodeId, Op, Output, Phase, Source, State, Training, Type, Value,
    ValueId,
};

use crate::TrainError;
use crate::derived::Step;
use crate::prune::Emitted;

/// The stages of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stages {
    /// The stages, in the order of the model.
    pub stages: Vec<Step>,
    /// What crosses between them.
    pub crossings: Vec<Crossing>,
}

/// A value that one stage makes and others use: an output there, an input here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crossing {
    /// What both call it.
    pub name: String,
    /// The stage that makes it.
    pub from: usize,
    /// The stages that use it, ascending.
    pub to: Vec<usize>,
}

/// The stages of a step, each from the block of this number to the next one's.
pub fn stages(step: &Step, first: &[usize]) -> Result<Stages, TrainError> {
    Ok(cut(step, first, None)?.finished())
}

/// One of them, without the others: found sooner than all.
pub fn stage(step: &Step, first: &[usize], number: usize) -> Result<Step, TrainError> {
    Ok(cut(step, first, Some(number))?.finished().stages.remove(0))
}

fn cut<'a>(step: &'a Step, first: &[usize], only: Option<usize>) -> Result<Cutter<'a>, TrainError> {
    let blocks = step.homes.iter().max().map_or(0, |last| last + 1);
    let ascends = first.windows(2).all(|pair| pair[0] < pair[1]);
    if first.first() != Some(&0) || !ascends || first.last() >= Some(&blocks) {
        return Err(TrainError::Stages(first.to_vec(), blocks));
    }
    let mut cutter = Cutter::new(step, first, only);
    for node in step.graph.node_ids() {
        if step.graph.node(node).phase != Phase::Update {
            cutter.micro_batch(node);
        }
    }
    for node in cutter.of_update() {
        cutter.update(node);
    }
    cutter.outputs();
    cutter.carry();
    Ok(cutter)
}

/// What crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Crosses {
    /// A value of the step.
    Value(ValueId),
    /// What a stage adds to the sum of that state.
    Partial(usize, ValueId),
}

/// A stage as it is emitted; of one that nobody asks for, what is there and nothing of it.
#[derive(Default)]
struct Part<'a> {
    is_asked: bool,
    graph: Graph,
    homes: Vec<usize>,
    forward: Vec<Option<NodeId>>,
    /// The values of the step that are there.
    values: BTreeMap<ValueId, ValueId>,
    /// The names of the states that are.
    states: BTreeSet<&'a str>,
    /// The operations of the step that are there.
    nodes: BTreeMap<NodeId, NodeId>,
    /// The inputs that are crossings.
    crossed: BTreeMap<Crosses, ValueId>,
    /// For each summed state of the step, the sum so far.
    sums: BTreeMap<ValueId, ValueId>,
    /// For each summed state of the step, the sum over all stages.
    totals: BTreeMap<ValueId, ValueId>,
}

impl Part<'_> {
    /// A value that no operation makes.
    fn push_value(&mut self, type_: &Type, source: &Source) -> ValueId {
        if self.is_asked { self.graph.push_value(type_.clone(), source.clone()) } else { NONE }
    }
}

/// A value of a stage that nobody asks for.
const NONE: ValueId = ValueId(0);

struct Cutter<'a> {
    step: &'a Step,
    /// For each operation, its stage.
    stage: Vec<usize>,
    /// For each value, whether each stage that uses it makes it itself.
    repeated: Vec<bool>,
    /// For each value that is a sum over micro-batches so far, the state that it starts from.
    sum_of: Vec<Option<ValueId>>,
    /// For each summed state, the stages that add to it, in order.
    addends: BTreeMap<ValueId, Vec<usize>>,
    /// For each operation of the update, the parameter whose new states alone it leads to.
    owners: Vec<Option<&'a str>>,
    parts: Vec<Part<'a>>,
    crossings: BTreeMap<Crosses, Crossing>,
}

impl<'a> Cutter<'a> {
    fn new(step: &'a Step, first: &[usize], only: Option<usize>) -> Self {
        let stage = |home: &usize| first.partition_point(|start| start <= home).saturating_sub(1);
        let part = |number: usize| Part {
            is_asked: only.is_none_or(|only| only == number),
            graph: Graph { name: step.graph.name.clone(), ..Graph::default() },
            ..Part::default()
        };
        Self {
            step,
            stage: step.homes.iter().map(stage).collect(),
            repeated: repeated(&step.graph),
            sum_of: step.graph.sums(),
            addends: BTreeMap::new(),
            owners: owners(&step.graph),
            parts: (0..first.len()).map(part).collect(),
            crossings: BTreeMap::new(),
        }
    }

    fn whole(&self) -> &'a Graph {
        &self.step.graph
    }

    /// An operation that is done for every micro-batch.
    fn micro_batch(&mut self, node: NodeId) {
        let results = &self.whole().node(node).results;
        if results.iter().all(|result| self.repeated[result.0]) {
            return;
        }
        let stage = self.stage[node.0];
        let operands = self.whole().node(node).operands.iter();
        let operands = operands.map(|&operand| self.operand(stage, operand)).collect();
        self.emit(stage, node, operands);
        for result in results {
            if let Some(state) = self.sum_of[result.0] {
                self.at_rest(stage, state);
                let local = self.parts[stage].values[result];
                self.parts[stage].sums.insert(state, local);
                let adding = self.addends.entry(state).or_default();
                if !adding.contains(&stage) {
                    adding.push(stage);
                }
            }
        }
    }

    /// The operations of the update, those first that wait for no other stage: the stages do them at
    /// the same time, although each adds to the norm of gradients after the one behind it.
    fn of_update(&self) -> Vec<NodeId> {
        let whole = self.whole();
        let mut waits = vec![false; whole.values.len()];
        let is_early = |&id: &NodeId| {
            let (node, stage) = (whole.node(id), self.stage[id.0]);
            let is_late = |operand: &ValueId| match (self.sum_of[operand.0], &whole.value(*operand).source) {
                (Some(state), _) => self.addends.get(&state).is_some_and(|it| *it != [stage]),
                (None, Source::Result { node, .. }) => {
                    waits[operand.0] || !self.repeated[operand.0] && self.stage[node.0] != stage
                }
                (None, _) => false,
            };
            let late = node.operands.iter().any(is_late);
            node.results.iter().for_each(|result| waits[result.0] = late);
            !late
        };
        let update = whole.node_ids().filter(|it| whole.node(*it).phase == Phase::Update);
        let (mut early, late): (Vec<NodeId>, Vec<NodeId>) = update.partition(is_early);
        early.extend(late);
        early
    }

    /// An operation of the update: what leads to the new states of one parameter alone is made by
    /// every stage that uses it.
    fn update(&mut self, node: NodeId) {
        let of = self.owners[node.0];
        let uses = |stage: &usize| of.is_some_and(|name| self.parts[*stage].states.contains(name));
        let users: Vec<usize> = (0..self.parts.len()).filter(uses).collect();
        let stages = if users.is_empty() { vec![self.stage[node.0]] } else { users };
        for stage in stages {
            let operands = self.whole().node(node).operands.iter();
            let operands = operands.map(|&operand| self.settled(stage, operand)).collect();
            self.emit(stage, node, operands);
        }
    }

    fn emit(&mut self, stage: usize, node: NodeId, operands: Vec<ValueId>) {
        let (whole, part) = (self.whole(), &mut self.parts[stage]);
        let it = whole.node(node);
        if !part.is_asked {
            return part.values.extend(it.results.iter().map(|&result| (result, NONE)));
        }
        let types = whole.types_of(&it.results);
        let results = part.graph.push_node_in(it.phase, it.op.clone(), operands, types, it.origin.clone());
        part.nodes.insert(node, NodeId(part.homes.len()));
        part.homes.push(self.step.homes[node.0]);
        part.forward.push(self.step.forward[node.0].and_then(|it| part.nodes.get(&it).copied()));
        part.values.extend(it.results.iter().copied().zip(results));
    }

    /// A value of the step as an operation of a micro-batch reads it in a stage.
    fn operand(&mut self, stage: usize, value: ValueId) -> ValueId {
        match self.sum_of[value.0] {
            Some(state) => match self.parts[stage].sums.get(&state) {
                Some(&sum) => sum,
                None => self.at_rest(stage, state),
            },
            None => self.value(stage, value),
        }
    }

    /// A value of the step as an operation of the update reads it in a stage.
    fn settled(&mut self, stage: usize, value: ValueId) -> ValueId {
        match self.sum_of[value.0] {
            Some(state) => self.total(stage, state),
            None => self.value(stage, value),
        }
    }

    /// A value of the step that is no sum, in a stage.
    fn value(&mut self, stage: usize, value: ValueId) -> ValueId {
        if let Some(&local) = self.parts[stage].values.get(&value) {
            return local;
        }
        let whole = self.whole();
        let Source::Result { node, .. } = whole.value(value).source else {
            return self.at_rest(stage, value);
        };
        if !self.repeated[value.0] {
            return self.crossed(stage, Crosses::Value(value));
        }
        let operands = whole.node(node).operands.iter().map(|&it| self.value(stage, it)).collect();
        self.emit(stage, node, operands);
        self.parts[stage].values[&value]
    }

    /// A value that no operation makes, in a stage.
    fn at_rest(&mut self, stage: usize, value: ValueId) -> ValueId {
        let (whole, part) = (self.whole(), &mut self.parts[stage]);
        if let Some(&local) = part.values.get(&value) {
            return local;
        }
        let Value { type_, source } = whole.value(value);
        if let Source::State(state) = source {
            part.states.insert(&state.name);
        }
        let local = part.push_value(type_, source);
        part.values.insert(value, local);
        local
    }

    /// What another stage makes, in a stage.
    fn crossed(&mut self, stage: usize, what: Crosses) -> ValueId {
        if let Some(&local) = self.parts[stage].crossed.get(&what) {
            return local;
        }
        let (from, value) = match what {
            Crosses::Value(value) => match self.whole().value(value).source {
                Source::Result { node, .. } => (self.stage[node.0], value),
                _ => unreachable!("only what is made crosses"),
            },
            Crosses::Partial(from, state) => (from, state),
        };
        let number = self.crossings.len();
        let crossing = self.crossings.entry(what);
        let crossing = crossing.or_insert_with(|| Crossing { name: name(number), from, to: Vec::new() });
        crossing.to.push(stage);
        let source = Source::Input(crossing.name.clone());
        let local = self.parts[stage].push_value(self.step.graph.type_of(value), &source);
        self.parts[stage].crossed.insert(what, local);
        local
    }

    /// The sum of a state over all stages: added in the same order everywhere, so that all that have
    /// the parameter keep the same.
    fn total(&mut self, stage: usize, state: ValueId) -> ValueId {
        if let Some(&total) = self.parts[stage].totals.get(&state) {
            return total;
        }
        let stages = self.addends.get(&state).cloned().unwrap_or_default();
        let mut total: Option<ValueId> = None;
        for from in stages {
            let addend = match from == stage {
                true => self.parts[stage].sums[&state],
                false => self.crossed(stage, Crosses::Partial(from, state)),
            };
            total = Some(match total {
                None => addend,
                Some(before) => self.add(stage, state, [before, addend]),
            });
        }
        let total = total.unwrap_or_else(|| self.at_rest(stage, state));
        self.parts[stage].totals.insert(state, total);
        total
    }

    fn add(&mut self, stage: usize, state: ValueId, addends: [ValueId; 2]) -> ValueId {
        let whole = self.whole();
        if !self.parts[stage].is_asked {
            return NONE;
        }
        let types = vec![whole.type_of(state).clone()];
        let name = state_of(whole, state).map_or(String::new(), |it| it.name.clone());
        let home = self.stage.iter().position(|&it| it == stage).map_or(0, |node| self.step.homes[node]);
        let part = &mut self.parts[stage];
        part.homes.push(home);
        part.forward.push(None);
        part.graph.push_node_in(Phase::Update, Op::Binary(Binary::Add), addends.to_vec(), types, name)[0]
    }

    /// What the step returns, in each stage.
    fn outputs(&mut self) {
        for Output { name, value } in &self.whole().outputs {
            for stage in 0..self.parts.len() {
                let value = self.settled(stage, *value);
                self.parts[stage].graph.outputs.push(Output { name: name.clone(), value });
            }
        }
    }

    /// What states become.
    fn carry(&mut self) {
        let whole = self.whole();
        let Some(training) = &whole.training else { return };
        for part in self.parts.iter_mut().filter(|it| it.is_asked) {
            let mut carried = Vec::new();
            for &Carried { state, next } in &training.carried {
                let Some(&local) = part.values.get(&state) else { continue };
                let next = match self.sum_of[state.0] {
                    Some(_) => part.sums.get(&state),
                    None => part.values.get(&next),
                };
                carried.extend(next.map(|&next| Carried { state: local, next }));
            }
            part.graph.training = Some(Training { micro_batches: training.micro_batches, carried });
        }
    }

    fn finished(mut self) -> Stages {
        let mut crossings: Vec<(Crosses, Crossing)> =
            std::mem::take(&mut self.crossings).into_iter().collect();
        crossings.sort_by_key(|(_, it)| number(&it.name));
        for (what, Crossing { name, from, .. }) in &crossings {
            let part = &mut self.parts[*from];
            let value = match what {
                Crosses::Value(value) => part.values[value],
                Crosses::Partial(_, state) => part.sums[state],
            };
            part.graph.outputs.push(Output { name: name.clone(), value });
        }
        let made = &self.step.made;
        let stage = |part: Part<'_>| {
            let Part { graph, homes, forward, nodes, .. } = &part;
            let (step, places) = Emitted { graph, homes, forward }.pruned();
            let own = |it: &Option<NodeId>| nodes.get(&(*it)?).and_then(|it| places[it.0]);
            Step { made: made.iter().map(own).collect(), ..step }
        };
        let mut crossings: Vec<Crossing> = crossings.into_iter().map(|(_, it)| it).collect();
        crossings.iter_mut().for_each(|it| it.to.sort_unstable());
        Stages { stages: self.parts.into_iter().filter(|it| it.is_asked).map(stage).collect(), crossings }
    }
}

/// How a crossing is called.
fn name(number: usize) -> String {
    format!("{CROSSING}{number}")
}

/// The number of a crossing.
fn number(name: &str) -> usize {
    name.strip_prefix(CROSSING).and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

fn state_of(graph: &Graph, value: ValueId) -> Option<&State> {
    match &graph.value(value).source {
        Source::State(state) => Some(state),
        _ => None,
    }
}

/// For each value, whether each stage that uses it makes it itself: what depends on inputs and
/// numbers in the program only, and what is computed before the first step.
fn repeated(graph: &Graph) -> Vec<bool> {
    let prepared = graph.prepared();
    let mut of_inputs: Vec<bool> = graph
        .values
        .iter()
        .map(|value| match value.source {
            Source::Input(_) => true,
            Source::Weight(_) => !value.type_.dtype.is_float(),
            _ => false,
        })
        .collect();
    for node in &graph.nodes {
        let all = node.operands.iter().all(|operand| of_inputs[operand.0]);
        node.results.iter().for_each(|result| of_inputs[result.0] = all);
    }
    prepared.iter().zip(of_inputs).map(|(&prepared, of_inputs)| prepared || of_inputs).collect()
}

/// For each operation of the update, the parameter whose new states alone it leads to.
fn owners(graph: &Graph) -> Vec<Option<&str>> {
    // Nothing where it leads nowhere, no name where it leads to an output or to several parameters.
    let mut names: Vec<Option<Option<&str>>> = vec![None; graph.values.len()];
    for Carried { state, next } in graph.training.iter().flat_map(|training| &training.carried) {
        names[next.0] = both(names[next.0], state_of(graph, *state).map(|it| Some(&*it.name)));
    }
    for output in &graph.outputs {
        names[output.value.0] = Some(None);
    }
    let mut owners = vec![None; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        if node.phase == Phase::Update {
            let leads = node.results.iter().fold(None, |leads, result| both(leads, names[result.0]));
            for operand in &node.operands {
                names[operand.0] = both(names[operand.0], leads);
            }
            owners[index] = leads.flatten();
        }
    }
    owners
}

/// Where two values lead that lead there together.
fn both<'a>(one: Option<Option<&'a str>>, other: Option<Option<&'a str>>) -> Option<Option<&'a str>> {
    match (one, other) {
        (None, it) | (it, None) => it,
        (one, other) => Some(one.flatten().filter(|_| one == other)),
    }
}

#[cfg(test)]
mod tests;
