//! What a decoder is made of, whatever its family calls it.

/// A decoder: tokens to what comes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoder {
    /// Tokens that there are.
    pub(crate) vocabulary: u64,
    /// The length of a token's vector.
    pub(crate) hidden: u64,
    /// The weight of tokens' vectors, and what they are multiplied by.
    pub(crate) embedding: String,
    pub(crate) embedding_scale: Option<f64>,
    /// The weight of vectors of positions, and how many there are.
    pub(crate) positions: Option<(String, u64)>,
    /// The angles of rotary embeddings.
    pub(crate) tables: Vec<Table>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Norm,
    pub(crate) head: Head,
    /// What predicts the tokens after the next (multi-token prediction), each block of what the one before makes.
    pub(crate) further: Vec<Further>,
}

/// A block that predicts one token further: a layer of what stands for a token and the token after it, both
/// normalised and brought to the length of one. It shares the embedding and the head.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Further {
    /// The norms of the token's embedding and of what the block before makes.
    pub(crate) norms: [Norm; 2],
    /// The product from both, the embedding first, to the length of one.
    pub(crate) joined: Linear,
    pub(crate) layer: Layer,
    /// The norm before the head.
    pub(crate) norm: Norm,
}

/// How logits are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Head {
    /// Its weight; the embedding's if there is none.
    pub(crate) weight: Option<Linear>,
    /// What logits are multiplied by.
    pub(crate) scale: Option<f64>,
    /// Logits stay between this and its negative.
    pub(crate) softcap: Option<f64>,
}

/// The angles of a rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// The angle of each pair of elements at position 1.
    pub(crate) frequencies: Frequencies,
    /// What cosines and sines are multiplied by.
    pub(crate) factor: f64,
    pub(crate) pairing: Pairing,
}

/// The angles of pairs of elements at position 1.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Frequencies {
    /// The same for all lengths.
    Fixed(Vec<f64>),
    /// Others for sequences that are longer than `length`.
    ByLength { length: u64, short: Vec<f64>, long: Vec<f64> },
    /// Powers of a base that grows with lengths above `length`, as `dynamic` scaling says.
    Growing { base: f64, factor: f64, length: u64, size: u64 },
}

impl Frequencies {
    /// How many elements of a head are rotated.
    pub(crate) fn rotated(&self) -> u64 {
        let pairs = match self {
            Self::Fixed(all) => all.len(),
            Self::ByLength { short, .. } => short.len(),
            Self::Growing { size, .. } => return *size,
        };
        2 * u64::try_from(pairs).unwrap_or(u64::MAX)
    }
}

/// Which elements are rotated with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Those of the first half with those of the second.
    Halves,
    /// Each with the next.
    Neighbours,
}

/// One layer: attention, and units for each token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layer {
    /// The prefix of its weights.
    pub(crate) name: String,
    pub(crate) mixer: Mixer,
    pub(crate) mixer_norms: Norms,
    pub(crate) units: Units,
    pub(crate) units_norms: Norms,
    /// Whether both are of the layer's input, not the second of what the first adds.
    pub(crate) parallel: bool,
    /// What is added to the input is multiplied by this.
    pub(crate) residual: Option<f64>,
}

/// The norms before and after a part of a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Norms {
    pub(crate) before: Option<Norm>,
    pub(crate) after: Option<Norm>,
}

/// A normalisation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Norm {
    /// The prefix of its weights.
    pub(crate) name: String,
    pub(crate) kind: NormKind,
    pub(crate) epsilon: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// By the root of the mean square.
    Rms,
    /// The same, whose stored scale is that minus 1.
    RmsAroundOne,
    /// By mean and variance; with a bias or not.
    Layer { bias: bool },
}

/// A product with a weight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Linear {
    /// The prefix of its weights.
    pub(crate) name: String,
    pub(crate) bias: bool,
    pub(crate) stored: Stored,
}

/// How the weight of a product is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// `[out, in]`.
    OutIn,
    /// `[in, out]`.
    InOut,
}

/// What brings tokens together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mixer {
    Attention(Box<Attention>),
    Latent(Latent),
    Recurrent(Box<Recurrent>),
}

/// A state of a matrix for each head that goes from token to token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recurrent {
    pub(crate) name: String,
    /// Heads of values and states, and of queries and keys.
    pub(crate) heads: u64,
    pub(crate) groups: u64,
    /// The lengths of a head's key and value.
    pub(crate) key: u64,
    pub(crate) value: u64,
    /// How many tokens the convolution before it sees.
    pub(crate) window: u64,
    pub(crate) epsilon: f64,
    pub(crate) rule: Rule,
}

