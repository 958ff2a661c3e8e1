//! `run`: a model or a plan to its outputs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use calibrate::kept::{self, Kept};
use cost_models::quantity;
use driver::compile::{self, Chosen};
use driver::expected::{self, Compared, Expected};
use driver::pipeline::{self, Stage};
use files::Failure;
use files::given::{self, Given};
use files::model_file::ModelFile;
use files::readable::hexadecimal;
use files::{arrays, inputs, machine, plan_file, written};
use launch::arguments::RunDevice;
use launch::cluster::{self, Facts};
use launch::gpu;
use report::summary::{summary, summary_json, untimed};
use report::throughput;

use ::plan::{Control, Plan};
use kernels::Array;
use lower::Program;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Context, Said, stopped};
use crate::arguments::{Ranks, RunArguments};

/// What is run on what.
struct Job {
    chosen: Chosen,
    file: ModelFile,
    given: Option<Given>,
    /// The prices that nobody asked for, if it is planned by such.
    prices: Option<Kept>,
}

/// How long steps are repeated of which nobody has said how many, and how often at most.
const MOMENT: Duration = Duration::from_millis(200);
const MOST: u32 = 20;

/// Runs a model or a plan.
pub(crate) fn run(arguments: &RunArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let ready = ready(arguments, context);
    let agreed = context.agree(ready, |ready| match ready {
        Ready::Stop(_) => (None, Vec::new()),
        Ready::Go { programs, facts, .. } => (u64::try_from(programs.len()).ok(), facts.clone()),
    });
    let (job, inputs, expected, programs) = match agreed? {
        Ready::Go { job, inputs, expected, programs, .. } => (job, inputs, expected, programs),
        Ready::Stop(stage) => return Ok(stopped(stage)),
    };
    let plan = &job.chosen.plan;
    context.progress.say("reading weights");
    let failed = |error: run::RunError| Failure::of_run("run", &job.file.path, &error);
    let mut session = gpu::session(&arguments.on, context.cluster, context.progress, programs, &job.file)
        .map_err(failed)?;
    context.progress.say(format!("running on {} ranks", plan.mesh.devices()));
    let (start, mut steps) = (Instant::now(), 1);
    let mut outcome = session.step(&inputs).map_err(failed)?;
    let goes_on = |steps| match (arguments.steps, context.cluster) {
        (Some(number), _) => steps < number,
        // Processes repeat a step alike.
        (None, Some(_)) => false,
        (None, None) => steps < MOST && start.elapsed() < MOMENT,
    };
    while goes_on(steps) {
        steps += 1;
        let next = session.step(&inputs).map_err(failed)?;
        if next.seconds < outcome.seconds {
            outcome = next;
        }
    }
    if !context.leads() {
        return Ok(Said { text: String::new(), json: Value::Null });
    }
    if let Some(path) = &arguments.output {
        arrays::write(path, &outcome.outputs)?;
    }
    let compared = expected::compared(&job.chosen.plan.graph, &expected, &outcome.outputs);
    let said = said(arguments, &job, (&outcome, steps), &compared);
    match compared.iter().find_map(Compared::complaint) {
        None => Ok(said),
        Some(complaint) => {
            // What was found is of most use where it is not what was expected.
            context.lines.print(&said);
            let path = arguments.bound.inputs.as_deref().unwrap_or(&arguments.file);
            Err(Failure::file(path, complaint))
        }
    }
}

/// What is ready to run, or where it stops.
enum Ready {
    Go {
        job: Box<Job>,
        inputs: BTreeMap<String, Array>,
        expected: Vec<Expected>,
        programs: Vec<Program>,
        /// What all ranks have to do alike.
        facts: Facts,
    },
    Stop(Stage),
}

/// Everything before a rank starts.
fn ready(arguments: &RunArguments, context: &mut Context<'_, '_>) -> Result<Ready, Failure> {
    gpu::expect(&arguments.on, context.cluster)?;
    if let Some(output) = &arguments.output {
        arrays::check_name(output)?;
        let read = arguments.bound.inputs.as_deref().into_iter().chain([arguments.file.as_path()]);
        written::differs(output, &read.collect::<Vec<_>>())?;
        if context.leads() && context.stages.last().is_none() {
            written::possible(output)?;
        }
    }
    let is_plan = arguments.file.extension().is_some_and(|it| it == "json");
    let job = if is_plan { of_plan(arguments, context) } else { of_model(arguments, context) };
    let job = match job? {
        Next::Go(job) => job,
        Next::Stop(stage) => return Ok(Ready::Stop(stage)),
    };
    let leads = context.leads();
    let stages = &mut *context.stages;
    if stages.stops_after(Stage::Plan) {
        return Ok(Ready::Stop(Stage::Plan));
    }
    let plan = &job.chosen.plan;
    let inputs = inputs_of(plan, &job, arguments)?;
    let expected = expected::read(&plan.graph, job.given.as_ref().filter(|_| leads))?;
    context.progress.say("lowering");
    let programs = pipeline::lower(plan, &mut |stage, made| stages.observe(stage, made))?;
    if stages.stops_after(Stage::Lower) {
        return Ok(Ready::Stop(Stage::Lower));
    }
    let facts = context.cluster.map_or(Ok(Vec::new()), |_| facts(arguments, &job, &inputs))?;
    Ok(Ready::Go { job, inputs, expected, programs, facts })
}

