//! What gradients have to be: limits of differences.

use kernels::Array;
use planner_ir::{DType, Emit, Graph, Phase, Site, Source, Type, ValueId};

use super::case::{Case, Operand, Random, Role};

/// By how much elements are changed, f64 and narrower ones (where all is linear): powers of two.
const STEP: f64 = 1.0 / 131_072.0;
const WIDE_STEP: f64 = 1.0 / 64.0;

/// How far a gradient may be from the quotient of differences, relative to it and 1.
const TOLERANCE: f64 = 1e-6;

/// The gradient of `L = sum(w y)`, y the first result, w random, towards all operands that have
/// one, whichever of them are wanted, is the limit of differences of L.
pub(super) fn check(case: &Case, random: &mut Random) -> Result<(), String> {
    let operands: Vec<&Array> = case.operands.iter().map(|it| &it.array).collect();
    let y = kernels::evaluate(&case.op, &operands).map_err(|error| error.to_string())?.remove(0);
    // Numbers that narrower elements have too.
    let weights = random.plain(y.shape()).cast(DType::BF16).cast(y.dtype()).array;
    let expected: Vec<Vec<f64>> =
        (0..operands.len()).map(|operand| quotients(case, operand, &weights)).collect();
    let free: Vec<usize> = (0..operands.len()).filter(|&it| has_gradient(case.operands[it].role)).collect();
    for set in 1..1_usize << free.len() {
        let mut wanted = vec![None; operands.len()];
        for (bit, &operand) in free.iter().enumerate() {
            if set >> bit & 1 == 1 {
                wanted[operand] = Some(random.one_of(&[Phase::Backward, Phase::Gradient]));
            }
        }
        let found = gradients(case, &operands, &weights, &wanted)?;
        for (operand, found) in found.iter().enumerate() {
            let which = format!("operand {operand} of wanted {wanted:?}");
            match (found, wanted[operand]) {
                (None, None) => {}
                (None, Some(_)) => return Err(format!("{which}: no gradient")),
                (Some(_), None) => return Err(format!("{which}: a gradient that nobody wants")),
                (Some(found), Some(_)) => {
                    compare(&case.operands[operand], found, &expected[operand])
                        .map_err(|error| format!("{which}: {error}"))?;
                }
            }
        }
    }
    refused_positions(case, &operands, &weights)
}

fn has_gradient(role: Role) -> bool {
    matches!(role, Role::Free | Role::FreeUnlessZero)
}

/// Nothing is made towards positions, conditions and tables.
fn refused_positions(case: &Case, operands: &[&Array], weights: &Array) -> Result<(), String> {
    let is_fixed = |it: &Operand| (it.role == Role::Fixed).then_some(Phase::Backward);
    let wanted: Vec<_> = case.operands.iter().map(is_fixed).collect();
    if wanted.iter().all(Option::is_none) {
        return Ok(());
    }
    let found = gradients(case, operands, weights, &wanted)?;
    let made = found.iter().zip(&wanted).any(|(found, wanted)| wanted.is_some() && found.is_some());
    if made { Err("a gradient towards positions".to_owned()) } else { Ok(()) }
}

/// The gradients that the operation's rule makes.
fn gradients(
    case: &Case,
    operands: &[&Array],
    weights: &Array,
    wanted: &[Option<Phase>],
) -> Result<Vec<Option<Array>>, String> {
    let mut graph = Graph::default();
    let given =
        |graph: &mut Graph, type_: &Type| graph.push_value(type_.clone(), Source::Input(String::new()));
    let inputs: Vec<ValueId> = operands.iter().map(|it| given(&mut graph, it.type_())).collect();
    let dy = given(&mut graph, weights.type_());
    let types = case.op.infer(&graph.types_of(&inputs)).map_err(|error| error.to_string())?;
    let results = graph.push_node(case.op.clone(), inputs.clone(), types, String::new());
    let mut towards = vec![None; results.len()];
    towards[0] = Some(dy);
    let site = Site { operands: &inputs, results: &results, gradients: &towards, wanted };
    let mut emit = Emit { graph: &mut graph, phase: Phase::Forward, origin: "" };
    let found = case.op.gradient(&site, &mut emit).map_err(|error| error.to_string())?;
    if let Some(node) = graph.nodes.iter().skip(1).find(|node| !wanted.contains(&Some(node.phase))) {
        return Err(format!("`{}` in the phase {}", node.op, node.phase.name()));
    }
    let mut values: Vec<Option<Array>> = operands.iter().map(|&it| Some(it.clone())).collect();
    values.push(Some(weights.clone()));
    for node in &graph.nodes {
        let operands: Vec<&Array> = node.operands.iter().map(|it| values[it.0].as_ref().unwrap()).collect();
        let made =
            kernels::evaluate(&node.op, &operands).map_err(|error| format!("`{}`: {error}", node.op))?;
        values.extend(made.into_iter().map(Some));
    }
    Ok(found.into_iter().map(|it| it.and_then(|it| values[it.0].clone())).collect())
}

/// The quotients of central differences of the loss and each of an operand's elements.
fn quotients(case: &Case, operand: usize, weights: &Array) -> Vec<f64> {
    let changed = &case.operands[operand];
    if !has_gradient(changed.role) {
        return vec![];
    }
    let weights = weights.to_floats().unwrap();
    let step = if changed.array.dtype() == DType::F64 { STEP } else { WIDE_STEP };
    let numbers = changed.array.to_floats().unwrap();
    let loss = |element: usize, by: f64| -> f64 {
        let mut numbers = numbers.clone();
        numbers[element] += by;
        let changed = Operand::free(changed.array.shape(), &numbers).cast(changed.array.dtype()).array;
        let mut operands: Vec<&Array> = case.operands.iter().map(|it| &it.array).collect();
        operands[operand] = &changed;
        let y = kernels::evaluate(&case.op, &operands).unwrap().remove(0);
        y.to_floats().unwrap().iter().zip(&weights).map(|(y, weight)| y * weight).sum()
    };
    let quotient = |element: usize| {
        let stays = changed.role == Role::FreeUnlessZero && numbers[element] == 0.0;
        if stays { 0.0 } else { (loss(element, step) - loss(element, -step)) / (2.0 * step) }
    };
    (0..numbers.len()).map(quotient).collect()
}

fn compare(operand: &Operand, found: &Array, expected: &[f64]) -> Result<(), String> {
    if found.type_() != operand.array.type_() {
        return Err(format!("of type {}, not {}", found.type_(), operand.array.type_()));
    }
    for (element, (found, expected)) in found.to_floats().unwrap().iter().zip(expected).enumerate() {
        let off = (found - expected).abs();
        if off.is_nan() || off > TOLERANCE * (1.0 + expected.abs()) {
            return Err(format!("element {element} is {found}, by differences {expected}"));
        }
    }
    Ok(())
}
