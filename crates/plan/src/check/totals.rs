//! Rules of the sums.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Move, NodeId, Phase, Source, StateKind, ValueId};

use super::blocks::held;
use super::parts::{first_read, runs};
use super::{Violations, operation_name};
use crate::plan::{Assignment, Copy, Plan, Proof, exact};

/// How much sums of floating-point numbers may differ, relative to them.
const TOLERANCE: f64 = 1e-9;

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    let time = times(plan, found);
    proof(plan, time, found);
    space(plan, found);
    memory(plan, found);
    model(plan, found);
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds >= 0.0
}

/// The time of all operations and transfers, each as often as it runs, less what is hidden.
fn times(plan: &Plan, found: &mut Violations) -> f64 {
    let mut total = 0.0;
    let mut add = |place: &dyn Fn() -> String, seconds: f64, runs: u64, total: &mut f64| {
        if !is_time(seconds) {
            found.add("seconds", place(), format_args!("takes {seconds} seconds, expected a number from 0"));
        }
        *total += seconds * exact(runs);
    };
    for (node, assignment) in plan.assignments.iter().enumerate() {
        if let Assignment::Computed { seconds, .. } = assignment {
            add(&|| operation_name(plan, node), *seconds, plan.graph.runs(NodeId(node)), &mut total);
        }
    }
    for (index, (transfer, runs)) in plan.transfers.iter().zip(runs(plan)).enumerate() {
        for &seconds in &transfer.seconds {
            add(&|| format!("transfer {index}"), seconds, runs, &mut total);
        }
    }
    let mut estimate = 0.0;
    for term in &plan.estimate {
        add(&|| format!("term `{}`", term.name), term.seconds, 1, &mut estimate);
    }
    if is_time(total) && is_time(estimate) && (total - estimate).abs() > TOLERANCE * total {
        let message = format!("terms add up to {estimate} seconds, expected {total}");
        found.add("estimate", "estimate", message);
    }
    exchanged(plan, found);
    hidden(plan, found);
    total - plan.hidden_seconds()
}

/// Of what an operation takes, no more is exchanged than all, rows only where they are routed, and nothing where
/// nothing moves.
fn exchanged(plan: &Plan, found: &mut Violations) {
    for (node, assignment) in plan.assignments.iter().enumerate() {
        let Assignment::Computed { partition, seconds, exchanged, .. } = assignment else { continue };
        // The most that rows may take, and what is on links.
        let (rows, links) = match partition {
            it if !it.routed.is_empty() => (*seconds, exchanged.rows),
            it if it.moves() => (0.0, *seconds),
            _ => (0.0, 0.0),
        };
        let said = [
            ("exchanges rows for", exchanged.rows, rows),
            ("has links for itself for", exchanged.links, links),
        ];
        for (does, said, most) in said.into_iter().filter(|it| !(is_time(it.1) && it.1 <= it.2)) {
            let message = format!("{does} {said} seconds, expected from 0 to {most}");
            found.add("seconds", operation_name(plan, node), message);
        }
    }
}

/// No more is hidden of the loss, or of the gradients, than there is of what need not be waited for, nor than
/// there is of the rest; and beside exchanges that are waited for, no more than they take, nor than gradients of
/// parameters; with rows that are routed, and what is computed that some of them have nothing to do with.
fn hidden(plan: &Plan, found: &mut Violations) {
    let (graph, known, for_sums) = (&plan.graph, plan.graph.known_before(), plan.graph.for_sums());
    // Of forward and backward, what stands in the way and what does not; of what does, exchanges for gradients of
    // values, and what gradients of parameters take.
    let mut sums = [[0.0; 2]; 2];
    let ([mut waited, mut apart], [routed, free]) = ([0.0; 2], while_routed(plan));
    let part = |phase: Phase| usize::from(phase != Phase::Forward);
    for (node, assignment) in graph.nodes.iter().zip(&plan.assignments) {
        if let Assignment::Computed { seconds, .. } = assignment
            && node.phase != Phase::Update
        {
            sums[part(node.phase)][0] += seconds;
            apart += if node.phase == Phase::Gradient { *seconds } else { 0.0 };
        }
    }
    for (transfer, read) in plan.transfers.iter().zip(first_read(plan)) {
        let travels = transfer.moves.iter().any(Move::travels);
        let is_weight = match &graph.value(transfer.value).source {
            Source::Input(_) => false,
            Source::Weight(_) | Source::State(_) => true,
            Source::Result { .. } => known[transfer.value.0],
        };
        let is_gradient = match &graph.value(transfer.value).source {
            Source::Result { node, .. } => {
                for_sums[transfer.value.0] || graph.node(*node).phase == Phase::Gradient
            }
            _ => false,
        };
        let is_for_gradient = read == Phase::Gradient;
        let is_beside = travels && !transfer.waits && (is_weight || is_gradient || is_for_gradient);
        if read != Phase::Update {
            sums[part(read)][usize::from(is_beside)] += transfer.takes();
        }
        match (is_beside, read) {
            // It stands in the way.
            _ if transfer.waits => {}
            (false, Phase::Gradient) => apart += transfer.takes(),
            (false, Phase::Backward) if travels => waited += transfer.takes(),
            _ => {}
        }
    }
    let within = [f64::min(routed[0], free[0]), f64::min(waited + routed[1], apart + free[1])];
    let said = [("forward", plan.hidden.forward), ("backward", plan.hidden.backward)];
    for (((name, seconds), [alone, beside]), within) in said.into_iter().zip(sums).zip(within) {
        let most = within + beside.min(alone - within);
        if !(is_time(seconds) && seconds <= most * (1.0 + TOLERANCE)) {
            let message = format!("hides {seconds} seconds, expected from 0 to {most}");
            found.add("estimate", format!("hidden.{name}"), message);
        }
    }
}

