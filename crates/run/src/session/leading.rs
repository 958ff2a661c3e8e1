//! What the first of several processes asks the others for, and what they answer.

use std::borrow::Cow;

use lower::{Port, Program};

use super::Session;
use crate::error::RunError;
use crate::processes::{Ask, Processes};
use crate::rank::Report;

/// What a rank reports of a step, and how long the step took on it (seconds).
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) report: Report,
    pub(crate) seconds: f64,
}

impl Session {
    /// Whether results are put together here: on threads, and in the first of several processes.
    pub fn leads(&self) -> bool {
        self.processes.as_ref().is_none_or(|it| it.leads())
    }

    /// Whether a rank's memory is here.
    pub(crate) fn is_here(&self, rank: usize) -> bool {
        self.processes.as_ref().is_none_or(|it| usize::try_from(it.rank()) == Ok(rank))
    }

    /// In a process that does not lead: gives the first one what it asks for until it lets this one go
    /// on; the number that it says then.
    pub fn follow(&self) -> Result<u64, RunError> {
        self.answer(None)
    }

    /// In the first of several processes: lets the others go on, and tells them a number.
    pub fn go_on(&self, number: u64) {
        if let Some(processes) = &self.processes {
            processes.go_on(number);
        }
    }

    /// Answers what the first process asks, until it says to go on.
    pub(crate) fn answer(&self, done: Option<&Done>) -> Result<u64, RunError> {
        let Some(processes) = &self.processes else { return Ok(0) };
        let own = self.ranks.iter().zip(0..).find(|(_, number)| self.is_here(*number));
        let (rank, number) = own.ok_or_else(|| RunError::Program("this process has no rank".to_owned()))?;
        let nothing = || RunError::Program("what is asked for is not there".to_owned());
        loop {
            match processes.asked() {
                Ask::Report => processes.answer(&bytes_of(done.ok_or_else(nothing)?)),
                Ask::Output(port) => {
                    let port = rank.program.outputs.get(port).ok_or_else(nothing)?;
                    processes.answer(&self.output_of(number, port)?);
                }
                Ask::State(port) => {
                    let port = rank.program.states.get(port).ok_or_else(nothing)?;
                    processes.answer(&self.state_of(number, port)?);
                }
                Ask::GoOn(number) => return Ok(number),
            }
        }
    }

    /// What all ranks report, in their order, of which those here are given.
    pub(crate) fn reports(&self, here: Vec<Done>) -> Vec<Done> {
        let Some(processes) = &self.processes else { return here };
        let others = self.ranks.iter().skip(here.len()).map(|rank| asked(processes, &rank.program));
        let others: Vec<Done> = others.collect();
        here.into_iter().chain(others).collect()
    }

    /// The bytes that a rank has of an output or a state: those here, or asked for.
    pub(crate) fn bytes<'a>(
        &'a self,
        rank: usize,
        port: &Port,
        ask: Ask,
        here: impl Fn() -> Result<Cow<'a, [u8]>, RunError>,
    ) -> Result<Cow<'a, [u8]>, RunError> {
        let of = &self.ranks[rank];
        match &self.processes {
            Some(processes) if !self.is_here(rank) => {
                let length = of.program.buffer(port.buffer).type_.bytes();
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Ok(Cow::Owned(processes.ask(of.program.rank, ask, length)))
            }
            _ => here(),
        }
    }
}

/// How many bytes a number has.
const NUMBER: usize = 8;

/// Whether nothing was left out, how long the step took, and of each instruction how long it took and
/// what it received.
fn bytes_of(done: &Done) -> Vec<u8> {
    let Done { report: Report { seconds, received, complete }, seconds: total } = done;
    let first = [u64::from(*complete).to_le_bytes(), total.to_le_bytes()];
    let each = seconds.iter().zip(received).flat_map(|(it, bytes)| [it.to_le_bytes(), bytes.to_le_bytes()]);
    first.into_iter().chain(each).flatten().collect()
}

/// What another rank reports.
fn asked(processes: &Processes, program: &Program) -> Done {
    let length = 2 * NUMBER * (1 + program.instructions.len());
    let bytes = processes.ask(program.rank, Ask::Report, length);
    let (numbers, _) = bytes.as_chunks::<NUMBER>();
    let (pairs, _) = numbers.as_chunks::<2>();
    let (first, each) = pairs.split_first().map_or(([[0; NUMBER]; 2], pairs), |(first, each)| (*first, each));
    let seconds = each.iter().map(|it| f64::from_le_bytes(it[0])).collect();
    let received = each.iter().map(|it| u64::from_le_bytes(it[1])).collect();
    let complete = u64::from_le_bytes(first[0]) == 1;
    Done { report: Report { seconds, received, complete }, seconds: f64::from_le_bytes(first[1]) }
}
