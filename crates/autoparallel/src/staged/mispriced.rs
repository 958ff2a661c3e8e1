//! A pipeline and the prices that it was made by.

use cost_models::cluster::Cluster;
use files::Failure;
use plan::{Arrival, Crossing, Pipeline};
use rayon::prelude::*;
use reshard::Strategy;
use search::time_differs;

use super::placed;
use super::prices::{Networks, priced, travelling};
use crate::target::{Target, prices};

/// The first thing that a pipeline says otherwise than the prices of a machine make it, in words: the times of
/// each stage's plan, what crosses, and what a step takes by its schedule.
pub fn mispriced(pipeline: &Pipeline, cluster: &Cluster) -> Result<Option<String>, Failure> {
    let node = cluster.devices_per_node();
    if pipeline.devices_per_node != node {
        let found = pipeline.devices_per_node;
        return Ok(Some(format!("nodes have {found} devices, expected {node}, as on its machine")));
    }
    for number in 0..pipeline.stages.len() {
        if let Some(wrong) = stage_mispriced(pipeline, number, cluster)? {
            return Ok(Some(format!("stage {number}: {wrong}")));
        }
    }
    let networks = Networks::of(cluster)?;
    let crossings = pipeline.crossings.par_iter().map(|it| crossing_mispriced(pipeline, it, &networks));
    if let Some(wrong) = crossings.collect::<Result<Vec<_>, Failure>>()?.into_iter().flatten().next() {
        return Ok(Some(wrong));
    }
    let mut again = pipeline.clone();
    priced(&mut again)?;
    Ok(search::terms_differ(&pipeline.estimate, &again.estimate))
}

fn stage_mispriced(pipeline: &Pipeline, number: usize, cluster: &Cluster) -> Result<Option<String>, Failure> {
    let stage = &pipeline.stages[number];
    let kind = cluster.of_rank(stage.first_device);
    let adapters = placed::adapters(kind);
    if stage.adapters != adapters {
        let found = stage.adapters;
        return Ok(Some(format!("its nodes have {found} adapters, expected {adapters}, as on its machine")));
    }
    let mesh = &stage.plan.mesh;
    let machine = kind.clone().with_devices(mesh.devices());
    let machine = machine.map_err(|error| Failure::input(format!("stage {number}"), error))?;
    Ok(search::mispriced(&stage.plan, &prices(&Target::of(&machine, mesh))?))
}

/// How each value would cross by the strategy that it crosses by.
fn crossing_mispriced(
    pipeline: &Pipeline,
    crossing: &Crossing,
    networks: &Networks<'_>,
) -> Result<Option<String>, Failure> {
    for arrival in &crossing.to {
        let strategies = Strategy::ALL.map(|it| (it.name() == arrival.strategy).then_some(it));
        let own: Vec<Strategy> = strategies.into_iter().flatten().collect();
        let way =
            train::Crossing { name: crossing.name.clone(), from: crossing.from, to: vec![arrival.stage] };
        let priced = travelling(pipeline, &way, networks, &own)?;
        if let Some(wrong) = priced.to.first().and_then(|priced| arrival_differs(arrival, priced)) {
            let (name, stage) = (&crossing.name, arrival.stage);
            return Ok(Some(format!("crossing `{name}` to stage {stage} {wrong}")));
        }
    }
    Ok(None)
}

fn arrival_differs(said: &Arrival, priced: &Arrival) -> Option<String> {
    let counts = |it: &Arrival| format!("is {} bytes in at most {} chunks", it.bytes, it.chunks);
    let [found, expected] = [said, priced].map(counts);
    match found == expected {
        true => time_differs(said.seconds, priced.seconds),
        false => Some(format!("{found}, expected that it {expected}")),
    }
}
