//! What a rank holds over time, as a snapshot of memory of PyTorch, which `https://pytorch.org/memory_viz` shows.
//!
//! What is at rest is one segment and the arena another, at addresses that are made up; in the arena each storage is
//! where the program has it. Frames say for what a block is: the operation that writes it first, or the parameter.
//! Events have their time in microseconds. As the format has one list of events for each device, a file is of one
//! rank.
//!
//! Source: PyTorch, `torch/cuda/memory.py` (`_snapshot`) and `torch/cuda/_memory_viz.py`; Python's `pickletools.py` for
//! the words of a pickle.

mod pickle; // values as Python pickles them

use lower::{ALIGNMENT, Kind, Program, Region, StorageId};
use serde_json::{Value, json};

use crate::memory::Held;
use crate::timeline::{Class, Timeline};
use pickle::pickled;

/// Where a rank's memory starts.
const BASE: u64 = 0x7f00_0000_0000;

/// What segments begin at.
const SEGMENT: u64 = 1 << 21;

/// The snapshot of a rank of a class, at the end of the step, with everything that came and went.
pub fn snapshot(timeline: &Timeline<'_>, class: &Class) -> Vec<u8> {
    let program = timeline.program(class);
    let arena = BASE + program.resident.next_multiple_of(SEGMENT);
    let resting = resting(program);
    let held = timeline.held(class);
    let left: Vec<Block> =
        held.iter().filter(|it| stays(program, it)).map(|it| block(program, arena, it)).collect();
    let mut events = vec![segment_event(BASE, program.resident), segment_event(arena, program.arena)];
    events.extend(resting.iter().map(|it| event("alloc", it, 0.0)));
    // What ends makes room for what starts at the same moment.
    let mut changes: Vec<(f64, bool, &Held)> = Vec::new();
    for it in &held {
        changes.push((it.from, true, it));
        if !stays(program, it) {
            changes.push((it.to, false, it));
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for (at, comes, it) in changes {
        let block = block(program, arena, it);
        if comes {
            events.push(event("alloc", &block, at));
        } else {
            events.push(event("free_requested", &block, at));
            events.push(event("free_completed", &block, at));
        }
    }
    let events: Vec<Value> = events.into_iter().filter(|it| it["size"] != 0).collect();
    let segments = [segment(BASE, program.resident, resting), segment(arena, program.arena, left)];
    let segments: Vec<Value> = segments.into_iter().filter(|it| it["total_size"] != 0).collect();
    pickled(&json!({ "segments": segments, "device_traces": [events] }))
}

/// Memory that is in use.
struct Block {
    address: u64,
    size: u64,
    frames: Value,
}

/// Whether it is there after the step.
fn stays(program: &Program, it: &Held) -> bool {
    program.storages[it.storage].kind == Kind::Output
}

/// What is at rest, by its place.
fn resting(program: &Program) -> Vec<Block> {
    let mut names: Vec<Option<&str>> = vec![None; program.storages.len()];
    let ports = program.weights.iter().chain(&program.prepared).chain(&program.states);
    for port in ports.chain(program.given()) {
        names[program.buffer(port.buffer).storage.0] = Some(&port.name);
    }
    let at_rest = program.storages.iter().zip(names).enumerate();
    let mut blocks: Vec<Block> = at_rest
        .filter(|(_, (storage, _))| storage.kind.region() == Region::Resident && storage.bytes > 0)
        .map(|(number, (storage, name))| Block {
            address: BASE + storage.offset,
            size: program.extent(StorageId(number)).next_multiple_of(ALIGNMENT),
            frames: frames(name.unwrap_or_default(), storage.kind.name(), 0),
        })
        .collect();
    blocks.sort_by_key(|it| it.address);
    blocks
}

/// Where in the arena something is that a step writes.
fn block(program: &Program, arena: u64, it: &Held) -> Block {
    let storage = &program.storages[it.storage];
    let size = storage.bytes.next_multiple_of(ALIGNMENT);
    let instruction = &program.instructions[it.first];
    let frames = frames(instruction.action.name(), instruction.phase.name(), it.first);
    Block { address: arena + storage.offset + it.place * size, size, frames }
}

fn frames(name: &str, file: &str, line: usize) -> Value {
    json!([{ "name": name, "filename": file, "line": line }])
}

fn event(action: &str, block: &Block, seconds: f64) -> Value {
    json!({
        "action": action,
        "addr": block.address,
        "size": block.size,
        "stream": 0,
        "time_us": microseconds(seconds),
        "frames": block.frames,
    })
}

fn segment_event(address: u64, size: u64) -> Value {
    event("segment_alloc", &Block { address, size, frames: json!([]) }, 0.0)
}

/// A segment with these blocks in use, and blocks that are not between them.
fn segment(address: u64, size: u64, blocks: Vec<Block>) -> Value {
    let used: u64 = blocks.iter().map(|it| it.size).sum();
    let mut all = Vec::new();
    let mut at = address;
    let free = |from: u64, to: u64| {
        json!({
            "address": from, "size": to - from, "requested_size": 0, "state": "inactive", "frames": [],
        })
    };
    let mut blocks = blocks;
    blocks.sort_by_key(|it| it.address);
    for block in blocks {
        if block.address > at {
            all.push(free(at, block.address));
        }
        at = block.address + block.size;
        all.push(json!({
            "address": block.address,
            "size": block.size,
            "requested_size": block.size,
            "state": "active_allocated",
            "frames": block.frames,
        }));
    }
    if address + size > at {
        all.push(free(at, address + size));
    }
    json!({
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large",
        "is_expandable": false,
        "frames": [],
        "blocks": all,
    })
}

/// Whole microseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a step takes less than ages")]
fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}
