//! Which keys the queries of attention see, in a graph in named operations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use planner_ir::{DType, Graph, NodeId, Op, Source, ValueId};

use super::Seeing;
use super::reading::{Reading, forms};

/// Which keys queries see, if none of them is padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    /// There is one query.
    One,
    /// Those up to their own, as attention says itself.
    Earlier,
    /// So many up to their own, as attention says itself.
    Near(u64),
    /// Later ones too.
    All,
    /// Those up to their own, but only by a mask: attention computes the others too.
    Masked,
    /// Some later ones too, and others not: a prefix, images, whole blocks.
    Some,
    /// It is not known which: a mask says it.
    Unknown,
    /// It was not found to be attention: products and a softmax over all scores.
    Parts,
}

/// What masks attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttentionKind {
    /// Which keys queries see.
    pub sight: Sight,
    /// Whether there is a mask that is the same for all queries: of padding.
    pub padding: bool,
    /// Whether there is a mask, or numbers that are added, which differs from query to query.
    pub each: bool,
}

impl fmt::Display for AttentionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sight {
            Sight::One => f.write_str("of one query")?,
            Sight::Earlier => f.write_str("causal")?,
            Sight::Near(window) => write!(f, "causal within {window} keys")?,
            Sight::All => f.write_str("not causal")?,
            Sight::Masked => f.write_str("causal only by its mask")?,
            Sight::Some => f.write_str("of some later keys")?,
            Sight::Unknown => f.write_str("not known to be causal")?,
            Sight::Parts => f.write_str("in parts, as products and a softmax")?,
        }
        match (self.padding, self.each) {
            (true, _) => f.write_str(", with a mask for each key"),
            (_, true) => f.write_str(", with a mask for each pair"),
            _ => Ok(()),
        }
    }
}

/// For each kind of attention in a graph, of which nodes of the model it is.
pub fn attentions(graph: &Graph) -> BTreeMap<AttentionKind, Vec<String>> {
    let forms = forms(graph, Reading::Present);
    let mut kinds: BTreeMap<AttentionKind, Vec<String>> = BTreeMap::new();
    for node in &graph.nodes {
        let (Op::Attention(attention), [q, k, ..]) = (&node.op, &node.operands[..]) else { continue };
        let extent = |it: ValueId| graph.type_of(it).shape[2];
        let (queries, keys) = (extent(*q), extent(*k));
        let mask = node.operands.get(3).copied();
        let rows = mask.map(|it| {
            let shape = &graph.type_of(it).shape;
            shape.len().checked_sub(2).map_or(1, |dim| shape[dim])
        });
        let sight = match (attention.causal, attention.window, mask) {
            _ if queries == 1 => Sight::One,
            (true, Some(window), _) => Sight::Near(window),
            (true, None, _) => Sight::Earlier,
            (false, _, Some(mask)) if rows != Some(1) => {
                let type_ = graph.type_of(mask);
                let bands = forms[mask.0].bands(type_);
                match sight(&Seeing { bands: &bands, dtype: type_.dtype }, queries, keys) {
                    Sight::Some if depends_on_outside(graph, mask) => Sight::Unknown,
                    sight => sight,
                }
            }
            _ => Sight::All,
        };
        let kind = AttentionKind { sight, padding: rows == Some(1), each: rows.is_some_and(|it| it > 1) };
        kinds.entry(kind).or_default().push(node.origin.clone());
    }
    let apart = in_parts(graph);
    if !apart.is_empty() {
        let kind = AttentionKind { sight: Sight::Parts, padding: false, each: false };
        kinds.insert(kind, apart.into_iter().map(|it| graph.node(it).origin.clone()).collect());
    }
    kinds
}

/// The softmaxes over scores of queries and keys whose weights are multiplied by something: attention that was
/// not found to be that.
fn in_parts(graph: &Graph) -> Vec<NodeId> {
    // What depends on something that is given, and which products values are made of one by one.
    let mut given: Vec<bool> =
        graph.values.iter().map(|it| matches!(it.source, Source::Input(_) | Source::State(_))).collect();
    let mut scores = vec![false; graph.values.len()];
    let mut weights: Vec<BTreeSet<NodeId>> = vec![BTreeSet::new(); graph.values.len()];
    let mut found = BTreeSet::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let of_given = node.operands.iter().any(|it| given[it.0]);
        let [result] = node.results[..] else {
            node.results.iter().for_each(|it| given[it.0] = of_given);
            continue;
        };
        given[result.0] = of_given;
        match &node.op {
            Op::Contract(_) => {
                found.extend(node.operands.iter().flat_map(|it| &weights[it.0]).copied());
                let shape = &graph.type_of(result).shape;
                let many = shape.len() >= 3 && shape[shape.len() - 2..].iter().all(|&it| it > 1);
                scores[result.0] = many && node.operands.iter().all(|it| given[it.0]);
            }
            Op::Softmax { dim } if scores[node.operands[0].0] && dim + 1 == graph.type_of(result).rank() => {
                weights[result.0].insert(NodeId(index));
            }
            op if keeps_places(op) => {
                scores[result.0] = node.operands.iter().any(|it| scores[it.0]);
                weights[result.0] = node.operands.iter().flat_map(|it| weights[it.0].clone()).collect();
            }
            _ => {}
        }
    }
    found.into_iter().collect()
}

/// Whether elements stay beside those that they were beside.
fn keeps_places(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_) | Op::Expand { .. } | Op::Reshape { .. }
    )
}

/// Whether a value depends on something that is given, or on a weight.
fn depends_on_outside(graph: &Graph, value: ValueId) -> bool {
    let mut open = vec![value];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        match graph.value(id).source {
            Source::Result { node, .. } if seen.insert(id) => open.extend(&graph.node(node).operands),
            Source::Result { .. } => {}
            _ => return true,
        }
    }
    false
}

/// Which keys queries see by a mask that differs from query to query.
fn sight(seeing: &Seeing<'_>, queries: u64, keys: u64) -> Sight {
    let [queries, keys] = [queries, keys].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    let (own, farthest) = (keys - queries, keys - 1);
    let beside = seeing.bands.at(own);
    if seeing.all(own + 1, farthest, |it| seeing.removes(it) || seeing.hides(it, beside)) {
        return Sight::Masked;
    }
    if seeing.all(own + 1, own + 1, |it| seeing.shows(it, beside)) {
        return Sight::All;
    }
    Sight::Some
}

/// Whether a graph predicts tokens: an output has as many columns as a table has rows, of which integers
/// that are given take rows.
pub fn predicts_tokens(graph: &Graph) -> bool {
    let is_table = |id: ValueId| {
        let value = graph.value(id);
        matches!(value.source, Source::Weight(_) | Source::State(_)) && value.type_.rank() == 2
    };
    let tables = graph.nodes.iter().filter_map(|node| match (&node.op, &node.operands[..]) {
        (Op::Gather { dim: 0 }, &[table, ids]) if is_table(table) => {
            let given = matches!(graph.value(ids).source, Source::Input(_));
            given.then(|| graph.type_of(table).shape[0])
        }
        _ => None,
    });
    let rows: Vec<u64> = tables.filter(|&rows| rows > 1).collect();
    let columns = |id: ValueId| graph.type_of(id).shape.last().copied();
    let predicted = graph.outputs.iter().map(|it| it.value);
    let scores = graph.nodes.iter().filter(|it| matches!(it.op, Op::CrossEntropy { .. }));
    let mut all = predicted.chain(scores.map(|it| it.operands[0]));
    all.any(|id| graph.type_of(id).dtype != DType::Bool && columns(id).is_some_and(|it| rows.contains(&it)))
}