/// What rows that are routed take on their way, forward and backward, and what is computed then that is no gradient of
/// a parameter and neither comes of the operation that some of them are of, nor leads to it.
fn while_routed(plan: &Plan) -> [[f64; 2]; 2] {
    let graph = &plan.graph;
    let mut sums = [[0.0; 2]; 2];
    let mut free: BTreeSet<usize> = BTreeSet::new();
    for (routed, assignment) in plan.assignments.iter().enumerate() {
        let Assignment::Computed { exchanged, .. } = assignment else { continue };
        let phase = graph.nodes[routed].phase;
        if exchanged.rows <= 0.0 || phase == Phase::Update {
            continue;
        }
        sums[0][usize::from(phase != Phase::Forward)] += exchanged.rows;
        // Values that come of it, and values that lead to it.
        let (mut of, mut to) = (vec![false; graph.values.len()], vec![false; graph.values.len()]);
        graph.nodes[routed].results.iter().for_each(|it| of[it.0] = true);
        graph.nodes[routed].operands.iter().for_each(|it| to[it.0] = true);
        let mut tied = vec![false; graph.nodes.len()];
        tied[routed] = true;
        for (index, node) in graph.nodes.iter().enumerate().skip(routed + 1) {
            tied[index] = node.operands.iter().any(|it| of[it.0]);
            node.results.iter().filter(|_| tied[index]).for_each(|it| of[it.0] = true);
        }
        for (index, node) in graph.nodes.iter().enumerate().take(routed).rev() {
            tied[index] = node.results.iter().any(|it| to[it.0]);
            node.operands.iter().filter(|_| tied[index]).for_each(|it| to[it.0] = true);
        }
        free.extend((0..tied.len()).filter(|&it| !tied[it] && graph.nodes[it].phase == phase));
    }
    for node in free {
        if let Assignment::Computed { seconds, exchanged, .. } = &plan.assignments[node] {
            match graph.nodes[node].phase {
                Phase::Forward => sums[1][0] += seconds - exchanged.rows,
                Phase::Backward => sums[1][1] += seconds - exchanged.rows,
                Phase::Gradient | Phase::Update => {}
            }
        }
    }
    sums
}

fn proof(plan: &Plan, time: f64, found: &mut Violations) {
    if let Proof::Gap { lower_bound } = plan.proof
        && !(is_time(lower_bound) && lower_bound <= time * (1.0 + TOLERANCE))
    {
        let message = format!("a lower bound of {lower_bound} seconds, expected from 0 to {time}");
        found.add("proof", "proof", message);
    }
}

fn space(plan: &Plan, found: &mut Violations) {
    if plan.space.saturated && !plan.space.left_out.is_empty() {
        let message = "is called saturated and has `left_out`, expected one of both";
        found.add("space", "space", message);
    }
}

fn is_hash(hash: &str) -> bool {
    hash.len() == 64 && hash.chars().all(|it| matches!(it, '0'..='9' | 'a'..='f'))
}

fn model(plan: &Plan, found: &mut Violations) {
    let hash = &plan.model.sha256;
    if !is_hash(hash) {
        found.add("model", "model", format_args!("`{hash}`, expected 64 hexadecimal digits"));
    }
    if let Some(hash) = plan.machine.sha256.as_ref().filter(|hash| !is_hash(hash)) {
        found.add("model", "machine", format_args!("`{hash}`, expected 64 hexadecimal digits"));
    }
    if plan.model.dims.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        found.add("model", "model", "names of dimensions are out of order or equal, expected ascending ones");
    }
}

