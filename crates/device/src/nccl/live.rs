//! The communicators of this process that are there, and how they end when all has to end.
//!
//! A rank that is lost leaves the others' GPUs waiting in kernels for what never comes. Only what makes
//! communicators invalid ends that; it may itself never come back, so that it has a limit. It is done by
//! whichever thread ends the process: from then on no other thread calls the library.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::functions::{Handle, Status};

/// How long ending communicators may take. A process that ends all the same leaves nothing behind: the
/// driver takes back what it has.
pub(super) const LIMIT: Duration = Duration::from_secs(4);

/// What makes a communicator invalid.
type Abort = unsafe extern "C" fn(Handle) -> Status;

/// The communicators that are there.
#[derive(Clone)]
pub(super) struct Live {
    state: Arc<Mutex<State>>,
    abort: Abort,
}

#[derive(Default)]
struct State {
    /// Their handles, as numbers: threads may have them.
    all: Vec<usize>,
    gone: bool,
}

/// The right to call the library.
pub(super) struct Calls<'a>(MutexGuard<'a, State>);

impl Live {
    pub(super) fn new(abort: Abort) -> Self {
        Self { state: Arc::default(), abort }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to call the library; where all communicators have been ended, so is this process soon.
    pub(super) fn calls(&self) -> Calls<'_> {
        loop {
            let state = self.state();
            if !state.gone {
                return Calls(state);
            }
            drop(state);
            thread::park_timeout(LIMIT);
        }
    }

    /// Makes all of them invalid; whether that is over in time. Newer ones come first: they may use what
    /// is the older ones'.
    pub(super) fn end(&self) -> bool {
        let (live, (said, over)) = (self.clone(), mpsc::channel());
        let ends = move || {
            let mut state = live.state();
            state.gone = true;
            for handle in std::mem::take(&mut state.all).into_iter().rev() {
                #[expect(unsafe_code, reason = "a function of the library is called")]
                // SAFETY: the communicator is there, and nobody else calls the library any more.
                unsafe {
                    (live.abort)(handle as Handle)
                };
            }
            // Who waits may have given up.
            let _ = said.send(());
        };
        // Where no thread can be started, nothing is over.
        let _ = thread::Builder::new().spawn(ends);
        over.recv_timeout(LIMIT).is_ok()
    }

    /// The same before this process ends with an exit code: at once if it takes too long, for what the
    /// driver does at the end of a process would wait for it too.
    pub(super) fn end_with(&self, code: u8) {
        if !self.end() {
            #[expect(unsafe_code, reason = "a function of C is called")]
            // SAFETY: it takes any number and does not return.
            unsafe {
                _exit(c_int::from(code))
            }
        }
    }
}

impl Calls<'_> {
    pub(super) fn add(&mut self, handle: Handle) {
        self.0.all.push(handle as usize);
    }

    pub(super) fn remove(&mut self, handle: Handle) {
        self.0.all.retain(|it| *it != handle as usize);
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.0.all.iter().map(|it| *it as Handle)
    }
}

#[expect(unsafe_code, reason = "a function of C is declared")]
unsafe extern "C" {
    fn _exit(code: c_int) -> !;
}
