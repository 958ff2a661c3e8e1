//! Training steps partitioned by hand, in the ways that have names: a gated block's two products
//! between a norm and a sum, trained by AdamW.

use planner_ir::{
    AxisId, Graph, Layout, Mesh, NodeId, Optimizer, Partition, Phase, Real, Source, State, StateKind,
    ValueId, parse_graph, parse_layout, parse_partition,
};

use super::{maker, with_memory};
use crate::{Assignment, Copy, Exchanged, Loss, Plan, Precision, Recipe, Recompute};

/// How a step is partitioned: over which axis, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways<'a> {
    /// The batch.
    pub(crate) data: Option<&'a str>,
    /// The rows of the batch, where nothing else splits them.
    pub(crate) context: Option<&'a str>,
    /// Columns of the first product and rows of the second.
    pub(crate) tensor: Option<&'a str>,
    /// The sequence, around the products.
    pub(crate) sequence: Option<&'a str>,
    /// Moments.
    pub(crate) moments: Option<&'a str>,
    /// Gradients at rest.
    pub(crate) gradients: Option<&'a str>,
    /// Parameters at rest.
    pub(crate) parameters: Option<&'a str>,
    /// The only parameter of which gradients and itself are split so, if they are not of all.
    pub(crate) only: Option<&'a str>,
}

impl Ways<'_> {
    /// Nothing is split.
    pub(crate) const NONE: Self = Self {
        data: None,
        context: None,
        tensor: None,
        sequence: None,
        moments: None,
        gradients: None,
        parameters: None,
        only: None,
    };

    /// The ways of a parameter.
    fn of(self, name: &str) -> Self {
        match self.only {
            Some(only) if only != name => Self { gradients: None, parameters: None, ..self },
            _ => self,
        }
    }
}

const STEP: &str = r#"graph "step" {
  %0 = input "x" : f32[8,4,16]
  %1 = input "rate" : f32[]
  %2 = input "step" : f32[]
  %3 = total "loss" : f32[]
  %4 = parameter "norm" : f32[16]
  %5 = first_moment "norm" : f32[16]
  %6 = second_moment "norm" : f32[16]
  %7 = gradient "norm" : f32[16]
  %8 = parameter "up" : f32[16,32]
  %9 = first_moment "up" : f32[16,32]
  %10 = second_moment "up" : f32[16,32]
  %11 = gradient "up" : f32[16,32]
  %12 = parameter "down" : f32[32,16]
  %13 = first_moment "down" : f32[32,16]
  %14 = second_moment "down" : f32[32,16]
  %15 = gradient "down" : f32[32,16]
  %16 = rms_norm dims=1 epsilon=0.5 %0 %4 : f32[8,4,16]
  %17 = contract "abc,cd->abd" %16 %8 : f32[8,4,32]
  %18 = gelu %17 : f32[8,4,32]
  %19 = contract "abd,dc->abc" %18 %12 : f32[8,4,16]
  %20 = add %19 %0 : f32[8,4,16]
  %21 = reduce_sum dims=[0,1,2] %20 : f32[1,1,1]
  %22 = reshape shape=[] %21 : f32[]
  %23 = add %3 %22 : f32[]
  %24 = neg %20 : f32[8,4,16] in backward
  %25 = contract "abc,dc->abd" %24 %12 : f32[8,4,32] in backward
  %26 = contract "abd,abc->dc" %18 %24 : f32[32,16] in gradient
  %27 = add %15 %26 : f32[32,16] in gradient
  %28 = unary_gradient function=gelu %17 %25 : f32[8,4,32] in backward
  %29 = contract "abc,abd->cd" %16 %28 : f32[16,32] in gradient
  %30 = add %11 %29 : f32[16,32] in gradient
  %31 = contract "abd,cd->abc" %28 %8 : f32[8,4,16] in backward
  %32 = mul %31 %0 : f32[8,4,16] in backward
  %33 = reduce_sum dims=[0,1] %32 : f32[1,1,16] in gradient
  %34 = reshape shape=[16] %33 : f32[16] in gradient
  %35 = add %7 %34 : f32[16] in gradient
  %36 = reciprocal %23 : f32[] in update
  %37, %38, %39 = update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.125 %4 %35 %5 %6 %36 %1 %2 : f32[16], f32[16], f32[16] in update
  %40, %41, %42 = update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.125 %8 %30 %9 %10 %36 %1 %2 : f32[16,32], f32[16,32], f32[16,32] in update
  %43, %44, %45 = update_adamw beta1=0.9 beta2=0.95 epsilon=1e-8 decay=0.125 %12 %27 %13 %14 %36 %1 %2 : f32[32,16], f32[32,16], f32[32,16] in update
  %46 = mul %23 %36 : f32[] in update
  return "loss" %46
  train 1 %3 becomes %23, %4 becomes %37, %5 becomes %38, %6 becomes %39, %7 becomes %35, %8 becomes %40, %9 becomes %41, %10 becomes %42, %11 becomes %30, %12 becomes %43, %13 becomes %44, %14 becomes %45, %15 becomes %27
}
"#;

