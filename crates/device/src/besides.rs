//! What programs may need on a GPU besides the kernels of their tasks.

use kernels::cuda::Work;
use lower::Program;

use crate::ready;
use crate::tasks::Task;
use crate::together;

/// Kernels of products that the library may refuse, and of exchanges, by whatever transport.
pub fn besides(program: &Program, tasks: &[Task]) -> Vec<Work> {
    let products = tasks.iter().filter(|task| task.work.is_err());
    let products = products.filter_map(|task| ready::product(program, task).map(|(.., plain)| plain));
    products.chain(together::exchanged(&[program])).collect()
}
