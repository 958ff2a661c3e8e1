//! Copies on their way to shared memory: what they bring is there when it has been waited for.

use crate::cells::Now;
use crate::fault::What;
use crate::memory::{LONGEST, Shared};

/// The copies of a warp.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    on_their_way: Vec<Copy>,
    /// How many groups each lane has made.
    groups: [u64; 32],
}

#[derive(Debug)]
struct Copy {
    lane: usize,
    group: u64,
    to: u64,
    bytes: usize,
    brought: [u8; LONGEST],
}

impl Copies {
    /// A copy begins.
    pub(crate) fn begin(&mut self, lane: usize, to: u64, bytes: usize, brought: [u8; LONGEST]) {
        self.on_their_way.push(Copy { lane, group: self.groups[lane], to, bytes, brought });
    }

    /// What a lane has on its way becomes a group.
    pub(crate) fn commit(&mut self, lane: usize) {
        self.groups[lane] += 1;
    }

    /// What a lane has on its way arrives, but for so many of its newest groups.
    pub(crate) fn wait(&mut self, lane: usize, but: u64, shared: &mut Shared, now: &Now) -> Result<(), What> {
        let newest = self.groups[lane].saturating_sub(but);
        let arrived = self.on_their_way.extract_if(.., |it| it.lane == lane && it.group < newest);
        for copy in arrived {
            shared.store(copy.to, &copy.brought[..copy.bytes], now)?;
        }
        Ok(())
    }
}
