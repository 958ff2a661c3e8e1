//! What is made of weights and constants before the first step: of what only moves elements of weights
//! the blocks that ranks hold, of the rest whole values.

use std::collections::{BTreeMap, BTreeSet};

use kernels::Array;
use lower::{Port, Preparation, Whole};
use planner_ir::{Op, Type, ValueId};

use crate::error::{RunError, expect_type};
use crate::stored::{Of, Part, Stored, block, whole};
use crate::view::View;

/// What is computed whole takes at most what the weights that it is made of take, and this (bytes).
const MOST_CONSTANTS: u64 = 4_000_000_000;

/// What a program prepares, of which blocks are made.
pub(crate) struct Prepared<'a> {
    stored: &'a dyn Stored,
    /// What makes each value.
    steps: BTreeMap<ValueId, &'a Preparation>,
    types: BTreeMap<ValueId, Type>,
    /// What has been computed whole.
    values: BTreeMap<ValueId, Array>,
}

/// A part of a block, and what its elements are of.
struct Taken {
    of: Whole,
    ops: Vec<Op>,
    view: View,
}

impl<'a> Prepared<'a> {
    /// Computes what is needed whole for the blocks of these ports.
    pub(crate) fn new(
        stored: &'a dyn Stored,
        preparation: &'a [Preparation],
        ports: &[&Port],
    ) -> Result<Self, RunError> {
        let steps = preparation.iter().flat_map(|step| step.results.iter().map(move |it| (*it, step)));
        let (types, values) = (BTreeMap::new(), BTreeMap::new());
        let mut prepared = Self { stored, steps: steps.collect(), types, values };
        for step in preparation {
            let types = step.operands.iter().map(|it| prepared.type_of(it)).collect::<Option<Vec<_>>>();
            let made = types.and_then(|types| step.op.infer(&types).ok());
            prepared.types.extend(step.results.iter().copied().zip(made.into_iter().flatten()));
        }
        let mut wanted = BTreeSet::new();
        for port in ports {
            let parts = prepared.parts(Whole::Prepared(port.value), View::of_pieces(&port.pieces));
            wanted.extend(parts.into_iter().filter_map(|part| match part.of {
                Whole::Prepared(value) => Some(value),
                Whole::Weight(_) => None,
            }));
        }
        let steps = needed(preparation, &wanted);
        prepared.check_room(&steps, &wanted)?;
        prepared.values = computed(&steps, &wanted, stored)?;
        Ok(prepared)
    }

    /// Refuses steps whose whole values are too large: a few numbers of a model can ask for any.
    fn check_room(&self, steps: &[Preparation], kept: &BTreeSet<ValueId>) -> Result<(), RunError> {
        let bytes = |of: &Whole| self.type_of(of).map_or(0, |it| it.bytes());
        let used: BTreeSet<&Whole> = steps.iter().flat_map(|step| &step.operands).collect();
        let weights =
            used.iter().filter(|it| matches!(it, Whole::Weight(_))).map(|it| bytes(it)).sum::<u64>();
        let most = weights.saturating_add(MOST_CONSTANTS);
        let last = last_uses(steps);
        let mut held = 0_u64;
        for (index, step) in steps.iter().enumerate() {
            let made = step.results.iter().map(|&it| bytes(&Whole::Prepared(it)));
            held = made.fold(held, u64::saturating_add);
            if held > most {
                return Err(RunError::Preparation(step.origin.clone(), held, most));
            }
            let done: BTreeSet<&Whole> =
                step.operands.iter().filter(|it| last.get(it) == Some(&index)).collect();
            let gone = done.into_iter().filter(|it| matches!(it, Whole::Prepared(it) if !kept.contains(it)));
            held -= gone.map(bytes).sum::<u64>();
        }
        Ok(())
    }

    /// The block of a port, of the buffer's type.
    pub(crate) fn block(&self, port: &Port, local: &Type) -> Result<Array, RunError> {
        let missing = || RunError::Program(format!("`{}` is not prepared", port.name));
        let known = self.types.get(&port.value);
        let known = known.or_else(|| self.values.get(&port.value).map(Array::type_));
        expect_type(&port.name, known.ok_or_else(missing)?, &port.type_)?;
        let taken = self.parts(Whole::Prepared(port.value), View::of_pieces(&port.pieces));
        let part = |it: &Taken| {
            let of = match &it.of {
                Whole::Weight(name) => Of::Stored(name.clone()),
                Whole::Prepared(value) => Of::Memory(self.values.get(value).ok_or_else(missing)?),
            };
            Ok(Part { of, ops: it.ops.clone(), view: it.view.clone() })
        };
        let parts = taken.iter().map(part).collect::<Result<Vec<_>, RunError>>()?;
        block(self.stored, &port.name, &parts, local.clone())
    }

