//! `simulate`: a plan's step by the clock of a machine that need not be there.

use std::fmt::Write as _;
use std::path::Path;

use ::plan::Plan;
use cost_models::machine::Machine;
use serde_json::{Value, json};
use simulate::{Class, Order, Timeline, memory_trace, trace};

use super::{Context, Said};
use crate::arguments::SimulateArguments;
use crate::failure::Failure;
use crate::quantity::{bytes, percent, seconds};
use crate::{machine, mesh, pipeline, plan_file, written};

/// How many classes of ranks are listed for people.
const LISTED: usize = 16;

/// Simulates a plan.
pub(crate) fn simulate(
    arguments: &SimulateArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    for output in arguments.trace.iter().chain(&arguments.memory_trace) {
        written::differs(output, &[arguments.plan.as_path()])?;
    }
    context.progress.say(format!("reading {}", arguments.plan.display()));
    let plan = plan_file::read_checked(&arguments.plan)?;
    let machine = machine_of(&plan, arguments)?;
    context.progress.say("lowering");
    let alike = pipeline::alike(&plan)?;
    context.progress.say(format!("simulating {} ranks", plan.mesh.devices()));
    let order = if arguments.one_by_one { Order::OneByOne } else { Order::Streams };
    let timeline =
        simulate::simulate(&alike, &machine, order).map_err(|error| Failure::internal("simulate", error))?;
    write(arguments.trace.as_deref(), &mut |to| trace(&timeline, to))?;
    write(arguments.memory_trace.as_deref(), &mut |to| memory_trace(&timeline, to))?;
    let told = Told { plan: &plan, machine: &machine, timeline: &timeline };
    Ok(Said { text: told.text(arguments), json: told.json() })
}

/// The machine: as many devices as the plan. A machine file does not say how many there are.
fn machine_of(plan: &Plan, arguments: &SimulateArguments) -> Result<Machine, Failure> {
    let devices = plan.machine.devices;
    let name = arguments.machine.as_deref().unwrap_or(&plan.machine.name);
    let refused = |why: String| Failure::file(&arguments.plan, why);
    let named = machine::named(name, machine::is_file(name).then_some(devices));
    let machine = named.map_err(|failure| match (failure, &arguments.machine) {
        (Failure::Usage(why), None) => {
            refused(format!("its machine is not known: {why}; give the machine file with `--machine FILE`"))
        }
        (Failure::Usage(why), Some(_)) => {
            refused(format!("a plan for {devices} devices does not suit the machine: {why}"))
        }
        (other, _) => other,
    })?;
    if machine.devices() == devices {
        return Ok(machine);
    }
    Err(refused(format!(
        "the plan is for {devices} devices (mesh {}), the machine {} has {}; give one of {devices}, or plan \
         again",
        mesh::sizes(&plan.mesh),
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
    let failed = |error: std::io::Error| Failure::file(path, format!("cannot be written: {error}"));
    written::stream(path, &mut |to| fill(to).map_err(failed))
}

/// What there is to say.
struct Told<'a> {
    plan: &'a Plan,
    machine: &'a Machine,
    timeline: &'a Timeline<'a>,
}

impl Told<'_> {
    fn text(&self, arguments: &SimulateArguments) -> String {
        let Self { plan, machine, timeline } = *self;
        let mut text = String::new();
        // Writing to a string does not fail.
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        line(format!(
            "machine     {}, mesh {} ({})",
            machine.full_name(),
            mesh::sizes(&plan.mesh),
            plan.mesh
        ));
        if machine.name != planned_for(plan) {
            line(format!("planned for {}", plan.machine.name));
        }
        line(format!("step        {} simulated", seconds(timeline.seconds)));
        let hidden = self.hidden();
        line(format!(
            "estimate    {} by the search, which adds up what is computed and what is exchanged; {} of the \
             exchange run beside computing",
            seconds(plan.seconds()),
            seconds(hidden)
        ));
        line(format!(
            "ran         {} instructions of {} ranks, which are {} by what they do",
            timeline.instructions(),
            plan.mesh.devices(),
            timeline.classes.len()
        ));
        line(
            "\nranks            computing   exchanging      exposed    utilised   memory at most".to_owned(),
        );
        for class in timeline.classes.iter().take(LISTED) {
            line(self.class_line(class));
        }
        if timeline.classes.len() > LISTED {
            line(format!(
                "and {} other kinds of ranks (`--json` lists all)",
                timeline.classes.len() - LISTED
            ));
        }
        let usable = machine.usable_memory().0;
        let held = self.held();
        if held > usable {
            line(format!("\nmemory      {} are needed, {} too many", bytes(held), bytes(held - usable)));
        }
        for (path, what) in [(&arguments.trace, "trace"), (&arguments.memory_trace, "memory")] {
            if let Some(path) = path {
                line(format!("\n{what:<12}{}: open it at https://ui.perfetto.dev", path.display()));
            }
        }
        text
    }

    fn class_line(&self, class: &Class) -> String {
        let name = match class.ranks[..] {
            [only] => format!("{only}"),
            [first, .., last] => {
                let run = u64::try_from(class.ranks.len()).is_ok_and(|it| it == last - first + 1);
                let joint = if run { "-" } else { ", .., " };
                format!("{first}{joint}{last} ({})", class.ranks.len())
            }
            [] => String::new(),
        };
        format!(
            "{name:<14} {:>12} {:>12} {:>12} {:>11} {:>16}",
            seconds(class.computing),
            seconds(class.communicating),
            seconds(class.exposed),
            percent(class.computing, self.timeline.seconds),
            bytes(self.peak(class))
        )
    }

    /// Exchanging beside computing, on the ranks where that is least (seconds).
    fn hidden(&self) -> f64 {
        let hidden = |class: &Class| class.communicating - class.exposed;
        self.timeline.classes.iter().map(hidden).reduce(f64::min).unwrap_or(0.0)
    }

    fn peak(&self, class: &Class) -> u64 {
        self.timeline.memory(class).iter().map(|level| level.bytes).max().unwrap_or(0)
    }

    fn held(&self) -> u64 {
        self.timeline.alike.program.resident + self.timeline.alike.program.arena
    }

    fn json(&self) -> Value {
        let Self { plan, machine, timeline } = *self;
        let class = |class: &Class| {
            json!({
                "ranks": class.ranks,
                "seconds": class.seconds,
                "computing_seconds": class.computing,
                "communicating_seconds": class.communicating,
                "exposed_seconds": class.exposed,
                "utilisation": class.computing / timeline.seconds,
                "peak_bytes": self.peak(class),
            })
        };
        json!({
            "machine": machine.full_name(),
            "planned_for": plan.machine.name,
            "mesh": mesh::sizes(&plan.mesh),
            "seconds": timeline.seconds,
            "estimated_seconds": plan.seconds(),
            "hidden_seconds": self.hidden(),
            "instructions": timeline.instructions(),
            "tasks": timeline.tasks,
            "held_bytes": self.held(),
            "usable_bytes": machine.usable_memory().0,
            "classes": timeline.classes.iter().map(class).collect::<Vec<Value>>(),
        })
    }
}

/// The device that a plan's machine is made of.
fn planned_for(plan: &Plan) -> &str {
    plan.machine.name.rsplit_once('-').map_or(&plan.machine.name, |(device, _)| device)
}
