//! Rates and starts that explain measured times.

mod exchanges; // of what ranks exchange
mod turned; // of matrices that lie across tiles

use std::fmt::Write as _;

use cost_models::compute::{MatrixProduct, matrix_product};
use cost_models::machine::measured::{Measurements, host};
use cost_models::machine::{Pass, Precision, Tile};
use cost_models::quantity;
use cost_models::units::{Bytes, BytesPerSecond, FlopsPerSecond, Ratio, Seconds, exact};
use cost_models::work::{self, Rows, Work};
use files::Failure;
use planner_ir::DType;
use predict::fit::descend;

use super::{IN_CACHE, IN_MEMORY, INTEGER, REFERENCE, WIDE, Wanted, passes, products};

/// A measured time beside what the fitted numbers say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// What was measured.
    pub name: String,
    /// How long it took (seconds).
    pub measured: f64,
    /// How long it takes by the numbers (seconds).
    pub fitted: f64,
}

/// Kinds of operations, what each takes to start and for an element.
type Paces = Vec<(Pass, Seconds, Seconds)>;

/// Tiles that products may be cut into: a vector register of 32-bit numbers by as many rows, and the
/// tiles of kernels with wider registers.
const TILES: [Tile; 4] =
    [Tile { m: 8, n: 8 }, Tile { m: 8, n: 16 }, Tile { m: 8, n: 32 }, Tile { m: 8, n: 48 }];

/// How often each number is sought.
const ROUNDS: usize = 4;

/// How many times less or more than a first guess the rate, the start of a product, that of a tile, what a
/// processor's own cache has of a product, and the rate for what is beyond may be.
const RANGES: [f64; 5] = [2.0, 32.0, 256.0, 32.0, 256.0];

/// A first guess of what a processor's own cache has.
const CACHE: Bytes = Bytes(1 << 20);

/// What the times of all measurements say of a machine of so many ranks, each of which can use and has
/// taken so much memory; and how well they say it.
pub(super) fn fitted(
    ranks: u64,
    (memory_capacity, memory_reserved): (Bytes, Bytes),
    seconds: &mut dyn FnMut(Wanted) -> Result<f64, Failure>,
) -> Result<(Measurements, Vec<Fit>), Failure> {
    let launch = seconds(Wanted::Sum(1))?;
    let in_cache = seconds(Wanted::Sum(IN_CACHE))?;
    let rate = |shape: [u64; 3], seconds: f64| work(shape) / seconds;
    let large = seconds(Wanted::Product(DType::F32, products::LARGE))?;
    let wide = rate([WIDE; 3], seconds(Wanted::Product(DType::F64, [WIDE; 3]))?);
    let integer = rate([INTEGER; 3], seconds(Wanted::Product(DType::I64, [INTEGER; 3]))?);
    let in_memory = seconds(Wanted::Sum(IN_MEMORY))?;
    let products = seconds(Wanted::Product(DType::F32, REFERENCE))?;
    let moved = 3.0 * 4.0 * exact(IN_MEMORY);
    let mut found = Measurements {
        memory_capacity,
        memory_reserved,
        memory_bandwidth: BytesPerSecond(moved / in_memory),
        launch: Seconds(launch),
        vector_peak: FlopsPerSecond(exact(IN_CACHE) / (in_cache - launch).max(in_cache / 100.0)),
        matrix_f64: FlopsPerSecond(wide),
        matrix_f32: FlopsPerSecond(rate(products::LARGE, large)),
        matrix_integer: FlopsPerSecond(integer),
        product_start: Seconds(launch),
        tile: TILES[0],
        tile_start: Seconds(work([TILES[0].m, TILES[0].n, 1]) / rate(products::LARGE, large)),
        packing_cache: CACHE,
        packing_rate: BytesPerSecond(moved / in_memory),
        turned_rate: BytesPerSecond(moved / in_memory),
        aliased_rate: BytesPerSecond(moved / in_memory),
        link_bandwidth: BytesPerSecond(moved / in_memory),
        local_rate: BytesPerSecond(moved / in_memory),
        exchange_start: Seconds(launch),
        exchange_round: Seconds(launch),
        hop: Seconds(launch),
        processors: ranks,
        products_together: kept(products, seconds(Wanted::Products(REFERENCE))?),
        memory_together: kept(in_memory, seconds(Wanted::Sums(IN_MEMORY))?),
        passes: Vec::new(),
    };
    let mut fits = exchanges::fit(&mut found, seconds)?;
    fits.extend(fit_products(&mut found, seconds)?);
    fits.extend(turned::fit(&mut found, seconds)?);
    let (passes, others) = paces(&found, seconds)?;
    found.passes = passes;
    fits.extend(others);
    Ok((found, fits))
}

/// The part of its rate that a processor keeps beside others, by what the same takes it alone and beside
/// them (seconds).
fn kept(alone: f64, together: f64) -> Ratio {
    Ratio((alone / together).min(1.0))
}

/// Multiplications and additions of a product.
fn work([m, n, k]: [u64; 3]) -> f64 {
    2.0 * exact(m) * exact(n) * exact(k)
}

