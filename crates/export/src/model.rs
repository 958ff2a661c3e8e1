//! The sizes of a model, read off its program.

mod named; // what the names of parameters tell
mod rotation; // by which base queries and keys are rotated
pub(crate) mod traits; // what models have that not every decoder has
mod unlike; // what is not as decoders usually are

use std::collections::BTreeSet;

use plan::{Plan, parameters};
use planner_ir::{GatherClass, Graph, Node, Op, OpClass, Pairing, Phase, Source, Unary, ValueId};

use crate::job::Job;

pub use rotation::Rotation;
pub use traits::Trait;

/// What of a model frameworks are told; nothing where its program does not have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// How many numbers stand for a token.
    pub hidden: Option<u64>,
    /// How many tokens the table of embeddings has.
    pub vocabulary: Option<u64>,
    /// What the table of embeddings is called.
    pub embedding: Option<String>,
    /// How many tokens an example has.
    pub sequence: Option<u64>,
    /// Heads of queries, of keys, and how many numbers each has.
    pub heads: Option<[u64; 3]>,
    /// How many hidden units a layer without experts has.
    pub units: Option<u64>,
    /// The vectors that queries, keys and values are made of, if attention is latent (MLA).
    pub latent: Option<Latent>,
    /// Whether queries and keys are normalised, or the vectors that they are made of.
    pub query_norms: bool,
    /// Experts of a layer, if layers have some.
    pub experts: Option<Experts>,
    /// How many hidden units every token takes beside those of its experts.
    pub shared: Option<u64>,
    /// For each layer whether it has experts.
    pub layers_with_experts: Vec<bool>,
    /// Whether experts are chosen by sigmoids, with a bias that the choice alone has.
    pub router_bias: bool,
    /// Whether experts have weights by a softmax over all experts, which those of a token do not sum to 1.
    pub softmax_before_choice: bool,
    /// Whether hidden units are gated by SiLU.
    pub gated: bool,
    /// What bounds the units of experts whose gate is `x sigmoid(1.702 x)`, and whose other half has 1 added.
    pub bounded: Option<f64>,
    /// Whether the softmax of attention has a learned score beside those of keys (sinks).
    pub sinks: bool,
    /// For each attention how many keys a query sees at most, in the order of layers.
    pub windows: Vec<Option<u64>>,
    /// Whether norms are those of the root mean square; and what is added to it.
    pub root_mean_square: Option<f64>,
    /// Whether positions are rotated into queries and keys.
    pub rotary: bool,
    /// How many positions have learned vectors, if some have.
    pub positions: Option<u64>,
    /// By which frequencies, if the file of the model has them.
    pub rotation: Option<Rotation>,
    /// How many numbers of a head are rotated.
    pub rotated: Option<u64>,
    /// Whether neighbours are rotated with each other.
    pub neighbours: bool,
    /// For each attention whether its queries are rotated, in the order of layers.
    pub turned: Vec<bool>,
    /// Whether all products have biases, those of queries, keys and values and others.
    pub biases: bool,
    /// Whether products that make queries, keys and values have biases.
    pub biases_of_queries: bool,
    /// Whether what every token takes beside its experts is weighed.
    pub shared_gate: bool,
    /// All that not every decoder has.
    pub traits: BTreeSet<Trait>,
    /// Whether the table of embeddings makes the scores too.
    pub tied: bool,
    /// Whether it computes in bf16, in f16, or in f32.
    pub element: Option<planner_ir::DType>,
}

/// The lengths of vectors of latent attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// The vector that queries are made of, if they are made of one.
    pub query_rank: Option<u64>,
    /// The vector that keys and values are made of.
    pub rank: u64,
    /// Of a head's query and key, the part that is not rotated.
    pub plain: u64,
    /// The part that is.
    pub rotated: u64,
    /// A head's value.
    pub value: u64,
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many there are.
    pub count: u64,
    /// How many a token uses.
    pub active: u64,
    /// How many hidden units each has.
    pub units: u64,
}

