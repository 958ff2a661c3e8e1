//! Products of linear layers in numbers of 8 bits.
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
//! Source: which products, and which types: NVIDIA Transformer Engine, recipes `Float8CurrentScaling`
//! (`fp8_format=HYBRID`) and `MXFP8BlockScaling` (E4M3); Megatron Core's `ColumnParallelLinear` of the output
//! layer, which is not one of Transformer Engine; torchtitan's `filter_fqns: ["output"]`. Types: Micikevicius et
//! al., "FP8 Formats for Deep Learning", 2022; blocks: Mishra et al., "Recipes for Pre-training LLMs with
//! MXFP8", 2025.

use std::collections::BTreeMap;

use plan::{Precision, Scaling};
use planner_ir::{Contract, DType, Graph, Label, Node, NodeId, Op, OpClass, Phase};
use planner_ir::{Source, StateKind, Type, ValueId};

use crate::derived::Step;
use crate::ends::end;
use crate::prune::Emitted;

/// What extents of a product are a multiple of: 16 bytes.
///
/// Source: NVIDIA cuBLAS documentation, "8-bit Floating Point Data Types (FP8) Usage".
const ALIGNED: u64 = 16;

/// How many numbers share a scale.
///
/// Source: Open Compute Project, "Microscaling Formats (MX) Specification", version 1.0, section 5.2.
const BLOCK: u64 = 32;

/// How many parts the magnitudes of a value are found in, along its last dimension and along the others
/// together, at most: so many devices may each have one.
const PARTS: [u64; 2] = [32, 512];

/// The step with the products of its linear layers in 8 bits, if that is its precision.
pub(crate) fn narrowed(step: Step, precision: Precision) -> Step {
    let Some(scaling) = precision.scaling() else { return step };
    let weights = weights(&step.graph);
    let mut narrowing = Narrowing {
        step: &step,
        scaling,
        linear: linear(&step.graph, &weights),
        weights,
        to: Graph { name: step.graph.name.clone(), ..Graph::default() },
        homes: Vec::new(),
        forward: Vec::new(),
        map: vec![ValueId(0); step.graph.values.len()],
        places: Vec::new(),
        kept: BTreeMap::new(),
        known: BTreeMap::new(),
    };
    narrowing.copy();
    let Narrowing { to, homes, forward, places, .. } = narrowing;
    let (mut narrow, kept) = Emitted { graph: &to, homes: &homes, forward: &forward }.pruned();
    narrow.made = step.made.iter().map(|made| made.and_then(|it| kept[places[it.0].0])).collect();
    narrow
}

/// For each value, whether it is a weight, or one taken apart.
fn weights(graph: &Graph) -> Vec<bool> {
    let is_weight = |source: &Source| match source {
        Source::Weight(_) => true,
        Source::State(state) => state.kind == StateKind::Parameter,
        Source::Input(_) | Source::Result { .. } => false,
    };
    let mut weights: Vec<bool> = graph.values.iter().map(|value| is_weight(&value.source)).collect();
    for (node, on) in graph.nodes.iter().zip(graph.on_parameters()) {
        let any = on && node.operands.iter().any(|operand| weights[operand.0]);
        for result in &node.results {
            weights[result.0] = any;
        }
    }
    weights
}

/// For each operation, whether it is the forward product of a linear layer: of a weight with what is none,
/// followed by other products.
fn linear(graph: &Graph, weights: &[bool]) -> Vec<bool> {
    // For each value, whether it leads to another product.
    let mut leads = vec![false; graph.values.len()];
    let mut linear = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev().filter(|(_, it)| it.phase == Phase::Forward) {
        let class = node.op.class();
        let follows = node.results.iter().any(|result| leads[result.0]);
        if let (OpClass::MatrixProduct(_), [a, b]) = (class, &node.operands[..]) {
            linear[index] = follows && weights[a.0] != weights[b.0];
        }
        let is_product = matches!(
            class,
            OpClass::MatrixProduct(_) | OpClass::Attention(_) | OpClass::Recurrence(_) | OpClass::Experts(_)
        );
        for operand in &node.operands {
            leads[operand.0] |= follows || is_product;
        }
    }
    linear
}

