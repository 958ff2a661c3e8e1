//! A graph to the space of programs equal to it, by e-graph.

pub mod blocks; // repeated blocks of a graph
mod raise; // idioms to the operations they spell
mod fuse; // products of one value by several weights as one product
mod spell; // norms and losses whose rows may be split
mod space; // the space of partitioned programs, by e-graph
mod added; // products that add to a sum

pub use added::{Added, Adding, Joined, added, joined, joined_as};
pub use blocks::{Binding, Block, Blocks, BlocksError, Segment, blocks, narrowed};
pub use fuse::fused;
pub use raise::{
    AttentionKind, RaiseError, Raised, RuleText, Sight, Statistics as RaiseStatistics, attentions,
    predicts_tokens, raise, raise_rules, shared,
};
pub use space::{
    Choice, Edge, Offer, Space, SpaceError, Spaces, Splits, Statistics, Steps, handed_layouts, owing_layouts,
    plain_layouts, space, striped_length,
};
pub use spell::{spelled, spelled_labels};
