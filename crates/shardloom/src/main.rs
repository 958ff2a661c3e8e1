//! The binary `shardloom`.

use std::io::{stderr, stdout};
use std::process::ExitCode;

/// Searches make and leave many small tables on all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(shardloom::main_with(std::env::args_os(), &mut stdout(), &mut stderr()))
}
