//! What moves while an operation is done: between the steps of a partition in time, or with rows that are routed.

use planner_ir::{Graph, Loops, Mesh, Motion, NodeId, Partition, Route, Type, ValueId};

use crate::plan::{Assignment, Plan};

/// For each operand and then each result, what all devices together receive of its blocks each
/// time that the operation runs (bytes); nothing for a partition of one step in which no rows are routed.
///
/// With T steps, blocks of S bytes, p devices, and g of them along the axis that is streamed over:
///
/// ```text
/// rotating     (T − 1) p S           each device gets its next block, or sum, from a neighbour
/// streaming    T (p / g) (g − 1) S   an operand is given to a group, or a result reduced to one of it
/// otherwise    0
/// ```
///
/// The blocks of a result that rotates are of [`DType::accumulated`](planner_ir::DType::accumulated).
///
/// Where rows are routed in groups of g devices, blocks of S bytes being those of all rows of a group:
///
/// ```text
/// rows         p r(S / g)            what [`RoutedRows::received`](planner_ir::RoutedRows::received) says
/// gates        p S (g − 1) / g
/// ```
pub fn bytes_of_steps(
    mesh: &Mesh,
    loops: &Loops,
    (operands, results): (&[Type], &[Type]),
    partition: &Partition,
) -> Vec<u64> {
    if !partition.moves() {
        return Vec::new();
    }
    if partition.steps == 1 {
        let group = partition.routed_group();
        let received = |(route, block): (Route, Type)| {
            let own = block.bytes() / group;
            mesh.devices().saturating_mul(match route {
                Route::Stays => 0,
                Route::Rows => partition.routed_rows(loops).map_or(0, |rows| rows.received(own, group)),
                Route::Gates => own * (group - 1),
            })
        };
        return partition.routes(loops, operands, results).into_iter().map(received).collect();
    }
    let operand = |(index, type_): (usize, &Type)| {
        let block = partition.operand(loops, index).local_bytes(type_);
        received(mesh, partition.steps, &partition.operand_motion(loops, index)).saturating_mul(block)
    };
    let result = |(index, type_): (usize, &Type)| {
        let motion = partition.result_motion(loops, index);
        let mut block = partition.result(loops, index).local_type(type_);
        if let Motion::Rotating(_) = motion {
            // A sum so far is not rounded on its way.
            block.dtype = type_.dtype.accumulated();
        }
        received(mesh, partition.steps, &motion).saturating_mul(block.bytes())
    };
    let operands = operands.iter().enumerate().map(operand);
    operands.chain(results.iter().enumerate().map(result)).collect()
}

/// How many blocks all devices together receive.
fn received(mesh: &Mesh, steps: u64, motion: &Motion) -> u64 {
    match motion {
        Motion::Stationary | Motion::Whole => 0,
        // A neighbour at no distance is the device itself.
        Motion::Rotating(shift) if shift.0.is_empty() => 0,
        Motion::Rotating(_) => (steps - 1).saturating_mul(mesh.devices()),
        Motion::Streaming(axis) => {
            let group = mesh.size(*axis);
            steps.saturating_mul(mesh.devices() / group.max(1) * (group - 1))
        }
    }
}

/// What moves of a value during the steps of an operation.
pub(crate) struct Exchange {
    /// Of which value.
    pub(crate) value: ValueId,
    /// What it is called.
    pub(crate) name: &'static str,
    /// How many times something is moved, each time that the operation runs.
    pub(crate) count: u64,
    /// What all devices together receive, each time that the operation runs (bytes).
    pub(crate) bytes: u64,
}

/// What moves during the steps of an operation, of the values that do.
///
/// # Panics
/// If the plan has no such operation, or its program is not well formed.
pub(crate) fn exchanges(plan: &Plan, node: NodeId) -> Vec<Exchange> {
    let Assignment::Computed { partition, bytes, .. } = &plan.assignments[node.0] else { return Vec::new() };
    if !partition.moves() {
        return Vec::new();
    }
    let loops = loops_of(&plan.graph, node);
    let it = plan.graph.node(node);
    let operands = (0..it.operands.len()).map(|index| {
        let route = partition.route(&loops, &loops.operands[index]);
        (partition.operand_motion(&loops, index), "broadcast", (route, "dispatch"))
    });
    let results = (0..it.results.len()).map(|index| {
        let route = partition.route(&loops, &loops.results[index]);
        (partition.result_motion(&loops, index), "reduce", (route, "combine"))
    });
    let values = it.operands.iter().chain(&it.results);
    let one = |((motion, streamed, route), (&value, &bytes))| {
        let (name, count) = match motion {
            Motion::Stationary | Motion::Whole => match route {
                (Route::Stays, _) => return None,
                (Route::Rows, name) => (name, 1),
                (Route::Gates, _) => ("all-to-all", 1),
            },
            Motion::Rotating(_) => ("ring shift", partition.ways.count() * (partition.steps - 1)),
            Motion::Streaming(_) => (streamed, partition.steps),
        };
        Some(Exchange { value, name, count, bytes })
    };
    operands.chain(results).zip(values.zip(bytes)).filter_map(one).collect()
}

/// The loops of an operation of a program.
pub(crate) fn loops_of(graph: &Graph, node: NodeId) -> Loops {
    let it = graph.node(node);
    it.op.loops(&graph.types_of(&it.operands), &graph.types_of(&it.results))
}
