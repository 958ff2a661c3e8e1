//! What operations and moves take, as the search sees it.

mod routed; // work whose rows go to where what they use is
mod steps; // work that is done in time steps

use cost_models::collective;
use cost_models::machine::{Machine, Wiring};
use cost_models::topology::{Group, GroupError, Topology};
use cost_models::units::{Bytes, Seconds};
use cost_models::work::{self, Rows};
use plan::{Exchanged, Overlap};
use planner_ir::{AxisId, Digit, Layout, Loops, Mesh, Move, NodeId, Op, Partition, State, Type, Ways};

use crate::ruled::Rules;

/// Prices of what a device does and of what devices exchange.
pub trait Prices: Sync {
    /// The time of an operation on the blocks that a device holds (seconds).
    fn work(&self, work: &Work<'_>) -> f64;

    /// What of that is exchanged.
    fn exchanged(&self, _work: &Work<'_>) -> Exchanged {
        Exchanged::default()
    }

    /// The time of a move of a value of that type (seconds).
    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64;

    /// Whether half of each block is to go round rings the other way, where that may be faster along
    /// some axis: nobody gains by it where both ways share a port.
    fn ways(&self) -> Ways {
        Ways::One
    }

    /// Of how many devices of a group along these axes, one after another, one may get rows for all and pass them on,
    /// where that may be faster: those of a node, where groups have several devices in each of several nodes.
    fn near(&self, _axes: &[AxisId]) -> u64 {
        1
    }

    /// How computing and exchanges run beside each other; nothing where one waits for the other.
    fn beside(&self) -> Option<Overlap> {
        None
    }

    /// What all plans are, where only those of a kind are looked at.
    fn rules(&self) -> Option<&Rules> {
        None
    }

    /// The time that it takes to keep a state in a layout (seconds): none on any machine. Prices
    /// that say otherwise make plans of a kind.
    fn rest(&self, _state: &State, _layout: &Layout) -> f64 {
        0.0
    }
}

/// An operation as one device does it.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// What is computed.
    pub op: &'a Op,
    /// The types of the whole operands.
    pub whole: &'a [Type],
    /// The types of what the device uses of them.
    pub operands: &'a [Type],
    /// The types of what the device makes.
    pub results: &'a [Type],
    /// Which operation of its block it is.
    pub node: NodeId,
    /// How it is partitioned.
    pub partition: &'a Partition,
    /// Its loops.
    pub loops: &'a Loops,
}

/// The prices of a machine whose devices form a mesh.
#[derive(Clone, Debug)]
pub struct MachinePrices<'a> {
    machine: &'a Machine,
    /// For each set of axes (bit i is axis i), the kinds of groups along them.
    groups: Vec<Vec<Group>>,
    /// How long the smallest gather of all takes, where all exchanges go over the same links (seconds).
    latency: Option<f64>,
}

impl<'a> MachinePrices<'a> {
    /// The prices of a machine. Its ranks are the mesh's devices, in order.
    pub fn new(machine: &'a Machine, mesh: &Mesh) -> Result<Self, GroupError> {
        let topology = Topology::of(machine);
        let along = |set: usize| {
            let axes: Vec<AxisId> = mesh.axis_ids().filter(|axis| set >> axis.0 & 1 == 1).collect();
            topology.along(mesh, &axes)
        };
        let groups: Vec<Vec<Group>> = (0..1 << mesh.axes.len()).map(along).collect::<Result<_, _>>()?;
        let latency = latency(machine, &groups);
        Ok(Self { machine, groups, latency })
    }

    /// The time of the slowest kind of group along these axes.
    fn slowest(&self, axes: &[AxisId], price: impl Fn(&Group) -> Seconds) -> f64 {
        let set = axes.iter().fold(0, |set, axis| set | 1 << axis.0);
        self.groups[set].iter().map(|group| price(group).0).fold(0.0, f64::max)
    }

    /// The time of the slowest kind of group along these axes to exchange so much, and what of that is not latency
    /// (seconds).
    fn sent(&self, axes: &[AxisId], held: Bytes, price: impl Fn(&Group, Bytes) -> Seconds) -> [f64; 2] {
        let [sent, latency] = [held, Bytes(1)].map(|bytes| self.slowest(axes, |it| price(it, bytes)));
        [sent, (sent - latency).max(0.0)]
    }

    /// The time to copy what a device holds once (seconds).
    fn copy(&self, held: Bytes) -> f64 {
        work::copy(&self.machine.device, held).0
    }
}

/// How long the smallest gather of all takes, where all exchanges go over the same links (seconds): along one axis, or
/// through one switch.
fn latency(machine: &Machine, groups: &[Vec<Group>]) -> Option<f64> {
    let along = (0..).zip(groups).filter(|(set, _): &(u32, _)| set.is_power_of_two());
    let axes = along.filter(|(_, groups)| groups.iter().any(|it| it.size > 1));
    let is_switched = machine.node.wiring.value == Wiring::Switch;
    let in_one_switch = is_switched && axes.clone().all(|(_, groups)| groups.iter().all(|it| it.nodes == 1));
    let all = groups.last()?.iter();
    let least = all.map(|it| collective::ring_all_gather(machine, it, Bytes(1)).0).reduce(f64::max);
    least.filter(|_| axes.count() == 1 || in_one_switch)
}

