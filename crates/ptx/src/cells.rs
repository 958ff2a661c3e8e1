//! Who wrote and who read a byte of memory, and when: two accesses that nothing orders are a race.
//!
//! Time is counted in eras: a block begins one, and each of its barriers does. A warp counts its own besides:
//! `bar.warp.sync` begins one.

/// A moment of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The era of the block; 0 is before everything.
    pub(crate) era: u32,
    /// That of the warp.
    pub(crate) warp_era: u32,
    /// The thread in its block.
    pub(crate) thread: u16,
}

/// A moment, and since when what others do is at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    /// The first era of the launch.
    pub(crate) launch: u32,
    /// The first era of the block.
    pub(crate) block: u32,
}

/// What happened to a byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    /// Whether something is in it.
    pub(crate) is_written: bool,
    write: Moment,
    /// The last reader, and whether other lanes of its warp read in the same era of the warp.
    read: Moment,
    lanes: bool,
    /// The last reader of another warp or block than that.
    other: Moment,
}

/// How many lanes a warp has.
pub(crate) const WARP: u16 = 32;

impl Now {
    /// Whether nothing orders something that was done then, and what is done now.
    fn is_beside(&self, then: &Moment) -> bool {
        let Moment { era, warp_era, thread } = self.moment;
        if then.era < self.launch {
            false
        } else if then.era < self.block {
            // Another block of the launch.
            true
        } else if then.thread / WARP == thread / WARP {
            then.thread != thread && then.warp_era == warp_era
        } else {
            then.era == era
        }
    }

    /// The same time for memory that is the block's alone.
    pub(crate) fn within_block(self) -> Self {
        Self { launch: self.block, ..self }
    }
}

impl Cell {
    /// A byte that is there before the first launch.
    pub(crate) const GIVEN: Self = {
        let never = Moment { era: 0, warp_era: 0, thread: 0 };
        Self { is_written: true, write: never, read: never, lanes: false, other: never }
    };

    /// Notes a read; who is beside it.
    pub(crate) fn read(&mut self, now: &Now) -> Option<Moment> {
        if now.is_beside(&self.write) {
            return Some(self.write);
        }
        let (last, this) = (self.read, now.moment);
        let is_of_warp = last.era >= now.block && last.thread / WARP == this.thread / WARP;
        if !is_of_warp {
            self.other = last;
        }
        let is_at_once = is_of_warp && last.warp_era == this.warp_era;
        self.lanes = is_at_once && (self.lanes || last.thread != this.thread);
        self.read = this;
        None
    }

    /// Notes a write, perhaps of what is there already; who is beside it.
    pub(crate) fn write(&mut self, now: &Now, is_same: bool) -> Option<Moment> {
        let this = now.moment;
        if !is_same && now.is_beside(&self.write) {
            return Some(self.write);
        }
        let is_of_warp = self.read.era >= now.block && self.read.thread / WARP == this.thread / WARP;
        let is_beside_lanes = self.lanes && is_of_warp && self.read.warp_era == this.warp_era;
        if now.is_beside(&self.read) || is_beside_lanes {
            return Some(self.read);
        }
        if now.is_beside(&self.other) {
            return Some(self.other);
        }
        self.write = this;
        self.is_written = true;
        None
    }

    /// Whether it was written since an era.
    pub(crate) fn is_written_since(&self, era: u32) -> bool {
        self.is_written && self.write.era >= era
    }
}
