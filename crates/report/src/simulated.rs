//! How a plan or a pipeline went by the clock of a machine, in words and for programs.

use std::fmt::Write as _;
use std::path::Path;

use autoparallel::mesh;
use cost_models::cluster::Cluster;
use cost_models::model_flops::StepWork;
use cost_models::quantity::{bytes, counted, percent, seconds};
use cost_models::throughput::Throughput;
use files::machine;
use plan::{MachineName, Pipeline, Plan};
use serde_json::{Value, json};
use simulate::{Class, Exchanged, Timeline, Waited, Why};

use crate::throughput;

/// How many classes of ranks are listed for people.
const LISTED: usize = 16;

/// What part of a step computing waits for something, for that to be listed for people.
const WORTH: f64 = 1e-3;

/// What a plan or a pipeline says of itself.
pub struct Planned<'a> {
    /// The machine that it is for.
    pub machine: &'a MachineName,
    /// The sizes of the mesh, or of the stages' meshes.
    pub mesh: String,
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
    /// Of a plan.
    pub fn of_plan(plan: &'a Plan) -> Self {
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

    /// Of a pipeline.
    pub fn of_pipeline(pipeline: &'a Pipeline) -> Self {
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

/// Exchanges of a kind.
fn exchanged_line(it: &Exchanged) -> String {
    let Exchanged { kind, phase, count, seconds: all, exposed } = it;
    let what = format!("{kind}, {}", phase.name());
    format!("  {what:<30} {count:>8} {:>12} {:>12}", seconds(*all), seconds(*exposed))
}

/// What computing waits for, of a kind.
fn waited_line(it: &Waited) -> String {
    let Waited { kind, phase, why, count, seconds: all } = it;
    let of = match why {
        Why::Result => "its result",
        Why::Place => "its place in memory",
        Why::Turn => "its end, to begin the next turn",
    };
    format!("  {:<30} {count:>8} {:>12}  {of}", format!("{kind}, {}", phase.name()), seconds(*all))
}

/// How a plan went.
pub struct Simulated<'a> {
    /// What it says of itself.
    pub planned: Planned<'a>,
    /// On which machine.
    pub cluster: &'a Cluster,
    /// What was done when.
    pub timeline: &'a Timeline<'a>,
}

/// What a class of ranks exchanges, by kind and part of a step, for programs.
pub fn exchanged(timeline: &Timeline<'_>, class: &Class) -> Vec<Value> {
    let one = |it: &Exchanged| {
        json!({
            "kind": it.kind,
            "phase": it.phase.name(),
            "count": it.count,
            "seconds": it.seconds,
            "exposed_seconds": it.exposed,
        })
    };
    timeline.exchanged(class).iter().map(one).collect()
}

/// What the operations of a class of ranks wait for, for programs.
fn waited(timeline: &Timeline<'_>, class: &Class) -> Vec<Value> {
    let one = |it: &Waited| {
        json!({
            "kind": it.kind,
            "phase": it.phase.name(),
            "why": it.why.name(),
            "count": it.count,
            "seconds": it.seconds,
        })
    };
    timeline.waited(class).iter().map(one).collect()
}

impl Simulated<'_> {
    /// For people; what was written, and where, is said too.
    pub fn text(&self, written: &[(&str, &Path)]) -> String {
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
            format!("by the pipeline's own costs and schedule; {beside} of communication is hidden here")
        } else {
            format!("by the search, with {} of communication hidden; here {beside}", seconds(planned.hidden))
        };
        line(format!("estimate    {} {estimate}", seconds(planned.seconds)));
        throughput::lines(self.throughput().as_ref(), 12).into_iter().for_each(&mut line);
        line(format!(
            "programs    {} instructions on {} ranks, {}",
            timeline.instructions(),
            planned.machine.devices,
            counted(timeline.classes.len(), "distinct program")
        ));
        let more = if planned.staged { "         idle   stages" } else { "" };
        line(format!(
            "\nranks               compute  communication      exposed    utilised      peak memory{more}"
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
        for (what, path) in written {
            line(format!("\n{what:<12}{}: open it at https://ui.perfetto.dev", path.display()));
        }
        text
    }

    /// Communication of the class of ranks that has most of it exposed, by kind, and what its operations wait for:
    /// nothing if there is none.
    fn exchanged(&self) -> Vec<String> {
        let most = self.timeline.classes.iter().max_by(|a, b| a.exposed.total_cmp(&b.exposed));
        let Some(class) = most else { return Vec::new() };
        let mut lines: Vec<String> = self.timeline.exchanged(class).iter().map(exchanged_line).collect();
        if let Some(&first) = class.ranks.first().filter(|_| !lines.is_empty()) {
            lines
                .insert(0, format!("\ncommunication of rank {first:<10}    count         time      exposed"));
            let waited = self.timeline.waited(class).into_iter();
            let mut waited = waited.filter(|it| it.seconds > WORTH * self.timeline.seconds).peekable();
            if waited.peek().is_some() {
                lines.push(format!("\ncomputing of rank {first} waits for {:>18} {:>12}", "count", "time"));
                lines.extend(waited.map(|it| waited_line(&it)));
            }
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
            "{name:<14} {:>12} {:>14} {:>12} {:>11} {:>16}",
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

    /// For programs.
    pub fn json(&self) -> Value {
        let Self { planned, cluster, timeline } = self;
        let class = |class: &Class| {
            let mut value = json!({
                "exchanged": exchanged(timeline, class),
                "waited": waited(timeline, class),
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
