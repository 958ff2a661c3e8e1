//! Places for storages, by their lifetimes.
//!
//! What is read only lies one after another. What a step writes lives from the instruction that
//! writes it to the last one that reads it, in the order of the program; outputs live to the
//! end. Larger storages are placed first, each in the smallest gap that takes it between those
//! placed before that live at some time that it lives.

use crate::program::{Kind, Program, Region};

/// Every storage starts at a multiple of this (bytes): a cache line.
pub(crate) const ALIGNMENT: u64 = 64;

/// The instructions between which a storage holds something, both included.
#[derive(Clone, Copy)]
struct Lifetime {
    first: usize,
    last: usize,
}

/// The program with places for all its storages.
pub(crate) fn placed(mut program: Program) -> Program {
    let lifetimes = lifetimes(&program);
    let mut resident = 0;
    for storage in &mut program.storages {
        if storage.kind.region() == Region::Resident {
            storage.offset = resident;
            resident += storage.bytes.next_multiple_of(ALIGNMENT);
        }
    }
    program.resident = resident;

    let mut order: Vec<(usize, Lifetime)> =
        lifetimes.into_iter().enumerate().filter_map(|(it, lifetime)| Some((it, lifetime?))).collect();
    order.sort_by_key(|&(it, lifetime)| (std::cmp::Reverse(program.storages[it].bytes), lifetime.first, it));
    // Those placed, by where they start.
    let mut places: Vec<(u64, u64, Lifetime)> = Vec::new();
    for (it, lifetime) in order {
        let bytes = program.storages[it].bytes.next_multiple_of(ALIGNMENT);
        let offset = if bytes == 0 { 0 } else { best_gap(&places, bytes, lifetime) };
        program.storages[it].offset = offset;
        program.arena = program.arena.max(offset + bytes);
        if bytes > 0 {
            let place = places.partition_point(|&(start, ..)| start <= offset);
            places.insert(place, (offset, offset + bytes, lifetime));
        }
    }
    program
}

/// For each storage that a step writes, when it is needed.
fn lifetimes(program: &Program) -> Vec<Option<Lifetime>> {
    let mut lifetimes: Vec<Option<Lifetime>> = vec![None; program.storages.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.reads().into_iter().chain(instruction.action.writes()) {
            let storage = program.buffer(buffer).storage;
            if program.storages[storage.0].kind.region() == Region::Step {
                lifetimes[storage.0].get_or_insert(Lifetime { first: index, last: index }).last = index;
            }
        }
    }
    for (lifetime, storage) in lifetimes.iter_mut().zip(&program.storages) {
        if let (Some(lifetime), Kind::Output) = (lifetime, storage.kind) {
            lifetime.last = program.instructions.len();
        }
    }
    lifetimes
}

/// The start of the smallest gap, the lowest of equal ones, that is free for a lifetime; behind
/// everything if there is none.
fn best_gap(places: &[(u64, u64, Lifetime)], bytes: u64, lifetime: Lifetime) -> u64 {
    let meets = |other: &Lifetime| other.first <= lifetime.last && lifetime.first <= other.last;
    let (mut free, mut best) = (0, None);
    for &(start, end, ref other) in places {
        if !meets(other) {
            continue;
        }
        if start >= free + bytes && best.is_none_or(|(size, _)| start - free < size) {
            best = Some((start - free, free));
        }
        free = free.max(end);
    }
    best.map_or(free, |(_, offset)| offset)
}
