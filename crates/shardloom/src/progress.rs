//! What is being done, for a person who waits: on the standard error, if that is a terminal, or for who calls.

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

/// Who is told what is being done.
pub(crate) enum Progress {
    /// A person: by a line, which goes away when it is dropped.
    Line(ProgressBar),
    /// Who calls this as a library.
    Told(Box<dyn Listener>),
}

/// How often the line moves.
const TICK: Duration = Duration::from_millis(100);

impl Progress {
    /// A line that says nothing yet.
    pub(crate) fn line(wish: Wish) -> Self {
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
        Self::Line(bar)
    }

    /// What is done now.
    pub(crate) fn say(&self, what: impl Into<String>) {
        match self {
            Self::Line(bar) => bar.set_message(what.into()),
            Self::Told(listener) => listener.say(what.into()),
        }
    }

    /// Says what of its configuration is not in a model.
    pub(crate) fn say_left_out(&self, file: &ModelFile) {
        file.left_out.iter().for_each(|it| self.remark(&left_out(&file.path, it)));
    }

    /// Prints while the line is away, so that it does not end in the middle of what is printed.
    pub(crate) fn without<R>(&self, print: impl FnOnce() -> R) -> R {
        match self {
            Self::Line(bar) => bar.suspend(print),
            Self::Told(_) => print(),
        }
    }
}

impl Listener for Progress {
    fn say(&self, what: String) {
        Self::say(self, what);
    }

    fn remark(&self, words: &str) {
        match self {
            Self::Line(bar) => bar.suspend(|| eprintln!("{words}")),
            Self::Told(listener) => listener.remark(words),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Line(bar) = self {
            bar.finish_and_clear();
        }
    }
}
