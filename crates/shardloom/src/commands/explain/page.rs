//! `explain --html`: a plan as a page for a browser.

use std::path::Path;

use ::export::{Job, Target as Runtime};
use ::plan::json::Content;
use ::plan::{MachineName, Plan, held, strategy};
use cost_models::cluster::Cluster;
use cost_models::quantity;
use cost_models::throughput::Throughput;
use driver::pipeline::{self, Target};
use files::{Failure, written};
use report::page::{self, About};
use report::throughput;
use serde_json::{Value, json};
use simulate::Order;

use super::again::{self, Way};
use crate::arguments::ExplainArguments;
use crate::commands::Context;
use crate::commands::simulate::{Asked, simulated};

/// With how much of what a plan holds it is planned again (parts).
const LIMITS: [f64; 5] = [0.5, 0.65, 0.8, 0.92, 1.25];

/// How long a file for another runtime may be that stands in a page (bytes).
const LONGEST: usize = 200_000;

/// What a page is made of.
struct Explained<'a> {
    content: &'a Content,
    /// The machine, or why it is not known.
    cluster: Result<Cluster, String>,
}

/// Writes the page of a plan, of which `explain` says this.
pub(super) fn write(
    path: &Path,
    content: &Content,
    said: &Value,
    arguments: &ExplainArguments,
    context: &Context<'_, '_>,
) -> Result<(), Failure> {
    let about = About::of(content, &|plan| {
        let prepared = driver::derived::prepared(&arguments.plan, plan).ok().flatten();
        prepared?.1
    });
    let given = files::machine::given(about.machine, arguments.machine.as_deref(), &arguments.set.settings);
    let cluster = files::machine::priced_as(about.machine, given.as_deref());
    let cluster = cluster.map_err(|failure| failure.to_string());
    let explained = Explained { content, cluster };
    let on = explained.cluster.as_ref().ok();
    let throughput = match content {
        Content::Plan(plan) => throughput::of_plan(plan, plan.seconds(), on),
        Content::Pipeline(pipeline) => throughput::of_pipeline(pipeline, pipeline.seconds(), on),
        Content::Generation(generation) => throughput::of_plan(&generation.decode, about.seconds, on),
    };
    let (timeline, why) = match timeline(&explained, &about, arguments, context) {
        Ok(timeline) => (timeline, String::new()),
        Err(why) => (Value::Null, format!("Not simulated: {why}")),
    };
    let file = arguments.machine.as_deref().filter(|it| files::machine::is_file(it));
    // A machine that is not known has no name that a command could have.
    // Where nobody says how much, a plan leaves what is usual.
    let usual = on.and_then(Cluster::single).map(|it| it.clone().leaving(None));
    let usable = usual.map(|it| it.usable_memory().0);
    let ways = if on.is_some() { again::ways(content, file, usable) } else { Vec::new() };
    let limits = match content {
        // Each is a search.
        Content::Plan(plan) if arguments.alternatives => {
            limits(plan, &explained, ways.first(), (arguments, context))?
        }
        _ => Vec::new(),
    };
    // Of generation a pin is of both steps.
    let way = ways.first().filter(|_| matches!(content, Content::Plan(_)));
    let command = |it: &Value| {
        let pins: Vec<String> = it["pins"].as_array().into_iter().flatten().map(text).collect();
        json!(way.filter(|_| !pins.is_empty()).map(|it| it.with_pins(&pins)))
    };
    let mut alternatives = Vec::new();
    for (program, _) in &about.programs {
        let own = listed(said, &program.name, "alternatives");
        alternatives.extend(own.into_iter().map(|mut it| {
            it["program"] = json!(program.name);
            it["command"] = command(&it);
            it
        }));
    }
    let mut otherwise = listed(said, "decode", "otherwise");
    otherwise.iter_mut().for_each(|it| it["command"] = command(it));
    let page = json!({
        "title": about.title,
        "path": arguments.plan.display().to_string(),
        "facts": about.facts,
        "seconds": about.seconds,
        "proof": about.proof,
        "lower_bound": about.lower_bound,
        "simulated": if timeline.is_null() { Value::Null } else { timeline["seconds"].clone() },
        "why_no_timeline": why,
        "timeline": timeline,
        "speed": throughput.as_ref().map(Throughput::json),
        "terms": about.terms,
        "hidden_seconds": about.hidden,
        "programs": page::programs(&about.programs),
        "memory": about.memory(said),
        "machine": machine(about.machine, on),
        "limits": limits,
        "otherwise": otherwise,
        "alternatives": alternatives,
        "exports": exports(&explained),
        "again": ways.iter().map(Way::json).collect::<Vec<_>>(),
        "commands": commands(&arguments.plan),
    });
    written::write(path, page::page(&about.title, &page).as_bytes())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A list of what `explain` says of a program by its name: of generation, each has its own.
fn listed(said: &Value, program: &str, key: &str) -> Vec<Value> {
    let own = said.get(program).unwrap_or(said);
    own[key].as_array().cloned().unwrap_or_default()
}

/// What ranks do when, by the clock of the machine; of generation, in the step of a token.
fn timeline(
    explained: &Explained<'_>,
    about: &About<'_>,
    arguments: &ExplainArguments,
    context: &Context<'_, '_>,
) -> Result<Value, String> {
    explained.cluster.as_ref().map_err(Clone::clone)?;
    let (machine, settings) = (arguments.machine.as_deref(), &arguments.set.settings[..]);
    let asked = Asked { plan: &arguments.plan, machine, settings, order: Order::Streams };
    let mut value = Value::Null;
    let simulated =
        simulated(explained.content, &asked, &|words| context.progress.say(words), &mut |name, it| {
            if name != "prefill" {
                value = page::timeline(it.timeline, &about.ranks());
                value["seconds"] = json!(it.timeline.seconds);
            }
            Ok(())
        });
    simulated.map(|()| value).map_err(|failure| failure.to_string())
}

/// The same model on the same mesh with other memory.
fn limits(
    plan: &Plan,
    explained: &Explained<'_>,
    again: Option<&Way>,
    (arguments, context): (&ExplainArguments, &Context<'_, '_>),
) -> Result<Vec<Value>, Failure> {
    let Some(prepared) = driver::derived::open(&arguments.plan, plan)? else { return Ok(Vec::new()) };
    let Some(machine) = explained.cluster.as_ref().ok().and_then(|it| it.single()) else {
        return Ok(Vec::new());
    };
    let fixed = plan.pins.iter().map(|pin| search::Fixed::of(pin, &plan.mesh)).collect();
    let prepared = pipeline::Prepared { fixed, ..prepared };
    let before = held(&plan.memory);
    let one = |part: f64| {
        let capacity = quantity::whole_bytes(part * cost_models::units::exact(before)).0;
        context.progress.say(format!("planning with {}", quantity::bytes(capacity)));
        let target = Target { capacity, ..Target::of(machine, &plan.mesh) };
        let command = again.map(|it| it.with_memory(capacity));
        Ok(match pipeline::plan(&prepared, &plan.model, &target, &mut |_, _| {}) {
            Ok(made) => json!({
                "capacity": capacity,
                "command": command,
                "bytes": held(&made.memory),
                "seconds": made.seconds(),
                "strategy": strategy(&made),
            }),
            Err(failure @ (Failure::Usage(_) | Failure::Internal(_))) => return Err(failure),
            Err(failure) => {
                json!({ "capacity": capacity, "command": command, "impossible": failure.to_string() })
            }
        })
    };
    LIMITS.into_iter().map(one).collect()
}

/// What the page says of the machine: of one that is not known only how many devices it has.
fn machine(named: &MachineName, cluster: Option<&Cluster>) -> Value {
    let per_node = cluster.map_or(named.devices.min(8), Cluster::devices_per_node);
    json!({
        "name": named.name,
        "devices": named.devices,
        "devices_per_node": per_node.clamp(1, named.devices.max(1)),
    })
}

/// The plan in the words of each runtime that runs it.
fn exports(explained: &Explained<'_>) -> Vec<Value> {
    let job = match explained.content {
        Content::Plan(plan) => Job::of_plan(plan),
        Content::Pipeline(pipeline) => Job::of_pipeline(pipeline),
        Content::Generation(generation) => Job::of_generation(generation),
    };
    let job = job.on(explained.cluster.as_ref().ok().and_then(crate::commands::export::device));
    let one = |target: Runtime| {
        let exported = ::export::export(&job, target).ok()?;
        let short = exported.files.iter().filter(|it| it.text.len() <= LONGEST);
        Some(json!({
            "target": target.name(),
            "title": target.title(),
            "runs": exported.runs.in_words(),
            "lost": exported.lost,
            "files": short.map(|it| json!({ "name": it.name, "text": it.text })).collect::<Vec<_>>(),
        }))
    };
    Runtime::ALL.into_iter().filter_map(one).collect()
}

/// What can be done next.
fn commands(path: &Path) -> Value {
    let plan = path.display();
    json!({
        "explain": format!("shardloom explain {plan}"),
        "simulate": format!("shardloom simulate {plan} --trace trace.json"),
        "check": format!("shardloom check {plan}"),
        "alternatives": format!("shardloom explain {plan} --alternatives --html page.html"),
    })
}
