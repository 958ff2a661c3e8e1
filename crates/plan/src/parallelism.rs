//! What those who split models by hand give an axis of a mesh to do.

/// A kind of parallelism: one thing for all operations alike, experts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Parallelism {
    /// Examples are split, and parameters used whole.
    Data,
    /// Sequences are split, and parameters used whole.
    Context,
    /// Products are split, and the parameters that they use: by columns and rows, heads, rows of tables.
    Tensor,
}

impl Parallelism {
    /// Every kind, in the order in which frameworks nest groups, the outermost first.
    pub const ALL: [Self; 3] = [Self::Data, Self::Context, Self::Tensor];

    /// What it is called, before "parallel".
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Context => "context",
            Self::Tensor => "tensor",
        }
    }
}
