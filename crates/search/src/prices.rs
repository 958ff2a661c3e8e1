//! What operations and moves take, as the search sees it.

mod steps; // work that is done in time steps

use cost_models::collective;
use cost_models::compute::{MatrixProduct, element_wise, matrix_product};
use cost_models::machine::{Machine, Precision};
use cost_models::topology::{Group, GroupError, Topology};
use cost_models::units::{Bytes, Flops, Seconds, exact};
use planner_ir::{
    AxisId, Contract, Conv, Label, Layout, Loops, Mesh, Move, NodeId, Op, Partition, State, Type,
};

/// Prices of what a device does and of what devices exchange.
pub trait Prices: Sync {
    /// The time of an operation on the blocks that a device holds (seconds).
    fn work(&self, work: &Work<'_>) -> f64;

    /// The time of a move of a value of that type (seconds).
    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64;

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
}

impl<'a> MachinePrices<'a> {
    /// The prices of a machine. Its ranks are the mesh's devices, in order.
    pub fn new(machine: &'a Machine, mesh: &Mesh) -> Result<Self, GroupError> {
        let topology = Topology::of(machine);
        let along = |set: usize| {
            let axes: Vec<AxisId> = mesh.axis_ids().filter(|axis| set >> axis.0 & 1 == 1).collect();
            topology.along(mesh, &axes)
        };
        let groups = (0..1 << mesh.axes.len()).map(along).collect::<Result<_, _>>()?;
        Ok(Self { machine, groups })
    }

    /// The time of the slowest kind of group along these axes.
    fn slowest(&self, axes: &[AxisId], price: impl Fn(&Group) -> Seconds) -> f64 {
        let set = axes.iter().fold(0, |set, axis| set | 1 << axis.0);
        self.groups[set].iter().map(|group| price(group).0).fold(0.0, f64::max)
    }

    /// The time to copy what a device holds once (seconds).
    fn copy(&self, held: Bytes) -> f64 {
        element_wise(&self.machine.device, Bytes(2 * held.0), Flops(0.0)).0
    }

    fn product(&self, batch: u64, [m, n, k]: [u64; 3], type_: &Type) -> f64 {
        let precision = Precision::of(type_.dtype);
        matrix_product(&self.machine.device, &MatrixProduct { batch, m, n, k, precision }).0
    }
}

impl Prices for MachinePrices<'_> {
    fn work(&self, work: &Work<'_>) -> f64 {
        if work.partition.steps > 1 { self.in_steps(work) } else { self.at_once(work) }
    }

    fn step(&self, type_: &Type, step: &Move, before: &Layout, after: &Layout) -> f64 {
        let held = Bytes(before.local_type(type_).bytes());
        let made = Bytes(after.local_type(type_).bytes());
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
        Move::AllGather { dim, .. } => [false, !outermost(*dim, after, type_)],
        Move::ReduceScatter { dim, .. } => [!outermost(*dim, before, type_), false],
        Move::AllToAll { from, to, .. } => [!outermost(*to, before, type_), !outermost(*from, after, type_)],
        Move::Slice { .. } | Move::AllReduce { .. } | Move::Permute { .. } => [false, false],
    }
}

