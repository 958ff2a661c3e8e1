//! What programs may need on a GPU besides the kernels of their tasks.

use kernels::cuda::{Uncovered, Work};
use lower::Program;

use crate::ready;
use crate::task::Task;
use crate::together;

/// Kernels around products and of those that the library may refuse, and of exchanges, by whatever transport.
pub fn besides(program: &Program, tasks: &[Task]) -> Vec<Work> {
    let products = tasks.iter().filter_map(|task| match &task.work {
        Err(Uncovered::Library(product)) => Some(ready::around(product)),
        _ => None,
    });
    products.chain(together::exchanged(&[program])).collect()
}
