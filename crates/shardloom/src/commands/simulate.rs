//! `simulate`: the step of a plan or a pipeline by the clock of a machine that need not be there.

use std::fmt::Write as _;
use std::path::Path;

use ::plan::json::Content;
use ::plan::{MachineName, Pipeline, Plan};
use autoparallel::mesh;
use cost_models::cluster::Cluster;
use cost_models::model_flops::StepWork;
use cost_models::quantity::{bytes, counted, percent, seconds};
use cost_models::throughput::Throughput;
use driver::generation::planned::held;
use driver::pipeline;
use files::Failure;
use files::{machine, plan_file, written};
use report::throughput;
use serde_json::{Value, json};
use simulate::{Class, Exchanged, Order, SimulateError, Timeline, memory_trace, trace};

use super::{Context, Said};
use crate::arguments::SimulateArguments;

/// How many classes of ranks are listed for people.
const LISTED: usize = 16;

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
    say: &dyn Fn(String),
    each: &mut dyn FnMut(&'static str, Told<'_>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: SimulateError| Failure::internal("simulate", error);
    let mut of_plan = |name: &'static str, plan: &Plan| {
        let planned = Planned::of_plan(plan);
        let cluster = machine_of(&planned, asked)?;
        say("lowering".to_owned());
        let alike = pipeline::alike(plan)?;
        say(format!("simulating {} ranks", planned.machine.devices));
        let machine = cluster.single().ok_or_else(|| {
            let kinds = cluster.kinds().len();
            let why = format!(
                "it is on one mesh, and the machine has {kinds} kinds of nodes: give one of one kind"
            );
            Failure::file(asked.plan, why)
        })?;
        let timeline = simulate::simulate(&alike, machine, asked.order).map_err(failed)?;
        each(name, Told { planned, cluster: &cluster, timeline: &timeline })
    };
    match content {
        Content::Plan(plan) => of_plan("step", plan),
        Content::Generation(generation) => {
            generation.plans().try_for_each(|(name, plan)| of_plan(name, plan))
        }
        Content::Pipeline(pipeline) => {
            let planned = Planned::of_pipeline(pipeline);
            let cluster = machine_of(&planned, asked)?;
            say("lowering".to_owned());
            let groups = lower::grouped(pipeline).map_err(|error| Failure::internal("lower", error))?;
            say(format!("simulating {} ranks", pipeline.devices()));
            let timeline = simulate::simulate_grouped(&groups, &cluster, asked.order).map_err(failed)?;
            each("step", Told { planned, cluster: &cluster, timeline: &timeline })
        }
    }
}

/// Writes what is asked for, and says the rest.
fn told(told: &Told<'_>, arguments: &SimulateArguments) -> Result<Said, Failure> {
    write(arguments.trace.as_deref(), &mut |to| trace(told.timeline, to))?;
    write(arguments.memory_trace.as_deref(), &mut |to| memory_trace(told.timeline, to))?;
    Ok(Said { text: told.text(arguments), json: told.json() })
}

/// What a plan or a pipeline says of itself.
struct Planned<'a> {
    machine: &'a MachineName,
    /// The sizes of the mesh, or of the stages' meshes.
    mesh: String,
    /// The same in words.
    layout: String,
    /// What it expects of a step (seconds).
    seconds: f64,
    /// How much it expects to be hidden of what is exchanged; nothing is said of stages (seconds).
    hidden: f64,
    /// Whether there are stages.
    staged: bool,
    /// What a step needs.
    work: StepWork,
}

impl<'a> Planned<'a> {
    fn of_plan(plan: &'a Plan) -> Self {
        let sizes = mesh::sizes(&plan.mesh);
        let layout = format!("mesh {sizes} ({})", plan.mesh);
        Self {
            machine: &plan.machine,
            mesh: sizes,
            layout,
            seconds: plan.seconds(),
            hidden: plan.hidden_seconds(),
            staged: false,
            work: throughput::work(plan),
        }
    }

