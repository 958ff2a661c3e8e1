//! Operations that have laws: their sizes, work and traffic.
//!
//! Work counts a multiplication and an addition as two. Traffic is each operand and result once, caches
//! included.

use super::Demand;
use super::format::Format;
use super::imbalance::{self, Distribution};
use crate::units::{Bytes, Flops, exact};

/// Operations with the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// [`Operation::Product`].
    Product,
    /// [`Operation::Prefill`].
    Prefill,
    /// [`Operation::Decode`].
    Decode,
    /// [`Operation::Latent`].
    Latent,
    /// [`Operation::Projection`].
    Projection,
    /// [`Operation::Experts`].
    Experts,
    /// [`Operation::Collective`].
    Collective,
    /// [`Operation::Dispatch`].
    Dispatch,
    /// [`Operation::Convolution`] and [`Operation::Recurrence`].
    Sequence,
    /// [`Operation::Elements`].
    Elements,
}

/// An operation on one device, or among devices, with its sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// `x: [m, k]` times `w: [k, n]`, to 16 bits.
    Product {
        /// Rows of the activation.
        m: u64,
        /// Columns of the weight.
        n: u64,
        /// Length of the sums.
        k: u64,
        /// The types.
        format: Format,
    },
    /// Causal attention of all tokens of a prompt, or of its end behind a cache.
    Prefill(Attention),
    /// Attention of one token of each sequence to its cache.
    Decode(Attention),
    /// Multi-head latent attention, as DeepSeek-V2 has it: keys and values of all heads are made of one
    /// cached vector for each token.
    Latent(Latent),
    /// The products that take the queries of latent attention to cached vectors, and back: for each head
    /// `[tokens, 512]` by `[512, 128]` or the other way round.
    Projection {
        /// Tokens.
        tokens: u64,
        /// Heads.
        heads: u64,
        /// The types.
        format: Format,
    },
    /// The grouped products of the experts of the busiest rank: gate, up and down.
    Experts(Experts),
    /// A collective operation among devices that links join directly.
    Collective {
        /// How many devices.
        ranks: u64,
        /// Bytes of the whole value.
        bytes: u64,
        /// Whether the value goes around twice, to be summed and to be handed out.
        sums: bool,
    },
    /// Dispatch of tokens to the ranks of their experts, or combination of what comes back.
    Dispatch(Dispatch),
    /// A causal convolution of a few elements along sequences, for each channel.
    Convolution {
        /// Sequences, and what they are made of.
        sequence: Sequence,
        /// Elements of the convolution.
        width: u64,
    },
    /// A linear recurrence with a state of a matrix for each head, such as gated delta rules and Mamba-2.
    Recurrence(Sequence),
    /// A matrix that is read, or read and written, once.
    Elements {
        /// Rows.
        m: u64,
        /// Columns.
        k: u64,
        /// Bytes that are read and written for each element.
        each: u64,
    },
}

/// Attention with groups of query heads that share keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Sequences.
    pub batch: u64,
    /// New tokens of each.
    pub queries: u64,
    /// Tokens before them, whose keys and values are cached.
    pub before: u64,
    /// Heads of queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Length of a query, a key and a value.
    pub head_size: u64,
    /// How many tokens a query sees at most.
    pub window: Option<u64>,
    /// Whether the kernel knows windows at all.
    pub windows: bool,
    /// The type of queries.
    pub format: Format,
    /// The type of cached keys and values.
    pub cache: Format,
}

/// Multi-head latent attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Sequences.
    pub batch: u64,
    /// New tokens of each.
    pub queries: u64,
    /// Tokens before them.
    pub before: u64,
    /// Heads of this device.
    pub heads: u64,
    /// Among how many devices all heads are split.
    pub split: u64,
    /// Whether queries are compared with cached vectors as they are: one token of each sequence.
    pub absorbed: bool,
    /// The type of cached vectors.
    pub cache: Format,
}

/// Experts of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// Tokens of all ranks together.
    pub tokens: u64,
    /// Length of a token.
    pub hidden: u64,
    /// Hidden units of an expert on all devices that split it.
    pub inner: u64,
    /// How many experts a token takes.
    pub active: u64,
    /// Experts of all ranks.
    pub experts: u64,
    /// Among how many devices an expert is split.
    pub split: u64,
    /// Among how many ranks experts are spread.
    pub ranks: u64,
    /// How tokens fall to experts.
    pub distribution: Distribution,
    /// The types.
    pub format: Format,
}

/// Tokens on their way to experts, or back.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    /// Tokens of one rank.
    pub tokens: u64,
    /// Length of a token.
    pub hidden: u64,
    /// How many experts a token takes.
    pub active: u64,
    /// Experts of all ranks.
    pub experts: u64,
    /// Ranks.
    pub ranks: u64,
    /// Nodes that they are on.
    pub nodes: u64,
    /// Processors that move data; 0 if that is not said.
    pub processors: u64,
    /// Bytes that are moved for an element of a token, dispatched and combined as asked for.
    pub each: f64,
}

