//! What no way to run a setup does with less: memory, and time.

use std::collections::BTreeSet;

use cost_models::machine::Machine;
use cost_models::units::exact;
use cost_models::work;
use planner_ir::{Graph, Node, Op, Phase, Source, ValueId};
use schedule::Kind;
use search::fold;
use train::Step;

use super::Setup;

/// How often a bound of time is made closer by half.
const HALVES: usize = 40;
/// What sums of parts may be off by.
const ROUNDING: f64 = 1e-9;

/// What the block that repeats most holds, each byte once, and does, however it is split, in the time of
/// one device. The other blocks come on top.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Least {
    /// How often it repeats.
    blocks: f64,
    /// At rest (bytes).
    resident: f64,
    /// Of each micro-batch, from the forward pass for the backward pass (bytes).
    kept: f64,
    /// A micro-batch forward (seconds).
    forward: f64,
    /// The same, backward, with gradients of parameters.
    backward: f64,
    /// Once in a step (seconds).
    update: f64,
}

impl Least {
    /// Of a step.
    pub(super) fn of(machine: &Machine, step: &Step) -> Self {
        let Step { graph, homes, forward, .. } = step;
        let sections = fold(graph, homes, forward);
        let most = sections.iter().rev().max_by_key(|it| it.repetitions.len());
        let repetitions = most.map_or(&[][..], |it| &it.repetitions);
        let block = repetitions.first().and_then(|it| it.nodes.first()).map_or(0, |it| homes[it.0]);
        let blocks = exact(u64::try_from(repetitions.len()).unwrap_or(0));
        let mut least = Self { blocks, resident: 0.0, kept: 0.0, forward: 0.0, backward: 0.0, update: 0.0 };
        let prepared = graph.prepared();
        let (mut first, mut kept) = (vec![None; graph.values.len()], BTreeSet::new());
        for (node, &home) in graph.nodes.iter().zip(homes) {
            for &operand in &node.operands {
                first[operand.0].get_or_insert(home);
                if matches!(node.phase, Phase::Backward | Phase::Gradient) {
                    kept.extend(root(graph, operand));
                }
            }
            if home == block && !node.results.iter().all(|result| prepared[result.0]) {
                let seconds = taken(machine, graph, node);
                match node.phase {
                    Phase::Forward => least.forward += seconds,
                    Phase::Backward | Phase::Gradient => least.backward += seconds,
                    Phase::Update => least.update += seconds,
                }
            }
        }
        for value in graph.value_ids() {
            let bytes = exact(graph.type_of(value).bytes());
            match graph.value(value).source {
                Source::State(_) | Source::Weight(_) if first[value.0] == Some(block) => {
                    least.resident += bytes;
                }
                Source::Result { node, .. }
                    if homes[node.0] == block && kept.contains(&value) && !prepared[value.0] =>
                {
                    least.kept += bytes;
                }
                _ => {}
            }
        }
        least
    }

    /// The same, where as little is kept as of other steps of the model, and no more is done than here.
    pub(super) fn keeping(&self, other: &Self) -> Self {
        Self { kept: other.kept, ..*self }
    }

    /// The same of so many times as many micro-batches, which have as much less each: arithmetic and what is kept become
    /// less with examples, and what is read of parameters does not.
    pub(super) fn shared(&self, times: f64) -> Self {
        let part = |it: f64| it / times;
        Self { kept: part(self.kept), forward: part(self.forward), backward: part(self.backward), ..*self }
    }

    /// How often the block repeats, and what it does of so many micro-batches in the time of one device
    /// (seconds).
    pub(super) fn work(&self, micro_batches: u64) -> (f64, f64) {
        (self.blocks, exact(micro_batches) * (self.forward + self.backward) + self.update)
    }

    /// What its groups can do with of a setup, whatever the schedule: blocks for each byte of a device.
    fn rooms(&self, setup: &Setup) -> Vec<f64> {
        let each = exact(setup.mesh.devices());
        let groups = u64::try_from(setup.groups).unwrap_or(u64::MAX);
        let live = |group: u64| exact((groups - group).min(setup.micro_batches));
        (0..groups).map(|group| each / (self.resident + live(group) * self.kept)).collect()
    }

    /// What a device holds of a setup at least, however it is cut (bytes).
    pub(super) fn bytes(&self, setup: &Setup) -> f64 {
        self.blocks / self.rooms(setup).iter().sum::<f64>()
    }

    /// What a setup takes at least by a schedule, however it is cut (seconds); infinite if it does not
    /// fit.
    ///
    /// In every schedule that is offered, group `g` of `p` keeps something of `p - g` micro-batches at
    /// once, or of all: its blocks fit in all its devices with that, however well everything is split.
    /// It waits for the forward pass of the blocks before, and these wait for it with the last backward
    /// pass, unless gradients of parameters fill that time.
    pub(super) fn seconds(&self, setup: &Setup, capacity: u64, (kind, chunks): (Kind, usize)) -> f64 {
        let each = exact(setup.mesh.devices());
        let groups = u64::try_from(setup.groups).unwrap_or(u64::MAX);
        let runs = exact(setup.micro_batches);
        let count = usize::try_from(setup.micro_batches).unwrap_or(usize::MAX);
        let rooms: Vec<f64> = self.rooms(setup).into_iter().map(|it| exact(capacity) * it).collect();
        if rooms.iter().sum::<f64>() < self.blocks - ROUNDING
            || kind.check(setup.groups, chunks, count).is_err()
        {
            return f64::INFINITY;
        }
        let work = (runs * (self.forward + self.backward) + self.update) / each;
        if chunks > 1 {
            return work * self.blocks / exact(groups);
        }
        let waits = if kind.splits_backward() { self.forward } else { self.forward + self.backward } / each;
        let is_enough = |seconds: f64| {
            let fill = |had: f64, room: &f64| had + ((seconds - waits * had) / work).min(*room).max(0.0);
            rooms.iter().fold(0.0, fill) >= self.blocks - ROUNDING
        };
        let (mut low, mut high) = (0.0, (work + waits) * self.blocks);
        for _ in 0..HALVES {
            let middle = f64::midpoint(low, high);
            if is_enough(middle) { high = middle } else { low = middle }
        }
        low
    }
}

/// The value of the forward pass whose memory a value may be.
fn root(graph: &Graph, mut value: ValueId) -> Option<ValueId> {
    loop {
        let Source::Result { node, .. } = graph.value(value).source else { return None };
        let node = graph.node(node);
        if node.phase != Phase::Forward {
            return None;
        }
        match (&node.op, &node.operands[..]) {
            (Op::Reshape { .. } | Op::Transpose { .. }, &[operand]) => value = operand,
            _ => return Some(value),
        }
    }
}

/// What an operation takes of all devices together (seconds).
fn taken(machine: &Machine, graph: &Graph, node: &Node) -> f64 {
    let (operands, results) = (graph.types_of(&node.operands), graph.types_of(&node.results));
    work::least(&machine.device, &node.op, &operands, &results).0
}
