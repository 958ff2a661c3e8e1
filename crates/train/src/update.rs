//! The optimizer: new parameters from gradients.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plan::{Precision, Recipe, matches};
use planner_ir::{
    Binary, Carried, Contract, DType, Emit, Label, Op, Optimizer, Output, Phase, Real, Source, State,
    StateKind, Type, Unary, ValueId,
};

use crate::rounding::{self, Start};
use crate::tape::{Parameter, Tape};
use crate::{LOSS, NORM, RATE, STEP};

/// Added to the norm by which gradients are scaled down, as PyTorch's `clip_grad_norm_` does.
const CLIP_EPSILON: f64 = 1e-6;

/// The totals of loss and count, the scale of gradients, and the step of each parameter.
pub(crate) fn update(tape: &mut Tape<'_>, recipe: &Recipe, [sum, count]: [ValueId; 2]) -> Vec<Carried> {
    let last = tape.home_of(sum).max(tape.home_of(count));
    let mut carried = Vec::new();
    let totals =
        [("loss", sum), ("count", count)].map(|(name, value)| total(tape, name, value, &mut carried));
    let mut scale = in_update(tape, last, "mean", |emit| {
        let mean = emit.one(Op::Binary(Binary::Div), &totals);
        emit.graph.outputs.push(Output { name: LOSS.to_owned(), value: mean });
        emit.one(Op::Unary(Unary::Reciprocal), &[totals[1]])
    });
    let parameters = tape.parameters.clone();
    if let Some(most) = recipe.clip {
        scale = clipped(tape, &parameters, scale, most);
    }
    let number = |name: &str| Source::Input(name.to_owned());
    let rate = tape.to.push_value(Type::new(DType::F32, []), number(RATE));
    let step = matches!(recipe.optimizer, Optimizer::AdamW { .. })
        .then(|| tape.to.push_value(Type::new(DType::F32, []), number(STEP)));
    let numbers: Vec<ValueId> = [Some(scale), Some(rate), step].into_iter().flatten().collect();
    let mut starts = vec![None; parameters.len()];
    if recipe.precision == Precision::Bf16Stochastic {
        starts = rounding::starts(tape, &parameters).into_iter().map(Some).collect();
    }
    for (parameter, start) in parameters.iter().zip(starts) {
        step_of(tape, recipe, (parameter, start), &numbers, &mut carried);
    }
    carried.sort_by_key(|it| it.state);
    carried
}

/// A number summed over micro-batches: the sum with this one.
fn total(tape: &mut Tape<'_>, name: &str, value: ValueId, carried: &mut Vec<Carried>) -> ValueId {
    let home = tape.home_of(value);
    let value = tape.map[value.0];
    let source = Source::State(State { kind: StateKind::Total, name: name.to_owned() });
    let state = tape.to.push_value(Type::new(DType::F32, []), source);
    let next = tape.emit(home, name, |emit| {
        emit.phase = Phase::Forward;
        emit.one(Op::Binary(Binary::Add), &[state, value])
    });
    carried.push(Carried { state, next });
    next
}

/// The scale that makes the norm of all gradients at most this.
fn clipped(tape: &mut Tape<'_>, parameters: &[Parameter], scale: ValueId, most: f64) -> ValueId {
    // From the last block to the first: each hands the sum on to the next. What a block adds is summed before,
    // so that devices sum what they owe of it once.
    let mut homes: BTreeMap<Reverse<usize>, Vec<&Parameter>> = BTreeMap::new();
    for parameter in parameters {
        homes.entry(Reverse(parameter.block())).or_default().push(parameter);
    }
    let (mut sum, mut home): (Option<ValueId>, usize) = (None, 0);
    for (Reverse(block), parameters) in homes {
        home = block;
        let mut own: Option<ValueId> = None;
        for parameter in parameters {
            let add = |emit: &mut Emit<'_>| {
                let squares = squares(emit, parameter.summed);
                own.map_or(squares, |own| emit.one(Op::Binary(Binary::Add), &[own, squares]))
            };
            own = Some(in_update(tape, home, &parameter.name, add));
        }
        sum = match (sum, own) {
            (Some(before), Some(own)) => {
                let add = |emit: &mut Emit<'_>| emit.one(Op::Binary(Binary::Add), &[before, own]);
                Some(in_update(tape, home, "clip", add))
            }
            (before, own) => before.or(own),
        };
    }
    let Some(sum) = sum else { return scale };
    in_update(tape, home, "clip", |emit| {
        let root = emit.one(Op::Unary(Unary::Sqrt), &[sum]);
        let norm = emit.one(Op::Binary(Binary::Mul), &[root, scale]);
        emit.graph.outputs.push(Output { name: NORM.to_owned(), value: norm });
        let [most, epsilon, one] = [most, CLIP_EPSILON, 1.0].map(|it| emit.number(DType::F32, it));
        let norm = emit.one(Op::Binary(Binary::Add), &[norm, epsilon]);
        let share = emit.one(Op::Binary(Binary::Div), &[most, norm]);
        let share = emit.one(Op::Binary(Binary::Min), &[share, one]);
        emit.one(Op::Binary(Binary::Mul), &[scale, share])
    })
}

