//! `simulate`: the step of a plan or a pipeline by the clock of a machine that need not be there.

use std::fmt::Write as _;
use std::path::Path;

use ::plan::Plan;
use ::plan::json::Content;
use cost_models::cluster::Cluster;
use cost_models::quantity::bytes;
use driver::generation::together::held;
use driver::pipeline;
use files::{Failure, Say};
use files::{machine, plan_file, written};
use report::simulated::{Planned, Simulated};
use serde_json::json;
use simulate::{Order, SimulateError, memory_trace, trace};

use super::{Context, Said};
use crate::arguments::SimulateArguments;

/// Simulates a plan.
pub(crate) fn simulate(
    arguments: &SimulateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    for output in arguments.trace.iter().chain(&arguments.memory_trace) {
        written::differs(output, &[arguments.plan.as_path()])?;
        written::possible(output)?;
    }
    context.progress.say(format!("reading {}", arguments.plan.display()));
    let content = plan_file::read_any_checked(&arguments.plan)?;
    let order = if arguments.one_by_one { Order::OneByOne } else { Order::Streams };
    let (machine, settings) = (arguments.machine.as_deref(), &arguments.set.settings[..]);
    let asked = Asked { plan: &arguments.plan, machine, settings, order };
    // What is written is of the step of one token.
    let quiet = SimulateArguments { trace: None, memory_trace: None, ..arguments.clone() };
    let mut all = Vec::new();
    simulated(&content, &asked, &|words| context.progress.say(words), &mut |name, it| {
        all.push((name, told(&it, if name == "prefill" { &quiet } else { arguments })?));
        Ok(())
    })?;
    match &content {
        Content::Generation(generation) => {
            let held = held(generation)?;
            let text = format!("memory      {} of both steps, which take turns\n\n", bytes(held));
            let mut both = Said { text, json: json!({ "held_bytes": held }) };
            for (name, said) in all {
                // Writing to a string does not fail.
                let _ = writeln!(both.text, "{name}\n{}", said.text);
                both.json[name] = said.json;
            }
            Ok(both)
        }
        Content::Plan(_) | Content::Pipeline(_) => {
            all.pop().map(|it| it.1).ok_or_else(|| Failure::internal("simulate", "nothing was simulated"))
        }
    }
}

/// What is simulated, and how.
pub(super) struct Asked<'a> {
    /// Where the plan is.
    pub(super) plan: &'a Path,
    /// Another machine than the one it was made for.
    pub(super) machine: Option<&'a str>,
    /// What is set of it.
    pub(super) settings: &'a [String],
    pub(super) order: Order,
}

/// Simulates each program of a file: what it is called, and how it went.
pub(super) fn simulated(
    content: &Content,
    asked: &Asked<'_>,
    say: &Say<'_>,
    each: &mut dyn FnMut(&'static str, Simulated<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: SimulateError| Failure::internal("simulate", error);
    let mut of_plan = |name: &'static str, plan: &Plan| {
        let planned = Planned::of_plan(plan);
        let cluster = machine_of(&planned, asked)?;
        say("lowering".into());
        let alike = pipeline::alike(plan)?;
        say(format!("simulating {} ranks", planned.machine.devices).into());
        let machine = cluster.single().ok_or_else(|| {
            let kinds = cluster.kinds().len();
            let why = format!(
                "it is on one mesh, and the machine has {kinds} kinds of nodes: give one of one kind"
            );
            Failure::file(asked.plan, why)
        })?;
        let timeline = simulate::simulate(&alike, machine, asked.order).map_err(failed)?;
        each(name, Simulated { planned, cluster: &cluster, timeline: &timeline })
    };
    match content {
        Content::Plan(plan) => of_plan("step", plan),
        Content::Generation(generation) => {
            generation.plans().try_for_each(|(name, plan)| of_plan(name, plan))
        }
        Content::Pipeline(pipeline) => {
            let planned = Planned::of_pipeline(pipeline);
            let cluster = machine_of(&planned, asked)?;
            say("lowering".into());
            let groups = lower::grouped(pipeline).map_err(|error| Failure::internal("lower", error))?;
            say(format!("simulating {} ranks", pipeline.devices()).into());
            let timeline = simulate::simulate_grouped(&groups, &cluster, asked.order).map_err(failed)?;
            each("step", Simulated { planned, cluster: &cluster, timeline: &timeline })
        }
    }
}

/// Writes what is asked for, and says the rest.
fn told(told: &Simulated<'_>, arguments: &SimulateArguments) -> Result<Said, Failure> {
    write(arguments.trace.as_deref(), &mut |to| trace(told.timeline, to))?;
    write(arguments.memory_trace.as_deref(), &mut |to| memory_trace(told.timeline, to))?;
    let written = [("trace", &arguments.trace), ("memory", &arguments.memory_trace)];
    let written: Vec<_> = written.iter().filter_map(|(what, path)| Some((*what, path.as_deref()?))).collect();
    Ok(Said { text: told.text(&written), json: told.json() })
}

/// The machine: as many devices as the plan.
fn machine_of(planned: &Planned<'_>, asked: &Asked<'_>) -> Result<Cluster, Failure> {
    let devices = planned.machine.devices;
    let refused = |why: String| Failure::file(asked.plan, why);
    let given = machine::given(planned.machine, asked.machine, asked.settings);
    let named = machine::of_plan(planned.machine, given.as_deref());
    let machine = named.map_err(|failure| match failure {
        Failure::Usage(why) => refused(why),
        other => other,
    })?;
    if machine.devices() == devices {
        return Ok(machine);
    }
    Err(refused(format!(
        "the plan is for {devices} devices (mesh {}), the machine {} has {}; give one of {devices}, or plan \
         again",
        planned.mesh,
        machine.full_name(),
        machine.devices()
    )))
}

/// Writes a file, if one is asked for.
fn write(
    path: Option<&Path>,
    fill: &mut dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let failed = |error: std::io::Error| Failure::unwritten(path, &error);
    written::stream(path, &mut |to| fill(to).map_err(failed))
}