/// What a token does to the state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// The selective scan of Mamba-2: whether products and the convolution have biases, and the bounds of time
    /// steps, if there are any.
    SelectiveScan { bias: bool, conv_bias: bool, limit: Option<[f64; 2]> },
    /// The gated delta rule of Qwen3-Next.
    GatedDelta,
}

/// Attention.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attention {
    /// The prefix of its weights.
    pub(crate) name: String,
    pub(crate) heads: u64,
    /// Heads of keys and values.
    pub(crate) groups: u64,
    /// The length of a head's vector.
    pub(crate) size: u64,
    pub(crate) projections: Projections,
    pub(crate) out: Linear,
    /// The norms of queries and of keys.
    pub(crate) norms: Option<[Norm; 2]>,
    /// Whether queries are made with a gate of their length, which lets through what attention makes.
    pub(crate) gated: bool,
    /// Whether these norms are over all heads together.
    pub(crate) norms_whole: bool,
    /// Which angles heads are rotated by.
    pub(crate) table: Option<usize>,
    /// What scores are multiplied by.
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// How many keys a query sees at most: itself and those just before it.
    pub(crate) window: Option<u64>,
    /// The weight of scores that the softmax has besides, one for each head.
    pub(crate) sinks: Option<String>,
}

/// How queries, keys and values are made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Projections {
    /// Each by a weight of its own.
    Apart([Linear; 3]),
    /// By one weight: all queries, all keys, all values.
    Blocks(Linear),
    /// By one weight: for each head its query, key and value.
    Heads(Linear),
}

/// Attention whose keys and values are made of a short vector for each token (MLA).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Latent {
    pub(crate) name: String,
    pub(crate) heads: u64,
    /// The length of a head's query and key that is not rotated, that is rotated, and of its value.
    pub(crate) plain: u64,
    pub(crate) rotated: u64,
    pub(crate) value: u64,
    /// The length of the vector that queries are made of, if there is one.
    pub(crate) query_rank: Option<u64>,
    /// The length of that of keys and values.
    pub(crate) rank: u64,
    pub(crate) bias: bool,
    pub(crate) epsilon: f64,
    pub(crate) table: usize,
    pub(crate) scale: f64,
}

/// What is computed for each token alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Units {
    /// Nothing.
    None,
    Dense(Dense),
    Experts(Box<Experts>),
}

/// Products to a longer vector and back.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dense {
    pub(crate) name: String,
    /// The longer length.
    pub(crate) length: u64,
    pub(crate) activation: Activation,
    pub(crate) up: Up,
    pub(crate) down: Linear,
}

/// The way up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Up {
    Plain(Linear),
    /// A gate, and what it lets through.
    Gated([Linear; 2]),
    /// The same by one weight: all gates, then the rest.
    Together(Linear),
}

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Silu,
    Gelu,
    GeluTanh,
    Relu,
}

/// Many units of which each token takes a few.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Experts {
    pub(crate) name: String,
    pub(crate) count: u64,
    /// How many a token takes.
    pub(crate) active: u64,
    /// The length inside of each.
    pub(crate) length: u64,
    pub(crate) inside: Inside,
    pub(crate) router: Router,
    /// Units that every token takes, and the weight that says how much of them.
    pub(crate) shared: Option<(Dense, Option<String>)>,
}

/// What is inside of each expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Inside {
    /// Gated units; the names of the weights of the gate, of the way up and of the way down, after `experts.N.`.
    Gated { activation: Activation, weights: [&'static str; 3] },
    /// The units of gpt-oss, bounded by a limit, whose products have biases. All experts have one weight,
    /// `[experts, in, out]`, in which gates and the way up take turns.
    Bounded { limit: f64 },
}

/// How a token chooses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Router {
    /// Its weight.
    pub(crate) weight: String,
    /// A bias of its products.
    pub(crate) added: Option<String>,
    pub(crate) scores: Scores,
    /// A bias that only the choice has.
    pub(crate) bias: Option<String>,
    /// Groups of experts, of which a token takes the best: how many there are, and how many it takes.
    pub(crate) groups: Option<Groups>,
    /// Whether the weights of what is chosen are made to sum to 1, after this is added to their sum.
    pub(crate) normalized: Option<f64>,
    /// What they are multiplied by.
    pub(crate) factor: f64,
    /// Whether logits are computed in 32 bits.
    pub(crate) wide: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scores {
    Softmax,
    /// A softmax of what is chosen.
    SoftmaxOfChosen,
    Sigmoid,
}

/// Groups of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) count: u64,
    pub(crate) active: u64,
    /// How many of a group's best experts are summed to its score.
    pub(crate) best: u64,
}
