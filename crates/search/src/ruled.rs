//! Rules: what each axis of a mesh is for, so that only plans of a kind are looked at.
//!
//! Those who split models by hand give each axis one thing to do, for all operations alike. A rule leaves of
//! the ways to compute each forward operation those in which no axis does anything else, and of these the ones
//! that split as much of examples and sequences as any, and products with as many axes as any. Gradients go
//! with what they are of. Of the layouts in which states are kept it leaves those of a stage of ZeRO, or below;
//! where the stage is exact, of these the ones that are sharded over as many axes as any. Weights that are no
//! states are used as they lie, but where that stage is the third.

use std::sync::Arc;

use plan::Parallelism;
use planner_ir::{
    AxisId, Dims, ElementwiseClass, Graph, Layout, LoopId, Loops, Node, NodeId, Op, OpClass, Over, Partition,
    Phase, Source, State, StateKind,
};
use rewrite::{Edge, Space};

use crate::section::Section;

/// An axis of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ruled {
    /// What it is for.
    pub role: Parallelism,
    /// What it does to experts.
    pub experts: OverExperts,
    /// Whether states are sharded over it.
    pub shards: bool,
}

/// What an axis does to experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverExperts {
    /// What it does to other products.
    AsOthers,
    /// The same, or they are split over it.
    MaySplit,
    /// They are split over it, and nothing else of them is.
    Split,
    /// The hidden units of each are split over it, and nothing else.
    Units,
}

/// What all axes of a mesh are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Each axis.
    pub axes: Vec<Ruled>,
    /// Whether tensor parallel axes split sequences between products.
    pub sequence: bool,
    /// The highest stage of ZeRO.
    pub zero: u8,
    /// Whether states are sharded as far as that stage says, and sequences split wherever they may be, and not
    /// only no further.
    pub exact: bool,
    /// Whether, besides, gradients owe their sums until the update, below the stage that shards them.
    pub sums_once: bool,
}

impl Rules {
    /// Whether a state may be kept so.
    pub fn keeps(&self, state: &State, layout: &Layout) -> bool {
        let Some(level) = level(state) else { return true };
        let allowed = |axis: usize| {
            let it = &self.axes[axis];
            let of_experts = || {
                it.experts != OverExperts::AsOthers && layout.dims.len() > 2 && names(&layout.dims[0], axis)
            };
            it.role == Parallelism::Tensor || it.shards && self.zero >= level || of_experts()
        };
        layout.axes().into_iter().all(|axis| allowed(axis.0))
    }

    /// Over how many of the axes that shard it a state in this layout is sharded. Of gradients that are
    /// summed once in a step, over how many axes of examples and sequences they owe that.
    pub fn shards(&self, state: &State, layout: &Layout) -> usize {
        match level(state) {
            Some(level) if self.zero >= level => {
                layout.axes().into_iter().filter(|axis| self.axes[axis.0].shards).count()
            }
            _ if self.sums_once && state.kind == StateKind::Gradient => {
                let is_tensor = |axis: &&AxisId| self.axes[axis.0].role == Parallelism::Tensor;
                layout.owed.iter().filter(|axis| !is_tensor(axis)).count()
            }
            _ => 0,
        }
    }

    /// Which of some ways to compute a forward operation are left; all, if none is as the rule wants.
    fn left(&self, (graph, dims): (&Graph, &Dims), node: NodeId, partitions: &[&Partition]) -> Vec<bool> {
        let it = graph.node(node);
        let loops = it.op.loops(&graph.types_of(&it.operands), &graph.types_of(&it.results));
        let product = is_product(&it.op);
        let is_stream = is_stream(dims, it, &loops);
        let over: Vec<Over> = loops.ids().map(|of| dims.over(it, &loops, of)).collect();
        let allowed: Vec<bool> =
            partitions.iter().map(|partition| self.allows(&it.op, (&over, is_stream), partition)).collect();
        let count = |partition: &Partition, of_tensor: bool| {
            let is = |axis: &planner_ir::AxisId| (self.axes[axis.0].role == Parallelism::Tensor) == of_tensor;
            partition.axes().iter().filter(|axis| is(axis)).count()
        };
        // The scores of all tokens are brought together for their loss, or not.
        let wide = product && !makes_scores(graph, node);
        let along_sequence = self.exact && self.sequence && is_stream;
        let score = |partition: &Partition| {
            let tensor = if wide || along_sequence { count(partition, true) } else { 0 };
            (count(partition, false), tensor)
        };
        let scores =
            || partitions.iter().zip(&allowed).filter(|(_, allowed)| **allowed).map(|(it, _)| score(it));
        match scores().max() {
            None => vec![true; partitions.len()],
            Some(most) => {
                partitions.iter().zip(&allowed).map(|(it, allowed)| *allowed && score(it) == most).collect()
            }
        }
    }

