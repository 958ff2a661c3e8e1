//! The binary `shardloom`.

use std::io::{stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

/// Searches make and leave many small tables on all threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A file that may not grow any more is said by whoever writes it, with an exit code of its own. Where
    // that cannot be had the system ends this process, as it would any other.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    ExitCode::from(shardloom::main_with(std::env::args_os(), &mut stdout(), &mut stderr()))
}
