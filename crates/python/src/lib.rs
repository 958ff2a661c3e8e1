//! What Python calls: the commands of the command line in its own process, and what a plan file comes to.
//!
//! What a person sees is the package in `crates/python/shardloom`, which has stubs of these functions.

mod module; // the module as Python loads it
mod apart; // work on threads of its own, which Python waits for
mod facts; // what a plan file comes to
mod relocate; // a plan whose model lies elsewhere

use std::path::PathBuf;

use files::Failure;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

create_exception!(
    shardloom,
    Error,
    PyException,
    "What was asked for cannot be done: the message says what was found, what was expected, and how to go on.\n\n\
     `kind` is `usage` (arguments that contradict each other), `input` (a bad file, or a plan that is rejected or \
     does not fit), `full` (no room for a file) or `internal` (an error of Shardloom's own)."
);

/// Text for people, and JSON.
type Said = (String, String);

/// Of arguments as the command line has them, and of who is told what is being done, or none: what the command says.
fn call(given: &Bound<'_, PyTuple>) -> PyResult<Said> {
    let (arguments, tell): (Vec<String>, Option<Bound<'_, PyAny>>) = given.extract()?;
    apart::done(given.py(), tell.as_ref(), move |teller, interrupt| {
        let said = shardloom::call(arguments, Box::new(teller), interrupt)?;
        Ok((said.text, said.json.to_string()))
    })
}

/// Of a plan file, and of the machine file that it was made by, or none: what the plan comes to.
fn facts(given: &Bound<'_, PyTuple>) -> PyResult<Said> {
    let (path, machine): (PathBuf, Option<String>) = given.extract()?;
    apart::done(given.py(), None, move |_, _| facts::of(&path, machine.as_deref()))
}

/// Of a plan file, where its model now lies, and where the plan is to be: that plan is written, of this model.
fn relocated(given: &Bound<'_, PyTuple>) -> PyResult<()> {
    let (path, model, to): (PathBuf, String, PathBuf) = given.extract()?;
    apart::done(given.py(), None, move |_, _| relocate::write(&path, &model, &to))
}

/// Of the name of a command: its options, as they are written behind `--`.
fn options(given: &Bound<'_, PyTuple>) -> PyResult<Vec<String>> {
    let (command,): (String,) = given.extract()?;
    Ok(shardloom::arguments::options(&command))
}

/// A failure as Python knows it.
fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let kind = match failure {
        Failure::Usage(_) => "usage",
        Failure::Input(_) | Failure::NoRoom { .. } | Failure::Join(_) | Failure::Ended(..) => "input",
        Failure::Full(_) => "full",
        Failure::Internal(_) => "internal",
    };
    let error = Error::new_err(failure.to_string());
    match error.value(py).setattr("kind", kind) {
        Ok(()) => error,
        Err(other) => other,
    }
}
