//! The streams that a process exchanges on.

use crate::error::DeviceError;
use crate::gpu::Stream;

/// What everything is exchanged on.
pub(super) struct Wires {
    /// What computing waits for, and what goes between stages.
    pub(super) waited: Stream,
    /// What runs beside computing.
    pub(super) beside: Stream,
}

impl Wires {
    /// The one beside computing, or the other.
    pub(super) fn of(&self, beside: bool) -> &Stream {
        if beside { &self.beside } else { &self.waited }
    }

    /// Waits until all is over.
    pub(super) fn synchronize(&self) -> Result<(), DeviceError> {
        self.waited.synchronize()?;
        self.beside.synchronize()
    }
}
