//! What devices of ranks that are processes say of themselves, and what they ask of the processes.
//!
//! Where ranks meet on devices, no process sees it: each waits for its own device. So a process says when
//! it does, and where that is too long, whoever does not wait is the reason.

use std::time::Duration;

use super::{Processes, WAITED};
use crate::processes::culprit::{Wait, culprit};
use crate::processes::flight::Doing;
use crate::processes::link::Ending;

impl Processes {
    /// An instruction at which other ranks are met is issued, of a micro-batch.
    pub fn begins(&self, instruction: usize, micro_batch: u64) {
        self.flight.begins(instruction, micro_batch);
    }

    /// The host has begun to wait for its device.
    pub fn waits(&self) {
        self.flight.waits(self.others());
    }

    /// The host goes on.
    pub fn goes(&self) {
        self.flight.goes();
    }

    /// How long a rank waits for another one at most.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// What is to be done before this process ends, by whatever thread and for whatever reason, with its
    /// exit code.
    pub fn before_end(&self, last: Box<dyn Fn(u8) + Send + Sync>) {
        self.flight.set_last(last);
    }

    /// Ends all processes, since this one has waited for its device for too long. The reason is a rank
    /// whose host does not wait for its own, if there is one.
    pub fn late(&self) -> ! {
        let doing = |rank| self.link.doing(rank);
        let host = |rank| self.link.host(rank);
        let others = self.others();
        let goes = |&rank: &u64| matches!(doing(rank), Some(Doing { waits_for: None, .. }));
        let going: Vec<u64> = others.iter().copied().filter(goes).collect();
        let ranks = if going.is_empty() { others } else { going };
        let wait = Wait { own: self.rank(), ranks: &ranks, seconds: self.patience.as_secs() };
        let (culprit, words) = culprit(&wait, &doing, &host);
        self.link.end(&Ending { code: WAITED, words: &words, culprit }, &self.flight)
    }

    fn others(&self) -> Vec<u64> {
        (0..self.size()).filter(|&it| it != self.rank()).collect()
    }
}
