//! Types of elements, by the names that measurements use.

/// The types of the operands of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 16-bit floating point.
    Half,
    /// The upper half of 32-bit floating point.
    Bfloat16,
    /// 8-bit floating point, scaled while it is multiplied: by matrix or by row.
    Fp8,
    /// 8-bit floating point, scaled by matrix with a factor that is known before.
    Fp8Static,
    /// 8-bit floating point with a scale for each 128 elements, of weights for each 128 by 128.
    Fp8Block,
    /// 4-bit floating point with a scale for each 16 elements.
    Nvfp4,
    /// Weights of 4-bit floating point, scaled for each 32 elements, with activations of 16 bits.
    Mxfp4Weights,
    /// The same with activations of 8 bits, scaled for each 32 elements.
    Mxfp4Mxfp8,
    /// Weights of 4-bit integers with activations of 8-bit floating point.
    Int4Fp8,
    /// Weights of 4-bit integers with activations of 16 bits.
    Int4Weights,
    /// Weights of 8-bit integers with activations of 16 bits.
    Int8Weights,
    /// 8-bit integers, activations smoothed and quantised.
    SmoothQuant,
    /// 8-bit integers.
    Int8,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Half,
        Self::Bfloat16,
        Self::Fp8,
        Self::Fp8Static,
        Self::Fp8Block,
        Self::Nvfp4,
        Self::Mxfp4Weights,
        Self::Mxfp4Mxfp8,
        Self::Int4Fp8,
        Self::Int4Weights,
        Self::Int8Weights,
        Self::SmoothQuant,
        Self::Int8,
    ];

    /// The name in measurements and machine files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Half => "half",
            Self::Bfloat16 => "bfloat16",
            Self::Fp8 => "fp8",
            Self::Fp8Static => "fp8_static",
            Self::Fp8Block => "fp8_block",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4Weights => "w4a16_mxfp4",
            Self::Mxfp4Mxfp8 => "w4a8_mxfp4_mxfp8",
            Self::Int4Fp8 => "w4afp8",
            Self::Int4Weights => "int4_wo",
            Self::Int8Weights => "int8_wo",
            Self::SmoothQuant => "sq",
            Self::Int8 => "int8",
        }
    }

    /// The format of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Bytes of an element of an activation, its part of a scale included.
    #[must_use]
    pub fn activation(self) -> f64 {
        match self {
            Self::Half | Self::Bfloat16 | Self::Mxfp4Weights | Self::Int4Weights | Self::Int8Weights => 2.0,
            Self::Fp8 | Self::Fp8Static | Self::Int4Fp8 | Self::SmoothQuant | Self::Int8 => 1.0,
            Self::Fp8Block => 1.0 + 4.0 / 128.0,
            Self::Mxfp4Mxfp8 => 1.0 + 1.0 / 32.0,
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
        }
    }

    /// Bytes of an element of a weight, its part of a scale included.
    #[must_use]
    pub fn weight(self) -> f64 {
        match self {
            Self::Half | Self::Bfloat16 => 2.0,
            Self::Fp8 | Self::Fp8Static | Self::Fp8Block => 1.0,
            Self::Int8Weights | Self::SmoothQuant | Self::Int8 => 1.0,
            Self::Nvfp4 => 0.5 + 1.0 / 16.0,
            Self::Mxfp4Weights | Self::Mxfp4Mxfp8 => 0.5 + 1.0 / 32.0,
            Self::Int4Fp8 | Self::Int4Weights => 0.5 + 2.0 / 128.0,
        }
    }
}
