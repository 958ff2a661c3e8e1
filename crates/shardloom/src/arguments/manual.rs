//! `completions` and `man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::Arguments;

/// Examples of `completions`.
pub(super) const COMPLETIONS: &str = "\
Examples:
  shardloom completions bash > ~/.local/share/bash-completion/completions/shardloom
  shardloom completions zsh > ~/.zfunc/_shardloom";

/// Examples of `man`.
pub(super) const MAN: &str = "Example:\n  shardloom man -o ~/.local/share/man/man1";

/// `completions`.
#[derive(Args, Clone, Debug)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `man`.
#[derive(Args, Clone, Debug)]
pub struct ManArguments {
    /// Folder to write the pages to
    #[arg(long, short, value_name = "FOLDER")]
    pub output: PathBuf,
}

/// The whole command line, for what describes it.
pub fn described() -> clap::Command {
    Arguments::command()
}