impl MachinePrices<'_> {
    /// The time of work that is done at once (seconds).
    fn at_once(&self, work: &Work<'_>) -> f64 {
        let Work { op, whole, operands, results, .. } = *work;
        match op {
            Op::Contract(contract) => {
                let [batch, m, n, k] = product_sizes(contract, operands);
                self.product(batch, [m, n, k], &operands[0])
            }
            Op::Attention(_) => {
                let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
                // Scores stay on the device's chip: only operands and the result are traffic.
                let heads = q[0] * q[1];
                let computing = self.product(heads, [q[2], k[2], q[3]], &operands[0])
                    + self.product(heads, [q[2], v[3], k[2]], &operands[0]);
                computing.max(self.touch(operands, results))
            }
            Op::AttentionGradient { .. } => {
                let (q, k, v) = (&operands[0].shape, &operands[1].shape, &operands[2].shape);
                let (s, t, d, e) = (q[2], k[2], q[3], v[3]);
                // Scores again, their gradient by the values, and what follows for v, q and k.
                let products = [[s, t, d], [s, t, e], [t, e, s], [s, d, t], [t, d, s]];
                let product = |sizes: &[u64; 3]| self.product(q[0] * q[1], *sizes, &operands[0]);
                products.iter().map(product).sum::<f64>().max(self.touch(operands, results))
            }
            Op::Experts { active, .. } => self.experts(operands.len() - 2, *active, whole, operands),
            // Two products for each of the forward ones, and the hidden units again.
            Op::ExpertsGradient { active, .. } => {
                self.experts(3 * (operands.len() - 3) - 1, *active, whole, operands)
            }
            Op::Conv(conv) => {
                let [groups, points, made, window] = window_sizes(conv, &operands[1], &results[0]);
                self.product(groups, [points, made, window], &operands[0])
            }
            Op::ConvInputGradient { conv, .. } => {
                let [groups, points, made, window] = window_sizes(conv, &operands[0], &operands[1]);
                self.product(groups, [points, window, made], &operands[0])
            }
            Op::ConvWeightGradient { conv, .. } => {
                let [groups, points, made, window] = window_sizes(conv, &results[0], &operands[1]);
                self.product(groups, [made, window, points], &operands[0])
            }
            // Zeros everywhere, and the rows that are looked up read and written.
            Op::GatherGradient { .. } => self.touch(&[operands, &operands[1..]].concat(), results),
            _ if operands.len() == 1 && op.keeps_order(&operands[0]) => 0.0,
            // Only what is taken is read.
            Op::Slice { .. } => self.touch(results, results),
            // Only the rows that are looked up are read.
            Op::Gather { .. } | Op::GatherNd { .. } | Op::GatherElements { .. } => {
                self.touch(&operands[1..], &[results, results].concat())
            }
            _ => self.touch(operands, results),
        }
    }

    /// The time of so many products of each expert that the device has (seconds).
    fn experts(&self, products: usize, active: u64, whole: &[Type], operands: &[Type]) -> f64 {
        let (x, up) = (&operands[0].shape, &operands[2].shape);
        let experts = whole[2].shape[0].max(1);
        let rows = (x[0] * active * up[0]).div_ceil(experts).max(1);
        // One product after another for each expert, over its share of the rows.
        let each = rows.div_ceil(up[0].max(1));
        let products = u64::try_from(products).unwrap_or(u64::MAX);
        exact(products * up[0]) * self.product(1, [each, up[1], up[2]], &operands[0])
    }

    /// The time of an operation that reads its operands and writes its results once.
    fn touch(&self, operands: &[Type], results: &[Type]) -> f64 {
        let bytes = operands.iter().chain(results).map(Type::bytes).sum();
        let elements: u64 = results.iter().map(Type::elements).sum();
        element_wise(&self.machine.device, Bytes(bytes), Flops(exact(elements))).0
    }
}

/// Whether blocks along a dimension lie one after another in what a device holds.
fn outermost(dim: usize, layout: &Layout, type_: &Type) -> bool {
    let local = layout.local_shape(&type_.shape);
    local[..dim].iter().all(|&extent| extent == 1) && layout.dims[dim].iter().all(|digit| !digit.is_free())
}

/// A contraction as a matrix product: batch, m, n, k.
fn product_sizes(contract: &Contract, operands: &[Type]) -> [u64; 4] {
    let mut sizes = [1; 4];
    let both = |label: &Label| contract.left.contains(label) && contract.right.contains(label);
    for (labels, operand, alone) in [(&contract.left, &operands[0], 1), (&contract.right, &operands[1], 2)] {
        for (label, &extent) in labels.iter().zip(&operand.shape) {
            let place = match (both(label), contract.result.contains(label)) {
                (false, _) => alone,
                (true, true) => 0,
                (true, false) => 3,
            };
            // Labels of both operands are counted with the left one.
            if alone == 1 || !both(label) {
                sizes[place] *= extent;
            }
        }
    }
    sizes
}

/// A convolution as matrix products over windows: how many groups, points, channels made of each
/// group, and elements of a window.
fn window_sizes(conv: &Conv, w: &Type, y: &Type) -> [u64; 4] {
    let (w, y) = (&w.shape, &y.shape);
    let positions: u64 = y[2..].iter().product::<u64>() * y[0];
    let window: u64 = w[1..].iter().product();
    let groups = conv.groups.min(y[1].max(1));
    [groups, positions, y[1] / groups, window]
}
