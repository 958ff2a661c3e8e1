//! The ranks of a plan on a GPU, and how their steps are issued: as they are, captured, and again.

use std::rc::Rc;

use kernels::Array;
use run::{Feed, Report, RunError};

use crate::error::DeviceError;
use crate::exchange::{Exchange, Half};
use crate::gpu::{self, Event, Gpu, Graph, Timing};
use crate::issue::issue;
use crate::moves::Moves;
use crate::rank::Rank;
use crate::ready::Given;
use crate::report::report;

/// How steps are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Issuing {
    /// The first one as it is; the second one is captured, and all others are one call each.
    Captured,
    /// Each instruction of each step by itself: steps that wait on the host are.
    Single,
}

/// The ranks of a plan that are in this process.
pub(crate) struct Ranks {
    // What refers to memory and streams of ranks is dropped before them.
    exchange: Box<dyn Exchange>,
    /// How often the halves of a step have been issued, and what they are, captured.
    issued: [usize; 2],
    graphs: [Option<Graph>; 2],
    issuing: Issuing,
    /// When a captured step begins.
    begun: Event,
    /// What outputs become inputs at the end of a step.
    carried: Moves,
    pub(crate) ranks: Vec<Rank>,
}

impl Ranks {
    /// Ranks that are ready, and how they reach each other and the rest.
    pub(crate) fn new(
        gpu: &Rc<Gpu>,
        ranks: Vec<Rank>,
        exchange: Box<dyn Exchange>,
        issuing: Issuing,
    ) -> Result<Self, DeviceError> {
        let issuing = if exchange.captures() { issuing } else { Issuing::Single };
        let (begun, carried) = (gpu.event(Timing::No)?, Moves::default());
        Ok(Self { exchange, issued: [0; 2], graphs: [None, None], issuing, begun, carried, ranks })
    }

    /// They go away, maybe in the middle of a step.
    pub(crate) fn leave(&mut self) {
        self.exchange.leaves();
    }

    /// Says what is copied at the end of each step from now on.
    pub(crate) fn carry(&mut self, moves: Moves) {
        self.carried = moves;
        // What has been captured lacks it, and a kernel is not captured before it has been issued.
        (self.issued, self.graphs) = ([0; 2], [None, None]);
    }

    /// One step; feeds are of the ranks from the first one of the session on.
    pub(crate) fn step(
        &mut self,
        first: usize,
        feeds: &[Vec<Feed>],
        service: &gpu::Stream,
        given: &mut Given,
    ) -> Result<Vec<Report>, RunError> {
        for rank in &mut self.ranks {
            let place = rank.number.checked_sub(first);
            rank.feed(place.and_then(|it| feeds.get(it)).map_or(&[], Vec::as_slice))?;
        }
        self.half(Half::First, service, given)?;
        let guarded = self.is_guarded();
        let complete = !guarded || self.outputs_are_finite(service)?;
        if complete && guarded {
            self.half(Half::Guarded, service, given)?;
        }
        Ok(self.ranks.iter().map(|rank| report(&rank.program, complete)).collect())
    }

    fn is_guarded(&self) -> bool {
        self.ranks.iter().any(|it| it.program.guard.is_some())
    }

    /// Issues half a step and waits for it. The first time it is issued as it is, so that what is done at
    /// first use is done.
    fn half(&mut self, half: Half, service: &gpu::Stream, given: &mut Given) -> Result<(), DeviceError> {
        let place = usize::from(half == Half::Guarded);
        let times = self.issued[place];
        self.issued[place] += 1;
        if self.issuing == Issuing::Single || times == 0 {
            self.issue(half, service, given)?;
            service.synchronize()?;
            return self.exchange.ends(half);
        }
        if self.graphs[place].is_none() {
            self.graphs[place] = Some(self.captured(half, service, given)?);
        }
        if let Some(graph) = &self.graphs[place] {
            service.replay(graph)?;
        }
        service.synchronize()
    }

    /// Issues half a step, and lets a stream wait for it; what is carried is copied on that stream.
    fn issue(&mut self, half: Half, service: &gpu::Stream, given: &mut Given) -> Result<(), DeviceError> {
        self.exchange.begins(half);
        issue(&self.ranks, self.exchange.as_mut(), half, given)?;
        self.ranks.iter().try_for_each(|rank| rank.lead(service))?;
        let ends = half == Half::Guarded || !self.is_guarded();
        if ends { self.carried.issue(service, given) } else { Ok(()) }
    }

    /// Half a step, captured.
    fn captured(
        &mut self,
        half: Half,
        service: &gpu::Stream,
        given: &mut Given,
    ) -> Result<Graph, DeviceError> {
        service.begin_capture()?;
        service.record(&self.begun)?;
        self.ranks.iter().try_for_each(|rank| rank.follow(&self.begun))?;
        self.issue(half, service, given)?;
        service.end_capture()
    }

    /// Whether the outputs that every rank has whole are finite, on each of the ranks here.
    fn outputs_are_finite(&self, service: &gpu::Stream) -> Result<bool, RunError> {
        for rank in &self.ranks {
            for port in rank.program.outputs.iter().filter(|port| port.is_checked()) {
                let failed = |error| RunError::Whole(port.name.clone(), error);
                let bytes = rank.fetched(port.buffer, service)?;
                let array = Array::from_bytes(port.type_.clone(), &bytes).map_err(failed)?;
                if array.to_floats().map_err(failed)?.iter().any(|it| !it.is_finite()) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
