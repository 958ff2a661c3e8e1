//! The end of a process whose launcher has ended, however that came about.

use std::io::{self, ErrorKind, Read, stdin};
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The exit code then, as that of a program that was told to end.
const TOLD: i32 = 143;

/// How long until then: all have to know of it before the first one ends.
const SOON: Duration = Duration::from_millis(200);

/// Whether the launcher has ended, or ends all.
static PULLED: AtomicBool = AtomicBool::new(false);

/// Whether the launcher has ended, or ends all.
pub(crate) fn is_pulled() -> bool {
    PULLED.load(Ordering::SeqCst)
}

/// Ends this process when its standard input ends: its launcher holds the other end.
pub(crate) fn hold() -> io::Result<()> {
    let watch = || {
        let mut input = stdin().lock();
        let mut bytes = [0; 64];
        loop {
            match input.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        PULLED.store(true, Ordering::SeqCst);
        thread::sleep(SOON);
        exit(TOLD)
    };
    thread::Builder::new().spawn(watch).map(drop)
}
