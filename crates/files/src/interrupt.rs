//! Work that is ended from outside before it is done.
//!
//! A search asks for many plans and takes it as an answer that there is none, so an error would not end it: the
//! threads that work unwind instead, at the next price that they ask for.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What ends the work of some threads.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// What a thread unwinds with whose work is ended.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted;

thread_local! {
    static OF_THREAD: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

impl Interrupt {
    /// Ends the work of all threads that have this.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The work of this thread is ended by this.
    pub fn give_to_this_thread(&self) {
        OF_THREAD.set(Some(self.clone()));
    }
}

/// A place where the work of this thread may end: it unwinds, without a message, if its work is ended.
pub fn point() {
    let is_set = |it: &Interrupt| it.0.load(Ordering::Relaxed);
    if OF_THREAD.with_borrow(|it| it.as_ref().is_some_and(is_set)) {
        resume_unwind(Box::new(Interrupted));
    }
}
