//! A warp: 32 lanes that run in lock step, in groups where they have diverged.

use crate::bits::{Lanes, lanes, low};
use crate::cells::{Moment, Now};
use crate::copies::Copies;
use crate::decode::Kernel;
use crate::fault::What;
use crate::grid::Surroundings;
use crate::instruction::{Instruction, Operation};

/// Most instructions of a warp: what takes longer does not end.
pub(crate) const MOST: u64 = 20_000_000;

/// Lanes that are at the same place.
#[derive(Clone, Copy, Debug)]
struct Group {
    at: usize,
    lanes: u32,
}

/// A warp of a block.
pub(crate) struct Warp {
    /// The number of its first thread.
    pub(crate) first: usize,
    pub(crate) registers: Vec<Lanes>,
    pub(crate) predicates: Vec<u32>,
    pub(crate) copies: Copies,
    /// The memory of each lane, a byte none if nobody has written it.
    pub(crate) local: Vec<Vec<Option<u8>>>,
    /// Lanes that have not ended.
    pub(crate) live: u32,
    /// The era since the last barrier of the warp.
    pub(crate) era: u32,
    /// Lanes that run, and lanes that wait for others of the warp.
    groups: Vec<Group>,
    waiting: Vec<Group>,
    /// The instruction at which it is.
    pub(crate) at: usize,
    /// How many it has run.
    count: u64,
}

/// Why a warp does not run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It is at a barrier of the block.
    AtBarrier,
    /// All lanes have ended.
    Over,
}

impl Warp {
    /// The warp whose first thread is that, with so many threads.
    pub(crate) fn new(kernel: &Kernel, first: usize, threads: usize, era: u32) -> Self {
        let live = if threads >= 32 { u32::MAX } else { (1 << threads) - 1 };
        let local = vec![vec![None; crate::bits::place(kernel.local)]; 32];
        Self {
            first,
            registers: vec![[0; 32]; kernel.registers],
            predicates: vec![0; kernel.predicates],
            copies: Copies::default(),
            local,
            live,
            era,
            groups: vec![Group { at: 0, lanes: live }],
            waiting: vec![],
            at: 0,
            count: 0,
        }
    }

    /// The moment of a lane.
    pub(crate) fn now(&self, lane: usize, around: &Surroundings<'_>) -> Now {
        let thread = u16::try_from(self.first + lane).unwrap_or(u16::MAX);
        let moment = Moment { era: around.era, warp_era: self.era, thread };
        Now { moment, launch: around.launched, block: around.began }
    }

    /// Runs until it waits or is over; what a lane does wrong.
    pub(crate) fn run(&mut self, around: &mut Surroundings<'_>) -> Result<Stopped, (usize, What)> {
        let kernel = around.kernel;
        while let Some(mut group) = self.lowest()? {
            loop {
                self.at = group.at;
                let Some(instruction) = kernel.instructions.get(group.at) else {
                    self.live &= !group.lanes;
                    break;
                };
                around.count += 1;
                self.count += 1;
                if self.count > MOST {
                    return Err((first(group.lanes), What::Endless { most: MOST }));
                }
                let active = self.active(instruction, group.lanes);
                let goes_on = match &instruction.operation {
                    operation if operation.together().is_some() => {
                        let together = self.together(instruction, group, active, around);
                        match together {
                            Some(lanes) if matches!(operation, Operation::Barrier) => {
                                self.groups.push(Group { at: group.at + 1, lanes });
                                return Ok(Stopped::AtBarrier);
                            }
                            Some(lanes) => {
                                self.step(operation, lanes, around)?;
                                lanes
                            }
                            None => 0,
                        }
                    }
                    Operation::Branch { to } => {
                        if active != 0 {
                            self.groups.push(Group { at: *to, lanes: active });
                        }
                        group.lanes & !active
                    }
                    Operation::Exit => {
                        self.live &= !active;
                        group.lanes & !active
                    }
                    operation => {
                        if active != 0 {
                            self.step(operation, active, around)?;
                        }
                        group.lanes
                    }
                };
                if goes_on == 0 {
                    break;
                }
                group = Group { at: group.at + 1, lanes: goes_on };
                if self.groups.iter().any(|it| it.at <= group.at) {
                    self.groups.push(group);
                    break;
                }
            }
        }
        Ok(Stopped::Over)
    }

    /// The lanes of a group for which the guard of an instruction holds.
    fn active(&self, instruction: &Instruction, lanes: u32) -> u32 {
        match instruction.guard {
            None => lanes,
            Some((predicate, false)) => lanes & self.predicates[predicate],
            Some((predicate, true)) => lanes & !self.predicates[predicate],
        }
    }

    /// The lanes at the lowest place, taken out; none if all have ended.
    fn lowest(&mut self) -> Result<Option<Group>, (usize, What)> {
        if self.groups.is_empty() && !self.waiting.is_empty() {
            // Those that were waited for may have ended: each is asked again, once.
            let missing = |it: &Group| self.live & !it.lanes;
            if let Some(all) = self.waiting.iter().position(|it| missing(it) == 0) {
                self.groups.push(self.waiting.swap_remove(all));
            } else {
                let waiting = self.waiting[0];
                self.at = waiting.at;
                let what = What::Diverged { waiting: waiting.lanes, missing: missing(&waiting) };
                return Err((first(waiting.lanes), what));
            }
        }
        let Some(at) = self.groups.iter().map(|it| it.at).min() else { return Ok(None) };
        let lanes = self.groups.extract_if(.., |it| it.at == at).fold(0, |all, it| all | it.lanes);
        Ok(Some(Group { at, lanes }))
    }

    /// The lanes that do an instruction together, if all that it asks for are there; else those that are wait.
    fn together(
        &mut self,
        instruction: &Instruction,
        group: Group,
        active: u32,
        around: &Surroundings<'_>,
    ) -> Option<u32> {
        let passing = group.lanes & !active;
        if passing != 0 {
            self.groups.push(Group { at: group.at + 1, lanes: passing });
        }
        if active == 0 {
            return None;
        }
        let before = self.waiting.extract_if(.., |it| it.at == group.at);
        let lanes = before.fold(active, |all, it| all | it.lanes);
        let mask = instruction.operation.together()?;
        let asked = low(self.values(mask, around)[first(active)]) & self.live;
        if lanes == asked {
            return Some(lanes);
        }
        self.waiting.push(Group { at: group.at, lanes });
        None
    }
}

/// The first lane of a mask.
fn first(mask: u32) -> usize {
    lanes(mask).next().unwrap_or(0)
}
