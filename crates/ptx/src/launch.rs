//! Grids of blocks, one block after another.

use crate::bits::place;
use crate::decode::Kernel;
use crate::fault::{Fault, What};
use crate::grid::{Grid, Surroundings};
use crate::memory::{Memory, Shared};
use crate::warp::{Stopped, Warp};

/// The most threads of a block, and its most shared memory (bytes) on any GPU.
const MOST_THREADS: u32 = 1024;
const MOST_SHARED: u32 = 232_448;

/// What a launch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of warps.
    pub instructions: u64,
}

/// Runs a kernel on every block of a grid; stops at the first thing that is wrong.
pub fn launch(kernel: &Kernel, memory: &mut Memory, grid: Grid, arguments: &[u64]) -> Result<Counts, Fault> {
    let refused = |why: String| Fault {
        kernel: kernel.name.clone(),
        line: 0,
        block: 0,
        thread: 0,
        what: What::Launch(why),
    };
    let most = kernel.most_threads.unwrap_or(MOST_THREADS).min(MOST_THREADS);
    if grid.threads == 0 || grid.threads > most {
        return Err(refused(format!("it is started with {} threads, and has 1 to {most}", grid.threads)));
    }
    if grid.blocks == 0 || i32::try_from(grid.blocks).is_err() {
        return Err(refused(format!("it is started with {} blocks", grid.blocks)));
    }
    if grid.shared > MOST_SHARED {
        return Err(refused(format!("it asks for {} bytes of shared memory", grid.shared)));
    }
    let expected = kernel.parameters.len();
    if arguments.len() != expected {
        return Err(refused(format!("it is given {} arguments, and has {expected}", arguments.len())));
    }
    for (start, table) in &kernel.constants {
        memory.put_table(*start, table);
    }
    let arguments = packed(kernel, arguments);
    memory.era += 1;
    let mut shared = Shared::new(place(kernel.shared + u64::from(grid.shared)));
    let launched = memory.era;
    let mut around = Surroundings {
        kernel,
        grid,
        arguments: &arguments,
        block: 0,
        memory,
        shared: &mut shared,
        launched,
        began: launched,
        era: launched,
        count: 0,
    };
    for block in 0..grid.blocks {
        around.block = block;
        around.memory.era += 1;
        around.began = around.memory.era;
        run(&mut around)?;
    }
    Ok(Counts { instructions: around.count })
}

/// Arguments as they lie one after another.
fn packed(kernel: &Kernel, arguments: &[u64]) -> Vec<u8> {
    let mut all = Vec::new();
    for (bytes, value) in kernel.parameters.iter().map(|it| place(*it)).zip(arguments) {
        all.resize(all.len().next_multiple_of(bytes.max(1)), 0);
        all.extend(&value.to_le_bytes()[..bytes]);
    }
    all
}

/// Runs a block.
fn run(around: &mut Surroundings<'_>) -> Result<(), Fault> {
    let threads = place(around.grid.threads.into());
    let mut warps: Vec<Warp> = (0..threads)
        .step_by(32)
        .map(|first| Warp::new(around.kernel, first, threads - first, around.memory.era))
        .collect();
    loop {
        around.memory.era += 1;
        around.era = around.memory.era;
        let mut at_barrier = None;
        for (number, warp) in warps.iter_mut().enumerate() {
            around.memory.era += 1;
            warp.era = around.memory.era;
            let stopped = warp.run(around).map_err(|(lane, what)| fault(around, warp, lane, what))?;
            if stopped == Stopped::AtBarrier {
                at_barrier = Some(number);
            }
        }
        let Some(number) = at_barrier else { return Ok(()) };
        let there: u32 = warps.iter().map(|it| it.live.count_ones()).sum();
        let missing = threads - place(there.into());
        if missing > 0 {
            return Err(fault(around, &warps[number], 0, What::Barrier { missing }));
        }
    }
}

fn fault(around: &Surroundings<'_>, warp: &Warp, lane: usize, what: What) -> Fault {
    Fault {
        kernel: around.kernel.name.clone(),
        line: around.kernel.instructions.get(warp.at).map_or(0, |it| it.line),
        block: around.block,
        thread: warp.first + lane,
        what,
    }
}
