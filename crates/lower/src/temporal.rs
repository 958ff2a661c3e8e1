//! Operations in time steps, one step after another.
//!
//! What ranks bring each other for a step is issued before the operation computes the step before
//! it: it goes by the communication stream meanwhile. So are sums that travel with their blocks,
//! while the next addend is computed. Every block that moves gets a buffer of its own; that two
//! places suffice for each follows from their lifetimes.
//!
//! Where blocks go both ways, each way has its halves of them, its own stream and its own
//! communicators, and a step computes with the halves of the one way and then of the other. Halves of
//! what rotates are cut out of what is at rest before the first step, and put together after the last.
//!
//! With one slot, a block is brought over the one that was worked on, when the step before has been computed
//! (`rotate`); a sum that travels comes over the sum that was there, and the next addend is added where it lies.
//!
//! Sums that grow from step to step are kept, and travel, in `DType::accumulated`, and are rounded
//! after the last step. So are parts of results that are merged instead of added.

use std::sync::Arc;

use plan::Copy;
use planner_ir::{AxisId, Binary, LoopId, Motion, NodeId, Op, Piece, Slots, Type, ValueId};

use crate::action::{Action, Block, CollectiveKind, Compute, Copied, Direction, Moving, Origin};
use crate::build::Build;
use crate::exchange::{Between, How};
use crate::facts::{Computed, InTime};
use crate::program::{Program, Stream};
use crate::rotate::Brought;
use crate::storage::{BufferId, Kind};
use crate::strided::{Factor, Strided};

/// The operation that is being lowered.
#[derive(Clone, Copy)]
struct Node<'a> {
    id: NodeId,
    computed: &'a Computed,
    in_time: &'a InTime,
}

/// An operand or result between two steps, or what goes one way of it.
struct Held<'a> {
    moving: Moving,
    /// Which way: its place in `InTime::ways`.
    way: usize,
    motion: Motion,
    /// Whether the buffer has all halves of blocks that go several ways.
    halves: AtRest,
    /// Its type, whole.
    type_: &'a Type,
    /// The loops that index each dimension.
    dims: &'a [Vec<LoopId>],
    positional: &'a [bool],
    /// Of an operand that does not rotate what is at rest; else the block that came last. Of a
    /// result the sum so far, or where it is put together; none before the first step.
    buffer: Option<BufferId>,
    slot: Slot,
}

/// The factors of one dimension at a step, and which of them number what is at rest.
type Factors = Vec<(Piece, AtRest)>;

/// Where a block that moves is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Where others may use it.
    AtRest,
    /// In a place that is for this operation alone.
    Own,
}

/// Whether a device has all blocks of a factor at rest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtRest {
    One,
    All,
}

