//! `explain` of a plan, in words and for programs: what it decides, what it costs, and what it would cost otherwise.

use std::fmt::Write as _;

use autoparallel::mesh;
use autoparallel::otherwise::{Manner, Price};
use cost_models::quantity::{bytes, counted, percent, seconds};
use cost_models::throughput::Throughput;
use plan::{Assignment, Plan};
use planner_ir::Graph;
use serde_json::{Value, json};

use crate::attention::Found;
use crate::explained::{self, BlockStory, MoveStory, OperationStory};
use crate::kept::Kept;
use crate::summary::{self, left_out, proof, summary_json};
use crate::throughput;
use crate::weight_roles::Weights;

pub mod staged;

/// What plans made by hand cost, or why that is not known.
pub type Others = Result<Vec<Usual>, String>;

/// A plan as it is made by hand.
pub struct Usual {
    /// How it splits programs.
    pub manner: Manner,
    /// What it costs.
    pub price: Price,
    /// Pins by which the operations of the model are computed so, in the words of `--pin`; none where there is no such
    /// plan.
    pub pins: Vec<String>,
}

/// What a plan costs in which one operation is computed otherwise.
pub struct Alternative<'a> {
    /// The block that the operation stands in.
    pub block: &'a str,
    /// The operation.
    pub operation: &'a OperationStory,
    /// What the plan costs then.
    pub price: Price,
    /// Pins by which it is computed so, wherever its block stands, in the words of `--pin`, or why no pin says it; none
    /// where there is no such plan.
    pub pins: Result<Vec<String>, &'static str>,
}

/// What there is to say of a plan.
pub struct Explanation<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its blocks.
    pub stories: &'a [BlockStory],
    /// How fast a step is.
    pub throughput: Option<Throughput>,
    /// What plans made by hand cost.
    pub others: Others,
    /// What it costs otherwise, if that is asked for.
    pub alternatives: Option<Vec<Alternative<'a>>>,
}

impl Explanation<'_> {
    /// For people.
    pub fn text(&self) -> String {
        let mut told = Told { of: self.plan, text: String::new() };
        told.header();
        told.time();
        throughput::lines(self.throughput.as_ref(), 12).iter().for_each(|line| told.line(line));
        told.memory();
        told.communication();
        told.search(self.others.as_deref().unwrap_or_default());
        match &self.others {
            Ok(others) => told.otherwise(others),
            Err(why) => told.line(&format!("\notherwise   not priced: {why}")),
        }
        told.blocks(self.stories);
        if let Some(alternatives) = &self.alternatives {
            told.alternatives(alternatives);
        }
        told.whole(self.stories);
        if let Some(weights) = self.weights() {
            told.line("\nweights");
            weights.all().iter().for_each(|line| told.line(line));
        }
        told.text
    }

    /// What its weights are to its training.
    fn weights(&self) -> Option<Weights<'_>> {
        let recipe = self.plan.recipe.as_ref()?;
        Some(Weights::of(std::iter::once(&self.plan.graph), &recipe.roles, None))
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let price = |price: &Price| match price {
            Price::Seconds(seconds) => json!({ "seconds": seconds }),
            Price::Missing(bytes) => json!({ "missing_bytes": bytes }),
            Price::Impossible(why) => json!({ "impossible": why }),
        };
        let step = |it: &MoveStory| json!({ "value": it.value, "moves": it.moves, "bytes": it.bytes, "seconds": it.seconds });
        let operation = |it: &OperationStory| {
            let moves: Vec<Value> = it.moves.iter().map(step).collect();
            json!({
                "origin": it.origin, "kind": it.kind, "choice": it.choice, "partition": it.partition,
                "seconds": it.seconds, "moves": moves
            })
        };
        let kept = |it: &Kept| {
            json!({
                "values": it.names, "needed": it.needed,
                "bytes": it.bytes, "needed_bytes": it.whole, "seconds": it.seconds
            })
        };
        let block = |it: &BlockStory| {
            let operations: Vec<Value> = it.operations.iter().map(operation).collect();
            let kept = it.kept.as_ref().map(kept);
            json!({ "name": it.name, "count": it.count, "kept": kept, "operations": operations })
        };
        let mut value = summary_json(self.plan, self.throughput.as_ref());
        value["blocks"] = self.stories.iter().map(block).collect();
        let others = self.others.as_deref().unwrap_or_default();
        value["otherwise"] = others
            .iter()
            .map(|it| json!({ "manner": it.manner.name(), "price": price(&it.price), "pins": it.pins }))
            .collect();
        let alternatives = self.alternatives.as_deref().unwrap_or_default();
        value["alternatives"] = alternatives
            .iter()
            .map(|it| {
                let origin = &it.operation.origin;
                json!({
                    "block": it.block, "origin": origin, "price": price(&it.price),
                    "pins": it.pins.as_deref().unwrap_or_default(), "why_no_pin": it.pins.as_ref().err()
                })
            })
            .collect();
        value["attention"] = json!(Found::of([&self.plan.graph]).sight());
        value["kept_whole"] = json!(kept_whole(&self.plan.graph));
        if let Some(weights) = self.weights() {
            value["parameters"] = weights.json();
        }
        value
    }
}

