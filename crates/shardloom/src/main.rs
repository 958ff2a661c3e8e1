//! The binary `shardloom`.

mod memory; // what is said where there is not enough

use std::io::{stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: memory::Watched = memory::Watched;

fn main() -> ExitCode {
    // A file that may not grow any more is said by whoever writes it, with an exit code of its own. Where
    // that cannot be had the system ends this process, as it would any other.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    memory::say_what_is_missing();
    ExitCode::from(shardloom::main_with(std::env::args_os(), &mut stdout(), &mut stderr()))
}
