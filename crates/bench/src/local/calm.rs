//! How calm the machine is: a product on all processors, looked at again and again.
//!
//! Other programs make steps longer, and a processor may be as slow as its neighbours let it be. Which
//! steps count must not depend on how long they are themselves: a round of them counts if the same
//! product takes about as long before and after it as it ever does.

use calibrate as measure;
use cost_models::compute::{MatrixProduct, matrix_product};
use cost_models::machine::{Machine, Precision};
use files::Failure;

/// How much longer than at its best the reference may take while the machine is calm.
const MORE: f64 = 0.1;

/// What the reference took.
pub(super) struct Calm {
    /// What it should take by the prices (seconds).
    pub(super) priced: f64,
    /// What it took, in order (seconds).
    pub(super) looks: Vec<f64>,
}

impl Calm {
    /// Nothing yet, on such a machine.
    pub(super) fn new(machine: &Machine) -> Result<Self, Failure> {
        let processors = machine.node.processors.as_ref().map_or(1, |it| it.value.0);
        let machine = machine.clone().with_devices(processors);
        let machine = machine.map_err(|error| Failure::Usage(error.to_string()))?;
        let product = MatrixProduct::forward(1, measure::REFERENCE, Precision::F32);
        Ok(Self { priced: matrix_product(&machine.device, &product).0, looks: Vec::new() })
    }

    /// What the reference takes now (seconds).
    pub(super) fn look(&mut self) -> Result<f64, Failure> {
        let seconds = measure::reference()?;
        self.looks.push(seconds);
        Ok(seconds)
    }

    /// What it took last (seconds).
    pub(super) fn last(&mut self) -> Result<f64, Failure> {
        if let Some(&seconds) = self.looks.last() {
            return Ok(seconds);
        }
        self.look()
    }

    /// Whether the machine is calm when the reference takes so long.
    pub(super) fn is(&self, seconds: f64) -> bool {
        seconds <= (1.0 + MORE) * self.least()
    }

    /// What it took at best (seconds).
    pub(super) fn least(&self) -> f64 {
        self.looks.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// How much longer than at its best it took in the middle, and at worst (parts).
    pub(super) fn spread(&self) -> [f64; 2] {
        let mut sorted = self.looks.clone();
        sorted.sort_by(f64::total_cmp);
        let more = |it: Option<&f64>| it.map_or(0.0, |seconds| seconds / self.least() - 1.0);
        [more(sorted.get(sorted.len() / 2)), more(sorted.last())]
    }

    /// How much longer it took at best in the last third than in the first (parts): how the machine
    /// drifted.
    pub(super) fn drift(&self) -> f64 {
        let third = self.looks.len().div_ceil(3);
        let best = |looks: &[f64]| looks.iter().copied().fold(f64::INFINITY, f64::min);
        let last = self.looks.len() - third;
        if third == 0 { 0.0 } else { best(&self.looks[last..]) / best(&self.looks[..third]) - 1.0 }
    }
}
