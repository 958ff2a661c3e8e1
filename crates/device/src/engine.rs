//! Ranks on GPUs as sessions run them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use kernels::Array;
use lower::{BufferId, Program};
use run::{Engine, Feed, Moved, Processes, Report, RunError};

use crate::cache::{self, Loaded};
use crate::error::DeviceError;
use crate::exchange::Exchange;
use crate::gpu::{self, Facts, Gpu, Memory, Priority};
use crate::maker::{Maker, Wanted};
use crate::moves::Moves;
use crate::nccl::{Connection, Nccl, expect_apart};
use crate::nvrtc::Nvrtc;
use crate::rank::Rank;
use crate::ranks::{Issuing, Ranks};
use crate::ready::Given;
use crate::settings::Settings;
use crate::together::Together;

/// Ranks of one or more plans on a GPU, with everything that their steps need.
///
/// Steps of different plans take turns: ranks at the same place share one memory.
pub struct Device {
    // What refers to memory and streams is dropped before them.
    plans: Vec<Ranks>,
    /// For each place among ranks.
    _memories: Vec<Memory>,
    /// Where something has been put at rest: addresses.
    held: BTreeSet<u64>,
    /// Where blocks are put and fetched between steps.
    service: gpu::Stream,
    loaded: Loaded,
    nvrtc: Nvrtc,
    gpu: Rc<Gpu>,
    settings: Settings,
    given: Given,
    remarks: Vec<String>,
}

impl Device {
    /// All ranks of a plan on one GPU, one or more: if there are several, they meet there.
    pub fn together(settings: &Settings, programs: &[Program]) -> Result<Self, DeviceError> {
        Self::in_turns(settings, &[programs])
    }

    /// The same for plans whose steps take turns. What is at rest in several of them is there once
    /// ([`run::alike`]), and they share the memory of their steps.
    pub fn in_turns(settings: &Settings, plans: &[&[Program]]) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(&settings.libraries, settings.gpu)?;
        let mut first = 0;
        let wanted = plans.iter().map(|programs| {
            let numbers = first..;
            first += programs.len();
            Wanted {
                programs: numbers.zip(programs.iter()).collect(),
                exchange: Box::new(Together::new(&gpu)) as Box<dyn Exchange>,
            }
        });
        let mut device = Self::new(&gpu, settings, wanted.collect())?;
        let ranks = plans.iter().map(|programs| programs.len()).max().unwrap_or(0);
        if ranks > 1 {
            let remark = format!(
                "{ranks} ranks on one GPU ({}): what they compute is right, how long it takes says nothing of \
                 as many GPUs",
                gpu.facts.name
            );
            device.remarks.insert(0, remark);
        }
        Ok(device)
    }

    /// The rank of this process, with a GPU of its own, in each of some plans whose steps take turns, among
    /// ranks that are processes: they meet by NCCL. Connecting all of them takes no longer than a limit,
    /// from when all are ready; all processes end where it does.
    pub fn among(
        settings: &Settings,
        processes: &Rc<Processes>,
        limit: Duration,
        plans: &[&[Program]],
    ) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(&settings.libraries, settings.gpu)?;
        expect_apart(&gpu, processes)?;
        let connection = Rc::new(Connection::new(&gpu, &settings.libraries, processes, limit, plans)?);
        let mut first = 0;
        let mut wanted = Vec::with_capacity(plans.len());
        for programs in plans {
            let own = (first..).zip(*programs).find(|(_, it)| it.rank == processes.rank());
            let missing = || DeviceError::Program("this process has no rank".to_owned());
            let exchange = Box::new(Nccl::new(&connection, programs)?);
            wanted.push(Wanted { programs: vec![own.ok_or_else(missing)?], exchange });
            first += programs.len();
        }
        Self::new(&gpu, settings, wanted)
    }

    /// Ranks on a GPU.
    pub(crate) fn new(gpu: &Rc<Gpu>, settings: &Settings, wanted: Vec<Wanted>) -> Result<Self, DeviceError> {
        let service = gpu.stream(Priority::Low)?;
        let mut maker = Maker::new(gpu, settings, &wanted)?;
        let (ranks, memories) = maker.ranks(&wanted, &service)?;
        let mut plans = Vec::with_capacity(wanted.len());
        for (place, (ranks, mut it)) in ranks.into_iter().zip(wanted).enumerate() {
            it.exchange.prepare(&ranks, &maker.loaded)?;
            let issuing = if maker.waits_on_host(place) { Issuing::Single } else { settings.issuing };
            plans.push(Ranks::new(gpu, ranks, it.exchange, issuing)?);
        }
        gpu.synchronize()?;
        let remarks = maker.remarks();
        let Maker { loaded, nvrtc, .. } = maker;
        Ok(Self {
            plans,
            _memories: memories,
            held: BTreeSet::new(),
            service,
            loaded,
            nvrtc,
            gpu: Rc::clone(gpu),
            settings: settings.clone(),
            given: Given::default(),
            remarks,
        })
    }

    /// What is worth saying once of how these programs run.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What is known of the GPU.
    pub fn facts(&self) -> &Facts {
        &self.gpu.facts
    }

    /// The memory of the GPU that is free (bytes).
    pub fn free_memory(&self) -> Result<u64, DeviceError> {
        self.gpu.free_memory()
    }

    fn rank(&self, number: usize) -> Result<&Rank, DeviceError> {
        let missing = || DeviceError::Program(format!("the rank at place {number} is not on this device"));
        let mut all = self.plans.iter().flat_map(|it| &it.ranks);
        all.find(|it| it.number == number).ok_or_else(missing)
    }

    /// The plan with the first of some ranks.
    fn plan(&mut self, ranks: &Range<usize>) -> Result<usize, DeviceError> {
        let missing = || DeviceError::Program(format!("no rank of {ranks:?} is on this device"));
        let has = |it: &Ranks| it.ranks.iter().any(|rank| ranks.contains(&rank.number));
        self.plans.iter().position(has).ok_or_else(missing)
    }

    /// Copies made ready: their kernels are compiled if they are not there.
    fn moves(&mut self, moved: &[Moved]) -> Result<Moves, DeviceError> {
        let works = moved.iter().map(|it| Ok(Moves::work(self.rank(it.from.0)?, it)));
        let works = works.collect::<Result<Vec<_>, DeviceError>>()?;
        let missing = works.iter().flat_map(|work| &work.launches).filter(|it| !self.loaded.has(it));
        let loaded = cache::loaded(&self.gpu, &self.nvrtc, self.settings.cache.as_deref(), missing)?;
        self.loaded.add(loaded);
        let mut moves = Moves::default();
        for (it, work) in moved.iter().zip(&works) {
            let (from, to) = (self.rank(it.from.0)?, self.rank(it.to.0)?);
            moves.add(it, [from, to], work, &self.loaded)?;
        }
        Ok(moves)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.plans.iter_mut().for_each(Ranks::leave);
        // What a step that failed has left on streams uses what is given back now. If waiting fails too,
        // nothing of it runs any more.
        let _ = self.gpu.synchronize();
    }
}

