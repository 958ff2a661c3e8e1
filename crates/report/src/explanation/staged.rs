//! `explain` of a pipeline, in words and for programs: its stages, what crosses between them, and what is done when.

use std::path::Path;

use autoparallel::mesh;
use autoparallel::staged::{kind, too_much};
use cost_models::quantity::{bytes, counted, percent, seconds};
use cost_models::throughput::Throughput;
use plan::{Pipeline, Recompute, strategy_of_stage};
use schedule::{Kind, Timeline};
use serde_json::{Value, json};

use super::Told;
use crate::attention::Found;
use crate::chart::Chart;
use crate::explained;
use crate::summary::staged::summary_json;
use crate::throughput;
use crate::weight_roles::Weights;

/// How many columns the schedule has.
const WIDTH: usize = 160;

const MILLISECONDS: f64 = 1e3;

/// What there is to say of a pipeline.
pub struct Explanation<'a> {
    /// The pipeline.
    pub pipeline: &'a Pipeline,
    /// When its tasks are done (milliseconds).
    pub timeline: &'a Timeline,
    /// How fast a step is.
    pub throughput: Option<Throughput>,
    /// Where the picture of its schedule is.
    pub picture: Option<&'a Path>,
}

impl Explanation<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let mut told = Told { of: self.pipeline, text: String::new() };
        told.header();
        told.time(self.timeline);
        throughput::lines(self.throughput.as_ref(), 12).iter().for_each(|line| told.line(line));
        told.stages();
        told.memory();
        told.crossings();
        let chart = Chart { schedule: &self.pipeline.schedule, timeline: self.timeline };
        if chart.is_small() {
            told.line("\nschedule of the micro-batches (milliseconds)");
            told.text += &chart.text(WIDTH);
        }
        if let Some(path) = self.picture {
            told.line(&format!("\npicture     {}", path.display()));
        }
        told.line("\nweights");
        self.weights().all().iter().for_each(|line| told.line(line));
        told.text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let pipeline = self.pipeline;
        let mut json = summary_json(pipeline, self.throughput.as_ref());
        json["parameters"] = self.weights().json();
        json["attention"] = json!(sight(pipeline));
        json["crossings"] = crossings_json(pipeline);
        json["schedule_name"] = json!(kind(pipeline).map(Kind::name));
        json["bubble"] = json!(self.timeline.bubble());
        json["beyond"] = json!(beyond(pipeline));
        json
    }

    /// What its weights are to its training.
    fn weights(&self) -> Weights<'_> {
        let graphs = self.pipeline.stages.iter().map(|stage| &stage.plan.graph);
        Weights::of(graphs, &self.pipeline.recipe.roles, None)
    }
}

/// Which keys its queries see, in words.
fn sight(pipeline: &Pipeline) -> Option<String> {
    Found::of(pipeline.stages.iter().map(|stage| &stage.plan.graph)).sight()
}

/// What a picture of its schedule is called.
pub fn title(pipeline: &Pipeline) -> String {
    format!("{} of {}, in milliseconds", schedule(pipeline), model(pipeline))
}