    fn of_pipeline(pipeline: &'a Pipeline) -> Self {
        let mut sizes: Vec<String> = pipeline.stages.iter().map(|it| mesh::sizes(&it.plan.mesh)).collect();
        sizes.dedup();
        let mesh = sizes.join(", ");
        let layout = format!(
            "{} on {} of mesh {mesh}, {}",
            counted(pipeline.stages.len(), "stage"),
            counted(pipeline.schedule.groups.len(), "group"),
            counted(pipeline.micro_batches(), "micro-batch")
        );
        Self {
            machine: &pipeline.machine,
            mesh,
            layout,
            seconds: pipeline.seconds(),
            hidden: 0.0,
            staged: true,
            work: throughput::work_of_stages(pipeline),
        }
    }

    /// For what it was planned, where that is not this.
    fn other(&self, cluster: &Cluster) -> Option<String> {
        let name = &self.machine.name;
        if *name != cluster.full_name() {
            return Some(format!("planned for {name}"));
        }
        match machine::has_prices_of(cluster, self.machine) {
            Some(true) => None,
            Some(false) => Some(format!("planned for {name} by other prices")),
            None => Some(format!("planned for {name}, the plan does not say by which prices")),
        }
    }
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

/// Exchanges of a kind.
fn exchanged_line(it: &Exchanged) -> String {
    let Exchanged { kind, phase, count, seconds: all, exposed } = it;
    let what = format!("{kind}, {}", phase.name());
    format!("  {what:<30} {count:>8} {:>12} {:>12}", seconds(*all), seconds(*exposed))
}

/// What there is to say.
pub(super) struct Told<'a> {
    planned: Planned<'a>,
    cluster: &'a Cluster,
    pub(super) timeline: &'a Timeline<'a>,
}

