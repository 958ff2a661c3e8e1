//! What ends a program: its outputs, and what its states become.

use planner_ir::{Carried, Graph, Output, Training, ValueId};

/// Gives a copy of a program its outputs and what its states become; where each value is in the copy.
pub(crate) fn end(to: &mut Graph, from: &Graph, map: &[ValueId]) {
    let output = |it: &Output| Output { name: it.name.clone(), value: map[it.value.0] };
    to.outputs = from.outputs.iter().map(output).collect();
    let moved = |it: &Carried| Carried { state: map[it.state.0], next: map[it.next.0] };
    to.training = from.training.as_ref().map(|training| {
        let mut carried: Vec<Carried> = training.carried.iter().map(moved).collect();
        carried.sort_by_key(|it| it.state);
        Training { micro_batches: training.micro_batches, carried }
    });
}
