//! Products of linear layers in numbers of 8 or 4 bits.
//!
//! ```text
//! y  = x · w           ─►  y  = q(x) · q(w)          q: the nearest numbers of 8 bits, each over a scale
//! dx = dy · w              dx = q(dy) · q(w)         that is as large as makes the largest magnitude the
//! dw = dy · x              dw = q(dy) · q(x)         largest number of the type
//! ```
//!
//! A linear layer is a product of a value with a weight. The last one before the loss, the scores of a
//! vocabulary, stays as it is, and so do look-ups of tables, products inside attention, and mixtures of
//! experts that are one operation.
//!
//! With one scale for a value, what the forward part computes with has more digits (E4M3) and gradients more
//! exponents (E5M2). With a scale for each 32 numbers that are summed all have more digits; a value that is
//! summed over in two products is made narrow twice.
//!
//! In 4 bits, blocks of 16 have scales of 8 bits, and values one more. Those of weights are squares, so that both
//! products that read a weight read the same numbers. Gradients are rounded by chance, and both operands of a
//! weight's gradient are turned by a random Hadamard transform of 16. The last blocks of a model stay in bf16.
//!
//! Source: which products, and which types: NVIDIA Transformer Engine, recipes `Float8CurrentScaling`
//! (`fp8_format=HYBRID`) and `MXFP8BlockScaling` (E4M3); Megatron Core's `ColumnParallelLinear` of the output
//! layer, which is not one of Transformer Engine; torchtitan's `filter_fqns: ["output"]`. Types: Micikevicius et
//! al., "FP8 Formats for Deep Learning", 2022; blocks: Mishra et al., "Recipes for Pre-training LLMs with
//! MXFP8", 2025. Of 4 bits: Transformer Engine's `NVFP4BlockScaling`; NVIDIA, "Pretraining Large Language Models
//! with NVFP4", arXiv 2509.25149, section 4.

mod products; // which products are narrow, and how their operands fall into blocks
mod remembered; // magnitudes that are remembered from step to step

use std::collections::{BTreeMap, BTreeSet};

use plan::{Precision, Scaling};
use planner_ir::{
    Binary, Contract, DType, Graph, Node, NodeId, Nvfp4, Op, Phase, Real, Source, StateKind, Type, ValueId,
};

use crate::SEED;
use crate::derived::Step;
use crate::ends::end;
use crate::prune::Emitted;
use products::{BLOCK, Side, block_dims, fours, is_aligned, linear, parts, side, stay_wide, weights};
use remembered::{HISTORY, Remembered};

/// What stochastic rounding starts from in a block of the model, of the first value.
const FIRST_SEED: u64 = 1 << 32;

/// The step with the products of its linear layers in 8 or 4 bits, if that is its precision.
pub(crate) fn narrowed(step: Step, precision: Precision) -> Step {
    let Some(scaling) = precision.scaling() else { return step };
    let weights = weights(&step.graph);
    let mut linear = linear(&step.graph, &weights);
    stay_wide(&step, scaling, &mut linear);
    let mut narrowing = Narrowing {
        step: &step,
        scaling,
        linear,
        weights,
        to: Graph { name: step.graph.name.clone(), ..Graph::default() },
        homes: Vec::new(),
        forward: Vec::new(),
        map: vec![ValueId(0); step.graph.values.len()],
        places: Vec::new(),
        kept: BTreeMap::new(),
        known: BTreeMap::new(),
        chances: BTreeMap::new(),
        remembered: Vec::new(),
    };
    narrowing.copy();
    let Narrowing { to, homes, forward, places, .. } = narrowing;
    let (mut narrow, kept) = Emitted { graph: &to, homes: &homes, forward: &forward }.pruned();
    narrow.made = step.made.iter().map(|made| made.and_then(|it| kept[places[it.0].0])).collect();
    narrow
}

