//! Programs of training steps.

use super::programs;
use super::regression::{Parallel, Regression};

#[test]
fn a_step() {
    for parallel in Parallel::ALL {
        let regression = Regression::new(parallel, 4, 3);
        let programs = programs(&regression.sketch());
        eprintln!("{parallel:?}\n{}", programs[1]);
    }
}
