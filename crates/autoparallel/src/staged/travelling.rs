//! Stages that stay as they are, by another schedule and with another way to cross.

use cost_models::cluster::Cluster;
use files::Failure;
use plan::Pipeline;
use reshard::Strategy;
use schedule::Kind;

use super::phase::phase;
use super::prices::{Networks, priced, travelling};

/// The same stages by a schedule, with all that crosses travelling by one strategy. What they hold is not
/// looked at.
pub fn travelling_by(
    pipeline: &Pipeline,
    cluster: &Cluster,
    kind: Kind,
    strategy: Strategy,
) -> Result<Pipeline, Failure> {
    let networks = Networks::of(cluster)?;
    let micro_batches = usize::try_from(pipeline.micro_batches()).unwrap_or(usize::MAX);
    let (groups, chunks) = (pipeline.schedule.groups.len(), pipeline.schedule.chunks);
    let schedule = kind.schedule(groups, chunks, micro_batches);
    let schedule = schedule.map_err(|error| Failure::Usage(error.to_string()))?;
    let mut made = Pipeline { schedule, crossings: Vec::new(), ..pipeline.clone() };
    for crossing in &pipeline.crossings {
        let to = crossing.to.iter().map(|arrival| arrival.stage).collect();
        let crossing = train::Crossing { name: crossing.name.clone(), from: crossing.from, to };
        let crossing = travelling(&made, &crossing, &networks, &[strategy])?;
        made.crossings.push(crossing);
    }
    priced(&mut made)?;
    Ok(made)
}

/// What arrives of each micro-batch, at all stages (bytes).
pub fn received(pipeline: &Pipeline) -> u64 {
    let each = pipeline.crossings.iter().filter(|it| phase(pipeline, it).is_some());
    each.flat_map(|it| &it.to).map(|arrival| arrival.bytes).sum()
}
