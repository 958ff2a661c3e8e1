//! Why an operation could not be computed.

use std::fmt;

use planner_ir::DType;

/// Why an operation could not be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelError {
    /// Another number of operands or results.
    Count {
        /// Of what: operands or results.
        of: &'static str,
        /// How many there are.
        found: usize,
        /// How many the operation has.
        expected: &'static str,
    },
    /// Elements that the operation is not defined on.
    Elements {
        /// What was computed.
        of: &'static str,
        /// The elements.
        found: DType,
    },
    /// Two element types that had to be the same.
    Mixed {
        /// The one.
        found: DType,
        /// What it had to be.
        expected: DType,
    },
    /// A shape that does not fit the operation or the other shapes.
    Shape {
        /// Of what.
        of: &'static str,
        /// The shape.
        found: Vec<u64>,
        /// The shape it had to have, or to fit.
        expected: Vec<u64>,
    },
    /// A dimension that the value lacks.
    Dimension {
        /// The dimension.
        dim: usize,
        /// How many there are.
        rank: usize,
    },
    /// Bytes that are not a value of the type.
    Bytes {
        /// How many there are (bytes).
        found: usize,
        /// How many the type has (bytes).
        expected: u64,
    },
    /// Bytes that do not lie at a multiple of an element's size.
    Alignment,
    /// More elements than can be addressed or stored.
    Size,
    /// An index outside the dimension it goes along.
    Index {
        /// The index.
        index: i64,
        /// The extent of the dimension.
        extent: u64,
    },
    /// A position that the block of the operand does not have, though the value does.
    Block {
        /// The position.
        position: u64,
        /// Where the block starts.
        start: u64,
        /// The extent of the block.
        extent: u64,
    },
    /// Integers divided by 0.
    DivisionByZero,
    /// A number that the operation cannot take.
    Number {
        /// Of what.
        of: &'static str,
        /// The number.
        found: i64,
    },
    /// An operation whose operands have no result types.
    Type(String),
    /// Values whose shapes depend on numbers that are given do not fit.
    Given(Box<Self>),
}

impl KernelError {
    /// Whether numbers that an operation was given are to blame, which are known only when it is computed.
    #[must_use]
    pub fn is_of_numbers(&self) -> bool {
        matches!(self, Self::Index { .. } | Self::DivisionByZero | Self::Number { .. } | Self::Given(_))
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { of, found, expected } => {
                write!(f, "there are {found} {of}, expected {expected}")
            }
            Self::Elements { of, found } => write!(f, "`{of}` is not defined on {found}"),
            Self::Mixed { found, expected } => {
                write!(f, "elements are {found}, expected {expected}")
            }
            Self::Shape { of, found, expected } => {
                write!(f, "{of} has shape {found:?}, expected {expected:?}")
            }
            Self::Dimension { dim, rank } => {
                write!(f, "dimension {dim} of a value that has {rank}")
            }
            Self::Bytes { found, expected } => {
                write!(f, "there are {found} bytes, expected {expected}")
            }
            Self::Alignment => f.write_str("bytes are not aligned to their elements"),
            Self::Size => f.write_str("the value is too large"),
            Self::Index { index, extent } => {
                write!(f, "index {index} is outside a dimension of {extent}")
            }
            Self::Block { position, start, extent } => {
                write!(f, "position {position} is outside the block {start}..{}", start + extent)
            }
            Self::DivisionByZero => f.write_str("an integer is divided by 0"),
            Self::Number { of, found } => write!(f, "{of} cannot be {found}"),
            Self::Type(message) => f.write_str(message),
            Self::Given(error) => {
                write!(f, "what shapes are of the numbers that are given does not fit: {error}")
            }
        }
    }
}

impl std::error::Error for KernelError {}
