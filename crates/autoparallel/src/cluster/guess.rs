//! In which order setups are looked at: a rough price of each.

use std::collections::BTreeMap;

use cost_models::collective::{all_reduce, reduce_scatter, routed};
use cost_models::machine::{Machine, Precision};
use cost_models::quantity::whole_bytes;
use cost_models::topology::Topology;
use cost_models::units::exact;
use cost_models::work;
use files::Failure;
use plan::{Load, Overlap, Recompute};
use planner_ir::{
    Contract, ExpertsClass, Graph, Node, OpClass, Phase, RoutedRows, Source, StateKind, numbers,
};

use super::known::Known;
use super::{Question, Setup};

/// What part of the peak products reach, roughly.
const REACHED: f64 = 0.6;

/// What a model has, and what a machine does with it.
pub(super) struct Sizes<'a> {
    machine: &'a Machine,
    topology: Topology,
    capacity: f64,
    /// What all products of an example take at the peak of one device, forward (seconds).
    forward: f64,
    /// The same backward.
    backward: f64,
    /// Parameters (bytes), with gradients and what the optimizer keeps.
    parameters: f64,
    states: f64,
    /// Parameters of experts (bytes), how many experts a layer has at least, and how many a token uses; nothing
    /// where it has none.
    experts: Option<(f64, u64, u64)>,
    /// What blocks hand on, for an example (bytes), and how many blocks there are.
    handed: f64,
    blocks: f64,
    /// What all blocks keep for an example, if nothing is computed again (bytes).
    kept: f64,
    examples: f64,
}

impl<'a> Sizes<'a> {
    pub(super) fn of(question: &Question<'a>, known: &Known) -> Result<Self, Failure> {
        let step = known.step_of(question, (known.fewest(), &Recompute::Nothing))?;
        let graph = &step.prepared.graph;
        let per_example = exact(known.fewest()) / exact(question.examples.max(1));
        let products = |phases: &[Phase]| -> f64 {
            let those = graph.nodes.iter().filter(|node| phases.contains(&node.phase));
            those.map(|node| product(question.machine(), graph, node)).sum::<f64>() * per_example
        };
        let mut sizes = Self {
            machine: question.machine(),
            topology: Topology::of(question.machine()),
            capacity: exact(question.capacity()),
            forward: products(&[Phase::Forward]),
            backward: products(&[Phase::Backward, Phase::Gradient]),
            parameters: 0.0,
            states: 0.0,
            experts: None,
            handed: 0.0,
            blocks: exact(u64::try_from(step.blocks).unwrap_or(u64::MAX)),
            kept: 0.0,
            examples: exact(question.examples),
        };
        for value in &graph.values {
            if let Source::State(state) = &value.source {
                let bytes = exact(value.type_.bytes());
                sizes.states += bytes;
                if state.kind == StateKind::Parameter {
                    sizes.parameters += bytes;
                }
            }
        }
        for node in graph.nodes.iter().filter(|node| node.phase == Phase::Forward) {
            if let OpClass::Experts(ExpertsClass::Forward { active }) = node.op.class() {
                let weights = node.operands[2..].iter().map(|&it| graph.type_of(it));
                let bytes: f64 = weights.map(|it| exact(it.bytes())).sum();
                let count = graph.type_of(node.operands[2]).shape[0];
                let (before, least, _) = sizes.experts.unwrap_or((0.0, count, active));
                sizes.experts = Some((before + bytes, least.min(count), active));
            }
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            for &operand in &node.operands {
                let Source::Result { node: maker, .. } = graph.value(operand).source else { continue };
                if graph.node(maker).phase != Phase::Forward {
                    continue;
                }
                let bytes = exact(graph.type_of(operand).bytes()) * per_example;
                if node.phase == Phase::Forward && step.homes[maker.0] != step.homes[index] {
                    sizes.handed = sizes.handed.max(bytes);
                }
            }
        }
        let mut used = vec![false; graph.values.len()];
        for node in graph.nodes.iter().filter(|it| matches!(it.phase, Phase::Backward | Phase::Gradient)) {
            node.operands.iter().for_each(|operand| used[operand.0] = true);
        }
        for value in graph.value_ids().filter(|value| used[value.0]) {
            if let Source::Result { node, .. } = graph.value(value).source
                && graph.node(node).phase == Phase::Forward
            {
                sizes.kept += exact(graph.type_of(value).bytes()) * per_example;
            }
        }
        Ok(sizes)
    }

    /// Whether layers have experts.
    pub(super) fn has_experts(&self) -> bool {
        self.experts.is_some()
    }