    fn allows(&self, op: &Op, (over, is_stream): (&[Over], bool), partition: &Partition) -> bool {
        let passes =
            matches!(op.class(), OpClass::Movement(_) | OpClass::Elementwise(ElementwiseClass::Choice));
        if partition.steps > 1 || !(partition.passed.is_empty() || passes) {
            return false;
        }
        over.iter().zip(&partition.loops).all(|(&over, digits)| {
            let mut axes = digits.iter().flat_map(|digit| &digit.terms).map(|term| term.0);
            axes.all(|axis| self.splits(&self.axes[axis.0], op, over, is_stream))
        })
    }

    fn splits(&self, axis: &Ruled, op: &Op, over: Over, is_stream: bool) -> bool {
        let of_experts = matches!(op.class(), OpClass::Experts(_));
        match axis.experts {
            OverExperts::Split if of_experts => return over.experts,
            OverExperts::Units if of_experts => return over.inner,
            _ if over.experts => return axis.experts != OverExperts::AsOthers,
            _ => {}
        }
        match axis.role {
            Parallelism::Data => over.examples,
            Parallelism::Context => over.sequence,
            Parallelism::Tensor => {
                let between = !is_product(op);
                over.inner && !is_stream || over.sequence && self.sequence && between
            }
        }
    }
}

/// The stage of ZeRO from which on a state is sharded.
fn level(state: &State) -> Option<u8> {
    match state.kind {
        StateKind::Parameter => Some(3),
        StateKind::Gradient => Some(2),
        StateKind::Master | StateKind::FirstMoment | StateKind::SecondMoment => Some(1),
        StateKind::Total | StateKind::Largest | StateKind::History => None,
    }
}

/// Leaves the choices of a section's forward operations that a rule wants, and of the moves of weights those that
/// it allows.
pub(crate) fn restrict(section: &Section, space: &mut Arc<Space>, rules: &Rules) {
    let graph = &section.graph;
    let on_parameters = graph.on_parameters();
    let dims = Dims::of(graph);
    let space = Arc::make_mut(space);
    for (node, choices) in graph.node_ids().zip(&mut space.choices) {
        if choices.len() < 2 || graph.node(node).phase != Phase::Forward || on_parameters[node.0] {
            continue;
        }
        let partitions: Vec<&Partition> = choices.iter().map(|it| &it.partition).collect();
        let left = rules.left((graph, &dims), node, &partitions);
        if left.contains(&false) {
            let kept = choices.iter().zip(left).filter(|(_, is_left)| *is_left);
            *choices = kept.map(|(choice, _)| choice.clone()).collect();
        }
    }
    for value in graph.value_ids().filter(|_| rules.zero < 3) {
        let at_rest = matches!(graph.value(value).source, Source::Weight(_)) || space.prepared[value.0];
        if at_rest && !space.moves[value.0].iter().all(sends_nothing) {
            let kept = space.moves[value.0].iter().filter(|it| sends_nothing(it));
            space.moves[value.0] = kept.cloned().collect();
        }
    }
}

/// Whether a move sends nothing.
fn sends_nothing(edge: &Edge) -> bool {
    !edge.step.travels()
}

fn is_product(op: &Op) -> bool {
    matches!(op.class(), OpClass::MatrixProduct(_) | OpClass::Attention(_) | OpClass::Experts(_))
}

/// Whether an operation is of what goes from layer to layer: norms, and sums of values of one shape. No axis
/// splits a token's numbers there. Of heads, none of which needs another's numbers, it is not.
fn is_stream(dims: &Dims, node: &Node, loops: &Loops) -> bool {
    let whole = |dims: &Vec<Vec<LoopId>>| dims.len() > 1 && dims.iter().all(|dim| !dim.is_empty());
    let is = match node.op.class() {
        OpClass::Norm(_) => true,
        OpClass::Elementwise(ElementwiseClass::Binary(planner_ir::Binary::Add)) => {
            loops.operands.iter().all(whole)
        }
        _ => false,
    };
    is && !dims.has_heads(node, loops)
}

/// Whether what an operation makes is used by a loss, or by nothing in its block, but for its shape or type.
fn makes_scores(graph: &Graph, node: NodeId) -> bool {
    let mut value = graph.node(node).results[0];
    for _ in 0..graph.nodes.len() {
        let users: Vec<_> = graph.nodes.iter().filter(|it| it.operands.contains(&value)).collect();
        match users.iter().find(|it| it.phase == Phase::Forward) {
            Some(user) => match user.op.class() {
                OpClass::CrossEntropy | OpClass::LogSoftmax | OpClass::Reduction => return true,
                OpClass::Movement(_) | OpClass::Elementwise(ElementwiseClass::Choice) => {
                    value = user.results[0]
                }
                _ => return false,
            },
            None => return graph.outputs.iter().any(|it| it.value == value),
        }
    }
    false
}

fn names(digits: &[planner_ir::Digit], axis: usize) -> bool {
    digits.iter().flat_map(|digit| &digit.terms).any(|term| term.0.0 == axis)
}

#[cfg(test)]
mod tests;
