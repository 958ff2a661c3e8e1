//! `explain`: what a plan decides, what it costs, and what it would cost otherwise.

mod page; // as a page for a browser
mod staged; // of a pipeline

use std::fmt::Write as _;
use std::path::Path;

use ::plan::json::Content;
use ::plan::{Assignment, Generation, Plan};
use autoparallel::mesh;
use autoparallel::otherwise::{self, Forbidden, Manner, Price};
use cost_models::machine::Machine;
use cost_models::quantity::{bytes, counted, percent, seconds};
use cost_models::throughput::Throughput;
use driver::derived;
use driver::generation::planned::held;
use driver::pipeline::{Prepared, Target};
use files::Failure;
use files::{machine, plan_file, written};
use report::explained::{self, BlockStory, MoveStory, OperationStory};
use report::kept::Kept;
use report::summary::generation::{in_json, in_words};
use report::summary::{self, left_out, proof, summary_json};
use report::throughput;
use report::weight_roles::Weights;
use serde_json::{Value, json};

use super::{Context, Said};
use crate::arguments::{ExplainArguments, PlanArguments, SettingArguments};

use super::import::kept_whole;

/// Explains a plan or a pipeline.
pub(crate) fn explain(arguments: &ExplainArguments, context: &mut Context<'_, '_>) -> Result<Said, Failure> {
    if let Some(page) = &arguments.html {
        let others: Vec<&Path> = [Some(&arguments.plan), arguments.svg.as_ref()]
            .into_iter()
            .flatten()
            .map(|it| it.as_path())
            .collect();
        written::differs(page, &others)?;
        written::possible(page)?;
    }
    let content = plan_file::read_any_checked(&arguments.plan)?;
    let mut said = match &content {
        Content::Plan(plan) => explain_plan(plan, arguments, context)?,
        Content::Pipeline(pipeline) => staged::explain(arguments, pipeline)?,
        Content::Generation(generation) => explain_generation(generation, arguments, context)?,
    };
    if let Some(path) = &arguments.html {
        page::write(path, &content, &said.json, arguments, context)?;
        said.text += &page_line(path);
    }
    Ok(said)
}

/// Writes the page of a plan that has just been made, if one is asked for.
pub(super) fn page_of_made(
    arguments: &PlanArguments,
    context: &mut Context<'_, '_>,
) -> Result<Option<String>, Failure> {
    let Some(path) = &arguments.html else { return Ok(None) };
    // Shipped machines are known by the plan's name for them, and what is set of them too.
    let given = machine::is_file(&arguments.machine);
    let machine = given.then(|| arguments.machine.clone());
    let set = if given { arguments.target.set.clone() } else { SettingArguments::default() };
    let (plan, html) = (arguments.output.clone(), Some(path.clone()));
    explain(&ExplainArguments { plan, machine, set, html, ..ExplainArguments::default() }, context)?;
    Ok(Some(page_line(path)))
}

fn page_line(path: &Path) -> String {
    format!("page       {}\n", path.display())
}

/// What plans of generation have in common, then each; a picture is of the step of one token.
fn explain_generation(
    generation: &Generation,
    arguments: &ExplainArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    if arguments.diagram.is_some() || arguments.svg.is_some() {
        return explain_plan(&generation.decode, arguments, context);
    }
    let held = held(generation)?;
    let lines = in_words(generation, held);
    let mut text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut json = in_json(generation, held, None);
    for (name, plan) in generation.plans() {
        let said = explain_plan(plan, arguments, context)?;
        // Writing to a string does not fail.
        let _ = write!(text, "\n{name}\n{}", said.text);
        json[name] = said.json;
    }
    Ok(Said { text, json })
}

