//! `explain`: what a plan decides, what it costs, and what it would cost otherwise.

mod again; // the words that ask for a plan again
mod page; // as a page for a browser
mod staged; // of a pipeline

use std::fmt::Write as _;
use std::path::Path;

use ::plan::json::Content;
use ::plan::{Assignment, Generation, Plan};
use autoparallel::otherwise::{self, Forbidden, Manner, Price};
use cost_models::machine::Machine;
use driver::derived;
use driver::generation::together::held;
use driver::pipeline::{Prepared, Target};
use files::{Doing, Failure, Of};
use files::{machine, plan_file, written};
use report::explained::{self, BlockStory};
use report::explanation::{Alternative, Explanation, Usual};
use report::summary::generation::{in_json, in_words};
use report::throughput;

use super::{Context, Said};
use crate::arguments::{ExplainArguments, PlanArguments, SettingArguments};

/// Explains a plan or a pipeline.
pub(crate) fn explain(arguments: &ExplainArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    if let Some(page) = &arguments.html {
        let others: Vec<&Path> = [Some(&arguments.plan), arguments.svg.as_ref()]
            .into_iter()
            .flatten()
            .map(|it| it.as_path())
            .collect();
        written::differs(page, &others)?;
        written::possible(page)?;
    }
    let content = plan_file::read_any_checked(&arguments.plan)?;
    let mut said = match &content {
        Content::Plan(plan) => explain_plan(plan, arguments, context)?,
        Content::Pipeline(pipeline) => staged::explain(arguments, pipeline)?,
        Content::Generation(generation) => explain_generation(generation, arguments, context)?,
    };
    if let Some(path) = &arguments.html {
        page::write(path, &content, &said.json, arguments, context)?;
        said.text += &page_line(path);
    }
    Ok(said)
}

/// Writes the page of a plan that has just been made, if one is asked for.
pub(super) fn page_of_made(
    arguments: &PlanArguments,
    context: &mut Context<'_, '_>,
) -> Result<Option<String>, Failure> {
    let Some(path) = &arguments.html else { return Ok(None) };
    // Shipped machines are known by the plan's name for them, and what is set of them too.
    let given = machine::is_file(&arguments.machine);
    let machine = given.then(|| arguments.machine.clone());
    let set = if given { arguments.target.set.clone() } else { SettingArguments::default() };
    let (plan, html) = (arguments.output.clone(), Some(path.clone()));
    explain(&ExplainArguments { plan, machine, set, html, ..ExplainArguments::default() }, context)?;
    Ok(Some(page_line(path)))
}

fn page_line(path: &Path) -> String {
    format!("page       {}\n", path.display())
}

/// What plans of generation have in common, then each; a picture is of the step of one token.
fn explain_generation(
    generation: &Generation,
    arguments: &ExplainArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    if arguments.diagram.is_some() || arguments.svg.is_some() {
        return explain_plan(&generation.decode, arguments, context);
    }
    let held = held(generation)?;
    let lines = in_words(generation, held);
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut json = in_json(generation, held, None);
    for (name, plan) in generation.plans() {
        let said = explain_plan(plan, arguments, context)?;
        // Writing to a string does not fail.
        let _ = write!(text, "\n{name}\n{}", said.text);
        json[name] = said.json;
    }
    Ok(Said { text, json })
}