/// The step on the mesh, partitioned in those ways.
pub(crate) fn step(mesh: &str, ways: Ways<'_>, micro_batches: u64) -> Plan {
    let mesh = Mesh::parse(mesh).unwrap();
    let mut graph = parse_graph(STEP).unwrap();
    graph.training.as_mut().unwrap().micro_batches = micro_batches;
    let layouts = graph.value_ids().map(|it| rest(&mesh, &graph, it, ways)).collect();
    let nodes = graph.node_ids().map(|node| partition(&mesh, &graph, node, ways)).collect::<Vec<_>>();
    let mut plan = maker::empty(graph, mesh);
    plan.layouts = layouts;
    for (index, partition) in nodes.into_iter().enumerate() {
        let node = plan.graph.nodes[index].clone();
        let (operands, results) = (plan.graph.types_of(&node.operands), plan.graph.types_of(&node.results));
        let loops = node.op.loops(&operands, &results);
        let copies =
            node.operands.iter().enumerate().map(|(operand, &value)| {
                copy(&mut plan, value, &partition.operand(&loops, operand), node.phase)
            });
        let operands = copies.collect();
        for (result, &value) in node.results.iter().enumerate() {
            plan.layouts[value.0] = partition.result(&loops, result);
        }
        let bytes = vec![];
        plan.assignments[index] = Assignment::Computed {
            partition,
            operands,
            bytes,
            seconds: 1e-6,
            exchanged: Exchanged::default(),
        };
    }
    for (index, it) in plan.graph.training.clone().unwrap().carried.into_iter().enumerate() {
        let rest = plan.layouts[it.state.0].clone();
        plan.carried[index] = copy(&mut plan, it.next, &rest, Phase::Update);
    }
    plan.outputs = vec![Copy::Made];
    plan.estimate = maker::estimate(&plan);
    plan.recipe = Some(Recipe {
        precision: Precision::F32,
        micro_batches,
        recompute: vec![Recompute::Nothing],
        roles: crate::Roles::default(),
        ..Recipe::new(
            Loss::Output("loss".to_owned()),
            Optimizer::AdamW { beta1: Real(0.9), beta2: Real(0.95), epsilon: Real(1e-8), decay: Real(0.125) },
        )
    });
    with_memory(plan)
}

/// The layout at rest of an input or a state.
fn rest(mesh: &Mesh, graph: &Graph, value: ValueId, ways: Ways<'_>) -> Layout {
    let around = joined(&[ways.context, ways.sequence]);
    let text = match &graph.value(value).source {
        Source::Input(name) if name == "x" => format!("[{},{around},-]", joined(&[ways.data])),
        Source::State(State { kind: StateKind::Total, .. }) => {
            return Layout { dims: vec![], owed: axes(mesh, &[ways.data, ways.context, ways.sequence]) };
        }
        Source::State(State { kind, name }) => {
            let ways = ways.of(name);
            let split = joined(&[match kind {
                StateKind::Parameter => ways.parameters,
                StateKind::Gradient => ways.gradients,
                _ => ways.moments,
            }]);
            let owed = if *kind == StateKind::Gradient { owed(mesh, name, ways) } else { vec![] };
            let layout = parse_layout(mesh, &of_parameter(name, &split, ways)).unwrap();
            return Layout { owed, ..layout };
        }
        _ => return Layout::replicated(graph.type_of(value).rank()),
    };
    parse_layout(mesh, &text).unwrap()
}