/// Sequences of a recurrence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// How many there are.
    pub batch: u64,
    /// Tokens of each.
    pub tokens: u64,
    /// Heads of keys, or groups that share them.
    pub key_heads: u64,
    /// Length of a key.
    pub key_size: u64,
    /// Heads of values.
    pub value_heads: u64,
    /// Length of a value.
    pub value_size: u64,
}

/// Elements of the vector that latent attention caches for a token, and of its part without position.
///
/// Source: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1 and 3.1.2: 512 and 64 for position;
/// queries and keys of 128 and 64, values of 128.
const LATENT: f64 = 576.0;
const CONTENT: f64 = 512.0;
const KEY: f64 = 192.0;
const VALUE: f64 = 128.0;

/// Rows of a tile, and queries of one.
const TILE: f64 = 128.0;

/// Fewest rows that matrix units multiply at once.
const LEAST_ROWS: u64 = 16;

/// Elements that share a scale: matrices that are no multiple of it are multiplied by other kernels.
const BLOCK: u64 = 128;

/// Tokens of a chunk, within which a recurrence is done by products.
///
/// Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464, section 3.3.
const CHUNK: f64 = 64.0;

/// Kernels that have laws: how their names begin, and their sizes.
const KERNELS: [(&str, Family); 13] = [
    ("gemm", Family::Product),
    ("context_attention", Family::Prefill),
    ("generation_attention", Family::Decode),
    ("mla_bmm", Family::Projection),
    ("mla", Family::Latent),
    ("moe", Family::Experts),
    ("nccl", Family::Collective),
    ("custom_allreduce", Family::Collective),
    ("alltoall", Family::Dispatch),
    ("deepep", Family::Dispatch),
    ("linear_attention", Family::Sequence),
    ("mamba2", Family::Sequence),
    ("quantize", Family::Elements),
];

impl Family {
    /// The family of the kernel that a law is named after.
    #[must_use]
    pub fn of(law: &str) -> Option<Self> {
        KERNELS.iter().find(|(kernel, _)| law.starts_with(kernel)).map(|(_, family)| *family)
    }

    /// The names of the sizes that terms of its laws depend on; `roofline` is the time by the roofline.
    #[must_use]
    pub fn sizes(self) -> &'static [&'static str] {
        match self {
            Self::Product => &["m", "n", "k", "tiles", "tail", "odd", "blocks", "roofline"],
            Self::Prefill => &[
                "heads", "batch", "queries", "size", "group", "window", "windowed", "tiles", "windows",
                "before", "roofline",
            ],
            Self::Decode => &[
                "batch", "rows", "keys", "window", "size", "group", "windowed", "tiles", "windows",
                "roofline",
            ],
            Self::Latent => &["batch", "queries", "keys", "heads", "split", "rows", "tiles", "roofline"],
            Self::Projection => &["tokens", "heads", "tiles", "roofline"],
            Self::Experts => &[
                "tokens", "load", "rows", "most", "experts", "active", "hidden", "inner", "taken", "all",
                "skew", "tiles", "ranks", "split", "roofline",
            ],
            Self::Collective => &["ranks", "bytes", "part", "roofline"],
            Self::Dispatch => {
                &["tokens", "hidden", "taken", "experts", "ranks", "nodes", "processors", "roofline"]
            }
            Self::Sequence => {
                &["batch", "tokens", "all", "key_heads", "value_heads", "width", "tiles", "roofline"]
            }
            Self::Elements => &["m", "k", "all", "odd", "roofline"],
        }
    }
}

impl Operation {
    /// Which sizes it has.
    #[must_use]
    pub fn family(&self) -> Family {
        match self {
            Self::Product { .. } => Family::Product,
            Self::Prefill(_) => Family::Prefill,
            Self::Decode(_) => Family::Decode,
            Self::Latent(_) => Family::Latent,
            Self::Projection { .. } => Family::Projection,
            Self::Experts(_) => Family::Experts,
            Self::Collective { .. } => Family::Collective,
            Self::Dispatch(_) => Family::Dispatch,
            Self::Convolution { .. } | Self::Recurrence(_) => Family::Sequence,
            Self::Elements { .. } => Family::Elements,
        }
    }

