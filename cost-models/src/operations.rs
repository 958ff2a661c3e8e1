//! Times of single operations by laws that are fitted to measurements.
//!
//! An operation asks for arithmetic and for traffic of memory or of links. A law says how long both take,
//! and how that depends on sizes besides:
//!
//! ```text
//! roofline = start + ‖work/rate, traffic/bandwidth‖
//! t        = roofline · exp(Σ_terms weight · Π_hinges max(0, ±(size − knot)))
//! ```
//!
//! with `‖a, b‖ = (a⁴ + b⁴)^¼`, as for matrix products in [`crate::compute`], and sizes as logarithms to base
//! 2. A term with one hinge makes the time proportional to a power of a size from a knot on; one with several
//! does so where other sizes are beyond theirs. Beyond the sizes that were measured the factor stays as it is
//! at their end, and the roofline alone goes on.
//!
//! Laws stand in machine files under `device.operations`, by the name of the kernel and the types of its
//! elements: `gemm fp8_block`, `context_attention bfloat16 fp8`.
//!
//! Source: roofline: Williams, Waterman and Patterson, CACM 52(4), 2009; factors: Friedman, "Multivariate
//! Adaptive Regression Splines", Annals of Statistics 19(1), 1991.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::known::Known;
use crate::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Seconds};

/// Types of elements, by the names that measurements use.
pub mod format;

/// Matrix products, attention and the other operations that have laws: their sizes, work and traffic.
pub mod operation;

/// The tokens that experts get.
pub mod imbalance;

/// A product of hinges, and its text form.
pub mod term;

pub use format::Format;
pub use operation::{Family, Operation};
pub use term::{Hinge, Term};

/// The laws of a device, by the name of the kernel and its types.
pub type Laws = Arc<BTreeMap<String, Law>>;

/// How long operations of one kernel and one type take on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    /// Time of the smallest operation (seconds).
    pub start: Known<Seconds>,
    /// Rate of arithmetic (operations per second); `None` where an operation only moves data.
    pub rate: Option<Known<FlopsPerSecond>>,
    /// Rate of memory, or of links where an operation moves data between devices (bytes per second).
    pub bandwidth: Known<BytesPerSecond>,
    /// The least and the largest of each size that was measured, in the order of [`Family::sizes`].
    pub ranges: Vec<[f64; 2]>,
    /// What the time is multiplied by.
    pub terms: Vec<Term>,
}

/// What an operation asks of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Multiplications and additions.
    pub work: Flops,
    /// Bytes that are read and written, or that leave the device.
    pub traffic: Bytes,
    /// The sizes that terms depend on, as logarithms to base 2, in the order of [`Family::sizes`] without the
    /// last, which is the roofline's time in microseconds.
    pub sizes: Vec<f64>,
}

impl Law {
    /// Time of an operation with such a demand.
    #[must_use]
    pub fn time(&self, demand: &Demand) -> Seconds {
        let roofline = self.roofline(demand);
        Seconds(roofline.0 * self.factor(&sizes(demand, roofline)))
    }

    /// Time without the factor.
    #[must_use]
    pub fn roofline(&self, demand: &Demand) -> Seconds {
        let computing = self.rate.as_ref().map_or(0.0, |rate| (demand.work / rate.value).0);
        let moving = (demand.traffic / self.bandwidth.value).0;
        let [computing, moving] = [computing, moving].map(|it| (it * it) * (it * it));
        self.start.value + Seconds((computing + moving).sqrt().sqrt())
    }

    /// What the roofline's time is multiplied by.
    #[must_use]
    pub fn factor(&self, sizes: &[f64]) -> f64 {
        let clamped: Vec<f64> =
            sizes.iter().zip(&self.ranges).map(|(size, [least, most])| size.clamp(*least, *most)).collect();
        self.terms.iter().map(|term| term.value(&clamped)).sum::<f64>().exp()
    }
}

/// The sizes of a demand, the time of its roofline last.
#[must_use]
pub fn sizes(demand: &Demand, roofline: Seconds) -> Vec<f64> {
    let time = (roofline.0 * 1e6).log2();
    demand.sizes.iter().copied().chain([time]).collect()
}

#[cfg(test)]
mod tests;