fn explain_plan(
    plan: &Plan,
    arguments: &ExplainArguments,
    context: &mut Context<'_, '_>,
) -> Result<Said, Failure> {
    if let Some(name) = &arguments.diagram {
        return super::partition::of_plan(plan, name, arguments.svg.as_deref());
    }
    if arguments.svg.is_some() {
        let message = "`--svg` is the picture of a pipeline's schedule, or goes with `--diagram OPERATION`";
        return Err(Failure::Usage(message.to_owned()));
    }
    // What cannot be cut into blocks is told whole.
    let whole = vec![search::Section::whole(&plan.graph)];
    // What a user has fixed is so in all other plans, too.
    let fixed = plan.pins.iter().map(|pin| search::Fixed::of(pin, &plan.mesh)).collect();
    let prepared = derived::prepared(&arguments.plan, plan)?.map(|it| Prepared { fixed, ..it });
    let ordered = prepared.as_ref().filter(|prepared| prepared.graph == plan.graph);
    let stories = explained::blocks(plan, ordered.map_or(&whole, |prepared| &prepared.sections));
    let given = machine::given(&plan.machine, arguments.machine.as_deref(), &arguments.set.settings);
    let priced = machine::priced_as(&plan.machine, given.as_deref());
    let throughput = throughput::of_plan(plan, plan.seconds(), priced.as_ref().ok());
    let machine = match (priced.and_then(|it| machine::single(&it)), &given) {
        (Err(failure), Some(_)) => return Err(failure),
        (machine, _) => machine,
    };
    let others = match (&machine, &prepared) {
        (Ok(machine), Some(prepared)) => others(plan, prepared, machine, context)?,
        _ => Vec::new(),
    };
    let mut told = Told { plan, text: String::new() };
    told.header();
    told.time();
    throughput::lines(throughput.as_ref(), 12).iter().for_each(|line| told.line(line));
    told.memory();
    told.communication();
    told.search(&others);
    match (&machine, &prepared) {
        (_, None) => told.line(
            "\notherwise   not priced: the step cannot be derived again, for its model is not where the plan says",
        ),
        (Ok(_), Some(_)) => told.otherwise(&others),
        (Err(failure), _) => told.line(&format!(
            "\notherwise   not priced: {failure}"
        )),
    }
    told.blocks(&stories);
    let alternatives = match (&machine, &prepared, arguments.alternatives) {
        (Ok(machine), Some(prepared), true) => {
            let alternatives = alternatives(plan, prepared, machine, &stories, context)?;
            told.alternatives(&alternatives);
            alternatives
        }
        _ => Vec::new(),
    };
    told.whole(&stories);
    let mut json = json(plan, (&stories, throughput.as_ref()), &others, &alternatives);
    if let Some(recipe) = &plan.recipe {
        let weights = Weights::of(std::iter::once(&plan.graph), &recipe.roles, None);
        told.line("\nweights");
        weights.all().iter().for_each(|line| told.line(line));
        json["parameters"] = weights.json();
    }
    Ok(Said { text: told.text, json })
}

/// What plans made by hand cost.
fn others(
    plan: &Plan,
    prepared: &Prepared,
    machine: &Machine,
    context: &Context<'_, '_>,
) -> Result<Vec<(Manner, Price)>, Failure> {
    let steps = rewrite::Steps::One;
    let target = Target { capacity: plan.capacity, steps, ..Target::of(machine, &plan.mesh) };
    let priced = Manner::ALL.into_iter().map(|manner| {
        context.progress.say(format!("pricing: {}", manner.name()));
        Ok((manner, otherwise::of_manner(manner, prepared, &plan.model, &target)?))
    });
    priced.collect()
}

/// How much faster a plan has to be to be called so: less is rounding (parts).
const FASTER: f64 = 1e-6;

/// Whether a price is below what is.
fn is_faster(price: &Price, now: f64) -> bool {
    matches!(price, Price::Seconds(seconds) if *seconds < now * (1.0 - FASTER))
}

/// What a plan costs in which one operation is computed otherwise.
struct Alternative<'a> {
    block: &'a str,
    operation: &'a OperationStory,
    price: Price,
}

fn alternatives<'a>(
    plan: &Plan,
    prepared: &Prepared,
    machine: &Machine,
    stories: &'a [BlockStory],
    context: &Context<'_, '_>,
) -> Result<Vec<Alternative<'a>>, Failure> {
    let steps = rewrite::Steps::Auto;
    let target = Target { capacity: plan.capacity, steps, ..Target::of(machine, &plan.mesh) };
    let mut alternatives = Vec::new();
    for story in stories {
        for operation in &story.operations {
            let Assignment::Computed { partition, .. } = &plan.assignments[operation.node.0] else {
                continue;
            };
            context.progress.say(format!("pricing: `{}` otherwise", operation.origin));
            let node = plan.graph.node(operation.node);
            let operands = plan.graph.types_of(&node.operands);
            let forbidden = Forbidden { node: operation.local, op: &node.op, operands: &operands, partition };
            let price = otherwise::without(&forbidden, prepared, &plan.model, &target)?;
            alternatives.push(Alternative { block: &story.name, operation, price });
        }
    }
    Ok(alternatives)
}

