//! States that go from token to token.

/// A linear recurrence along a sequence, whose state is a matrix for each head, and its gradient.
///
/// Operands, for batches b, tokens s, key heads G, heads H (a multiple of G), sizes d and e:
///
/// | operand | shape | elements |
/// |---|---|---|
/// | queries q | `[b, s, G, d]` | |
/// | keys k | `[b, s, G, d]` | those of q |
/// | values v | `[b, s, H, e]` | those of q |
/// | decay g | `[b, s, H, d]`, or 1 for all of d | those of q, or of S |
/// | rate r, of a delta rule only | `[b, s, H]` | those of q, or of S |
/// | state S before the first token | `[b, H, d, e]` | f32, or f64 where q is f64 |
///
/// Head h has the queries and keys of head `h / (H / G)`. For each token in order, the state first decays:
/// `S <- exp(g) S`, row by row. Then
///
/// - a selective scan adds `k vᵀ` to it,
/// - a gated delta rule adds `k (r (v - Sᵀ k))ᵀ`: what the key finds there already is replaced,
///
/// and the token's result is `y = Sᵀ q`. Results are `y: [b, s, H, e]` and the state after the last token. So
/// a sequence may be done in parts, one after another, each with the state that the one before leaves.
///
/// A gradient has these operands and then the gradients of both results; it makes those of all operands, in
/// their order.
///
/// Sources: Dao and Gu, "Transformers are SSMs" (Mamba-2), 2024, listing 1, where k, q and v are B, C and
/// `dt x` and g is `dt A`; with a decay for each row it is the scan of Gu and Dao, "Mamba", 2023. Yang, Kautz
/// and Hatamizadeh, "Gated Delta Networks", 2024, section 3.1, with r for their β.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "said above")]
pub enum Recurrence {
    SelectiveScan,
    GatedDelta,
    SelectiveScanGradient,
    GatedDeltaGradient,
}

impl Recurrence {
    /// Whether what a key finds in the state is replaced.
    #[must_use]
    pub fn replaces(self) -> bool {
        match self {
            Self::GatedDelta | Self::GatedDeltaGradient => true,
            Self::SelectiveScan | Self::SelectiveScanGradient => false,
        }
    }

    /// The gradient, of what is none itself.
    #[must_use]
    pub fn gradient(self) -> Option<Self> {
        match self {
            Self::SelectiveScan => Some(Self::SelectiveScanGradient),
            Self::GatedDelta => Some(Self::GatedDeltaGradient),
            Self::SelectiveScanGradient | Self::GatedDeltaGradient => None,
        }
    }

    /// How many operands the recurrence has: those of a gradient without the gradients of results.
    #[must_use]
    pub fn operands(self) -> usize {
        if self.replaces() { 6 } else { 5 }
    }

    /// Which of them is the state before the first place, which is in f32 whatever the others are in.
    #[must_use]
    pub fn state(self) -> usize {
        self.operands() - 1
    }
}
