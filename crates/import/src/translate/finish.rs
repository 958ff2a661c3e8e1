//! From what was built to a graph: what no output needs is dropped, equal constants are one, and
//! operations whose shapes depend on data are enclosed in regions.

use std::collections::{BTreeMap, BTreeSet};

use planner_ir::{Graph, Op, Output, Source, ValueId};

use super::branch;
use crate::builder::{Builder, Origin, Step};
use crate::error::ImportError;
use crate::groups;

/// The graph that returns these values.
pub(crate) fn graph(
    builder: Builder,
    name: &str,
    outputs: Vec<(String, ValueId)>,
) -> Result<Graph, ImportError> {
    let steps = live(&builder, &outputs);
    let groups = groups::grouped(&builder, &steps);
    let mut finisher = Finisher {
        graph: Graph { name: name.to_owned(), ..Graph::default() },
        numbers: BTreeMap::new(),
        constants: BTreeMap::new(),
    };
    finisher.sources(&builder, &steps, &outputs);
    let mut used = users(&steps);
    for (_, value) in &outputs {
        used.entry(*value).or_default().push(usize::MAX);
    }
    for group in &groups {
        finisher.group(&builder, &steps, group, &used);
    }
    let Finisher { mut graph, numbers, .. } = finisher;
    for (name, value) in outputs {
        graph.outputs.push(Output { name, value: numbers[&value] });
    }
    Ok(graph)
}

/// What is known while a graph is made.
struct Finisher {
    graph: Graph,
    /// The graph's value for each of the builder's.
    numbers: BTreeMap<ValueId, ValueId>,
    /// The values of operations without operands.
    constants: BTreeMap<Op, ValueId>,
}

impl Finisher {
    /// Adds the inputs and weights that are used, in order of their use.
    fn sources(&mut self, builder: &Builder, steps: &[&Step], outputs: &[(String, ValueId)]) {
        let used = steps.iter().flat_map(|step| &step.operands).chain(outputs.iter().map(|(_, value)| value));
        let used: Vec<ValueId> = used.copied().collect();
        let mut seen = BTreeSet::new();
        let first_uses: Vec<ValueId> = used.into_iter().filter(|value| seen.insert(*value)).collect();
        let is_input = |value: &ValueId| matches!(builder.values[value.0].source, Origin::Input(_));
        let (inputs, others): (Vec<ValueId>, Vec<ValueId>) = first_uses.into_iter().partition(is_input);
        for value in inputs.into_iter().chain(others) {
            let entry = &builder.values[value.0];
            let source = match &entry.source {
                Origin::Input(name) => Source::Input(name.clone()),
                Origin::Weight(name) => Source::Weight(name.clone()),
                Origin::Step => continue,
            };
            let number = self.graph.push_value(entry.type_.clone(), source);
            self.numbers.insert(value, number);
        }
    }

    fn group(
        &mut self,
        builder: &Builder,
        steps: &[&Step],
        group: &[usize],
        used: &BTreeMap<ValueId, Vec<usize>>,
    ) {
        if let [index] = *group
            && !groups::is_dynamic(builder, steps[index])
        {
            return self.step(builder, steps[index]);
        }
        let mut inside: Vec<&Step> = constants_of(steps, group);
        inside.extend(group.iter().map(|&index| steps[index]));
        let results = group.iter().flat_map(|&index| steps[index].results.iter().copied());
        let results = results.filter(|result| {
            let users = used.get(result).map_or(&[][..], Vec::as_slice);
            users.iter().any(|user| group.binary_search(user).is_err())
        });
        let results: Vec<ValueId> = results.collect();
        let types: Vec<_> = results.iter().map(|&result| builder.type_of(result).clone()).collect();
        let (region, captured) = branch::enclose(&[], &inside, &results, types.clone());
        let operands = captured.iter().map(|value| self.numbers[value]).collect();
        let origin = group.first().map_or_else(String::new, |&index| steps[index].origin.clone());
        let numbers = self.graph.push_node(Op::Region(Box::new(region)), operands, types, origin);
        self.numbers.extend(results.into_iter().zip(numbers));
    }

    fn step(&mut self, builder: &Builder, step: &Step) {
        let known = if step.operands.is_empty() { self.constants.get(&step.op) } else { None };
        if let (Some(&number), [result]) = (known, step.results.as_slice()) {
            self.numbers.insert(*result, number);
            return;
        }
        let types = step.results.iter().map(|&result| builder.type_of(result).clone()).collect();
        let operands = step.operands.iter().map(|operand| self.numbers[operand]).collect();
        let results = self.graph.push_node(step.op.clone(), operands, types, step.origin.clone());
        if let (true, [result]) = (step.operands.is_empty(), results.as_slice()) {
            self.constants.insert(step.op.clone(), *result);
        }
        self.numbers.extend(step.results.iter().copied().zip(results));
    }
}

/// The steps that the outputs need.
fn live<'b>(builder: &'b Builder, outputs: &[(String, ValueId)]) -> Vec<&'b Step> {
    let mut wanted = vec![false; builder.values.len()];
    for (_, value) in outputs {
        wanted[value.0] = true;
    }
    let mut live = Vec::new();
    for step in builder.steps.iter().rev() {
        if step.results.iter().any(|result| wanted[result.0]) {
            for operand in &step.operands {
                wanted[operand.0] = true;
            }
            live.push(step);
        }
    }
    live.reverse();
    live
}

/// For each value, the steps that use it.
fn users(steps: &[&Step]) -> BTreeMap<ValueId, Vec<usize>> {
    let mut users: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
    for (index, step) in steps.iter().enumerate() {
        for &operand in &step.operands {
            users.entry(operand).or_default().push(index);
        }
    }
    users
}

/// The constants that steps of a group use: a region has its own.
fn constants_of<'b>(steps: &[&'b Step], group: &[usize]) -> Vec<&'b Step> {
    let used: BTreeSet<ValueId> =
        group.iter().flat_map(|&index| steps[index].operands.iter().copied()).collect();
    let constants = steps.iter().enumerate().filter(|(index, step)| {
        let is_used = step.results.iter().any(|result| used.contains(result));
        step.operands.is_empty() && is_used && group.binary_search(index).is_err()
    });
    constants.map(|(_, step)| *step).collect()
}