impl Build<'_> {
    /// Computes an operation from operands at rest.
    pub(crate) fn compute_in_time(
        &mut self,
        id: NodeId,
        computed: &Computed,
        in_time: &InTime,
        at_rest: &[BufferId],
    ) {
        let node = Node { id, computed, in_time };
        let ways = 0..in_time.ways.len();
        let mut operands: Vec<Vec<Held>> = ways.map(|way| self.operands(node, way, at_rest)).collect();
        let mut results: Vec<Vec<Held>> =
            (0..in_time.ways.len()).map(|way| self.results(node, way)).collect();
        operands.iter_mut().flatten().for_each(|it| self.cut(node, it));
        let steps = in_time.partition.steps;
        let mut next = self.bring_all(node, &mut operands, 0);
        for time in 0..steps {
            let now = next;
            let later = if time + 1 < steps { Some(time + 1) } else { None };
            let ahead = later.filter(|_| in_time.partition.slots == Slots::Two);
            next = ahead.map(|time| self.bring_all(node, &mut operands, time)).unwrap_or_default();
            // All of them, before one way's work takes the other's place.
            let sums = self.travelled_all(node, &mut results, time);
            for (way, (brought, sums)) in now.into_iter().zip(sums).enumerate() {
                self.compute_step(node, (&operands[way], brought), (&mut results[way], sums), time);
                share(&mut results, way);
            }
            if let Some(time) = later.filter(|_| ahead.is_none()) {
                next = self.bring_all(node, &mut operands, time);
            }
        }
        self.put_together(node, &mut results);
        let values = &self.plan.graph.node(id).results;
        for (result, &value) in results[0].iter().zip(values) {
            self.finish(node, result, value);
        }
    }

    /// Computes a step of one way, and puts what it makes to what is there.
    fn compute_step(
        &mut self,
        node: Node,
        (operands, brought): (&[Held], Vec<BufferId>),
        (results, travelled): (&mut [Held], Vec<Option<BufferId>>),
        time: u64,
    ) {
        let stays = |it: &Held| it.buffer.filter(|_| it.motion == Motion::Stationary);
        let sums: Vec<Option<BufferId>> =
            results.iter().zip(travelled).map(|(it, sum)| sum.or_else(|| stays(it))).collect();
        let blocks = self.read(node, operands, brought, time);
        let made = self.step(node, blocks, results, time);
        let (sums, made) = self.merged(node, sums, made);
        for ((result, sum), made) in results.iter_mut().zip(sums).zip(made) {
            self.put(node, result, sum, made, time);
        }
    }

    fn bring_all(&mut self, node: Node, operands: &mut [Vec<Held>], time: u64) -> Vec<Vec<BufferId>> {
        if node.in_time.partition.slots == Slots::One && time > 0 {
            self.turn(node, operands, time);
        }
        operands.iter_mut().map(|operands| self.bring(node, operands, time)).collect()
    }

    /// The sums that a step's addends are added to, of results that travel: got from other ranks.
    fn travelled_all(
        &mut self,
        node: Node,
        results: &mut [Vec<Held>],
        time: u64,
    ) -> Vec<Vec<Option<BufferId>>> {
        if node.in_time.partition.slots == Slots::One {
            self.turn(node, results, time);
        }
        let travelled =
            |results: &mut Vec<Held>| results.iter_mut().map(|it| self.travelled(node, it, time)).collect();
        results.iter_mut().map(travelled).collect()
    }

    /// Brings what rotates over what is there.
    fn turn(&mut self, node: Node, held: &mut [Vec<Held>], time: u64) {
        let (mut all, mut places) = (Vec::new(), Vec::new());
        for it in held.iter_mut().flatten() {
            let Some(brought) = self.next_block(node, it, time) else { continue };
            match it.slot {
                Slot::Own => {
                    all.push(brought);
                    places.push(&mut it.buffer);
                }
                Slot::AtRest => (it.buffer, it.slot) = (Some(self.brought(brought)), Slot::Own),
            }
        }
        let slots = self.brought_over(all);
        places.into_iter().zip(slots).for_each(|(place, slot)| *place = Some(slot));
    }

    /// Cuts the half that goes one way out of an operand that rotates.
    fn cut(&mut self, node: Node, operand: &mut Held) {
        let (Some(whole), Motion::Rotating(_)) = (operand.buffer, &operand.motion) else { return };
        if node.in_time.ways.len() == 1 {
            return;
        }
        let factors = self.factors(node, operand, 0);
        let half = self.buffer(Kind::Communication, block_type(operand, &factors));
        self.copy_elements(Stream::Compute, whole, half, taken(&factors), Origin::Node(node.id));
        (operand.buffer, operand.halves, operand.slot) = (Some(half), AtRest::One, Slot::Own);
    }

    /// Puts the halves of results that have rotated together, for the first way.
    fn put_together(&mut self, node: Node, results: &mut [Vec<Held>]) {
        for index in 0..results[0].len() {
            if results.len() == 1 || !matches!(results[0][index].motion, Motion::Rotating(_)) {
                continue;
            }
            let mut to = None;
            for way in results.iter_mut() {
                let result = &mut way[index];
                let Some(half) = result.buffer else { continue };
                result.halves = AtRest::All;
                let factors = self.factors(node, result, node.in_time.partition.steps - 1);
                let dtype = self.program.buffer(half).type_.dtype;
                let type_ = Type { dtype, ..typed(result, &factors, |it| it.1 == AtRest::All) };
                let to = *to.get_or_insert_with(|| self.buffer(Kind::Activation, type_));
                let (strided, direction) = (taken(&factors), Direction::Put);
                let copied = Copied { from: half, to, strided, direction };
                self.push(Stream::Compute, Action::Copy(copied), Origin::Node(node.id));
            }
            results[0][index].buffer = to;
        }
    }

    fn operands<'a>(&self, node: Node<'a>, way: usize, at_rest: &[BufferId]) -> Vec<Held<'a>>
    where
        Self: 'a,
    {
        let InTime { ways, loops, .. } = node.in_time;
        let (partition, halves) = (&ways[way], AtRest::All);
        let values = &self.plan.graph.node(node.id).operands;
        let operand = |(index, &value): (usize, &ValueId)| Held {
            moving: Moving::Operand(index),
            way,
            halves,
            motion: partition.operand_motion(loops, index),
            type_: self.plan.graph.type_of(value),
            dims: &loops.operands[index],
            positional: &node.computed.positional[0][index],
            buffer: Some(at_rest[index]),
            slot: Slot::AtRest,
        };
        values.iter().enumerate().map(operand).collect()
    }

    fn results<'a>(&self, node: Node<'a>, way: usize) -> Vec<Held<'a>> {
        let InTime { ways, loops, results, .. } = node.in_time;
        let partition = &ways[way];
        let result = |(index, type_)| Held {
            moving: Moving::Result(index),
            way,
            motion: partition.result_motion(loops, index),
            halves: if matches!(partition.result_motion(loops, index), Motion::Rotating(_)) {
                AtRest::One
            } else {
                AtRest::All
            },
            type_,
            dims: &loops.results[index],
            positional: &node.computed.positional[1][index],
            buffer: None,
            slot: Slot::Own,
        };
        results.iter().enumerate().map(result).collect()
    }

    /// For each operand the buffer that its block of a step is in, or that it is a slice of; of
    /// those that move, got from other ranks.
    fn bring(&mut self, node: Node, operands: &mut [Held], time: u64) -> Vec<BufferId> {
        let ahead = node.in_time.partition.slots == Slots::Two && time > 0;
        let mut all = Vec::new();
        for operand in operands {
            let Some(held) = operand.buffer else { continue };
            let origin = Origin::Motion { node: node.id, moving: operand.moving, time };
            all.push(match &operand.motion {
                Motion::Rotating(_) if ahead => {
                    let next = self.next_block(node, operand, time).map(|it| self.brought(it));
                    *operand.buffer.insert(next.unwrap_or(held))
                }
                Motion::Streaming(axis) => {
                    let slot = self.buffer(Kind::Communication, self.program.buffer(held).type_.clone());
                    let kind = CollectiveKind::Broadcast(self.root(node, operand, time));
                    self.along(*axis, kind, held, slot, origin);
                    slot
                }
                Motion::Rotating(_) | Motion::Stationary | Motion::Whole => held,
            });
        }
        all
    }

    /// The sum that a step's addend is added to, if it travels: got from another rank.
    fn travelled(&mut self, node: Node, result: &mut Held, time: u64) -> Option<BufferId> {
        let held = result.buffer.filter(|_| matches!(result.motion, Motion::Rotating(_)))?;
        match node.in_time.partition.slots {
            Slots::One => Some(held),
            Slots::Two => Some(self.next_block(node, result, time).map_or(held, |it| self.brought(it))),
        }
    }

    /// The block of a neighbour, if there is something that rotates and several have a part in it.
    fn next_block(&self, node: Node, it: &Held, time: u64) -> Option<Brought> {
        let (held, Motion::Rotating(shift)) = (it.buffer?, &it.motion) else { return None };
        let mesh = &self.plan.mesh;
        let sources = (0..mesh.devices()).map(|device| shift.of(mesh, device)).collect();
        let between = Between::messages(mesh, sources)?;
        let stream = if it.way == 0 { Stream::Communication } else { Stream::Contrary };
        let origin = Origin::Motion { node: node.id, moving: it.moving, time };
        Some(Brought { stream, between, held, origin })
    }

    /// The blocks of operands that a step reads.
    fn read(&mut self, node: Node, operands: &[Held], brought: Vec<BufferId>, time: u64) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (operand, mut buffer) in operands.iter().zip(brought) {
            let factors = self.factors(node, operand, time);
            if operand.motion == Motion::Whole {
                let to = self.buffer(Kind::Activation, block_type(operand, &factors));
                self.copy_elements(Stream::Compute, buffer, to, taken(&factors), Origin::Node(node.id));
                buffer = to;
            }
            blocks.push(block_of(operand, &factors, buffer));
        }
        blocks
    }

    /// Computes a step: what it makes of each result.
    fn step(&mut self, node: Node, operands: Vec<Block>, results: &[Held], time: u64) -> Vec<BufferId> {
        let mut made = Vec::new();
        for result in results {
            let factors = self.factors(node, result, time);
            let mut type_ = block_type(result, &factors);
            if matches!(result.motion, Motion::Stationary | Motion::Rotating(_)) {
                type_.dtype = type_.dtype.accumulated();
            }
            let buffer = self.buffer(Kind::Activation, type_);
            made.push(block_of(result, &factors, buffer));
        }
        let buffers = made.iter().map(|block| block.buffer).collect();
        self.operate(node, Arc::clone(&node.in_time.op), operands, made);
        buffers
    }

    /// What is left to add, and what is there with what a step has made merged into it, if results
    /// are merged: all of them at once.
    fn merged(
        &mut self,
        node: Node,
        before: Vec<Option<BufferId>>,
        made: Vec<BufferId>,
    ) -> (Vec<Option<BufferId>>, Vec<BufferId>) {
        let there: Option<Vec<BufferId>> = before.iter().copied().collect();
        let (Some(merge), Some(there)) = (&node.in_time.merge, there) else { return (before, made) };
        let type_of = |program: &Program, it: BufferId| program.buffer(it).type_.clone();
        let types: Vec<Type> = made.iter().map(|&it| type_of(&self.program, it)).collect();
        let merged: Vec<BufferId> =
            types.into_iter().map(|type_| self.buffer(Kind::Activation, type_)).collect();
        let whole = |&buffer: &BufferId| Block { buffer, spans: Vec::new() };
        let parts = there.iter().chain(&made).map(whole).collect();
        self.operate(node, Arc::clone(merge), parts, merged.iter().map(whole).collect());
        (vec![None; merged.len()], merged)
    }

    /// Puts what a step has made of a result to what is there.
    fn put(&mut self, node: Node, result: &mut Held, sum: Option<BufferId>, made: BufferId, time: u64) {
        match result.motion.clone() {
            motion @ (Motion::Stationary | Motion::Rotating(_)) => {
                result.buffer = Some(self.combined(node, &motion, sum, made));
            }
            Motion::Whole => {
                let factors = self.factors(node, result, time);
                let to = self.whole(result, &factors);
                let (strided, direction) = (taken(&factors), Direction::Put);
                let copied = Copied { from: made, to, strided, direction };
                self.push(Stream::Compute, Action::Copy(copied), Origin::Node(node.id));
            }
            Motion::Streaming(axis) => {
                let factors = self.factors(node, result, time);
                let to = self.whole(result, &factors);
                let kind = CollectiveKind::Reduce(self.root(node, result, time));
                let origin = Origin::Motion { node: node.id, moving: result.moving, time };
                self.along(axis, kind, made, to, origin);
            }
        }
    }

    /// What was there and what a step has made, in one.
    fn combined(
        &mut self,
        node: Node,
        motion: &Motion,
        before: Option<BufferId>,
        made: BufferId,
    ) -> BufferId {
        let Some(before) = before else { return made };
        let sum = match (node.in_time.partition.slots, motion) {
            (Slots::One, Motion::Rotating(_)) => self.over(before, Kind::Activation),
            _ => self.buffer(Kind::Activation, self.program.buffer(made).type_.clone()),
        };
        let [before, made, result] = [before, made, sum].map(|buffer| Block { buffer, spans: Vec::new() });
        self.operate(node, Arc::new(Op::Binary(Binary::Add)), vec![before, made], vec![result]);
        sum
    }

    /// Rounds a result and makes it known.
    fn finish(&mut self, node: Node, result: &Held, value: ValueId) {
        let Some(held) = result.buffer else { return };
        let dtype = result.type_.dtype;
        let type_ = &self.program.buffer(held).type_;
        let buffer = if type_.dtype == dtype {
            held
        } else {
            let rounded = self.buffer(Kind::Activation, Type::new(dtype, type_.shape.clone()));
            let [from, to] = [held, rounded].map(|buffer| Block { buffer, spans: Vec::new() });
            self.operate(node, Arc::new(Op::Cast(dtype)), vec![from], vec![to]);
            rounded
        };
        self.copies.insert((value, Copy::Made), buffer);
    }

    /// The place of what a device has of a result in the end.
    fn whole(&mut self, result: &mut Held, factors: &[Factors]) -> BufferId {
        let type_ = typed(result, factors, |it| it.1 == AtRest::All);
        *result.buffer.get_or_insert_with(|| self.buffer(Kind::Activation, type_))
    }

    fn operate(&mut self, node: Node, op: Arc<Op>, operands: Vec<Block>, results: Vec<Block>) {
        let compute = Compute { op, name: Arc::clone(&node.computed.name), operands, results };
        self.push(Stream::Compute, Action::Compute(compute), Origin::Node(node.id));
    }

    /// A collective along one axis.
    fn along(&mut self, axis: AxisId, kind: CollectiveKind, from: BufferId, to: BufferId, origin: Origin) {
        let elements = self.program.buffer(from).type_.elements();
        let between = Between { axes: vec![axis], how: How::Collective(kind, elements), rows: None };
        self.between(between, from, to, origin);
    }

    /// Which device along an axis has at rest the block of a step that time alone numbers.
    fn root(&self, node: Node, held: &Held, time: u64) -> usize {
        let digits = held.dims.iter().flatten().flat_map(|it| &node.in_time.partition.loops[it.0]);
        let timed = digits.filter(|digit| digit.step != 0).map(|digit| digit.at(&[], time)).next();
        timed.and_then(|place| usize::try_from(place).ok()).unwrap_or(0)
    }

    /// For each dimension its factors at a step.
    fn factors(&self, node: Node, held: &Held, time: u64) -> Vec<Factors> {
        let InTime { partition: whole, ways, loops, .. } = node.in_time;
        let partition = &ways[held.way];
        let coordinates = self.plan.mesh.coordinates(self.program.rank);
        let factors_of = |&it: &LoopId| {
            let mut factors: Factors = Vec::new();
            for digit in &partition.loops[it.0] {
                let index = (!digit.is_free()).then(|| digit.at(&coordinates, time));
                let timed = digit.step != 0 && held.motion == Motion::Whole;
                let at_rest = if timed || index.is_none() { AtRest::All } else { AtRest::One };
                factors.push((Piece { size: digit.size, index }, at_rest));
            }
            if whole.halved() == Some(it) {
                let index = u64::try_from(held.way).ok();
                factors.push((Piece { size: whole.ways.count(), index }, held.halves));
            }
            let inner = loops.get(it).size / whole.parts(it);
            factors.push((Piece { size: inner, index: None }, AtRest::All));
            factors
        };
        let dim = |(dim, &extent): (&Vec<LoopId>, &u64)| match &dim[..] {
            [] => vec![(Piece { size: extent, index: None }, AtRest::All)],
            all => all.iter().flat_map(factors_of).collect(),
        };
        held.dims.iter().zip(&held.type_.shape).map(dim).collect()
    }
}

