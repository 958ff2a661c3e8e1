//! What comes next by a model, told a whole sequence and an empty cache, without padding, on one device.

use std::collections::BTreeMap;

use driver::generation::roles::{Roles, Told, roles};
use files::model_file::ModelFile;
use import::{Bindings, Dim, Input};
use kernels::Array;
use planner_ir::{Graph, Op, Source};
use run::{Sources, Stored};

use super::cases::Case;

/// The logits of the last token of a sequence.
pub(super) fn logits(case: &Case, file: &ModelFile, weights: &dyn Stored, tokens: &[i64]) -> Vec<f64> {
    let roles = roles(&file.model, &Told::default()).unwrap();
    if case.prompt.is_none() {
        return token_by_token(file, &roles, tokens);
    }
    let length = u64::try_from(tokens.len()).unwrap();
    let mut bindings = Bindings::default();
    for input in file.model.inputs() {
        bindings.inputs.insert(input.name.clone(), shape(case, &roles, input, length));
    }
    let graph = file.model.import(&bindings).unwrap();
    let upwards: Vec<i64> = (0..).take(tokens.len()).collect();
    let ones = vec![1; tokens.len()];
    let mut inputs = BTreeMap::new();
    for (name, numbers) in
        [(Some(&roles.tokens), tokens), (roles.positions.as_ref(), &upwards), (roles.mask.as_ref(), &ones)]
    {
        give(&mut inputs, &graph, name, numbers);
    }
    for part in &roles.kept {
        give(&mut inputs, &graph, Some(&part.past), &[]);
    }
    evaluated(weights, &graph, &inputs, &roles)
}

/// The shape of an input for one sequence with nothing kept.
fn shape(case: &Case, roles: &Roles, input: &Input, length: u64) -> Vec<u64> {
    let dims = input.dims.as_ref().unwrap();
    let kept = roles.kept.iter().any(|part| part.past == input.name);
    let size = |(index, dim): (usize, &Dim)| match dim {
        Dim::Number(number) => *number,
        // The width of a head, which its weights say.
        Dim::Symbol(symbol) if symbol == "kv_cache_dim" => 16,
        Dim::Symbol(symbol) => match case.dims.iter().find(|(name, _)| name == symbol) {
            Some((_, size)) => *size,
            None if index == 0 => 1,
            None if kept => 0,
            None => length,
        },
    };
    dims.iter().enumerate().map(size).collect()
}

/// The same with a cache of fixed size, whose entries are put in its place one by one.
fn token_by_token(file: &ModelFile, roles: &Roles, tokens: &[i64]) -> Vec<f64> {
    let graph = file.model.import(&Bindings::default()).unwrap();
    let mut kept: BTreeMap<String, Array> = BTreeMap::new();
    let mut last = Vec::new();
    for (place, &token) in (0_i64..).zip(tokens) {
        let mut inputs = kept.clone();
        // Every sequence of the model's batch is this one.
        give(&mut inputs, &graph, Some(&roles.tokens), &[token, token]);
        give(&mut inputs, &graph, roles.positions.as_ref(), &[place]);
        for part in &roles.kept {
            if !inputs.contains_key(&part.past) {
                give(&mut inputs, &graph, Some(&part.past), &[]);
            }
        }
        let left = run::reference(&graph, Sources { inputs: &inputs, weights: file }).unwrap();
        let part = |part: &plan::Kept| (part.past.clone(), left[&part.present].clone());
        kept = roles.kept.iter().map(part).collect();
        let numbers = left[&roles.logits].to_floats().unwrap();
        last = numbers[..numbers.len() / 2].to_vec();
    }
    last
}

/// Adds an input that the program has; zeros if no numbers are given.
fn give(inputs: &mut BTreeMap<String, Array>, graph: &Graph, name: Option<&String>, numbers: &[i64]) {
    let is_it = |source: &Source| matches!(source, Source::Input(it) if Some(it) == name);
    let Some(value) = graph.values.iter().find(|it| is_it(&it.source)) else { return };
    let array = if numbers.is_empty() {
        Array::zeros(value.type_.clone()).unwrap()
    } else {
        let array = Array::of(value.type_.shape.clone(), numbers).unwrap();
        kernels::evaluate(&Op::Cast(value.type_.dtype), &[&array]).unwrap().remove(0)
    };
    inputs.insert(name.unwrap().clone(), array);
}

fn evaluated(
    weights: &dyn Stored,
    graph: &Graph,
    inputs: &BTreeMap<String, Array>,
    roles: &Roles,
) -> Vec<f64> {
    let left = run::reference(graph, Sources { inputs, weights }).unwrap();
    let logits = &left[&roles.logits];
    let numbers = logits.to_floats().unwrap();
    let vocabulary = usize::try_from(*logits.shape().last().unwrap()).unwrap();
    numbers[numbers.len() - vocabulary..].to_vec()
}
