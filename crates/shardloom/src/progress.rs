//! What is being done, for a person who waits: on the standard error, if that is a terminal.

use std::thread;
use std::time::Duration;

use driver::compile::left_out;
use files::model_file::ModelFile;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use launch::Listener;

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// If there is a terminal.
    Shown,
    /// Never.
    Hidden,
}

/// A line that says what is being done. It goes away when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

/// How often the line moves.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// Nothing yet.
    pub(crate) fn new(wish: Wish) -> Self {
        // The target draws nothing if the standard error is not a terminal.
        let target = match wish {
            Wish::Shown => ProgressDrawTarget::stderr(),
            Wish::Hidden => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            let ticks = bar.clone();
            let tick = move || {
                while !ticks.is_finished() {
                    ticks.tick();
                    thread::sleep(TICK);
                }
            };
            // Where no thread can be started, the line moves when something is said.
            let _ = thread::Builder::new().spawn(tick);
        }
        Self(bar)
    }

    /// What is done now.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// Says what of its configuration is not in a model.
    pub(crate) fn say_left_out(&self, file: &ModelFile) {
        file.left_out.iter().for_each(|it| self.remark(&left_out(&file.path, it)));
    }

    /// Prints while the line is away, so that it does not end in the middle of what is printed.
    pub(crate) fn without<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }
}

impl Listener for Progress {
    fn say(&self, what: String) {
        self.0.set_message(what);
    }

    fn remark(&self, words: &str) {
        self.without(|| eprintln!("{words}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
