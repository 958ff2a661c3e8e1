//! Magnitudes that are remembered from step to step.

use planner_ir::{Binary, Carried, Node, Op, Phase, Source, State, StateKind, Type, ValueId};

use super::Narrowing;

/// Of how many steps magnitudes are remembered.
///
/// Source: NVIDIA Transformer Engine, `DelayedScaling.amax_history_len`.
pub(super) const HISTORY: u64 = 1024;

/// A value whose magnitudes are remembered.
pub(super) struct Remembered {
    /// Those of the steps before.
    history: ValueId,
    /// Those of the parts of this one, in the step's micro-batches.
    largest: Carried,
    /// The block that it is of.
    home: usize,
    /// The name of what reads it.
    origin: String,
}

impl Narrowing<'_> {
    /// A state of the value that is quantised next.
    pub(super) fn state(&mut self, kind: StateKind, type_: Type) -> ValueId {
        let name = format!("narrow.{}", self.remembered.len());
        self.to.push_value(type_, Source::State(State { kind, name }))
    }

    /// Keeps the largest magnitudes of a value in the micro-batches of a step, to be remembered after it.
    pub(super) fn found(&mut self, like: &Node, history: ValueId, found: ValueId, home: usize) {
        let type_ = self.to.type_of(found).clone();
        let state = self.state(StateKind::Largest, type_.clone());
        let several = self.step.graph.training.as_ref().is_some_and(|it| it.micro_batches > 1);
        let next = if several {
            let op = Op::Binary(Binary::Max);
            self.push(like, op, vec![state, found], vec![type_], (home, None))[0]
        } else {
            found
        };
        let largest = Carried { state, next };
        self.remembered.push(Remembered { history, largest, home, origin: like.origin.clone() });
    }

    /// What states of magnitudes become: those of a step, and those that are remembered.
    pub(super) fn remember(&mut self) -> Vec<Carried> {
        let mut all = Vec::new();
        for Remembered { history, largest, home, origin } in std::mem::take(&mut self.remembered) {
            let operands = vec![history, largest.next];
            let types = vec![self.to.type_of(history).clone()];
            let next = self.to.push_node_in(Phase::Update, Op::Remember, operands, types, origin)[0];
            self.homes.push(home);
            self.forward.push(None);
            all.extend([largest, Carried { state: history, next }]);
        }
        all
    }
}
