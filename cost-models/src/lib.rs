//! What computing, moving and holding values costs on a machine.
//!
//! A price is a function of (shape, machine) that returns [`units::Seconds`] or [`units::Bytes`].
//! Numbers come from machine files, each with the source it was read from or measured by.

/// Quantities that cannot be mixed up: seconds, bytes, floating-point operations and their rates.
pub mod units;

/// Sizes and times in words.
pub mod quantity;

/// A quantity together with where it comes from.
pub mod known;

/// The description of a cluster that every price reads.
pub mod machine;

/// Clusters of several kinds of nodes.
pub mod cluster;

/// Devices, switches, network adapters and the links between them; what a group of ranks has.
pub mod topology;

/// The time of collective operations and of messages between ranks.
pub mod collective;

/// The time of operations on one device.
pub mod compute;

/// The time of an operation on the blocks that a device holds.
pub mod work;

/// The floating-point operations that a model needs for a step, as utilisation counts them.
pub mod model_flops;

/// A step in the field's numbers: tokens a second, floating-point operations a second, utilisation.
pub mod throughput;

/// The files of frameworks' figures and of models' shapes that come with the program.
pub mod frameworks;

/// Times of single operations by laws that are fitted to measurements.
pub mod operations;

/// The bytes that a device holds, by kind.
pub mod memory;

/// A time as a sum of named terms.
pub mod estimate;
