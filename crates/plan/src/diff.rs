//! What differs between two plans: what moved, and what it bought.
//!
//! Operations are the same if they have the same origin and kind, and values if they are inputs or
//! weights of one name or the same result of the same operation. Changes that differ only in
//! numbers in the names, those of repeated layers, are one change and a count.

mod show; // the text of a difference

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use planner_ir::{Carried, Move, NodeId, Op, Source, ValueId};

use crate::plan::{Copy, Plan};
use crate::recipe::Recipe;
use crate::roles::Roles;
use crate::summary::communication;
use crate::words::{bytes, operation_in_words, strategy};

/// What differs between two plans.
#[derive(Clone, Debug, PartialEq)]
pub struct Diff {
    /// What they are made for, how training steps were derived, and what they do in words.
    pub header: Vec<Change<String>>,
    /// How operations are computed.
    pub operations: Vec<Repeated>,
    /// How values are held as they are made.
    pub values: Vec<Repeated>,
    /// How what states become is moved to their place.
    pub carried: Vec<Repeated>,
    /// Copies of values, by the moves that make them: how often before and after.
    pub transfers: Vec<Change<u64>>,
    /// The time of a step, by term (seconds).
    pub time: Vec<Change<f64>>,
    /// What a device holds, by kind (bytes).
    pub memory: Vec<Change<u64>>,
    /// What all devices receive, by kind of move (bytes).
    pub communication: Vec<Change<u64>>,
    /// The time of a step, all told (seconds).
    pub seconds: Change<f64>,
}

/// Something before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<T> {
    /// What.
    pub what: String,
    /// What it was.
    pub before: T,
    /// What it is.
    pub after: T,
}

/// A change that was made in several places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// In how many.
    pub count: u64,
    /// The change.
    pub change: Change<String>,
}

/// What differs between two plans.
///
/// # Panics
/// If one of them is not a right plan.
pub fn diff(before: &Plan, after: &Plan) -> Diff {
    let terms = |plan: &Plan| plan.estimate.iter().map(|term| (term.name.clone(), term.seconds)).collect();
    let holdings = |plan: &Plan| plan.memory.iter().map(|it| (it.kind.clone(), it.bytes)).collect();
    let traffic = |plan: &Plan| communication(plan).iter().map(|it| (it.name.to_owned(), it.bytes)).collect();
    let seconds = Change { what: "time".to_owned(), before: before.seconds(), after: after.seconds() };
    Diff {
        header: header(before, after),
        operations: repeated(operations(before), &operations(after)),
        values: repeated(values(before), &values(after)),
        carried: repeated(carried(before), &carried(after)),
        transfers: changed(transfers(before), transfers(after)),
        time: changed(terms(before), terms(after)),
        memory: changed(holdings(before), holdings(after)),
        communication: changed(traffic(before), traffic(after)),
        seconds,
    }
}

fn header(before: &Plan, after: &Plan) -> Vec<Change<String>> {
    let lines = |plan: &Plan| {
        let dims = plan.model.dims.iter().map(|(name, size)| format!("{name}={size}"));
        let machine = &plan.machine;
        let prices = machine.sha256.as_ref().map_or_else(String::new, |it| format!(", {it:.12}"));
        let mut lines = vec![
            ("model".to_owned(), format!("{} ({:.12})", plan.model.path, plan.model.sha256)),
            ("dimensions".to_owned(), dims.collect::<Vec<_>>().join(",")),
            ("machine".to_owned(), format!("{} ({} devices{prices})", machine.name, machine.devices)),
            ("mesh".to_owned(), plan.mesh.to_string()),
            ("capacity".to_owned(), bytes(plan.capacity)),
        ];
        lines.extend(plan.recipe.iter().flat_map(recipe_lines));
        let pins: Vec<String> = plan.pins.iter().map(|it| it.text(&plan.mesh)).collect();
        lines.push(("pinned".to_owned(), pins.join("; ")));
        let controls = plan.controls.iter().map(|it| format!("{}={}", it.name, it.value));
        lines.push(("controls".to_owned(), controls.collect::<Vec<_>>().join(",")));
        lines.push(("strategy".to_owned(), strategy(plan).join("; ")));
        lines
    };
    changed(lines(before), lines(after))
}

/// What a recipe says, line by line.
fn recipe_lines(recipe: &Recipe) -> Vec<(String, String)> {
    // Every field is named, so that a new one is not forgotten here.
    let Recipe {
        loss,
        optimizer,
        precision,
        masters,
        micro_batches,
        clip,
        no_decay,
        recompute,
        roles,
        spelled,
    } = recipe;
    let vectors = no_decay.vectors.then(|| "vectors".to_owned());
    let no_decay: Vec<String> = vectors.into_iter().chain(no_decay.names.iter().cloned()).collect();
    let recompute: Vec<String> = recompute.iter().map(ToString::to_string).collect();
    let spelled: Vec<String> = spelled.iter().map(ToString::to_string).collect();
    let Roles { frozen, trained, untied, constants, ties } = roles;
    let constants: Vec<String> = constants.iter().map(|it| it.name.clone()).collect();
    let ties: Vec<String> = ties.iter().map(|it| format!("{}={}", it.copy, it.original)).collect();
    let list = |all: &[String]| if all.is_empty() { "none".to_owned() } else { all.join(",") };
    let lines = [
        ("loss", loss.to_string()),
        ("optimizer", Op::Update(*optimizer).to_string()),
        ("precision", precision.to_string()),
        ("masters", masters.to_string()),
        ("micro-batches", micro_batches.to_string()),
        ("clip", clip.map_or_else(|| "none".to_owned(), |clip| clip.to_string())),
        ("without decay", list(&no_decay)),
        ("recompute", list(&recompute)),
        ("frozen", list(frozen)),
        ("asked to be trained", list(trained)),
        ("asked to be untied", list(untied)),
        ("no parameters", list(&constants)),
        ("tied", list(&ties)),
        ("spelled out in blocks", list(&spelled)),
    ];
    lines.into_iter().map(|(what, how)| (what.to_owned(), how)).collect()
}

