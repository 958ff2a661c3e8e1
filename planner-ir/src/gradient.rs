//! The gradient of each operation, in terms of operations: declared once, here, beside the loops.
//!
//! For an operation `y = f(x..)` and the gradient `dy` of a number (the loss) towards y, the rules
//! emit the operations that make `dx`. What runs backward is a program like any other, so it is
//! partitioned, priced and checked by the same loops.

mod broadcast; // gradients of what was repeated
mod elements; // functions of elements
mod movement; // operations that move elements
mod products; // contractions, norms, attention, convolutions, experts

use std::fmt;

use crate::data::{DType, Real, Type};
use crate::graph::{Graph, Phase, ValueId};
use crate::op::Op;

/// One operation in a program, and what its gradients are made from.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// What it is computed from, as the gradients' operations may read it.
    pub operands: &'a [ValueId],
    /// What it computes, likewise.
    pub results: &'a [ValueId],
    /// For each result, the loss's gradient towards it, unless that is zero.
    pub gradients: &'a [Option<ValueId>],
    /// For each operand whose gradient is wanted, the phase of the operations that make it.
    pub wanted: &'a [Option<Phase>],
}

/// Why an operation has no gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoGradient {
    /// What is missing.
    pub reason: String,
}

impl fmt::Display for NoGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for NoGradient {}

impl NoGradient {
    fn new<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self { reason: reason.into() })
    }
}

/// The gradients towards an operation's operands: nothing where it is zero or not wanted.
pub type Gradients = Result<Vec<Option<ValueId>>, NoGradient>;

impl Op {
    /// Emits the gradients of this operation towards the operands that are wanted.
    ///
    /// Positions and tables have no gradient: of indices, of the tables of a rotary embedding, of
    /// conditions nothing is returned. Attention must return its statistics.
    pub fn gradient(&self, site: &Site<'_>, emit: &mut Emit<'_>) -> Gradients {
        let none = || Ok(vec![None; site.operands.len()]);
        if site.gradients.iter().all(Option::is_none) || site.wanted.iter().all(Option::is_none) {
            return none();
        }
        match self {
            Self::Constant { .. } | Self::Fill { .. } | Self::Iota { .. } | Self::ArgExtreme { .. } => none(),
            Self::Unary(unary) => elements::unary(*unary, site, emit),
            Self::Binary(binary) => elements::binary(*binary, site, emit),
            Self::Select => elements::select(site, emit),
            Self::Cast(_) => elements::cast(site, emit),
            Self::Gated(unary) => elements::gated(*unary, site, emit),
            Self::Dropout { ratio, .. } => elements::dropout(*ratio, site, emit),
            Self::Reduce { reduction, dims } => elements::reduce(*reduction, dims, site, emit),
            Self::Contract(contract) => products::contract(contract, site, emit),
            Self::Softmax { dim } => products::softmax(*dim, site, emit),
            Self::LogSoftmax { dim } => products::log_softmax(*dim, site, emit),
            Self::LayerNorm { dims, epsilon } => {
                products::norm(self, &Self::LayerNormGradient { dims: *dims, epsilon: *epsilon }, site, emit)
            }
            Self::RmsNorm { dims, epsilon } => {
                products::norm(self, &Self::RmsNormGradient { dims: *dims, epsilon: *epsilon }, site, emit)
            }
            Self::InstanceNorm { epsilon } => products::instance_norm(*epsilon, site, emit),
            Self::Attention(attention) => products::attention(*attention, site, emit),
            Self::Recurrence(it) => products::recurrence(*it, site, emit),
            Self::Rotary(pairing) => products::rotary(*pairing, site, emit),
            Self::Conv(conv) => products::conv(conv, site, emit),
            Self::ConvInputGradient { conv, .. } => products::conv_input_gradient(conv, site, emit),
            Self::CrossEntropy { ignored } => products::cross_entropy(*ignored, site, emit),
            Self::Experts { activation, limit, active } => {
                let (activation, limit, active) = (*activation, *limit, *active);
                let gradient = Self::ExpertsGradient { activation, limit, active, adds: vec![] };
                products::experts(gradient, site, emit)
            }
            Self::Reshape { .. } => movement::reshape(site, emit),
            Self::Transpose { permutation } => movement::transpose(permutation, site, emit),
            Self::Expand { .. } => movement::expand(site, emit),
            Self::Concat { dim } => movement::concat(*dim, site, emit),
            Self::Slice { starts, steps, .. } => movement::slice(starts, steps, site, emit),
            Self::Pad { before, after, edge } => movement::pad(before, after, *edge, site, emit),
            Self::Gather { dim } => movement::gather(*dim, site, emit),
            Self::GatherElements { dim } => movement::gather_elements(*dim, site, emit),
            Self::GatherNd { batch_dims } => movement::gather_nd(*batch_dims, site, emit),
            Self::ScatterElements { dim, scatter } => movement::scatter_elements(*dim, *scatter, site, emit),
            Self::ScatterNd { scatter } => movement::scatter_nd(*scatter, site, emit),
            Self::Triangle { .. } => site.linear(emit, self.clone()),
            Self::CumSum { dim, exclusive, reverse } => {
                let back = Self::CumSum { dim: *dim, exclusive: *exclusive, reverse: !reverse };
                site.linear(emit, back)
            }
            Self::TopK { dim, .. } => movement::top_k(*dim, site, emit),
            Self::Resize(_)
            | Self::Dequantize { .. }
            | Self::RoundStochastically { .. }
            | Self::Amax { .. }
            | Self::Quantize { .. }
            | Self::QuantizeBlocks { .. }
            | Self::QuantizeNvfp4(_)
            | Self::Remember
            | Self::ScaledContract { .. }
            | Self::UnaryGradient(_)
            | Self::GatedGradient(_)
            | Self::SoftmaxGradient { .. }
            | Self::LayerNormGradient { .. }
            | Self::RmsNormGradient { .. }
            | Self::AttentionMerge
            | Self::AttentionGradient { .. }
            | Self::RotaryGradient(_)
            | Self::GatherGradient { .. }
            | Self::ConvWeightGradient { .. }
            | Self::CrossEntropyGradient { .. }
            | Self::ExpertsGradient { .. }
            | Self::Update(_)
            | Self::Region(_)
            | Self::Dynamic(_) => NoGradient::new(format!("`{}` has no gradient", self.name())),
        }
    }
}

