//! How a kernel is started, and what a warp of it runs in.

use crate::decode::Kernel;
use crate::memory::{Memory, Shared};

/// How a kernel is started: a row of blocks, each a row of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// How many blocks there are.
    pub blocks: u64,
    /// How many threads a block has.
    pub threads: u32,
    /// The shared memory of a block that the launch asks for (bytes).
    pub shared: u32,
}

/// What a warp runs in.
pub(crate) struct Surroundings<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) grid: Grid,
    pub(crate) arguments: &'a [u8],
    pub(crate) block: u64,
    pub(crate) memory: &'a mut Memory,
    pub(crate) shared: &'a mut Shared,
    /// The first era of the launch, and that of the block.
    pub(crate) launched: u32,
    pub(crate) began: u32,
    /// The era since the last barrier.
    pub(crate) era: u32,
    /// How many instructions have been run.
    pub(crate) count: u64,
}
