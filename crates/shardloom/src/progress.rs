//! What is being done, for a person who waits: on the standard error, as a line that moves if that is a terminal
//! and now and then as a line of a log if not; or for who calls.

use std::io::{Write as _, stderr};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use driver::compile::left_out;
use files::doing::Place;
use files::model_file::ModelFile;
use files::{Doing, Of};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use launch::Listener;

use crate::colour::Painted;

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
    /// A person: by a line, which goes away when it is dropped, and what is counted on it.
    Line(ProgressBar, Mutex<Option<Counted>>),
    /// Who calls this as a library.
    Told(Box<dyn Listener>),
}

/// What is done one after another, since when.
pub(crate) struct Counted {
    what: String,
    first: usize,
    since: Instant,
}

impl Counted {
    /// How long what is left takes if it goes on as it went, once some is done.
    fn left(&self, Place { number, of }: Place, elapsed: Duration) -> Option<Duration> {
        let done = u32::try_from(number.checked_sub(self.first)?).ok().filter(|it| *it > 0)?;
        let left = u32::try_from((of.count() + 1).checked_sub(number)?).ok()?;
        Some((elapsed / done).saturating_mul(left))
    }
}

/// What is done in words, with when it ends if it is counted.
fn with_end(counted: &Mutex<Option<Counted>>, doing: &Doing) -> String {
    let words = doing.to_string();
    let Some(place) = doing.place else { return words };
    let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    match &*counted {
        Some(known) if known.what == doing.what && known.first <= place.number => {
            let Some(left) = known.left(place, known.since.elapsed()) else { return words };
            let most = match place.of {
                Of::All(_) => "about",
                Of::AtMost(_) => "at most about",
            };
            format!("{words}, {most} {} s left", left.as_secs().max(1))
        }
        _ => {
            *counted = Some(Counted { what: doing.what.clone(), first: place.number, since: Instant::now() });
            words
        }
    }
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
        Self::Line(bar, Mutex::new(None))
    }

    /// What is done now.
    pub(crate) fn say(&self, doing: impl Into<Doing>) {
        match self {
            Self::Line(bar, counted) => bar.set_message(with_end(counted, &doing.into())),
            Self::Told(listener) => listener.say(doing.into()),
        }
    }

    /// Says what of its configuration is not in a model.
    pub(crate) fn say_left_out(&self, file: &ModelFile) {
        file.left_out.iter().for_each(|it| self.remark(&left_out(&file.path, it)));
    }

    /// Prints while the line is away, so that it does not end in the middle of what is printed.
    pub(crate) fn without<R>(&self, print: impl FnOnce() -> R) -> R {
        match self {
            Self::Line(bar, _) => bar.suspend(print),
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
    fn say(&self, doing: Doing) {
        Self::say(self, doing);
    }

    fn remark(&self, words: &str) {
        match self {
            Self::Line(bar, _) => bar.suspend(|| {
                // Where nobody reads it, it is not said.
                let _ = writeln!(Painted::new(stderr()), "{words}");
            }),
            Self::Told(listener) => listener.remark(words),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self::Line(bar, _) = self {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of what is counted is said when it ends, by what took how long before.
    #[test]
    fn what_is_counted_has_an_end() {
        let counted = Counted { what: "step".to_owned(), first: 3, since: Instant::now() };
        let left = |number, of, seconds| {
            counted.left(Place { number, of }, Duration::from_secs(seconds)).map(|it| it.as_secs())
        };
        assert_eq!(left(3, Of::All(60), 9), None);
        // Three took 9 s, and that many are left: the sixth to the sixtieth.
        assert_eq!(left(6, Of::All(60), 9), Some(3 * 55));
        assert_eq!(left(61, Of::All(60), 9), Some(0));
        let told = Mutex::new(None);
        let say = |doing: Doing| with_end(&told, &doing);
        assert_eq!(say(Doing::one("step", 1, Of::All(2))), "step 1 of 2");
        assert_eq!(say(Doing::one("step", 2, Of::All(2))), "step 2 of 2, about 1 s left");
        // What is said in between, without a number, ends nothing; what is counted otherwise begins anew.
        assert_eq!(say("planning 4 of 7 stages".into()), "planning 4 of 7 stages");
        assert_eq!(say(Doing::one("step", 2, Of::All(2)).named("b")), "step 2 of 2: b, about 1 s left");
        let planning = |number| Doing::one("planning", number, Of::AtMost(9)).named("2 groups");
        assert_eq!(say(planning(1)), "planning 1 of at most 9: 2 groups");
        assert_eq!(say(planning(2)), "planning 2 of at most 9: 2 groups, at most about 1 s left");
    }

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
