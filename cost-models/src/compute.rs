//! The time of operations on one device.
//!
//! A matrix product is cut into tiles of its result, which the processors of the device compute a
//! wave at a time:
//!
//! ```text
//! tiles   = batch · ⌈m/m_t⌉ · ⌈n/n_t⌉
//! step    = ‖ 2 m_t n_t/(e · peak/P), (m_t + n_t) · element/feed ‖
//! compute = ⌈parts · tiles/P⌉ · (⌈k/parts⌉ · step + tile start)
//! t       = start + ‖ heat(compute), traffic/(e_mem · bandwidth) ‖
//! ```
//!
//! A thread brings operands into the form of tiles before it multiplies. What its cache has costs next to
//! nothing, and what is beyond that comes at a rate of its own, after each other; and each product of a
//! batch begins anew:
//!
//! ```text
//! t = batch · start + ‖ … ‖ + (traffic − batch · cache)/rate
//! ```
//!
//! A matrix that lies across tiles is turned besides, see [`turning`].
//!
//! `P` is the number of processors, and `parts` the number of pieces that sums are cut into where
//! there are few tiles; pieces are written and read again in 32 bits. Two things that go on at the
//! same time take `‖a, b‖ = (a⁴ + b⁴)^¼`: the longer, and somewhat more if they are alike. The
//! tile and the number of parts that give the shortest time are taken, as a library does.
//!
//! Source: waves of tiles and their quantisation: NVIDIA, "Matrix Multiplication Background User's
//! Guide"; parts of sums: Osama et al., "Stream-K", PPoPP 2023; computing and memory at the same
//! time: Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009. The rates are fits that
//! the machine files cite. Packing: Goto and van de Geijn, "Anatomy of High-Performance Matrix
//! Multiplication", ACM TOMS 34(3), 2008.

use crate::machine::{Device, Packing, Precision, Products, Tile, Turned};
use crate::units::{Bytes, Flops, Seconds, exact};

/// Products `x: [batch, m, k]` times `w: [batch, k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixProduct {
    /// How many independent products are computed together.
    pub batch: u64,
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Length of the sums.
    pub k: u64,
    /// The arithmetic, and with it the size of an element.
    pub precision: Precision,
    /// What the product is for, and with it how its operands lie in memory.
    pub role: Role,
    /// Bytes that are moved for an element of the result: more than its size if it is added to
    /// what is there.
    pub per_result: Bytes,
}

/// What a product is for in training.
///
/// BLAS calls the three TN, NN and NT: which operands are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An activation times a weight.
    Forward,
    /// The gradient of a result times the weight.
    InputGradient,
    /// The gradient of a result times an activation, summed over rows.
    WeightGradient,
}

/// How long a device has been computing when a product begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heat {
    /// Not: its clock falls while the product goes on.
    Cold,
    /// Long, with products alone: it runs as fast as its power allows.
    Warm,
    /// Long, with steps of a whole model: other work stands before, after and beside a product.
    InStep,
}

impl MatrixProduct {
    /// A forward product of `[m, n, k]` whose result is written once.
    #[must_use]
    pub fn forward(batch: u64, [m, n, k]: [u64; 3], precision: Precision) -> Self {
        let per_result = precision.result();
        Self { batch, m, n, k, precision, role: Role::Forward, per_result }
    }

    /// Multiplications and additions.
    #[must_use]
    pub fn work(&self) -> Flops {
        Flops(2.0 * exact(self.batch) * exact(self.m) * exact(self.n) * exact(self.k))
    }

    /// Bytes that are read and written if each element is touched once.
    #[must_use]
    pub fn traffic(&self) -> Bytes {
        let operands = ((self.m + self.n) * self.k * self.precision.bits()).div_ceil(8);
        self.batch * (Bytes(operands) + (self.m * self.n) * self.per_result)
    }
}

