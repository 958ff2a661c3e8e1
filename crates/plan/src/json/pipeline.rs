//! Pipelines to what a file says, and back.

use schedule::Schedule;

use super::error::ReadError;
use super::{decode, encode, file};
use crate::pipeline::{Arrival, Crossing, Pipeline, Stage};
use crate::plan::Proof;

pub(super) fn body(pipeline: &Pipeline) -> file::PipelineBody {
    let arrival = |it: &Arrival| file::Arrival {
        stage: it.stage,
        strategy: it.strategy.clone(),
        chunks: it.chunks,
        bytes: it.bytes,
        seconds: it.seconds,
    };
    let crossing = |it: &Crossing| file::Crossing {
        name: it.name.clone(),
        from: it.from,
        to: it.to.iter().map(arrival).collect(),
    };
    let stage = |it: &Stage| file::Stage {
        first_block: it.first_block,
        first_device: it.first_device,
        adapters: it.adapters,
        plan: encode::body(&it.plan),
    };
    let schedule = &pipeline.schedule;
    file::PipelineBody {
        machine: file::Machine::from(&pipeline.machine),
        devices_per_node: pipeline.devices_per_node,
        schedule: file::Schedule {
            chunks: schedule.chunks,
            splits_backward: schedule.splits_backward,
            groups: schedule.to_string().lines().map(str::to_owned).collect(),
        },
        crossings: pipeline.crossings.iter().map(crossing).collect(),
        recipe: file::Recipe::of(&pipeline.recipe),
        estimate: pipeline.estimate.iter().map(encode::term).collect(),
        memory: pipeline.memory.iter().map(|it| it.iter().map(encode::holding).collect()).collect(),
        capacity: pipeline.capacity,
        proof: match pipeline.proof {
            Proof::Optimal => file::Proof::Optimal,
            Proof::Gap { lower_bound } => file::Proof::Gap { lower_bound },
        },
        stages: pipeline.stages.iter().map(stage).collect(),
    }
}

pub(super) fn pipeline(body: &file::PipelineBody) -> Result<Pipeline, ReadError> {
    let text = body.schedule.groups.join("\n");
    let mut schedule: Schedule =
        text.parse().map_err(|error| decode::text_error("pipeline.schedule", error))?;
    decode::same_count("pipeline.schedule.groups", body.schedule.groups.len(), schedule.groups.len())?;
    // Tasks say at least so much.
    schedule.chunks = schedule.chunks.max(body.schedule.chunks);
    schedule.splits_backward |= body.schedule.splits_backward;
    let arrival = |it: &file::Arrival| Arrival {
        stage: it.stage,
        strategy: it.strategy.clone(),
        chunks: it.chunks,
        bytes: it.bytes,
        seconds: it.seconds,
    };
    let crossing = |it: &file::Crossing| Crossing {
        name: it.name.clone(),
        from: it.from,
        to: it.to.iter().map(arrival).collect(),
    };
    let stage = |it: &file::Stage| {
        let plan = decode::plan(&it.plan)?;
        let file::Stage { first_block, first_device, adapters, .. } = *it;
        Ok(Stage { first_block, first_device, adapters, plan })
    };
    Ok(Pipeline {
        machine: body.machine.named(),
        devices_per_node: body.devices_per_node,
        schedule,
        stages: body.stages.iter().map(stage).collect::<Result<_, _>>()?,
        crossings: body.crossings.iter().map(crossing).collect(),
        recipe: body.recipe.read(),
        estimate: body.estimate.iter().map(decode::term).collect(),
        memory: body.memory.iter().map(|it| it.iter().map(decode::holding).collect()).collect(),
        capacity: body.capacity,
        proof: match body.proof {
            file::Proof::Optimal => Proof::Optimal,
            file::Proof::Gap { lower_bound } => Proof::Gap { lower_bound },
        },
    })
}
