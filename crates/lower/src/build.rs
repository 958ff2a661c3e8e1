//! A plan to instructions over buffers.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernels::Span;
use plan::{Assignment, Copy, Plan};
use planner_ir::{AxisId, Layout, LoopId, Loops, Node, NodeId, Op, Output, Partition, Source, Type, ValueId};

use crate::arena;
use crate::error::LowerError;
use crate::events;
use crate::exchange::{Between, Exchange, ExchangeError, exchange};
use crate::program::{
    Action, Block, Buffer, BufferId, Collective, CommunicatorId, Compute, Copied, Instruction, Kind, Origin,
    Port, Preparation, Program, Storage, StorageId, Stream, Whole,
};
use crate::strided::Strided;

/// The programs of all ranks, by rank.
///
/// All ranks have the same instructions over the same buffers; what differs is which blocks they
/// hold and with whom they exchange.
pub fn lower(plan: &Plan) -> Result<Vec<Program>, LowerError> {
    check_counts(plan)?;
    let facts = Facts::of(plan)?;
    (0..plan.mesh.devices())
        .map(|rank| Ok(events::ordered(arena::placed(build(plan, &facts, rank)?))))
        .collect()
}

/// What a rank's memories take (bytes): as much on every rank, for all have the same instructions
/// over the same buffers.
pub fn footprint(plan: &Plan) -> Result<u64, LowerError> {
    check_counts(plan)?;
    let program = arena::placed(build(plan, &Facts::of(plan)?, 0)?);
    Ok(program.resident + program.arena)
}

/// What all ranks' programs share.
struct Facts {
    preparation: Arc<[Preparation]>,
    /// For each operation, how it is computed; none if it is prepared.
    computed: Vec<Option<Computed>>,
    /// For each value, whether it is prepared or a weight.
    prepared: Vec<bool>,
    /// Which copies of values are returned, by output.
    outputs: Vec<Copy>,
}

/// An operation that is computed at every step.
struct Computed {
    op: Arc<Op>,
    name: Arc<str>,
    /// For each operand and result, which dimensions the operation depends on the position in.
    positional: [Vec<Vec<bool>>; 2],
}

impl Facts {
    fn of(plan: &Plan) -> Result<Self, LowerError> {
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
                    let depends = |dim: &Vec<LoopId>| dim.iter().any(|it| loops.positional.contains(it));
                    let of = |values: &[Vec<Vec<LoopId>>]| -> Vec<Vec<bool>> {
                        values.iter().map(|dims| dims.iter().map(depends).collect()).collect()
                    };
                    computed.push(Some(Computed {
                        op: Arc::new(node.op.clone()),
                        name: node.origin.as_str().into(),
                        positional: [of(&loops.operands), of(&loops.results)],
                    }));
                }
            }
        }
        let outputs = graph.outputs.iter().zip(&plan.outputs);
        let outputs = outputs.map(|(output, &copy)| returned(plan, output, copy));
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Self { preparation: preparation.into(), computed, prepared, outputs })
    }
}

