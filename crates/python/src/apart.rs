//! Work on threads of its own, while Python goes on: it hears what is being done, and may end it.

use std::any::Any;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use files::interrupt::Interrupt;
use files::{Doing, Failure};
use launch::Listener;
use pyo3::prelude::*;

use crate::raised;

/// How long Python waits before it looks for signals.
const TICK: Duration = Duration::from_millis(50);

/// What is said while work goes on: of which kind it is, and the words.
type Told = (&'static str, String);

/// Says what is being done.
pub(crate) struct Teller(Sender<Told>);

impl Listener for Teller {
    // Where nobody listens any more the work is being ended.
    fn say(&self, doing: Doing) {
        let _ = self.0.send(("now", doing.to_string()));
    }

    fn remark(&self, words: &str) {
        let _ = self.0.send(("remark", words.to_owned()));
    }
}

/// What comes of work, for which other threads of Python run on. A signal that raises, such as that of Ctrl-C, and an
/// error of `tell` end it.
pub(crate) fn done<T: Send + 'static>(
    py: Python<'_>,
    tell: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(Teller, &Interrupt) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    let (teller, heard) = channel();
    let interrupt = Interrupt::default();
    let given = interrupt.clone();
    let worker = thread::Builder::new().name("shardloom".to_owned());
    let worker = worker.spawn(move || work(Teller(teller), &given));
    let worker = worker.map_err(|error| {
        raised(py, &Failure::Input(format!("no thread can be started: {error}; allow more (`ulimit -u`)")))
    })?;
    if let Err(error) = listen(py, heard, tell) {
        // Its threads end by themselves: nobody waits for them.
        interrupt.set();
        return Err(error);
    }
    match py.detach(|| worker.join()) {
        Ok(outcome) => outcome.map_err(|failure| raised(py, &failure)),
        Err(panic) => Err(raised(py, &Failure::internal("python", words(panic.as_ref())))),
    }
}

/// Hands on what is said until all is said.
fn listen(py: Python<'_>, mut heard: Receiver<Told>, tell: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    loop {
        let next;
        (heard, next) = py.detach(move || {
            let next = heard.recv_timeout(TICK);
            (heard, next)
        });
        py.check_signals()?;
        match (next, tell) {
            (Ok((kind, words)), Some(tell)) => {
                tell.call1((kind, words))?;
            }
            (Ok(_), None) | (Err(RecvTimeoutError::Timeout), _) => {}
            (Err(RecvTimeoutError::Disconnected), _) => return Ok(()),
        }
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it ended without a word".to_owned())
}
