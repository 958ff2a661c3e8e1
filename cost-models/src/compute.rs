//! The time of operations on one device.

use crate::machine::{Device, Precision};
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
}

impl MatrixProduct {
    /// Multiplications and additions.
    #[must_use]
    pub fn work(&self) -> Flops {
        Flops(2.0 * exact(self.batch) * exact(self.m) * exact(self.n) * exact(self.k))
    }

    /// Bytes that are read and written if each element is touched once.
    #[must_use]
    pub fn traffic(&self) -> Bytes {
        let elements = self.m * self.k + self.k * self.n + self.m * self.n;
        self.batch * (elements * self.precision.element())
    }
}

/// Time of a matrix product.
///
/// ```text
/// t = launch + max((F + F½)/(e · peak), bytes/(e_mem · bandwidth))
/// ```
///
/// A large product reaches the part `e` of the peak; one of `F½` operations reaches half of that,
/// because it does not fill the device.
///
/// Source: the roofline of Williams, Waterman and Patterson, CACM 52(4), 2009, with Hockney's
/// half-performance length in place of a constant rate; `e` and `F½` are fits that the machine
/// file cites.
#[must_use]
pub fn matrix_product(device: &Device, product: &MatrixProduct) -> Seconds {
    let peak = device.matrix_peak.at(product.precision).value;
    let rate = device.matrix_efficiency.value * peak;
    let computing = (product.work() + device.matrix_half_work.value) / rate;
    device.launch.value + computing.max(streaming(device, product.traffic()))
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
    let computing = work / device.vector_peak.value;
    device.launch.value + computing.max(streaming(device, traffic))
}

fn streaming(device: &Device, traffic: Bytes) -> Seconds {
    traffic / (device.memory_efficiency.value * device.memory_bandwidth.value)
}

#[cfg(test)]
mod tests;
