//! Element types, numbers and the types of values.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// A sign, 4 bits of exponent and 3 of fraction, up to 448; no infinities, one NaN of each sign.
    ///
    /// Source: Micikevicius et al., "FP8 Formats for Deep Learning", 2022, table 1.
    F8E4M3FN,
    /// A sign, 4 bits of exponent and 3 of fraction, up to 240; no infinities, one NaN, one zero.
    ///
    /// Source: Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022, section 2.
    F8E4M3FNUZ,
    /// A sign, 5 bits of exponent and 2 of fraction, up to 57,344: the upper half of a binary16.
    F8E5M2,
    /// A sign, 5 bits of exponent and 2 of fraction, up to 57,344; no infinities, one NaN, one zero.
    F8E5M2FNUZ,
    /// Signed, 64 bits.
    I64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 16 bits.
    I16,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 64 bits.
    U64,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every element type.
    pub const ALL: [Self; 17] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::I64,
        Self::I32,
        Self::I16,
        Self::I8,
        Self::U64,
        Self::U32,
        Self::U16,
        Self::U8,
        Self::Bool,
        Self::F8E4M3FN,
        Self::F8E4M3FNUZ,
        Self::F8E5M2,
        Self::F8E5M2FNUZ,
    ];

    /// The size of an element (bytes).
    pub fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            Self::F8E4M3FN | Self::F8E4M3FNUZ | Self::F8E5M2 | Self::F8E5M2FNUZ => 1,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F8E4M3FN => "f8e4m3fn",
            Self::F8E4M3FNUZ => "f8e4m3fnuz",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E5M2FNUZ => "f8e5m2fnuz",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::I16 => "i16",
            Self::I8 => "i8",
            Self::U64 => "u64",
            Self::U32 => "u32",
            Self::U16 => "u16",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }

    /// The element type of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Whether elements are floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32) || self.is_half() || self.is_f8()
    }

    /// Whether these are floating-point numbers of 16 bits.
    pub fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::BF16)
    }

    /// Whether these are floating-point numbers of 8 bits.
    pub fn is_f8(self) -> bool {
        matches!(self, Self::F8E4M3FN | Self::F8E4M3FNUZ | Self::F8E5M2 | Self::F8E5M2FNUZ)
    }

    /// The elements in which sums that grow from time step to time step are kept, and travel, until
    /// they are rounded once: f32 for narrower floating-point numbers.
    pub fn accumulated(self) -> Self {
        if self.is_half() || self.is_f8() { Self::F32 } else { self }
    }

    /// Whether addends can be owed: `false` for truth values.
    pub fn has_sums(self) -> bool {
        self != Self::Bool
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A number that stands in an operation: compared, ordered and hashed by its bits.
#[derive(Clone, Copy, Debug)]
pub struct Real(pub f64);

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The type of a value: its elements and its shape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    /// The type of one element.
    pub dtype: DType,
    /// The extent of each dimension (elements).
    pub shape: Vec<u64>,
}

impl Type {
    /// The type of values of that element type and shape.
    pub fn new(dtype: DType, shape: impl Into<Vec<u64>>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// How many dimensions there are.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// How many elements there are.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// What a whole value occupies (bytes).
    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (dimension, extent) in self.shape.iter().enumerate() {
            let separator = if dimension == 0 { "" } else { "," };
            write!(f, "{separator}{extent}")?;
        }
        f.write_str("]")
    }
}