/// The numbers of pieces that sums are cut into.
const PARTS: [u64; 3] = [1, 2, 4];

/// Bytes for an element of a piece of a sum: written and read in 32 bits.
const PER_PIECE: f64 = 8.0;

/// Time of a matrix product in steps of a whole model: [`Heat::InStep`].
#[must_use]
pub fn matrix_product(device: &Device, product: &MatrixProduct) -> Seconds {
    matrix_product_at(device, product, Heat::InStep)
}

/// Time of a matrix product.
///
/// A device that is cold computes at the rate of its boost clock and slows down as the product
/// goes on:
///
/// ```text
/// heat(c) = c · (1 + (1/sustained − 1) · c/(c + heating))        cold
/// heat(c) = c/sustained                                          warm
/// heat(c) = c/(sustained · in step)                              in a step
/// ```
///
/// Source: see the top of this file; the fall of the rate with the time of a product is a fit.
#[must_use]
pub fn matrix_product_at(device: &Device, product: &MatrixProduct, heat: Heat) -> Seconds {
    if product.batch == 0 || product.m == 0 || product.n == 0 {
        return device.products.start.value;
    }
    let streaming = streaming(device, product.traffic()).0;
    let pieces = PER_PIECE * exact(product.batch * product.m * product.n) / memory_rate(device);
    let mut best = f64::INFINITY;
    for &tile in &device.products.tiles.value {
        let step = step(device, product, tile);
        for parts in PARTS {
            let computing = heated(device, waves(device, product, tile, step, parts), heat);
            let moving = streaming + if parts > 1 { exact(parts) * pieces } else { 0.0 };
            best = best.min(fourth(computing) + fourth(moving));
        }
    }
    let Products { start, packing, .. } = &device.products;
    let seconds = Seconds(best.sqrt().sqrt());
    let Some(Packing { cache, rate, .. }) = packing else { return start.value + seconds };
    let beyond = exact(product.traffic().0) - exact(product.batch) * exact(cache.value.0);
    exact(product.batch) * start.value + seconds + Seconds(beyond.max(0.0) / rate.value.0)
}

/// How many bytes apart elements lie that share a place of a processor's own cache. Places have 8 to 12 lines:
/// rows of a tile that lie a quarter of this apart, or less, have enough of them.
///
/// Source: 64 sets of lines of 64 bytes in the first cache of x86 processors: Intel, "64 and IA-32
/// Architectures Optimization Reference Manual", section on 4 KiB aliasing; AMD, "Software Optimization
/// Guide for the AMD Zen4 Microarchitecture".
const ALIASED: u64 = 4096;

/// Time of a thread to turn matrices that lie across tiles: so many bytes, whose rows lie so many bytes
/// apart.
///
/// ```text
/// t = bytes/rate                                               rows a multiple of at most 1 KiB apart
/// t = bytes · max(1/rate, gcd(row, 4 KiB)/4 KiB/aliased rate)  of 2 KiB and more
/// ```
///
/// Nothing for devices of which it is not known.
#[must_use]
pub fn turning(device: &Device, turned: Bytes, row: Bytes) -> Seconds {
    let packing = device.products.packing.as_ref();
    let Some(Turned { rate, aliased }) = packing.and_then(|it| it.turned.as_ref()) else {
        return Seconds::ZERO;
    };
    // The largest power of two that divides both.
    let apart = 1 << row.0.trailing_zeros().min(ALIASED.trailing_zeros());
    let crowded = if 2 * apart < ALIASED { 0.0 } else { exact(apart) / exact(ALIASED) };
    (turned / rate.value).max(crowded * (turned / aliased.value))
}

