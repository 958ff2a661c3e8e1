//! What the programs of all ranks share, checked.

use std::collections::BTreeMap;
use std::sync::Arc;

use plan::{Assignment, Beside, Copy, Plan, Transfer};
use planner_ir::{
    Carried, LoopId, Loops, Merging, Node, NodeId, Op, Output, Partition, Source, Type, ValueId,
};

use crate::error::LowerError;
use crate::program::{Preparation, Stream, Whole};
use crate::routing::Routed;

/// What all ranks' programs share.
pub(crate) struct Facts {
    pub(crate) preparation: Arc<[Preparation]>,
    /// For each operation, how it is computed; none if it is prepared.
    pub(crate) computed: Vec<Option<Computed>>,
    /// For each value, whether it is prepared or a weight.
    pub(crate) prepared: Vec<bool>,
    /// Which copies of values are returned, by output.
    pub(crate) outputs: Vec<Copy>,
    /// For each transfer, the stream of its collectives.
    pub(crate) streams: Vec<Stream>,
    /// For each value that becomes states, which states, and which copy of it.
    pub(crate) becomes: BTreeMap<ValueId, Vec<(ValueId, Copy)>>,
}

/// An operation that is computed at every step.
pub(crate) struct Computed {
    pub(crate) op: Arc<Op>,
    pub(crate) name: Arc<str>,
    /// For each operand and result, which dimensions the operation depends on the position in.
    pub(crate) positional: [Vec<Vec<bool>>; 2],
    /// How it is partitioned, if that is in time.
    pub(crate) in_time: Option<InTime>,
    /// How its rows are routed, if they are.
    pub(crate) routed: Option<Routed>,
}

/// An operation in time steps.
pub(crate) struct InTime {
    pub(crate) partition: Partition,
    /// The partition of each way that blocks go.
    pub(crate) ways: Vec<Partition>,
    /// What a step computes: the operation, or parts of what it makes.
    pub(crate) op: Arc<Op>,
    /// Its loops.
    pub(crate) loops: Loops,
    /// The types of what it makes, of which the operation's results are the first.
    pub(crate) results: Vec<Type>,
    /// What makes two parts one, if results are merged.
    pub(crate) merge: Option<Arc<Op>>,
}

impl InTime {
    fn of(plan: &Plan, node: &Node, partition: &Partition, loops: &Loops) -> Result<Self, LowerError> {
        let (operands, results) = (plan.graph.types_of(&node.operands), plan.graph.types_of(&node.results));
        let (partition, ways) = (partition.clone(), partition.each_way());
        let Some(Merging { part, merge }) = node.op.merging().filter(|_| partition.merges(loops)) else {
            let (op, loops) = (Arc::new(node.op.clone()), loops.clone());
            return Ok(Self { partition, ways, op, loops, results, merge: None });
        };
        let made = part.infer(&operands).ok().filter(|made| made.starts_with(&results));
        let made = made.ok_or_else(|| LowerError::Parts(node.origin.clone()))?;
        let loops = part.loops(&operands, &made);
        Ok(Self { partition, ways, op: Arc::new(part), loops, results: made, merge: Some(Arc::new(merge)) })
    }
}

impl Facts {
    pub(crate) fn of(plan: &Plan) -> Result<Self, LowerError> {
        check_counts(plan)?;
        let graph = &plan.graph;
        let mut prepared: Vec<bool> =
            graph.values.iter().map(|value| matches!(value.source, Source::Weight(_))).collect();
        let mut preparation = Vec::new();
        let mut computed = Vec::new();
        for (index, (node, assignment)) in graph.nodes.iter().zip(&plan.assignments).enumerate() {
            match assignment {
                Assignment::Prepared => {
                    preparation.push(preparation_of(plan, NodeId(index), node, &prepared)?);
                    computed.push(None);
                    for result in &node.results {
                        prepared[result.0] = true;
                    }
                }
                Assignment::Computed { partition, .. } => {
                    let loops =
                        node.op.loops(&graph.types_of(&node.operands), &graph.types_of(&node.results));
                    check_layouts(plan, node, assignment, partition, &loops)?;
                    let in_time = match partition.steps {
                        1 => None,
                        _ => Some(InTime::of(plan, node, partition, &loops)?),
                    };
                    let routed = Routed::of(partition, &loops);
                    let loops = in_time.as_ref().map_or(&loops, |it| &it.loops);
                    let depends = |dim: &Vec<LoopId>| dim.iter().any(|it| loops.positional.contains(it));
                    let of = |values: &[Vec<Vec<LoopId>>]| -> Vec<Vec<bool>> {
                        values.iter().map(|dims| dims.iter().map(depends).collect()).collect()
                    };
                    computed.push(Some(Computed {
                        op: Arc::new(node.op.clone()),
                        name: node.origin.as_str().into(),
                        positional: [of(&loops.operands), of(&loops.results)],
                        in_time,
                        routed,
                    }));
                }
            }
        }
        let outputs = graph.outputs.iter().zip(&plan.outputs);
        let outputs = outputs.map(|(output, &copy)| returned(plan, output, copy));
        let outputs = outputs.collect::<Result<_, _>>()?;
        check_carried(plan)?;
        let streams = streams(plan)?;
        let mut becomes: BTreeMap<ValueId, Vec<(ValueId, Copy)>> = BTreeMap::new();
        for (&Carried { state, next }, &copy) in carried(plan).iter().zip(&plan.carried) {
            becomes.entry(next).or_default().push((state, copy));
        }
        Ok(Self { preparation: preparation.into(), computed, prepared, outputs, streams, becomes })
    }
}

