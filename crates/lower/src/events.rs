//! Who waits for whom.
//!
//! Instructions of one stream run in order. Between streams an instruction waits for the last
//! one that wrote what it reads and, because places are used again, for the last ones that used
//! the bytes that it writes. An exchange beside computing waits for the last one before it that
//! computing waits for between the same ranks: that one has the links to itself. What is already
//! known to be over is not waited for: when a turn of what is repeated for micro-batches starts,
//! everything before it is, but for what is sent.

use std::collections::BTreeMap;

use crate::program::{Event, Program, Stream};
use crate::storage::{Region, StorageId};
use crate::users::{Known, Users};

/// The program with the events that its order on the streams needs.
pub(crate) fn ordered(mut program: Program) -> Program {
    // Who used the bytes that a step writes.
    let mut users = Users::of(&program);
    // For each storage, one more than the last instruction that used it on each stream.
    let mut used: Vec<Known> = vec![[0; Stream::ALL.len()]; program.storages.len()];
    // The same of those that wrote it.
    let mut written: Vec<Known> = vec![[0; Stream::ALL.len()]; program.storages.len()];
    // For each group, one more than the last exchange that computing waits for.
    let mut met: BTreeMap<&[u64], usize> = BTreeMap::new();
    let starts = program.barriers();
    // What is known on each stream, and what was when each instruction started.
    let mut known: [Known; Stream::ALL.len()] = [[0; Stream::ALL.len()]; Stream::ALL.len()];
    let mut knowledge: Vec<Known> = Vec::new();
    let mut waits: Vec<Vec<usize>> = Vec::new();
    for index in 0..program.instructions.len() {
        let instruction = &program.instructions[index];
        let own = instruction.stream.number();
        if starts.contains(&index) {
            // What is sent may take longer than the part.
            let sent = starts.first().copied().unwrap_or(0);
            for known in &mut known {
                let sent = known[Stream::Sending.number()].max(sent);
                *known = [index; Stream::ALL.len()];
                known[Stream::Sending.number()] = sent;
            }
        }
        let mut needed: Known = [0; Stream::ALL.len()];
        let mut need = |uses: Known| {
            for (needed, used) in needed.iter_mut().zip(uses) {
                *needed = (*needed).max(used);
            }
        };
        let storages = |buffers: Vec<crate::storage::BufferId>| -> Vec<usize> {
            buffers.into_iter().map(|buffer| program.buffer(buffer).storage.0).collect()
        };
        let (reads, writes) = (storages(instruction.action.reads()), storages(instruction.action.writes()));
        for &storage in &reads {
            need(written[storage]);
        }
        for &storage in &writes {
            need(users.others(StorageId(storage)));
            if program.storages[storage].kind.region() == Region::Resident {
                need(used[storage]);
            }
        }
        if let Some(members) = instruction.action.communicator().map(|it| program.members(it)) {
            match instruction.stream {
                Stream::Communication => _ = met.insert(members, index + 1),
                Stream::Beside => {
                    let number = Stream::Communication.number();
                    needed[number] = needed[number].max(met.get(members).copied().unwrap_or(0));
                }
                _ => {}
            }
        }
        let mut waited = Vec::new();
        for stream in 0..Stream::ALL.len() {
            if stream != own && needed[stream] > known[own][stream] {
                let last = needed[stream] - 1;
                waited.push(last);
                for (known, theirs) in known[own].iter_mut().zip(knowledge[last]) {
                    *known = (*known).max(theirs);
                }
                known[own][stream] = known[own][stream].max(last + 1);
            }
        }
        waits.push(waited);
        knowledge.push(known[own]);
        for &storage in &writes {
            written[storage][own] = index + 1;
        }
        for storage in reads.into_iter().chain(writes) {
            used[storage][own] = index + 1;
            users.add(StorageId(storage), instruction.stream, index);
        }
    }
    let mut events: BTreeMap<usize, Event> = BTreeMap::new();
    for &awaited in waits.iter().flatten() {
        events.entry(awaited).or_insert(Event(0));
    }
    for (number, event) in events.values_mut().enumerate() {
        *event = Event(number);
    }
    for (index, waited) in waits.into_iter().enumerate() {
        program.instructions[index].waits = waited.iter().map(|it| events[it]).collect();
        program.instructions[index].signals = events.get(&index).copied();
    }
    program
}
