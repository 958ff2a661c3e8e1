//! Rules of what is returned, of what states become, and of recipes.

use planner_ir::{CROSSING, DType, Op, Optimizer, Phase, Source, ValueId};

use super::blocks::same;
use super::operations::copied;
use super::{Violations, operation_name, owed_text};
use super::{narrow, rounding};
use crate::plan::Plan;
use crate::recipe::{Loss, Recipe};

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
    let ascends = recipe.spelled.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascends || recipe.spelled.last().is_some_and(|&last| last >= recipe.recompute.len()) {
        let (is, blocks) = (&recipe.spelled, recipe.recompute.len());
        let message = format_args!("spells out blocks {is:?}, expected ascending numbers below {blocks}");
        found.add("recipe", "recipe", message);
    }
    labels(plan, recipe, found);
    roles(plan, recipe, found);
    rounding::check(plan, (recipe.precision, recipe.masters), found);
    narrow::check(plan, recipe.precision, found);
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

/// What stays as it is, is no parameter, and what is a copy is not in the program.
fn roles(plan: &Plan, recipe: &Recipe, found: &mut Violations) {
    for value in &plan.graph.values {
        let (name, is_parameter) = match &value.source {
            Source::State(state) => (&state.name, state.kind == planner_ir::StateKind::Parameter),
            Source::Weight(name) => (name, false),
            _ => continue,
        };
        if is_parameter && recipe.roles.keeps(name) {
            let message = "is a parameter, expected a weight that stays as it is, as the recipe says";
            found.add("recipe", format!("weight `{name}`"), message);
        }
        if let Some(tie) = recipe.roles.ties.iter().find(|tie| tie.copy == *name) {
            let message = format!("is in the program, expected `{}`, whose copy it is", tie.original);
            found.add("recipe", format!("weight `{name}`"), message);
        }
    }
}

/// The input of labels, where the program has it, is of whole numbers.
fn labels(plan: &Plan, recipe: &Recipe, found: &mut Violations) {
    let Loss::CrossEntropy { labels, .. } = &recipe.loss else { return };
    for value in &plan.graph.values {
        if matches!(&value.source, Source::Input(name) if name == labels) && value.type_.dtype != DType::I64 {
            let message = format!("labels are {}, expected whole numbers of i64", value.type_);
            found.add("recipe", format!("input `{labels}`"), message);
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
