//! Partitions in time, derived from an operation's loops.
//!
//! Two families over axes that a partition does not use yet. Of each, only what moves blocks
//! between devices is offered: time steps that every device takes alone gain nothing.
//!
//! - **ring**: along one axis, the axis splits one loop and time turns another. Rotated weights
//!   (RTP), ring gathers and scatters, rotated heads and experts are this with different loops.
//! - **square**: along two axes of one size, they split two loops and time turns a third. Where the
//!   digits of one loop are the sum of both axes, operands rotate (Cannon, PrimePar); where time
//!   alone numbers the third, they are streamed (SUMMA; with further axes, Tesseract).

use planner_ir::{AxisId, Digit, Layout, LoopId, Loops, Motion, NodeId, Partition, Role};

use super::offsets::{self, Indexed};
use super::stripes;
use super::suited::{is_skewed, splits, suits};
use super::term::Facts;
use super::wide_axes;

/// In how many steps an operation is done at most: with more, blocks are too small to be worth it.
const MOST_STEPS: u64 = 16;

/// How many axes a mesh has at most that rings are offered on. Along many short axes there are a
/// hundred rings for each product, and one along a longer axis is better than any of them.
const RING_AXES: usize = 2;

/// The partitions that use one or two more axes and take time.
pub(super) fn in_time(facts: &Facts, node: NodeId, partition: &Partition) -> Vec<Partition> {
    let Some(loops) = facts.loops(node).filter(|_| facts.takes_time(node)) else { return vec![] };
    if partition.steps > 1 || !partition.passed.is_empty() {
        return vec![];
    }
    let last = partition.axes().into_iter().max();
    let free = |axis: &AxisId| last.is_none_or(|last| *axis > last) && facts.mesh.size(*axis) <= MOST_STEPS;
    let axes: Vec<AxisId> = wide_axes(&facts.mesh).filter(free).collect();
    let base = Base { facts, node, loops, partition };
    let mut found = Vec::new();
    if wide_axes(&facts.mesh).count() <= RING_AXES {
        found.extend(axes.iter().flat_map(|&axis| base.rings(axis)));
    }
    for (place, &first) in axes.iter().enumerate() {
        for &second in &axes[place + 1..] {
            if facts.mesh.size(first) == facts.mesh.size(second) {
                found.extend(base.squares(first, second));
            }
        }
    }
    // That they are partitions was seen with how their blocks move.
    let wanted = |layout: &Layout| !facts.unskewed || !is_skewed(layout);
    found.retain(|it| facts.splits().allow(splits(it)) && suits(facts, node, it, wanted));
    found
}

/// What is split further.
struct Base<'a> {
    facts: &'a Facts,
    node: NodeId,
    loops: &'a Loops,
    partition: &'a Partition,
}

