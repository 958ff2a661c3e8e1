//! The vocabulary of Shardloom: mesh, layout, operation, graph, text form, verifier.
//!
//! Everything right and left of a plan is said in these words. The crate computes nothing on
//! data and prices nothing; it says what a program *is* and whether it is well formed.

mod data; // element types, numbers, shapes
mod op; // the operations
mod infer; // what an operation makes of its operands' types
mod loops; // what an operation iterates over: the one declaration everything is derived from
mod over; // what loops run over: examples, sequences, numbers of a token
mod odometer; // all combinations of numbers
mod mesh; // devices and their coordinates
mod layout; // which piece of a value each device holds
mod partition; // which block of an operation's loops each device computes
mod transfer; // how a value gets from one layout to another
mod shared; // lists that copies share
mod graph; // values and operations in order
mod meanwhile; // what may be computed while rows are exchanged
mod gradient; // the gradient of each operation, in terms of operations
mod text; // parse and print
mod violation; // rules that are broken
mod verify; // the rules a program obeys
mod near; // names that are nearly what was written

pub use data::{DType, Real, Type};
pub use gradient::{Emit, Gradients, NoGradient, Site};
pub use graph::{
    CROSSING, Carried, Graph, Node, NodeId, Output, Phase, Source, State, StateKind, Training, Value, ValueId,
};
pub use infer::TypeError;
pub use layout::{Digit, Layout, LayoutError, Piece};
pub use loops::{Loop, LoopId, Loops, Role, Routing};
pub use meanwhile::Meanwhile;
pub use mesh::{Axis, AxisId, Mesh, MeshError};
pub use near::{did_you_mean, distance, nearest};
pub use odometer::advance;
pub use op::{
    Attention, AttentionClass, Binary, Blind, Contract, Conv, ConvolutionClass, Dynamic, Edge,
    ElementwiseClass, ExpertsClass, Extreme, GatherClass, Interpolation, Label, Merging, MovementClass,
    NormClass, Nvfp4, Op, OpClass, Optimizer, Pairing, Recurrence, Reduction, Region, RegionNode, Resize,
    Scatter, Triangle, Unary, numbers, packed_dim,
};
pub use over::{Dims, Over};
pub use partition::{
    Block, Motion, Partition, PartitionError, Route, RoutedRows, Shift, Slots, Ways, chunks,
};
pub use shared::Shared;
pub use text::{ParseError, parse_graph, parse_layout, parse_op, parse_partition};
pub use transfer::{Move, MoveError, sources};
pub use verify::{verify, verify_layouts};
pub use violation::{Violation, Violations};