/// How a value is made narrow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// By one scale, to these elements.
    Whole(DType),
    /// The same, by the magnitudes of steps before.
    Delayed(DType),
    /// By one scale for each 32 along a dimension.
    Blocks(usize),
    /// To 4 bits. Its seed says only whether numbers are rounded by chance.
    Nvfp4(Nvfp4),
}

/// A value as a product reads it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Quantised {
    value: ValueId,
    /// The block that it is made for.
    home: usize,
    /// Whether the backward part reads it.
    back: bool,
    form: Form,
}

/// What rounding by chance starts from in a block of the model.
struct Chance {
    /// A number of the micro-batch and the block.
    number: ValueId,
    /// How many values are rounded so far.
    count: u64,
}

/// A step being made narrow.
struct Narrowing<'a> {
    step: &'a Step,
    scaling: Scaling,
    /// For each operation, whether it is the forward product of a linear layer.
    linear: Vec<bool>,
    /// For each value, whether it is a weight.
    weights: Vec<bool>,
    to: Graph,
    homes: Vec<usize>,
    forward: Vec<Option<NodeId>>,
    /// For each value of the step, that of the narrow one.
    map: Vec<ValueId>,
    /// For each operation of the step, that of the narrow one.
    places: Vec<NodeId>,
    /// The numbers and scales of weights: once for all products of a block.
    kept: BTreeMap<Quantised, Vec<ValueId>>,
    /// The numbers and scales of what products read: once for all of a block, of weights for those of a part.
    known: BTreeMap<Quantised, Vec<ValueId>>,
    /// For each block of the model that rounds by chance.
    chances: BTreeMap<usize, Chance>,
    /// The values whose magnitudes are remembered from step to step.
    remembered: Vec<Remembered>,
}