/// What all ranks have to do alike.
fn facts(arguments: &RunArguments, job: &Job, inputs: &BTreeMap<String, Array>) -> Result<Facts, Failure> {
    let plan = hexadecimal(Sha256::digest(::plan::json::write(&job.chosen.plan)));
    let mut given = Sha256::new();
    for (name, array) in inputs {
        given.update(format!("{name} {}\n", array.type_()));
        given.update(array.bytes());
    }
    let facts = cluster::facts([
        ("the plan", format!("{} (SHA-256 {plan:.12}..)", arguments.file.display())),
        ("the inputs", format!("SHA-256 {}", hexadecimal(given.finalize()))),
        ("the number of steps", arguments.steps.unwrap_or(1).to_string()),
    ]);
    Ok([facts, job.file.prints()?].concat())
}

/// What comes after a plan is there, or not.
enum Next {
    Go(Box<Job>),
    Stop(Stage),
}

fn of_model(arguments: &RunArguments, context: &mut Context<'_, '_>) -> Result<Next, Failure> {
    let devices = match (arguments.ranks, &arguments.target.mesh) {
        (Some(Ranks::Number(number)), _) => number,
        (None, Some(mesh)) => mesh.devices(),
        _ => return Err(Failure::Usage("running a model takes a number of ranks: `--ranks 4`".to_owned())),
    };
    let progress = context.progress;
    let stages = &mut *context.stages;
    let mut observe = |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
    let model = (arguments.file.as_path(), compile::Use::Forward);
    let imported = compile::imported(model, &arguments.bound.bound(), None, &mut observe, progress)?;
    imported.file.expect_weights()?;
    if context.stages.stops_after(Stage::Import) {
        return Ok(Next::Stop(Stage::Import));
    }
    let prices = own_prices(arguments, context);
    let own = prices.as_ref().map(|it| it.path.display().to_string());
    let name = arguments.machine.as_deref().or(own.as_deref()).unwrap_or(SHIPPED);
    let name = &arguments.target.set.of(name);
    let machine = machine::one(name, &arguments.target.on(machine::cluster(name, Some(devices))?))?;
    progress.say("naming operations");
    let stages = &mut *context.stages;
    let prepared = pipeline::prepare(&imported.graph, &mut |stage, made| stages.observe(stage, made))?;
    if stages.stops_after(Stage::Raise) {
        return Ok(Next::Stop(Stage::Raise));
    }
    let mut observe = |stage, made: &dyn std::fmt::Display| stages.observe(stage, made);
    let chosen =
        compile::planned(&prepared, &imported, &machine, &arguments.target.wanted(), &mut observe, progress)?;
    let compile::Imported { file, given, warnings, .. } = imported;
    warnings.iter().for_each(|it| context.warn(it));
    Ok(Next::Go(Box::new(Job { chosen, file, given, prices })))
}

/// The machine whose prices are those of another host.
const SHIPPED: &str = "cpu-1x";

/// The prices of this host, where its threads are the ranks and nobody has named others: nothing, and why, where they
/// can be neither had nor kept.
fn own_prices(arguments: &RunArguments, context: &Context<'_, '_>) -> Option<Kept> {
    if arguments.machine.is_some() || arguments.on.device != RunDevice::Cpu || context.cluster.is_some() {
        return None;
    }
    let version = env!("CARGO_PKG_VERSION");
    match kept::kept(&gpu::own_cache()?, version, &|what| context.progress.say(what)) {
        Ok(kept) => Some(kept),
        Err(failure) => {
            context.warn(&format!("prices of this host are not there: {failure}"));
            None
        }
    }
}

