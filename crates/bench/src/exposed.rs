//! `bench exposed`: how much of what plans exchange nothing is computed beside, with their programs in the
//! order in which they are built and in the one in which they run.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::plan::json::Content;
use ::plan::{Assignment, Plan};
use autoparallel::mesh;
use clap::Args;
use cost_models::machine::Machine;
use cost_models::quantity;
use driver::pipeline;
use files::{Failure, Say};
use files::{machine, plan_file};
use serde_json::{Value, json};
use simulate::Order;

use super::Report;

/// `bench exposed`.
#[derive(Args, Clone, Debug)]
pub struct Exposed {
    /// The plans (.json), each on one mesh, for machines that come with the program
    #[arg(required = true)]
    pub plans: Vec<PathBuf>,
    /// Append what is simulated to this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}

/// Simulates plans, and says what is exposed of what they exchange.
pub(crate) fn measure(options: &Exposed, say: &Say<'_>) -> Result<Report, Failure> {
    let mut text = String::new();
    let mut lines = Vec::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "| plan | machine | order | step | communication | exposed | of that |");
    let _ = writeln!(text, "|---|---|---|---|---|---|---|");
    for path in &options.plans {
        say(path.display().to_string().into());
        let Content::Plan(plan) = plan_file::read_any_checked(path)? else {
            return Err(Failure::file(path, "is a pipeline or of generation, expected a plan on one mesh"));
        };
        let machine = machine::named(&plan.machine.name, None)?;
        for (order, plan) in [("as built", &without_prices(&plan)), ("as run", &plan)] {
            let line = of_plan(path, order, plan, &machine)?;
            let number = |name: &str| line[name].as_f64().unwrap_or(0.0);
            let _ = writeln!(
                text,
                "| {} | {} | {order} | {} | {} | {} | {} |",
                path.display(),
                line["machine"].as_str().unwrap_or(""),
                quantity::seconds(number("step_seconds")),
                quantity::seconds(number("exchanging_seconds")),
                quantity::seconds(number("exposed_seconds")),
                quantity::percent(number("exposed_seconds"), number("exchanging_seconds")),
            );
            lines.push(line);
        }
    }
    Ok(Report { text, lines })
}

/// The plan without what operations and moves take: its programs stay in the order in which they are built.
fn without_prices(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.transfers.iter_mut().for_each(|it| it.seconds.fill(0.0));
    for assignment in &mut plan.assignments {
        if let Assignment::Computed { seconds, .. } = assignment {
            *seconds = 0.0;
        }
    }
    plan
}

fn of_plan(path: &Path, order: &str, plan: &Plan, machine: &Machine) -> Result<Value, Failure> {
    let alike = pipeline::alike(plan)?;
    let timeline = simulate::simulate(&alike, machine, Order::Streams);
    let timeline = timeline.map_err(|error| Failure::internal("simulate", error))?;
    let most = timeline.classes.iter().max_by(|a, b| a.exposed.total_cmp(&b.exposed));
    let class = most.ok_or_else(|| Failure::internal("simulate", "no ranks"))?;
    Ok(json!({
        "benchmark": "exposed",
        "plan": path.file_name().map(|it| it.display().to_string()),
        "model": plan.model.path,
        "dims": plan.model.dims,
        "machine": plan.machine.name,
        "mesh": mesh::sizes(&plan.mesh),
        "strategy": ::plan::strategy(plan),
        "order": order,
        "held_bytes": alike.program.resident + alike.program.arena,
        "step_seconds": timeline.seconds,
        "computing_seconds": class.computing,
        "exchanging_seconds": class.communicating,
        "exposed_seconds": class.exposed,
        "kinds": report::simulated::exchanged(&timeline, class),
    }))
}
