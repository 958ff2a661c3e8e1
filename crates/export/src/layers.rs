//! Which layers of the model its stages have, by the names of parameters.

use std::collections::{BTreeMap, BTreeSet};

use plan::{Assignment, Parameter, Plan, parameters};
use planner_ir::{Source, State, StateKind, ValueId};

use crate::error::ExportError;
use crate::job::Job;

/// Layers, in the order of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    /// What their names begin with, before the number: `model.layers`.
    pub(crate) prefix: String,
    /// For each stage, how many of them it has.
    pub(crate) of_stages: Vec<u64>,
    /// Those that lie in two stages or more.
    pub(crate) cut: Vec<u64>,
    /// How many of the last predict tokens after the next.
    pub(crate) further: u64,
}

/// The product that layers alone have that predict tokens after the next, as checkpoints call it.
const JOINED: &str = ".eh_proj.";

impl Layers {
    /// Those of a job. A layer of which several stages have parameters is given to the one that has the most
    /// bytes of it, the earlier of equals.
    pub(crate) fn of(job: &Job<'_>) -> Result<Self, ExportError> {
        let mut prefixes: BTreeSet<String> = BTreeSet::new();
        let mut bytes: BTreeMap<u64, BTreeMap<usize, u64>> = BTreeMap::new();
        let mut further = BTreeSet::new();
        for (stage, plan) in job.stages().into_iter().enumerate() {
            for (value, name) in trained(plan) {
                let Some((prefix, layer)) = layer(name) else { continue };
                prefixes.insert(prefix.to_owned());
                if name.contains(JOINED) {
                    further.insert(layer);
                }
                let size = plan.graph.type_of(value).bytes();
                *bytes.entry(layer).or_default().entry(stage).or_default() += size;
            }
        }
        let mut prefixes = prefixes.into_iter();
        let prefix = match (prefixes.next(), prefixes.next()) {
            (Some(prefix), None) => prefix,
            (None, _) => return Err(ExportError::NoLayers),
            (Some(one), Some(other)) => {
                return Err(ExportError::Kinds([one, other].into_iter().chain(prefixes).collect()));
            }
        };
        let mut of_stages = vec![0; job.stages().len()];
        let mut cut = Vec::new();
        for (layer, stages) in bytes {
            // Of equals the last is the greatest: the earliest stage.
            let most = stages.iter().rev().max_by_key(|(_, size)| **size);
            if let Some((&stage, _)) = most {
                of_stages[stage] += 1;
            }
            if stages.len() > 1 {
                cut.push(layer);
            }
        }
        Ok(Self { prefix, of_stages, cut, further: u64::try_from(further.len()).unwrap_or(u64::MAX) })
    }
}

/// What a plan trains, by name: buffers and masks are not among these. For inference the weights that
/// operations use with something else.
pub(crate) fn trained(plan: &Plan) -> Vec<(ValueId, &str)> {
    let graph = &plan.graph;
    if graph.training.is_some() {
        let parameter = |value: ValueId| match &graph.value(value).source {
            Source::State(State { kind: StateKind::Parameter, name }) => Some((value, name.as_str())),
            _ => None,
        };
        return graph.value_ids().filter_map(parameter).collect();
    }
    let weight = |it: Parameter| match &graph.value(it.value).source {
        Source::Weight(name) => Some((it.value, name.as_str())),
        _ => None,
    };
    parameters(plan).into_iter().filter_map(weight).collect()
}

/// What is at rest is called: a parameter by its name, what is prepared of weights by theirs.
pub(crate) fn names(plan: &Plan, value: ValueId) -> Vec<&str> {
    match &plan.graph.value(value).source {
        Source::State(State { kind: StateKind::Parameter, name }) | Source::Weight(name) => vec![name],
        Source::Result { node, .. } if plan.assignments[node.0] == Assignment::Prepared => {
            plan.graph.node(*node).operands.iter().flat_map(|&it| names(plan, it)).collect()
        }
        _ => Vec::new(),
    }
}

/// The layer of a parameter: what its name begins with, and the first number in it.
pub(crate) fn layer(name: &str) -> Option<(&str, u64)> {
    let mut start = 0;
    for part in name.split('.') {
        if let Ok(number) = part.parse() {
            return Some((name[..start].trim_end_matches('.'), number));
        }
        start += part.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::layer;

    #[test]
    fn a_layer_is_the_first_number_of_a_name() {
        assert_eq!(layer("model.layers.12.mlp.experts.3.weight"), Some(("model.layers", 12)));
        assert_eq!(layer("h.0.attn.c_attn.weight"), Some(("h", 0)));
        assert_eq!(layer("model.embed_tokens.weight"), None);
        assert_eq!(layer("layer1.weight"), None);
    }
}