impl Narrowing<'_> {
    fn copy(&mut self) {
        let from = &self.step.graph;
        for value in from.value_ids() {
            let it = from.value(value);
            if !matches!(it.source, Source::Result { .. }) {
                self.map[value.0] = self.to.push_value(it.type_.clone(), it.source.clone());
            }
        }
        let (chances, ahead) = (self.rounds_by_chance(), self.ahead());
        let mut carried = Vec::new();
        for id in from.node_ids() {
            let node = from.node(id);
            if node.phase == Phase::Update && carried.is_empty() {
                carried = self.remember();
            }
            let home = self.step.homes[id.0];
            if node.phase == Phase::Forward && chances.contains(&home) && !self.chances.contains_key(&home) {
                self.start_chances(node, home);
            }
            let (op, operands) = match self.product(id) {
                Some(product) => {
                    let narrow = self.narrow(node, product, home);
                    for (value, form) in ahead.get(&id).into_iter().flatten() {
                        let (value, form) = (*value, form.clone());
                        self.quantised(node, Quantised { value, home, back: false, form });
                    }
                    narrow
                }
                None => (node.op.clone(), node.operands.iter().map(|it| self.map[it.0]).collect()),
            };
            let forward = self.step.forward[id.0].map(|it| self.places[it.0]);
            let types = from.types_of(&node.results);
            let results = self.push(node, op, operands, types, (home, forward));
            for (from, to) in node.results.iter().zip(results) {
                self.map[from.0] = to;
            }
            self.places.push(NodeId(self.to.nodes.len() - 1));
        }
        end(&mut self.to, from, &self.map);
        if let Some(training) = &mut self.to.training {
            training.carried.extend(carried);
            training.carried.sort_by_key(|it| it.state);
        }
    }

    /// Adds an operation with the phase and the name of one of the step.
    fn push(
        &mut self,
        like: &Node,
        op: Op,
        operands: Vec<ValueId>,
        types: Vec<Type>,
        (home, forward): (usize, Option<NodeId>),
    ) -> Vec<ValueId> {
        let results = self.to.push_node_in(like.phase, op, operands, types, like.origin.clone());
        self.homes.push(home);
        self.forward.push(forward);
        results
    }

    /// The blocks of the model in which values are rounded by chance.
    fn rounds_by_chance(&self) -> BTreeSet<usize> {
        let by_chance = |it: &Form| matches!(it, Form::Nvfp4(it) if it.seed.is_some());
        let ids = self.step.graph.node_ids();
        let those = ids.filter(|&id| self.product(id).is_some_and(|(_, forms)| forms.iter().any(by_chance)));
        those.map(|id| self.step.homes[id.0]).collect()
    }

    /// For each forward product, the values that it reads and that gradients read in other forms: they are made
    /// narrow while they are there, so that what is kept for the gradients is narrow.
    fn ahead(&self) -> BTreeMap<NodeId, Vec<(ValueId, Form)>> {
        let graph = &self.step.graph;
        let mut ahead: BTreeMap<NodeId, Vec<(ValueId, Form)>> = BTreeMap::new();
        for id in graph.node_ids().filter(|it| graph.node(*it).phase != Phase::Forward) {
            let Some(((_, forms), of)) = self.product(id).zip(self.step.forward[id.0]) else { continue };
            for (&value, form) in graph.node(id).operands.iter().zip(forms) {
                let (own, mut read) = (self.own(value), graph.node(of).operands.iter());
                let read = read.any(|it| self.own(*it) == own) && !self.weights[value.0];
                if read && !matches!(form, Form::Whole(_) | Form::Delayed(_)) {
                    ahead.entry(of).or_default().push((own, form));
                }
            }
        }
        ahead
    }

    /// Makes the number from which chances of a block start: an input, plus how many such blocks come before.
    /// Blocks hand the sum on, so that equal ones stay equal.
    fn start_chances(&mut self, like: &Node, home: usize) {
        let like = Node { origin: "rounding".to_owned(), ..like.clone() };
        let type_ = || Type::new(DType::I64, []);
        let before = self.chances.values().next_back().map(|it| it.number);
        let before = before.unwrap_or_else(|| {
            let source = Source::Input(SEED.to_owned());
            let known = self.to.value_ids().find(|it| self.to.value(*it).source == source);
            known.unwrap_or_else(|| self.to.push_value(type_(), source))
        });
        let fill = Op::Fill { result: type_(), value: Real(1.0) };
        let one = self.push(&like, fill, vec![], vec![type_()], (home, None))[0];
        let add = Op::Binary(Binary::Add);
        let number = self.push(&like, add, vec![before, one], vec![type_()], (home, None))[0];
        self.chances.insert(home, Chance { number, count: 0 });
    }

    /// The sum of a product of a linear layer that is made narrow, and the forms of its operands.
    fn product(&self, id: NodeId) -> Option<(Contract, [Form; 2])> {
        let graph = &self.step.graph;
        let node = graph.node(id);
        let Op::Contract(contract) = &node.op else { return None };
        let of =
            if self.linear[id.0] { id } else { self.step.forward[id.0].filter(|it| self.linear[it.0])? };
        let Op::Contract(forward) = &graph.node(of).op else { return None };
        let side = side(contract, forward)?;
        let operands = graph.types_of(&node.operands);
        let right = operands.iter().all(|it| it.dtype == DType::BF16) && is_aligned(contract, &operands);
        if !right {
            return None;
        }
        let forms = match self.scaling {
            Scaling::Whole | Scaling::Delayed => {
                let form = if self.scaling == Scaling::Whole { Form::Whole } else { Form::Delayed };
                let [gradient, value] = [DType::F8E5M2, DType::F8E4M3FN].map(form);
                match side {
                    Side::Result => [value.clone(), value],
                    Side::Left => [gradient, value],
                    Side::Right => [value, gradient],
                }
            }
            Scaling::Blocks => block_dims(contract, &operands)?.map(Form::Blocks),
            Scaling::Nvfp4 => {
                let first = graph.node(of);
                let types = graph.types_of(&first.operands);
                let weight = usize::from(self.weights[first.operands[1].0]);
                fours(forward, &types, weight, side)?.map(Form::Nvfp4)
            }
        };
        Some((contract.clone(), forms))
    }

    /// The operation and the operands of a product that is made narrow.
    fn narrow(
        &mut self,
        node: &Node,
        (contract, [a, b]): (Contract, [Form; 2]),
        home: usize,
    ) -> (Op, Vec<ValueId>) {
        let mut operand = |value: ValueId, form: Form| {
            let back = self.weights[value.0] && node.phase != Phase::Forward;
            self.quantised(node, Quantised { value, home, back, form })
        };
        let [a, b] = [operand(node.operands[0], a), operand(node.operands[1], b)];
        let to = self.step.graph.type_of(node.results[0]).dtype;
        // The numbers of both, then the scales, then those of all.
        let operands = a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect();
        (Op::ScaledContract { contract, to }, operands)
    }

    /// The numbers and the scales of a value that an operation reads.
    fn quantised(&mut self, reader: &Node, key: Quantised) -> Vec<ValueId> {
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let phase = if reader.phase == Phase::Forward { Phase::Forward } else { Phase::Backward };
        let like = Node { phase, ..reader.clone() };
        let found = if let Some((id, of)) = self.view(key.value) {
            // What only is another value of the same elements stays one.
            let made = self.quantised(reader, Quantised { value: of, ..key.clone() });
            let first = self.first(id);
            let first = first.and_then(|it| self.known.get(&Quantised { value: it, ..key.clone() }).cloned());
            self.read_again(&self.step.graph.node(id).clone(), &made, key.home, first.as_deref())
        } else if self.weights[key.value.0] && self.scaling != Scaling::Blocks {
            // Kept in parts, and moved to where it is needed once forward and once backward.
            let own = Quantised { back: false, ..key.clone() };
            let made = match self.kept.get(&own) {
                Some(made) => made.clone(),
                None => self.quantise(&like, &own),
            };
            self.kept.insert(own.clone(), made.clone());
            let first = self.known.get(&own).cloned().filter(|_| key.back);
            self.read_again(&like, &made, key.home, first.as_deref())
        } else {
            self.quantise(&like, &key)
        };
        self.known.insert(key, found.clone());
        found
    }

    /// What the forward operation made, of one that is done again or makes another value of the same elements.
    fn first(&self, id: NodeId) -> Option<ValueId> {
        let forward = self.step.forward[id.0]?;
        let [result] = self.step.graph.node(forward).results[..] else { return None };
        Some(result)
    }

    /// The same numbers and scales as other values, with the phase and the name of an operation; and what they
    /// were when they were read first.
    fn read_again(
        &mut self,
        like: &Node,
        made: &[ValueId],
        home: usize,
        first: Option<&[ValueId]>,
    ) -> Vec<ValueId> {
        let again = |(it, &made): (usize, &ValueId)| {
            let type_ = self.to.type_of(made).clone();
            if type_.rank() == 0 {
                return made;
            }
            let forward = first.and_then(|first| maker(&self.to, first[it]));
            let op = Op::Reshape { shape: type_.shape.clone() };
            self.push(like, op, vec![made], vec![type_], (home, forward))[0]
        };
        made.iter().enumerate().map(again).collect()
    }

    /// The operation that makes another value of the same elements, and of what.
    fn view(&self, value: ValueId) -> Option<(NodeId, ValueId)> {
        let graph = &self.step.graph;
        let Source::Result { node: id, .. } = graph.value(value).source else { return None };
        let node = graph.node(id);
        let of = *node.operands.first()?;
        let same = matches!(node.op, Op::Reshape { .. }) && graph.type_of(of) == graph.type_of(value);
        same.then_some((id, of))
    }

    /// The value that is read again as another of the same elements.
    fn own(&self, value: ValueId) -> ValueId {
        self.view(value).map_or(value, |(_, of)| self.own(of))
    }

    /// The numbers and the scales of a value.
    fn quantise(&mut self, like: &Node, key: &Quantised) -> Vec<ValueId> {
        let x = self.map[key.value.0];
        let type_ = self.to.type_of(x).clone();
        // What was made of it, where it is done again.
        let first = maker(&self.step.graph, key.value).and_then(|it| self.first(it));
        let first = first.and_then(|it| self.known.get(&Quantised { value: it, ..key.clone() }));
        let first = first.and_then(|it| quantiser(&self.to, it[0]));
        let one = Type::new(DType::F32, []);
        match &key.form {
            &Form::Blocks(dim) => {
                let mut blocks = type_.shape.clone();
                blocks[dim] /= BLOCK;
                let op = Op::QuantizeBlocks { to: DType::F8E4M3FN, dim, block: BLOCK };
                let codes = Type::new(DType::F8E4M3FN, &type_.shape[..]);
                self.push(like, op, vec![x], vec![codes, Type::new(DType::U8, blocks)], (key.home, first))
            }
            &Form::Whole(to) => {
                let (amax, of) = self.magnitudes(like, key, first, None);
                let types = vec![Type::new(to, &type_.shape[..]), one];
                self.push(like, Op::Quantize { to, parts: None }, vec![x, amax], types, (key.home, of))
            }
            &Form::Delayed(to) => {
                let parts = parts(&type_.shape, None);
                let magnitudes = Type::new(DType::F32, &parts[..]);
                // What is done again is made by the scale that it had.
                let again = first.map(|it| self.to.node(it).operands[1]);
                let history =
                    again.unwrap_or_else(|| self.state(StateKind::History, Type::new(DType::F32, [HISTORY])));
                let types = vec![Type::new(to, &type_.shape[..]), one, magnitudes];
                let op = Op::Quantize { to, parts: Some(parts) };
                let mut made = self.push(like, op, vec![x, history], types, (key.home, first));
                if let Some(found) = made.pop().filter(|_| again.is_none()) {
                    self.found(like, history, found, key.home);
                }
                made
            }
            Form::Nvfp4(how) => {
                let (amax, of) = self.magnitudes(like, key, first, how.rotated.then_some(how.dim));
                let blocks = how.blocks(&type_.shape).unwrap_or_default();
                let codes = Type::new(DType::U8, how.bytes(&type_.shape));
                let mut operands = vec![x, amax];
                let mut how = how.clone();
                if let Some((seed, chance)) = how.seed.as_mut().zip(self.chances.get_mut(&key.home)) {
                    // Others than those of dropouts, which start from the same input.
                    *seed = FIRST_SEED + chance.count;
                    chance.count += 1;
                    operands.push(chance.number);
                }
                let types = vec![codes, Type::new(DType::F8E4M3FN, blocks), one];
                self.push(like, Op::QuantizeNvfp4(how), operands, types, (key.home, of))
            }
        }
    }

    /// The largest magnitudes of the parts of a value, and the operation with which it is quantised alike.
    fn magnitudes(
        &mut self,
        like: &Node,
        key: &Quantised,
        first: Option<NodeId>,
        rotated: Option<usize>,
    ) -> (ValueId, Option<NodeId>) {
        let x = self.map[key.value.0];
        let parts = parts(&self.to.type_of(x).shape, rotated);
        let magnitudes = Type::new(DType::F32, &parts[..]);
        let before = first.and_then(|it| maker(&self.to, self.to.node(it).operands[1]));
        let op = Op::Amax { parts, rotated };
        let amax = self.push(like, op, vec![x], vec![magnitudes], (key.home, before))[0];
        // It is done where its magnitudes are found; a weight may be fetched for one of both.
        (amax, first.or_else(|| maker(&self.to, amax).filter(|_| !self.weights[key.value.0])))
    }
}

/// The operation that makes a value.
fn maker(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(node),
        Source::Input(_) | Source::Weight(_) | Source::State(_) => None,
    }
}

/// The operation that made numbers of 8 bits, of which a value is or is another one.
fn quantiser(graph: &Graph, value: ValueId) -> Option<NodeId> {
    let made = maker(graph, value)?;
    match &graph.node(made).op {
        Op::Reshape { .. } => quantiser(graph, graph.node(made).operands[0]),
        _ => Some(made),
    }
}

#[cfg(test)]
mod tests;