    /// What it asks of a device that has so many processors.
    #[must_use]
    pub fn demand(&self, processors: u64) -> Demand {
        let processors = exact(processors);
        match self {
            Self::Product { m, n, k, format } => product([*m, *n, *k], *format, processors),
            Self::Prefill(it) => it.prefill(processors),
            Self::Decode(it) => it.decode(processors),
            Self::Latent(it) => it.demand(processors),
            Self::Projection { tokens, heads, format } => projection([*tokens, *heads], *format, processors),
            Self::Experts(it) => it.demand(processors),
            Self::Collective { ranks, bytes, sums } => collective(*ranks, *bytes, *sums),
            Self::Dispatch(it) => it.demand(),
            Self::Convolution { sequence, width } => sequence.convolution(*width, processors),
            Self::Recurrence(sequence) => sequence.recurrence(processors),
            Self::Elements { m, k, each } => elements([*m, *k], *each),
        }
    }
}

/// A size as terms see it.
fn size(value: f64) -> f64 {
    value.max(1e-9).log2()
}

/// What is so, as a size: 1 or 0.
fn so(it: bool) -> f64 {
    if it { 1.0 } else { 0.0 }
}

fn demand(work: f64, traffic: f64, sizes: Vec<f64>) -> Demand {
    Demand { work: Flops(work), traffic: bytes(traffic), sizes }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are positive")]
fn bytes(count: f64) -> Bytes {
    Bytes(count.ceil() as u64)
}

fn product([m, n, k]: [u64; 3], format: Format, processors: f64) -> Demand {
    // Rows are padded to what matrix units take at once.
    let padded = exact(m.max(LEAST_ROWS));
    let marks = [so(!m.is_multiple_of(8)), so(n.is_multiple_of(BLOCK) && k.is_multiple_of(BLOCK))];
    let [m, n, k] = [m, n, k].map(exact);
    let waves = (m / TILE).ceil() * (n / TILE).ceil() / processors;
    let traffic = m * k * format.activation() + k * n * format.weight() + 2.0 * m * n;
    let sizes = [m, n, k, waves, waves.ceil() / waves].map(size);
    demand(2.0 * padded * n * k, traffic, sizes.into_iter().chain(marks).collect())
}

impl Attention {
    /// How many keys a query sees at most.
    fn seen(&self) -> f64 {
        let all = self.queries + self.before;
        exact(self.window.map_or(all, |window| window.min(all)))
    }

    /// Bytes of queries and results, and of keys and values of so many tokens.
    fn traffic(&self, tokens: f64) -> f64 {
        let queries = exact(self.heads * self.queries) * (self.format.activation() + 2.0);
        let cache = 2.0 * exact(self.kv_heads) * tokens * self.cache.activation();
        exact(self.batch * self.head_size) * (queries + cache)
    }

    fn prefill(&self, processors: f64) -> Demand {
        let [batch, queries, before, heads] = [self.batch, self.queries, self.before, self.heads].map(exact);
        let (all, seen) = (queries + before, self.seen());
        let short = (seen - before).max(0.0).min(queries);
        // The first queries see all that is before them, the others a window.
        let pairs = short * before + short * (short + 1.0) / 2.0 + (queries - short) * seen;
        let tiles = batch * heads * (queries / TILE).ceil() / processors;
        let group = heads / exact(self.kv_heads);
        let sizes = [batch * heads, batch, queries, exact(self.head_size), group, seen].map(size);
        let marks = [so(seen < all), size(tiles), so(self.windows), size(1.0 + before)];
        let work = 4.0 * batch * heads * exact(self.head_size) * pairs;
        demand(work, self.traffic(all), sizes.into_iter().chain(marks).collect())
    }

    fn decode(&self, processors: f64) -> Demand {
        let [batch, before, heads, kv_heads] =
            [self.batch, self.queries + self.before, self.heads, self.kv_heads].map(exact);
        let seen = self.seen();
        let rows = batch * kv_heads;
        let sizes = [batch, rows, before, seen, exact(self.head_size), heads / kv_heads].map(size);
        let marks = [so(seen < before), size(rows / processors), so(self.windows)];
        let work = 4.0 * batch * heads * exact(self.head_size) * seen;
        demand(work, self.traffic(seen), sizes.into_iter().chain(marks).collect())
    }
}

impl Latent {
    fn demand(&self, processors: f64) -> Demand {
        let [batch, queries, before, heads] = [self.batch, self.queries, self.before, self.heads].map(exact);
        let all = queries + before;
        let pairs = queries * before + queries * (queries + 1.0) / 2.0;
        let cached = batch * all * LATENT * self.cache.activation();
        let rows = batch * heads;
        let (work, traffic) = if self.absorbed {
            (2.0 * rows * (LATENT + CONTENT) * pairs, cached + 2.0 * rows * queries * (LATENT + CONTENT))
        } else {
            (2.0 * rows * (KEY + VALUE) * pairs, cached + 4.0 * rows * queries * (KEY + VALUE))
        };
        let tiles = batch * (queries * heads / TILE).ceil() / processors;
        let sizes = [batch, queries, all, heads, exact(self.split), rows, tiles].map(size);
        demand(work, traffic, sizes.to_vec())
    }
}

fn projection([tokens, heads]: [u64; 2], format: Format, processors: f64) -> Demand {
    let [tokens, heads] = [tokens, heads].map(exact);
    let weights = heads * CONTENT * VALUE;
    let moved = heads * tokens * (CONTENT + VALUE) * f64::midpoint(format.activation(), 2.0);
    let tiles = heads * (tokens / TILE).ceil() / processors;
    let sizes = [tokens, heads, tiles].map(size);
    demand(2.0 * tokens * weights, weights * format.weight() + moved, sizes.to_vec())
}

impl Experts {
    fn demand(&self, processors: f64) -> Demand {
        let Self { tokens, active, experts, ranks, .. } = *self;
        let load = imbalance::load(self.distribution, tokens, active, experts, ranks);
        let hidden = exact(self.hidden);
        let inner = exact(self.inner) / exact(self.split.max(1));
        let weights = 3.0 * load.active * hidden * inner * self.format.weight();
        let tiles = load.tiles * (inner / 64.0).ceil() / processors;
        let skew = match self.distribution {
            Distribution::Balanced => 0.0,
            Distribution::PowerLaw(exponent) => exponent,
        };
        let rows = exact(tokens * active) / exact(experts.max(1));
        let own = exact(experts) / exact(ranks.max(1));
        let sizes = [exact(tokens), load.rows, rows, load.most, own, load.active, hidden, inner].map(size);
        let sizes = sizes.into_iter().chain([exact(active), exact(experts)].map(size)).chain([skew]);
        let sizes = sizes.chain([tiles, exact(ranks), exact(self.split)].map(size)).collect();
        demand(6.0 * load.rows * hidden * inner, weights + load.rows * (4.0 * hidden + 4.0 * inner), sizes)
    }
}

fn collective(ranks: u64, bytes: u64, sums: bool) -> Demand {
    let [ranks, bytes] = [ranks, bytes].map(exact);
    let rounds = if sums { 2.0 } else { 1.0 };
    let sizes = [ranks, bytes, bytes / ranks].map(size);
    demand(0.0, rounds * (ranks - 1.0) / ranks * bytes, sizes.to_vec())
}

impl Dispatch {
    fn demand(&self) -> Demand {
        let Self { tokens, hidden, active, experts, ranks, nodes, processors, each } = *self;
        // A token is sent to a rank once, however many of its experts are there.
        let copies = exact(active.min(ranks));
        let sizes = [tokens, hidden, active, experts, ranks, nodes, processors.max(1)].map(exact).map(size);
        demand(0.0, exact(tokens * hidden) * copies * each, sizes.to_vec())
    }
}

impl Sequence {
    fn sizes(&self, width: u64, processors: f64) -> Vec<f64> {
        let Self { batch, tokens, key_heads, value_heads, .. } = *self;
        let tiles = exact(batch * value_heads) / processors;
        let sizes = [batch, tokens, batch * tokens, key_heads, value_heads, width].map(exact);
        sizes.into_iter().chain([tiles]).map(size).collect()
    }

    /// Channels of queries, keys and values together.
    fn channels(&self) -> f64 {
        exact(2 * self.key_heads * self.key_size + self.value_heads * self.value_size)
    }

    fn convolution(&self, width: u64, processors: f64) -> Demand {
        let all = exact(self.batch * self.tokens) * self.channels();
        let states = 2.0 * exact(self.batch * width) * self.channels();
        let traffic = 4.0 * all + 2.0 * states;
        demand(2.0 * exact(width) * all, traffic, self.sizes(width, processors))
    }

    fn recurrence(&self, processors: f64) -> Demand {
        let all = exact(self.batch * self.tokens) * exact(self.value_heads);
        let state = exact(self.key_size * self.value_size);
        let states = exact(self.batch * self.value_heads) * state;
        let inputs =
            exact(self.batch * self.tokens) * (self.channels() + exact(self.value_heads * self.value_size));
        let chunk = if self.tokens > 1 { CHUNK } else { 0.0 };
        let within = 6.0 * chunk * exact(self.key_size + self.value_size);
        // States of 32 bits are read and written.
        demand(
            all * (8.0 * state + within),
            2.0 * inputs + 8.0 * states,
            self.sizes(self.key_size, processors),
        )
    }
}

fn elements([m, k]: [u64; 2], each: u64) -> Demand {
    let odd = so(!m.is_multiple_of(8));
    let sizes = [m, k, m * k].map(exact).map(size);
    demand(exact(m * k), exact(m * k * each), sizes.into_iter().chain([odd]).collect())
}
