//! A plan to instructions over buffers.

mod crossing; // what a stage of a pipeline sends and receives

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plan::{Copy, Plan};
use planner_ir::{AxisId, Layout, NodeId, Phase, Source, StateKind, Type, ValueId};

use crate::action::{Action, Block, Collective, CommunicatorId, Compute, Copied, Direction, Message, Origin};
use crate::arena::Placed;
use crate::ends::Ends;
use crate::error::LowerError;
use crate::events;
use crate::exchange::{Between, Exchange, ExchangeError, How, exchange};
use crate::facts::{Computed, Facts, copies_of};
use crate::overlap;
use crate::program::{Instruction, Port, Program, Repeated, RepeatedPart, Stream};
use crate::storage::{Buffer, BufferId, Kind, Storage, StorageId};
use crate::strided::{Strided, all_of};

/// The programs of all ranks, by rank.
///
/// All ranks have the same instructions over the same buffers; what differs is which blocks they
/// hold and with whom they exchange.
pub fn lower(plan: &Plan) -> Result<Vec<Program>, LowerError> {
    let facts = Facts::of(plan)?;
    let program = |rank| Ok(events::ordered(placed(plan, &facts, rank)?.program));
    let ranks = plan.mesh.devices();
    let first = program(0)?;
    LowerError::unless_few(ranks, first.instructions.len())?;
    std::iter::once(Ok(first)).chain((1..ranks).map(program)).collect()
}

/// What a rank's memories take (bytes): as much on every rank, for all have the same buffers.
pub fn footprint(plan: &Plan) -> Result<u64, LowerError> {
    let program = placed(plan, &Facts::of(plan)?, 0)?.program;
    Ok(program.resident + program.arena)
}

/// The program of one rank, without events.
pub(crate) fn placed(plan: &Plan, facts: &Facts, rank: u64) -> Result<Placed, LowerError> {
    Ok(overlap::alone(plan, built(plan, facts, &Ends::default(), rank)?.program))
}

/// The program of one rank, without places and events, with copies for what states become.
pub(crate) fn built<'a>(
    plan: &'a Plan,
    facts: &'a Facts,
    ends: &'a Ends,
    rank: u64,
) -> Result<Build<'a>, LowerError> {
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
        states: Vec::new(),
        outputs: Vec::new(),
        instructions: Vec::new(),
        repeated: None,
        guard: None,
    };
    let mut build = Build {
        plan,
        facts,
        ends,
        program,
        copies: BTreeMap::new(),
        communicators: BTreeMap::new(),
        sources: Vec::new(),
        phase: Phase::Forward,
        stretches: Vec::new(),
        carried: Vec::new(),
    };
    let Some(training) = &plan.graph.training else {
        build.nodes(plan.graph.node_ids())?;
        build.outputs()?;
        return Ok(build);
    };
    build.clear()?;
    build.micro_batch(training.micro_batches)?;
    build.phase = Phase::Update;
    build.settle_sums()?;
    build.stretch();
    build.send_sums()?;
    build.stretch();
    // What is returned comes first: where it is not finite, nothing is changed.
    let needed = needed_by_outputs(plan);
    let updates = plan.graph.node_ids().filter(|node| plan.graph.node(*node).phase == Phase::Update);
    let (looked_at, others): (Vec<NodeId>, Vec<NodeId>) = updates.partition(|node| needed.contains(node));
    build.nodes(looked_at)?;
    build.stretch();
    build.outputs()?;
    build.receive_all(build.ends.arriving.len().saturating_sub(1))?;
    build.stretch();
    build.nodes(others)?;
    build.finish_carrying();
    Ok(build)
}

/// The operations on which outputs depend.
fn needed_by_outputs(plan: &Plan) -> BTreeSet<NodeId> {
    let mut needed = BTreeSet::new();
    let mut values: Vec<ValueId> = plan.graph.outputs.iter().map(|output| output.value).collect();
    while let Some(value) = values.pop() {
        if let Source::Result { node, .. } = plan.graph.value(value).source
            && needed.insert(node)
        {
            values.extend(&plan.graph.node(node).operands);
        }
    }
    needed
}

/// A program so far.
pub(crate) struct Build<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) facts: &'a Facts,
    pub(crate) ends: &'a Ends,
    pub(crate) program: Program,
    /// Where copies of values are.
    pub(crate) copies: BTreeMap<(ValueId, Copy), BufferId>,
    /// Communicators by whose exchanges have an order, and along which axes they are.
    pub(crate) communicators: BTreeMap<(Stream, Vec<AxisId>), CommunicatorId>,
    /// For each message so far, the rank that each rank gets from.
    pub(crate) sources: Vec<Vec<u64>>,
    /// For which part of a step instructions are.
    phase: Phase,
    /// Where the stretches of what follows the micro-batches start: what is sent at once, what is
    /// needed by what is returned, what is returned, the rest.
    pub(crate) stretches: Vec<usize>,
    /// What is to take the place of states: which state, from where, where the state is.
    pub(crate) carried: Vec<(ValueId, BufferId, BufferId)>,
}

