//! The floating-point operations that a model needs for a step, as utilisation (MFU) counts them.
//!
//! ```text
//! F = 6 · (parameters in products) · tokens + 12 · layers · heads · head size · seq · tokens
//! ```
//!
//! A product of `[m, k]` and `[k, n]` counts 2 m n k, and backward as much again for each operand that has a
//! gradient: 6 for each parameter and token where everything is trained, 2 where nothing is. What is computed
//! again does not count, nor does anything but products. A recurrence counts its passes over the state of each
//! token, with attention. Attention counts whole, as if every query saw every key;
//! what masks and windows let through of it is counted beside that, half of it for a causal mask.
//!
//! Source: PaLM (Chowdhery et al., 2022, arXiv 2204.02311), appendix B; Megatron-LM (Narayanan et al., SC21),
//! section 5.1, with recomputation left out and the shape of each product counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Add, AddAssign, Mul};

use planner_ir::{
    Attention, AttentionClass, Contract, ConvolutionClass, ExpertsClass, GatherClass, Graph, Node, OpClass,
    Phase, Source, StateKind, Type, ValueId,
};

use crate::compute::Seen;
use crate::machine::{Device, Precision};
use crate::units::{Flops, Seconds, exact};
use crate::work::{expert_weights, product_sizes, window_sizes};

/// Floating-point operations of one arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// Products with weights.
    pub products: Flops,
    /// Scores of attention, and their products with values: of every query with every key.
    pub attention: Flops,
    /// The part of that which causal masks and windows let through.
    pub seen: Flops,
}

/// Floating-point operations of a step, by arithmetic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelFlops(BTreeMap<Precision, Counted>);

/// What a program needs, and what it makes of what other stages of a pipeline have made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepWork {
    /// Floating-point operations of a step.
    pub flops: ModelFlops,
    /// Tokens of a step: of those that rows of an embedding are looked up for; 0 where there are none.
    pub tokens: u64,
    /// The outputs that have a gradient.
    pub learned: BTreeSet<String>,
}

impl Counted {
    /// Products and attention, whole.
    #[must_use]
    pub fn total(self) -> Flops {
        self.products + self.attention
    }

    /// Products, and what masks let through of attention.
    #[must_use]
    pub fn total_seen(self) -> Flops {
        self.products + self.seen
    }
}

impl ModelFlops {
    /// Operations of one arithmetic.
    #[must_use]
    pub fn of(precision: Precision, counted: Counted) -> Self {
        Self(BTreeMap::from([(precision, counted)]))
    }

    /// Operations of all arithmetics.
    #[must_use]
    pub fn all(&self) -> Counted {
        self.0.values().copied().fold(Counted::default(), Add::add)
    }

    /// How long a device would compute at its peak rates of dense products, by `count` of each arithmetic.
    #[must_use]
    pub fn at_peak(&self, device: &Device, count: impl Fn(Counted) -> Flops) -> Seconds {
        self.0.iter().map(|(&precision, &it)| count(it) / device.matrix_peak.at(precision).value).sum()
    }
}

impl StepWork {
    /// What a program needs for a step; `learned` says which of its inputs have a gradient.
    ///
    /// Products of the forward phase count, which has each once, and backward as many as follow from what is
    /// trained: so operations that are done again do not.
    #[must_use]
    pub fn of(graph: &Graph, learned: &dyn Fn(&str) -> bool) -> Self {
        let mut walk = Walk { graph, learns: Vec::new(), fixed: Vec::new() };
        let mut work = Self::default();
        let mut tokens = 0;
        for value in &graph.values {
            let (learns, fixed) = match &value.source {
                Source::Input(name) => (learned(name) && value.type_.dtype.is_float(), false),
                Source::Weight(_) => (false, true),
                Source::State(state) => {
                    (matches!(state.kind, StateKind::Parameter | StateKind::Master), true)
                }
                Source::Result { node, index } => {
                    let it = graph.node(*node);
                    if *index == 0 && it.phase == Phase::Forward {
                        let (counted, places) = walk.counted(it);
                        let runs = graph.runs(*node);
                        work.flops += ModelFlops::of(walk.precision(it), exact(runs) * counted);
                        tokens = tokens.max(places.saturating_mul(runs));
                    }
                    let from = &it.operands;
                    let learns = from.iter().any(|&it| walk.learns(it));
                    (learns && value.type_.dtype.is_float(), from.iter().all(|&it| walk.fixed(it)))
                }
            };
            walk.learns.push(learns);
            walk.fixed.push(fixed);
        }
        let outputs = graph.outputs.iter().filter(|it| walk.learns(it.value));
        Self { tokens, learned: outputs.map(|it| it.name.clone()).collect(), ..work }
    }
}

