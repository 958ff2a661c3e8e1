//! Raising: the idioms of exporters to the operations they spell.
//!
//! Each unique block of a graph is put into an e-graph, where rules name what its terms are
//! (attention, rotary embedding, normalisations, gated units) and say what algebra makes of them:
//! movement folded into contractions, packed projections taken apart, repeated heads taken back.
//! The cheapest program is taken out and stands for every repetition of the block. Before all that,
//! elements that are taken from places which are known are moved rather than gathered, and regions that
//! are mixtures of experts become such operations; after it, attention says itself what
//! its mask says of later keys.

mod mixture; // mixtures of experts that regions compute expert by expert
mod called; // what operations are called that move results of products
mod marked; // rows at marked places as a choice between rows
mod term; // terms and what is known of their classes
mod make; // terms made by rules
mod pattern; // terms with variables
mod shape; // which dimensions of a reshaped value are which
mod rules; // the rules
mod saturate; // rules applied until nothing new comes
mod extract; // the cheapest program
mod body; // one graph raised
mod form; // what is known of a value's elements, by their places
mod placed; // gathers from places that are known
mod carried; // states that go from token to token
mod masks; // masks that say what attention can say itself
mod share; // equal computations made once

use std::collections::BTreeMap;
use std::fmt;

use planner_ir::{Graph, Op, Recurrence, Type, Unary};

use crate::blocks::{blocks, bounded, rebuilt};
use body::RaisedBody;
pub use masks::{AttentionKind, Sight, attentions, predicts_tokens};
pub use share::shared;

/// A graph of named operations that computes what another one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// The graph.
    pub graph: Graph,
    /// What it took and what was found.
    pub statistics: Statistics,
}

/// What raising took and found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// How many different blocks there were.
    pub blocks: usize,
    /// How many repetitions of blocks.
    pub segments: usize,
    /// How many nodes the unique blocks had.
    pub nodes: usize,
    /// How many terms the e-graphs had at the end.
    pub terms: usize,
    /// How many classes of equal terms.
    pub classes: usize,
    /// How often rules were applied to the block that took longest.
    pub iterations: usize,
    /// Whether nothing new came of the rules in any block.
    pub saturated: bool,
    /// For each rule that gave equalities, how many.
    pub rules: BTreeMap<&'static str, usize>,
    /// For each idiom, how often it occurs in the raised graph.
    pub idioms: BTreeMap<&'static str, usize>,
}

/// Why a graph could not be raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaiseError {
    /// A node does not have the types that its operation infers.
    Node(String),
    /// A rule made a value of one type equal to one of another: a mistake of ours.
    Rule {
        /// The rule.
        rule: &'static str,
        /// What it made.
        found: Type,
        /// What it replaced.
        expected: Type,
    },
}

impl fmt::Display for RaiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(origin) => write!(f, "node `{origin}` does not have the types of its operation"),
            Self::Rule { rule, found, expected } => {
                write!(f, "rule `{rule}` made {found}, expected {expected}")
            }
        }
    }
}

impl std::error::Error for RaiseError {}

/// A rule, for reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleText {
    /// What it is called.
    pub name: &'static str,
    /// What it matches.
    pub pattern: &'static str,
    /// What must be true of a match for the two sides to be equal.
    pub conditions: Vec<&'static str>,
    /// What must be true of a match for the rule to be of use.
    pub uses: Vec<&'static str>,
}

/// Every rule of raising, in the order in which they are tried.
pub fn raise_rules() -> Vec<RuleText> {
    let text = |ready: rules::Ready| {
        let named = |needed| {
            ready.rule.conditions.iter().filter(|it| it.needed == needed).map(|it| it.name).collect()
        };
        RuleText {
            name: ready.rule.name,
            pattern: ready.rule.pattern,
            conditions: named(rules::Needed::ForTruth),
            uses: named(rules::Needed::ForUse),
        }
    };
    rules::all().into_iter().map(text).collect()
}

/// How many nodes are raised together at most: the cheapest program is found by comparing what its terms need,
/// which are as many sets of as many classes as there are nodes.
const MOST_NODES: usize = 8192;

/// The graph in named operations.
///
/// What it takes grows with the nodes and no faster: a block has as many as [`MOST_NODES`], and longer ones are cut
/// where least is alive; an idiom that lies across such a place is not named.
pub fn raise(graph: &Graph) -> Result<Raised, RaiseError> {
    for node in &graph.nodes {
        if node.op.infer(&graph.types_of(&node.operands)).ok() != Some(graph.types_of(&node.results)) {
            return Err(RaiseError::Node(node.origin.clone()));
        }
    }
    let rules = rules::all();
    let graph = called::called(graph);
    let graph = marked::marked(&mixture::mixed(&carried::carried(&placed::placed(&graph))));
    let blocks = bounded(blocks(&shared(&graph)), MOST_NODES);
    let mut statistics = Statistics {
        blocks: blocks.unique.len(),
        segments: blocks.segments.len(),
        nodes: blocks.nodes(),
        saturated: true,
        ..Statistics::default()
    };
    let mut bodies = Vec::new();
    for block in &blocks.unique {
        let raised = body::raise_body(&block.body, &rules).map_err(|it| RaiseError::Rule {
            rule: it.rule,
            found: it.types.0,
            expected: it.types.1,
        })?;
        statistics.count(&raised, &rules);
        bodies.push(raised.graph);
    }
    let (graph, _) = rebuilt(&blocks, &|segment| &bodies[blocks.segments[segment].block]);
    let graph = shared(&masks::said(&graph));
    statistics.idioms = idioms(&graph);
    Ok(Raised { graph, statistics })
}

impl Statistics {
    fn count(&mut self, raised: &RaisedBody, rules: &[rules::Ready]) {
        self.terms += raised.terms;
        self.classes += raised.classes;
        self.iterations = self.iterations.max(raised.effort.iterations);
        self.saturated &= raised.effort.saturated;
        for (ready, &applied) in rules.iter().zip(&raised.effort.applied) {
            if applied > 0 {
                *self.rules.entry(ready.rule.name).or_default() += applied;
            }
        }
    }
}

/// For each idiom, how many operations of a graph are it.
fn idioms(graph: &Graph) -> BTreeMap<&'static str, usize> {
    let mut idioms = BTreeMap::new();
    for node in &graph.nodes {
        let name = match &node.op {
            Op::Attention(_) => "attention",
            Op::Recurrence(Recurrence::SelectiveScan) => "selective scan",
            Op::Recurrence(Recurrence::GatedDelta) => "gated delta rule",
            Op::Rotary(_) => "rotary",
            Op::RmsNorm { .. } => "rms norm",
            Op::LayerNorm { .. } => "layer norm",
            Op::Gated(_) => "gated",
            Op::Experts { .. } => "experts",
            Op::Unary(Unary::Gelu | Unary::GeluTanh | Unary::GeluQuick) => "gelu",
            Op::Unary(Unary::Silu) => "silu",
            Op::Softmax { .. } => "softmax",
            _ => continue,
        };
        *idioms.entry(name).or_default() += 1;
        if matches!(&node.op, Op::Attention(attention) if attention.causal) {
            *idioms.entry("causal attention").or_default() += 1;
        }
    }
    idioms
}

#[cfg(test)]
pub(crate) mod tests;