impl Told<'_> {
    fn text(&self, arguments: &SimulateArguments) -> String {
        let Self { planned, cluster, timeline } = self;
        let mut text = String::new();
        // Writing to a string does not fail.
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        line(format!("machine     {}, {}", cluster.full_name(), planned.layout));
        planned.other(cluster).into_iter().for_each(&mut line);
        line(format!("step        {} simulated", seconds(timeline.seconds)));
        let hidden = self.hidden();
        let beside = seconds(hidden);
        let estimate = if planned.staged {
            format!(
                "by the pipeline's own prices and schedule; {beside} of the exchange run beside computing"
            )
        } else {
            format!(
                "by the search, {} of the exchange beside computing; here {beside}",
                seconds(planned.hidden)
            )
        };
        line(format!("estimate    {} {estimate}", seconds(planned.seconds)));
        throughput::lines(self.throughput().as_ref(), 12).into_iter().for_each(&mut line);
        line(format!(
            "ran         {} instructions of {} ranks, which are {} by what they do",
            timeline.instructions(),
            planned.machine.devices,
            timeline.classes.len()
        ));
        let more = if planned.staged { "         idle   stages" } else { "" };
        line(format!(
            "\nranks            computing   exchanging      exposed    utilised   memory at most{more}"
        ));
        for class in timeline.classes.iter().take(LISTED) {
            line(self.class_line(class));
        }
        if timeline.classes.len() > LISTED {
            line(format!(
                "and {} other kinds of ranks (`--json` lists all)",
                timeline.classes.len() - LISTED
            ));
        }
        self.exchanged().into_iter().for_each(&mut line);
        let beyond = |class: &Class| (self.held(class), self.held(class).saturating_sub(self.usable(class)));
        if let Some((held, beyond)) = timeline.classes.iter().map(beyond).max_by_key(|it| it.1)
            && beyond > 0
        {
            line(format!("\nmemory      {} are needed, {} too many", bytes(held), bytes(beyond)));
        }
        for (path, what) in [(&arguments.trace, "trace"), (&arguments.memory_trace, "memory")] {
            if let Some(path) = path {
                line(format!("\n{what:<12}{}: open it at https://ui.perfetto.dev", path.display()));
            }
        }
        text
    }

    /// What the kind of ranks exchanges that has most exposed, by kind: nothing if that is nothing.
    fn exchanged(&self) -> Vec<String> {
        let most = self.timeline.classes.iter().max_by(|a, b| a.exposed.total_cmp(&b.exposed));
        let Some(class) = most else { return Vec::new() };
        let mut lines: Vec<String> = self.timeline.exchanged(class).iter().map(exchanged_line).collect();
        if let Some(&first) = class.ranks.first().filter(|_| !lines.is_empty()) {
            lines.insert(0, format!("\nexchanged by rank {first:<15}    times   exchanging      exposed"));
        }
        lines
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
        let line = format!(
            "{name:<14} {:>12} {:>12} {:>12} {:>11} {:>16}",
            seconds(class.computing),
            seconds(class.communicating),
            seconds(class.exposed),
            percent(class.computing, self.timeline.seconds),
            bytes(self.held(class))
        );
        if !self.planned.staged {
            return line;
        }
        let stages: Vec<String> =
            self.timeline.program(class).stages().iter().map(usize::to_string).collect();
        format!("{line} {:>12}   {}", seconds(self.idle(class)), stages.join(", "))
    }

    /// How long a rank neither computes nor exchanges within its stage: it waits for other stages, or
    /// is done (seconds).
    fn idle(&self, class: &Class) -> f64 {
        (self.timeline.seconds - class.computing - class.exposed).max(0.0)
    }

    /// Exchanging beside computing, on the ranks where that is least (seconds).
    fn hidden(&self) -> f64 {
        let hidden = |class: &Class| class.communicating - class.exposed;
        self.timeline.classes.iter().map(hidden).reduce(f64::min).unwrap_or(0.0)
    }

    /// How fast the step is by the simulated clock.
    fn throughput(&self) -> Option<Throughput> {
        let devices = self.planned.machine.devices;
        throughput::of(&self.planned.work, self.timeline.seconds, devices, Some(self.cluster))
    }

    /// What is in use of that at most at one time (bytes).
    fn used(&self, class: &Class) -> u64 {
        self.timeline.memory(class).iter().map(|level| level.bytes).max().unwrap_or(0)
    }

    /// What a class of ranks holds, as its plan says (bytes): what is at rest, and its arena.
    fn held(&self, class: &Class) -> u64 {
        let program = self.timeline.program(class);
        program.resident + program.arena
    }

    /// What a device of a class of ranks can hold (bytes).
    fn usable(&self, class: &Class) -> u64 {
        let first = class.ranks.first().copied().unwrap_or(0);
        self.cluster.of_rank(first).usable_memory().0
    }

    fn json(&self) -> Value {
        let Self { planned, cluster, timeline } = self;
        let kind = |it: &Exchanged| {
            json!({
                "kind": it.kind,
                "phase": it.phase.name(),
                "count": it.count,
                "seconds": it.seconds,
                "exposed_seconds": it.exposed,
            })
        };
        let class = |class: &Class| {
            let exchanged = timeline.exchanged(class);
            let mut value = json!({
                "exchanged": exchanged.iter().map(kind).collect::<Vec<Value>>(),
                "ranks": class.ranks,
                "seconds": class.seconds,
                "computing_seconds": class.computing,
                "communicating_seconds": class.communicating,
                "exposed_seconds": class.exposed,
                "utilisation": class.computing / timeline.seconds,
                "peak_bytes": self.held(class),
                "used_bytes": self.used(class),
            });
            if planned.staged {
                value["idle_seconds"] = json!(self.idle(class));
                value["stages"] = json!(timeline.program(class).stages());
            }
            value
        };
        let mut value = json!({
            "machine": cluster.full_name(),
            "planned_for": planned.machine.name,
            "prices_of_plan": machine::has_prices_of(cluster, planned.machine),
            "mesh": planned.mesh,
            "seconds": timeline.seconds,
            "estimated_seconds": planned.seconds,
            "hidden_seconds": self.hidden(),
            "instructions": timeline.instructions(),
            "tasks": timeline.tasks,
            "held_bytes": timeline.classes.iter().map(|it| self.held(it)).max(),
            "usable_bytes": timeline.classes.iter().map(|it| self.usable(it)).min(),
            "classes": timeline.classes.iter().map(class).collect::<Vec<Value>>(),
        });
        throughput::add(self.throughput().as_ref(), &mut value);
        value
    }
}