/// A walk over a program in its order.
struct Walk<'a> {
    graph: &'a Graph,
    /// For each value so far, whether it has a gradient.
    learns: Vec<bool>,
    /// For each value so far, whether it is made of weights and constants alone.
    fixed: Vec<bool>,
}

impl Walk<'_> {
    fn learns(&self, value: ValueId) -> bool {
        self.learns.get(value.0).copied().unwrap_or(false)
    }

    fn fixed(&self, value: ValueId) -> bool {
        self.fixed.get(value.0).copied().unwrap_or(false)
    }

    /// How often a product is computed, forward and for gradients of these operands.
    fn times(&self, operands: &[ValueId]) -> f64 {
        1.0 + operands.iter().map(|&it| f64::from(u8::from(self.learns(it)))).sum::<f64>()
    }

    /// The arithmetic of a product: that of its first operand.
    fn precision(&self, node: &Node) -> Precision {
        node.operands
            .first()
            .map_or(Precision::F32, |&it| Precision::of_op(&node.op, self.graph.type_of(it).dtype))
    }

    /// What an operation counts, and for how many places it looks up rows of a weight.
    fn counted(&self, node: &Node) -> (Counted, u64) {
        let types = self.graph.types_of(&node.operands);
        let products = |flops: f64| (Counted { products: Flops(flops), ..Counted::default() }, 0);
        match node.op.class() {
            OpClass::MatrixProduct(contract) => (self.product(contract, node, &types), 0),
            OpClass::Attention(AttentionClass::Forward(it)) => (self.attention(it, node, &types), 0),
            OpClass::Experts(ExpertsClass::Forward { active }) => {
                let (rows, up) = (types[0].shape[0] * active, &types[2].shape);
                let of_each = 2.0 * exact(rows) * exact(up[1]) * exact(up[2]);
                let count = exact(expert_weights(&types));
                products(count * of_each * self.times(&[node.operands[0], node.operands[2]]))
            }
            OpClass::Convolution(ConvolutionClass::Forward(conv)) => {
                let result = self.graph.type_of(node.results[0]);
                let sizes = window_sizes(conv, &types[1], result).map(exact);
                products(2.0 * sizes.iter().product::<f64>() * self.times(&node.operands[..2]))
            }
            // Forward, this is a transposed convolution.
            OpClass::Convolution(ConvolutionClass::InputGradient(conv)) => {
                let sizes = window_sizes(conv, &types[0], &types[1]).map(exact);
                products(2.0 * sizes.iter().product::<f64>() * self.times(&node.operands[..2]))
            }
            // Each token writes into a state and reads it, and reads what a delta rule replaces.
            OpClass::Recurrence(it) if it.gradient().is_some() => {
                let (keys, values) = (&types[1].shape, &types[2].shape);
                let state = exact(values.iter().product::<u64>()) * exact(keys[3]);
                let passes = if it.replaces() { 3.0 } else { 2.0 };
                let flops = Flops(2.0 * passes * state * self.times(&[node.operands[0], node.operands[2]]));
                (Counted { attention: flops, seen: flops, ..Counted::default() }, 0)
            }
            OpClass::Gather(GatherClass::Rows) => (Counted::default(), self.looked_up(node)),
            // Gradients follow from the products that they are of.
            OpClass::Attention(AttentionClass::Gradient(_) | AttentionClass::Merge)
            | OpClass::Recurrence(_)
            | OpClass::Experts(ExpertsClass::Gradient { .. })
            | OpClass::Convolution(ConvolutionClass::WeightGradient(_))
            | OpClass::Gather(GatherClass::Elements | GatherClass::RowsGradient { .. })
            | OpClass::Elementwise(_)
            | OpClass::Norm(_)
            | OpClass::Movement(_)
            | OpClass::Softmax
            | OpClass::LogSoftmax
            | OpClass::CrossEntropy
            | OpClass::Reduction
            | OpClass::Scan
            | OpClass::Constant
            | OpClass::Scatter
            | OpClass::Resampling
            | OpClass::Dequantization
            | OpClass::Quantization
            | OpClass::Optimizer
            | OpClass::Region
            | OpClass::Dynamic => (Counted::default(), 0),
        }
    }

    fn product(&self, contract: &Contract, node: &Node, types: &[Type]) -> Counted {
        let [batch, m, n, k] = product_sizes(contract, types).map(exact);
        let flops = Flops(2.0 * batch * m * n * k * self.times(&node.operands[..2]));
        let [left, right] = [0, 1].map(|it: usize| self.fixed(node.operands[it]));
        match (left, right) {
            // Where nothing is summed it is a pass over memory.
            _ if k <= 1.0 => Counted::default(),
            // Made of weights alone, for whatever number of tokens.
            (true, true) => Counted::default(),
            (false, false) => Counted { attention: flops, seen: flops, ..Counted::default() },
            (true, false) | (false, true) => Counted { products: flops, ..Counted::default() },
        }
    }

    fn attention(&self, attention: &Attention, node: &Node, types: &[Type]) -> Counted {
        let [q, k, v] = [0, 1, 2].map(|it: usize| &types[it].shape);
        let [queries, keys] = [q[2], k[2]];
        let pairs = 2.0 * exact(q[0] * q[1]) * exact(queries) * exact(keys);
        let scores = pairs * exact(q[3]) * self.times(&node.operands[..2]);
        let learns = node.operands[..2].iter().any(|&it| self.learns(it));
        let values = self.times(&node.operands[2..3]) + f64::from(u8::from(learns));
        let whole = scores + pairs * exact(v[3]) * values;
        let seen = match attention.window {
            None if !attention.causal => 1.0,
            window => Seen::earlier([queries, keys], keys, window).average / exact(keys.max(1)),
        };
        Counted { attention: Flops(whole), seen: Flops(whole * seen), ..Counted::default() }
    }

    /// For how many places rows of a table are looked up by what is given.
    fn looked_up(&self, node: &Node) -> u64 {
        let [rows, places] = [0, 1].map(|it: usize| node.operands[it]);
        // A row for each place, rather than the places of a mask in another order.
        let made = &self.graph.type_of(node.results[0]).shape;
        let is_table =
            self.graph.type_of(rows).rank() > 1 && made.starts_with(&self.graph.type_of(places).shape);
        let is_looked_up = is_table && self.fixed(rows) && !self.fixed(places);
        if is_looked_up { self.graph.type_of(places).elements() } else { 0 }
    }
}

impl Add for Counted {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            products: self.products + other.products,
            attention: self.attention + other.attention,
            seen: self.seen + other.seen,
        }
    }
}

impl Mul<Counted> for f64 {
    type Output = Counted;
    fn mul(self, it: Counted) -> Counted {
        Counted { products: self * it.products, attention: self * it.attention, seen: self * it.seen }
    }
}

/// Nothing of an arithmetic leaves no entry.
impl AddAssign for ModelFlops {
    fn add_assign(&mut self, other: Self) {
        for (precision, counted) in other.0.into_iter().filter(|(_, it)| it.total() > Flops(0.0)) {
            let sum = self.0.entry(precision).or_default();
            *sum = *sum + counted;
        }
    }
}

#[cfg(test)]
mod tests;
