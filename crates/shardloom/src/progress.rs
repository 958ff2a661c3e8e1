//! What is being done, for a person who waits: on the standard error, as a line that moves if that is a terminal
//! and now and then as a line of a log if not; or for who calls.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

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
    /// A person: by a line, which goes away when it is dropped, and what is counted on it.
    Line(ProgressBar, Mutex<Option<Counted>>),
    /// Who calls this as a library.
    Told(Box<dyn Listener>),
}

/// What is done one after another, since when.
pub(crate) struct Counted {
    of: u64,
    first: u64,
    since: Instant,
}

impl Counted {
    /// That of words with `3 of 8` in them: the third is being done.
    fn parse(words: &str) -> Option<(u64, u64)> {
        let (before, behind) = words.split_once(" of ")?;
        let is_digit = |letter: char| letter.is_ascii_digit();
        let number = before.rsplit(|it| !is_digit(it)).next()?.parse().ok()?;
        let of = behind.split(|it| !is_digit(it)).next()?.parse().ok()?;
        Some((number, of))
    }

    /// How long what is left takes if it goes on as it went, once some is done.
    fn left(&self, number: u64, elapsed: Duration) -> Option<Duration> {
        let done = u32::try_from(number.checked_sub(self.first)?).ok().filter(|it| *it > 0)?;
        let left = u32::try_from((self.of + 1).checked_sub(number)?).ok()?;
        Some((elapsed / done).saturating_mul(left))
    }
}

/// What is said, with when it ends if it is counted.
fn with_end(counted: &Mutex<Option<Counted>>, what: String) -> String {
    let Some((number, of)) = Counted::parse(&what) else { return what };
    let mut counted = counted.lock().unwrap_or_else(PoisonError::into_inner);
    match &*counted {
        Some(known) if known.of == of && known.first <= number => {
            let left = known.left(number, known.since.elapsed());
            left.map_or(what.clone(), |left| format!("{what}, about {} s left", left.as_secs().max(1)))
        }
        _ => {
            *counted = Some(Counted { of, first: number, since: Instant::now() });
            what
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
    pub(crate) fn say(&self, what: impl Into<String>) {
        match self {
            Self::Line(bar, counted) => bar.set_message(with_end(counted, what.into())),
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
    fn say(&self, what: String) {
        Self::say(self, what);
    }

    fn remark(&self, words: &str) {
        match self {
            Self::Line(bar, _) => bar.suspend(|| eprintln!("{words}")),
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
        assert_eq!(Counted::parse("step 3 of 60"), Some((3, 60)));
        assert_eq!(Counted::parse("devices=8,16: 16, 2 of 2"), Some((2, 2)));
        assert_eq!(Counted::parse("planning 4 stages of 2 kinds"), None);
        let counted = Counted { of: 60, first: 3, since: Instant::now() };
        assert_eq!(counted.left(3, Duration::from_secs(9)), None);
        // Three took 9 s, and that many are left: the sixth to the sixtieth.
        assert_eq!(counted.left(6, Duration::from_secs(9)), Some(Duration::from_secs(3 * 55)));
        assert_eq!(counted.left(61, Duration::from_secs(9)), Some(Duration::ZERO));
        let told = Mutex::new(None);
        assert_eq!(with_end(&told, "step 1 of 2".to_owned()), "step 1 of 2");
        assert_eq!(with_end(&told, "step 2 of 2".to_owned()), "step 2 of 2, about 1 s left");
        assert_eq!(with_end(&told, "step 1 of 9".to_owned()), "step 1 of 9");
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
