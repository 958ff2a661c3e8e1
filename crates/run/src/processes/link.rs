//! How bytes get from process to process.

use std::time::Duration;

use super::flight::{Doing, Flight};

/// Why all processes end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending<'a> {
    /// The exit code of all.
    pub(super) code: u8,
    /// What is said, once.
    pub(super) words: &'a str,
    /// Which rank is the reason.
    pub(super) culprit: u64,
}

/// The way to the other processes.
///
/// Messages from one process to another with the same tag arrive in the order in which they are sent.
pub(super) trait Link {
    /// Which rank this process is.
    fn rank(&self) -> u64;

    /// How many there are.
    fn size(&self) -> u64;

    /// Sends to some and receives from some, until all of it is done; says for whom it has waited if
    /// that is too long, which ends the process.
    fn exchange(
        &self,
        tag: i32,
        sends: &[(u64, &[u8])],
        receives: Vec<(u64, &mut [u8])>,
        patience: Duration,
        waited: &dyn Fn(&[u64]),
    );

    /// Sends without waiting.
    fn send(&self, tag: i32, to: u64, bytes: Vec<u8>);

    /// What another process has last said that it does, where processes say so.
    fn doing(&self, _: u64) -> Option<Doing> {
        None
    }

    /// The host of a process, where it is known.
    fn host(&self, _: u64) -> Option<String> {
        None
    }

    /// Ends all processes. This one hands over what it did last.
    fn end(&self, ending: &Ending<'_>, flight: &Flight) -> !;
}