fn of_plan(arguments: &RunArguments, context: &mut Context<'_, '_>) -> Result<Next, Failure> {
    let path = &arguments.file;
    context.progress.say(format!("reading {}", path.display()));
    let plan = plan_file::read_checked(path)?;
    if plan.recipe.is_some() {
        let message = format!("this plan trains: `shardloom train {} --data FILE --steps N`", path.display());
        return Err(Failure::Usage(message));
    }
    let devices = plan.mesh.devices();
    if let Some(Ranks::Number(number)) = arguments.ranks
        && number != devices
    {
        let message =
            format!("{number} ranks, but the plan is for {devices}; leave `--ranks` out, or plan again");
        return Err(Failure::Usage(message));
    }
    let file = plan_file::model(path, &plan, arguments.model.as_deref())?;
    file.expect_weights()?;
    let given = arguments.bound.inputs.as_deref().map(given::read).transpose()?;
    context.stages.observe(Stage::Plan, &::plan::json::write(&plan));
    Ok(Next::Go(Box::new(Job { chosen: Chosen { plan, tried: Vec::new() }, file, given, prices: None })))
}

fn inputs_of(plan: &Plan, job: &Job, arguments: &RunArguments) -> Result<BTreeMap<String, Array>, Failure> {
    let Some(given) = &job.given else {
        return Ok(inputs::made(&plan.graph, arguments.seed));
    };
    // Inputs that decide control flow are constants of the plan, and some are of no use.
    let ignored: Vec<&str> = job.file.model.inputs().iter().map(|input| input.name.as_str()).collect();
    given.fitting(&plan.graph, &plan.controls, &ignored)
}

fn said(
    arguments: &RunArguments,
    job: &Job,
    (outcome, steps): (&run::Outcome, u32),
    compared: &[Compared],
) -> Said {
    let plan = &job.chosen.plan;
    let received: u64 = outcome.received.iter().map(|(_, bytes)| bytes).sum();
    let predicted: u64 = ::plan::communication(plan).iter().map(|it| it.bytes).sum();
    let on = machine::priced_as(&plan.machine, None).ok();
    let throughput = throughput::of_plan(plan, plan.seconds(), on.as_ref());
    let elsewhere = machine::calibrate_first(&plan.machine);
    let tried = job.chosen.seconds();
    let mut text = match elsewhere {
        Some(why) => untimed(plan, &tried, why),
        None => summary(plan, &tried, &[], throughput.as_ref()),
    };
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    if let Some(Kept { path, seconds }) = &job.prices {
        let when = seconds.map_or_else(|| "before".to_owned(), |it| format!("in {it:.1} s and kept"));
        line(format!("prices     of this host, measured {when}: {}", path.display()));
    }
    for Control { name, value, .. } in &plan.controls {
        line(format!(
            "control    `{name}` decides what is computed; its value, {value}, is part of the plan"
        ));
    }
    let steps = if steps == 1 { "one step".to_owned() } else { format!("shortest of {steps} steps") };
    let beside = match elsewhere {
        Some(_) => String::new(),
        None => format!(", {} predicted", quantity::seconds(plan.seconds())),
    };
    line(format!("measured   {} ({steps}){beside}", quantity::seconds(outcome.seconds)));
    line(format!(
        "received   {} by all ranks, {} predicted",
        quantity::bytes(received),
        quantity::bytes(predicted)
    ));
    if job.given.is_none() {
        line(format!("inputs     made from seed {}", arguments.seed));
    }
    let output = arguments.output.as_deref();
    let place = output.map_or("not written: `-o FILE` does".into(), Path::to_string_lossy);
    line(format!("outputs    {place}"));
    for (name, array) in &outcome.outputs {
        let renamed = output.and_then(|it| arrays::renamed(it, name));
        let as_ = renamed.map_or(String::new(), |it| format!(", as `{it}`"));
        line(format!("  {name} {}{as_}", array.type_()));
    }
    compared.iter().for_each(|it| line(format!("expected   {it}")));
    let outputs: serde_json::Map<String, Value> = outcome
        .outputs
        .iter()
        .map(|(name, it)| (name.clone(), json!({ "dtype": it.dtype().name(), "shape": it.shape() })))
        .collect();
    let expected: serde_json::Map<String, Value> = compared
        .iter()
        .map(|it| (it.name.clone(), json!({ "largest_difference": it.found.map(|it| it.apart) })))
        .collect();
    let json = json!({
        "plan": summary_json(plan, throughput.as_ref()),
        "machine_file": job.prices.as_ref().map(|it| it.path.display().to_string()),
        "measured_seconds": outcome.seconds,
        "received_bytes": received,
        "output": output.map(|it| it.display().to_string()),
        "outputs": outputs,
        "expected": expected,
    });
    Said { text, json }
}
