//! Ranks whose memory is on devices: what a session asks of what runs them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use kernels::Array;
use lower::{BufferId, Port, Program};

use super::Session;
use super::carried::Moved;
use crate::error::RunError;
use crate::processes::Processes;
use crate::rank::{Feed, Report};
use crate::stored::Stored;

/// What has the memory of ranks on devices, and runs their steps.
///
/// Ranks are named by their places among the programs that it has been made for: those of a session,
/// then those of one beside it, and so on. Of these, an engine has those that are in this process: all,
/// or where each rank is a process, one of each session.
pub trait Engine {
    /// Puts a block at rest where a buffer of a rank is, of the buffer's type.
    fn put(&mut self, rank: usize, buffer: BufferId, block: &Arc<Array>) -> Result<(), RunError>;

    /// Whether something has been put at rest where a buffer of a rank is. Buffers of two sessions may
    /// be at the same place if they are [`crate::alike`].
    fn holds(&self, rank: usize, buffer: BufferId) -> bool;

    /// The bytes of a rank's buffer: of one at rest, or of an output of the last step.
    fn get(&self, rank: usize, buffer: BufferId) -> Result<Vec<u8>, RunError>;

    /// Runs one step of those of a session's ranks that it has, those parts that are repeated once for
    /// each micro-batch's feed. Feeds are of all ranks of the session; for each of the ranks that it
    /// has, in their order, what it reports.
    ///
    /// Outputs of other sessions' steps may be overwritten.
    fn step(&mut self, ranks: Range<usize>, feeds: &[Vec<Feed>]) -> Result<Vec<Report>, RunError>;

    /// Copies outputs of the last step to where inputs are at rest. All are of ranks that it has.
    fn hand(&mut self, moved: &[Moved]) -> Result<(), RunError>;

    /// Does the same at the end of each step of these ranks from now on.
    fn carry(&mut self, ranks: Range<usize>, moved: &[Moved]) -> Result<(), RunError>;
}

/// What a session has of an engine: the ranks from one on.
#[derive(Clone)]
pub(crate) struct Seat {
    engine: Rc<RefCell<Box<dyn Engine>>>,
    /// The place of the session's first rank.
    pub(crate) first: usize,
}

impl Seat {
    /// Where a rank of the session is.
    pub(crate) fn place(&self, rank: usize) -> usize {
        self.first + rank
    }

    /// The seat behind the ranks of a session that has this one.
    pub(crate) fn beside(&self, ranks: usize) -> Self {
        Self { engine: Rc::clone(&self.engine), first: self.first + ranks }
    }

    /// One step of the session's ranks.
    pub(crate) fn step(&self, feeds: &[Vec<Feed>]) -> Result<Vec<Report>, RunError> {
        self.engine.borrow_mut().step(self.first..self.first + feeds.len(), feeds)
    }

    /// Copies outputs to inputs at rest, now.
    pub(crate) fn hand(&self, moved: &[Moved]) -> Result<(), RunError> {
        self.engine.borrow_mut().hand(moved)
    }

    /// The same at the end of each step of so many ranks.
    pub(crate) fn carry(&self, ranks: usize, moved: &[Moved]) -> Result<(), RunError> {
        self.engine.borrow_mut().carry(self.first..self.first + ranks, moved)
    }

    fn get(&self, rank: usize, buffer: BufferId) -> Result<Vec<u8>, RunError> {
        self.engine.borrow().get(self.place(rank), buffer)
    }
}

impl Session {
    /// A session whose ranks an engine runs: all of them, or if each is a process, this one's.
    ///
    /// The programs are ones that `lower::verify` accepts, and the first that the engine has been made
    /// for; [`Session::beside`] takes the next ones.
    pub fn on(
        engine: Box<dyn Engine>,
        processes: Option<Rc<Processes>>,
        programs: Vec<Program>,
        weights: &dyn Stored,
    ) -> Result<Self, RunError> {
        let seat = Seat { engine: Rc::new(RefCell::new(engine)), first: 0 };
        Self::among(processes, Some(seat), programs, weights, None)
    }

    /// Puts a block at rest in the memory of a rank that is here.
    pub(crate) fn put(&mut self, rank: usize, buffer: BufferId, block: Arc<Array>) -> Result<(), RunError> {
        match &self.engine {
            Some(seat) => seat.engine.borrow_mut().put(seat.place(rank), buffer, &block),
            None => {
                self.ranks[rank].put(buffer, block);
                Ok(())
            }
        }
    }

    /// Whether something is at rest where a buffer of a rank that is here is.
    pub(crate) fn has(&self, rank: usize, buffer: BufferId) -> bool {
        match &self.engine {
            Some(seat) => seat.engine.borrow().holds(seat.place(rank), buffer),
            None => self.ranks[rank].resting(buffer).is_some(),
        }
    }

    /// The bytes of an output of a rank that is here.
    pub(crate) fn output_of(&self, rank: usize, port: &Port) -> Result<Cow<'_, [u8]>, RunError> {
        match &self.engine {
            Some(seat) => Ok(Cow::Owned(seat.get(rank, port.buffer)?)),
            None => Ok(Cow::Borrowed(self.ranks[rank].output(port)?)),
        }
    }

    /// The bytes of a state of a rank that is here.
    pub(crate) fn state_of(&self, rank: usize, port: &Port) -> Result<Cow<'_, [u8]>, RunError> {
        let missing = || RunError::Program(format!("state `{}` is nowhere", port.name));
        match &self.engine {
            Some(seat) => Ok(Cow::Owned(seat.get(rank, port.buffer)?)),
            None => Ok(Cow::Borrowed(self.ranks[rank].at_rest(port.buffer).ok_or_else(missing)?)),
        }
    }
}