/// For each transfer the stream of its collectives: what computing waits for does not wait for what may run beside it.
fn streams(plan: &Plan) -> Result<Vec<Stream>, LowerError> {
    let later = |(index, transfer): (usize, &Transfer)| matches!(transfer.from, Copy::Transferred(from) if from >= index);
    if let Some(index) = plan.transfers.iter().enumerate().position(later) {
        return Err(LowerError::Transfer(index));
    }
    let of = |beside: Option<Beside>| beside.map_or(Stream::Communication, |_| Stream::Beside);
    Ok(plan.beside().into_iter().map(of).collect())
}

fn check_counts(plan: &Plan) -> Result<(), LowerError> {
    let expect = |of, found, expected| {
        if found == expected { Ok(()) } else { Err(LowerError::Count(of, found, expected)) }
    };
    expect("layouts", plan.layouts.len(), plan.graph.values.len())?;
    expect("assignments", plan.assignments.len(), plan.graph.nodes.len())?;
    expect("outputs", plan.outputs.len(), plan.graph.outputs.len())?;
    expect("carried copies", plan.carried.len(), carried(plan).len())
}

/// What the states of a training step become; nothing in inference.
pub(crate) fn carried(plan: &Plan) -> &[Carried] {
    plan.graph.training.as_ref().map_or(&[], |training| &training.carried)
}

/// An operation on whole values.
fn preparation_of(
    plan: &Plan,
    id: NodeId,
    node: &Node,
    prepared: &[bool],
) -> Result<Preparation, LowerError> {
    let whole = |&operand: &ValueId| match &plan.graph.value(operand).source {
        Source::Weight(name) => Ok(Whole::Weight(name.clone())),
        Source::Result { .. } if prepared[operand.0] => Ok(Whole::Prepared(operand)),
        _ => Err(LowerError::Prepared(node.origin.clone())),
    };
    Ok(Preparation {
        node: id,
        origin: node.origin.clone(),
        op: node.op.clone(),
        operands: node.operands.iter().map(whole).collect::<Result<_, _>>()?,
        results: node.results.clone(),
    })
}

/// Refuses copies in other layouts than the operation uses and makes.
fn check_layouts(
    plan: &Plan,
    node: &Node,
    assignment: &Assignment,
    partition: &Partition,
    loops: &Loops,
) -> Result<(), LowerError> {
    if partition.loops.len() != loops.loops.len() {
        return Err(LowerError::Count("partitioned loops", partition.loops.len(), loops.loops.len()));
    }
    let copies = copies_of(assignment);
    if copies.len() != node.operands.len() {
        return Err(LowerError::Count("copies", copies.len(), node.operands.len()));
    }
    let refused = |error| LowerError::Partition(node.origin.clone(), error);
    partition.check(&plan.mesh, loops).map_err(refused)?;
    let differs = |of: String| Err(LowerError::Layout(node.origin.clone(), of));
    for (index, (&value, &copy)) in node.operands.iter().zip(copies).enumerate() {
        if matches!(copy, Copy::Transferred(transfer) if transfer >= plan.transfers.len()) {
            return differs(format!("operand {index}"));
        }
        if *plan.layout(value, copy) != partition.operand(loops, index) {
            return differs(format!("operand {index}"));
        }
    }
    for (index, value) in node.results.iter().enumerate() {
        if plan.layouts[value.0] != partition.result(loops, index) {
            return differs(format!("result {index}"));
        }
    }
    Ok(())
}

pub(crate) fn copies_of(assignment: &Assignment) -> &[Copy] {
    match assignment {
        Assignment::Prepared => &[],
        Assignment::Computed { operands, .. } => operands,
    }
}

/// The copy of a value that is returned, if it owes no sum.
fn returned(plan: &Plan, output: &Output, copy: Copy) -> Result<Copy, LowerError> {
    if let Copy::Transferred(transfer) = copy
        && transfer >= plan.transfers.len()
    {
        return Err(LowerError::Transfer(transfer));
    }
    if plan.layout(output.value, copy).owed.is_empty() {
        return Ok(copy);
    }
    Err(LowerError::Owed(output.name.clone()))
}

/// Refuses states that owe sums and do not start from zero, and copies that cannot take a state's
/// place.
fn check_carried(plan: &Plan) -> Result<(), LowerError> {
    for (&Carried { state, next }, &copy) in carried(plan).iter().zip(&plan.carried) {
        let Source::State(it) = &plan.graph.value(state).source else {
            return Err(LowerError::Carried(format!("value {}", state.0)));
        };
        if matches!(copy, Copy::Transferred(transfer) if transfer >= plan.transfers.len()) {
            return Err(LowerError::Carried(it.name.clone()));
        }
        let at_rest = &plan.layouts[state.0];
        if plan.layout(next, copy) != at_rest || plan.graph.type_of(next) != plan.graph.type_of(state) {
            return Err(LowerError::Carried(it.name.clone()));
        }
        if !at_rest.owed.is_empty() && !it.kind.is_summed() {
            return Err(LowerError::Owed(it.name.clone()));
        }
    }
    Ok(())
}
