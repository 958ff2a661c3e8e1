//! `explain --html`: a plan as a page for a browser.

use std::path::Path;

use ::export::{Job, Target as Runtime};
use ::plan::json::Content;
use ::plan::{Holding, MachineName, Pipeline, Plan, Proof, strategy};
use autoparallel::mesh;
use cost_models::cluster::Cluster;
use cost_models::quantity::{self, counted};
use cost_models::throughput::Throughput;
use driver::pipeline::{self, Target};
use files::{Failure, written};
use report::page::{self, Program, Ranks};
use report::summary::proof;
use report::throughput;
use search::Section;
use serde_json::{Value, json};
use simulate::Order;

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
    let about = About::of(content, &arguments.plan);
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
    let limits = match content {
        // Each is a search.
        Content::Plan(plan) if arguments.alternatives => limits(plan, &explained, arguments, context)?,
        _ => Vec::new(),
    };
    let mut alternatives = Vec::new();
    for (program, _) in &about.programs {
        let own = listed(said, &program.name, "alternatives");
        alternatives.extend(own.into_iter().map(|mut it| {
            it["program"] = json!(program.name);
            it
        }));
    }
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
        "otherwise": listed(said, "decode", "otherwise"),
        "alternatives": alternatives,
        "exports": exports(&explained),
        "commands": commands(&arguments.plan, &about),
    });
    written::write(path, page::page(&about.title, &page).as_bytes())
}

/// A plan, a pipeline or plans of generation, as a page has them.
struct About<'a> {
    content: &'a Content,
    title: String,
    facts: Vec<(&'static str, String)>,
    machine: &'a MachineName,
    seconds: f64,
    proof: String,
    lower_bound: Option<f64>,
    terms: Vec<Value>,
    hidden: f64,
    programs: Vec<(Program<'a>, Vec<Section>)>,
}

impl<'a> About<'a> {
    fn of(content: &'a Content, path: &Path) -> Self {
        match content {
            Content::Plan(plan) => Self::of_plan(content, plan, Program::of_plan(plan), path),
            Content::Pipeline(pipeline) => Self::of_pipeline(content, pipeline),
            Content::Generation(generation) => {
                let about =
                    Self::of_plan(content, &generation.decode, Program::of_generation(generation), path);
                let each = generation.plans().map(|(name, plan)| {
                    (name, format!("{}, {}", quantity::seconds(plan.seconds()), proof(plan)))
                });
                Self { facts: about.facts.into_iter().chain(each).collect(), ..about }
            }
        }
    }

    /// Of generation, that of a token.
    fn of_plan(content: &'a Content, plan: &'a Plan, programs: Vec<Program<'a>>, path: &Path) -> Self {
        let cut = |it: Program<'a>| {
            let prepared = driver::derived::prepared(path, it.plan).ok().flatten();
            let sections = prepared.filter(|prepared| prepared.graph == it.plan.graph).map(|it| it.sections);
            let sections = sections.unwrap_or_else(|| vec![Section::whole(&it.plan.graph)]);
            (it, sections)
        };
        Self {
            content,
            title: format!("{} on {}", plan.model.path, plan.machine.name),
            facts: vec![
                ("model", model(&plan.model)),
                (
                    "machine",
                    format!("{}, mesh {} ({})", plan.machine.name, mesh::sizes(&plan.mesh), plan.mesh),
                ),
                ("strategy", strategy(plan).join("; ")),
            ],
            machine: &plan.machine,
            seconds: plan.seconds(),
            proof: proof(plan),
            lower_bound: match plan.proof {
                Proof::Optimal => Some(plan.seconds()),
                Proof::Gap { lower_bound } => Some(lower_bound),
            },
            terms: terms(&plan.estimate),
            hidden: plan.hidden_seconds(),
            programs: programs.into_iter().map(cut).collect(),
        }
    }

    fn of_pipeline(content: &'a Content, pipeline: &'a Pipeline) -> Self {
        let first = pipeline.stages.first().map(|stage| &stage.plan.model);
        let layout = format!(
            "{}, {} in {}, {} of {}",
            pipeline.machine.name,
            counted(pipeline.stages.len(), "stage"),
            counted(pipeline.schedule.groups.len(), "group"),
            counted(pipeline.micro_batches(), "micro-batch"),
            pipeline::staged::kind(pipeline).map_or("a schedule of its own", schedule::Kind::name),
        );
        // Of stages that are said nothing is proven of others.
        let lower_bound = match pipeline.proof {
            Proof::Optimal => Some(pipeline.seconds()),
            Proof::Gap { lower_bound } => Some(lower_bound).filter(|it| *it > 0.0),
        };
        let proof = lower_bound.map_or_else(String::new, |bound| {
            match quantity::gap(pipeline.seconds() / bound - 1.0) {
                Some(gap) => {
                    format!("at most {gap} above a proven bound, {}", quantity::seconds(bound))
                }
                None => "no setup is faster".to_owned(),
            }
        });
        let cut = |it: Program<'a>| {
            let sections = pipeline::cut(&it.plan.graph).sections;
            (it, sections)
        };
        Self {
            content,
            title: format!("{} on {}", first.map_or("", |it| &it.path), pipeline.machine.name),
            facts: vec![("model", first.map(model).unwrap_or_default()), ("machine", layout)],
            machine: &pipeline.machine,
            seconds: pipeline.seconds(),
            proof,
            lower_bound,
            terms: terms(&pipeline.estimate),
            hidden: 0.0,
            programs: Program::of_pipeline(pipeline).into_iter().map(cut).collect(),
        }
    }

    /// What devices hold: all of a plan alike, those of a pipeline's groups.
    fn memory(&self, said: &Value) -> Vec<Value> {
        match self.content {
            Content::Plan(plan) => page::groups(&[of_plan(plan)]),
            Content::Generation(generation) => {
                // Both steps are there at once; their kinds are told of the one that is larger.
                let fullest = generation.plans().map(|(_, plan)| plan).max_by_key(|plan| bytes(plan));
                let fullest = fullest.unwrap_or(&generation.decode);
                let beside = said["held_bytes"].as_u64().unwrap_or(0).saturating_sub(bytes(fullest));
                let mut holdings = fullest.memory.clone();
                holdings.push(Holding { kind: "the other step".to_owned(), bytes: beside });
                page::groups(&[(0, fullest.mesh.devices(), &holdings, fullest.capacity)])
            }
            Content::Pipeline(pipeline) => {
                let of = |(group, holdings): (usize, &'a Vec<Holding>)| {
                    let own = pipeline.stages.iter().enumerate();
                    let mut own = own.filter(|(number, _)| pipeline.group(*number) == group);
                    let stage = own.next().map(|it| it.1);
                    let (first, devices) =
                        stage.map_or((0, 0), |it| (it.first_device, it.plan.mesh.devices()));
                    (first, devices, &holdings[..], pipeline.capacity_of(group))
                };
                page::groups(&pipeline.memory.iter().enumerate().map(of).collect::<Vec<_>>())
            }
        }
    }

    /// How the ranks of its programs lie.
    fn ranks(&self) -> Vec<Ranks<'a>> {
        match self.content {
            Content::Plan(plan) => vec![Ranks { first: 0, mesh: &plan.mesh, stage: 0 }],
            Content::Generation(it) => vec![Ranks { first: 0, mesh: &it.decode.mesh, stage: 0 }],
            Content::Pipeline(pipeline) => {
                let of = |(stage, it): (usize, &'a ::plan::Stage)| Ranks {
                    first: it.first_device,
                    mesh: &it.plan.mesh,
                    stage,
                };
                pipeline.stages.iter().enumerate().map(of).collect()
            }
        }
    }
}

