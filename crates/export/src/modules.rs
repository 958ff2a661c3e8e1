//! How the modules of transformers are split over tensor parallel devices, by the names of their parameters.
//!
//! Source: transformers 5.24.0, `base_model_tp_plan` in `transformers/models/*/configuration_*.py` for what its modules
//! bear: what takes apart what a packed product makes, or normalises all heads together, wants it whole; sinks, states
//! and `Conv1D` are not split. `tests/cases/export/transformers.txt` has these plans.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Plan, parameters};

use crate::job::Job;
use crate::layers::names;
use crate::model::{Model, Trait};
use crate::placements::{Cut, cuts, of_all_layers};

/// How a module is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Style {
    /// By columns; the next product takes what it makes in parts.
    Columns,
    /// By columns of each of two parts that are multiplied, gates and the way up.
    Halves,
    /// By columns, and what it makes is brought together.
    Gathered,
    /// By rows of what is in parts.
    Rows,
    /// By rows of what is whole.
    RowsOfWhole,
    /// Not, but its gradients are sums over devices.
    Summed,
    /// Not, but gradients of the rotated keys that it makes are (latent attention).
    SummedKeys,
}

/// Modules that are split, and those that are not though a plan does: why.
pub(crate) struct Modules {
    /// Each by its name, in which `*` stands for the number of a layer.
    pub(crate) styles: BTreeMap<String, Style>,
    /// What modules lie in, and what keeps them whole.
    pub(crate) whole: BTreeMap<String, &'static str>,
}

/// Those of a job, over so many devices.
pub(crate) fn modules(job: &Job<'_>, model: &Model, tensor: u64) -> Modules {
    // Weights, and those that what is at rest is prepared of.
    let named = |plan: &&Plan| -> Vec<String> {
        parameters(plan).iter().flat_map(|it| names(plan, it.value)).map(of_all_layers).collect()
    };
    let names: BTreeSet<String> = job.stages().iter().flat_map(named).collect();
    let mut around: BTreeMap<String, Vec<(String, Cut)>> = BTreeMap::new();
    for (name, cut) in cuts(job) {
        let Some(module) = name.strip_suffix(".weight") else { continue };
        let (parent, leaf) = module.rsplit_once('.').unwrap_or(("", module));
        // Routers and gates are modules of their own, which models split as they need.
        if cut != Cut::Other && !matches!(leaf, "gate" | "router" | "shared_expert_gate") {
            around.entry(parent.to_owned()).or_default().push((leaf.to_owned(), cut));
        }
    }
    let mut found = Modules { styles: BTreeMap::new(), whole: BTreeMap::new() };
    for (parent, inside) in around {
        let has = |leaf: &str| names.contains(&format!("{parent}.{leaf}"));
        if let Some(why) = why_whole(&has, &inside) {
            found.whole.insert(parent, why);
            continue;
        }
        let gathers = has("q_norm.weight") && model.traits.contains(&Trait::NormsOverHeads);
        let packed = inside.iter().any(|it| it.1 == Cut::Columns && PACKED.contains(&it.0.as_str()));
        if !is_split_alike(&has, &inside, gathers || packed) {
            found.whole.insert(parent, "products beside others that are whole");
            continue;
        }
        let has_heads = has("k_proj.weight") || has("query_key_value.weight");
        let falls = || model.heads.is_none_or(|[_, keys, _]| keys.is_multiple_of(tensor.max(1)));
        if has_heads && !gathers && !falls() {
            found.whole.insert(parent, "heads of keys that are fewer than devices");
            continue;
        }
        let path = |leaf: &str| if parent.is_empty() { leaf.to_owned() } else { format!("{parent}.{leaf}") };
        for (leaf, cut) in &inside {
            if *cut == Cut::Rows && !LAST.contains(&leaf.as_str()) {
                found.whole.insert(path(leaf), "products of what is whole");
                continue;
            }
            let style = match cut {
                Cut::Columns if leaf == HALVES => Style::Halves,
                Cut::Columns if gathers || packed || !parent.contains('*') => Style::Gathered,
                Cut::Columns => Style::Columns,
                Cut::Rows if gathers || packed => Style::RowsOfWhole,
                Cut::Rows => Style::Rows,
                Cut::Other => continue,
            };
            found.styles.insert(path(leaf), style);
        }
        if inside.iter().all(|it| it.1 != Cut::Columns) || gathers {
            continue;
        }
        for (leaf, style) in [
            ("q_norm", Style::Summed),
            ("k_norm", Style::Summed),
            ("q_layernorm", Style::Summed),
            ("k_layernorm", Style::Summed),
            ("kv_a_proj_with_mqa", Style::SummedKeys),
        ] {
            if has(&format!("{leaf}.weight")) {
                found.styles.insert(path(leaf), style);
            }
        }
    }
    found
}

