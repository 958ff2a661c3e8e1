//! What plans expect instructions to take.

use std::collections::BTreeMap;

use plan::{Assignment, Plan, shared};
use planner_ir::NodeId;

use crate::action::{Action, Moving, Origin};
use crate::program::{Program, Stream};

/// What operations and moves take, by the prices of the plans that they are of (seconds).
pub(crate) struct Expected {
    /// Each operation, all its time steps together, without exchanges of rows.
    nodes: Vec<f64>,
    /// For each operation, how many operands it has, and what each of them and of its results takes on its way, where
    /// rows are routed.
    routed: Vec<(usize, Vec<f64>)>,
    /// Each move of each transfer.
    moves: Vec<Vec<f64>>,
}

impl Expected {
    /// Of one plan, or of the stages of a pipeline, whose numbers follow one another.
    pub(crate) fn of<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Self {
        let (mut nodes, mut routed, mut moves) = (Vec::new(), Vec::new(), Vec::new());
        for plan in plans {
            nodes.extend(plan.assignments.iter().map(|it| match it {
                Assignment::Prepared => 0.0,
                Assignment::Computed { seconds, exchanged, .. } => known(*seconds - exchanged.rows),
            }));
            routed.extend(plan.assignments.iter().map(|it| match it {
                Assignment::Computed { operands, bytes, exchanged, .. } if exchanged.rows > 0.0 => {
                    (operands.len(), shared(known(exchanged.rows), bytes))
                }
                Assignment::Prepared | Assignment::Computed { .. } => (0, Vec::new()),
            }));
            moves.extend(plan.transfers.iter().map(|it| it.seconds.iter().map(|&it| known(it)).collect()));
        }
        Self { nodes, routed, moves }
    }

    /// What each instruction of a program takes. Of an exchange, what is packed and unpacked for it is a part of it, as
    /// of rows that are routed; what is brought between time steps is not known.
    pub(crate) fn each(&self, program: &Program) -> Vec<f64> {
        let mut steps: BTreeMap<NodeId, f64> = BTreeMap::new();
        for instruction in &program.instructions {
            if let (Origin::Node(node), Action::Compute(_)) = (instruction.origin, &instruction.action) {
                *steps.entry(node).or_default() += 1.0;
            }
        }
        let of_node = |node: NodeId| {
            let count = steps.get(&node).copied().unwrap_or(1.0);
            self.nodes.get(node.0).copied().unwrap_or(0.0) / count
        };
        let one = |it: &crate::Instruction| match (it.origin, &it.action) {
            (Origin::Node(node), Action::Compute(_)) => of_node(node),
            (Origin::Move { transfer, step }, action)
                if action.communicator().is_some() || it.stream == Stream::Compute =>
            {
                self.moves.get(transfer).and_then(|moves| moves.get(step)).copied().unwrap_or(0.0)
            }
            (Origin::Motion { node, moving, .. }, action) if action.communicator().is_some() => {
                let taken = |(operands, each): &(usize, Vec<f64>)| match moving {
                    Moving::Operand(index) => each.get(index).copied(),
                    Moving::Result(index) => each.get(operands + index).copied(),
                };
                self.routed.get(node.0).and_then(taken).unwrap_or(0.0)
            }
            _ => 0.0,
        };
        program.instructions.iter().map(one).collect()
    }
}

/// What a device may hold (bytes) that runs these plans and has so much memory: where they count on exchanges beside
/// computing, these may go ahead as far as there is memory; otherwise no further than where nothing more is held.
pub(crate) fn room<'a>(plans: impl IntoIterator<Item = &'a Plan>, capacity: u64) -> u64 {
    if plans.into_iter().any(|plan| plan.hidden_seconds() > 0.0) { capacity } else { 0 }
}

/// A price; a plan that nobody checked may say anything.
fn known(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}

/// A count as a number: what is lost of large ones decides nothing.
#[expect(clippy::cast_precision_loss, reason = "a share of a price")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
