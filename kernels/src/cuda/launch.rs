//! Kernels, how they are launched, what they are given.

use std::fmt;

use planner_ir::{DType, Type};

use super::text;
use crate::array::Span;

/// A block of a value, as a kernel is given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its elements and shape.
    pub type_: Type,
    /// Where it lies in the whole value, for each dimension; empty if it is the whole.
    pub spans: Vec<Span>,
    /// Its dimensions as they lie in memory, the outermost first; empty if they lie as the shape has them.
    pub order: Vec<usize>,
}

/// Every family of kernels, sorted: what the name of one begins with.
pub const FAMILIES: [&str; 44] = [
    "attention",
    "attention_gradient",
    "attention_gradient_tensor",
    "attention_mask",
    "attention_merge",
    "attention_own",
    "attention_tensor",
    "classifier",
    "contract",
    "conv",
    "copy",
    "cross_entropy",
    "cross_entropy_gradient",
    "experts_gates",
    "experts_list",
    "experts_order",
    "experts_rows",
    "experts_slots",
    "experts_sums",
    "experts_tensor",
    "experts_tensor_weights",
    "experts_tokens",
    "experts_weights",
    "extremes",
    "gather",
    "gather_gradient",
    "gather_places",
    "links",
    "norm",
    "norm_gradient",
    "places",
    "pointwise",
    "recurrence",
    "reduce",
    "resample",
    "rotary",
    "running",
    "scatter_lines",
    "scatter_slices",
    "softmax",
    "softmax_gradient",
    "squares",
    "sum",
    "transpose",
];

/// A function that a device runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What its entry is called: a family and a hash of the source.
    pub name: String,
    /// Its source, without the primitives.
    pub source: String,
    /// The types of its arguments, as the source has them.
    pub parameters: Vec<Parameter>,
}

/// The type of a kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A pointer to elements.
    Pointer,
    /// A signed number of 64 bits.
    Integer,
}

/// What a kernel is given when it is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The start of the operand of that number.
    Operand(usize),
    /// The start of the result of that number.
    Result(usize),
    /// The room of a work, from so many bytes on.
    Room(u64),
    /// A number.
    Integer(i64),
}

/// One start of a kernel: a row of blocks, each a row of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What is started.
    pub kernel: Kernel,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many threads a block has.
    pub threads: u32,
    /// The shared memory of a block (bytes).
    pub shared: u32,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
}

/// How results are made: kernels, one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// What is launched.
    pub launches: Vec<Launch>,
    /// Memory that they need besides operands and results (bytes).
    pub room: u64,
}

/// A matrix product by a library, with what is copied before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiplied {
    /// Operands, and what the product is added to, copied to where they lie as matrices do.
    pub before: Vec<Launch>,
    /// The product.
    pub product: MatrixProduct,
    /// Elements of both operands, and of the result.
    pub dtypes: [DType; 3],
    /// Where the operands and the result of the product are.
    pub matrices: [Argument; 3],
    /// Where what it is added to is, if it is: as the result lies, perhaps there.
    pub addend: Option<Argument>,
    /// The result copied to where it is to be.
    pub after: Vec<Launch>,
    /// Memory that copies need (bytes).
    pub room: u64,
    /// The kernel that computes the product without the library.
    pub plain: Work,
}

/// `result[b, i, j] = sum over l of left[b, i, l] * right[b, l, j]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixProduct {
    /// How many products there are.
    pub batches: u64,
    /// Rows of the left matrix and of the result.
    pub rows: u64,
    /// Columns of the right matrix and of the result.
    pub columns: u64,
    /// Columns of the left matrix and rows of the right one.
    pub length: u64,
    /// Where the elements of the left matrices are.
    pub left: Matrix,
    /// Where those of the right ones are.
    pub right: Matrix,
    /// Where those of the results are.
    pub result: Matrix,
}

/// Where the elements of matrices are: rows or columns lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// How far a row is from the one before it (elements); none if there is one row.
    pub row: Option<i64>,
    /// How far a column is from the one before it (elements); none if there is one column.
    pub column: Option<i64>,
    /// How far a matrix is from the one before it (elements).
    pub batch: i64,
}

/// Why no kernel computes an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// A library does: a matrix product, with copies around it if its matrices do not lie as such.
    Library(Box<Multiplied>),
    /// Its results are known when the program is made, and are copied.
    Known,
    /// It leaves the bytes as they are.
    Nothing,
    /// The host does: shapes or control flow depend on data.
    Host(&'static str),
    /// Nothing does yet.
    Missing(String),
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(_) => f.write_str("computed by cuBLASLt"),
            Self::Known => f.write_str("known when the program is made"),
            Self::Nothing => f.write_str("no bytes change"),
            Self::Host(reason) => write!(f, "computed on the host: {reason}"),
            Self::Missing(what) => write!(f, "no kernel for {what}"),
        }
    }
}

impl std::error::Error for Uncovered {}

impl Kernel {
    /// The kernel of a family with that source, whose entry the source calls `$NAME`.
    pub(super) fn new(family: &str, source: &str, parameters: Vec<Parameter>) -> Self {
        debug_assert!(FAMILIES.contains(&family), "`{family}` is not among the families of kernels");
        let name = text::name(family, source);
        Self { source: source.replace(text::NAME, &name), name, parameters }
    }

    /// Its family: one of [`FAMILIES`].
    pub fn family(&self) -> &str {
        self.name.rsplit_once('_').map_or(&self.name, |it| it.0)
    }
}

impl Argument {
    /// What a kernel is given, where operands, results and the room of a work start at these addresses; none if
    /// there is no such operand or result.
    pub fn value(self, operands: &[u64], results: &[u64], room: u64) -> Option<u64> {
        match self {
            Self::Operand(number) => operands.get(number).copied(),
            Self::Result(number) => results.get(number).copied(),
            Self::Room(from) => Some(room + from),
            Self::Integer(value) => Some(value.cast_unsigned()),
        }
    }
}

impl Work {
    /// The same, given something else for each argument.
    pub fn given(mut self, other: impl Fn(Argument) -> Argument) -> Self {
        for argument in self.launches.iter_mut().flat_map(|launch| &mut launch.arguments) {
            *argument = other(*argument);
        }
        self
    }
}

impl Piece {
    /// The whole of a value.
    pub fn whole(type_: Type) -> Self {
        Self { type_, spans: vec![], order: vec![] }
    }

    /// Where it lies along a dimension.
    pub(super) fn span(&self, dim: usize) -> Span {
        let whole = Span::contiguous(self.type_.shape[dim], 0);
        self.spans.get(dim).copied().unwrap_or(whole)
    }
}
