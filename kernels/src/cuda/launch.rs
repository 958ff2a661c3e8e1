//! Kernels, how they are launched, what they are given.

use std::fmt;

use planner_ir::Type;

use super::contract::Multiplied;
use super::strides::own_strides;
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
pub const FAMILIES: [&str; 38] = [
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
    "experts_rows",
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

    /// How far it is from an element to the next one along each dimension (elements).
    pub(super) fn strides(&self) -> Vec<i64> {
        if self.order.is_empty() {
            return own_strides(&self.type_.shape);
        }
        let shape: Vec<u64> = self.order.iter().map(|&dim| self.type_.shape[dim]).collect();
        let mut strides = vec![0; shape.len()];
        for (&dim, stride) in self.order.iter().zip(own_strides(&shape)) {
            strides[dim] = stride;
        }
        strides
    }

    /// Whether its elements lie as its shape has them.
    pub(super) fn is_row_major(&self) -> bool {
        let shape = &self.type_.shape;
        let long: Vec<usize> = self.order.iter().copied().filter(|&dim| shape[dim] != 1).collect();
        long.is_sorted()
    }

    /// The same elements with the dimensions of a value that it is repeated to in another order, if they lie
    /// row-major then.
    pub(super) fn lying(&self, order: &[usize]) -> Option<Self> {
        let more = order.len().checked_sub(self.type_.shape.len())?;
        let shape = order.iter().map(|&dim| dim.checked_sub(more).map_or(1, |dim| self.type_.shape[dim]));
        let strides = self.strides();
        let long = order.iter().filter_map(|&dim| dim.checked_sub(more));
        let long: Vec<i64> = long.filter(|&dim| self.type_.shape[dim] != 1).map(|dim| strides[dim]).collect();
        let type_ = Type::new(self.type_.dtype, shape.collect::<Vec<u64>>());
        long.is_sorted_by(|outer, inner| outer >= inner).then(|| Self::whole(type_))
    }

    /// Where it lies along a dimension.
    pub(super) fn span(&self, dim: usize) -> Span {
        let whole = Span::contiguous(self.type_.shape[dim], 0);
        self.spans.get(dim).copied().unwrap_or(whole)
    }
}