fn check_counts(plan: &Plan) -> Result<(), LowerError> {
    let expect = |of, found, expected| {
        if found == expected { Ok(()) } else { Err(LowerError::Count(of, found, expected)) }
    };
    expect("layouts", plan.layouts.len(), plan.graph.values.len())?;
    expect("assignments", plan.assignments.len(), plan.graph.nodes.len())?;
    expect("outputs", plan.outputs.len(), plan.graph.outputs.len())
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
    if partition.steps != 1 {
        return Err(LowerError::Steps(node.origin.clone(), partition.steps));
    }
    if partition.loops.len() != loops.loops.len() {
        return Err(LowerError::Count("partitioned loops", partition.loops.len(), loops.loops.len()));
    }
    let copies = copies_of(assignment);
    if copies.len() != node.operands.len() {
        return Err(LowerError::Count("copies", copies.len(), node.operands.len()));
    }
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

fn copies_of(assignment: &Assignment) -> &[Copy] {
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

/// The program of one rank, without places and events.
fn build(plan: &Plan, facts: &Facts, rank: u64) -> Result<Program, LowerError> {
    let program = Program {
        rank,
        ranks: plan.mesh.devices(),
        communicators: Vec::new(),
        storages: Vec::new(),
        buffers: Vec::new(),
        resident: 0,
        arena: 0,
        preparation: Arc::clone(&facts.preparation),
        inputs: Vec::new(),
        weights: Vec::new(),
        prepared: Vec::new(),
        outputs: Vec::new(),
        instructions: Vec::new(),
    };
    let copies = BTreeMap::new();
    let mut build = Build { plan, facts, program, copies, communicators: BTreeMap::new() };
    for (index, computed) in facts.computed.iter().enumerate() {
        if let Some(computed) = computed {
            build.compute(NodeId(index), computed)?;
        }
    }
    for (output, &copy) in plan.graph.outputs.iter().zip(&facts.outputs) {
        build.output(&output.name, output.value, copy)?;
    }
    Ok(build.program)
}

/// A program so far.
struct Build<'a> {
    plan: &'a Plan,
    facts: &'a Facts,
    program: Program,
    /// Where copies of values are.
    copies: BTreeMap<(ValueId, Copy), BufferId>,
    communicators: BTreeMap<Vec<AxisId>, CommunicatorId>,
}

impl Build<'_> {
    fn compute(&mut self, id: NodeId, computed: &Computed) -> Result<(), LowerError> {
        let Computed { op, name, positional: [of_operands, of_results] } = computed;
        let node = self.plan.graph.node(id);
        let mut operands = Vec::new();
        let copies = copies_of(&self.plan.assignments[id.0]);
        for ((&value, &copy), positional) in node.operands.iter().zip(copies).zip(of_operands) {
            let buffer = self.copy(value, copy)?;
            operands.push(self.block(value, self.plan.layout(value, copy), buffer, positional));
        }
        if let ([operand], [result]) = (&operands[..], &node.results[..])
            && keeps_order(op, &self.program.buffer(operand.buffer).type_)
        {
            let type_ = self.plan.layouts[result.0].local_type(self.plan.graph.type_of(*result));
            let buffer = self.view(operand.buffer, type_);
            self.copies.insert((*result, Copy::Made), buffer);
            return Ok(());
        }
        let mut results = Vec::new();
        for (&value, positional) in node.results.iter().zip(of_results) {
            let layout = &self.plan.layouts[value.0];
            let type_ = layout.local_type(self.plan.graph.type_of(value));
            let buffer = self.buffer(Kind::Activation, type_);
            self.copies.insert((value, Copy::Made), buffer);
            results.push(self.block(value, layout, buffer, positional));
        }
        let action = Compute { op: Arc::clone(op), name: Arc::clone(name), operands, results };
        self.push(Stream::Compute, Action::Compute(action), Origin::Node(id));
        Ok(())
    }

    fn output(&mut self, name: &str, value: ValueId, copy: Copy) -> Result<(), LowerError> {
        let buffer = self.copy(value, copy)?;
        let storage = self.program.buffer(buffer).storage;
        let kind = &mut self.program.storages[storage.0].kind;
        if *kind == Kind::Activation {
            *kind = Kind::Output;
        }
        let port = self.port(name, value, self.plan.layout(value, copy), buffer);
        self.program.outputs.push(port);
        Ok(())
    }

    /// Where a copy of a value is, made if it is not there yet.
    fn copy(&mut self, value: ValueId, copy: Copy) -> Result<BufferId, LowerError> {
        if let Some(&buffer) = self.copies.get(&(value, copy)) {
            return Ok(buffer);
        }
        let buffer = match copy {
            Copy::Made => self.at_rest(value)?,
            Copy::Transferred(transfer) => self.transfer(value, transfer)?,
        };
        self.copies.insert((value, copy), buffer);
        Ok(buffer)
    }

    /// A place for an input, a weight or a prepared value.
    fn at_rest(&mut self, value: ValueId) -> Result<BufferId, LowerError> {
        let graph = &self.plan.graph;
        let (kind, name) = match &graph.value(value).source {
            Source::Input(name) => (Kind::Input, name),
            Source::Weight(name) => (Kind::Weight, name),
            Source::State(state) => return Err(LowerError::Prepared(state.name.clone())),
            Source::Result { node, .. } if self.facts.prepared[value.0] => {
                (Kind::Prepared, &graph.node(*node).origin)
            }
            Source::Result { node, .. } => {
                return Err(LowerError::Prepared(graph.node(*node).origin.clone()));
            }
        };
        let layout = &self.plan.layouts[value.0];
        if !layout.owed.is_empty() {
            return Err(LowerError::Owed(name.clone()));
        }
        let buffer = self.buffer(kind, layout.local_type(graph.type_of(value)));
        let port = self.port(name, value, layout, buffer);
        match kind {
            Kind::Input => self.program.inputs.push(port),
            Kind::Weight => self.program.weights.push(port),
            _ => self.program.prepared.push(port),
        }
        Ok(buffer)
    }

    fn transfer(&mut self, value: ValueId, index: usize) -> Result<BufferId, LowerError> {
        let plan = self.plan;
        let transfer = &plan.transfers[index];
        let later = matches!(transfer.from, Copy::Transferred(from) if from >= index);
        if transfer.value != value || later {
            return Err(LowerError::Transfer(index));
        }
        let type_ = plan.graph.type_of(value);
        let mut buffer = self.copy(value, transfer.from)?;
        let mut layout = plan.layout(value, transfer.from).clone();
        for (step, change) in transfer.moves.iter().enumerate() {
            let origin = Origin::Move { transfer: index, step };
            let exchange = exchange(change, &plan.mesh, self.program.rank, type_, &layout);
            let exchange = exchange.map_err(|error| match error {
                ExchangeError::Move(error) => LowerError::Move(index, step, error),
                ExchangeError::Interleaved => LowerError::Interleaved(index, step),
            })?;
            layout = exchange.after.clone();
            buffer = self.exchange(buffer, exchange, layout.local_type(type_), origin);
        }
        if layout == transfer.layout { Ok(buffer) } else { Err(LowerError::Arrival(index)) }
    }

    /// Makes one move: the buffer of what the rank holds then, which is of that type.
    fn exchange(&mut self, held: BufferId, exchange: Exchange, after: Type, origin: Origin) -> BufferId {
        let Some(Between { kind, axes, elements }) = exchange.collective else {
            let Some(cut) = exchange.pack else { return self.view(held, after) };
            let to = self.buffer(Kind::Activation, after);
            self.copy_elements(Stream::Compute, held, to, cut, origin);
            return to;
        };
        let mut input = held;
        if let Some(pack) = exchange.pack {
            input = self.buffer(Kind::Communication, Type::new(after.dtype, [pack.elements()]));
            self.copy_elements(Stream::Communication, held, input, pack, origin);
        }
        let output = match &exchange.unpack {
            None => self.buffer(Kind::Activation, after.clone()),
            Some(unpack) => self.buffer(Kind::Communication, Type::new(after.dtype, [unpack.elements()])),
        };
        let communicator = self.communicator(axes);
        let collective = Collective { kind, communicator, input, output, elements };
        self.push(Stream::Communication, Action::Collective(collective), origin);
        let Some(unpack) = exchange.unpack else { return output };
        let to = self.buffer(Kind::Activation, after);
        self.copy_elements(Stream::Communication, output, to, unpack, origin);
        to
    }

    fn copy_elements(
        &mut self,
        stream: Stream,
        from: BufferId,
        to: BufferId,
        strided: Strided,
        origin: Origin,
    ) {
        self.push(stream, Action::Copy(Copied { from, to, strided }), origin);
    }

    fn push(&mut self, stream: Stream, action: Action, origin: Origin) {
        let waits = Vec::new();
        self.program.instructions.push(Instruction { stream, waits, signals: None, action, origin });
    }

    /// A buffer with a storage of its own.
    fn buffer(&mut self, kind: Kind, type_: Type) -> BufferId {
        self.program.storages.push(Storage { kind, bytes: type_.bytes(), offset: 0 });
        let storage = StorageId(self.program.storages.len() - 1);
        self.program.buffers.push(Buffer { storage, type_ });
        BufferId(self.program.buffers.len() - 1)
    }

    /// The same bytes as a value of another type.
    fn view(&mut self, buffer: BufferId, type_: Type) -> BufferId {
        let Buffer { storage, type_: held } = self.program.buffer(buffer);
        if *held == type_ {
            return buffer;
        }
        let storage = *storage;
        self.program.buffers.push(Buffer { storage, type_ });
        BufferId(self.program.buffers.len() - 1)
    }

    fn communicator(&mut self, axes: Vec<AxisId>) -> CommunicatorId {
        let (plan, program) = (self.plan, &mut self.program);
        *self.communicators.entry(axes).or_insert_with_key(|axes| {
            program.communicators.push(plan.mesh.group(program.rank, axes));
            CommunicatorId(program.communicators.len() - 1)
        })
    }

    /// A block of a value. Kernels are told where it starts in positional dimensions, where it is
    /// contiguous; in others it may be anything, and starts at 0.
    fn block(&self, value: ValueId, layout: &Layout, buffer: BufferId, positional: &[bool]) -> Block {
        let shape = &self.plan.graph.type_of(value).shape;
        if layout.local_shape(shape) == *shape {
            return Block { buffer, spans: Vec::new() };
        }
        let pieces = layout.pieces(&self.plan.mesh, self.program.rank, shape);
        let dims = pieces.iter().zip(shape).zip(positional);
        let spans = dims.map(|((pieces, &extent), &positional)| {
            let start = pieces.iter().fold(0, |start, it| start * it.size + it.index.unwrap_or(0));
            Span { extent, start: if positional { start } else { 0 } }
        });
        Block { buffer, spans: spans.collect() }
    }

    fn port(&self, name: &str, value: ValueId, layout: &Layout, buffer: BufferId) -> Port {
        let type_ = self.plan.graph.type_of(value).clone();
        let pieces = layout.pieces(&self.plan.mesh, self.program.rank, &type_.shape);
        Port { name: name.to_owned(), value, type_, pieces, buffer }
    }
}

/// Whether an operation leaves the bytes of a local block as they are.
///
/// A reshape's operand and result have the same loops in the same order, so that local blocks
/// too are the same elements in the same order.
fn keeps_order(op: &Op, operand: &Type) -> bool {
    match op {
        Op::Reshape { .. } => true,
        Op::Transpose { permutation } => {
            let moved = permutation.iter().filter(|&&dim| operand.shape[dim] != 1);
            moved.is_sorted()
        }
        _ => false,
    }
}
