//! What is said where the system has no more memory for this process.
//!
//! The standard library aborts then. That ends with a message and an exit code of what was asked for, as
//! other limits do, and not as an error of the program.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, Ordering};

use mimalloc::MiMalloc;
use signal_hook::consts::SIGABRT;
use signal_hook::low_level;

/// An allocator for searches, which make and leave many small tables on all threads; it notes when there is
/// no more.
pub(crate) struct Watched;

/// Whether memory was asked for last that was not there.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// Whether a thread is saying so.
static IS_SAID: AtomicBool = AtomicBool::new(false);

/// The exit code of what is asked for and cannot be done.
const REFUSED: i32 = 2;

const MESSAGE: &str = "error: there is not enough memory for this: allow more (`ulimit -v`, or what limits this \
                       container), or ask for less: a smaller mesh or model, fewer ranks\n";

fn noted(found: *mut u8) -> *mut u8 {
    if found.is_null() {
        IS_MISSING.store(true, Ordering::SeqCst);
    }
    found
}

#[expect(unsafe_code, reason = "an allocator is handed on to")]
// SAFETY: all is done by the allocator that is handed on to, and what it returns is not changed.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { MiMalloc.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { MiMalloc.alloc_zeroed(layout) })
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { MiMalloc.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { MiMalloc.realloc(place, layout, size) })
    }
}

/// From now on this process ends with a message where it would abort for want of memory.
pub(crate) fn say_what_is_missing() {
    let ends = || {
        if IS_MISSING.load(Ordering::SeqCst) {
            // Another thread that wants memory too ends with this process.
            while IS_SAID.swap(true, Ordering::SeqCst) {
                std::thread::yield_now();
            }
            // Nothing may be allocated any more.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), MESSAGE.as_bytes());
            low_level::exit(REFUSED);
        }
        // Something else ends it: as it would without this.
        let _ = low_level::emulate_default_handler(SIGABRT);
    };
    #[expect(unsafe_code, reason = "a signal is acted upon")]
    // SAFETY: what is done is on atomics, a write of bytes that are there to what has no buffer, and an end.
    let registered = unsafe { low_level::register(SIGABRT, ends) };
    // Where that cannot be had the system ends this process, as it would any other.
    drop(registered);
}
