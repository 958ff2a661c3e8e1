//! Places for storages, by their lifetimes.
//!
//! What is at rest lies one after another. What a step writes lives from the instruction that
//! writes it to the last one that reads it, in the order of the program, and while it is sent
//! between time steps; what is kept from one part of a micro-batch to another, in all parts; outputs
//! live to the end. Storages are placed in some order, each in the smallest gap that takes it between those
//! placed before that live at some time that it lives. The orders of [`ORDERS`] are tried until
//! one takes no more than what lives at the fullest moment; the best is taken. One that takes as much as the best so
//! far is not followed to its end. Where there is a limit that none keeps, what lay beyond it goes first, again and again.

mod room; // which bytes are taken when

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::action::{Action, Collective, CollectiveKind, Origin};
use crate::program::{Instruction, Program};
use crate::storage::{ALIGNMENT, Kind, Region, StorageId};
use room::Room;

/// The instructions between which a storage holds something, both included.
#[derive(Clone, Copy)]
pub(crate) struct Lifetime {
    pub(crate) first: usize,
    pub(crate) last: usize,
}

/// A program with places, and when what lies in its storages is held.
pub(crate) struct Placed {
    pub(crate) program: Program,
    pub(crate) lifetimes: Vec<Option<Lifetime>>,
    /// What the program takes in the order in which it was built (bytes).
    pub(crate) built: u64,
}

/// A storage to be placed: which, how large with what aligns it (bytes), when it lives.
#[derive(Clone, Copy)]
struct Item {
    storage: usize,
    bytes: u64,
    lifetime: Lifetime,
}

impl Item {
    fn moments(&self) -> u64 {
        let moments = self.lifetime.last - self.lifetime.first + 1;
        u64::try_from(moments).unwrap_or(u64::MAX)
    }
}

/// What goes first.
type Order = fn(&Item) -> Reverse<u64>;

/// The largest; the longest-lived; the largest by bytes and moments.
const ORDERS: [Order; 3] = [
    |item| Reverse(item.bytes),
    |item| Reverse(item.moments()),
    |item| Reverse(item.bytes.saturating_mul(item.moments())),
];

/// How often what lay beyond a limit goes first, in each of the first orders; and how often in vain.
const ROUNDS: usize = 12;
const IN_VAIN: usize = 3;

/// The program in the order in which it was built, with places.
pub(crate) fn in_order(program: Program) -> Placed {
    let lifetimes = lifetimes(&program);
    let program = placed(program, &lifetimes, u64::MAX);
    let built = program.resident + program.arena;
    Placed { program, lifetimes, built }
}

/// The program with places for all its storages, which live so: in no more than so many bytes, if such are found.
pub(crate) fn placed(mut program: Program, lifetimes: &[Option<Lifetime>], limit: u64) -> Program {
    let mut resident = 0;
    for storage in &mut program.storages {
        if storage.kind.region() == Region::Resident {
            storage.offset = resident;
            resident += storage.bytes.next_multiple_of(ALIGNMENT);
        }
    }
    program.resident = resident;

    let items: Vec<Item> = lifetimes
        .iter()
        .copied()
        .enumerate()
        .filter_map(|(storage, lifetime)| {
            let bytes = program.extent(StorageId(storage)).next_multiple_of(ALIGNMENT);
            Some(Item { storage, bytes, lifetime: lifetime? })
        })
        .filter(|item| item.bytes > 0)
        .collect();
    let moments = program.instructions.len() + 1;
    let least = fullest(&items, moments);
    let mut best: Option<Packed> = None;
    for order in ORDERS {
        let most = best.as_ref().map_or(u64::MAX, |it| it.arena);
        best = packed(&sorted(&items, order, |_| 0), moments, most).or(best);
        if best.as_ref().is_some_and(|it| it.arena <= least) {
            break;
        }
    }
    let mut best = best.unwrap_or_default();
    if least <= limit && best.arena > limit {
        for order in [ORDERS[0], ORDERS[1]] {
            squeezed(&mut best, (&items, moments), order, limit);
        }
    }
    let Packed { arena, starts } = best;
    program.arena = arena;
    for (storage, offset) in starts {
        program.storages[storage].offset = offset;
    }
    for storage in 0..program.storages.len() {
        program.storages[storage].offset = program.storages[program.lowest(StorageId(storage)).0].offset;
    }
    program
}

/// What lives at the fullest moment (bytes).
fn fullest(items: &[Item], moments: usize) -> u64 {
    let mut live = vec![0; moments + 1];
    let mut gone = vec![0; moments + 1];
    for item in items {
        live[item.lifetime.first] += item.bytes;
        gone[item.lifetime.last + 1] += item.bytes;
    }
    let (mut now, mut most) = (0, 0);
    for (comes, goes) in live.into_iter().zip(gone) {
        now = now + comes - goes;
        most = most.max(now);
    }
    most
}

/// The bytes taken, and where each storage starts.
#[derive(Default)]
struct Packed {
    arena: u64,
    starts: Vec<(usize, u64)>,
}

/// What is placed first: what lay beyond a limit most often; then by order; of equal ones the larger, the earlier, then
/// the lower number.
fn sorted(items: &[Item], order: Order, beyond: impl Fn(usize) -> usize) -> Vec<Item> {
    let mut items = items.to_vec();
    items.sort_by_key(|it| {
        let number = it.storage;
        (Reverse(beyond(number)), order(it), Reverse(it.bytes), it.lifetime.first, number)
    });
    items
}

