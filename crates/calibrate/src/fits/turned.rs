//! Rates at which matrices are turned, from products that were measured both ways.

use cost_models::compute;
use cost_models::machine::measured::{Measurements, host};
use cost_models::units::{Bytes, BytesPerSecond, exact};
use files::Failure;
use planner_ir::DType;

use super::Fit;
use crate::{Wanted, products};

/// A right matrix, how far apart its rows lie where it is turned (bytes), and both times (seconds).
struct Both {
    shape: [u64; 3],
    bytes: Bytes,
    row: Bytes,
    as_read: f64,
    turned: f64,
}

/// Finds the rates by all bytes and all time of those whose rows lie a multiple of 4 KiB apart, and of the
/// others.
pub(super) fn fit(
    found: &mut Measurements,
    seconds: &mut dyn FnMut(Wanted) -> Result<f64, Failure>,
) -> Result<Vec<Fit>, Failure> {
    let mut all = Vec::new();
    for shape in products::TURNED {
        let [_, n, k] = shape;
        all.push(Both {
            shape,
            bytes: Bytes(4 * n * k),
            row: Bytes(4 * k),
            as_read: seconds(Wanted::Product(DType::F32, shape))?,
            turned: seconds(Wanted::Turned(shape))?,
        });
    }
    let rate = |aliased: bool| {
        let (mut bytes, mut longer) = (0.0, 0.0);
        for it in all.iter().filter(|it| it.row.0.is_multiple_of(4096) == aliased) {
            bytes += exact(it.bytes.0);
            // Of what is turned at no time nothing is known but that it is fast.
            longer += (it.turned - it.as_read).max(it.as_read / 1000.0);
        }
        BytesPerSecond(bytes / longer)
    };
    (found.turned_rate, found.aliased_rate) = (rate(false), rate(true));
    let Ok(machine) = host("sought", found, "sought") else { return Ok(Vec::new()) };
    let fit = |it: &Both| {
        let more = compute::turning(&machine.device, it.bytes, it.row).0;
        Fit { name: Wanted::Turned(it.shape).name(), measured: it.turned, fitted: it.as_read + more }
    };
    Ok(all.iter().map(fit).collect())
}