/// What has another number before and after; in order, what comes new last.
fn changed<T: Clone + Default + PartialEq>(
    before: Vec<(String, T)>,
    after: Vec<(String, T)>,
) -> Vec<Change<T>> {
    let mut changes: Vec<Change<T>> =
        before.into_iter().map(|(what, before)| Change { what, before, after: T::default() }).collect();
    for (what, after) in after {
        match changes.iter_mut().find(|change| change.what == what) {
            Some(change) => change.after = after,
            None => changes.push(Change { what, before: T::default(), after }),
        }
    }
    changes.retain(|change| change.before != change.after);
    changes
}

/// What something is called, which one of that name it is, and how it is.
type Named = Vec<((String, usize), String)>;

/// Numbers the things of one name.
fn numbered(all: impl Iterator<Item = (String, String)>) -> Named {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let one = |(name, how): (String, String)| {
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        ((name, *count), how)
    };
    all.map(one).collect()
}

fn operations(plan: &Plan) -> Named {
    let all = (0..plan.graph.nodes.len()).map(NodeId);
    numbered(all.map(|node| (operation_name(plan, node), operation_in_words(plan, node.0))))
}

fn values(plan: &Plan) -> Named {
    let layout = |value: ValueId| plan.layouts[value.0].display(&plan.mesh).to_string();
    numbered(plan.graph.value_ids().map(|value| (value_name(plan, value), layout(value))))
}

/// The moves that bring what a state becomes to the state's place.
fn carried(plan: &Plan) -> Named {
    let carried = plan.graph.training.iter().flat_map(|training| &training.carried);
    let how = |(it, &copy): (&Carried, &Copy)| {
        let mut way = Vec::new();
        let mut copy = copy;
        while let Copy::Transferred(transfer) = copy {
            let transfer = &plan.transfers[transfer];
            way.extend(transfer.moves.iter().rev().map(|step| step.name().to_owned()));
            copy = transfer.from;
        }
        way.reverse();
        let way = if way.is_empty() { "what is made".to_owned() } else { way.join(", ") };
        (value_name(plan, it.state), way)
    };
    numbered(carried.zip(&plan.carried).map(how))
}

/// Where both have something of a name and it is otherwise, or one lacks it; changes of repeated
/// layers together.
fn repeated(before: Named, after: &Named) -> Vec<Repeated> {
    let mut later: BTreeMap<&(String, usize), &String> = after.iter().map(|(key, how)| (key, how)).collect();
    let mut all: Vec<Repeated> = Vec::new();
    let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
    let mut add = |name: &str, before: &str, after: &str| {
        let what = without_numbers(name);
        let key = (what.clone(), before.to_owned(), after.to_owned());
        let next = all.len();
        let place = *places.entry(key).or_insert(next);
        if place == next {
            let change = Change { what, before: before.to_owned(), after: after.to_owned() };
            all.push(Repeated { count: 0, change });
        }
        all[place].count += 1;
    };
    for (key, how) in &before {
        match later.remove(key) {
            Some(now) if now == how => {}
            now => add(&key.0, how, now.map_or("nothing", String::as_str)),
        }
    }
    for (key, how) in after {
        if later.contains_key(key) {
            add(&key.0, "nothing", how);
        }
    }
    all
}

/// How often copies of values are made by which moves.
fn transfers(plan: &Plan) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for transfer in &plan.transfers {
        let moves: Vec<&str> = transfer.moves.iter().map(Move::name).collect();
        let name = without_numbers(&value_name(plan, transfer.value));
        *counts.entry(format!("{} of {name}", moves.join(", "))).or_default() += 1;
    }
    counts.into_iter().collect()
}

fn operation_name(plan: &Plan, node: NodeId) -> String {
    let node = plan.graph.node(node);
    let op = node.op.to_string();
    let kind = op.split_whitespace().next().unwrap_or_default();
    if node.origin.is_empty() { kind.to_owned() } else { format!("{kind} `{}`", node.origin) }
}

fn value_name(plan: &Plan, value: ValueId) -> String {
    match &plan.graph.value(value).source {
        Source::Input(name) => format!("input `{name}`"),
        Source::Weight(name) => format!("weight `{name}`"),
        Source::State(state) => format!("{} `{}`", state.kind.name(), state.name),
        Source::Result { node, index: 0 } => operation_name(plan, *node),
        Source::Result { node, index } => format!("result {index} of {}", operation_name(plan, *node)),
    }
}

/// A name with a star for each number in it.
fn without_numbers(name: &str) -> String {
    let mut text = String::new();
    let mut in_number = false;
    for letter in name.chars() {
        let digit = letter.is_ascii_digit();
        if !digit {
            text.push(letter);
        } else if !in_number {
            text.push('*');
        }
        in_number = digit;
    }
    text
}
