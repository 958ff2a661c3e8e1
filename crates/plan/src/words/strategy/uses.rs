//! How operations use parameters, and how those are kept.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{
    AxisId, ConvolutionClass, Dims, ExpertsClass, GatherClass, Graph, Layout, LoopId, Loops, Motion, NodeId,
    Op, OpClass, Partition, Phase, Role, Source, StateKind, ValueId,
};

use crate::plan::{Assignment, Plan};
use crate::traffic::stems;
use crate::words::examples;
use crate::words::in_time::{motions, square};

/// A parameter, or in inference a weight or what is prepared of weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The value at rest.
    pub value: ValueId,
    /// What the whole of it takes (bytes).
    pub bytes: u64,
    /// The forward operations that use it, or something computed of it alone, with something else;
    /// and as which operand.
    pub used_by: Vec<(NodeId, usize)>,
    /// Whether one of them is a product or a look-up.
    pub in_product: bool,
    /// Loops of these operations that run over heads, which no shape tells from sequences.
    pub heads: Vec<(NodeId, LoopId)>,
    /// Its gradient at rest.
    pub gradient: Option<ValueId>,
    /// What the optimizer keeps of it.
    pub kept: Vec<ValueId>,
}

/// What an axis does where a parameter is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It splits the parameter.
    Split(Split),
    /// It splits the first dimension of the results that the parameter lacks.
    Batch,
    /// It splits another dimension of the results that the parameter lacks.
    Sequence,
    /// It splits heads, of which all use the same: this dimension of the results.
    Heads(usize),
    /// It splits the parameter at rest, whose blocks rotate over it.
    Rotated,
    /// It splits the parameter, of a product over two axes in which two things move.
    Square,
    /// It splits nothing.
    Whole,
}

/// Along what a parameter is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// What of a product's results it alone has.
    Columns,
    /// What is summed.
    Rows,
    /// The rows that are looked up.
    Vocabulary,
    /// Whole matrices.
    Experts,
    /// The hidden units of experts.
    Units,
    /// Whatever operations on single elements split.
    Elements,
}

impl Split {
    /// What is split so.
    pub fn name(self) -> &'static str {
        match self {
            Self::Columns => "columns",
            Self::Rows => "rows",
            Self::Vocabulary => "vocabulary",
            Self::Experts => "experts",
            Self::Units => "units",
            Self::Elements => "elements",
        }
    }
}

/// What is at rest and used with something else by forward operations, in order of the program.
///
/// # Panics
/// If the plan is not a right one.
pub fn parameters(plan: &Plan) -> Vec<Parameter> {
    let graph = &plan.graph;
    let stems = stems(plan);
    let roots = roots(plan, &stems);
    let mut states: BTreeMap<&str, Vec<(StateKind, ValueId)>> = BTreeMap::new();
    for value in graph.value_ids() {
        if let Source::State(state) = &graph.value(value).source {
            states.entry(&state.name).or_default().push((state.kind, value));
        }
    }
    let at_rest = |value: ValueId| {
        let states = match &graph.value(value).source {
            Source::State(state) => states.get(state.name.as_str()).map_or(&[][..], Vec::as_slice),
            _ => &[],
        };
        Parameter::at_rest(value, graph.type_of(value).bytes(), states)
    };
    let mut found: BTreeMap<ValueId, Parameter> = BTreeMap::new();
    for id in graph.node_ids() {
        let node = graph.node(id);
        let forward = node.phase == Phase::Forward && plan.assignments[id.0] != Assignment::Prepared;
        if !forward || node.operands.iter().all(|operand| stems[operand.0]) {
            continue;
        }
        for (operand, value) in node.operands.iter().enumerate() {
            for &root in &roots[value.0] {
                let parameter = found.entry(root).or_insert_with(|| at_rest(root));
                parameter.used_by.push((id, operand));
                parameter.in_product |= weighted(&node.op).is_some();
            }
        }
    }
    let mut found: Vec<Parameter> = found.into_values().collect();
    add_heads(graph, &mut found);
    found.sort_by_key(|it| it.used_by.first().copied());
    found
}

/// Adds the loops over heads of what uses parameters outside of products, of values with four dimensions or more.
fn add_heads(graph: &Graph, parameters: &mut [Parameter]) {
    let wide = |node: &NodeId| graph.type_of(graph.node(*node).results[0]).rank() > 3;
    let mut dims: Option<Dims> = None;
    for parameter in parameters.iter_mut().filter(|it| !it.in_product) {
        let users: BTreeSet<NodeId> = parameter.used_by.iter().map(|it| it.0).filter(wide).collect();
        for id in users {
            let dims = dims.get_or_insert_with(|| Dims::of(graph));
            let node = graph.node(id);
            let loops = node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
            let of_heads = loops.ids().filter(|&it| dims.over(node, &loops, it).is_inner());
            parameter.heads.extend(of_heads.map(|it| (id, it)));
        }
    }
}

