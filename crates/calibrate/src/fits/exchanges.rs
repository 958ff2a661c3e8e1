//! What exchanges take to start, and their rates.

use cost_models::machine::measured::{Measurements, host};
use cost_models::units::{BytesPerSecond, Seconds, exact};
use files::Failure;
use predict::fit::descend;

use super::Fit;
use crate::{Wanted, exchanges};

/// How many times less or more than a first guess the start of an exchange, of a round and of a hop, the rate
/// of a link and that of a rank's own part may be.
const RANGES: [f64; 5] = [64.0, 64.0, 64.0, 16.0, 16.0];

/// How often each number is sought: they depend on each other.
const ROUNDS: usize = 32;

/// Seeks the numbers of exchanges so that the sum of the squares of `ln(fitted/measured)` is least.
pub(super) fn fit(
    found: &mut Measurements,
    seconds: &mut dyn FnMut(Wanted) -> Result<f64, Failure>,
) -> Result<Vec<Fit>, Failure> {
    let mut measured = Vec::new();
    for wanted in Wanted::exchanges() {
        measured.push((wanted, seconds(wanted)?));
    }
    // The smallest and the largest message say about what all of it is.
    let times = measured.iter().map(|it| it.1);
    let (least, most) =
        times.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), it| (least.min(it), most.max(it)));
    let rate = BytesPerSecond(exact(exchanges::SIZES[3]) / most);
    let first = Measurements {
        exchange_start: Seconds(least / 3.0),
        exchange_round: Seconds(least / 3.0),
        hop: Seconds(least / 3.0),
        link_bandwidth: rate,
        local_rate: rate,
        ..found.clone()
    };
    let with = |numbers: &[f64]| Measurements {
        exchange_start: Seconds(first.exchange_start.0 * numbers[0].exp()),
        exchange_round: Seconds(first.exchange_round.0 * numbers[1].exp()),
        hop: Seconds(first.hop.0 * numbers[2].exp()),
        link_bandwidth: BytesPerSecond(first.link_bandwidth.0 * numbers[3].exp()),
        local_rate: BytesPerSecond(first.local_rate.0 * numbers[4].exp()),
        ..first.clone()
    };
    let ranges = RANGES.map(|it| (-it.ln(), it.ln()));
    let mut numbers = [0.0; 5];
    descend(&ranges, &mut numbers, ROUNDS, &mut |numbers| {
        let times = priced(&with(numbers), &measured);
        let off = times.iter().zip(&measured).map(|(time, (_, measured))| (time / measured).ln().powi(2));
        if times.is_empty() { f64::INFINITY } else { off.sum() }
    });
    *found = with(&numbers);
    let fits = measured.iter().zip(priced(found, &measured));
    let fit =
        |(&(wanted, measured), fitted): (&(Wanted, f64), f64)| Fit { name: wanted.name(), measured, fitted };
    Ok(fits.map(fit).collect())
}

/// What exchanges take by these numbers (seconds); none if they are no machine's.
fn priced(found: &Measurements, measured: &[(Wanted, f64)]) -> Vec<f64> {
    let Ok(machine) = host("sought", found, "sought") else { return Vec::new() };
    let price = |&(wanted, _): &(Wanted, f64)| match wanted {
        Wanted::Exchange(kind, ranks, bytes) => Some(exchanges::priced(&machine, kind, ranks, bytes)?.0),
        _ => None,
    };
    measured.iter().map(price).collect::<Option<_>>().unwrap_or_default()
}
