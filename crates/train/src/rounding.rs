//! Other randomness in each step, for each parameter.

use std::collections::BTreeMap;

use planner_ir::{Binary, DType, Op, Phase, Source, Type, ValueId};

use crate::ROUNDING;
use crate::tape::{Parameter, Tape};

/// What the rounding of a parameter starts from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Which of its block's parameters it is.
    pub(crate) seed: u64,
    /// A number of the step and the block.
    pub(crate) number: ValueId,
}

/// What the rounding of each parameter starts from: an input, plus how many blocks with parameters
/// come before, and which of the block's parameters it is, in the order of their gradients. Blocks
/// hand the sum on, so that equal ones stay equal.
pub(crate) fn starts(tape: &mut Tape<'_>, parameters: &[Parameter]) -> Vec<Start> {
    let mut order: Vec<usize> = (0..parameters.len()).collect();
    order.sort_by_key(|&it| (parameters[it].block(), parameters[it].summed));
    let source = Source::Input(ROUNDING.to_owned());
    let mut number = tape.to.push_value(Type::new(DType::I64, []), source);
    let mut of_block = None;
    let mut seed = 0;
    let mut starts = BTreeMap::new();
    for index in order {
        let block = parameters[index].block();
        if of_block.replace(block) == Some(block) {
            seed += 1;
        } else {
            seed = 0;
            number = tape.emit(block, "rounding", |emit| {
                emit.phase = Phase::Update;
                let one = emit.number(DType::I64, 1.0);
                emit.one(Op::Binary(Binary::Add), &[number, one])
            });
        }
        starts.insert(index, Start { seed, number });
    }
    starts.into_values().collect()
}
