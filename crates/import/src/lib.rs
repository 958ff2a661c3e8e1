//! ONNX bytes to a graph.
//!
//! `read` decodes a model, and `Model::import` makes a graph of it for given sizes of its
//! symbolic dimensions. Nothing here reads files: weights are named, and where their data are is
//! said by `Model::weight`.

mod error; // why a model cannot be imported
mod proto; // the file format
mod tensor; // tensors of the file
mod packed; // numbers that share bytes
mod unpacked; // such numbers, as the graph computes them
mod model; // a decoded model
mod replace; // a model file with other weights
mod extent; // symbolic dimensions
mod bind; // their sizes
mod heads; // sizes of caches that attention operators say
mod translate; // from nodes to operations
mod single; // single numbers that are parameters
mod order; // which nodes, in which order
mod positions; // positions that follow from the past's length, as an input
mod path; // what operations are called
mod node; // a node as its translation sees it
mod builder; // the graph as it grows
mod constant; // known values as operations
mod outline; // types with unknown extents
mod lower; // the table of translations
mod dynamic; // translations where shapes depend on data
mod groups; // which operations become a region
mod import; // what a model becomes

pub use bind::{Apart, Bindings, Dimensions};
pub use error::{ImportError, Place, Unbound};
pub use model::{Declared, Dim, Input, Model, read};
pub use positions::Positions;
pub use replace::{Beside, NewData, Replaced};
pub use tensor::{External, WeightData};

#[cfg(test)]
mod tests;
