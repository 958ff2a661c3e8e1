//! The binary `shardloom`.

mod memory; // what is said where there is not enough

use std::io::{stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use shardloom::Painted;

#[global_allocator]
static ALLOCATOR: memory::Watched = memory::Watched;

fn main() -> ExitCode {
    // A file that may not grow any more is said by whoever writes it, with an exit code of its own. Where
    // that cannot be had the system ends this process, as it would any other.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    memory::say_what_is_missing();
    let (mut out, mut err) = (Painted::new(stdout()), Painted::new(stderr()));
    ExitCode::from(shardloom::main_with(std::env::args_os(), &mut out, &mut err))
}
