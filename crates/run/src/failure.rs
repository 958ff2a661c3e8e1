//! Whether a rank has failed, so that nobody waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a rank has failed.
#[derive(Default)]
pub(crate) struct Failure(AtomicBool);

impl Failure {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Notes that one has. Who waits has to be woken after.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