/// The product whose halves are multiplied.
const HALVES: &str = "gate_up_proj";

/// Products of which modules take apart what they make, by sizes of the whole.
const PACKED: [&str; 3] = ["qkv_proj", HALVES, "Wqkv"];

/// Products of what a module takes, which it brings together: heads with heads, or units with their gates.
const FIRST: [&str; 15] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "q_b_proj",
    "kv_b_proj",
    "qkv_proj",
    "query_key_value",
    "Wqkv",
    "gate_proj",
    "up_proj",
    HALVES,
    "w1",
    "w3",
    "dense_h_to_4h",
    "fc1",
];

/// Products that take what others have made in parts.
const LAST: [&str; 8] = ["o_proj", "down_proj", "dense", "dense_4h_to_h", "fc2", "out_proj", "c_proj", "w2"];

/// Whether all first products of a module are split by columns, and the last by rows of what they make: a module has
/// either all its heads or units, or a part of them everywhere. What is brought together the last may take whole.
fn is_split_alike(has: &dyn Fn(&str) -> bool, inside: &[(String, Cut)], gathered: bool) -> bool {
    let cut = |leaf: &str| inside.iter().find(|it| it.0 == leaf).map(|it| it.1);
    let of = |leaves: &[&'static str]| -> Vec<Option<Cut>> {
        leaves.iter().filter(|leaf| has(&format!("{leaf}.weight"))).map(|leaf| cut(leaf)).collect()
    };
    let [first, last] = [of(&FIRST), of(&LAST)];
    let is_columns = |it: &Option<Cut>| *it == Some(Cut::Columns);
    let is_rows = |it: &Option<Cut>| *it == Some(Cut::Rows) || gathered && it.is_none();
    match (first.is_empty(), last.iter().all(Option::is_none)) {
        (true, true) => true,
        (true, false) => inside.iter().any(|it| it.1 == Cut::Columns),
        (false, _) => first.iter().all(is_columns) && last.iter().all(is_rows),
    }
}

/// What keeps modules whole that have such parameters, and lie beside such products.
fn why_whole(has: &dyn Fn(&str) -> bool, inside: &[(String, Cut)]) -> Option<&'static str> {
    if has("A_log") {
        return Some("modules with a state");
    }
    if has("sinks") {
        return Some("attention with sinks");
    }
    inside.iter().any(|it| it.0.starts_with("c_")).then_some("products of `Conv1D`")
}

impl Modules {
    /// In words, which modules have on each device all that they make, though a plan splits it.
    pub(crate) fn lost(&self, title: &str) -> Vec<String> {
        let whole = self
            .whole
            .iter()
            .map(|(parent, why)| format!("`{parent}` is not in parts: {title} does not split {why}"));
        let gathered = self.styles.iter().filter(|(module, style)| {
            module.contains('*') && matches!(style, Style::Gathered | Style::Halves)
        });
        let gathered = gathered.map(|(module, _)| {
            format!("what `{module}` makes is brought together: {title} has it whole on each device there")
        });
        whole.chain(gathered).collect()
    }

    /// The same for a runtime that brings nothing together, but splits halves.
    pub(crate) fn without_gathers(mut self) -> Self {
        let parent = |module: &str| module.rsplit_once('.').map_or("", |it| it.0).to_owned();
        let of = |is: &dyn Fn(&str, Style) -> bool| -> BTreeSet<String> {
            self.styles.iter().filter(|(module, style)| is(module, **style)).map(|it| parent(it.0)).collect()
        };
        let halves = of(&|_, style| style == Style::Halves);
        let apart = of(&|module, style| style == Style::Gathered && module.contains('*'));
        self.styles.retain(|module, _| !apart.contains(&parent(module)));
        for (_, style) in self.styles.iter_mut().filter(|it| halves.contains(&parent(it.0))) {
            if *style == Style::RowsOfWhole {
                *style = Style::Rows;
            }
        }
        self.whole.extend(apart.into_iter().map(|it| (it, "what takes products apart that are whole")));
        self
    }
}

#[cfg(test)]
mod tests;