/// Lets all ways go on from what one has put to results that stay.
fn share(results: &mut [Vec<Held>], way: usize) {
    for index in 0..results[way].len() {
        let Held { motion, buffer, .. } = &results[way][index];
        if matches!(motion, Motion::Rotating(_)) {
            continue;
        }
        let buffer = *buffer;
        results.iter_mut().for_each(|results| results[index].buffer = buffer);
    }
}

/// The type of a block of these factors.
fn block_type(held: &Held, factors: &[Factors]) -> Type {
    typed(held, factors, |it| it.0.index.is_none())
}

/// The type of the elements that some of the factors number.
fn typed(held: &Held, factors: &[Factors], number: impl Fn(&(Piece, AtRest)) -> bool) -> Type {
    let extent =
        |factors: &Factors| -> u64 { factors.iter().filter(|it| number(it)).map(|it| it.0.size).product() };
    Type::new(held.type_.dtype, factors.iter().map(extent).collect::<Vec<u64>>())
}

fn block_of(held: &Held, factors: &[Factors], buffer: BufferId) -> Block {
    let pieces: Vec<Vec<Piece>> =
        factors.iter().map(|factors| factors.iter().map(|it| it.0).collect()).collect();
    Block::of(buffer, &pieces, &held.type_.shape, held.positional)
}

/// The copy of the block of a step from what is at rest.
fn taken(factors: &[Factors]) -> Strided {
    let all = factors.iter().flatten().enumerate();
    let at_rest = all.filter(|(_, it)| it.1 == AtRest::All);
    let named: Vec<(Factor, Option<u64>)> =
        at_rest.map(|(name, (piece, _))| (Factor { name, size: piece.size }, piece.index)).collect();
    let from: Vec<Factor> = named.iter().map(|it| it.0).collect();
    let to: Vec<Factor> = named.iter().filter(|it| it.1.is_none()).map(|it| it.0).collect();
    let fixed: Vec<(usize, u64)> = named.iter().filter_map(|it| Some((it.0.name, it.1?))).collect();
    Strided::between(&from, &to, &fixed)
}
