//! What ranks of different stages send each other.
//!
//! From each rank to each other one there is a queue: what is sent is put down at once, and taken in
//! that order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use lower::{Action, Program, Remote, Way};

use crate::failure::Failure;
use crate::transport::GivenUp;

/// The queues between ranks that send each other something.
#[derive(Default)]
pub(crate) struct Mail {
    queues: BTreeMap<(u64, u64), Queue>,
}

#[derive(Default)]
struct Queue {
    messages: Mutex<VecDeque<Vec<u8>>>,
    moved: Condvar,
}

impl Queue {
    fn messages(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mail {
    /// The queues of programs.
    pub(crate) fn of<'a>(programs: impl Iterator<Item = &'a Program>) -> Self {
        let mut queues = BTreeMap::new();
        for program in programs {
            let own = program.rank;
            for instruction in &program.instructions {
                let parts: &[Remote] = match &instruction.action {
                    Action::Send(sent) => &sent.parts,
                    Action::Receive(received) => &received.parts,
                    _ => &[],
                };
                for part in parts {
                    let pair = if part.way == Way::To { (own, part.rank) } else { (part.rank, own) };
                    queues.entry(pair).or_insert_with(Queue::default);
                }
            }
        }
        Self { queues }
    }

    /// Puts down what a rank sends to another.
    pub(crate) fn send(&self, from: u64, to: u64, bytes: Vec<u8>) -> Option<()> {
        let queue = self.queues.get(&(from, to))?;
        queue.messages().push_back(bytes);
        queue.moved.notify_all();
        Some(())
    }

    /// Takes what a rank has sent to another, once it has; nothing if there is no such queue.
    pub(crate) fn take(&self, from: u64, to: u64, failure: &Failure) -> Option<Result<Vec<u8>, GivenUp>> {
        let queue = self.queues.get(&(from, to))?;
        let mut messages = queue.messages();
        loop {
            if let Some(bytes) = messages.pop_front() {
                return Some(Ok(bytes));
            }
            if failure.is_set() {
                return Some(Err(GivenUp));
            }
            messages = queue.moved.wait(messages).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake(&self) {
        for queue in self.queues.values() {
            // With the lock held, nobody is between looking at the failure and waiting.
            let messages = queue.messages();
            queue.moved.notify_all();
            drop(messages);
        }
    }

    /// Throws away what has not been taken.
    pub(crate) fn clear(&self) {
        self.queues.values().for_each(|queue| queue.messages().clear());
    }
}
