//! Which weights a step trains, which not and why, in words.

use std::collections::{BTreeMap, BTreeSet};

use ::plan::{Roles, Why};
use ::train::{Because, Found};
use planner_ir::{Graph, Source, StateKind, Type};
use serde_json::{Value, json};

/// How many names of one kind a line has.
const NAMES: usize = 4;

/// What becomes of the weights of a model.
pub struct Weights<'a> {
    /// The parameters.
    parameters: BTreeMap<&'a str, &'a Type>,
    /// The weights of floating point that stay as they are.
    others: BTreeSet<&'a str>,
    /// The weights of other elements.
    whole: BTreeSet<&'a str>,
    roles: &'a Roles,
    /// Why parameters are some, and which are used several times, if that is known.
    found: Option<&'a Found>,
}

impl<'a> Weights<'a> {
    /// Of a step, or of its stages.
    pub fn of(graphs: impl Iterator<Item = &'a Graph>, roles: &'a Roles, found: Option<&'a Found>) -> Self {
        let mut weights = Self {
            parameters: BTreeMap::new(),
            others: BTreeSet::new(),
            whole: BTreeSet::new(),
            roles,
            found,
        };
        for value in graphs.flat_map(|graph| &graph.values) {
            match &value.source {
                Source::State(state) if state.kind == StateKind::Parameter => {
                    weights.parameters.insert(&state.name, &value.type_);
                }
                Source::Weight(name) if value.type_.dtype.is_float() => {
                    weights.others.insert(name);
                }
                Source::Weight(name) => {
                    weights.whole.insert(name);
                }
                _ => {}
            }
        }
        weights
    }

    /// The weights that are no parameters, and why.
    fn constants(&self) -> BTreeMap<Why, Vec<&'a str>> {
        let mut constants: BTreeMap<Why, Vec<&str>> = BTreeMap::new();
        for constant in &self.roles.constants {
            constants.entry(constant.why).or_default().push(&constant.name);
        }
        constants
    }

    fn is_constant(&self, name: &str) -> bool {
        self.roles.constants.iter().any(|it| it.name == name)
    }

    /// The weights that stay as they are because that was asked.
    fn frozen(&self) -> Vec<&'a str> {
        let others = self.others.iter().copied();
        others.filter(|name| !self.is_constant(name) && self.roles.keeps(name)).collect()
    }

    /// The weights that no gradient reaches.
    fn unreached(&self) -> Vec<&'a str> {
        self.others.iter().copied().filter(|name| !self.roles.keeps(name)).collect()
    }

    fn because(&self) -> BTreeMap<Because, Vec<&'a str>> {
        let mut because: BTreeMap<Because, Vec<&str>> = BTreeMap::new();
        for trained in self.found.iter().flat_map(|it| &it.trained) {
            if self.parameters.contains_key(trained.name.as_str()) {
                because.entry(trained.why).or_default().push(&trained.name);
            }
        }
        because
    }

    fn shared(&self) -> Vec<(&'a str, usize)> {
        let shared = self.found.iter().flat_map(|it| &it.shared);
        let shared = shared.filter(|(name, _)| self.parameters.contains_key(name.as_str()));
        shared.map(|(name, count)| (name.as_str(), *count)).collect()
    }

    /// A few lines, names that differ in numbers together.
    pub fn lines(&self) -> Vec<String> {
        let elements: u64 = self.parameters.values().map(|type_| type_.elements()).sum();
        let rest = match self.others.len() + self.whole.len() {
            0 => String::new(),
            1 => "; 1 weight stays as it is".to_owned(),
            more => format!("; {more} weights stay as they are"),
        };
        let tensors = self.parameters.len();
        let mut lines = vec![format!("trains     {elements} parameters in {tensors} tensors{rest}")];
        for (why, names) in self.because() {
            let which = if why <= Because::Named { String::new() } else { format!(": {}", listed(&names)) };
            lines.push(format!("           {} {}{which}", names.len(), why.in_words()));
        }
        let mut say = |what: &str, names: &[&str], why: &str| {
            if !names.is_empty() {
                lines.push(format!("{what:<10} {}: {why}", listed(names)));
            }
        };
        for (why, names) in self.constants() {
            say("constant", &names, &why.to_string());
        }
        say("frozen", &self.frozen(), "as asked");
        say("unreached", &self.unreached(), "no gradient reaches them");
        for tie in &self.roles.ties {
            let how = if tie.transposed { ", transposed" } else { "" };
            let (copy, original) = (&tie.copy, &tie.original);
            say(
                "tied",
                &[copy],
                &format!("trained as `{original}`{how}, whose copy it is (`--untie` parts them)"),
            );
        }
        for (name, count) in self.shared() {
            say("shared", &[name], &format!("one parameter in {count} places of the model"));
        }
        lines
    }

    /// All names, line by line.
    pub fn all(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.push("parameters".to_owned());
        lines.extend(self.parameters.iter().map(|(name, type_)| format!("           {name}: {type_}")));
        if !self.roles.constants.is_empty() {
            lines.push("constants".to_owned());
        }
        let constants = self.roles.constants.iter();
        lines.extend(constants.map(|it| format!("           {}: {}", it.name, it.why)));
        for (what, names) in [("frozen", self.frozen()), ("unreached", self.unreached())] {
            if !names.is_empty() {
                lines.push(what.to_owned());
            }
            lines.extend(names.iter().map(|name| format!("           {name}")));
        }
        lines
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        let why: BTreeMap<&str, Because> =
            self.found.iter().flat_map(|it| &it.trained).map(|it| (it.name.as_str(), it.why)).collect();
        let trained = self.parameters.iter().map(|(name, type_)| {
            let why = why.get(name).map(|it| it.name());
            json!({ "name": name, "type": type_.to_string(), "why": why })
        });
        let constants = self.roles.constants.iter();
        let ties = self.roles.ties.iter();
        let shared = self.shared().into_iter();
        json!({
            "trained": trained.collect::<Vec<_>>(),
            "constant": constants
                .map(|it| json!({ "name": it.name, "why": it.why.name() }))
                .collect::<Vec<_>>(),
            "frozen": self.frozen(),
            "unreached": self.unreached(),
            "tied": ties
                .map(|it| json!({ "copy": it.copy, "original": it.original, "transposed": it.transposed }))
                .collect::<Vec<_>>(),
            "shared": shared.map(|(name, count)| json!({ "name": name, "places": count })).collect::<Vec<_>>(),
        })
    }
}

/// Names, those that differ in numbers together: `layers.*.norm.weight (12)`.
fn listed(names: &[&str]) -> String {
    let mut kinds: Vec<(String, Vec<&str>)> = Vec::new();
    for name in names {
        let pattern = pattern(name);
        match kinds.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, all)) => all.push(name),
            None => kinds.push((pattern, vec![name])),
        }
    }
    let shown = kinds.iter().take(NAMES).map(|(pattern, all)| match all[..] {
        [one] => one.to_owned(),
        _ => format!("{pattern} ({})", all.len()),
    });
    let mut shown: Vec<String> = shown.collect();
    let more: usize = kinds.iter().skip(NAMES).map(|(_, all)| all.len()).sum();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    shown.join(", ")
}

/// A name with `*` for each number in it.
fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for letter in name.chars() {
        match letter.is_ascii_digit() {
            true if pattern.ends_with('*') => {}
            true => pattern.push('*'),
            false => pattern.push(letter),
        }
    }
    pattern
}

#[cfg(test)]
mod tests;
