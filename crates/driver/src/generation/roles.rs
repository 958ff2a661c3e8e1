//! Which inputs and outputs of a decoder are what, by their names and types.
//!
//! | tool | input | output |
//! |---|---|---|
//! | TorchScript, dynamo | `past_key_values_0_key` | `present_0_key` |
//! | optimum, onnxruntime-genai | `past_key_values.0.key` | `present.0.key` |
//! | exporter of transformers | `past_key_values.layers.0.keys` | `past_key_values.layers.0.keys` |
//! | static caches | `key_0` | `key_0_out` |
//! | states | `past_key_values.0.conv`, `past_key_values.0.recurrent_state` | `present.0.conv`, .. |
//!
//! Numbers, and whether it is of keys, values or both, pair inputs with outputs; what else names say of
//! caches and of coming and going does not count.

use std::collections::BTreeMap;

use import::{Input, Model};
use plan::{Form, Kept};

/// What an input or output is, that is no part of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// New tokens.
    Tokens,
    /// Which places hold something.
    Mask,
    /// Where new tokens stand.
    Positions,
    /// What comes next.
    Logits,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Tokens, Self::Mask, Self::Positions, Self::Logits];

    /// The name in arguments.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Mask => "mask",
            Self::Positions => "positions",
            Self::Logits => "logits",
        }
    }
}

/// What somebody says of a model whose names say too little.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Inputs and outputs, by what they are.
    pub roles: Vec<(Role, String)>,
    /// The parts of the cache.
    pub kept: Vec<Kept>,
}

/// What the inputs and outputs of a decoder are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The input of new tokens.
    pub tokens: String,
    /// The input that says which places hold something.
    pub mask: Option<String>,
    /// The input that says where new tokens stand.
    pub positions: Option<String>,
    /// The output that says what comes next.
    pub logits: String,
    /// The parts of the cache, in the order of the inputs.
    pub kept: Vec<Kept>,
}

/// The fewest dimensions that a part of a cache has: sequences, places, numbers.
const LEAST_RANK: usize = 3;

/// What the inputs and outputs of a model are; what was found and expected, if that cannot be told.
pub fn roles(model: &Model, told: &Told) -> Result<Roles, String> {
    let inputs = model.inputs();
    let outputs = model.outputs();
    let input_names: Vec<&str> = inputs.iter().map(|it| it.name.as_str()).collect();
    for (role, name) in &told.roles {
        let known = if *role == Role::Logits { &outputs } else { &input_names };
        if !known.contains(&name.as_str()) {
            return Err(format!("there is no `{name}` for {}, there are {}", role.name(), listed(known)));
        }
    }
    let mut kept =
        if told.kept.is_empty() { paired(inputs, &outputs)? } else { given(told, &input_names, &outputs)? };
    for part in &mut kept {
        part.form = form(&part.past);
    }
    let of_role = |role: Role| told.roles.iter().find(|it| it.0 == role).map(|(_, name)| name.clone());
    let is_other = |input: &&Input| {
        let is_kept = kept.iter().any(|part| part.past == input.name);
        !is_kept && (!input.dtype.is_float() || named(&input.name, "mask"))
    };
    let others: Vec<&Input> = inputs.iter().filter(is_other).collect();
    let called = |words: &str| others.iter().find(|it| named(&it.name, words)).map(|it| it.name.clone());
    let mask = of_role(Role::Mask).or_else(|| called("mask"));
    let positions = of_role(Role::Positions).or_else(|| called("position"));
    let tokens = match of_role(Role::Tokens) {
        Some(name) => name,
        None => {
            let has_role = |name: &String| Some(name) == mask.as_ref() || Some(name) == positions.as_ref();
            let rest = others.iter().filter(|it| it.dims.as_ref().is_some_and(|dims| dims.len() == 2));
            let rest: Vec<&str> =
                rest.map(|it| &it.name).filter(|name| !has_role(name)).map(String::as_str).collect();
            one_of(&rest, "input_ids")
                .ok_or_else(|| missing(Role::Tokens, &rest, "`input_ids`", &input_names))?
        }
    };
    let logits = match of_role(Role::Logits) {
        Some(name) => name,
        None => {
            let rest = outputs.iter().copied().filter(|name| kept.iter().all(|part| part.present != *name));
            let rest: Vec<&str> = rest.collect();
            one_of(&rest, "logits").ok_or_else(|| missing(Role::Logits, &rest, "`logits`", &outputs))?
        }
    };
    Ok(Roles { tokens, mask, positions, logits, kept })
}

