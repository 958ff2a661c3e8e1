//! What each block of a plan takes and holds.

use std::collections::BTreeSet;

use plan::{Assignment, Clock, Copy, Part, Plan};
use planner_ir::{NodeId, Phase, Source, ValueId};
use schedule::StageTimes;
use search::cluster::BlockCost;
use search::kept;

/// What each of so many blocks takes and holds, where each operation belongs to one of them.
///
/// What moves counts where it is first used; what is at rest, where it is first used, too. A second of what is
/// computed and one of what is exchanged beside it cost each other so much; nothing runs beside anything without.
pub(super) fn costs(plan: &Plan, homes: &[usize], blocks: usize, cost: Option<f64>) -> Vec<BlockCost> {
    let hides = cost.map_or(0.0, |cost| (1.0 - cost).max(0.0));
    let mut costs = vec![BlockCost { hides, ..BlockCost::NOTHING }; blocks];
    let mut add = |home: usize, phase: Phase, (seconds, beside): (f64, bool)| {
        let Some(cost) = costs.get_mut(home) else { return };
        match of_phase(&mut cost.times, phase) {
            Some(time) => *time += seconds,
            None => cost.update += seconds,
        }
        if let Some(time) = of_phase(&mut cost.beside, phase).filter(|_| beside) {
            *time += seconds;
        }
    };
    let readers = Readers::of(plan);
    for (index, assignment) in plan.assignments.iter().enumerate() {
        if let Assignment::Computed { seconds, .. } = assignment {
            add(homes[index], plan.graph.nodes[index].phase, (*seconds, false));
        }
    }
    let mut waited = Vec::new();
    for (index, (transfer, beside)) in plan.transfers.iter().zip(plan.beside()).enumerate() {
        let (home, phase) = readers.first(plan, homes, transfer.value, Copy::Transferred(index));
        add(home, phase, (transfer.takes(), beside.is_some()));
        if phase == Phase::Backward && beside.is_none() && transfer.travels() && !transfer.waits {
            waited.push((home, transfer.takes()));
        }
    }
    for (home, seconds) in waited {
        if let Some(cost) = costs.get_mut(home) {
            cost.waits.waited += seconds;
        }
    }
    let meanwhile: BTreeSet<NodeId> = plan.graph.meanwhile().into_iter().flat_map(|it| it.computed).collect();
    for (node, assignment) in plan.graph.node_ids().zip(&plan.assignments) {
        let (Assignment::Computed { seconds, exchanged, .. }, Some(clock), Some(cost)) =
            (assignment, Clock::of(plan.graph.node(node).phase), costs.get_mut(homes[node.0]))
        else {
            continue;
        };
        cost.waits.routed[clock as usize] += exchanged.rows;
        if meanwhile.contains(&node) {
            cost.waits.meanwhile[clock as usize] += seconds - exchanged.rows;
        }
    }
    for value in plan.graph.value_ids() {
        let bytes = plan.layouts[value.0].local_bytes(plan.graph.type_of(value));
        match &plan.graph.value(value).source {
            Source::State(_) | Source::Weight(_) => {
                if let Some(cost) = costs.get_mut(readers.home_of(homes, value)) {
                    cost.resident = cost.resident.saturating_add(bytes);
                }
            }
            _ => {}
        }
    }
    for (cost, (kept, most)) in costs.iter_mut().zip(kept(plan, homes, blocks)) {
        (cost.kept, cost.most) = (kept, most);
    }
    costs
}

/// What a phase takes of a micro-batch; nothing of the update.
fn of_phase(times: &mut StageTimes, phase: Phase) -> Option<&mut f64> {
    match phase {
        Phase::Forward => Some(&mut times.forward),
        Phase::Backward => Some(&mut times.backward),
        Phase::Gradient => Some(&mut times.weight),
        Phase::Update => None,
    }
}

