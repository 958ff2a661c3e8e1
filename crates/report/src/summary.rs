//! What is said of a plan that was made.

pub mod generation; // of plans of generation
pub mod staged; // of a pipeline

use std::fmt::Write as _;

use autoparallel::mesh;
use cost_models::quantity;
use cost_models::throughput::Throughput;
use plan::{Hidden, LeftOut, Plan, Proof, communication, strategy};
use planner_ir::{DType, Mesh, Source, StateKind};
use serde_json::{Value, json};

use crate::{explained, throughput};

/// How many terms of the estimate a summary has.
const TERMS: usize = 5;

/// What a plan comes to, in a few lines: with the meshes that were tried and what a step takes on each (seconds),
/// with the lines about its weights, if it trains them, and with how fast it is.
pub fn summary(
    plan: &Plan,
    tried: &[(Mesh, Option<f64>)],
    weights: &[String],
    throughput: Option<&Throughput>,
) -> String {
    head(plan, &tried.iter().map(on_mesh).collect::<Vec<_>>(), weights)
        + &times(plan, throughput)
        + &room(plan)
}

/// The same without times, and why none are said.
pub fn untimed(plan: &Plan, tried: &[(Mesh, Option<f64>)], why: &str) -> String {
    let tried: Vec<String> = tried.iter().map(|(mesh, _)| mesh::sizes(mesh)).collect();
    head(plan, &tried, &[]) + &format!("step       not predicted: prices were {why}\n") + &room(plan)
}

/// What is planned for what, and how.
fn head(plan: &Plan, tried: &[String], weights: &[String]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    let dims: Vec<String> = plan.model.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
    let dims = if dims.is_empty() { String::new() } else { format!(" with {}", dims.join(", ")) };
    line(format!("model      {}{dims}", plan.model.path));
    line(format!("machine    {}, mesh {} ({})", plan.machine.name, mesh::sizes(&plan.mesh), plan.mesh));
    if tried.len() > 1 {
        line(format!("tried      {}", tried.join(", ")));
    }
    let strategy = strategy(plan);
    if !strategy.is_empty() {
        line(format!("strategy   {}", strategy.join("; ")));
    }
    for pin in explained::pinned(std::iter::once(plan)) {
        line(format!("pinned     {pin}"));
    }
    weights.iter().for_each(|it| line(it.clone()));
    if plan.recipe.is_some() && has_half_parameters(plan) {
        line(
            "note       the model computes in f16, in which small gradients are 0: bf16 has the range of f32, \
             `--precision bf16`"
                .to_owned(),
        );
    }
    text
}

/// What a step takes, and of what that is made.
fn times(plan: &Plan, throughput: Option<&Throughput>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let mut line = |words: String| {
        let _ = writeln!(text, "{words}");
    };
    line(format!("step       {} predicted, {}", quantity::seconds(plan.seconds()), proof(plan)));
    let mut terms: Vec<_> = plan.estimate.iter().collect();
    terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for term in terms.iter().take(TERMS) {
        let part = quantity::percent(term.seconds, plan.seconds());
        line(format!("  {:<18} {:>12} {part:>8}", term.name, quantity::seconds(term.seconds)));
    }
    hidden(plan, 18).into_iter().for_each(&mut line);
    throughput::lines(throughput, 11).into_iter().for_each(&mut line);
    text
}

/// What a device holds, and what ranks exchange.
fn room(plan: &Plan) -> String {
    let (held, capacity) = (quantity::bytes(plan::held(&plan.memory)), quantity::bytes(plan.capacity));
    let mut text = format!("memory     {held} of {capacity} on the fullest device\n");
    for traffic in communication(plan).iter().filter(|it| it.bytes > 0) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "moved      {} x {}, {}",
            traffic.count,
            traffic.name,
            quantity::bytes(traffic.bytes)
        );
    }
    text
}

/// Whether parameters are trained in f16 alone.
fn has_half_parameters(plan: &Plan) -> bool {
    plan.graph.values.iter().any(|value| {
        let parameter = matches!(&value.source, Source::State(state) if state.kind == StateKind::Parameter);
        parameter && value.type_.dtype == DType::F16
    })
}

fn on_mesh((mesh, seconds): &(Mesh, Option<f64>)) -> String {
    let words = seconds.map_or_else(|| "no plan".to_owned(), quantity::seconds);
    format!("{} ({words})", mesh::sizes(mesh))
}