/// What is taken if they are placed in that order; nothing if that is not less than so many bytes.
fn packed(items: &[Item], moments: usize, most: u64) -> Option<Packed> {
    let mut room = Room::new(moments);
    let mut packed = Packed { arena: 0, starts: Vec::with_capacity(items.len()) };
    for &Item { storage, bytes, lifetime } in items {
        let offset = room.take(bytes, lifetime.first..lifetime.last + 1);
        packed.arena = packed.arena.max(offset + bytes);
        if packed.arena >= most {
            return None;
        }
        packed.starts.push((storage, offset));
    }
    Some(packed)
}

/// Places in that order again and again, what lay beyond the limit first, until nothing does.
fn squeezed(best: &mut Packed, (items, moments): (&[Item], usize), order: Order, limit: u64) {
    let mut beyond: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut least, mut in_vain) = (u64::MAX, 0);
    for _ in 0..ROUNDS {
        if best.arena <= limit || in_vain == IN_VAIN {
            return;
        }
        let items = sorted(items, order, |it| beyond.get(&it).copied().unwrap_or(0));
        let Some(packed) = packed(&items, moments, u64::MAX) else { return };
        let over = packed.starts.iter().zip(&items).filter(|((_, start), it)| start + it.bytes > limit);
        over.for_each(|((storage, _), _)| *beyond.entry(*storage).or_default() += 1);
        in_vain = if packed.arena < least { 0 } else { in_vain + 1 };
        least = least.min(packed.arena);
        if packed.arena < best.arena {
            *best = packed;
        }
    }
}

/// For each storage that a step writes, when it is needed; those that lie over one are counted to it.
pub(crate) fn lifetimes(program: &Program) -> Vec<Option<Lifetime>> {
    let mut lifetimes: Vec<Option<Lifetime>> = vec![None; program.storages.len()];
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.reads().into_iter().chain(instruction.action.writes()) {
            let storage = program.buffer(buffer).storage;
            if program.storages[storage.0].kind.region() == Region::Step {
                lifetimes[storage.0].get_or_insert(Lifetime { first: index, last: index }).last = index;
            }
        }
    }
    for (index, instruction) in program.instructions.iter().enumerate() {
        for buffer in instruction.action.reads() {
            let lifetime = &mut lifetimes[program.buffer(buffer).storage.0];
            if let (Some(lifetime), Some(over)) = (lifetime, in_flight(program, index)) {
                lifetime.last = lifetime.last.max(over);
            }
        }
    }
    across_turns(program, &mut lifetimes);
    // What is sent may be on its way for as long as others take: nothing waits for its place.
    for instruction in &program.instructions {
        if let Action::Send(sent) = &instruction.action
            && let Some(lifetime) = &mut lifetimes[program.buffer(sent.input).storage.0]
        {
            lifetime.last = lifetime.last.max(program.instructions.len());
        }
    }
    for (lifetime, storage) in lifetimes.iter_mut().zip(&program.storages) {
        if let (Some(lifetime), Kind::Output) = (lifetime, storage.kind) {
            lifetime.last = program.instructions.len();
        }
    }
    for storage in 0..lifetimes.len() {
        let lowest = program.lowest(StorageId(storage)).0;
        if lowest != storage
            && let (Some(own), Some(all)) = (lifetimes[storage].take(), &mut lifetimes[lowest])
        {
            *all = Lifetime { first: all.first.min(own.first), last: all.last.max(own.last) };
        }
    }
    lifetimes
}

/// What several parts of a micro-batch use, or has several places, is there in all parts: their turns are mixed. Where
/// between the turns of a micro-batch come only those of parts between, as where it has them one after another, it is
/// there from its first use to its last.
fn across_turns(program: &Program, lifetimes: &mut [Option<Lifetime>]) {
    let Some(repeated) = program.repeated.as_ref().filter(|repeated| repeated.parts.len() > 1) else {
        return;
    };
    let mut alone: BTreeMap<[usize; 2], bool> = BTreeMap::new();
    for (lifetime, storage) in lifetimes.iter_mut().zip(&program.storages) {
        let Some(life) = lifetime else { continue };
        let parts = [life.first, life.last].map(|it| repeated.part_of(it));
        let is_alone = match parts {
            [first, last] if first == last => true,
            [Some(first), Some(last)] => *alone.entry([first, last]).or_insert_with(|| {
                repeated.between(first, last).into_iter().all(|part| first < part && part < last)
            }),
            _ => false,
        };
        if storage.places > 1 || !is_alone {
            life.first = life.first.min(repeated.instructions.start);
            life.last = life.last.max(repeated.instructions.end.saturating_sub(1));
        }
    }
}

/// The last instruction during which what a time step sends may still be on its way: if its place
/// were used again for what is computed meanwhile, that would have to wait.
fn in_flight(program: &Program, index: usize) -> Option<usize> {
    let Instruction { action, origin, .. } = &program.instructions[index];
    let Origin::Motion { node, moving, .. } = *origin else { return None };
    let over = |it: &Instruction| match action {
        Action::Message(message) => it.action.reads().contains(&message.output),
        Action::Collective(Collective { kind: CollectiveKind::Reduce(_), .. }) => {
            matches!(it.origin, Origin::Motion { node: of, moving: its, .. } if of == node && its == moving)
        }
        _ => false,
    };
    program.instructions[index + 1..].iter().position(over).map(|after| index + after)
}

#[cfg(test)]
mod tests;