/// The most that a node hands on between two blocks, what several devices have once (bytes).
pub(super) fn crossing(plan: &Plan, homes: &[usize], devices_per_node: u64) -> u64 {
    let in_node = plan.mesh.devices().min(devices_per_node);
    let of_node = |value: ValueId| {
        let (layout, type_) = (&plan.layouts[value.0], plan.graph.type_of(value));
        let mut blocks = Vec::new();
        for device in 0..in_node {
            let block = layout.pieces(&plan.mesh, device, &type_.shape);
            if !blocks.contains(&block) {
                blocks.push(block);
            }
        }
        u64::try_from(blocks.len()).unwrap_or(u64::MAX) * layout.local_bytes(type_)
    };
    let mut most = 0;
    for (index, node) in plan.graph.nodes.iter().enumerate().filter(|(_, node)| node.phase == Phase::Forward)
    {
        for &operand in &node.operands {
            if let Source::Result { node: maker, .. } = plan.graph.value(operand).source
                && homes[maker.0] + 1 == homes[index]
            {
                most = most.max(of_node(operand));
            }
        }
    }
    most
}

/// Who reads values, and copies of them.
struct Readers {
    /// For each transfer, the operations that read it.
    of_transfers: Vec<Vec<usize>>,
    /// For each value, the operations that read it as it is made.
    of_values: Vec<Vec<usize>>,
    /// For each transfer, those made from it; for each value, those made from it as it is made.
    made_from: Vec<Vec<usize>>,
    when: Vec<Part>,
}

impl Readers {
    fn of(plan: &Plan) -> Self {
        let mut of_transfers = vec![Vec::new(); plan.transfers.len()];
        let mut of_values = vec![Vec::new(); plan.graph.values.len()];
        let mut made_from = vec![Vec::new(); plan.transfers.len()];
        for (index, assignment) in plan.assignments.iter().enumerate() {
            let node = &plan.graph.nodes[index];
            if let Assignment::Computed { operands, .. } = assignment {
                for (&value, &copy) in node.operands.iter().zip(operands) {
                    match copy {
                        Copy::Made => of_values[value.0].push(index),
                        Copy::Transferred(it) => of_transfers[it].push(index),
                    }
                }
            } else {
                node.operands.iter().for_each(|value| of_values[value.0].push(index));
            }
        }
        for (index, transfer) in plan.transfers.iter().enumerate() {
            if let Copy::Transferred(from) = transfer.from {
                made_from[from].push(index);
            }
        }
        Self { of_transfers, of_values, made_from, when: plan.when() }
    }

    /// The operations that read a copy, and those made from it.
    fn all(&self, value: ValueId, copy: Copy) -> Vec<usize> {
        let mut readers = match copy {
            Copy::Made => self.of_values[value.0].clone(),
            Copy::Transferred(it) => self.of_transfers[it].clone(),
        };
        if let Copy::Transferred(it) = copy {
            for &next in &self.made_from[it] {
                readers.extend(self.all(value, Copy::Transferred(next)));
            }
        }
        readers
    }

    /// Where and when a copy is first used.
    fn first(&self, plan: &Plan, homes: &[usize], value: ValueId, copy: Copy) -> (usize, Phase) {
        let first = self.all(value, copy).into_iter().min_by_key(|&it| (plan.graph.nodes[it].phase, it));
        let maker = match plan.graph.value(value).source {
            Source::Result { node, .. } => Some(node.0),
            _ => None,
        };
        let last = match copy {
            Copy::Transferred(it) if self.when[it] == Part::MicroBatch => Phase::Gradient,
            _ => Phase::Update,
        };
        match (first, maker) {
            (Some(reader), _) => (homes[reader], plan.graph.nodes[reader].phase),
            (None, Some(maker)) => (homes[maker], last),
            (None, None) => (self.home_of(homes, value), last),
        }
    }

    /// The block in which a value at rest is first used.
    fn home_of(&self, homes: &[usize], value: ValueId) -> usize {
        self.of_values[value.0].first().map_or(0, |&it| homes[it])
    }
}