impl Prices for MachinePrices<'_> {
    fn ways(&self) -> Ways {
        let gains = |it: &Group| it.size > 2 && collective::gains_both_ways(self.machine, it);
        let along_one_axis = (0..).zip(&self.groups).filter(|(set, _): &(u32, _)| set.is_power_of_two());
        let any = along_one_axis.flat_map(|it| it.1).any(gains);
        if any { Ways::Both } else { Ways::One }
    }

    fn near(&self, axes: &[AxisId]) -> u64 {
        let set = axes.iter().fold(0, |set, axis| set | 1 << axis.0);
        let near = |group: &Group| group.by_nodes().map_or(1, |it| it[0].size);
        // Devices of a node come one after another where the blocks of a group are numbered as devices are.
        let [first, others @ ..] = &self.groups[set][..] else { return 1 };
        let alike = axes.is_sorted() && others.iter().all(|it| near(it) == near(first));
        if alike { near(first) } else { 1 }
    }

    fn beside(&self) -> Option<Overlap> {
        let cost = self.machine.transport.cost_beside()?;
        Some(Overlap { cost, latency: self.latency })
    }

    fn work(&self, work: &Work<'_>) -> f64 {
        match work.partition {
            Partition { steps: 2.., .. } => self.in_steps(work).seconds(),
            it if it.moves() => self.met(work) + self.routed(work)[0],
            _ => self.at_once(work),
        }
    }

    fn exchanged(&self, work: &Work<'_>) -> Exchanged {
        let is_shared = self.latency.is_some();
        match work.partition {
            Partition { steps: 2.., .. } => {
                let links = if is_shared { self.in_steps(work).on_links() } else { 0.0 };
                Exchanged { rows: 0.0, links }
            }
            it if it.moves() => {
                let [rows, links] = self.routed(work);
                Exchanged { rows, links: if is_shared { links } else { 0.0 } }
            }
            _ => Exchanged::default(),
        }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        let held = Bytes(before.local_bytes(type_));
        let made = Bytes(after.local_bytes(type_));
        let axes = step.axes(before);
        let machine = self.machine;
        let sent = match step {
            Move::Slice { .. } => return self.copy(made),
            Move::AllGather { .. } => {
                self.slowest(&axes, |it| collective::ring_all_gather(machine, it, made))
            }
            Move::AllReduce { .. } => self.slowest(&axes, |it| collective::all_reduce(machine, it, held)),
            Move::ReduceScatter { .. } => {
                self.slowest(&axes, |it| collective::reduce_scatter(machine, it, held))
            }
            Move::AllToAll { .. } => self.slowest(&axes, |it| collective::all_to_all(machine, it, held)),
            Move::Permute { .. } => self.slowest(&axes, |it| collective::send(machine, it, held)),
        };
        let [packed, unpacked] = packs(step, before, after, type_);
        let copy = |is: bool, size: Bytes| if is { self.copy(size) } else { 0.0 };
        sent + copy(packed, held) + copy(unpacked, made)
    }
}

/// Whether what a device holds is copied before it is sent, and what it gets before it is used: the
/// blocks that are exchanged do not lie one after another in it.
pub(crate) fn packs(step: &Move, before: &Layout, after: &Layout, type_: &Type) -> [bool; 2] {
    match step {
        Move::AllGather { dim, .. } => [false, !outermost(*dim, after, type_) || apart(&before.dims[*dim])],
        Move::ReduceScatter { dim, digits } => [!outermost(*dim, before, type_) || apart(digits), false],
        Move::AllToAll { from, to, digits } => [
            !outermost(*to, before, type_) || apart(digits),
            !outermost(*from, after, type_) || apart(&before.dims[*from]),
        ],
        Move::Slice { .. } | Move::AllReduce { .. } | Move::Permute { .. } => [false, false],
    }
}

impl MachinePrices<'_> {
    /// The time of work that is done at once (seconds).
    fn at_once(&self, work: &Work<'_>) -> f64 {
        let Work { op, whole, operands, results, .. } = *work;
        let rows = rows(work.partition, work.loops);
        work::operation(&self.machine.device, &work::Work { op, whole, operands, results, rows }).0
    }
}

/// Which rows a device has of what depends on positions: stripes are of the whole where nothing
/// comes before them.
fn rows(partition: &Partition, loops: &Loops) -> Rows {
    let mut along = loops.positional.iter().map(|it| &partition.loops[it.0]);
    let striped = along.any(|digits| digits.first().is_some_and(|digit| digit.is_free() && digit.size > 1));
    if striped { Rows::Spread } else { Rows::Together }
}

/// Whether the parts that digits number lie apart: free digits stand before others.
fn apart(digits: &[Digit]) -> bool {
    let last = digits.iter().rposition(|digit| !digit.is_free() && digit.size > 1);
    last.is_some_and(|last| digits[..last].iter().any(|digit| digit.is_free() && digit.size > 1))
}

/// Whether blocks along a dimension lie one after another in what a device holds.
fn outermost(dim: usize, layout: &Layout, type_: &Type) -> bool {
    let local = layout.local_shape(&type_.shape);
    local[..dim].iter().all(|&extent| extent == 1) && layout.dims[dim].iter().all(|digit| !digit.is_free())
}

#[cfg(test)]
mod tests;