/// What a multiplication or addition takes in the fastest products in steps of a device, whatever their
/// sizes (seconds): by the best tile, of which each processor has one.
pub(crate) fn fastest(device: &Device, precision: Precision) -> f64 {
    let products = &device.products;
    let one = MatrixProduct::forward(1, [1, 1, 1], precision);
    let of = |tile: &Tile| step(device, &one, *tile) / (2.0 * exact(tile.m * tile.n));
    let best = products.tiles.value.iter().map(of).fold(f64::INFINITY, f64::min);
    best / (exact(products.processors.value.0) * products.sustained.value.0 * products.in_step.value.0)
}

/// Time that a processor takes to add one product of a column and a row to a tile (seconds).
fn step(device: &Device, product: &MatrixProduct, tile: Tile) -> f64 {
    let products = &device.products;
    let role = match product.role {
        Role::Forward => 1.0,
        Role::InputGradient => products.input_gradient.value.0,
        Role::WeightGradient => products.weight_gradient.value.0,
    };
    let precision = product.precision;
    let reached = device.matrix_reached.at(precision).value.0 * device.matrix_peak.at(precision).value.0;
    let computing = 2.0 * exact(tile.m * tile.n) * exact(products.processors.value.0) / reached;
    let feeding = exact((tile.m + tile.n) * precision.bits()) / 8.0 / products.feed.value.0;
    (fourth(computing) + fourth(feeding)).sqrt().sqrt() / role
}

/// Time of all waves of tiles (seconds).
fn waves(device: &Device, product: &MatrixProduct, tile: Tile, step: f64, parts: u64) -> f64 {
    let products = &device.products;
    let tiles = product.batch * product.m.div_ceil(tile.m) * product.n.div_ceil(tile.n);
    let waves = (parts * tiles).div_ceil(products.processors.value.0);
    exact(waves) * (exact(product.k.div_ceil(parts)) * step + products.tile_start.value.0)
}

fn heated(device: &Device, computing: f64, heat: Heat) -> f64 {
    let products = &device.products;
    let sustained = products.sustained.value.0;
    match heat {
        Heat::Cold => {
            let felt = computing / (computing + products.heating.value.0);
            computing * (1.0 + (1.0 / sustained - 1.0) * felt)
        }
        Heat::Warm => computing / sustained,
        Heat::InStep => computing / (sustained * products.in_step.value.0),
    }
}

fn fourth(time: f64) -> f64 {
    let square = time * time;
    square * square
}

/// Time of an operation that is not a matrix product and reads and writes `traffic` bytes.
///
/// ```text
/// t = launch + max(bytes/(e_mem · bandwidth), F/vector peak)
/// ```
///
/// Source: the roofline of Williams, Waterman and Patterson, CACM 52(4), 2009.
#[must_use]
pub fn element_wise(device: &Device, traffic: Bytes, work: Flops) -> Seconds {
    device.launch.value + kernel(device, Access::Wide, traffic, work)
}

/// How many elements an operation reads and writes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As many as a memory instruction can.
    Wide,
    /// One.
    Scalar,
}

/// Time on the device of an operation that is not a matrix product, without that to launch it.
///
/// ```text
/// t = max(bytes/(e · bandwidth), F/vector peak)
/// ```
///
/// `e` is the part of the rate of memory that is reached with such an access.
///
/// Source: the roofline of Williams, Waterman and Patterson, CACM 52(4), 2009.
#[must_use]
pub fn kernel(device: &Device, access: Access, traffic: Bytes, work: Flops) -> Seconds {
    let part = match access {
        Access::Wide => device.memory_efficiency.value,
        Access::Scalar => device.scalar_efficiency.value,
    };
    (traffic / (part * device.memory_bandwidth.value)).max(work / device.vector_peak.value)
}

/// Attention in one kernel, which keeps scores on the chip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Heads of queries of all examples together.
    pub heads: u64,
    /// Queries of each.
    pub queries: u64,
    /// Keys of each.
    pub keys: u64,
    /// Those of them that a query sees.
    pub seen: Seen,
    /// Length of a query and of a key.
    pub key_size: u64,
    /// Length of a value.
    pub value_size: u64,
    /// The arithmetic.
    pub precision: Precision,
}