/// A value as a product reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Quantised {
    value: ValueId,
    /// The block that it is made for.
    home: usize,
    /// Whether the backward part reads it.
    back: bool,
    to: DType,
    /// The dimension that blocks lie along, if there are some.
    dim: Option<usize>,
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
    kept: BTreeMap<Quantised, [ValueId; 2]>,
    /// The numbers and scales of what products read: once for all of a block, of weights for those of a part.
    known: BTreeMap<Quantised, [ValueId; 2]>,
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
        for id in from.node_ids() {
            let node = from.node(id);
            let (op, operands) = match self.product(id) {
                Some(product) => self.narrow(node, product, self.step.homes[id.0]),
                None => (node.op.clone(), node.operands.iter().map(|it| self.map[it.0]).collect()),
            };
            let forward = self.step.forward[id.0].map(|it| self.places[it.0]);
            let types = from.types_of(&node.results);
            let results = self.push(node, op, operands, types, (self.step.homes[id.0], forward));
            for (from, to) in node.results.iter().zip(results) {
                self.map[from.0] = to;
            }
            self.places.push(NodeId(self.to.nodes.len() - 1));
        }
        end(&mut self.to, from, &self.map);
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

    /// The sum of a product of a linear layer that is made narrow, and the elements of its operands.
    fn product(&self, id: NodeId) -> Option<(Contract, [DType; 2])> {
        let graph = &self.step.graph;
        let node = graph.node(id);
        let Op::Contract(contract) = &node.op else { return None };
        let of =
            if self.linear[id.0] { id } else { self.step.forward[id.0].filter(|it| self.linear[it.0])? };
        let Op::Contract(forward) = &graph.node(of).op else { return None };
        let gradients = match self.scaling {
            Scaling::Whole => DType::F8E5M2,
            Scaling::Blocks => DType::F8E4M3FN,
        };
        // Forward, done again, towards the left operand, towards the right one.
        let types = if contract == forward {
            [DType::F8E4M3FN, DType::F8E4M3FN]
        } else if [&contract.left, &contract.right] == [&forward.result, &forward.right] {
            [gradients, DType::F8E4M3FN]
        } else if [&contract.left, &contract.right] == [&forward.left, &forward.result] {
            [DType::F8E4M3FN, gradients]
        } else {
            return None;
        };
        let operands = graph.types_of(&node.operands);
        let right = operands.iter().all(|it| it.dtype == DType::BF16) && is_aligned(contract, &operands);
        let blocks = self.scaling == Scaling::Whole || block_dims(contract, &operands).is_some();
        (right && blocks).then(|| (contract.clone(), types))
    }

    /// The operation and the operands of a product that is made narrow.
    fn narrow(
        &mut self,
        node: &Node,
        (contract, types): (Contract, [DType; 2]),
        home: usize,
    ) -> (Op, Vec<ValueId>) {
        let operands = self.step.graph.types_of(&node.operands);
        let dims = match self.scaling {
            Scaling::Whole => [None, None],
            Scaling::Blocks => block_dims(&contract, &operands).map_or([None, None], |dims| dims.map(Some)),
        };
        let [[a, of_a], [b, of_b]] = [0, 1].map(|it: usize| {
            let value = node.operands[it];
            let back = self.weights[value.0] && node.phase != Phase::Forward;
            self.quantised(node, Quantised { value, home, back, to: types[it], dim: dims[it] })
        });
        let to = self.step.graph.type_of(node.results[0]).dtype;
        (Op::ScaledContract { contract, to }, vec![a, b, of_a, of_b])
    }

    /// The numbers and the scales of a value that an operation reads.
    fn quantised(&mut self, reader: &Node, key: Quantised) -> [ValueId; 2] {
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let phase = if reader.phase == Phase::Forward { Phase::Forward } else { Phase::Backward };
        let like = Node { phase, ..reader.clone() };
        let found = if let Some((id, of)) = self.view(key.value) {
            // What only is another value of the same elements stays one.
            let made = self.quantised(reader, Quantised { value: of, ..key });
            let first =
                self.first(id).and_then(|it| self.known.get(&Quantised { value: it, ..key }).copied());
            self.read_again(&self.step.graph.node(id).clone(), made, key.home, first)
        } else if self.weights[key.value.0] && self.scaling == Scaling::Whole {
            // Kept in parts, and moved to where it is needed once forward and once backward.
            let own = Quantised { back: false, ..key };
            let made = match self.kept.get(&own) {
                Some(&made) => made,
                None => self.quantise(&like, own),
            };
            self.kept.insert(own, made);
            let first = self.known.get(&own).copied().filter(|_| key.back);
            self.read_again(&like, made, key.home, first)
        } else {
            self.quantise(&like, key)
        };
        self.known.insert(key, found);
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
        made: [ValueId; 2],
        home: usize,
        first: Option<[ValueId; 2]>,
    ) -> [ValueId; 2] {
        [0, 1].map(|it: usize| {
            let type_ = self.to.type_of(made[it]).clone();
            if type_.rank() == 0 {
                return made[it];
            }
            let forward = first.and_then(|first| maker(&self.to, first[it]));
            let op = Op::Reshape { shape: type_.shape.clone() };
            self.push(like, op, vec![made[it]], vec![type_], (home, forward))[0]
        })
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

    /// The numbers and the scales of a value.
    fn quantise(&mut self, like: &Node, key: Quantised) -> [ValueId; 2] {
        let x = self.map[key.value.0];
        let type_ = self.to.type_of(x).clone();
        // What was made of it, where it is done again.
        let first = maker(&self.step.graph, key.value).and_then(|it| self.first(it));
        let first = first.and_then(|it| self.known.get(&Quantised { value: it, ..key }));
        let first = first.and_then(|it| quantiser(&self.to, it[0]));
        let codes = Type::new(key.to, &type_.shape[..]);
        let results = if let Some(dim) = key.dim {
            let mut blocks = type_.shape.clone();
            blocks[dim] /= BLOCK;
            let op = Op::QuantizeBlocks { to: key.to, dim, block: BLOCK };
            self.push(like, op, vec![x], vec![codes, Type::new(DType::U8, blocks)], (key.home, first))
        } else {
            let parts = parts(&type_.shape);
            let magnitudes = Type::new(DType::F32, &parts[..]);
            let before = first.and_then(|it| maker(&self.to, self.to.node(it).operands[1]));
            let amax = self.push(like, Op::Amax { parts }, vec![x], vec![magnitudes], (key.home, before))[0];
            // It is done where its magnitudes are found; a weight may be fetched for one of both.
            let of = first.or_else(|| maker(&self.to, amax).filter(|_| !self.weights[key.value.0]));
            let types = vec![codes, Type::new(DType::F32, [])];
            self.push(like, Op::Quantize { to: key.to }, vec![x, amax], types, (key.home, of))
        };
        [results[0], results[1]]
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

/// In how many parts the magnitudes of a value are found: as many along each dimension as it falls into, up to
/// a bound.
fn parts(shape: &[u64]) -> Vec<u64> {
    let [of_last, mut of_others] = PARTS;
    let last = shape.len().saturating_sub(1);
    let part = |(dim, &size): (usize, &u64)| {
        let most = if dim == last { of_last } else { of_others };
        let parts = gcd(size, most);
        if dim != last {
            of_others /= parts;
        }
        parts
    };
    shape.iter().enumerate().map(part).collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether rows, columns and the sum of a product that is no batch of them are multiples of what units for
/// 8 bits take.
fn is_aligned(contract: &Contract, operands: &[Type]) -> bool {
    let [mut rows, mut columns, mut summed] = [1; 3];
    for (label, &size) in contract.left.iter().zip(&operands[0].shape) {
        match (contract.right.contains(label), contract.result.contains(label)) {
            (true, true) if size > 1 => return false,
            (true, _) => summed *= size,
            (false, _) => rows *= size,
        }
    }
    for (_, &size) in
        contract.right.iter().zip(&operands[1].shape).filter(|(it, _)| !contract.left.contains(it))
    {
        columns *= size;
    }
    [rows, columns, summed].iter().all(|it: &u64| it.is_multiple_of(ALIGNED))
}

/// The dimensions of both operands that blocks lie along: the last of the left one that is summed, if it falls
/// into blocks.
fn block_dims(contract: &Contract, operands: &[Type]) -> Option<[usize; 2]> {
    let summed = |label: &Label| contract.right.contains(label) && !contract.result.contains(label);
    let left = contract.left.iter().rposition(summed)?;
    let right = contract.right.iter().position(|it| *it == contract.left[left])?;
    operands[0].shape[left].is_multiple_of(BLOCK).then_some([left, right])
}

#[cfg(test)]
mod tests;