/// The layout of a parameter that is split over the tensor axis as products use it, and of the
/// rest as said.
fn of_parameter(name: &str, split: &str, ways: Ways<'_>) -> String {
    let tensor = joined(&[ways.tensor]);
    match name {
        "norm" => format!("[{split}]"),
        "up" => format!("[{split},{tensor}]"),
        _ => format!("[{tensor},{split}]"),
    }
}

/// The axes over which the gradient of a parameter owes sums at rest.
fn owed(mesh: &Mesh, name: &str, ways: Ways<'_>) -> Vec<AxisId> {
    let ways = ways.of(name);
    let sequence = if name == "norm" { ways.sequence } else { None };
    let mut owed = axes(mesh, &[ways.data, ways.context, sequence]);
    owed.retain(|axis| ways.gradients.and_then(|name| mesh.axis_named(name)) != Some(*axis));
    owed
}

fn partition(mesh: &Mesh, graph: &Graph, node: NodeId, ways: Ways<'_>) -> Partition {
    let it = graph.node(node);
    let loops = it.op.loops(&graph.types_of(&it.operands), &graph.types_of(&it.results));
    let summed = axes(mesh, &[ways.data, ways.context, ways.sequence]);
    let (d, c, t) = (joined(&[ways.data]), joined(&[ways.context]), joined(&[ways.tensor]));
    let around = format!("[{d},{},-]", joined(&[ways.context, ways.sequence]));
    let parameter = |name: &str, split| of_parameter(name, &joined(&[split]), ways);
    let (text, passed) = match it.results[0].0 {
        16 | 20 | 21 | 24 | 32 | 33 => (around, vec![]),
        17 | 25 | 29 => (format!("[{d},{c},-,{t}]"), vec![]),
        18 | 28 => (format!("[{d},{c},{t}]"), vec![]),
        19 | 26 | 31 => (format!("[{d},{c},{t},-]"), vec![]),
        27 => (parameter("down", ways.of("down").gradients), owed(mesh, "down", ways)),
        30 => (parameter("up", ways.of("up").gradients), owed(mesh, "up", ways)),
        35 => (parameter("norm", ways.of("norm").gradients), owed(mesh, "norm", ways)),
        22 | 23 | 34 => return Partition { passed: summed, ..Partition::replicated(&loops) },
        37 => (parameter("norm", ways.moments), vec![]),
        40 => (parameter("up", ways.moments), vec![]),
        43 => (parameter("down", ways.moments), vec![]),
        _ => return Partition::replicated(&loops),
    };
    Partition { passed, ..parse_partition(mesh, &text).unwrap() }
}

/// Digits of these axes, as they stand in texts.
fn joined(axes: &[Option<&str>]) -> String {
    let names: Vec<&str> = axes.iter().flatten().copied().collect();
    if names.is_empty() { "-".to_owned() } else { names.join(".") }
}

fn axes(mesh: &Mesh, names: &[Option<&str>]) -> Vec<AxisId> {
    let mut axes: Vec<AxisId> = names.iter().flatten().filter_map(|name| mesh.axis_named(name)).collect();
    axes.sort_unstable();
    axes
}

/// The copy of a value in that layout: one that was made for the same part of the step, or a new
/// one. What was gathered for the forward part is gathered again for the rest.
fn copy(plan: &mut Plan, value: ValueId, layout: &Layout, phase: Phase) -> Copy {
    if plan.layouts[value.0] == *layout {
        return Copy::Made;
    }
    let part = |phase| match phase {
        Phase::Forward => 0,
        Phase::Backward | Phase::Gradient => 1,
        Phase::Update => 2,
    };
    let read_in = |transfer: usize| {
        let nodes = plan.graph.nodes.iter().zip(&plan.assignments);
        let reads = |(node, it): (&planner_ir::Node, &Assignment)| match it {
            Assignment::Computed { operands, .. } if operands.contains(&Copy::Transferred(transfer)) => {
                Some(part(node.phase))
            }
            _ => None,
        };
        nodes.filter_map(reads).next()
    };
    let known = plan.transfers.iter().enumerate().position(|(index, it)| {
        it.value == value && it.layout == *layout && read_in(index) == Some(part(phase))
    });
    if let Some(known) = known {
        return Copy::Transferred(known);
    }
    maker::transfer(plan, value, layout)
}
