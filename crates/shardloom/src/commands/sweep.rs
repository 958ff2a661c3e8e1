//! `sweep`: the cheapest pipelines on clusters that differ in one thing.

use std::collections::BTreeSet;

use files::{Doing, Failure, Of};
use files::{model_file, written};
use report::sweep::{Point, What, drawn, object, parsed, shown, table, text};
use report::throughput;
use serde_json::Value;

use super::pipeline::{answer, examples, found_in};
use super::{Context, Said};
use crate::arguments::SweepArguments;

/// Plans a model several times.
pub(super) fn sweep(arguments: &SweepArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    let SweepArguments { plan, over, csv, svg: picture, .. } = arguments;
    for output in [csv, picture].into_iter().flatten() {
        written::differs(output, &[plan.model()])?;
        written::possible(output)?;
    }
    let (what, values) = parsed(over)?;
    let file = model_file::open_for(plan.model(), plan.recipe.graph(plan.runtime))?;
    context.progress.say_left_out(&file);
    for output in [csv, picture].into_iter().flatten() {
        file.spares(output)?;
    }
    let mut points = Vec::new();
    let count = values.len();
    for (place, at) in (1..).zip(values) {
        context.progress.say(Doing::one(over, place, Of::All(count)).named(shown(what, at)));
        let devices = if what == What::Devices { Some(at) } else { plan.devices };
        let machine = plan.cluster(devices)?;
        let memory = match what {
            What::Memory => Some(plan.target.left_of(at)),
            _ => plan.target.memory(),
        };
        let batch = if what == What::Batch { at } else { examples(plan)? };
        let found = answer((plan, &file), &machine, batch, memory, context.progress).map(|it| it.answer);
        if let Err(failure @ (Failure::Usage(_) | Failure::Internal(_))) = found {
            return Err(failure);
        }
        let throughput = found.as_ref().ok().and_then(|answer| {
            let pipeline = &answer.pipeline;
            throughput::of_pipeline(pipeline, pipeline.seconds(), Some(&machine))
        });
        points.push(Point { at, devices: machine.devices(), found, throughput });
    }
    if let Some(path) = csv {
        written::write(path, table(what, &points).as_bytes())?;
    }
    if let Some(path) = picture {
        written::write(path, drawn(what, &points).as_bytes())?;
    }
    // What is found of one plan is found of most others.
    let mut warned = BTreeSet::new();
    let object = |point: &Point| {
        let mut object = object(what, point);
        if let Ok(answer) = &point.found {
            let found = found_in(&answer.pipeline);
            found.add(&mut object);
            let new = found.warnings.into_iter().filter(|it| warned.insert(it.clone()));
            new.for_each(|it| context.warn(&it));
        }
        object
    };
    let json: Vec<Value> = points.iter().map(object).collect();
    Ok(Said { text: text(what, &points), json: Value::Array(json) })
}
