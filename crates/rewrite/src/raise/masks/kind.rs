//! Which keys the queries of attention see, in a graph in named operations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use planner_ir::{Attention, DType, Graph, NodeId, Op, Source, ValueId};

use super::reading::{Reading, forms, forms_if};
use super::related::{Relations, Scores, depends_on_outside};
use crate::raise::form::Form;

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
    /// Those up to their own, and keys that every query of an example sees: a prefix.
    Prefix,
    /// Those up to their own, and later ones that some queries see: those of the same image.
    Groups,
    /// Some later ones too, and others not: whole blocks.
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
    /// Whether they are those of the query's own document only.
    pub documents: bool,
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
            Sight::All if self.documents => f.write_str("within documents")?,
            Sight::All => f.write_str("not causal")?,
            Sight::Masked => f.write_str("causal only by its mask")?,
            Sight::Prefix => f.write_str("causal after a prefix")?,
            Sight::Groups => f.write_str("causal but for groups of keys")?,
            Sight::Some => f.write_str("of some later keys")?,
            Sight::Unknown => f.write_str("not known to be causal")?,
            Sight::Parts => f.write_str("in parts, as products and a softmax")?,
        }
        if self.documents && self.sight != Sight::All {
            f.write_str(" within documents")?;
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
    // Blocks share their mask.
    let mut known: BTreeMap<(Option<ValueId>, Attention, [u64; 2], bool), AttentionKind> = BTreeMap::new();
    for node in &graph.nodes {
        let (Op::Attention(attention), [q, k, ..]) = (&node.op, &node.operands[..]) else { continue };
        let scores = [*q, *k].map(|it| graph.type_of(it).shape[2]);
        let (mask, documents) = attention.masks(&node.operands[3..]);
        let (mask, documents) = (mask.copied(), documents.is_some());
        let kind = known.entry((mask, *attention, scores, documents));
        let mut kind = *kind.or_insert_with(|| kind_of(graph, &forms, attention, mask, scores));
        kind.documents |= documents;
        kinds.entry(kind).or_default().push(node.origin.clone());
    }
    let apart = in_parts(graph);
    if !apart.is_empty() {
        let kind = AttentionKind { sight: Sight::Parts, documents: false, padding: false, each: false };
        kinds.insert(kind, apart.into_iter().map(|it| graph.node(it).origin.clone()).collect());
    }
    kinds
}

/// What masks attention of so many queries and keys.
fn kind_of(
    graph: &Graph,
    forms: &[Form],
    attention: &Attention,
    mask: Option<ValueId>,
    [queries, keys]: [u64; 2],
) -> AttentionKind {
    let rows = mask.map(|it| {
        let shape = &graph.type_of(it).shape;
        shape.len().checked_sub(2).map_or(1, |dim| shape[dim])
    });
    let said = match (attention.causal, attention.window) {
        _ if queries == 1 => Some(Sight::One),
        (true, Some(window)) => Some(Sight::Near(window)),
        (true, None) => Some(Sight::Earlier),
        _ => None,
    };
    let (padding, each) = (rows == Some(1), rows.is_some_and(|it| it > 1));
    let kind = |sight, documents| AttentionKind { sight, documents, padding, each };
    let Some(mask) = mask.filter(|_| each && queries > 1) else {
        return kind(said.unwrap_or(Sight::All), false);
    };
    let scores = Scores::of(graph, mask, [queries, keys]);
    let relations = Relations::of(graph, mask);
    let sight_if = |forms: &[Form]| match said {
        Some(said) => said,
        None if scores.hides_later(forms) => Sight::Masked,
        None if scores.shows_next(forms) => Sight::All,
        None if depends_on_outside(graph, mask) => Sight::Unknown,
        None => Sight::Some,
    };
    let within = relations.if_same(true).zip(relations.if_same(false));
    if let Some((same, other)) = within {
        let [same, other] = [same, other].map(|it| forms_if(graph, Reading::Present, &it));
        if scores.hides_all(&other, said.is_some()) {
            return kind(sight_if(&same), true);
        }
    }
    let sight = sight_if(forms);
    if sight == Sight::Unknown
        && let Some(none) = relations.if_none()
        && scores.is_causal(&forms_if(graph, Reading::Present, &none))
    {
        return kind(if relations.are_of_keys() { Sight::Prefix } else { Sight::Groups }, false);
    }
    kind(sight, false)
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