fn of_plan(plan: &Plan) -> (u64, u64, &[Holding], u64) {
    (0, plan.mesh.devices(), &plan.memory, plan.capacity)
}

fn model(model: &::plan::ModelFile) -> String {
    let dims: Vec<String> = model.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    format!("{} {}", model.path, dims.join(", ")).trim_end().to_owned()
}

fn terms(all: &[::plan::Term]) -> Vec<Value> {
    all.iter().map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect()
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
    arguments: &ExplainArguments,
    context: &Context<'_, '_>,
) -> Result<Vec<Value>, Failure> {
    let Some(prepared) = driver::derived::open(&arguments.plan, plan)? else { return Ok(Vec::new()) };
    let Some(machine) = explained.cluster.as_ref().ok().and_then(|it| it.single()) else {
        return Ok(Vec::new());
    };
    let fixed = plan.pins.iter().map(|pin| search::Fixed::of(pin, &plan.mesh)).collect();
    let prepared = pipeline::Prepared { fixed, ..prepared };
    let held = bytes(plan);
    let one = |part: f64| {
        let capacity = quantity::whole_bytes(part * cost_models::units::exact(held)).0;
        context.progress.say(format!("planning with {}", quantity::bytes(capacity)));
        let target = Target { capacity, ..Target::of(machine, &plan.mesh) };
        Ok(match pipeline::plan(&prepared, &plan.model, &target, &mut |_, _| {}) {
            Ok(made) => json!({
                "capacity": capacity,
                "bytes": bytes(&made),
                "seconds": made.seconds(),
                "strategy": strategy(&made),
            }),
            Err(failure @ (Failure::Usage(_) | Failure::Internal(_))) => return Err(failure),
            Err(failure) => json!({ "capacity": capacity, "impossible": failure.to_string() }),
        })
    };
    LIMITS.into_iter().map(one).collect()
}

fn bytes(plan: &Plan) -> u64 {
    plan.memory.iter().map(|it| it.bytes).sum()
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
fn commands(path: &Path, about: &About<'_>) -> Value {
    let plan = path.display();
    let memory = match about.content {
        Content::Pipeline(_) => {
            format!(
                "shardloom sweep MODEL --machine {} --over memory=40GiB,60GiB --global-batch N",
                about.machine.name
            )
        }
        Content::Plan(_) => format!("shardloom explain {plan} --alternatives --html page.html"),
        Content::Generation(_) => {
            format!("shardloom plan MODEL --machine {} --memory 40GiB", about.machine.name)
        }
    };
    json!({
        "explain": format!("shardloom explain {plan}"),
        "simulate": format!("shardloom simulate {plan} --trace trace.json"),
        "check": format!("shardloom check {plan}"),
        "memory": memory,
    })
}
