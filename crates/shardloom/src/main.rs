//! The binary `shardloom`.

use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(shardloom::main_with(std::env::args_os(), &mut stdout(), &mut stderr()))
}
