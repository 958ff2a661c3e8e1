//! Rules of what is returned, of what states become, and of recipes.

use std::collections::BTreeMap;

use planner_ir::{Binary, CROSSING, DType, Graph, Node, Op, Optimizer, Phase, Source, StateKind, ValueId};

use super::blocks::same;
use super::operations::{copied, owed_text};
use super::{Violations, operation_name};
use crate::plan::Plan;
use crate::recipe::{Precision, Recipe};

/// Adds what is violated.
pub(super) fn check(plan: &Plan, found: &mut Violations) {
    outputs(plan, found);
    carried(plan, found);
    recipe(plan, found);
}

fn outputs(plan: &Plan, found: &mut Violations) {
    for (output, &copy) in plan.graph.outputs.iter().zip(&plan.outputs) {
        let place = format!("output `{}`", output.name);
        if let Some(other) = copied(plan, copy).filter(|&it| it != output.value) {
            found.add("output", place, format_args!("a copy of %{}, expected %{}", other.0, output.value.0));
            continue;
        }
        if plan.graph.training.is_some() && !may_be_returned(plan, &output.name, output.value) {
            let message = format!("returns %{}, expected what the update makes", output.value.0);
            found.add("output", &place, message);
        }
        let owed = &plan.layout(output.value, copy).owed;
        if !owed.is_empty() {
            let owed = owed_text(&plan.mesh, owed);
            found.add("output", place, format_args!("owes sums over {owed}, expected none"));
        }
    }
}

/// Whether a training step may return a value: what the update makes, here or in another stage of a
/// pipeline; and anything to other stages.
fn may_be_returned(plan: &Plan, name: &str, value: ValueId) -> bool {
    match &plan.graph.value(value).source {
        _ if name.starts_with(CROSSING) => true,
        Source::Result { node, .. } => plan.graph.node(*node).phase == Phase::Update,
        Source::Input(input) => input.starts_with(CROSSING),
        _ => false,
    }
}

fn carried(plan: &Plan, found: &mut Violations) {
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    for (it, &copy) in carried.zip(&plan.carried) {
        let place = format!("state %{}", it.state.0);
        if let Some(other) = copied(plan, copy).filter(|&value| value != it.next) {
            let message = format!("becomes a copy of %{}, expected one of %{}", other.0, it.next.0);
            found.add("carried-copy", place, message);
            continue;
        }
        let (rest, next) = (&plan.layouts[it.state.0], plan.layout(it.next, copy));
        let type_ = plan.graph.type_of(it.state);
        let well_formed = [rest, next].iter().all(|layout| layout.check(&plan.mesh, type_).is_ok());
        // Where a layout has no form, that is said elsewhere.
        if well_formed && (rest.owed != next.owed || !same(&plan.mesh, &rest.dims, &next.dims, &type_.shape))
        {
            let (found_, expected) = (next.display(&plan.mesh), rest.display(&plan.mesh));
            let message = format!("becomes what is held as {found_}, expected {expected}, as it is at rest");
            found.add("carried-layout", place, message);
        }
    }
}

fn recipe(plan: &Plan, found: &mut Violations) {
    let (training, recipe) = match (&plan.graph.training, &plan.recipe) {
        (None, None) => return,
        (Some(training), Some(recipe)) => (training, recipe),
        (training, _) => {
            let message = match training {
                Some(_) => "none for a training step, expected one",
                None => "one for a program that does not train, expected none",
            };
            found.add("recipe", "recipe", message);
            return;
        }
    };
    if recipe.micro_batches != training.micro_batches {
        let (is, expected) = (recipe.micro_batches, training.micro_batches);
        found.add("recipe", "recipe", format_args!("{is} micro-batches, expected the program's {expected}"));
    }
    if let Some(clip) = recipe.clip.filter(|clip| !(clip.is_finite() && *clip > 0.0)) {
        found.add("recipe", "recipe", format_args!("clips to a norm of {clip}, expected a number above 0"));
    }
    match recipe.precision {
        Precision::Bf16Stochastic => rounded(plan, found),
        Precision::F32 | Precision::Bf16 => not_rounded(plan, recipe.precision, found),
    }
    for (node, it) in plan.graph.nodes.iter().enumerate() {
        if let Op::Update(optimizer) = it.op
            && !follows(recipe, optimizer)
        {
            let expected = Op::Update(recipe.optimizer);
            let message = format!("is `{}`, expected the recipe's `{expected}` or without decay", it.op);
            found.add("recipe", operation_name(plan, node), message);
        }
    }
}

