//! In which order a rank's host issues what it exchanges, where a network does one thing of a rank at
//! a time and what is sent waits until it is received.
//!
//! That is the least that NCCL promises. In the order of its program, a stage would send what it made
//! to the next one before it takes a gradient from it, while that one sends the gradient first: both
//! wait forever. But what is sent may be over late. So all ranks are played together by a clock, each
//! instruction one moment long, and what is sent is issued when its receiver has come to it. Whatever
//! ranks do together is then one sequence, of which each rank issues its share: nobody waits for what
//! comes later in it. All else stays in the order of the program.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use crate::action::{Action, CommunicatorId, Way};
use crate::happens::Happens;
use crate::program::{Program, Stream};

/// An exchange that is issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Issued {
    /// Which instruction it is of.
    pub instruction: usize,
    /// Which part of what is sent or received there; 0 where ranks meet.
    pub part: usize,
    /// For which micro-batch, if it is repeated.
    pub micro_batch: Option<u64>,
}

/// Why there is no order: ranks that wait forever, each with what it waits in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stalled(pub Vec<(u64, Issued)>);

/// For each rank, what it exchanges in a step in the order in which its host issues it.
///
/// # Errors
/// If ranks wait for each other forever.
pub fn issue_order(programs: &[Program]) -> Result<Vec<Vec<Issued>>, Stalled> {
    let mut play = Play::new(programs);
    while let Some(Reverse((_, rank))) = play.queue.pop() {
        play.advance(rank);
    }
    play.orders()
}

/// What has to be free of what is sent before an exchange: which storage, which of its places.
type Held = (usize, u64);

/// An exchange in the order of the program.
struct Item {
    issued: Issued,
    /// How long the instructions since the exchange before it take, it included (moments).
    moments: u64,
    /// The instructions by which something is sent that is over before.
    over: Vec<usize>,
    /// What is written before and may be on its way still.
    freed: Vec<Held>,
}

/// What is sent and not yet taken.
struct Offer {
    issued: Issued,
    /// Whether the sender waits in it.
    waits: bool,
}

/// A rank: how far it is, and what of it is under way.
struct Walk<'a> {
    program: &'a Program,
    items: Vec<Item>,
    next: usize,
    clock: u64,
    /// Whether it waits until something that it sends is taken.
    waits: bool,
    sending: BTreeMap<usize, usize>,
    held: BTreeMap<Held, usize>,
    order: Vec<Issued>,
}

struct Play<'a> {
    walks: Vec<Walk<'a>>,
    /// Who goes on when; of those at the same moment the first.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    offers: BTreeMap<(u64, u64), VecDeque<Offer>>,
    /// Of pairs, those whose receiver waits.
    awaited: BTreeSet<(u64, u64)>,
    arrived: BTreeMap<(CommunicatorId, &'a [u64]), usize>,
}

impl<'a> Play<'a> {
    fn new(programs: &'a [Program]) -> Self {
        let walks = programs.iter().map(Walk::new).collect();
        let mut play = Self {
            walks,
            queue: BinaryHeap::new(),
            offers: BTreeMap::new(),
            awaited: BTreeSet::new(),
            arrived: BTreeMap::new(),
        };
        (0..programs.len()).for_each(|rank| play.come(rank, 0));
        play
    }

    /// A rank goes on to its next exchange, from that moment.
    fn come(&mut self, rank: usize, clock: u64) {
        let walk = &mut self.walks[rank];
        walk.clock = walk.clock.max(clock) + walk.items.get(walk.next).map_or(0, |it| it.moments);
        self.queue.push(Reverse((walk.clock, rank)));
    }

    /// What a rank that has waited does next, at that moment.
    fn wake(&mut self, rank: usize, clock: u64) {
        let walk = &mut self.walks[rank];
        walk.clock = walk.clock.max(clock);
        self.queue.push(Reverse((walk.clock, rank)));
    }