/// A number of parts of a head.
pub(crate) fn small(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Model {
    /// That of a job.
    pub fn of(job: &Job<'_>) -> Self {
        let stages = job.stages();
        let rotation = job.frequencies().and_then(Rotation::of);
        let mut model = Self { tied: true, rotation, ..Self::default() };
        for plan in &stages {
            model.look_at(plan);
        }
        named::look_at(&mut model, &stages);
        unlike::look_at(&mut model, &stages);
        traits::complete(&mut model);
        model
    }

    fn look_at(&mut self, plan: &Plan) {
        let graph = &plan.graph;
        self.tables(plan);
        for node in graph.nodes.iter().filter(|node| node.phase == Phase::Forward) {
            let shape = |value: ValueId| graph.type_of(value).shape.as_slice();
            match &node.op {
                Op::Attention(attention) => {
                    self.attention(graph, node);
                    self.sinks |= attention.sinks;
                    let rotation = unlike::rotation(graph, node.operands[0]);
                    self.turned.push(rotation.is_some());
                    if let Some((numbers, pairing)) = rotation {
                        self.rotated = Some(numbers);
                        self.neighbours = pairing == Pairing::Neighbours;
                    }
                    self.windows.push(attention.window);
                }
                Op::Experts { activation, limit, active } => {
                    if let [count, units, _] = *shape(node.operands[2]) {
                        self.experts.get_or_insert(Experts { count, active: *active, units });
                        self.softmax_before_choice |= unlike::softmax_before_choice(graph, node, count);
                    }
                    match limit {
                        Some(limit) if *activation == Unary::GeluQuick => self.bounded = Some(limit.0),
                        _ if node.operands.len() > 4 => self.gate(*activation),
                        _ => {}
                    }
                }
                Op::Gated(activation) => {
                    self.gate(*activation);
                    self.units = self.units.max(shape(node.results[0]).last().copied());
                }
                Op::Unary(Unary::Gelu | Unary::GeluTanh | Unary::GeluQuick | Unary::Relu | Unary::Silu)
                    if shape(node.results[0]).len() > 1 =>
                {
                    self.units = self.units.max(shape(node.results[0]).last().copied());
                }
                Op::RmsNorm { epsilon, .. } => self.root_mean_square = Some(epsilon.0),
                Op::Rotary(_) => self.rotary = true,
                Op::Contract(_) => {
                    let element = graph.type_of(node.results[0]).dtype;
                    self.element = self.element.or(Some(element)).filter(|it| it.is_half()).or(Some(element));
                }
                _ => {}
            }
        }
    }

    fn gate(&mut self, activation: Unary) {
        match activation {
            Unary::Silu => self.gated = true,
            _ => _ = self.traits.insert(Trait::GatedOtherwise),
        }
    }

    fn attention(&mut self, graph: &Graph, node: &Node) {
        let of = |operand: usize| graph.type_of(node.operands[operand]).shape.clone();
        if let ([_, queries, _, size], [_, keys, ..]) = (&of(0)[..], &of(1)[..]) {
            self.heads.get_or_insert([*queries, *keys, *size]);
        }
    }

    /// The table of which the most rows are looked up.
    fn tables(&mut self, plan: &Plan) {
        let graph = &plan.graph;
        for it in parameters(plan) {
            let looked_up = it.used_by.iter().find(|(node, operand)| {
                *operand == 0 && graph.node(*node).op.class() == OpClass::Gather(GatherClass::Rows)
            });
            let name = match &graph.value(it.value).source {
                Source::State(state) => &state.name,
                Source::Weight(name) => name,
                Source::Input(_) | Source::Result { .. } => continue,
            };
            let (Some((node, _)), [rows, columns]) = (looked_up, &graph.type_of(it.value).shape[..]) else {
                continue;
            };
            if self.vocabulary.is_none_or(|known| known < *rows) {
                let numbers = &graph.type_of(graph.node(*node).operands[1]).shape;
                self.sequence = numbers.get(1).copied().or(self.sequence);
                (self.vocabulary, self.hidden, self.embedding) =
                    (Some(*rows), Some(*columns), Some(name.clone()));
            }
        }
    }
}
