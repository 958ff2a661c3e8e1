//! When a value is used, how often, and how much a second counts of moves for it.

use plan::beside;
use planner_ir::{Phase, Source, ValueId};

use super::weigh::Pace;
use super::{Assembly, Use};

impl Assembly<'_> {
    /// How much a second counts of moves of a value for these uses.
    pub(super) fn pace(&self, value: ValueId, uses: &[Use]) -> Pace {
        let graph = &self.section.graph;
        let phase = |it: &Use| match it {
            Use::Operand(node, _) => Some((graph.node(*node).phase, true)),
            Use::Carried(state) if self.summed[state.0] => Some((Phase::Gradient, false)),
            Use::Carried(_) => Some((Phase::Update, false)),
            Use::Delivery | Use::Giving => None,
        };
        let phases: Option<Vec<(Phase, bool)>> = uses.iter().map(phase).collect();
        let is_prepared = self.space.prepared[value.0];
        let is_used = |phases: &[(Phase, bool)]| phases.iter().any(|it| it.1);
        let first = phases.and_then(|it| Some((it.iter().map(|it| it.0).min()?, is_used(&it))));
        match first {
            Some(read) => {
                let is_beside = beside(graph, value, self.known(value), read).is_some();
                Pace::Used { phase: read.0, is_beside }
            }
            None => Pace::Unknown { made: self.phase(value).filter(|_| !is_prepared) },
        }
    }

    /// Whether a value is known before a micro-batch, and whether sums of gradients are all that becomes of it.
    pub(super) fn known(&self, value: ValueId) -> [bool; 2] {
        [self.known_before[value.0], self.for_sums[value.0]]
    }

    /// When a value is used: before the operation of that number.
    pub(super) fn moment(&self, it: &Use) -> usize {
        match it {
            Use::Operand(node, _) => node.0,
            Use::Delivery | Use::Giving | Use::Carried(_) => self.section.graph.nodes.len(),
        }
    }

    /// How often a use of a value happens in one run of the program.
    pub(super) fn runs(&self, value: ValueId, it: Use) -> u64 {
        match it {
            Use::Operand(node, _) => self.section.graph.runs(node),
            // A sum over micro-batches is handed on when it is whole.
            Use::Delivery | Use::Giving if self.summed[value.0] => 1,
            Use::Delivery | Use::Giving | Use::Carried(_) => self.made_runs(value),
        }
    }

    /// How often a value is made in one run of the program.
    pub(super) fn made_runs(&self, value: ValueId) -> u64 {
        match self.section.graph.value(value).source {
            Source::Result { node, .. } => self.section.graph.runs(node),
            _ => 1,
        }
    }
}