    /// Does the next exchange of a rank, if that can be.
    fn advance(&mut self, rank: usize) {
        let walk = &mut self.walks[rank];
        let (program, clock, own) = (walk.program, walk.clock, walk.program.rank);
        let Some(item) = walk.items.get(walk.next) else { return };
        let issued = item.issued;
        walk.waits = item.over.iter().any(|it| walk.sending.contains_key(it))
            || item.freed.iter().any(|it| walk.held.contains_key(it));
        if walk.waits {
            return;
        }
        let action = &program.instructions[issued.instruction].action;
        match action.remotes().get(issued.part) {
            None => {
                let Some(communicator) = action.communicator() else { return };
                self.meet(rank, communicator, program.members(communicator), clock);
            }
            Some(part) if part.way == Way::To => {
                let waits = matches!(action, Action::Receive(_));
                walk.send(&issued);
                self.offers.entry((own, part.rank)).or_default().push_back(Offer { issued, waits });
                if self.awaited.remove(&(own, part.rank))
                    && let Some(to) = self.walk(part.rank)
                {
                    self.wake(to, clock);
                }
                if !waits {
                    self.walks[rank].next += 1;
                    self.come(rank, clock);
                }
            }
            Some(part) => {
                let pair = (part.rank, own);
                let Some(offer) = self.offers.get_mut(&pair).and_then(VecDeque::pop_front) else {
                    self.awaited.insert(pair);
                    return;
                };
                self.take(part.rank, &offer, clock);
                let walk = &mut self.walks[rank];
                walk.order.push(issued);
                walk.next += 1;
                self.come(rank, clock);
            }
        }
    }

    /// What a rank sends is taken.
    fn take(&mut self, from: u64, offer: &Offer, clock: u64) {
        let Some(sender) = self.walk(from) else { return };
        let walk = &mut self.walks[sender];
        walk.order.push(offer.issued);
        walk.taken(&offer.issued);
        if offer.waits {
            walk.next += 1;
            self.come(sender, clock);
        } else if std::mem::take(&mut walk.waits) {
            self.wake(sender, clock);
        }
    }

    /// A rank comes to a meeting; with the last one it is held.
    fn meet(&mut self, rank: usize, communicator: CommunicatorId, members: &'a [u64], clock: u64) {
        let arrived = self.arrived.entry((communicator, members)).or_default();
        *arrived += 1;
        if *arrived < members.len() {
            return;
        }
        *arrived = 0;
        let there = |walk: &Walk| walk.items.get(walk.next).map(|it| it.issued);
        let all: Vec<usize> = members.iter().filter_map(|&it| self.walk(it)).collect();
        debug_assert!(all.contains(&rank));
        for rank in all {
            let walk = &mut self.walks[rank];
            walk.order.extend(there(walk));
            walk.next += 1;
            self.come(rank, clock);
        }
    }

    fn walk(&self, rank: u64) -> Option<usize> {
        usize::try_from(rank).ok().filter(|&it| it < self.walks.len())
    }

    fn orders(self) -> Result<Vec<Vec<Issued>>, Stalled> {
        let mut stalled: Vec<(u64, Issued)> = Vec::new();
        for walk in &self.walks {
            stalled.extend(walk.items.get(walk.next).map(|it| (walk.program.rank, it.issued)));
        }
        let left = self.offers.iter().filter_map(|((from, _), offers)| Some((*from, offers.front()?.issued)));
        stalled.extend(left);
        if stalled.is_empty() {
            Ok(self.walks.into_iter().map(|walk| walk.order).collect())
        } else {
            Err(Stalled(stalled))
        }
    }
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program) -> Self {
        Self {
            program,
            items: items(program),
            next: 0,
            clock: 0,
            waits: false,
            sending: BTreeMap::new(),
            held: BTreeMap::new(),
            order: Vec::new(),
        }
    }

    /// What of what is sent is held for it.
    fn holds(&self, issued: &Issued) -> Option<Held> {
        let Action::Send(sent) = &self.program.instructions[issued.instruction].action else { return None };
        let storage = self.program.buffer(sent.input).storage.0;
        let micro_batch = issued.micro_batch?;
        Some((storage, micro_batch % self.program.storages[storage].places.max(1)))
    }

    fn send(&mut self, issued: &Issued) {
        *self.sending.entry(issued.instruction).or_default() += 1;
        if let Some(held) = self.holds(issued) {
            *self.held.entry(held).or_default() += 1;
        }
    }

    fn taken(&mut self, issued: &Issued) {
        let held = self.holds(issued);
        less(&mut self.sending, issued.instruction);
        if let Some(held) = held {
            less(&mut self.held, held);
        }
    }
}

