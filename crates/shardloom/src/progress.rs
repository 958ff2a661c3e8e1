//! What is being done, for a person who waits: on the standard error, as a line that moves if that is a terminal
//! and now and then as a line of a log if not; or for who calls.

use std::thread;
use std::time::Duration;

use driver::compile::left_out;
use files::model_file::ModelFile;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use launch::Listener;

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// On a terminal as it goes, in logs now and then.
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
/// How often what is done is said in logs: what is over before is not said.
const IN_LOGS: Duration = Duration::from_secs(30);

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
        // Where no thread can be started, the line moves when something is said, and nothing is in logs.
        let ticks = bar.clone();
        if !bar.is_hidden() {
            let tick = move || {
                while !ticks.is_finished() {
                    ticks.tick();
                    thread::sleep(TICK);
                }
            };
            let _ = thread::Builder::new().spawn(tick);
        } else if wish == Wish::Shown {
            let _ = thread::Builder::new().spawn(move || log(&ticks, IN_LOGS, |line| eprintln!("{line}")));
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

/// Says again and again what is done, and for how long, until the line is finished.
fn log(bar: &ProgressBar, every: Duration, mut say: impl FnMut(String)) {
    let mut next = every;
    while !bar.is_finished() {
        thread::sleep(TICK.min(every));
        let elapsed = bar.elapsed();
        // Who says nothing of what is done, such as a launcher of others, has no lines.
        if elapsed >= next && !bar.is_finished() && !bar.message().is_empty() {
            next = elapsed + every;
            say(format!("{} ({} s)", bar.message(), elapsed.as_secs()));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What takes long is said in logs with what it is, and no more once it is over.
    #[test]
    fn logs_say_what_is_done_until_it_is_over() {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_message("pricing 204 setups");
        let mut lines = Vec::new();
        log(&bar, Duration::from_millis(1), |line| {
            lines.push(line);
            if lines.len() == 3 {
                bar.finish_and_clear();
            }
        });
        assert_eq!(lines, ["pricing 204 setups (0 s)"; 3]);
    }
}
