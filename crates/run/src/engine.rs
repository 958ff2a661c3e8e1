//! Ranks whose memory is on devices: what a session asks of what runs them.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use kernels::Array;
use lower::{BufferId, Port, Program};

use crate::error::RunError;
use crate::processes::Processes;
use crate::rank::{Feed, Report};
use crate::session::Session;

/// What has the memory of ranks on devices, and runs their steps.
///
/// Ranks are named by their places among the programs of the session. Of these, an engine has those
/// that are in this process: all, or where each rank is a process, one.
pub trait Engine {
    /// Puts a block at rest where a buffer of a rank is, of the buffer's type.
    fn put(&mut self, rank: usize, buffer: BufferId, block: &Arc<Array>) -> Result<(), RunError>;

    /// The bytes of a rank's buffer: of one at rest, or of an output of the last step.
    fn get(&self, rank: usize, buffer: BufferId) -> Result<Vec<u8>, RunError>;

    /// Runs one step of all ranks that it has, those parts that are repeated once for each
    /// micro-batch's feed: for each of the ranks, in their order, what it reports.
    fn step(&mut self, feeds: &[Vec<Feed>]) -> Result<Vec<Report>, RunError>;
}

impl Session {
    /// A session whose ranks an engine runs: all of them, or if each is a process, this one's.
    ///
    /// The programs are ones that `lower::verify` accepts, and those that the engine has been made for.
    pub fn on(
        engine: Box<dyn Engine>,
        processes: Option<Rc<Processes>>,
        programs: Vec<Program>,
        weights: &dyn Fn(&str) -> Result<Array, String>,
    ) -> Result<Self, RunError> {
        Self::among(processes, Some(engine), programs, weights, None)
    }

    /// Puts a block at rest in the memory of a rank that is here.
    pub(crate) fn put(&mut self, rank: usize, buffer: BufferId, block: Arc<Array>) -> Result<(), RunError> {
        match &mut self.engine {
            Some(engine) => {
                engine.put(rank, buffer, &block)?;
                let storage = self.ranks[rank].program.buffer(buffer).storage;
                self.loaded.insert((rank, storage));
            }
            None => self.ranks[rank].put(buffer, block),
        }
        Ok(())
    }

    /// Whether something is at rest where a buffer of a rank that is here is.
    pub(crate) fn has(&self, rank: usize, buffer: BufferId) -> bool {
        let storage = self.ranks[rank].program.buffer(buffer).storage;
        self.loaded.contains(&(rank, storage)) || self.ranks[rank].resting(buffer).is_some()
    }

    /// The bytes of an output of a rank that is here.
    pub(crate) fn output_of(&self, rank: usize, port: &Port) -> Result<Cow<'_, [u8]>, RunError> {
        match &self.engine {
            Some(engine) => Ok(Cow::Owned(engine.get(rank, port.buffer)?)),
            None => Ok(Cow::Borrowed(self.ranks[rank].output(port)?)),
        }
    }

    /// The bytes of a state of a rank that is here.
    pub(crate) fn state_of(&self, rank: usize, port: &Port) -> Result<Cow<'_, [u8]>, RunError> {
        let missing = || RunError::Program(format!("state `{}` is nowhere", port.name));
        match &self.engine {
            Some(engine) => Ok(Cow::Owned(engine.get(rank, port.buffer)?)),
            None => Ok(Cow::Borrowed(self.ranks[rank].at_rest(port.buffer).ok_or_else(missing)?)),
        }
    }
}
