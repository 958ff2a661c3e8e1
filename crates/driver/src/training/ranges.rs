//! Numbers in inputs that index classes and tables, checked before a step.

use std::collections::{BTreeMap, BTreeSet};

use kernels::Array;
use planner_ir::{Graph, Op, Source, ValueId};

/// Which numbers an input may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Limit {
    /// The input.
    pub input: String,
    /// What they are.
    pub what: Indexed,
    /// How many there are of what they index: numbers are below.
    pub count: u64,
}

/// What a number in an input says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Indexed {
    /// Which class is right, or this number: that none is asked for.
    Class {
        /// The number.
        ignored: i64,
    },
    /// Which row of a table is taken; negative ones count from the end.
    Row,
}

/// The limits that a program's operations set to its inputs. What is computed from inputs, rather
/// than taken from them as it is, is not known.
pub(crate) fn limits(graph: &Graph) -> Vec<Limit> {
    let mut limits = BTreeSet::new();
    for node in &graph.nodes {
        let (what, extent) = match node.op {
            Op::CrossEntropy { ignored } => {
                (Indexed::Class { ignored }, graph.type_of(node.operands[0]).shape.last())
            }
            Op::Gather { dim } => (Indexed::Row, graph.type_of(node.operands[0]).shape.get(dim)),
            _ => continue,
        };
        let (index, width) = match what {
            Indexed::Class { .. } => rewrite::spelled_labels(graph, node.operands[1]),
            Indexed::Row => (node.operands[1], 1),
        };
        let mut inputs = BTreeSet::new();
        taken(graph, index, &mut inputs);
        for input in inputs {
            limits.extend(extent.map(|&count| Limit { input, what, count: count * width }));
        }
    }
    limits.into_iter().collect()
}

/// The inputs whose elements a value has.
fn taken(graph: &Graph, value: ValueId, inputs: &mut BTreeSet<String>) {
    match &graph.value(value).source {
        Source::Input(name) => {
            inputs.insert(name.clone());
        }
        Source::Result { node, .. } => {
            let node = graph.node(*node);
            let moves = matches!(
                node.op,
                Op::Reshape { .. }
                    | Op::Transpose { .. }
                    | Op::Slice { .. }
                    | Op::Pad { .. }
                    | Op::Concat { .. }
                    | Op::Expand { .. }
                    | Op::Cast(_)
            );
            // Integers made of other numbers are not these.
            if moves && !graph.type_of(value).dtype.is_float() {
                node.operands.iter().for_each(|&operand| taken(graph, operand, inputs));
            }
        }
        Source::Weight(_) | Source::State(_) => {}
    }
}

/// Refuses the first number that is out of range: which of the micro-batch's examples it is in,
/// and what is wrong.
pub(crate) fn check(limits: &[Limit], inputs: &BTreeMap<String, Array>) -> Result<(), (usize, String)> {
    for Limit { input, what, count } in limits {
        let Some(array) = inputs.get(input) else { continue };
        let Ok(numbers) = array.to_integers() else { continue };
        let most = i64::try_from(*count).unwrap_or(i64::MAX);
        let fits = |number: i64| match *what {
            Indexed::Class { ignored } => (0..most).contains(&number) || number == ignored,
            Indexed::Row => (-most..most).contains(&number),
        };
        let Some(place) = numbers.iter().position(|&number| !fits(number)) else { continue };
        let expected = match what {
            Indexed::Class { ignored } => format!("there are {count} classes, and {ignored} for none"),
            Indexed::Row => format!("the table that it indexes has {count} rows"),
        };
        let position = position(place, array.shape());
        let example = position.first().map_or(0, |&it| usize::try_from(it).unwrap_or(0));
        return Err((example, format!("`{input}` is {} at {position:?}: {expected}", numbers[place])));
    }
    Ok(())
}

/// The indices of an element, by its number in row-major order.
fn position(place: usize, shape: &[u64]) -> Vec<u64> {
    let mut rest = u64::try_from(place).unwrap_or(0);
    let mut indices: Vec<u64> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let index = rest % extent.max(1);
            rest /= extent.max(1);
            index
        })
        .collect();
    indices.reverse();
    indices
}

#[cfg(test)]
mod tests;
