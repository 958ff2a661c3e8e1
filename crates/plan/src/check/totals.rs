//! Rules of the sums.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Layout, NodeId, Source, StateKind, ValueId};

use super::blocks::held;
use super::parts::runs;
use super::{Violations, operation_name};
use crate::plan::{Assignment, Copy, Plan, Proof};

/// How much sums of floating-point numbers may differ, relative to them.
const TOLERANCE: f64 = 1e-9;

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    let time = times(plan, found);
    proof(plan, time, found);
    memory(plan, found);
    model(plan, found);
}

fn is_time(seconds: f64) -> bool {
    seconds.is_finite() && seconds >= 0.0
}

/// A count as a number: exact below 2^53, and no step has as many micro-batches.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn exact(count: u64) -> f64 {
    count as f64
}

/// The time of all operations and transfers, each as often as it runs.
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
        add(&|| format!("transfer {index}"), transfer.seconds, runs, &mut total);
    }
    let mut estimate = 0.0;
    for term in &plan.estimate {
        add(&|| format!("term `{}`", term.name), term.seconds, 1, &mut estimate);
    }
    if is_time(total) && is_time(estimate) && (total - estimate).abs() > TOLERANCE * total {
        let message = format!("terms add up to {estimate} seconds, expected {total}");
        found.add("estimate", "estimate", message);
    }
    total
}

fn proof(plan: &Plan, time: f64, found: &mut Violations) {
    if let Proof::Gap { lower_bound } = plan.proof
        && !(is_time(lower_bound) && lower_bound <= time * (1.0 + TOLERANCE))
    {
        let message = format!("a lower bound of {lower_bound} seconds, expected from 0 to {time}");
        found.add("proof", "proof", message);
    }
}

