//! The rules that a program obeys.
//!
//! Of a graph:
//! - **single-source**: a value that is a result is the one that its operation says, and no other.
//! - **defined-before-use**: an operation uses values that exist and come before its results.
//! - **ordered**: results are numbered in the order of operations.
//! - **results-count**: an operation has as many results as its kind.
//! - **types-infer**: results have the types that inference gives; operands fit.
//! - **dynamic-only-in-region**: operations whose shapes depend on data stand in regions only.
//! - **region-numbering**: in a region, operations use values that come before them, results exist
//!   and have a type each, and both branches of a choice take and give as much as it does.
//! - **shape-sane**: no value has more than 2^56 elements.
//! - **unique-input-names**, **unique-weight-names**, **unique-state-names**,
//!   **unique-output-names**: names differ.
//! - **outputs-exist**: what the program returns are values of it.
//! - **written-over**: what an operation writes its result over is an input of a program that answers, and
//!   nothing else uses it.
//! - **training-only**: states and phases other than forward stand in training steps only, and one
//!   has at least one micro-batch.
//! - **carried-once**: each state becomes one value, of its own type; in order of the states; a
//!   gradient or total what a micro-batch makes, of several with what those before made added; another state
//!   what the update makes.
//! - **phases**: updates come after everything else, and use of it only states and what gradients
//!   and totals become.
//!
//! Of the layouts around an operation:
//! - **rank**, **axes**, **form**, **at-rest**: a layout suits the mesh, the type and its own form.
//! - **even-split**: a split dimension is a multiple of its blocks.
//! - **onto**: some device holds, or computes, every block.
//! - **one-use**: an axis is split over, or owed, once.
//! - **sums**: only numbers are owed as sums.
//! - **nested**: digits of a dimension that several loops index lie within one of them each.
//! - **agree**: dimensions that one loop indexes are split alike.
//! - **whole-loop**: a loop that is needed at once is not split.
//! - **contiguous**: a loop in which the operation depends on positions has contiguous blocks.
//! - **linear**: operands owe sums only if together they are a set in which the results are linear.
//! - **added-once**: an operand that is added to a sum owes what the sum owes.
//! - **owed-sum**: a result owes a sum over the axes of summed loops and those passed through, and
//!   no other.

mod layouts; // the layouts around an operation
mod training; // what a training step is besides a graph
mod regions; // programs whose shapes depend on data

use std::collections::BTreeSet;

use crate::data::Type;
use crate::graph::{Graph, Node, NodeId, Source, ValueId};
use crate::infer::TypeError;
use crate::op::Op;
use crate::violation::Violations;

pub use layouts::verify_layouts;

/// Whether a program obeys the rules.
pub fn verify(graph: &Graph) -> Result<(), Violations> {
    let mut found = Violations(Vec::new());
    values(graph, &mut found);
    for (index, node) in graph.nodes.iter().enumerate() {
        uses(graph, node, &mut found);
        results(graph, NodeId(index), &mut found);
        match &node.op {
            Op::Dynamic(_) => found.add(
                "dynamic-only-in-region",
                name(node),
                format!("`{}` outside a region, expected in one", node.op.name()),
            ),
            Op::Region(region) => regions::region(region, &name(node), &mut found),
            _ => {}
        }
        inference(graph, node, &mut found);
    }
    outputs(graph, &mut found);
    written_over(graph, &mut found);
    training::training(graph, &mut found);
    found.none_or(())
}

/// What an operation is called in messages: its first result.
fn name(node: &Node) -> String {
    let result = node.results.first().map_or_else(|| node.op.name().to_owned(), |it| format!("%{}", it.0));
    if node.origin.is_empty() { result } else { format!("{result} (`{}`)", node.origin) }
}

fn values(graph: &Graph, found: &mut Violations) {
    let (mut inputs, mut weights, mut states) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (index, value) in graph.values.iter().enumerate() {
        let id = format!("%{index}");
        if !is_sane(&value.type_) {
            found.add(
                "shape-sane",
                &id,
                format!("{} has too many elements, expected 2^56 at most", value.type_),
            );
        }
        match &value.source {
            Source::Input(name) => {
                if !inputs.insert(name) {
                    found.add("unique-input-names", &id, format!("`{name}` is another input's name too"));
                }
            }
            Source::Weight(name) => {
                if !weights.insert(name) {
                    found.add("unique-weight-names", &id, format!("`{name}` is another weight's name too"));
                }
            }
            Source::State(state) => {
                if !states.insert(state) {
                    let (kind, name) = (state.kind.name(), &state.name);
                    found.add("unique-state-names", &id, format!("{kind} `{name}` is another state too"));
                }
            }
            Source::Result { node, index: place } => {
                let made = graph.nodes.get(node.0).and_then(|node| node.results.get(*place));
                if made != Some(&ValueId(index)) {
                    let message =
                        format!("is no result {place} of operation {}, which it says it is", node.0);
                    found.add("single-source", &id, message);
                }
            }
        }
    }
}