/// What a search did not look at, in words.
pub fn left_out(plan: &Plan) -> String {
    let words = |it: &LeftOut| match it {
        LeftOut::Stripes => "no stripes of sequences",
        LeftOut::Skews => "nothing skewed",
        LeftOut::Steps => "no time steps",
        LeftOut::Splits => "few splits at once",
    };
    plan.space.left_out.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// How good a plan is, in words.
pub fn proof(plan: &Plan) -> String {
    let space = match &left_out(plan)[..] {
        _ if plan.space.saturated => "the space",
        "" => "a part of the space",
        words => &format!("a part of the space ({words})"),
    };
    match plan.proof {
        Proof::Optimal => format!("optimal in {space} by these prices"),
        Proof::Gap { lower_bound } => match quantity::gap(plan.seconds() / lower_bound - 1.0) {
            Some(gap) => format!(
                "at most {gap} above the best in {space} (proven bound {})",
                quantity::seconds(lower_bound)
            ),
            None => format!("optimal in {space} by these prices, within rounding"),
        },
    }
}

/// What is taken off the sum of a plan's terms, in a line under them, which have names of such a width.
pub fn hidden(plan: &Plan, width: usize) -> Option<String> {
    let taken =
        (plan.hidden_seconds() > 0.0).then(|| format!("-{}", quantity::seconds(plan.hidden_seconds())))?;
    let but = match waits(plan) {
        (0, _) => String::new(),
        (count, seconds) => {
            let seconds = quantity::seconds(seconds);
            format!(", but for {count} of its exchanges, {seconds}, for which there is no memory then")
        }
    };
    Some(format!(
        "  {:<width$} {taken:>12}  off the sum: communication that runs beside computing{but}",
        "hidden"
    ))
}

/// How many exchanges wait for lack of memory that might run beside computing, and what they take in a step (seconds).
fn waits(plan: &Plan) -> (usize, f64) {
    let waiting = plan.transfers.iter().filter(|it| it.waits);
    let (count, seconds) = waiting.fold((0, 0.0), |(count, sum), it| (count + 1, sum + it.takes()));
    (count, plan.seconds_of(Hidden { forward: seconds, backward: 0.0 }))
}

/// The same for programs.
pub fn summary_json(plan: &Plan, throughput: Option<&Throughput>) -> Value {
    let terms: Vec<Value> =
        plan.estimate.iter().map(|it| json!({ "name": it.name, "seconds": it.seconds })).collect();
    let memory: Vec<Value> =
        plan.memory.iter().map(|it| json!({ "kind": it.kind, "bytes": it.bytes })).collect();
    let moved: Vec<Value> = communication(plan)
        .iter()
        .map(|it| json!({ "move": it.name, "count": it.count, "bytes": it.bytes }))
        .collect();
    let dims: serde_json::Map<String, Value> =
        plan.model.dims.iter().map(|(name, size)| (name.clone(), json!(size))).collect();
    let mut value = json!({
        "model": { "path": plan.model.path, "sha256": plan.model.sha256, "dims": dims },
        "machine": plan.machine.name,
        "devices": plan.machine.devices,
        "mesh": plan.mesh.to_string(),
        "strategy": strategy(plan),
        "seconds": plan.seconds(),
        "estimate": terms,
        "hidden_seconds": plan.hidden_seconds(),
        "memory": memory,
        "capacity": plan.capacity,
        "communication": moved,
        "proof": proof_json(&plan.proof),
        "space": {
            "unique_blocks": plan.space.unique_blocks,
            "blocks": plan.space.blocks,
            "nodes": plan.space.nodes,
            "classes": plan.space.classes,
            "saturated": plan.space.saturated,
            "left_out": plan.space.left_out.iter().map(|it| it.name()).collect::<Vec<_>>(),
            "choices": plan.space.choices,
        },
    });
    if let (count @ 1.., seconds) = waits(plan) {
        value["waits"] = json!({ "exchanges": count, "seconds": seconds });
    }
    throughput::add(throughput, &mut value);
    value
}

/// What is proven, for programs.
pub(crate) fn proof_json(proof: &Proof) -> Value {
    match proof {
        Proof::Optimal => json!({ "optimal": true }),
        Proof::Gap { lower_bound } => json!({ "optimal": false, "lower_bound": lower_bound }),
    }
}