/// Adds operations of the update to a block.
fn in_update<T>(tape: &mut Tape<'_>, home: usize, origin: &str, add: impl FnOnce(&mut Emit<'_>) -> T) -> T {
    tape.emit(home, origin, |emit| {
        emit.phase = Phase::Update;
        add(emit)
    })
}

/// The sum of the squares of a value's elements.
fn squares(emit: &mut Emit<'_>, value: ValueId) -> ValueId {
    let rank = u8::try_from(emit.type_of(value).rank()).unwrap_or(u8::MAX);
    let labels: Vec<Label> = (0..rank).map(Label).collect();
    emit.one(Op::Contract(Contract { left: labels.clone(), right: labels, result: vec![] }), &[value, value])
}

fn step_of(
    tape: &mut Tape<'_>,
    recipe: &Recipe,
    (parameter, start): (&Parameter, Option<Start>),
    numbers: &[ValueId],
    carried: &mut Vec<Carried>,
) {
    let type_ = tape.to.type_of(parameter.gradient).clone();
    let kinds: &[StateKind] = match recipe.optimizer {
        Optimizer::Sgd { .. } => &[],
        Optimizer::Momentum { .. } => &[StateKind::FirstMoment],
        Optimizer::AdamW { .. } => &[StateKind::FirstMoment, StateKind::SecondMoment],
    };
    let moments: Vec<ValueId> = kinds
        .iter()
        .map(|&kind| {
            let state = State { kind, name: parameter.name.clone() };
            tape.to.push_value(type_.clone(), Source::State(state))
        })
        .collect();
    let optimizer = optimizer_of(recipe, parameter, &type_);
    let narrow = tape.to.type_of(parameter.value).dtype;
    let &Parameter { value, changed, gradient, summed, .. } = parameter;
    let (next, moved) = in_update(tape, parameter.block(), &parameter.name, |emit| {
        let before = match start {
            Some(_) => emit.one(Op::Cast(DType::F32), &[changed]),
            None => changed,
        };
        let operands = [&[before, summed], &moments[..], numbers].concat();
        let mut moved = emit.all(Op::Update(optimizer), &operands);
        let after = moved.remove(0);
        let next = match start {
            Some(Start { seed, number }) => {
                vec![(value, emit.one(Op::RoundStochastically { seed }, &[after, number]))]
            }
            None if changed == value => vec![(value, after)],
            None => vec![(changed, after), (value, emit.one(Op::Cast(narrow), &[after]))],
        };
        (next, moved)
    });
    carried.extend(next.into_iter().map(|(state, next)| Carried { state, next }));
    carried.push(Carried { state: gradient, next: summed });
    for (&state, &next) in moments.iter().zip(&moved) {
        carried.push(Carried { state, next });
    }
}

/// The optimizer, without decay if the parameter is excepted from it.
fn optimizer_of(recipe: &Recipe, parameter: &Parameter, type_: &Type) -> Optimizer {
    let excepted = (recipe.no_decay.vectors && type_.rank() <= 1)
        || recipe.no_decay.names.iter().any(|pattern| matches(pattern, &parameter.name));
    let mut optimizer = recipe.optimizer;
    let (Optimizer::Sgd { decay } | Optimizer::Momentum { decay, .. } | Optimizer::AdamW { decay, .. }) =
        &mut optimizer;
    if excepted {
        *decay = Real(0.0);
    }
    optimizer
}
