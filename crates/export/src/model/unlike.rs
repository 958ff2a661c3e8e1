//! What of a model is not as decoders usually are, which arguments of frameworks do not say.

use std::collections::BTreeSet;

use plan::Plan;
use planner_ir::{Binary, Graph, Node, NodeId, Op, OpClass, Pairing, Phase, Source, Unary, ValueId};

use super::{Model, Trait, small};

/// How far the factor of scores may be from what it usually is, relative to it.
const NEAR: f64 = 0.01;

/// Adds what operations tell to a model of which all else is known.
pub(super) fn look_at(model: &mut Model, stages: &[&Plan]) {
    for plan in stages {
        let graph = &plan.graph;
        for node in graph.nodes.iter().filter(|it| it.phase == Phase::Forward) {
            model.traits.extend(unlike(model, graph, node));
        }
    }
    // A stage may begin behind the attention of a layer; the first does not.
    if stages.first().is_some_and(|it| beside(&it.graph)) && !model.traits.contains(&Trait::States) {
        model.traits.insert(Trait::Beside);
    }
}

/// What one operation tells.
fn unlike(model: &Model, graph: &Graph, node: &Node) -> Option<Trait> {
    let shape = &graph.type_of(*node.results.first()?).shape;
    let last = shape.last().copied();
    match &node.op {
        op if matches!(op.class(), OpClass::Recurrence(_)) => Some(Trait::States),
        Op::Attention(it) if it.softcap.0 != 0.0 => Some(Trait::BoundedScores),
        Op::Attention(it) if model.latent.is_none() && (it.scale.0 - 1.0).abs() > NEAR => {
            let [.., size] = model.heads?;
            let usual = small(size).sqrt().recip();
            ((it.scale.0 / usual - 1.0).abs() > NEAR).then_some(Trait::OtherFactor)
        }
        Op::Unary(Unary::Tanh) if shape.len() > 2 && last == model.vocabulary => Some(Trait::BoundedTokens),
        Op::Binary(Binary::Mul) if shape.len() > 2 && (last == model.hidden || last == model.vocabulary) => {
            let is_number = |it: &ValueId| graph.type_of(*it).shape.is_empty();
            node.operands.iter().any(is_number).then_some(Trait::Multiplied)
        }
        _ => None,
    }
}

/// Whether weights of experts come from a softmax over all of so many experts without being divided by anything, such as
/// by what those of a token sum to.
pub(super) fn softmax_before_choice(graph: &Graph, experts: &Node, count: u64) -> bool {
    let (mut all, mut divided) = (false, false);
    back(graph, &experts.operands[1..2], |id| {
        let node = graph.node(id);
        if let Op::Softmax { dim } = node.op {
            all |= graph.type_of(node.results[0]).shape.get(dim) == Some(&count);
        }
        divided |= matches!(node.op, Op::Binary(Binary::Div));
        // Scores of experts, and what they are chosen by instead.
        !matches!(node.op, Op::Softmax { .. } | Op::Unary(Unary::Sigmoid)) && !is_product(&node.op)
    });
    all && !divided
}

/// Whether the first units of a model do not wait for its first attention.
fn beside(graph: &Graph) -> bool {
    let forward = |id: &NodeId| graph.node(*id).phase == Phase::Forward;
    let first =
        |is: &dyn Fn(&Op) -> bool| graph.node_ids().filter(forward).find(|&it| is(&graph.node(it).op));
    let attention = first(&|op| matches!(op, Op::Attention(_)));
    let units = first(&|op| {
        matches!(
            op,
            Op::Gated(_)
                | Op::Experts { .. }
                | Op::Unary(Unary::Gelu | Unary::GeluTanh | Unary::GeluQuick | Unary::Relu | Unary::Silu)
        )
    });
    let (Some(attention), Some(units)) = (attention, units) else { return false };
    let mut waits = false;
    back(graph, &graph.node(units).operands, |id| {
        waits |= id == attention;
        !waits
    });
    !waits
}

/// Looks at each operation that values are of, from the last ones back: at operands of those of which that is said.
fn back(graph: &Graph, values: &[ValueId], mut goes_on: impl FnMut(NodeId) -> bool) {
    let mut seen = BTreeSet::new();
    let mut left = values.to_vec();
    while let Some(value) = left.pop() {
        let Source::Result { node, .. } = graph.value(value).source else { continue };
        if seen.insert(node) && goes_on(node) {
            left.extend(&graph.node(node).operands);
        }
    }
}

/// Whether an operation is a product, of narrow numbers too.
fn is_product(op: &Op) -> bool {
    matches!(op, Op::Contract(_) | Op::ScaledContract { .. })
}

/// How queries are rotated after the product that makes them: how many numbers of a head, and which with each other.
pub(super) fn rotation(graph: &Graph, queries: ValueId) -> Option<(u64, Pairing)> {
    let mut found = None;
    back(graph, &[queries], |id| {
        let node = graph.node(id);
        if let (Op::Rotary(pairing), None) = (&node.op, found) {
            found = graph.type_of(node.results[0]).shape.last().map(|&it| (it, *pairing));
        }
        found.is_none() && !matches!(node.op, Op::Attention(_)) && !is_product(&node.op)
    });
    found
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use planner_ir::{Pairing, ValueId, parse_graph};

    use super::rotation;

    /// Sums of a value with itself have more ways back than can be counted, and one rotation may stand behind all.
    #[test]
    fn looking_back_takes_each_operation_once() {
        let doubled = |first: &str| {
            let mut text =
                format!("graph \"\" {{\n  %0 = input \"x\" : f32[2,4]\n  %1 = {first} : f32[2,4]\n");
            (2..70).for_each(|it| writeln!(text, "  %{it} = add %{0} %{0} : f32[2,4]", it - 1).unwrap());
            parse_graph(&(text + "  return \"y\" %69\n}\n")).unwrap()
        };
        assert_eq!(rotation(&doubled("neg %0"), ValueId(69)), None);
        let rotated = doubled("rotary pairing=neighbours %0 %0 %0");
        assert_eq!(rotation(&rotated, ValueId(69)), Some((4, Pairing::Neighbours)));
    }
}