/// How much faster a plan has to be to be called so: less is rounding (parts).
const FASTER: f64 = 1e-6;

/// Whether a price is below what is.
fn is_faster(price: &Price, now: f64) -> bool {
    matches!(price, Price::Seconds(seconds) if *seconds < now * (1.0 - FASTER))
}

/// The names of regions.
pub fn kept_whole(graph: &Graph) -> Vec<String> {
    let regions = graph.nodes.iter().filter(|node| matches!(node.op, planner_ir::Op::Region(_)));
    regions.map(|node| format!("`{}`", node.origin)).collect()
}

/// The text, as it grows.
struct Told<'a, T> {
    of: &'a T,
    text: String,
}

impl<T> Told<'_, T> {
    fn line(&mut self, words: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{words}");
    }
}

impl Told<'_, Plan> {
    fn header(&mut self) {
        let plan = self.of;
        self.line(&format!("model       {} (SHA-256 {:.12}..)", plan.model.path, plan.model.sha256));
        let dims: Vec<String> = plan.model.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
        if !dims.is_empty() {
            self.line(&format!("dimensions  {}", dims.join(", ")));
        }
        self.line(&format!("machine     {}, {}", plan.machine.name, counted(plan.machine.devices, "device")));
        self.line(&format!("mesh        {} ({})", mesh::sizes(&plan.mesh), plan.mesh));
        self.line(&format!("operations  {}", plan.graph.nodes.len()));
        if let Some(sight) = Found::of([&plan.graph]).sight() {
            self.line(&format!("attention   {sight}"));
        }
        for pin in explained::pinned(std::iter::once(plan)) {
            self.line(&format!("pinned      {pin}"));
        }
    }

    fn time(&mut self) {
        let total = self.of.seconds();
        self.line(&format!("\ntime of a step  {}", seconds(total)));
        let mut terms: Vec<_> = self.of.estimate.iter().collect();
        terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        for term in terms {
            self.line(&format!(
                "  {:<20} {:>12} {:>8}",
                term.name,
                seconds(term.seconds),
                percent(term.seconds, total)
            ));
        }
        summary::hidden(self.of, 20).iter().for_each(|line| self.line(line));
    }

    fn memory(&mut self) {
        let plan = self.of;
        let total = plan::held(&plan.memory);
        let free = plan.capacity.saturating_sub(total);
        self.line(&format!(
            "\nmemory of the fullest device  {} of {} ({} free)",
            bytes(total),
            bytes(plan.capacity),
            bytes(free)
        ));
        for holding in &plan.memory {
            self.line(&format!("  {:<20} {:>12}", holding.kind, bytes(holding.bytes)));
        }
    }

    fn communication(&mut self) {
        let traffic = plan::communication(self.of);
        let sent: Vec<_> = traffic.iter().filter(|it| it.bytes > 0).collect();
        let total = sent.iter().map(|it| it.bytes).sum();
        self.line(&format!("\ncommunication  {} received by all devices", bytes(total)));
        for it in sent {
            self.line(&format!("  {:<20} {:>12} in {}", it.name, bytes(it.bytes), counted(it.count, "move")));
        }
    }

    fn search(&mut self, others: &[Usual]) {
        let (space, mut how) = (&self.of.space, proof(self.of));
        let fastest = others.iter().filter(|it| is_faster(&it.price, self.of.seconds()));
        for Usual { manner, .. } in fastest {
            // A search of another, smaller space looks at more of it.
            how += &format!("; {}, which lies outside of what was searched, is faster", manner.name());
        }
        let saturated = match &left_out(self.of)[..] {
            _ if space.saturated => "saturated",
            "" => "not saturated: more programs may be equal",
            words => &format!("not saturated: all would be too large a space ({words})"),
        };
        self.line(&format!("\nproof       {how}"));
        self.line(&format!(
            "space       {} unique of {} blocks; e-graphs of {} terms in {} classes, {saturated}; {} choices",
            space.unique_blocks, space.blocks, space.nodes, space.classes, space.choices
        ));
    }

    fn otherwise(&mut self, others: &[Usual]) {
        let now = self.of.seconds();
        self.line("\notherwise, by the same prices (weights may lie split and be fetched)");
        self.line(&format!("  {:<42} {:>12}", "this plan", seconds(now)));
        for Usual { manner, price, pins: _ } in others {
            let more = more(price, now);
            self.line(&format!("  {:<42} {:>12}{more}", manner.name(), price.to_string()));
        }
    }

    fn blocks(&mut self, stories: &[BlockStory]) {
        for story in stories {
            let time: f64 = story.operations.iter().map(all_seconds).sum();
            let times = if story.count == 1 { "once".to_owned() } else { format!("{} times", story.count) };
            self.line(&format!("\nblock {}, {times}, {} each", story.name, seconds(time)));
            if let Some(kept) = &story.kept {
                self.line(&format!("  {}", kept.in_words()));
            }
            for it in &story.operations {
                for step in &it.moves {
                    self.moved(step);
                }
                self.line(&format!(
                    "  {:<13} {:>11}  {:<40} {}",
                    it.kind,
                    seconds(it.seconds),
                    it.choice,
                    it.origin
                ));
            }
        }
        let in_steps =
            |it: &Assignment| matches!(it, Assignment::Computed { partition, .. } if partition.steps > 1);
        if let Some(it) = self.of.assignments.iter().position(in_steps) {
            let name = &self.of.graph.nodes[it].origin;
            self.line(&format!(
                "\nin steps    `--diagram {name}` draws how blocks move, and others' likewise"
            ));
        }
        let returned = explained::returned(self.of);
        if !returned.is_empty() {
            self.line("\nreturned");
        }
        for step in returned {
            self.moved(&step);
        }
    }

    fn moved(&mut self, step: &MoveStory) {
        let MoveStory { value, moves, bytes: size, seconds: time } = step;
        let received = if *size == 0 { "nothing sent".to_owned() } else { bytes(*size) };
        self.line(&format!(
            "  {:>13} {:>11}  {} ({received}) of {value}",
            "move",
            seconds(*time),
            moves.join(", ")
        ));
    }

    fn alternatives(&mut self, alternatives: &[Alternative<'_>]) {
        let now = self.of.seconds();
        self.line("\nif one operation were not computed as it is, wherever its block stands");
        for Alternative { block, operation, price, pins: _ } in alternatives {
            let more = more(price, now);
            self.line(&format!(
                "  block {block:<3} {:<13} {:>12}{more}  {}",
                operation.kind,
                price.to_string(),
                operation.origin
            ));
        }
    }

    fn whole(&mut self, stories: &[BlockStory]) {
        let all = stories.iter().flat_map(|it| it.operations.iter().map(move |one| (it.count, one)));
        let replicated = all.filter(|(_, it)| it.choice == "replicated");
        let (count, time) = replicated.fold((0, 0.0), |(count, time), (times, it)| {
            // A block stands in few places.
            (count + times, time + f64::from(u32::try_from(times).unwrap_or(u32::MAX)) * it.seconds)
        });
        let total = self.of.seconds();
        self.line(&format!(
            "\nreplicated  {count} operations are computed whole by every device: {} ({})",
            seconds(time),
            percent(time, total)
        ));
        let regions = kept_whole(&self.of.graph);
        if regions.is_empty() {
            self.line("kept whole  nothing: no shape or branch depends on data");
        } else {
            self.line(&format!("kept whole  {} (shapes or branches depend on data)", regions.join(", ")));
        }
    }
}

fn all_seconds(it: &OperationStory) -> f64 {
    it.seconds + it.moves.iter().map(|step| step.seconds).sum::<f64>()
}

/// By how much a price is above what is.
fn more(price: &Price, now: f64) -> String {
    match price {
        Price::Seconds(seconds) if now > 0.0 => format!("  ({:+.1} %)", (seconds - now) / now * 100.0),
        _ => String::new(),
    }
}
