//! Why a value cannot be brought over.

use std::fmt;

use planner_ir::LayoutError;

/// One end of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the value is.
    Sending,
    /// Where it has to be.
    Receiving,
}

/// Why a value cannot be brought over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReshardError {
    /// A layout that does not suit its mesh and the value.
    Layout(End, LayoutError),
    /// A layout that owes sums over these axes: they have to be made on the mesh first.
    Owed(End, Vec<String>),
    /// Not as many places as the mesh has devices; found, expected.
    Places(End, usize, u64),
    /// A rank that stands for two devices, at one end or at both.
    Rank(u64),
    /// A rate that is not positive, or a time that is negative: which.
    Network(&'static str),
    /// More bytes than can be counted.
    Large,
    /// No chunks.
    Chunks,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sending => "sending",
            Self::Receiving => "receiving",
        })
    }
}

impl fmt::Display for ReshardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(end, error) => write!(f, "{end} side: {error}"),
            Self::Owed(end, axes) => {
                let axes = axes.join("`, `");
                write!(f, "{end} side: a sum is owed over `{axes}`, expected none between meshes")
            }
            Self::Places(end, found, expected) => {
                write!(f, "{end} side: {found} places, expected one for each of {expected} devices")
            }
            Self::Rank(rank) => write!(f, "rank {rank} stands for two devices, expected different ranks"),
            Self::Network(what) => write!(f, "the {what} of the network is not a number that it can have"),
            Self::Large => f.write_str("the value has more than 2^64 bytes"),
            Self::Chunks => f.write_str("0 chunks at most, expected 1 or more"),
        }
    }
}

impl std::error::Error for ReshardError {}
