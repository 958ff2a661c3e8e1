//! What setups cannot do with less memory than.

use std::collections::BTreeSet;

use cost_models::units::exact;
use planner_ir::{Op, Phase, Source, ValueId};
use train::Step;

use super::Setup;

/// What sums of parts may be off by.
const ROUNDING: f64 = 1e-9;

/// What all of a model holds, each byte once (bytes).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Least {
    /// At rest.
    resident: f64,
    /// Of each micro-batch, from the forward pass for the backward pass.
    kept: f64,
}

impl Least {
    /// Of a step whose blocks stand for so many blocks each.
    pub(super) fn of(step: &Step, times: &[f64]) -> Self {
        let graph = &step.graph;
        let of = |home: Option<usize>| home.and_then(|it| times.get(it)).copied().unwrap_or(0.0);
        let mut first: Vec<Option<usize>> = vec![None; graph.values.len()];
        let mut kept: BTreeSet<ValueId> = BTreeSet::new();
        for (node, &home) in graph.nodes.iter().zip(&step.homes) {
            for &operand in &node.operands {
                first[operand.0].get_or_insert(home);
                if matches!(node.phase, Phase::Backward | Phase::Gradient) {
                    kept.extend(root(step, operand));
                }
            }
        }
        let prepared = graph.prepared();
        let mut least = Self { resident: 0.0, kept: 0.0 };
        for value in graph.value_ids() {
            let bytes = exact(graph.type_of(value).bytes());
            match graph.value(value).source {
                Source::State(_) | Source::Weight(_) => least.resident += of(first[value.0]) * bytes,
                Source::Result { node, .. } if kept.contains(&value) && !prepared[value.0] => {
                    least.kept += of(step.homes.get(node.0).copied()) * bytes;
                }
                _ => {}
            }
        }
        least
    }

    /// Whether no cut of the model into stages fits into this much on a device (bytes), however well
    /// everything is split.
    ///
    /// In every schedule that is offered, group `g` of `p` keeps something of `p - g` micro-batches at
    /// once, or of all. Where `t` is the part of the model that it has, `t (resident + live kept)` fits
    /// in all its devices; and the parts make a whole.
    pub(super) fn is_too_much(&self, setup: &Setup, capacity: u64) -> bool {
        let room = exact(capacity) * exact(setup.mesh.devices());
        let groups = u64::try_from(setup.groups).unwrap_or(u64::MAX);
        let part = |group: u64| {
            room / (self.resident + exact((groups - group).min(setup.micro_batches)) * self.kept)
        };
        (0..groups).map(part).sum::<f64>() < 1.0 - ROUNDING
    }
}

/// The value of the forward pass whose memory a value may be.
fn root(step: &Step, mut value: ValueId) -> Option<ValueId> {
    let graph = &step.graph;
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
