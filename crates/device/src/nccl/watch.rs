//! What is looked at while the host waits for a device that waits for other ranks.
//!
//! A communicator that has failed, or a wait that is too long, ends all processes: what has been issued
//! will never be over. Who is lost is best said by the processes' own connections, which notice it too.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use run::{LOST, Processes, WAITED};

use super::functions::{REMOTE, SYSTEM};
use super::library::Library;
use crate::error::DeviceError;
use crate::gpu::Waiting;

/// How long a wait is until it is worth saying (the others are told of it).
const NOTED: Duration = Duration::from_millis(20);
/// How long the processes' connections have to say who is lost.
pub(super) const FIRST: Duration = Duration::from_secs(2);
/// The exit code where a device fails.
const FAILED: u8 = 2;

/// What is looked at.
pub(super) struct Watch {
    library: Rc<Library>,
    processes: Rc<Processes>,
    /// How long connecting may take; nothing once that is over.
    connecting: Cell<Option<Duration>>,
    waits: Cell<bool>,
}

impl Watch {
    pub(super) fn new(library: &Rc<Library>, processes: &Rc<Processes>, limit: Duration) -> Self {
        let (library, processes) = (Rc::clone(library), Rc::clone(processes));
        Self { library, processes, connecting: Cell::new(Some(limit)), waits: Cell::new(false) }
    }

    /// All ranks are connected.
    pub(super) fn connected(&self) {
        self.connecting.set(None);
    }

    /// What the host does about a wait.
    pub(super) fn look(&self, waiting: Waiting) {
        let Waiting::For(time) = waiting else {
            if self.waits.take() {
                self.processes.goes();
            }
            return;
        };
        if let Some((state, error)) = self.library.failed() {
            let lost = matches!(state, REMOTE | SYSTEM);
            if lost {
                // If they know who it is, this process ends meanwhile.
                thread::sleep(FIRST);
            }
            self.end(if lost { LOST } else { FAILED }, &error.to_string());
        }
        match self.connecting.get() {
            Some(limit) if time > limit => self.not_connected(limit),
            None if time > self.processes.patience() => self.processes.late(),
            _ => {}
        }
        if time > NOTED && !self.waits.replace(true) {
            self.processes.waits();
        }
    }

    /// Ends all processes because of a failure of this one's device.
    pub(super) fn failed(&self, error: &DeviceError) -> ! {
        self.end(FAILED, &error.to_string())
    }

    /// Ends all processes because ranks are not connected in time.
    pub(super) fn not_connected(&self, limit: Duration) -> ! {
        let seconds = limit.as_secs_f64();
        self.end(
            WAITED,
            &format!(
                "the GPUs of all ranks have not been connected by NCCL {} in {seconds} s, which is the limit \
                 of `--join-limit`; what it does it says with `NCCL_DEBUG=INFO`",
                self.library.version
            ),
        )
    }

    fn end(&self, code: u8, words: &str) -> ! {
        self.processes.end(code, &format!("rank {}: {words}", self.processes.rank()))
    }
}
