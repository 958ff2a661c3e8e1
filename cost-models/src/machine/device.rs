//! One device, and the arithmetic that it has.

use planner_ir::{DType, Op};

use crate::known::{Count, Known};
use crate::machine::Passes;
use crate::operations::{Demand, Laws, Operation};
use crate::units::{Bytes, BytesPerSecond, FlopsPerSecond, Ratio, Seconds};

/// One accelerator, or one thread of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Memory that a process can see (bytes).
    pub memory_capacity: Known<Bytes>,
    /// Memory that driver and communication library take (bytes).
    pub memory_reserved: Known<Bytes>,
    /// Peak rate of its memory (bytes per second).
    pub memory_bandwidth: Known<BytesPerSecond>,
    /// The part of the peak rate of memory that large element-wise operations reach.
    pub memory_efficiency: Known<Ratio>,
    /// The part that operations reach which read and write one 16-bit element at a time.
    pub scalar_efficiency: Known<Ratio>,
    /// Fixed time of an operation, however small (seconds).
    pub launch: Known<Seconds>,
    /// Peak rate outside matrix units, in single precision (operations per second).
    pub vector_peak: Known<FlopsPerSecond>,
    /// Peak rate of matrix products, dense (operations per second).
    pub matrix_peak: ByPrecision<Known<FlopsPerSecond>>,
    /// The part of that rate that one processor reaches while it has operands.
    pub matrix_reached: ByPrecision<Known<Ratio>>,
    /// How it cuts matrix products up.
    pub products: Products,
    /// The part of the peak rate of products that attention in one kernel reaches forward.
    pub attention_forward: Known<Ratio>,
    /// The part that it reaches backward.
    pub attention_backward: Known<Ratio>,
    /// What other operations take where memory is not what limits them: of a thread. None for a GPU.
    pub passes: Passes,
    /// What single operations take, where that was measured.
    pub operations: Laws,
}

impl Device {
    /// Whether products take a scale for each block of their operands: those of threads do, and those of GPUs
    /// with units for 4 bits.
    ///
    /// Source: NVIDIA cuBLAS documentation, "Narrow Precision Data Types Usage": block scaling needs compute
    /// capability 10.0 or more, for 8 bits as for 4.
    #[must_use]
    pub fn scales_blocks(&self) -> bool {
        !self.passes.is_empty() || self.matrix_peak.f4.is_some()
    }

    /// Time of an operation by the law of that name; `None` if the device has none.
    #[must_use]
    pub fn time(&self, law: &str, operation: &Operation) -> Option<Seconds> {
        self.operations.get(law).map(|law| law.time(&self.demand(operation)))
    }

    /// What an operation asks of it.
    #[must_use]
    pub fn demand(&self, operation: &Operation) -> Demand {
        operation.demand(self.products.processors.value.0)
    }
}

/// How a device computes matrix products: in tiles of the result, a few on each processor at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// Processors that compute tiles independently: multiprocessors of a GPU.
    pub processors: Known<Count>,
    /// Sizes of tiles that there are programs for; never empty.
    pub tiles: Known<Vec<Tile>>,
    /// Rate at which a processor gets operands from the cache (bytes per second).
    pub feed: Known<BytesPerSecond>,
    /// Time to begin and to end a tile (seconds).
    pub tile_start: Known<Seconds>,
    /// Time to begin and to end a product, however small (seconds).
    pub start: Known<Seconds>,
    /// The part of the rate of a short product that one keeps up for long: power is limited.
    pub sustained: Known<Ratio>,
    /// The part of that rate that a product has in a step of a whole model, with other work before, after and
    /// beside it.
    pub in_step: Known<Ratio>,
    /// Time of computing after which half of that limit is felt (seconds).
    pub heating: Known<Seconds>,
    /// How operands get to where they are multiplied, if nothing is multiplied meanwhile: of a thread.
    pub packing: Option<Packing>,
    /// The rate of a product with a weight that is not turned, relative to the forward one.
    pub input_gradient: Known<Ratio>,
    /// The rate of a product of two turned operands, relative to the forward one.
    pub weight_gradient: Known<Ratio>,
}

/// How a thread brings what it multiplies into the form of tiles, before it does. What its own cache has
/// costs next to nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    /// How much of a product's operands and result the cache has (bytes).
    pub cache: Known<Bytes>,
    /// The rate for what is beyond that (bytes per second).
    pub rate: Known<BytesPerSecond>,
    /// What it takes besides where a matrix lies across tiles; nothing if that is not known.
    pub turned: Option<Turned>,
}