/// For each value the weights, parameters and prepared values that it is computed of alone.
fn roots(plan: &Plan, stems: &[bool]) -> Vec<Vec<ValueId>> {
    let graph = &plan.graph;
    let mut roots: Vec<Vec<ValueId>> = Vec::new();
    // Whether weights or parameters are in a value, not constants only.
    let mut weighty: Vec<bool> = Vec::new();
    for value in graph.value_ids() {
        let (own, has) = match &graph.value(value).source {
            _ if !stems[value.0] => (vec![], false),
            Source::Result { node, .. } => {
                let operands = &graph.node(*node).operands;
                let has = operands.iter().any(|operand| weighty[operand.0]);
                if plan.assignments[node.0] == Assignment::Prepared {
                    (if has { vec![value] } else { vec![] }, has)
                } else {
                    (operands.iter().flat_map(|operand| roots[operand.0].clone()).collect(), has)
                }
            }
            _ => (vec![value], true),
        };
        roots.push(own);
        weighty.push(has);
    }
    roots
}

/// Forward operations that are made for weights: products and look-ups.
enum Weighted {
    Product,
    Lookup,
    Experts,
    Convolution,
}

fn weighted(op: &Op) -> Option<Weighted> {
    match op.class() {
        OpClass::MatrixProduct(_) => Some(Weighted::Product),
        OpClass::Gather(GatherClass::Rows) => Some(Weighted::Lookup),
        OpClass::Experts(ExpertsClass::Forward { .. }) => Some(Weighted::Experts),
        OpClass::Convolution(ConvolutionClass::Forward(_)) => Some(Weighted::Convolution),
        OpClass::Attention(_)
        | OpClass::Recurrence(_)
        | OpClass::Convolution(ConvolutionClass::InputGradient(_) | ConvolutionClass::WeightGradient(_))
        | OpClass::Experts(ExpertsClass::Gradient { .. })
        | OpClass::Gather(GatherClass::Elements | GatherClass::RowsGradient { .. })
        | OpClass::Constant
        | OpClass::Elementwise(_)
        | OpClass::Norm(_)
        | OpClass::Softmax
        | OpClass::LogSoftmax
        | OpClass::CrossEntropy
        | OpClass::Reduction
        | OpClass::Scan
        | OpClass::Movement(_)
        | OpClass::Scatter
        | OpClass::Resampling
        | OpClass::Dequantization
        | OpClass::Quantization
        | OpClass::Optimizer
        | OpClass::Region
        | OpClass::Dynamic => None,
    }
}

impl Parameter {
    fn at_rest(value: ValueId, bytes: u64, states: &[(StateKind, ValueId)]) -> Self {
        let of = |kinds: &[StateKind]| -> Vec<ValueId> {
            states.iter().filter(|it| kinds.contains(&it.0)).map(|it| it.1).collect()
        };
        Self {
            value,
            bytes,
            used_by: Vec::new(),
            in_product: false,
            heads: Vec::new(),
            gradient: of(&[StateKind::Gradient]).first().copied(),
            kept: of(&[StateKind::Master, StateKind::FirstMoment, StateKind::SecondMoment]),
        }
    }

    /// What the axis does where it is used; where products use it, only there.
    pub fn uses(&self, plan: &Plan, axis: AxisId) -> Vec<Use> {
        let counts = |node: NodeId| !self.in_product || weighted(&plan.graph.node(node).op).is_some();
        let uses = self.used_by.iter().filter(|(node, _)| counts(*node));
        uses.map(|&(node, operand)| self.use_of(plan, (node, operand), axis)).collect()
    }

    /// The stage of ZeRO along an axis along which it is used whole, from 0.
    pub fn stage(&self, plan: &Plan, axis: AxisId) -> Option<usize> {
        let split = |value: &ValueId| splits(&plan.layouts[value.0], axis);
        if split(&self.value) {
            return Some(2);
        }
        if self.gradient.iter().any(split) {
            return Some(1);
        }
        self.kept.iter().any(split).then_some(0)
    }

