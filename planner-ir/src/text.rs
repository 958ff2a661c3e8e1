//! The text form: print and parse, so that `parse(print(it)) == it`.
//!
//! ```text
//! graph "tiny" {
//!   %0 = input "ids" : i64[2,16]
//!   %1 = weight "embedding" : f32[211,32]
//!   %2 = gather dim=0 %1 %0 : f32[2,16,32] # origin "node_embedding"
//!   %3, %4 = top_k dim=2 k=2 extreme=largest %2 : f32[2,16,2], i64[2,16,2]
//!   return "best" %3, "where" %4
//! }
//! ```
//!
//! Values are numbered in order. A statement is one line, except that the bodies of regions stand
//! in braces. `//` begins a comment. A layout is written with the names of the mesh's axes:
//! `[-,a.b] owes c` is whole along dimension 0, split over a and then b along dimension 1, and
//! owes a sum over c; `*3` is a free digit and `(a-2*b+@t+1:4)` any other, `@t` being time.

mod attribute; // numbers, names, lists and types as attributes
mod blank; // each operation by name, its attributes to be set
mod data; // the elements of constants
mod graph; // statements and regions
mod layout; // layouts and partitions
mod op; // the operations' names and attributes: one table for both directions
mod print; // where text is written to
mod scan; // where text is read from

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::{random_graph, random_op};

pub use graph::parse_graph;
pub use layout::{parse_layout, parse_partition};
pub use op::parse_op;
pub use scan::ParseError;
