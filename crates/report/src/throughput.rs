//! How fast plans and pipelines are, in the field's numbers.

use std::collections::BTreeSet;

use cost_models::cluster::Cluster;
use cost_models::machine::Machine;
use cost_models::model_flops::StepWork;
use cost_models::throughput::Throughput;
use cost_models::units::Seconds;
use plan::{Pipeline, Plan};

/// What a step of a plan needs.
pub fn work(plan: &Plan) -> StepWork {
    StepWork::of(&plan.graph, &|_| false)
}

/// What a step of a pipeline needs: of all its stages.
pub fn work_of_stages(pipeline: &Pipeline) -> StepWork {
    let mut all = StepWork::default();
    let mut learned: BTreeSet<String> = BTreeSet::new();
    for stage in &pipeline.stages {
        // What a stage gets of one before it has a gradient if it had one there.
        let work = StepWork::of(&stage.plan.graph, &|name| learned.contains(name));
        learned.extend(work.learned);
        all.flops += work.flops;
        all.tokens = all.tokens.max(work.tokens);
    }
    StepWork { learned, ..all }
}

/// How fast a plan is whose step takes so long (seconds); of an unknown machine nothing is said of its peak.
pub fn of_plan(plan: &Plan, seconds: f64, on: Option<&Cluster>) -> Option<Throughput> {
    of(&work(plan), seconds, plan.mesh.devices(), on)
}

/// The same of a pipeline.
pub fn of_pipeline(pipeline: &Pipeline, seconds: f64, on: Option<&Cluster>) -> Option<Throughput> {
    of(&work_of_stages(pipeline), seconds, pipeline.devices(), on)
}

/// How fast a step is that needs so much and takes so long (seconds) on so many devices.
pub fn of(work: &StepWork, seconds: f64, devices: u64, on: Option<&Cluster>) -> Option<Throughput> {
    let kinds = on.map(|it| machines(it, devices)).unwrap_or_default();
    Throughput::of(work, Seconds(seconds), devices, &kinds)
}

/// The machines of a plan on so many devices, and how many are on each.
pub fn machines(cluster: &Cluster, devices: u64) -> Vec<(&Machine, u64)> {
    match cluster.kinds() {
        // A plan on one kind may use a part of it.
        [machine] => vec![(machine, devices)],
        kinds => kinds.iter().map(|it| (it, it.devices())).collect(),
    }
}

/// Lines for people, with what each is about in so many columns; none where nothing is known.
pub fn lines(throughput: Option<&Throughput>, width: usize) -> Vec<String> {
    let lines = throughput.map(Throughput::lines).unwrap_or_default();
    lines.into_iter().map(|(about, words)| format!("{about:<width$}{words}")).collect()
}

/// Adds the same to an object for programs.
pub fn add(throughput: Option<&Throughput>, object: &mut serde_json::Value) {
    for (name, value) in throughput.map(Throughput::json).unwrap_or_default() {
        object[name] = value;
    }
}
