//! What attention is found to be, and where more is computed than a decoder needs.

use std::collections::{BTreeMap, BTreeSet};

use cost_models::quantity;
use planner_ir::{Graph, Node, Op, ValueId};
use rewrite::{AttentionKind, Sight, attentions, predicts_tokens};
use serde_json::{Value, json};

/// What is found of the attention in a graph in named operations.
pub struct Found {
    /// Each kind, and how many operations of the model are of it: those that are recomputed count once.
    all: Vec<(AttentionKind, usize)>,
    /// Each kind and how often it occurs, in words.
    pub kinds: Vec<(String, usize)>,
    /// What a user should know, in words.
    pub warnings: Vec<String>,
    /// Those that are masked by an array of queries by keys.
    masked: Vec<(String, usize)>,
    /// These arrays, and how large they are (bytes).
    arrays: BTreeMap<String, u64>,
}

impl Found {
    /// What is found in the graphs that a model became.
    pub fn of<'a>(graphs: impl IntoIterator<Item = &'a Graph>) -> Self {
        let mut kinds: BTreeMap<AttentionKind, Vec<String>> = BTreeMap::new();
        let mut decodes = false;
        let mut arrays = BTreeMap::new();
        for graph in graphs {
            for mask in graph.nodes.iter().filter_map(mask) {
                let type_ = graph.type_of(mask);
                if type_.shape.iter().rev().nth(1).is_some_and(|&rows| rows > 1) {
                    arrays.insert(type_.to_string(), type_.bytes());
                }
            }
            for (kind, nodes) in attentions(graph) {
                kinds.entry(kind).or_default().extend(nodes);
            }
            decodes |= predicts_tokens(graph);
        }
        let warnings = kinds.iter().filter_map(|(kind, nodes)| warning(*kind, nodes, decodes)).collect();
        let counted = |(kind, nodes): (&AttentionKind, &Vec<String>)| (kind.to_string(), nodes.len());
        let all = kinds.iter().map(|(kind, nodes)| (*kind, nodes.iter().collect::<BTreeSet<_>>().len()));
        let all = all.collect();
        let masked = kinds.iter().filter(|(kind, _)| kind.each).map(counted).collect();
        Self { kinds: kinds.iter().map(counted).collect(), warnings, all, masked, arrays }
    }

    /// Which keys the queries of a plan see, in words; none without attention. Full is attention that computes all
    /// pairs of queries and keys, whatever a mask hides of them.
    pub fn sight(&self) -> Option<String> {
        let one = |(kind, count): &(AttentionKind, usize)| match kind.sight {
            Sight::One | Sight::Earlier | Sight::Near(_) | Sight::Parts => format!("{count} {kind}"),
            Sight::All | Sight::Masked | Sight::Prefix | Sight::Groups | Sight::Some | Sight::Unknown => {
                format!("{count} full ({kind})")
            }
        };
        let all: Vec<String> = self.all.iter().map(one).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// What is said of masks that are arrays of queries by keys.
    pub fn lines(&self) -> Vec<String> {
        let kinds: Vec<String> = self.masked.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let array = |(type_, bytes): (&String, &u64)| format!("{type_}, {} whole", quantity::bytes(*bytes));
        let arrays: Vec<String> = self.arrays.iter().map(array).collect();
        let line = || format!("masked     attention: {}: {}", kinds.join("; "), arrays.join("; "));
        (!kinds.is_empty()).then(line).into_iter().collect()
    }

    /// The same with warnings of others before its own.
    pub fn after(self, warnings: &[String]) -> Self {
        Self { warnings: warnings.iter().cloned().chain(self.warnings).collect(), ..self }
    }

    /// Tells of the warnings, and adds what is found to what is said for programs.
    pub fn say(&self, json: &mut Value, warn: &dyn Fn(&str)) {
        for warning in &self.warnings {
            warn(warning);
        }
        self.add(json);
    }

    /// Adds what is found to what is said for programs.
    pub fn add(&self, json: &mut Value) {
        let kinds = self.kinds.iter().map(|(kind, count)| json!({ "kind": kind, "count": count }));
        json["attention"] = kinds.collect();
        json["warnings"] = json!(self.warnings);
    }
}

/// What masks the scores of attention.
fn mask(node: &Node) -> Option<ValueId> {
    match &node.op {
        Op::Attention(attention) => attention.masks(&node.operands[3..]).0.copied(),
        _ => None,
    }
}

/// What a user should know of some attention.
fn warning(kind: AttentionKind, nodes: &[String], decodes: bool) -> Option<String> {
    let first = nodes.first()?;
    let who = match nodes.len() {
        1 => format!("attention `{first}`"),
        count => format!("attention of {count} nodes, `{first}` first,"),
    };
    match kind.sight {
        Sight::Masked => Some(format!(
            "{who} hides later keys by a mask that also lets a query without keys see them: it is planned, and \
             priced, as if it were not causal; a mask that adds -inf, or the lowest number of its type, is \
             recognised"
        )),
        Sight::Unknown if decodes => Some(format!(
            "{who} has a mask of which it is not known which keys it hides, in a model that predicts tokens, since \
             it depends on what is given or on a weight: it is planned, and priced, as if it were not causal; export \
             the mask as computed from positions, not as an input or a weight"
        )),
        Sight::Some | Sight::Prefix | Sight::Groups if decodes => Some(format!(
            "{who} sees some later keys and others not, as where a prefix or images are seen whole, in a model that \
             predicts tokens: all pairs are computed and priced, and the mask is an array of queries by keys"
        )),
        Sight::Parts if decodes => Some(format!(
            "{who} is not found to be attention, in a model that predicts tokens: its products and its softmax are \
             planned, and priced, each by itself and for all pairs, later keys too; scores that are scaled, biased \
             and masked, in that order, by -inf or the lowest number of their type, are recognised"
        )),
        _ => None,
    }
}