/// How many keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// On average.
    pub average: f64,
    /// The last query, at most.
    pub most: u64,
}

impl Seen {
    /// All of them.
    #[must_use]
    pub fn all(keys: u64) -> Self {
        Self { average: exact(keys), most: keys }
    }

    /// Those up to its own: half of as many as there are queries.
    #[must_use]
    pub fn half(keys: u64) -> Self {
        Self { average: exact(keys) / 2.0, most: keys }
    }

    /// Those of the first `keys` that are not later than its own, and within a window: of the last
    /// `queries`, whose own keys are the last of `of`.
    ///
    /// ```text
    /// 1/queries · integral over own from of − queries to of: min(max(own, 0), window, keys)
    /// ```
    ///
    /// A query's own key counts half, so that of as many queries as keys half is seen.
    #[must_use]
    pub fn earlier([queries, keys]: [u64; 2], of: u64, window: Option<u64>) -> Self {
        let most = window.map_or(keys, |window| window.min(keys));
        let (bound, end) = (exact(most), exact(of));
        let up_to = |own: f64| {
            let rising = own.clamp(0.0, bound);
            rising * rising / 2.0 + bound * (own - bound).max(0.0)
        };
        let seen = up_to(end) - up_to(end - exact(queries));
        Self { average: seen / exact(queries.max(1)), most }
    }
}

impl Attention {
    /// Multiplications and additions of the scores that count.
    #[must_use]
    pub fn work(&self) -> Flops {
        let pairs = exact(self.heads) * exact(self.queries) * self.seen.average;
        Flops(2.0 * pairs * exact(self.key_size + self.value_size))
    }
}

/// Queries that a processor computes attention for at a time.
const QUERY_TILE: u64 = 128;

/// The part of the work of one tile that is left when most processors are done.
const TAIL: f64 = 0.5;

/// Time on the device of attention in one kernel, forward.
///
/// ```text
/// t = start + (F/P + F_tile/2)/(e · peak/P)
/// ```
///
/// `F_tile` is the work of a tile of 128 queries with all keys that the last one sees, which processors
/// end at different times.
///
/// Source: tiles of queries over processors: Dao, "FlashAttention-2", arXiv 2307.08691, section
/// 3.2; `e` is a fit that the machine file cites, and the tail half a tile on average.
#[must_use]
pub fn attention(device: &Device, attention: &Attention) -> Seconds {
    fused(device, attention, 1.0, device.attention_forward.value.0)
}

/// Time on the device of the gradient of attention in one kernel: two products for each of the
/// forward ones, and the scores again.
///
/// Source: as [`attention`]; 2.5 times the work: the same, section 2.
#[must_use]
pub fn attention_gradient(device: &Device, attention: &Attention) -> Seconds {
    fused(device, attention, 2.5, device.attention_backward.value.0)
}

fn fused(device: &Device, attention: &Attention, passes: f64, reached: f64) -> Seconds {
    let processors = exact(device.products.processors.value.0);
    let rate = reached * device.matrix_peak.at(attention.precision).value.0;
    let tiles = attention.heads * attention.queries.div_ceil(QUERY_TILE);
    let whole = Attention { seen: Seen::all(attention.seen.most), ..*attention };
    let tile = if tiles == 0 { 0.0 } else { whole.work().0 / exact(tiles) };
    let work = passes * (attention.work().0 + TAIL * tile * processors);
    device.products.start.value + Seconds(work / rate)
}

fn streaming(device: &Device, traffic: Bytes) -> Seconds {
    Seconds(exact(traffic.0) / memory_rate(device))
}

/// The rate of memory that is reached (bytes per second).
pub(crate) fn memory_rate(device: &Device) -> f64 {
    device.memory_efficiency.value.0 * device.memory_bandwidth.value.0
}

#[cfg(test)]
mod tests;
