//! `bench simulate`: how fast plans are simulated.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ::plan::json::Content;
use autoparallel::mesh;
use calibrate::host;
use clap::Args;
use cost_models::quantity;
use driver::pipeline;
use files::{Failure, Say};
use files::{machine, plan_file};
use serde_json::{Value, json};
use simulate::{Order, SimulateError, Timeline};

use super::Report;

/// `bench simulate`.
#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// The plans and pipelines (.json), for machines that come with the program
    #[arg(required = true)]
    pub plans: Vec<PathBuf>,
    /// Number of simulations of each plan; the mean is reported
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub rounds: u32,
    /// Append what is measured to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// Simulates plans, and says what it took.
pub(crate) fn measure(options: &Simulate, say: &Say<'_>) -> Result<Report, Failure> {
    let mut text = String::new();
    let mut lines = Vec::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "| plan | machine | ranks, kinds | instructions run | read | lower | simulate | per second | step |"
    );
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|---|");
    for path in &options.plans {
        say(path.display().to_string().into());
        let line = of_plan(path, options)?;
        let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
        let _ = writeln!(
            text,
            "| {} | {} | {}, {} | {} | {} | {} | {} | {:.2} million | {} |",
            path.display(),
            line["machine"].as_str().unwrap_or(""),
            line["ranks"],
            line["kinds_of_ranks"],
            line["instructions"],
            quantity::seconds(number("read_seconds")),
            quantity::seconds(number("lower_seconds")),
            quantity::seconds(number("simulate_seconds")),
            number("instructions_per_second") / 1e6,
            quantity::seconds(number("step_seconds")),
        );
        lines.push(line);
    }
    Ok(Report { text, lines })
}

fn of_plan(path: &Path, options: &Simulate) -> Result<Value, Failure> {
    let (content, read) = timed(|| plan_file::read_any_checked(path));
    match content? {
        Content::Plan(plan) => {
            let machine = machine::named(&plan.machine.name, None)?;
            let (alike, lower) = timed(|| pipeline::alike(&plan));
            let alike = alike?;
            let once = || simulate::simulate(&alike, &machine, Order::Streams);
            let plan = json!({
                "model": plan.model.path,
                "machine": plan.machine.name,
                "mesh": mesh::sizes(&plan.mesh),
                "ranks": plan.mesh.devices(),
            });
            simulated(plan, (path, read, lower), &once, options)
        }
        Content::Pipeline(staged) => {
            let cluster = machine::cluster(&staged.machine.name, None)?;
            let (groups, lower) = by_one(|| timed(|| lower::grouped(&staged)))?;
            let groups = groups.map_err(|error| Failure::internal("lower", error))?;
            let once = || simulate::simulate_grouped(&groups, &cluster, Order::Streams);
            let mut sizes: Vec<String> = staged.stages.iter().map(|it| mesh::sizes(&it.plan.mesh)).collect();
            sizes.dedup();
            let pipeline = json!({
                "model": staged.stages.first().map(|it| &it.plan.model.path),
                "machine": staged.machine.name,
                "mesh": sizes.join(", "),
                "stages": staged.stages.len(),
                "micro_batches": staged.micro_batches(),
                "ranks": staged.devices(),
            });
            simulated(pipeline, (path, read, lower), &once, options)
        }
        Content::Generation(_) => Err(Failure::file(
            path,
            "is a plan of generation, expected one of a single program, or a pipeline",
        )),
    }
}

/// What it takes to simulate once, beside what is known of a plan or pipeline, its file, and what it took to read
/// and to lower it (seconds).
fn simulated<'a>(
    mut line: Value,
    (path, read, lower): (&Path, f64, f64),
    once: &dyn Fn() -> Result<Timeline<'a>, SimulateError>,
    options: &Simulate,
) -> Result<Value, Failure> {
    let timeline = once().map_err(|error| Failure::internal("simulate", error))?;
    let ((), all) = timed(|| {
        for _ in 0..options.rounds {
            std::hint::black_box(once().is_ok());
        }
    });
    let seconds = all / f64::from(options.rounds);
    // What the clock ran: of ranks that do the same, one.
    let ran: usize = timeline.classes.iter().map(|class| timeline.spans(class).count()).sum();
    let per_second = f64::from(u32::try_from(ran).unwrap_or(u32::MAX)) / seconds;
    line["benchmark"] = json!("simulate");
    line["plan"] = json!(path.file_name().map(|it| it.display().to_string()));
    line["read_seconds"] = json!(read);
    line["lower_seconds"] = json!(lower);
    line["kinds_of_ranks"] = json!(timeline.classes.len());
    line["instructions"] = json!(ran);
    line["simulate_seconds"] = json!(seconds);
    line["instructions_per_second"] = json!(per_second);
    line["step_seconds"] = json!(timeline.seconds);
    line["rounds"] = json!(options.rounds);
    Ok(line)
}

/// What is made by one thread alone, so that all that it takes is seen.
fn by_one<T: Send>(make: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.map_err(|error| Failure::internal("bench", error))?;
    Ok(pool.install(make))
}

/// What systems count of the time on a processor at least (seconds): a few ticks.
const COUNTED: f64 = 0.02;

/// What is made, and how long that took on the processor; by the wall clock where the system does
/// not say, or counts no times as short (seconds).
fn timed<T>(make: impl FnOnce() -> T) -> (T, f64) {
    let (before, start) = (host::on_processor(), Instant::now());
    let made = make();
    let wall = start.elapsed().as_secs_f64();
    let spent = before.zip(host::on_processor()).map(|(before, after)| after - before);
    (made, spent.filter(|it| *it > COUNTED).unwrap_or(wall))
}