/// Of a step whose parameters are in bf16 alone.
fn rounded(plan: &Plan, found: &mut Violations) {
    // For each start of rounding, the first state that is rounded from there.
    let mut starts: BTreeMap<Start, ValueId> = BTreeMap::new();
    for value in plan.graph.value_ids() {
        let Source::State(state) = &plan.graph.value(value).source else { continue };
        let place = format!("state %{}", value.0);
        match state.kind {
            StateKind::Master => {
                let message = "is a master, expected none where parameters are in bf16 alone";
                found.add("precision", place, message);
            }
            StateKind::Parameter => {
                let dtype = plan.graph.type_of(value).dtype;
                if dtype != DType::BF16 {
                    let message = format!("is a parameter in {dtype}, expected bf16 alone");
                    found.add("precision", &place, message);
                }
                let Some(next) = plan.graph.next(value) else { continue };
                let start = match plan.graph.value(next).source {
                    Source::Result { node, .. } => start(&plan.graph, plan.graph.node(node)),
                    _ => None,
                };
                let Some(start) = start else {
                    let message = format!(
                        "becomes %{}, expected what is rounded by chance, by a number of the step",
                        next.0
                    );
                    found.add("precision", place, message);
                    continue;
                };
                let Start { seed, from, .. } = start;
                let first = *starts.entry(start).or_insert(value);
                if first != value {
                    let message = format!(
                        "is rounded by seed {seed} and as much after %{}, expected other chances than those of \
                         state %{}",
                        from.0, first.0
                    );
                    found.add("precision", place, message);
                }
            }
            _ => {}
        }
    }
}

/// Where rounding starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    seed: u64,
    /// The input that is another number in each step.
    from: ValueId,
    /// How much is added to it: a whole number, as bits.
    added: u64,
}

/// Where the rounding of an operation starts, if it rounds by a number of the step: an input with constants
/// added.
fn start(graph: &Graph, node: &Node) -> Option<Start> {
    let (Op::RoundStochastically { seed }, [_, number]) = (&node.op, &node.operands[..]) else { return None };
    let constant = |value: ValueId| match graph.value(value).source {
        Source::Result { node, .. } => match graph.node(node).op {
            Op::Fill { value, .. } => Some(value.0),
            _ => None,
        },
        _ => None,
    };
    let (mut from, mut added) = (*number, 0.0);
    while let Source::Result { node, .. } = graph.value(from).source {
        let node = graph.node(node);
        let (Op::Binary(Binary::Add), [one, other]) = (&node.op, &node.operands[..]) else { return None };
        let (rest, more) =
            constant(*other).map(|more| (*one, more)).or(constant(*one).map(|it| (*other, it)))?;
        (from, added) = (rest, added + more);
    }
    let is_input = matches!(graph.value(from).source, Source::Input(_));
    is_input.then_some(Start { seed: *seed, from, added: f64::to_bits(added) })
}

/// Of a step whose parameters have all digits.
fn not_rounded(plan: &Plan, precision: Precision, found: &mut Violations) {
    for (index, node) in plan.graph.nodes.iter().enumerate() {
        if matches!(node.op, Op::RoundStochastically { .. }) {
            let alone = Precision::Bf16Stochastic;
            let message =
                format!("rounds by chance, expected only of precision `{alone}`: it is `{precision}`");
            found.add("precision", operation_name(plan, index), message);
        }
    }
}

/// Whether an optimizer is the recipe's, with its decay or none.
fn follows(recipe: &Recipe, optimizer: Optimizer) -> bool {
    let none = planner_ir::Real(0.0);
    let without_decay = match recipe.optimizer {
        Optimizer::Sgd { .. } => Optimizer::Sgd { decay: none },
        Optimizer::Momentum { momentum, .. } => Optimizer::Momentum { momentum, decay: none },
        Optimizer::AdamW { beta1, beta2, epsilon, .. } => {
            Optimizer::AdamW { beta1, beta2, epsilon, decay: none }
        }
    };
    optimizer == recipe.optimizer || optimizer == without_decay
}