/// The one of that name, or the only one.
fn one_of(names: &[&str], usual: &str) -> Option<String> {
    let found = names.iter().find(|it| **it == usual).copied();
    found.or(if let [only] = names { Some(*only) } else { None }).map(str::to_owned)
}

fn missing(role: Role, found: &[&str], usual: &str, all: &[&str]) -> String {
    let found = if found.is_empty() { all } else { found };
    let role = role.name();
    format!(
        "which one is {role} cannot be told: found {}, expected {usual}; say it with `--role {role}=NAME`",
        listed(found)
    )
}

fn named(name: &str, words: &str) -> bool {
    name.to_lowercase().contains(words)
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The parts that somebody names.
fn given(told: &Told, inputs: &[&str], outputs: &[&str]) -> Result<Vec<Kept>, String> {
    for Kept { past, present, .. } in &told.kept {
        for (name, known, what) in [(past, inputs, "input"), (present, outputs, "output")] {
            if !known.contains(&name.as_str()) {
                return Err(format!("there is no {what} `{name}`, there are {}", listed(known)));
            }
        }
    }
    Ok(told.kept.clone())
}

/// What a name says of a part of a cache: numbers, what it is of, other words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Signature {
    numbers: Vec<u64>,
    of: Option<Of>,
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Keys,
    Values,
}

/// Words of caches, and of coming and going.
const STEMS: [&str; 6] =
    ["past_key_values", "past_key_value", "present_key_values", "present_key_value", "present", "past"];
/// Words of states, which have no place for each token: of convolutions and of recurrences.
const STATES: [&str; 4] = ["conv", "state", "ssm", "recurrent"];
const NO_WORDS: [&str; 10] =
    ["layers", "layer", "out", "output", "in", "input", "new", "cache", "kv", "updated"];

fn signature(name: &str) -> Signature {
    let mut rest = name.to_lowercase();
    for stem in STEMS {
        rest = rest.replace(stem, ".");
    }
    let (mut numbers, mut of, mut words) = (Vec::new(), None, Vec::new());
    for word in rest.split(|it: char| !it.is_alphanumeric()).filter(|it| !it.is_empty()) {
        match word {
            "key" | "keys" | "k" => of = Some(Of::Keys),
            "value" | "values" | "v" => of = Some(Of::Values),
            _ if NO_WORDS.contains(&word) => {}
            _ => match word.parse() {
                Ok(number) => numbers.push(number),
                Err(_) => words.push(word.to_owned()),
            },
        }
    }
    words.sort();
    Signature { numbers, of, words }
}

/// What a part of a cache has of tokens, by its name.
fn form(name: &str) -> Form {
    let Signature { of, words, .. } = signature(name);
    let is_state = words.iter().flat_map(|it| it.split('_')).any(|word| STATES.contains(&word));
    if of.is_none() && is_state { Form::State } else { Form::Entries }
}

/// The parts of the cache by their names.
fn paired(inputs: &[Input], outputs: &[&str]) -> Result<Vec<Kept>, String> {
    let mut left: BTreeMap<Signature, Vec<&str>> = BTreeMap::new();
    for &output in outputs {
        left.entry(signature(output)).or_default().push(output);
    }
    let is_part = |input: &&Input| {
        input.dtype.is_float() && input.dims.as_ref().is_none_or(|dims| dims.len() >= LEAST_RANK)
    };
    let mut kept = Vec::new();
    let mut alone = Vec::new();
    for input in inputs.iter().filter(is_part) {
        match left.get(&signature(&input.name)).map(Vec::as_slice) {
            Some([present]) if !signature(&input.name).numbers.is_empty() => {
                let (past, present) = (input.name.clone(), (*present).to_owned());
                kept.push(Kept { past, present, form: Form::Entries, window: None });
            }
            _ => alone.push(input.name.as_str()),
        }
    }
    if !alone.is_empty() {
        return Err(format!(
            "its cache cannot be told: no output goes with {}, there are {}; name the pairs, each with \
             `--kept INPUT=OUTPUT`",
            listed(&alone),
            listed(outputs)
        ));
    }
    if kept.is_empty() {
        let found: Vec<&str> = inputs.iter().map(|it| it.name.as_str()).collect();
        return Err(format!(
            "it has no cache: found inputs {} and outputs {}, expected inputs such as `past_key_values.0.key` \
             with outputs such as `present.0.key`; export it with its cache, or name the pairs, each with \
             `--kept INPUT=OUTPUT`",
            listed(&found),
            listed(outputs)
        ));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests;
