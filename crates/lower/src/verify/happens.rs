//! What happens before what in one rank.
//!
//! Only the rank's own streams and events count: what other ranks do may order more, but no
//! program relies on it. A repetition starts when what was before is over, so that the order of
//! two instructions of different repetitions is known, and here each instruction stands for the
//! last time it is done.

use std::collections::BTreeMap;

use crate::program::{Event, Program, Stream};

/// For each instruction, how far each stream has come when it starts.
pub(crate) struct Happens {
    /// For each instruction, for each stream, one more than the last instruction that is over.
    over: Vec<[usize; 2]>,
    streams: Vec<Stream>,
}

impl Happens {
    /// What streams and events say. Events that are waited for before they are signalled say
    /// nothing.
    pub(crate) fn of(program: &Program) -> Self {
        let mut over: Vec<[usize; 2]> = Vec::new();
        let mut last: [Option<usize>; 2] = [None, None];
        let mut signalled: BTreeMap<Event, usize> = BTreeMap::new();
        let start = program.repeated.as_ref().map(|repeated| repeated.instructions.start);
        let streams: Vec<Stream> = program.instructions.iter().map(|it| it.stream).collect();
        for (index, instruction) in program.instructions.iter().enumerate() {
            let waited = instruction.waits.iter().filter_map(|event| signalled.get(event).copied());
            let met = start.filter(|&start| start <= index).unwrap_or(0);
            let mut known = [met, met];
            for before in waited.chain(last[slot(instruction.stream)]) {
                for (known, theirs) in known.iter_mut().zip(over[before]) {
                    *known = (*known).max(theirs);
                }
                let own = &mut known[slot(streams[before])];
                *own = (*own).max(before + 1);
            }
            over.push(known);
            signalled.extend(instruction.signals.map(|event| (event, index)));
            last[slot(instruction.stream)] = Some(index);
        }
        Self { over, streams }
    }

    /// Whether one instruction is over when another starts.
    pub(crate) fn before(&self, first: usize, second: usize) -> bool {
        self.over[second][slot(self.streams[first])] > first
    }
}

fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Compute => 0,
        Stream::Communication => 1,
    }
}