impl Build<'_> {
    /// For each communicator the axes along which its ranks lie.
    pub(crate) fn axes(&self) -> Vec<Vec<AxisId>> {
        let mut axes = vec![Vec::new(); self.program.communicators.len()];
        self.communicators.iter().for_each(|((_, along), it)| axes[it.0].clone_from(along));
        axes
    }

    fn nodes(&mut self, nodes: impl IntoIterator<Item = NodeId>) -> Result<(), LowerError> {
        let facts = self.facts;
        for node in nodes {
            if let Some(computed) = &facts.computed[node.0] {
                self.phase = self.plan.graph.node(node).phase;
                self.compute(node, computed)?;
                self.carry(node)?;
                self.send_results(node)?;
            }
        }
        Ok(())
    }

    fn compute(&mut self, id: NodeId, computed: &Computed) -> Result<(), LowerError> {
        let Computed { op, name, positional: [of_operands, of_results], in_time, routed } = computed;
        let node = self.plan.graph.node(id);
        let copies = copies_of(&self.plan.assignments[id.0]);
        let mut held = Vec::new();
        for (&value, &copy) in node.operands.iter().zip(copies) {
            self.check_input(value)?;
            held.push(self.copy(value, copy)?);
        }
        if let Some(in_time) = in_time {
            self.compute_in_time(id, computed, in_time, &held);
            return Ok(());
        }
        if let Some(routed) = routed {
            return self.compute_routed(id, computed, routed, &held);
        }
        let mut operands = Vec::new();
        for (index, (&value, &copy)) in node.operands.iter().zip(copies).enumerate() {
            let layout = self.plan.layout(value, copy);
            operands.push(self.block(value, layout, held[index], &of_operands[index]));
        }
        if let ([operand], [result]) = (&operands[..], &node.results[..])
            && op.keeps_order(&self.program.buffer(operand.buffer).type_)
        {
            let type_ = self.plan.layouts[result.0].local_type(self.plan.graph.type_of(*result));
            let buffer = self.view(operand.buffer, type_);
            self.copies.insert((*result, Copy::Made), buffer);
            return Ok(());
        }
        let mut results = Vec::new();
        // An input is as large as what is written over it, for the operation has both in one layout.
        let mut written = op.written().map(|it| held[it]).filter(|&it| self.is_input_of_a_step(it));
        for (&value, positional) in node.results.iter().zip(of_results) {
            let layout = &self.plan.layouts[value.0];
            let type_ = layout.local_type(self.plan.graph.type_of(value));
            let buffer = match written.take() {
                Some(input) => self.next_in(input),
                None => self.buffer(Kind::Activation, type_),
            };
            self.copies.insert((value, Copy::Made), buffer);
            results.push(self.block(value, layout, buffer, positional));
        }
        let action = Compute { op: Arc::clone(op), name: Arc::clone(name), operands, results };
        self.push(Stream::Compute, Action::Compute(action), Origin::Node(id));
        Ok(())
    }

    /// Refuses an input of the micro-batches in an update.
    fn check_input(&self, value: ValueId) -> Result<(), LowerError> {
        let given = |port: &&Port| port.value == value;
        match self.program.repeated.iter().flat_map(|it| &it.inputs).find(given) {
            Some(port) if self.phase == Phase::Update => Err(LowerError::Input(port.name.clone())),
            _ => Ok(()),
        }
    }

    fn stretch(&mut self) {
        self.stretches.push(self.program.instructions.len());
    }

    /// What is done for each micro-batch: in a pipeline in parts.
    fn micro_batch(&mut self, times: u64) -> Result<(), LowerError> {
        let start = self.program.instructions.len();
        self.program.repeated = Some(Repeated::whole(start..start, times));
        let parts = self.ends.parts(&self.plan.graph);
        let mut made = Vec::new();
        for (part, nodes) in parts.into_iter().enumerate() {
            let start = self.program.instructions.len();
            self.nodes(nodes)?;
            if part + 1 < self.ends.arriving.len() {
                self.receive_all(part)?;
            }
            self.finish_carrying();
            made.push(RepeatedPart {
                instructions: start..self.program.instructions.len(),
                stage: self.ends.stage,
            });
        }
        if let Some(repeated) = &mut self.program.repeated {
            repeated.instructions.end = self.program.instructions.len();
            repeated.parts = made;
        }
        Ok(())
    }

    fn outputs(&mut self) -> Result<(), LowerError> {
        for (output, &copy) in self.plan.graph.outputs.iter().zip(&self.facts.outputs) {
            if self.ends.sent.contains_key(&output.name) {
                continue;
            }
            let mut buffer = self.copy(output.value, copy)?;
            if self.program.storage(buffer).kind.state().is_some() {
                // What takes the state's place may do so before the end.
                buffer = self.whole_copy(buffer, Kind::Output, Origin::State(output.value));
            }
            let storage = self.program.buffer(buffer).storage;
            let kind = &mut self.program.storages[storage.0].kind;
            if *kind == Kind::Activation {
                *kind = Kind::Output;
            }
            let port = self.port(&output.name, output.value, self.plan.layout(output.value, copy), buffer);
            self.program.outputs.push(port);
        }
        Ok(())
    }

    pub(crate) fn state_kind(&self, value: ValueId) -> Option<StateKind> {
        match &self.plan.graph.value(value).source {
            Source::State(state) => Some(state.kind),
            _ => None,
        }
    }
    /// Where a copy of a value is, made if it is not there yet.
    pub(crate) fn copy(&mut self, value: ValueId, copy: Copy) -> Result<BufferId, LowerError> {
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

    /// A place for an input, a weight, a prepared value or a state.
    fn at_rest(&mut self, value: ValueId) -> Result<BufferId, LowerError> {
        let graph = &self.plan.graph;
        let (kind, name) = match &graph.value(value).source {
            Source::Input(name) => (Kind::Input, name),
            Source::Weight(name) => (Kind::Weight, name),
            Source::State(state) if graph.training.is_some() => (Kind::State(state.kind), &state.name),
            Source::State(state) => return Err(LowerError::Prepared(state.name.clone())),
            Source::Result { node, .. } if self.facts.prepared[value.0] => {
                (Kind::Prepared, &graph.node(*node).origin)
            }
            Source::Result { node, .. } => {
                return Err(LowerError::Prepared(graph.node(*node).origin.clone()));
            }
        };
        let layout = &self.plan.layouts[value.0];
        if !layout.owed.is_empty() && !kind.is_summed() {
            return Err(LowerError::Owed(name.clone()));
        }
        if let (Kind::Input, Some(&crossing)) = (kind, self.ends.received.get(name)) {
            return self.receive(value, crossing);
        }
        let buffer = self.buffer(kind, layout.local_type(graph.type_of(value)));
        let port = self.port(name, value, layout, buffer);
        match kind {
            Kind::Input => match &mut self.program.repeated {
                Some(repeated) if self.phase != Phase::Update => repeated.inputs.push(port),
                _ => self.program.inputs.push(port),
            },
            Kind::Weight => self.program.weights.push(port),
            Kind::State(_) => self.program.states.push(port),
            _ => self.program.prepared.push(port),
        }
        Ok(buffer)
    }

    fn transfer(&mut self, value: ValueId, index: usize) -> Result<BufferId, LowerError> {
        let plan = self.plan;
        let transfer = &plan.transfers[index];
        if transfer.value != value {
            return Err(LowerError::Transfer(index));
        }
        let type_ = plan.graph.type_of(value);
        let mut buffer = self.copy(value, transfer.from)?;
        let mut layout = plan.layout(value, transfer.from).clone();
        for (step, change) in transfer.moves.iter().enumerate() {
            let exchange = exchange(change, &plan.mesh, self.program.rank, type_, &layout);
            let exchange = exchange.map_err(|error| match error {
                ExchangeError::Move(error) => LowerError::Move(index, step, error),
                ExchangeError::Interleaved => LowerError::Interleaved(index, step),
            })?;
            layout = exchange.after.clone();
            let at = (self.facts.streams[index], Origin::Move { transfer: index, step });
            buffer = self.exchange(buffer, exchange, layout.local_type(type_), at);
        }
        if layout == transfer.layout { Ok(buffer) } else { Err(LowerError::Arrival(index)) }
    }

    /// Makes one move: the buffer of what the rank holds then, which is of that type.
    pub(crate) fn exchange(
        &mut self,
        held: BufferId,
        exchange: Exchange,
        after: Type,
        (stream, origin): (Stream, Origin),
    ) -> BufferId {
        let Some(between) = exchange.between else {
            let Some(cut) = exchange.pack else { return self.view(held, after) };
            let to = self.buffer(Kind::Activation, after);
            self.copy_elements(Stream::Compute, held, to, cut, origin);
            return to;
        };
        let mut input = held;
        if let Some(pack) = exchange.pack {
            input = self.buffer(Kind::Communication, Type::new(after.dtype, [pack.elements()]));
            self.copy_elements(stream, held, input, pack, origin);
        }
        let output = match &exchange.unpack {
            None => self.buffer(Kind::Activation, after.clone()),
            Some(unpack) => self.buffer(Kind::Communication, Type::new(after.dtype, [unpack.elements()])),
        };
        self.between_on(stream, between, input, output, origin);
        let Some(unpack) = exchange.unpack else { return output };
        let to = self.buffer(Kind::Activation, after);
        self.copy_elements(stream, output, to, unpack, origin);
        to
    }

    /// What ranks exchange, each from and to these buffers.
    pub(crate) fn between(&mut self, between: Between, input: BufferId, output: BufferId, origin: Origin) {
        self.between_on(Stream::Communication, between, input, output, origin);
    }

    /// An exchange on a stream, among whose exchanges alone it has an order.
    pub(crate) fn between_on(
        &mut self,
        stream: Stream,
        between: Between,
        input: BufferId,
        output: BufferId,
        origin: Origin,
    ) {
        let communicator = self.communicator(stream, between.axes);
        let action = match between.how {
            How::Collective(kind, elements) => {
                let (further, rows) = (Vec::new(), between.rows);
                Action::Collective(Collective { kind, communicator, input, output, elements, further, rows })
            }
            How::Messages(sources) => {
                let own = self.program.rank;
                let given = |&(rank, &from): &(u64, &u64)| from == own && rank != own;
                let to = (0..).zip(&sources).filter(given).map(|(rank, _)| rank).collect();
                let from = (0..).zip(&sources).find(|&(rank, _)| rank == own).map_or(own, |(_, &from)| from);
                self.sources.push(sources);
                Action::Message(Message { communicator, to, from, input, output })
            }
        };
        self.push(stream, action, origin);
    }

    /// A copy of all of a buffer.
    pub(crate) fn whole_copy(&mut self, from: BufferId, kind: Kind, origin: Origin) -> BufferId {
        let type_ = self.program.buffer(from).type_.clone();
        let strided = all_of(&type_);
        let to = self.buffer(kind, type_);
        self.copy_elements(Stream::Compute, from, to, strided, origin);
        to
    }

    pub(crate) fn copy_elements(
        &mut self,
        stream: Stream,
        from: BufferId,
        to: BufferId,
        strided: Strided,
        origin: Origin,
    ) {
        let direction = Direction::Take;
        self.push(stream, Action::Copy(Copied { from, to, strided, direction }), origin);
    }

    pub(crate) fn push(&mut self, stream: Stream, action: Action, origin: Origin) {
        let (waits, phase) = (Vec::new(), self.phase);
        self.program.instructions.push(Instruction { stream, waits, signals: None, action, origin, phase });
    }

    /// A buffer with a storage of its own.
    pub(crate) fn buffer(&mut self, kind: Kind, type_: Type) -> BufferId {
        let storage = Storage { kind, bytes: type_.bytes(), offset: 0, places: 1, over: None };
        self.program.storages.push(storage);
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

    /// Whether a buffer is where an input of a step is at rest: one of a micro-batch is not written.
    fn is_input_of_a_step(&self, buffer: BufferId) -> bool {
        self.program.inputs.iter().any(|port| port.buffer == buffer)
    }

    /// What a buffer becomes where it is.
    fn next_in(&mut self, buffer: BufferId) -> BufferId {
        let next = self.program.buffer(buffer).clone();
        self.program.buffers.push(next);
        BufferId(self.program.buffers.len() - 1)
    }

    fn communicator(&mut self, stream: Stream, axes: Vec<AxisId>) -> CommunicatorId {
        let (plan, program) = (self.plan, &mut self.program);
        *self.communicators.entry((stream, axes)).or_insert_with_key(|(_, axes)| {
            program.communicators.push(plan.mesh.group(program.rank, axes));
            CommunicatorId(program.communicators.len() - 1)
        })
    }

    /// A block of a value.
    pub(crate) fn block(
        &self,
        value: ValueId,
        layout: &Layout,
        buffer: BufferId,
        positional: &[bool],
    ) -> Block {
        let shape = &self.plan.graph.type_of(value).shape;
        let pieces = layout.pieces(&self.plan.mesh, self.program.rank, shape);
        Block::of(buffer, &pieces, shape, positional)
    }

    fn port(&self, name: &str, value: ValueId, layout: &Layout, buffer: BufferId) -> Port {
        let type_ = self.plan.graph.type_of(value).clone();
        let pieces = layout.pieces(&self.plan.mesh, self.program.rank, &type_.shape);
        Port { name: name.to_owned(), value, type_, pieces, buffer }
    }
}