fn is_sane(type_: &Type) -> bool {
    let product = type_.shape.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent.max(1)));
    product.is_some_and(|product| product <= 1 << 56)
}

fn uses(graph: &Graph, node: &Node, found: &mut Violations) {
    for operand in &node.operands {
        if operand.0 >= graph.values.len() {
            found.add("defined-before-use", name(node), format!("uses %{}, which does not exist", operand.0));
        } else if node.results.iter().any(|result| result <= operand) {
            found.add("defined-before-use", name(node), format!("uses %{}, which comes later", operand.0));
        }
    }
}

fn results(graph: &Graph, id: NodeId, found: &mut Violations) {
    let node = graph.node(id);
    for (index, result) in node.results.iter().enumerate() {
        let source = graph.values.get(result.0).map(|value| &value.source);
        if source != Some(&Source::Result { node: id, index }) {
            let message = format!("its result {index} is %{}, which has another source", result.0);
            found.add("single-source", name(node), message);
        }
    }
    let before = graph.nodes[..id.0].iter().rev().find_map(|node| node.results.last());
    let mut order = before.into_iter().chain(&node.results);
    let mut last = order.next();
    for result in order {
        if last >= Some(result) {
            found.add("ordered", name(node), format!("%{} comes too late or twice", result.0));
        }
        last = Some(result);
    }
}

fn inference(graph: &Graph, node: &Node, found: &mut Violations) {
    let types: Option<Vec<Type>> = node
        .operands
        .iter()
        .map(|operand| graph.values.get(operand.0).map(|value| value.type_.clone()))
        .collect();
    // What is wrong with the operands themselves has been said.
    let Some(types) = types.filter(|types| types.iter().all(is_sane)) else { return };
    match node.op.infer(&types) {
        Err(TypeError::Dynamic) => {}
        Err(error) => found.add("types-infer", name(node), error.to_string()),
        Ok(types) if types.len() != node.results.len() => found.add(
            "results-count",
            name(node),
            format!("{} results, expected {}", node.results.len(), types.len()),
        ),
        Ok(types) => {
            for (result, expected) in node.results.iter().zip(&types) {
                let stated = graph.values.get(result.0).map(|value| &value.type_);
                if let Some(stated) = stated.filter(|stated| *stated != expected) {
                    let message = format!("is {stated}, expected {expected}");
                    found.add("types-infer", format_args!("%{}", result.0), message);
                }
            }
        }
    }
}

fn outputs(graph: &Graph, found: &mut Violations) {
    let mut names = BTreeSet::new();
    for output in &graph.outputs {
        let name = format!("output `{}`", output.name);
        if output.value.0 >= graph.values.len() {
            found.add("outputs-exist", &name, format!("is %{}, which does not exist", output.value.0));
        }
        if !names.insert(&output.name) {
            found.add("unique-output-names", &name, "another output has its name too");
        }
    }
}

fn written_over(graph: &Graph, found: &mut Violations) {
    if graph.nodes.iter().all(|node| node.op.written().is_none()) {
        return;
    }
    let mut uses = vec![0_usize; graph.values.len()];
    let used = graph.nodes.iter().flat_map(|node| &node.operands);
    for value in used.chain(graph.outputs.iter().map(|it| &it.value)) {
        uses.get_mut(value.0).into_iter().for_each(|it| *it += 1);
    }
    for (id, node) in graph.node_ids().zip(&graph.nodes) {
        let Some(value) = node.op.written().and_then(|it| node.operands.get(it)) else { continue };
        let message = match uses.get(value.0) {
            Some(1) if graph.written(id).is_some() => continue,
            Some(0 | 1) => "which is no input of a program that answers, expected one",
            Some(_) => "which is used besides, expected nothing else that uses it",
            // That it does not exist has been said.
            None => continue,
        };
        found.add("written-over", name(node), format!("is written over %{}, {message}", value.0));
    }
}

#[cfg(test)]
mod tests;