fn model(plan: &Plan, found: &mut Violations) {
    let hash = &plan.model.sha256;
    if hash.len() != 64 || !hash.chars().all(|it| matches!(it, '0'..='9' | 'a'..='f')) {
        found.add("model", "model", format_args!("`{hash}`, expected 64 hexadecimal digits"));
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
    let arena: u128 = ARENA.iter().filter_map(|kind| claimed.get(kind)).sum();
    if arena < expected.live {
        let message = format!("{arena} bytes for what comes and goes, expected at least {}", expected.live);
        found.add("memory", "memory", message);
    }
    let total: u128 = plan.memory.iter().map(|it| u128::from(it.bytes)).sum();
    if total > u128::from(plan.capacity) {
        let message = format!("holds {total} bytes, expected {} at most", plan.capacity);
        found.add("capacity", "memory", message);
    }
}

/// The kinds of what is there through a whole step.
const AT_REST: [&str; 5] = ["weights", "masters", "optimizer", "gradients", "inputs"];

/// The kinds of what comes and goes. How it is told apart, and how closely it is packed, is the
/// affair of the programs; together it is no less than what is live at once.
const ARENA: [&str; 4] = ["activations", "temporaries", "communication", "packing"];

/// What a device holds at least (bytes).
#[derive(Default)]
struct Holdings {
    weights: u128,
    masters: u128,
    optimizer: u128,
    gradients: u128,
    inputs: u128,
    /// The most of values and copies that is there at once.
    live: u128,
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

/// The first and the last moment at which something is there: before the operation of that number,
/// or after all of them.
type Span = Option<(usize, usize)>;

fn extend(span: &mut Span, moment: usize) {
    let (first, last) = span.unwrap_or((moment, moment));
    *span = Some((first.min(moment), last.max(moment)));
}

/// What a device holds, by kind, when most of values and copies is live.
///
/// A copy is made for the first that reads it and kept to the last. Values that depend on weights
/// and constants alone are weights: they are kept through.
/// States are held through; what takes a state's place is in that place as soon as it is made.
fn holdings(plan: &Plan) -> Holdings {
    let graph = &plan.graph;
    let moments = graph.nodes.len() + 1;
    let mut made: Vec<Span> = vec![None; graph.values.len()];
    let mut moved: Vec<Span> = vec![None; plan.transfers.len()];
    let mut read = |value: ValueId, copy: Copy, moment: usize, moved: &mut [Span]| match copy {
        Copy::Made => extend(&mut made[value.0], moment),
        Copy::Transferred(transfer) => extend(&mut moved[transfer], moment),
    };
    for (moment, (node, assignment)) in graph.nodes.iter().zip(&plan.assignments).enumerate() {
        let Assignment::Computed { operands, .. } = assignment else { continue };
        for (&value, &copy) in node.operands.iter().zip(operands) {
            read(value, copy, moment, &mut moved);
        }
        for &result in &node.results {
            read(result, Copy::Made, moment, &mut moved);
        }
    }
    for (output, &copy) in graph.outputs.iter().zip(&plan.outputs) {
        read(output.value, copy, graph.nodes.len(), &mut moved);
    }
    // What takes a state's place is read by nobody but is made as early as can be.
    let mut in_place: BTreeSet<(ValueId, Copy)> = BTreeSet::new();
    for (it, &copy) in graph.training.iter().flat_map(|training| &training.carried).zip(&plan.carried) {
        in_place.insert((it.next, copy));
        if let Source::Result { node, .. } = graph.value(it.next).source {
            read(it.next, copy, node.0, &mut moved);
        }
    }
    // Copies come after what they are made from, so that the last ones are complete.
    for (index, transfer) in plan.transfers.iter().enumerate().rev() {
        if let Some((first, _)) = moved[index] {
            read(transfer.value, transfer.from, first, &mut moved);
        }
    }
    let lasting = graph.prepared();
    let bytes = |value: ValueId, layout: &Layout| -> u128 {
        let type_ = graph.type_of(value);
        let dims = layout.dims.iter().zip(&type_.shape);
        let elements: u128 = dims.map(|(digits, &extent)| u128::from(held(digits, extent))).product();
        elements * u128::from(type_.dtype.bytes())
    };
    let mut holdings = Holdings::default();
    let mut values = Live::new(moments);
    let mut copies = Live::new(moments);
    for value in graph.value_ids() {
        let bytes = bytes(value, &plan.layouts[value.0]);
        match (&graph.value(value).source, made[value.0]) {
            (Source::Input(_), _) => holdings.inputs += bytes,
            (Source::State(state), _) => match state.kind {
                StateKind::Parameter => holdings.weights += bytes,
                StateKind::Master => holdings.masters += bytes,
                StateKind::FirstMoment | StateKind::SecondMoment => holdings.optimizer += bytes,
                StateKind::Gradient | StateKind::Total => holdings.gradients += bytes,
            },
            _ if in_place.contains(&(value, Copy::Made)) => {}
            (_, None) => {}
            (_, Some(_)) if lasting[value.0] => holdings.weights += bytes,
            (_, Some(span)) => values.add(span, bytes),
        }
    }
    for (index, (transfer, span)) in plan.transfers.iter().zip(moved).enumerate() {
        let in_place = in_place.contains(&(transfer.value, Copy::Transferred(index)));
        if let Some(span) = span.filter(|_| !in_place) {
            copies.add(span, bytes(transfer.value, &transfer.layout));
        }
    }
    let together = values.moments().into_iter().zip(copies.moments()).map(|(made, moved)| made + moved);
    holdings.live = together.max().unwrap_or(0);
    holdings
}

/// What comes and goes, by moment (bytes).
struct Live {
    comes: Vec<u128>,
    goes: Vec<u128>,
}

impl Live {
    fn new(moments: usize) -> Self {
        Self { comes: vec![0; moments], goes: vec![0; moments] }
    }

    fn add(&mut self, (first, last): (usize, usize), bytes: u128) {
        self.comes[first] += bytes;
        self.goes[last] += bytes;
    }

    /// What there is at each moment.
    fn moments(&self) -> Vec<u128> {
        let mut there = 0;
        let moment = |(comes, goes): (&u128, &u128)| {
            there += comes;
            let now = there;
            there -= goes;
            now
        };
        self.comes.iter().zip(&self.goes).map(moment).collect()
    }
}