impl Base<'_> {
    /// One loop split by the axis, another turned by time: both in stripes or neither, if they can.
    fn rings(&self, axis: AxisId) -> Vec<Partition> {
        let own = Digit::axis(&self.facts.mesh, axis);
        let indexes = |dims: &Vec<Vec<LoopId>>, it: LoopId| dims.iter().any(|dim| dim.contains(&it));
        // What both loops index stays where it is, and what the turned one does not index does.
        let rotates = |&(still, turned): &(LoopId, LoopId)| {
            let mut values = self.loops.operands.iter().chain(&self.loops.results);
            values.any(|dims| indexes(dims, turned) && !indexes(dims, still))
        };
        let mut found = Vec::new();
        let pairs = self.split().flat_map(|still| self.turned().map(move |turned| (still, turned)));
        for (still, turned) in pairs.filter(|(still, turned)| still != turned).filter(rotates) {
            let stripes = [still, turned].map(|it| self.stripes(it, axis));
            // Keys in stripes are balanced for queries in stripes only.
            let alone = stripes[0].is_none() && self.loops.positional.contains(&turned);
            let in_stripes = !alone && stripes.iter().any(Option::is_some);
            for offsets in [[None; 2], stripes].into_iter().take(1 + usize::from(in_stripes)) {
                let digit = Digit { step: 1, ..own.clone() };
                let mut ring = self.with(&[(still, own.clone()), (turned, digit)], own.size, vec![]);
                for (it, offset) in [still, turned].into_iter().zip(offsets) {
                    let place = ring.loops[it.0].len() - 1;
                    ring.loops[it.0].splice(place..place, offset.map(Digit::free));
                }
                // A sum that travels is at home after the last step.
                let mut results = self.loops.results.iter();
                if results.any(|dims| indexes(dims, turned) && !indexes(dims, still)) {
                    ring.loops[turned.0]
                        .iter_mut()
                        .filter(|digit| digit.step != 0)
                        .for_each(|it| it.offset = 1);
                }
                if self.motions(&ring).iter().any(|it| matches!(it, Motion::Rotating(_))) {
                    found.push(ring);
                }
            }
        }
        found
    }

    /// How many blocks come before the stripes of an axis in a loop that is not split yet, if it can
    /// be split in stripes.
    fn stripes(&self, it: LoopId, axis: AxisId) -> Option<u64> {
        let Base { facts, node, loops, partition } = *self;
        let offset = stripes::offset(&facts.mesh, axis, facts.striped()?)?;
        let operation: Indexed<'_> = (loops, facts.operands(node), facts.results(node));
        let begins = loops.get(it).size == facts.striped()?
            && offsets::of_loop(&operation, it, &facts.offsets).contains(&offset);
        (begins && partition.loops[it.0].is_empty()).then_some(offset)
    }

    /// Two loops split by two axes, a third turned by time.
    fn squares(&self, first: AxisId, second: AxisId) -> Vec<Partition> {
        let [r, c] = [first, second].map(|axis| Digit::axis(&self.facts.mesh, axis));
        let skew = Digit { terms: vec![(first, 1), (second, 1)], ..r.clone() };
        let timed = |digit: &Digit| Digit { step: 1, ..digit.clone() };
        let time = Digit { terms: vec![], step: 1, ..r.clone() };
        let mut found = Vec::new();
        for i in self.split() {
            for j in self.split().filter(|&it| it != i) {
                for k in self.split().filter(|&it| it != i && it != j) {
                    let streams = vec![first, second];
                    found.push(self.with(
                        &[(i, r.clone()), (j, c.clone()), (k, time.clone())],
                        r.size,
                        streams,
                    ));
                    if self.loops.get(k).role == Role::Sum {
                        for [of_i, of_j, of_k] in [[&r, &c, &skew], [&r, &skew, &c], [&skew, &c, &r]] {
                            let digits = [(i, of_i.clone()), (j, of_j.clone()), (k, timed(of_k))];
                            found.push(self.with(&digits, r.size, vec![]));
                        }
                    }
                }
            }
        }
        let moves = |motion: &Motion| matches!(motion, Motion::Rotating(_) | Motion::Streaming(_));
        found.retain(|it| {
            let motions = self.motions(it);
            motions.iter().filter(|it| moves(it)).count() > 1 && !motions.contains(&Motion::Whole)
        });
        found
    }

    /// The loops that may be split.
    fn split(&self) -> impl Iterator<Item = LoopId> {
        self.loops.ids().filter(|&it| matches!(self.loops.get(it).role, Role::Map | Role::Sum))
    }

    /// The loops that time may turn: parts may be merged where they are.
    fn turned(&self) -> impl Iterator<Item = LoopId> {
        self.loops.ids().filter(|&it| self.loops.get(it).role != Role::Whole)
    }

    fn with(&self, digits: &[(LoopId, Digit)], steps: u64, streams: Vec<AxisId>) -> Partition {
        let mut partition = Partition { steps, streams, ..self.partition.clone() };
        for (it, digit) in digits {
            partition.loops[it.0].push(digit.clone());
        }
        partition
    }

    /// How operands and results move; nothing if it is no partition of the operation.
    fn motions(&self, partition: &Partition) -> Vec<Motion> {
        if partition.check(&self.facts.mesh, self.loops).is_err() {
            return vec![];
        }
        let operands = (0..self.loops.operands.len()).map(|it| partition.operand_motion(self.loops, it));
        let results = (0..self.loops.results.len()).map(|it| partition.result_motion(self.loops, it));
        operands.chain(results).collect()
    }
}