fn memory(plan: &Plan, found: &mut Violations) {
    let expected = holdings(plan);
    let mut claimed: BTreeMap<&str, u128> = BTreeMap::new();
    for holding in &plan.memory {
        if claimed.insert(&holding.kind, u128::from(holding.bytes)).is_some() {
            found.add("memory", "memory", format_args!("`{}` stands twice", holding.kind));
        }
    }
    for kind in claimed.keys().filter(|kind| !AT_REST.contains(kind) && !ARENA.contains(kind)) {
        found.add("memory", "memory", format_args!("`{kind}`, which is no kind of memory"));
    }
    for kind in AT_REST {
        let (bytes, is) = (expected.at_rest(kind), claimed.get(kind).copied().unwrap_or(0));
        if is != bytes {
            found.add("memory", "memory", format_args!("`{kind}` of {is} bytes, expected {bytes}"));
        }
    }
    let total: u128 = plan.memory.iter().map(|it| u128::from(it.bytes)).sum();
    if total > u128::from(plan.capacity) {
        let message = format!("holds {total} bytes, expected {} at most", plan.capacity);
        found.add("capacity", "memory", message);
    }
}

/// The kinds of what is there through a whole step.
const AT_REST: [&str; 5] = ["weights", "masters", "optimizer", "gradients", "inputs"];

/// The kinds of what comes and goes: the programs say how much.
const ARENA: [&str; 4] = ["activations", "temporaries", "communication", "packing"];

/// What a device holds through a step (bytes).
#[derive(Default)]
struct Holdings {
    weights: u128,
    masters: u128,
    optimizer: u128,
    gradients: u128,
    inputs: u128,
}

impl Holdings {
    fn at_rest(&self, kind: &str) -> u128 {
        match kind {
            "weights" => self.weights,
            "masters" => self.masters,
            "optimizer" => self.optimizer,
            "gradients" => self.gradients,
            _ => self.inputs,
        }
    }
}

/// What a device holds through a step, by kind: of inputs, what something reads.
///
/// Values that depend on weights and constants alone are weights, if something reads them as they
/// are.
fn holdings(plan: &Plan) -> Holdings {
    let graph = &plan.graph;
    let prepared = graph.prepared();
    let read = read(plan).0;
    let mut holdings = Holdings::default();
    for value in graph.value_ids() {
        let type_ = graph.type_of(value);
        let dims = plan.layouts[value.0].dims.iter().zip(&type_.shape);
        let elements: u128 = dims.map(|(digits, &extent)| u128::from(held(digits, extent))).product();
        let bytes = elements * u128::from(type_.dtype.bytes());
        match &graph.value(value).source {
            Source::Input(_) if read.contains(&value) => holdings.inputs += bytes,
            Source::State(state) => match state.kind {
                StateKind::Parameter => holdings.weights += bytes,
                StateKind::Master => holdings.masters += bytes,
                StateKind::FirstMoment | StateKind::SecondMoment | StateKind::History => {
                    holdings.optimizer += bytes
                }
                StateKind::Gradient | StateKind::Total | StateKind::Largest => holdings.gradients += bytes,
            },
            _ if prepared[value.0] && read.contains(&value) => holdings.weights += bytes,
            _ => {}
        }
    }
    holdings
}

/// The values that something reads as they are made, and the transfers of which something reads the copy:
/// operations, outputs, states, copies that are read.
pub(super) fn read(plan: &Plan) -> (BTreeSet<ValueId>, BTreeSet<usize>) {
    let graph = &plan.graph;
    let mut uses: Vec<(ValueId, Copy)> = Vec::new();
    for (node, assignment) in graph.nodes.iter().zip(&plan.assignments) {
        if let Assignment::Computed { operands, .. } = assignment {
            uses.extend(node.operands.iter().copied().zip(operands.iter().copied()));
        }
    }
    uses.extend(graph.outputs.iter().map(|output| output.value).zip(plan.outputs.iter().copied()));
    let carried = graph.training.iter().flat_map(|training| &training.carried);
    uses.extend(carried.map(|it| it.next).zip(plan.carried.iter().copied()));
    let mut read = BTreeSet::new();
    let mut followed = BTreeSet::new();
    while let Some((value, copy)) = uses.pop() {
        match copy {
            Copy::Made => drop(read.insert(value)),
            Copy::Transferred(it) if followed.insert(it) => uses.push((value, plan.transfers[it].from)),
            Copy::Transferred(_) => {}
        }
    }
    (read, followed)
}
