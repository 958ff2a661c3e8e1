//! ONNX bytes to a graph.

mod error; // why a model cannot be imported
mod proto; // the file format
mod tensor; // tensors of the file
mod node; // a node as its translation sees it
mod constant; // known values as operations
mod outline; // types with unknown extents
mod builder; // the graph as it grows
mod lower; // the table of translations

pub use error::{ImportError, Place, Unbound};
pub use tensor::{External, WeightData};
