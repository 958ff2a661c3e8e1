//! What happens before what in one rank.
//!
//! Only the rank's own streams and events count: what other ranks do may order more, but no
//! program relies on it. A turn of a part starts when what was before is over, but for what is
//! sent, so that the order of two instructions of different turns is known, and here each
//! instruction stands for the last time it is done.

use std::collections::BTreeMap;

use crate::program::{Event, Program, Stream};
use crate::users::Known;

/// For each instruction, how far each stream has come when it starts.
pub(crate) struct Happens {
    /// For each instruction, for each stream, one more than the last instruction that is over.
    over: Vec<Known>,
    streams: Vec<Stream>,
}

impl Happens {
    /// What streams and events say. Events that are waited for before they are signalled say
    /// nothing.
    pub(crate) fn of(program: &Program) -> Self {
        let mut over: Vec<Known> = Vec::new();
        let mut last: [Option<usize>; Stream::ALL.len()] = [None; Stream::ALL.len()];
        let mut signalled: BTreeMap<Event, usize> = BTreeMap::new();
        let starts = program.barriers();
        let streams: Vec<Stream> = program.instructions.iter().map(|it| it.stream).collect();
        for (index, instruction) in program.instructions.iter().enumerate() {
            let waited = instruction.waits.iter().filter_map(|event| signalled.get(event).copied());
            let met = starts.iter().copied().filter(|&start| start <= index).max().unwrap_or(0);
            let mut known = [met; Stream::ALL.len()];
            // What is sent may take longer than the part.
            known[Stream::Sending.number()] = starts.first().copied().filter(|&it| it <= met).unwrap_or(0);
            for before in waited.chain(last[instruction.stream.number()]) {
                for (known, theirs) in known.iter_mut().zip(over[before]) {
                    *known = (*known).max(theirs);
                }
                let own = &mut known[streams[before].number()];
                *own = (*own).max(before + 1);
            }
            over.push(known);
            signalled.extend(instruction.signals.map(|event| (event, index)));
            last[instruction.stream.number()] = Some(index);
        }
        Self { over, streams }
    }

    /// How far each stream has come when an instruction starts: one more than the last that is over.
    pub(crate) fn at(&self, instruction: usize) -> &Known {
        &self.over[instruction]
    }

    /// Whether each stream has come so far when an instruction starts.
    pub(crate) fn over(&self, instruction: usize, all: &Known) -> bool {
        all.iter().zip(self.at(instruction)).all(|(needed, over)| needed <= over)
    }

    /// Whether one instruction is over when another starts.
    pub(crate) fn before(&self, first: usize, second: usize) -> bool {
        self.over[second][self.streams[first].number()] > first
    }
}
