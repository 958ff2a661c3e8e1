//! A graph to the space of programs equal to it, by e-graph.

mod space; // the space of partitioned programs, by e-graph

pub use space::{Choice, Edge, Space, SpaceError, Statistics, plain_layouts, space};