/// Seeks the rate of products, the tile, and what products and tiles take to start, so that the mean of
/// `|ln(fitted/measured)|` is least.
fn fit_products(
    found: &mut Measurements,
    seconds: &mut dyn FnMut(Wanted) -> Result<f64, Failure>,
) -> Result<Vec<Fit>, Failure> {
    let mut measured = Vec::new();
    for wanted in Wanted::products() {
        if let Wanted::Product(_, shape) = wanted {
            measured.push((wanted, shape, seconds(wanted)?));
        }
    }
    let first = [
        found.matrix_f32.0,
        found.product_start.0,
        found.tile_start.0,
        exact(found.packing_cache.0),
        found.packing_rate.0,
    ];
    // They are sought by their logarithms: a start may be anything.
    let ranges = RANGES.map(|it| (-it.ln(), it.ln()));
    let mut best: Option<(f64, Measurements)> = None;
    for tile in TILES {
        let with = |numbers: &[f64]| Measurements {
            tile,
            matrix_f32: FlopsPerSecond(first[0] * numbers[0].exp()),
            product_start: Seconds(first[1] * numbers[1].exp()),
            tile_start: Seconds(first[2] * numbers[2].exp()),
            packing_cache: Bytes(rounded(first[3] * numbers[3].exp())),
            packing_rate: BytesPerSecond(first[4] * numbers[4].exp()),
            ..found.clone()
        };
        let mut numbers = [0.0; 5];
        let error = descend(&ranges, &mut numbers, ROUNDS, &mut |numbers| error(&with(numbers), &measured));
        if best.as_ref().is_none_or(|(least, _)| error < *least) {
            best = Some((error, with(&numbers)));
        }
    }
    if let Some((_, best)) = best {
        *found = best;
    }
    let times = priced(found, &measured);
    let fit =
        |(&(wanted, _, measured), fitted): (&Product, f64)| Fit { name: wanted.name(), measured, fitted };
    Ok(measured.iter().zip(times).map(fit).collect())
}

/// A product that was measured, its sizes and its time (seconds).
type Product = (Wanted, [u64; 3], f64);

/// Whole bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a guess times a bounded factor")]
fn rounded(bytes: f64) -> u64 {
    bytes.round() as u64
}

fn error(found: &Measurements, measured: &[Product]) -> f64 {
    let times = priced(found, measured);
    if times.is_empty() {
        return f64::INFINITY;
    }
    times.iter().zip(measured).map(|(time, (_, _, measured))| (time / measured).ln().abs()).sum()
}

/// What products take by these numbers (seconds); none if they are no machine's.
fn priced(found: &Measurements, products: &[Product]) -> Vec<f64> {
    let Ok(machine) = host("sought", found, "sought") else { return Vec::new() };
    let price = |&(_, sizes, _): &Product| {
        matrix_product(&machine.device, &MatrixProduct::forward(1, sizes, Precision::F32)).0
    };
    products.iter().map(price).collect()
}

/// For each kind of operation, the time however few elements there are and that of an element, by the
/// fewest and the most; for attention, without the products, the time of a query and that of a score.
fn paces(
    found: &Measurements,
    seconds: &mut dyn FnMut(Wanted) -> Result<f64, Failure>,
) -> Result<(Paces, Vec<Fit>), Failure> {
    let (mut paces, mut fits) = (Vec::new(), Vec::new());
    for pass in Pass::ALL {
        let rows = passes::rows(pass);
        let mut times = [0.0; 3];
        for (time, rows) in times.iter_mut().zip(rows) {
            *time = seconds(Wanted::Pass(pass, rows))?;
        }
        let (counted, besides) = match pass {
            Pass::Score => (rows.map(|it| [exact(it), exact(it * it.div_ceil(2))]), products_of(found, rows)),
            _ => (rows.map(|it| [1.0, exact(it * passes::ROW)]), [0.0; 3]),
        };
        // Two numbers by two times: what is left of the longest when as many starts are taken off.
        let [few, _, many] = counted;
        let [shortest, _, longest] =
            [0, 1, 2].map(|it: usize| (times[it] - besides[it]).max(times[it] / 100.0));
        let more = longest - shortest * many[0] / few[0];
        let element = more.max(longest / 1000.0) / (many[1] - few[1] * many[0] / few[0]);
        let start = (shortest - element * few[1]).max(shortest / 100.0) / few[0];
        let fitted = besides[1] + start * counted[1][0] + element * counted[1][1];
        fits.push(Fit { name: Wanted::Pass(pass, rows[1]).name(), measured: times[1], fitted });
        paces.push((pass, Seconds(start), Seconds(element)));
    }
    Ok((paces, fits))
}

/// What the products of attention take by these numbers (seconds): what is left of its price where scores
/// cost next to nothing.
fn products_of(found: &Measurements, queries: [u64; 3]) -> [f64; 3] {
    let nothing = Seconds(NOTHING);
    let free = Measurements { passes: vec![(Pass::Score, nothing, nothing)], ..found.clone() };
    let Ok(machine) = host("sought", &free, "sought") else { return [0.0; 3] };
    queries.map(|queries| {
        let (op, operands) = passes::example(Pass::Score, queries);
        let results = &operands[..1];
        let rows = Rows::Together;
        let work = Work { op: &op, whole: &operands, operands: &operands, results, rows };
        work::operation(&machine.device, &work).0
    })
}

/// The least time that a machine file may state (seconds).
const NOTHING: f64 = 1e-13;

/// Fits, a line each, and how far they are from what was measured on average.
pub fn shown(fits: &[Fit]) -> String {
    let longest = fits.iter().map(|fit| fit.name.len()).max().unwrap_or(0);
    let mut text = format!("{:<longest$} {:>12} {:>12}\n", "fits", "measured", "by the fit");
    let mut sum = 0.0;
    for Fit { name, measured, fitted } in fits {
        let off = fitted / measured - 1.0;
        sum += off.abs();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{name:<longest$} {:>12} {:>12} {:>+6.1} %",
            quantity::seconds(*measured),
            quantity::seconds(*fitted),
            100.0 * off
        );
    }
    let count = exact(u64::try_from(fits.len().max(1)).unwrap_or(u64::MAX));
    let _ = writeln!(text, "off by {:.1} % on average", 100.0 * sum / count);
    text
}
