//! What all plans of a process exchange by: the library, two streams, and communicators, made once.
//!
//! Plans whose steps take turns are issued one after another, by all ranks in the same order, so that a
//! stream orders what all of them exchange on it.

use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use lower::Program;
use run::Processes;

use super::communicators::{Communicators, Members};
use super::functions::Unique;
use super::library::Library;
use super::watch::Watch;
use super::wires::Wires;
use crate::error::DeviceError;
use crate::gpu::{Gpu, Priority};

/// What the plans of a process share.
pub(crate) struct Connection {
    pub(super) gpu: Rc<Gpu>,
    pub(super) library: Rc<Library>,
    pub(super) processes: Rc<Processes>,
    limit: Duration,
    pub(super) watch: Rc<Watch>,
    communicators: OnceCell<Communicators>,
    pub(super) wires: Wires,
    /// The lists of ranks that programs have, and this rank's programs, until ranks are connected.
    members: RefCell<Vec<Members>>,
    own: RefCell<Vec<Program>>,
}

impl Connection {
    /// For the rank of this process in plans of as many ranks as there are processes; connecting all of
    /// them takes no longer than a limit.
    pub(crate) fn new(
        gpu: &Rc<Gpu>,
        folders: &[PathBuf],
        processes: &Rc<Processes>,
        limit: Duration,
        plans: &[&[Program]],
    ) -> Result<Self, DeviceError> {
        let library = Rc::new(Library::load(folders)?);
        let live = library.live.clone();
        processes.before_end(Box::new(move |code| live.end_with(code)));
        let watch = Rc::new(Watch::new(&library, processes, limit));
        let all = || plans.iter().copied().flatten();
        Ok(Self {
            gpu: Rc::clone(gpu),
            library,
            processes: Rc::clone(processes),
            limit,
            watch,
            communicators: OnceCell::new(),
            wires: Wires { waited: gpu.stream(Priority::High)?, beside: gpu.stream(Priority::High)? },
            members: RefCell::new(all().flat_map(Members::all).collect()),
            own: RefCell::new(all().filter(|it| it.rank == processes.rank()).cloned().collect()),
        })
    }

    /// Connects all ranks, if they are not: all of them are ready now.
    pub(super) fn connect(&self) -> Result<(), DeviceError> {
        if self.communicators.get().is_some() {
            return Ok(());
        }
        let unique = Unique::told(&self.library, &self.processes)?;
        let watch = Rc::clone(&self.watch);
        self.gpu.watch(Box::new(move |waiting| watch.look(waiting)));
        // Of other ranks nothing is needed any more.
        let (members, own) = (self.members.take(), self.own.take());
        let (rank, size) = (self.processes.rank(), self.processes.size());
        let made = Communicators::make(&self.library, unique, &members, [rank, size], self.limit)?;
        let made = made.unwrap_or_else(|| self.watch.not_connected(self.limit));
        made.warm(&self.gpu, &own, &self.wires)?;
        self.watch.connected();
        let again = |_| DeviceError::Program("ranks are connected twice".to_owned());
        self.communicators.set(made).map_err(again)
    }

    /// The communicators, once ranks are connected.
    pub(super) fn communicators(&self) -> Result<&Communicators, DeviceError> {
        let missing = || DeviceError::Program("ranks are not connected".to_owned());
        self.communicators.get().ok_or_else(missing)
    }
}