/// The text, as it grows.
struct Told<'a> {
    plan: &'a Plan,
    text: String,
}

impl Told<'_> {
    fn line(&mut self, words: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{words}");
    }

    fn header(&mut self) {
        let plan = self.plan;
        self.line(&format!("model       {} (SHA-256 {:.12}..)", plan.model.path, plan.model.sha256));
        let dims: Vec<String> = plan.model.dims.iter().map(|(name, size)| format!("{name}={size}")).collect();
        if !dims.is_empty() {
            self.line(&format!("dimensions  {}", dims.join(", ")));
        }
        self.line(&format!("machine     {}, {}", plan.machine.name, counted(plan.machine.devices, "device")));
        self.line(&format!("mesh        {} ({})", mesh::sizes(&plan.mesh), plan.mesh));
        self.line(&format!("operations  {}", plan.graph.nodes.len()));
        for pin in explained::pinned(std::iter::once(plan)) {
            self.line(&format!("pinned      {pin}"));
        }
    }

    fn time(&mut self) {
        let total = self.plan.seconds();
        self.line(&format!("\ntime of a step  {}", seconds(total)));
        let mut terms: Vec<_> = self.plan.estimate.iter().collect();
        terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        for term in terms {
            self.line(&format!(
                "  {:<20} {:>12} {:>8}",
                term.name,
                seconds(term.seconds),
                percent(term.seconds, total)
            ));
        }
        summary::hidden(self.plan, 20).iter().for_each(|line| self.line(line));
    }

    fn memory(&mut self) {
        let plan = self.plan;
        let total = plan.memory.iter().map(|it| it.bytes).sum();
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
        let traffic = ::plan::communication(self.plan);
        let sent: Vec<_> = traffic.iter().filter(|it| it.bytes > 0).collect();
        let total = sent.iter().map(|it| it.bytes).sum();
        self.line(&format!("\ncommunication  {} received by all devices", bytes(total)));
        for it in sent {
            self.line(&format!("  {:<20} {:>12} in {}", it.name, bytes(it.bytes), counted(it.count, "move")));
        }
    }

    fn search(&mut self, others: &[(Manner, Price)]) {
        let (space, mut how) = (&self.plan.space, proof(self.plan));
        let fastest = others.iter().filter(|(_, price)| is_faster(price, self.plan.seconds()));
        for (manner, _) in fastest {
            // A search of another, smaller space looks at more of it.
            how += &format!("; {}, which lies outside of what was searched, is faster", manner.name());
        }
        let saturated = match &left_out(self.plan)[..] {
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

    fn otherwise(&mut self, others: &[(Manner, Price)]) {
        let now = self.plan.seconds();
        self.line("\notherwise, by the same prices (weights may lie split and be fetched)");
        self.line(&format!("  {:<42} {:>12}", "this plan", seconds(now)));
        for (manner, price) in others {
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
        if let Some(it) = self.plan.assignments.iter().position(in_steps) {
            let name = &self.plan.graph.nodes[it].origin;
            self.line(&format!(
                "\nin steps    `--diagram {name}` draws how blocks move, and others' likewise"
            ));
        }
        let returned = explained::returned(self.plan);
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
        let now = self.plan.seconds();
        self.line("\nif one operation were not computed as it is, wherever its block stands");
        for Alternative { block, operation, price } in alternatives {
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
        let total = self.plan.seconds();
        self.line(&format!(
            "\nreplicated  {count} operations are computed whole by every device: {} ({})",
            seconds(time),
            percent(time, total)
        ));
        let regions = kept_whole(&self.plan.graph);
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

fn json(
    plan: &Plan,
    (stories, throughput): (&[BlockStory], Option<&Throughput>),
    others: &[(Manner, Price)],
    alternatives: &[Alternative<'_>],
) -> Value {
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
    let mut value = summary_json(plan, throughput);
    value["blocks"] = stories.iter().map(block).collect();
    value["otherwise"] =
        others.iter().map(|(manner, it)| json!({ "manner": manner.name(), "price": price(it) })).collect();
    value["alternatives"] = alternatives
        .iter()
        .map(|it| json!({ "block": it.block, "origin": it.operation.origin, "price": price(&it.price) }))
        .collect();
    value["kept_whole"] = json!(kept_whole(&plan.graph));
    value
}
