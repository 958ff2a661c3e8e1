//! Which keys the queries of attention see, in a graph in named operations.

use std::collections::BTreeMap;
use std::fmt;

use planner_ir::{DType, Graph, Op, Source, ValueId};

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
    /// It is not known which: a mask says it.
    Unknown,
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
            Sight::Unknown => f.write_str("not known to be causal")?,
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
                sight(&Seeing { bands: &bands, dtype: type_.dtype }, queries, keys)
            }
            _ => Sight::All,
        };
        let kind = AttentionKind { sight, padding: rows == Some(1), each: rows.is_some_and(|it| it > 1) };
        kinds.entry(kind).or_default().push(node.origin.clone());
    }
    kinds
}

/// Which keys queries see by a mask that differs from query to query.
fn sight(seeing: &Seeing<'_>, queries: u64, keys: u64) -> Sight {
    let [queries, keys] = [queries, keys].map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    let (own, farthest) = (keys - queries, keys - 1);
    let beside = seeing.bands.at(own);
    if seeing.all(own + 1, farthest, |it| seeing.removes(it) || seeing.hides(it, beside)) {
        return Sight::Masked;
    }
    if seeing.all(own + 1, own + 1, |it| seeing.shows(it, beside)) { Sight::All } else { Sight::Unknown }
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