/// One less of something; it goes with the last.
fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// The exchanges of a program in its order, with what they wait for.
fn items(program: &Program) -> Vec<Item> {
    let repetition = program.repetition();
    let mut over: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let needed = needed(program);
    let sent = sent_storages(program);
    let mut items: Vec<Item> = Vec::new();
    let (mut moments, mut freed) = (0, Vec::new());
    let mut add = |range: std::ops::Range<usize>, micro_batch: Option<u64>, mut freed: Vec<Held>| {
        for instruction in range {
            moments += 1;
            let action = &program.instructions[instruction].action;
            for part in 0..action.exchanges() {
                let issued = Issued { instruction, part, micro_batch };
                let over = over.entry(instruction).or_insert_with(|| needed(instruction)).clone();
                let freed = std::mem::take(&mut freed);
                items.push(Item { issued, moments: std::mem::take(&mut moments), over, freed });
            }
        }
        freed
    };
    freed = add(0..repetition.start, None, freed);
    for turn in program.repeated.iter().flat_map(|repeated| &repeated.turns) {
        let part = program.repeated.as_ref().and_then(|repeated| repeated.parts.get(turn.part));
        let range = part.map_or(0..0, |part| part.instructions.clone());
        let writes = program.instructions[range.clone()].iter().flat_map(|it| it.action.writes());
        let storages: BTreeSet<usize> = writes.map(|buffer| program.buffer(buffer).storage.0).collect();
        freed.extend(
            storages
                .intersection(&sent)
                .map(|&storage| (storage, turn.micro_batch % program.storages[storage].places.max(1))),
        );
        freed = add(range, Some(turn.micro_batch), freed);
    }
    add(repetition.end..program.instructions.len(), None, freed);
    items
}

/// The storages of what is sent.
fn sent_storages(program: &Program) -> BTreeSet<usize> {
    let sent = program.instructions.iter().filter_map(|it| match &it.action {
        Action::Send(sent) => Some(program.buffer(sent.input).storage.0),
        _ => None,
    });
    sent.collect()
}

/// For an instruction, those by which something is sent that is over when it starts: by its own events
/// if it sends too, for what is sent does not wait for what is sent elsewhere.
pub(crate) fn needed(program: &Program) -> impl Fn(usize) -> Vec<usize> {
    let happens = Happens::of(program);
    let sends: Vec<usize> = (0..program.instructions.len())
        .filter(|&it| program.instructions[it].stream == Stream::Sending)
        .collect();
    let signalled: BTreeMap<_, usize> =
        (0..).zip(&program.instructions).filter_map(|(index, it)| Some((it.signals?, index))).collect();
    let waits: Vec<Vec<usize>> = program
        .instructions
        .iter()
        .map(|it| it.waits.iter().filter_map(|event| signalled.get(event).copied()).collect())
        .collect();
    move |instruction| {
        let before = |&send: &usize, of: usize| send == of || happens.before(send, of);
        match sends.binary_search(&instruction) {
            Err(_) => sends.iter().copied().filter(|&it| happens.before(it, instruction)).collect(),
            Ok(_) => {
                let waited = &waits[instruction];
                sends.iter().copied().filter(|it| waited.iter().any(|&of| before(it, of))).collect()
            }
        }
    }
}