fn explain_plan(
    plan: &Plan,
    arguments: &ExplainArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    if let Some(name) = &arguments.diagram {
        return super::partition::of_plan(plan, name, arguments.svg.as_deref());
    }
    if arguments.svg.is_some() {
        let message = "`--svg` is the picture of a pipeline's schedule, or goes with `--diagram OPERATION`";
        return Err(Failure::Usage(message.to_owned()));
    }
    // What cannot be cut into blocks is told whole.
    let whole = vec![search::Section::whole(&plan.graph)];
    // What a user has fixed is so in all other plans, too.
    let fixed = plan.pins.iter().map(|pin| search::Fixed::of(pin, &plan.mesh)).collect();
    let (prepared, sections) = derived::prepared(&arguments.plan, plan)?.unzip();
    let prepared = prepared.map(|it| Prepared { fixed, ..it });
    let sections = sections.flatten().unwrap_or(whole);
    let stories = explained::blocks(plan, &sections);
    let given = machine::given(&plan.machine, arguments.machine.as_deref(), &arguments.set.settings);
    let priced = machine::priced_as(&plan.machine, given.as_deref());
    let throughput = throughput::of_plan(plan, plan.seconds(), priced.as_ref().ok());
    let machine = match (priced.and_then(|it| machine::single(&it)), &given) {
        (Err(failure), Some(_)) => return Err(failure),
        (machine, _) => machine,
    };
    let others = match (&machine, &prepared) {
        (_, None) => {
            Err("the step cannot be derived again, for its model is not where the plan says".to_owned())
        }
        (Ok(machine), Some(prepared)) => Ok(others(plan, prepared, machine, context)?),
        (Err(failure), _) => Err(failure.to_string()),
    };
    let alternatives = match (&machine, &prepared, arguments.alternatives) {
        (Ok(machine), Some(prepared), true) => {
            Some(alternatives(plan, prepared, machine, (&stories, &sections), context)?)
        }
        _ => None,
    };
    let explanation = Explanation { plan, stories: &stories, throughput, others, alternatives };
    Ok(Said { text: explanation.text(), json: explanation.json() })
}

/// What plans made by hand cost.
fn others(
    plan: &Plan,
    prepared: &Prepared,
    machine: &Machine,
    context: &Context<'_, '_>,
) -> Result<Vec<Usual>, Failure> {
    let steps = rewrite::Steps::One;
    let target = Target { capacity: plan.capacity, steps, ..Target::of(machine, &plan.mesh) };
    let priced = Manner::ALL.into_iter().map(|manner| {
        context.progress.say(format!("pricing: {}", manner.name()));
        Ok(match otherwise::plan_of(manner, prepared, &plan.model, &target)? {
            Ok(made) => {
                Usual { manner, price: Price::Seconds(made.seconds()), pins: again::pins_of_all(&made) }
            }
            Err(price) => Usual { manner, price, pins: Vec::new() },
        })
    });
    priced.collect()
}

fn alternatives<'a>(
    plan: &Plan,
    prepared: &Prepared,
    machine: &Machine,
    (stories, sections): (&'a [BlockStory], &[search::Section]),
    context: &Context<'_, '_>,
) -> Result<Vec<Alternative<'a>>, Failure> {
    let steps = rewrite::Steps::Auto;
    let target = Target { capacity: plan.capacity, steps, ..Target::of(machine, &plan.mesh) };
    let mut alternatives = Vec::new();
    let count: usize = stories.iter().map(|it| it.operations.len()).sum();
    let mut numbers = 1..;
    for story in stories {
        for (operation, number) in story.operations.iter().zip(&mut numbers) {
            let Assignment::Computed { partition, .. } = &plan.assignments[operation.node.0] else {
                continue;
            };
            let one = Doing::one("pricing otherwise", number, Of::All(count));
            context.progress.say(one.named(format!("`{}`", operation.origin)));
            let node = plan.graph.node(operation.node);
            let operands = plan.graph.types_of(&node.operands);
            let forbidden = Forbidden { node: operation.local, op: &node.op, operands: &operands, partition };
            let (price, pins) = match otherwise::without(&forbidden, prepared, &plan.model, &target)? {
                Ok(made) => {
                    let repetitions = sections[story.section].repetitions.iter();
                    let nodes: Vec<planner_ir::NodeId> =
                        repetitions.filter_map(|it| it.nodes.get(operation.local.0).copied()).collect();
                    (Price::Seconds(made.seconds()), again::pins_of(plan, &made, &nodes))
                }
                Err(price) => (price, Ok(Vec::new())),
            };
            alternatives.push(Alternative { block: &story.name, operation, price, pins });
        }
    }
    Ok(alternatives)
}