    /// What an axis does where an operation uses it.
    fn use_of(&self, plan: &Plan, (node, operand): (NodeId, usize), axis: AxisId) -> Use {
        let Assignment::Computed { partition, .. } = &plan.assignments[node.0] else { return Use::Whole };
        let it = plan.graph.node(node);
        let loops = it.op.loops(&plan.graph.types_of(&it.operands), &plan.graph.types_of(&it.results));
        if partition.steps > 1 {
            if square(&motions(&loops, partition)).is_some_and(|axes| axes.contains(&axis)) {
                return Use::Square;
            }
            if matches!(partition.operand_motion(&loops, operand), Motion::Rotating(it) if it.axes() == [axis])
            {
                return Use::Rotated;
            }
        }
        let own = |it: LoopId| place(&loops.operands[operand], it);
        let named: Vec<LoopId> = loops.ids().filter(|it| names(partition, *it, axis)).collect();
        if let Some((split, dim)) = named.iter().find_map(|&it| Some((it, own(it)?))) {
            return Use::Split(split_of(&it.op, &loops, operand, split, dim));
        }
        // The dimensions of the results that the parameter lacks, and the innermost part of the first:
        // a batch of sequences in one dimension has the sequence there.
        let lacks = |dim: &&Vec<LoopId>| !dim.is_empty() && dim.iter().all(|&it| own(it).is_none());
        let rows: Vec<&Vec<LoopId>> = loops.results[0].iter().filter(lacks).collect();
        for it in named {
            let Some(place) = rows.iter().position(|dim| dim.contains(&it)) else { continue };
            if let Some(dim) = self::place(&loops.results[0], it).filter(|_| self.heads.contains(&(node, it)))
            {
                return Use::Heads(dim);
            }
            let inner = rows.len() == 1 && is_inner(partition, rows[0], it, axis)
                || rows.first().is_some_and(|dim| parts(partition, dim, it, axis) > examples(&plan.graph));
            return if place == 0 && !inner { Use::Batch } else { Use::Sequence };
        }
        Use::Whole
    }
}

fn splits(layout: &Layout, axis: AxisId) -> bool {
    layout.axes().contains(&axis)
}

fn split_of(op: &Op, loops: &Loops, operand: usize, it: LoopId, dim: usize) -> Split {
    let sums = loops.get(it).role == Role::Sum;
    match weighted(op) {
        Some(Weighted::Product) if sums => Split::Rows,
        Some(Weighted::Product) => {
            let shared = (0..loops.operands.len())
                .any(|other| other != operand && place(&loops.operands[other], it).is_some());
            if shared { Split::Experts } else { Split::Columns }
        }
        Some(Weighted::Lookup) if sums => Split::Vocabulary,
        Some(Weighted::Lookup) => Split::Columns,
        Some(Weighted::Experts) if dim == 0 => Split::Experts,
        Some(Weighted::Experts) => Split::Units,
        Some(Weighted::Convolution) if dim == 0 => Split::Columns,
        Some(Weighted::Convolution) => Split::Rows,
        None => Split::Elements,
    }
}

fn names(partition: &Partition, it: LoopId, axis: AxisId) -> bool {
    partition.loops[it.0].iter().any(|digit| digit.terms.iter().any(|term| term.0 == axis))
}

/// Whether something of a dimension that is not split, or is split over other axes, stands outside
/// of what the axis splits, free.
fn is_inner(partition: &Partition, dim: &[LoopId], it: LoopId, axis: AxisId) -> bool {
    let before = dim.iter().position(|&other| other == it).unwrap_or(0);
    let whole = dim[..before].iter().any(|&other| partition.loops[other.0].is_empty());
    let digits = &partition.loops[it.0];
    let own = digits.iter().position(|digit| digit.terms.iter().any(|term| term.0 == axis)).unwrap_or(0);
    whole || digits[..own].iter().any(planner_ir::Digit::is_free)
}

/// Into how many parts a dimension falls down to what the axis splits.
fn parts(partition: &Partition, dim: &[LoopId], it: LoopId, axis: AxisId) -> u64 {
    let before = dim.iter().take_while(|&&other| other != it).map(|&other| partition.parts(other));
    let digits = &partition.loops[it.0];
    let own = digits.iter().position(|digit| digit.terms.iter().any(|term| term.0 == axis)).unwrap_or(0);
    before.chain(digits[..=own].iter().map(|digit| digit.size)).fold(1, u64::saturating_mul)
}

/// Which dimension a loop indexes.
fn place(dims: &[Vec<LoopId>], it: LoopId) -> Option<usize> {
    dims.iter().position(|dim| dim.contains(&it))
}