    /// A rough price (seconds), where the last axis of the mesh splits products, or examples as the others do, and each
    /// axis experts, or as other products; a thousand times as much where it would hardly fit.
    pub(super) fn guess(&self, setup: &Setup) -> f64 {
        let (each, axes, node) = (setup.mesh.devices(), setup.mesh.sizes(), self.machine.devices_per_node());
        let last = axes.last().copied().filter(|&it| axes.len() > 1 || it <= node);
        let at_once = self.examples / exact(setup.micro_batches);
        let may_be = |&tensor: &u64| exact(each / tensor) <= at_once;
        let all: Vec<u64> = last.into_iter().chain([1]).filter(may_be).collect();
        let all = if all.is_empty() { vec![each] } else { all };
        // Devices that share experts lie along the innermost axes, or along those that do not split products.
        let shares = |tensor: u64| -> Vec<[u64; 2]> {
            let mut found = vec![[1, 1]];
            for stride in [1, tensor] {
                let splits = usize::from(stride > 1);
                let mut shared = 1;
                for axis in axes.iter().rev().copied().filter(|&it| it > 1).skip(splits) {
                    shared *= axis;
                    found.extend(
                        self.experts.filter(|it| it.1.is_multiple_of(shared)).map(|_| [shared, stride]),
                    );
                }
            }
            found.dedup();
            found
        };
        let ways =
            all.iter().flat_map(|&tensor| shares(tensor).into_iter().map(move |experts| (tensor, experts)));
        ways.map(|way| self.split(setup, way)).fold(f64::INFINITY, f64::min)
    }

    /// The same, where so many devices split products, and so many that far apart experts.
    fn split(&self, setup: &Setup, (tensor, [experts, stride]): (u64, [u64; 2])) -> f64 {
        let groups = exact(u64::try_from(setup.groups).unwrap_or(u64::MAX));
        let each = exact(setup.mesh.devices());
        let data = setup.mesh.devices() / tensor;
        let (runs, examples) = (exact(setup.micro_batches), self.examples / exact(setup.micro_batches));
        let again = if setup.recompute == Recompute::Full { self.forward } else { 0.0 };
        let work = (self.forward + self.backward + again) * examples / (groups * each * REACHED);
        let bytes = |it: f64| whole_bytes(it.floor());
        let along = |count: u64, stride: u64| {
            let ranks: Vec<u64> = (0..count).map(|it| it * stride).collect();
            self.topology.group(&ranks).ok()
        };
        let of_values = along(tensor, 1).map_or(0.0, |group| {
            let one = all_reduce(self.machine, &group, bytes(self.handed * examples / exact(data))).0;
            4.0 * one * self.blocks / groups
        });
        // What comes to experts, what they make, and the same backward.
        let of_rows = self.handed * examples / each * exact(stride * experts);
        let of_tokens = along(experts, stride).map_or(0.0, |group| {
            let (count, used) = self.experts.map_or((1, 1), |it| (it.1, it.2));
            let near = group.by_nodes().map_or(1, |it| it[0].size);
            let way = |by: u64| {
                let rows = RoutedRows { count: 1, used, parts: count, by };
                routed(self.machine, &group, bytes(of_rows), &rows).0
            };
            5.0 * way(1).min(way(near)) * self.blocks / groups
        });
        let reduced = |parameters: f64, (count, stride): (u64, u64)| {
            along(count, stride).map_or(0.0, |group| {
                let held = 2.0 * parameters / (groups * exact(stride));
                2.0 * reduce_scatter(self.machine, &group, bytes(held)).0
            })
        };
        let apart = self.experts.map_or(0.0, |it| it.0);
        let of_gradients = reduced(self.parameters - apart, (data, tensor))
            + reduced(apart, (setup.mesh.devices() / (stride * experts), stride * experts));
        let turn = work + of_values + of_tokens;
        // Gradients are summed beside computing, where a machine does that.
        let load = Load { alone: runs * turn, behind: of_gradients, ..Load::default() };
        let hidden = load.hidden(self.machine.transport.cost_beside().map(Overlap::costs));
        let seconds = runs * turn + (groups - 1.0) * turn / 2.0 + of_gradients - hidden;
        let kept = match setup.recompute {
            Recompute::Nothing => self.kept,
            Recompute::Selective => 0.6 * self.kept,
            _ => self.blocks * self.handed,
        };
        // The first group keeps as many micro-batches as there are groups, each of a part of the model.
        let held =
            self.states / (groups * each) + kept * examples / each.max(1.0) * groups.min(runs) / groups;
        if held > self.capacity { 1e3 * seconds * held / self.capacity } else { seconds }
    }
}

/// What a product takes at the peak of a device (seconds), those of experts too; other operations nothing.
fn product(machine: &Machine, graph: &Graph, node: &Node) -> f64 {
    let Contract { left, right, .. } = match node.op.class() {
        OpClass::MatrixProduct(contract) => contract,
        OpClass::Experts(_) => {
            let (operands, results) = (graph.types_of(&node.operands), graph.types_of(&node.results));
            return work::least(&machine.device, &node.op, &operands, &results).0;
        }
        _ => return 0.0,
    };
    let mut sizes = BTreeMap::new();
    for (labels, at) in [(left, 0), (right, 1)] {
        let type_ = graph.type_of(node.operands[at]);
        let shape = match node.operands.get(at + 2) {
            Some(&scales) => numbers(type_, graph.type_of(scales)).shape,
            None => type_.shape.clone(),
        };
        sizes.extend(labels.iter().zip(shape));
    }
    let precision = Precision::of_op(&node.op, graph.type_of(node.operands[0]).dtype);
    let peak = machine.device.matrix_peak.at(precision).value.0;
    2.0 * sizes.values().map(|&size| exact(size)).product::<f64>() / peak
}