impl Engine for Device {
    fn put(&mut self, rank: usize, buffer: BufferId, block: &Arc<Array>) -> Result<(), RunError> {
        let rank = self.rank(rank)?;
        if u64::try_from(block.bytes().len()) != Ok(rank.bytes(buffer)) {
            let how = format!("what is put into b{} of rank {} does not fit", buffer.0, rank.program.rank);
            return Err(RunError::Program(how));
        }
        let address = rank.address(buffer, 0);
        self.service.put(address, block.bytes())?;
        self.held.insert(address);
        Ok(())
    }

    fn holds(&self, rank: usize, buffer: BufferId) -> bool {
        self.rank(rank).is_ok_and(|rank| self.held.contains(&rank.address(buffer, 0)))
    }

    fn get(&self, rank: usize, buffer: BufferId) -> Result<Vec<u8>, RunError> {
        Ok(self.rank(rank)?.fetched(buffer, &self.service)?)
    }

    fn step(&mut self, ranks: Range<usize>, feeds: &[Vec<Feed>]) -> Result<Vec<Report>, RunError> {
        let plan = self.plan(&ranks)?;
        self.plans[plan].step(ranks.start, feeds, &self.service, &mut self.given)
    }

    fn hand(&mut self, moved: &[Moved]) -> Result<(), RunError> {
        let moves = self.moves(moved)?;
        moves.issue(&self.service, &mut self.given)?;
        Ok(self.service.synchronize()?)
    }

    fn carry(&mut self, ranks: Range<usize>, moved: &[Moved]) -> Result<(), RunError> {
        let moves = self.moves(moved)?;
        let plan = self.plan(&ranks)?;
        self.plans[plan].carry(moves);
        Ok(())
    }
}
