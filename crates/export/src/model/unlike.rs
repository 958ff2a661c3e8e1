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
    let mut known: BTreeSet<ValueId> = BTreeSet::new();
    let mut left = vec![experts.operands[1]];
    while let Some(value) = left.pop() {
        let Source::Result { node, .. } = graph.value(value).source else { continue };
        let node = graph.node(node);
        match &node.op {
            _ if !known.insert(value) => {}
            Op::Softmax { dim } => {
                all |= graph.type_of(value).shape.get(*dim) == Some(&count);
            }
            // Scores of experts, and what they are chosen by instead.
            Op::Contract(_) | Op::Unary(Unary::Sigmoid) => {}
            op => {
                divided |= matches!(op, Op::Binary(Binary::Div));
                left.extend(&node.operands);
            }
        }
    }
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
    let mut seen = BTreeSet::new();
    let mut left = vec![units];
    while let Some(id) = left.pop() {
        if id == attention {
            return false;
        }
        if seen.insert(id) {
            left.extend(graph.node(id).operands.iter().filter_map(|&it| maker(graph, it)));
        }
    }
    true
}

/// Which operation makes a value.
fn maker(graph: &Graph, value: ValueId) -> Option<NodeId> {
    match graph.value(value).source {
        Source::Result { node, .. } => Some(node),
        Source::Input(_) | Source::Weight(_) | Source::State(_) => None,
    }
}

/// How queries are rotated after the product that makes them: how many numbers of a head, and which with each other.
pub(super) fn rotation(graph: &Graph, queries: ValueId) -> Option<(u64, Pairing)> {
    let mut left = vec![queries];
    while let Some(value) = left.pop() {
        let Some(id) = maker(graph, value) else { continue };
        let node = graph.node(id);
        match &node.op {
            Op::Rotary(pairing) => {
                return graph.type_of(node.results[0]).shape.last().map(|&it| (it, *pairing));
            }
            Op::Contract(_) | Op::Attention(_) => {}
            _ => left.extend(&node.operands),
        }
    }
    None
}