    /// A part of a value as parts of weights, and of values that are computed whole because what makes
    /// them does more than move or change single elements.
    fn parts(&self, of: Whole, view: View) -> Vec<Taken> {
        let taken = |of, view| vec![Taken { of, ops: Vec::new(), view }];
        let step = match &of {
            Whole::Prepared(value) => self.steps.get(value).filter(|it| it.results == [*value]),
            Whole::Weight(_) => None,
        };
        let Some(step) = step else { return taken(of, view) };
        if let (Op::Cast(_) | Op::Unary(_), [operand]) = (&step.op, &step.operands[..]) {
            let mut parts = self.parts(operand.clone(), view);
            parts.iter_mut().for_each(|part| part.ops.push(step.op.clone()));
            return parts;
        }
        let operands: Option<Vec<Type>> = step.operands.iter().map(|it| self.type_of(it)).collect();
        let before = operands.zip(self.type_of(&of));
        let before = before.and_then(|(operands, result)| view.before(&step.op, &operands, &result));
        let Some(before) = before else { return taken(of, view) };
        before
            .into_iter()
            .flat_map(|(operand, view)| self.parts(step.operands[operand].clone(), view))
            .collect()
    }

    fn type_of(&self, of: &Whole) -> Option<Type> {
        match of {
            Whole::Weight(name) => self.stored.type_of(name).ok(),
            Whole::Prepared(value) => self.types.get(value).cloned(),
        }
    }
}

/// The steps of a preparation that these values need.
fn needed(preparation: &[Preparation], wanted: &BTreeSet<ValueId>) -> Vec<Preparation> {
    let mut wanted = wanted.clone();
    let mut kept = Vec::new();
    for step in preparation.iter().rev() {
        if !step.results.iter().any(|result| wanted.contains(result)) {
            continue;
        }
        wanted.extend(step.operands.iter().filter_map(|operand| match operand {
            Whole::Prepared(value) => Some(*value),
            Whole::Weight(_) => None,
        }));
        kept.push(step.clone());
    }
    kept.reverse();
    kept
}

/// The last step that uses each operand.
fn last_uses(steps: &[Preparation]) -> BTreeMap<&Whole, usize> {
    let uses = steps.iter().enumerate();
    uses.flat_map(|(index, step)| step.operands.iter().map(move |operand| (operand, index))).collect()
}

/// Some values, computed whole.
fn computed(
    preparation: &[Preparation],
    kept: &BTreeSet<ValueId>,
    stored: &dyn Stored,
) -> Result<BTreeMap<ValueId, Array>, RunError> {
    let last = last_uses(preparation);
    let mut weights: BTreeMap<&str, Array> = BTreeMap::new();
    let mut prepared: BTreeMap<ValueId, Array> = BTreeMap::new();
    for (index, step) in preparation.iter().enumerate() {
        for operand in &step.operands {
            if let Whole::Weight(name) = operand
                && !weights.contains_key(name.as_str())
            {
                weights.insert(name, whole(stored, name)?);
            }
        }
        let operand = |operand: &Whole| match operand {
            Whole::Weight(name) => weights.get(name.as_str()),
            Whole::Prepared(value) => prepared.get(value),
        };
        let operands: Option<Vec<&Array>> = step.operands.iter().map(operand).collect();
        let operands =
            operands.ok_or_else(|| RunError::Program(format!("`{}` is prepared too early", step.origin)))?;
        let results = kernels::evaluate(&step.op, &operands)
            .map_err(|error| RunError::Whole(step.origin.clone(), error))?;
        prepared.extend(step.results.iter().copied().zip(results));
        for operand in step.operands.iter().filter(|operand| last.get(operand) == Some(&index)) {
            match operand {
                Whole::Weight(name) => drop(weights.remove(name.as_str())),
                Whole::Prepared(value) if !kept.contains(value) => drop(prepared.remove(value)),
                Whole::Prepared(_) => {}
            }
        }
    }
    Ok(prepared)
}