impl Told<'_, Pipeline> {
    fn header(&mut self) {
        let pipeline = self.of;
        self.line(&format!("model       {}", model(pipeline)));
        self.line(&format!(
            "machine     {}, {}",
            pipeline.machine.name,
            counted(pipeline.machine.devices, "device")
        ));
        self.line(&format!(
            "schedule    {}: {} on {} of devices, {}",
            schedule(pipeline),
            counted(pipeline.stages.len(), "stage"),
            counted(pipeline.schedule.groups.len(), "group"),
            counted(pipeline.micro_batches(), "micro-batch")
        ));
        if let Some(sight) = sight(pipeline) {
            self.line(&format!("attention   {sight}"));
        }
        for pin in explained::pinned(pipeline.stages.iter().map(|it| &it.plan)) {
            self.line(&format!("pinned      {pin}"));
        }
    }

    fn time(&mut self, timeline: &Timeline) {
        let pipeline = self.of;
        let total = pipeline.seconds();
        self.line(&format!("\ntime of a step  {}", seconds(total)));
        for term in &pipeline.estimate {
            let part = percent(term.seconds, total);
            self.line(&format!("  {:<24} {:>12} {part:>8}", term.name, seconds(term.seconds)));
        }
        self.line(&format!(
            "  groups work on nothing for {:.1} % of the micro-batches' time",
            100.0 * timeline.bubble()
        ));
    }

    fn stages(&mut self) {
        let pipeline = self.of;
        for (number, stage) in pipeline.stages.iter().enumerate() {
            let (times, update) = stage.plan.phases(pipeline.schedule.splits_backward);
            let end = pipeline.stages.get(number + 1).map(|next| next.first_block);
            let blocks = match end {
                Some(end) if end == stage.first_block + 1 => format!("block {}", stage.first_block),
                Some(end) => format!("blocks {} to {}", stage.first_block, end.saturating_sub(1)),
                None => format!("blocks {} to the last", stage.first_block),
            };
            let devices = stage.plan.mesh.devices();
            let last = stage.first_device + devices.saturating_sub(1);
            self.line(&format!(
                "\nstage {number}     group {}, {blocks}, devices {} to {last}, mesh {}",
                pipeline.group(number),
                stage.first_device,
                mesh::sizes(&stage.plan.mesh)
            ));
            self.line(&format!(
                "  forward {}, backward {}, gradients of weights {} of each micro-batch; update {}",
                seconds(times.forward),
                seconds(times.backward),
                seconds(times.weight),
                seconds(update)
            ));
            for words in strategy_of_stage(pipeline, number) {
                self.line(&format!("  {words}"));
            }
        }
    }

    fn memory(&mut self) {
        let pipeline = self.of;
        for (group, holdings) in pipeline.memory.iter().enumerate() {
            let held = plan::held(holdings);
            let capacity = pipeline.capacity_of(group);
            let free = capacity.saturating_sub(held);
            self.line(&format!(
                "\nmemory of group {group}  {} of {} ({} free)",
                bytes(held),
                bytes(capacity),
                bytes(free)
            ));
            for holding in holdings.iter().filter(|it| it.bytes > 0) {
                let note =
                    if holding.kind == "activations" { "  of all micro-batches under way" } else { "" };
                self.line(&format!("  {:<20} {:>12}{note}", holding.kind, bytes(holding.bytes)));
            }
        }
        for words in beyond(pipeline) {
            self.line(&words);
        }
    }

    fn crossings(&mut self) {
        let mut between: Vec<(usize, usize)> = Vec::new();
        for (from, to, ..) in arrivals(self.of) {
            if !between.contains(&(from, to)) {
                between.push((from, to));
            }
        }
        for pair in between {
            self.line(&format!("\nfrom stage {} to stage {}", pair.0, pair.1));
            for (_, _, name, arrival) in arrivals(self.of).filter(|it| (it.0, it.1) == pair) {
                self.line(&format!(
                    "  {name:<14} {:>12} {:>12}  {}",
                    bytes(arrival.bytes),
                    seconds(arrival.seconds),
                    arrival.strategy
                ));
            }
        }
    }
}

/// What comes to a stage: from which stage, to which, what, and how.
fn arrivals(pipeline: &Pipeline) -> impl Iterator<Item = (usize, usize, &str, &plan::Arrival)> {
    let all = pipeline.crossings.iter();
    all.flat_map(|it| it.to.iter().map(|arrival| (it.from, arrival.stage, it.name.as_str(), arrival)))
}

fn crossings_json(pipeline: &Pipeline) -> Value {
    arrivals(pipeline)
        .map(|(from, to, name, arrival)| {
            json!({
                "name": name,
                "from": from,
                "to": to,
                "strategy": arrival.strategy,
                "bytes": arrival.bytes,
                "seconds": arrival.seconds,
            })
        })
        .collect()
}

/// Where memory made the plan dearer: recomputation, and schedules that do not fit.
fn beyond(pipeline: &Pipeline) -> Vec<String> {
    let mut all = Vec::new();
    let again = pipeline.recipe.recompute.iter().filter(|it| **it != Recompute::Nothing).count();
    if again > 0 {
        all.push(format!(
            "{again} of {} blocks are recomputed in part, to hold less",
            pipeline.recipe.recompute.len()
        ));
    }
    for it in too_much(pipeline) {
        all.push(format!(
            "by {} group {} would hold {}, and a device may hold {}: it does not fit",
            it.kind,
            it.group,
            bytes(it.bytes),
            bytes(pipeline.capacity_of(it.group))
        ));
    }
    all
}

fn model(pipeline: &Pipeline) -> &str {
    pipeline.stages.first().map_or("", |stage| &stage.plan.model.path)
}

fn schedule(pipeline: &Pipeline) -> &'static str {
    kind(pipeline).map_or("a schedule of its own", Kind::name)
}

/// A timeline in milliseconds.
pub fn in_milliseconds(mut timeline: Timeline) -> Timeline {
    let spans = timeline.groups.iter_mut().flatten();
    for span in spans.chain(timeline.messages.iter_mut().map(|it| &mut it.span)) {
        span.start *= MILLISECONDS;
        span.end *= MILLISECONDS;
    }
    timeline.idle.iter_mut().for_each(|it| *it *= MILLISECONDS);
    timeline.makespan *= MILLISECONDS;
    timeline
}