impl Site<'_> {
    /// The gradient towards the only result, or the first one.
    fn gradient(&self) -> Option<ValueId> {
        self.gradients[0]
    }

    /// The gradients towards each wanted operand, made one by one from the first result's.
    fn each(
        &self,
        emit: &mut Emit<'_>,
        mut rule: impl FnMut(&mut Emit<'_>, usize, ValueId) -> Result<Option<ValueId>, NoGradient>,
    ) -> Gradients {
        let Some(dy) = self.gradient() else { return Ok(vec![None; self.operands.len()]) };
        let mut gradients = Vec::new();
        for (operand, wanted) in self.wanted.iter().enumerate() {
            gradients.push(match wanted {
                Some(phase) => {
                    emit.phase = *phase;
                    rule(emit, operand, dy)?
                }
                None => None,
            });
        }
        Ok(gradients)
    }

    /// The gradient towards the only operand is an operation on the result's.
    fn linear(&self, emit: &mut Emit<'_>, op: Op) -> Gradients {
        self.each(emit, |emit, _, dy| Ok(Some(emit.one(op.clone(), &[dy]))))
    }

    /// The phase of operations that make several gradients at once.
    fn joint_phase(&self) -> Phase {
        let activations = self.wanted.contains(&Some(Phase::Backward));
        if activations { Phase::Backward } else { Phase::Gradient }
    }

    /// Those of an operation's results that are wanted, for operands in this order.
    fn among(&self, order: &[usize], results: &[ValueId]) -> Vec<Option<ValueId>> {
        let mut gradients = vec![None; self.operands.len()];
        for (&operand, &result) in order.iter().zip(results) {
            gradients[operand] = self.wanted[operand].map(|_| result);
        }
        gradients
    }
}

/// Adds operations to a program.
#[derive(Debug)]
pub struct Emit<'a> {
    /// The program.
    pub graph: &'a mut Graph,
    /// The phase of what is added.
    pub phase: Phase,
    /// What the model file calls the operation whose gradient it is.
    pub origin: &'a str,
}

impl Emit<'_> {
    /// Adds an operation; its results.
    ///
    /// # Panics
    /// If the operands do not fit it, which is an error of the rule that adds it.
    pub fn all(&mut self, op: Op, operands: &[ValueId]) -> Vec<ValueId> {
        let types = self.graph.types_of(operands);
        let types = op.infer(&types).unwrap_or_else(|error| panic!("`{}` of a gradient: {error}", op.name()));
        self.graph.push_node_in(self.phase, op, operands.to_vec(), types, self.origin.to_owned())
    }

    /// Adds an operation; its only result.
    ///
    /// # Panics
    /// As [`Emit::all`].
    pub fn one(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.all(op, operands)[0]
    }

    /// A number as a value of no dimensions.
    pub fn number(&mut self, dtype: DType, value: f64) -> ValueId {
        self.filled(Type::new(dtype, []), value)
    }

    /// A number, repeated.
    pub fn filled(&mut self, result: Type, value: f64) -> ValueId {
        self.one(Op::Fill { result, value: Real(value) }, &[])
    }

    /// The type of a value.
    pub fn type_of(&self, value: ValueId) -> Type {
        self.graph.type_of(value).clone()
    }
}