/// How a thread turns a matrix that lies across tiles, so that neighbours in a tile are a row apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Turned {
    /// The rate at which it does (bytes per second).
    pub rate: Known<BytesPerSecond>,
    /// The same where rows lie a multiple of 4 KiB apart: their elements share the same few places of a
    /// cache (bytes per second).
    pub aliased: Known<BytesPerSecond>,
}

/// A tile of the result of a matrix product: rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows.
    pub m: u64,
    /// Columns.
    pub n: u64,
}

/// A number for each arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub struct ByPrecision<T> {
    /// 64-bit floating point.
    pub f64: T,
    /// 32-bit floating point, not shortened.
    pub f32: T,
    /// 32-bit floating point with a shortened mantissa in the products.
    pub tf32: T,
    /// 16-bit floating point.
    pub f16: T,
    /// The upper half of 32-bit floating point.
    pub bf16: T,
    /// 8-bit floating point.
    pub f8: T,
    /// 4-bit floating point with scales of blocks; none where there are no units for it, and it is computed as
    /// the upper half of 32-bit floating point.
    pub f4: Option<T>,
    /// Integers of any width.
    pub integer: T,
}

/// The arithmetic of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// 64-bit floating point.
    F64,
    /// 32-bit floating point, not shortened.
    F32,
    /// 32-bit floating point with a shortened mantissa in the products.
    Tf32,
    /// 16-bit floating point.
    F16,
    /// The upper half of 32-bit floating point.
    Bf16,
    /// 8-bit floating point, results in 16 bits.
    F8,
    /// 4-bit floating point with scales of blocks, results in 16 bits.
    F4,
    /// Integers of any width.
    Integer,
}

impl<T> ByPrecision<T> {
    /// The number at `precision`.
    #[must_use]
    pub fn at(&self, precision: Precision) -> &T {
        match precision {
            Precision::F64 => &self.f64,
            Precision::F32 => &self.f32,
            Precision::Tf32 => &self.tf32,
            Precision::F16 => &self.f16,
            Precision::Bf16 => &self.bf16,
            Precision::F8 => &self.f8,
            Precision::F4 => self.f4.as_ref().unwrap_or(&self.bf16),
            Precision::Integer => &self.integer,
        }
    }

    /// A number for each precision, made from those of `self`, or the first failure.
    pub fn try_map<U, E>(&self, mut make: impl FnMut(&str, &T) -> Result<U, E>) -> Result<ByPrecision<U>, E> {
        let f4 = self.f4.as_ref().map(|it| make(Precision::F4.name(), it)).transpose()?;
        let mut made = |precision: Precision| make(precision.name(), self.at(precision));
        Ok(ByPrecision {
            f64: made(Precision::F64)?,
            f32: made(Precision::F32)?,
            tf32: made(Precision::Tf32)?,
            f16: made(Precision::F16)?,
            bf16: made(Precision::Bf16)?,
            f8: made(Precision::F8)?,
            f4,
            integer: made(Precision::Integer)?,
        })
    }
}

impl Precision {
    /// Every precision.
    pub const ALL: [Self; 8] =
        [Self::F64, Self::F32, Self::Tf32, Self::F16, Self::Bf16, Self::F8, Self::F4, Self::Integer];

    /// The arithmetic of a product of elements of this type; 32-bit numbers are not shortened.
    #[must_use]
    pub fn of(elements: DType) -> Self {
        match elements {
            DType::F64 => Self::F64,
            DType::F32 => Self::F32,
            DType::F16 => Self::F16,
            DType::BF16 => Self::Bf16,
            DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => Self::F8,
            DType::I64 | DType::I32 | DType::I16 | DType::I8 => Self::Integer,
            DType::U64 | DType::U32 | DType::U16 | DType::U8 | DType::Bool => Self::Integer,
        }
    }

    /// The arithmetic of an operation whose first operand has such elements: two numbers of 4 bits stand in a
    /// byte.
    #[must_use]
    pub fn of_op(op: &Op, elements: DType) -> Self {
        if op.has_scales() && elements == DType::U8 { Self::F4 } else { Self::of(elements) }
    }

    /// The name in text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8 => "f8",
            Self::F4 => "f4",
            Self::Integer => "integer",
        }
    }

    /// The size of an element of an operand in memory (bits); for integers, of the widest.
    #[must_use]
    pub fn bits(self) -> u64 {
        match self {
            Self::F64 | Self::Integer => 64,
            Self::F32 | Self::Tf32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::F8 => 8,
            Self::F4 => 4,
        }
    }

    /// The size of an element of a result in memory (bytes): narrow sums would lose too much.
    #[must_use]
    pub fn result(self) -> Bytes {
        Bytes((self.bits() / 8).max(2))
    }
}
