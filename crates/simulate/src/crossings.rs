//! What ranks send each other between stages.
//!
//! In which order a rank names whom it sends to and whom it receives from decides no time: what it
//! sends is on its way as soon as it has it, and it goes on when all has come. What counts is which of
//! what comes is passed on in what goes, and what goes to one rank after another.
//!
//! What a rank passes on to another one goes as one message, as the parts of a gather do. But what comes
//! from a rank in one message after another, as the chunks of a broadcast, goes on in one after another.

use std::collections::{BTreeMap, VecDeque};

use lower::{Action, Origin, Program, Remote, Strided, Way};

/// Two ranks of which one sends the other something between stages, one message after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// What goes, as the sender has it in its program, in order.
    pub(crate) sent: Vec<End>,
    /// The same as the receiver has it.
    pub(crate) received: Vec<End>,
}

/// One end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    /// Which instruction of the rank's program it is in.
    pub(crate) instruction: usize,
    pub(crate) elements: u64,
    /// Of how many parts it is.
    pub(crate) parts: u32,
    /// Whether it passes on what the rank has sent itself.
    pub(crate) own: bool,
}

/// A message of an instruction that sends or receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crossed {
    pub(crate) way: Way,
    pub(crate) elements: u64,
    /// Of how many parts it is: so many latencies it has.
    pub(crate) parts: u32,
    /// Of which pair of ranks it is; none if the rank sends it itself. In a class of ranks, of which
    /// class of pairs.
    pub(crate) pair: Option<usize>,
    /// How many of the same pair the instruction has before it.
    pub(crate) number: usize,
    /// Which messages of the instruction bring what it passes on: they stand before it.
    pub(crate) after: Vec<usize>,
}

/// What a rank sends and receives, by instruction, in order.
pub(crate) type Crossings = BTreeMap<usize, Vec<Crossed>>;

/// What a rank sends and receives between stages, as programs say it.
pub(crate) struct Told<'a> {
    pub(crate) rank: u64,
    /// In the instructions that send or receive, in order.
    pub(crate) parts: Vec<Parts<'a>>,
}

/// What is sent or received in an instruction.
pub(crate) struct Parts<'a> {
    pub(crate) instruction: usize,
    /// Of which value.
    value: Value,
    /// In order.
    pub(crate) remotes: &'a [Remote],
    /// For each which of those before it bring what it passes on.
    brought: Vec<Vec<usize>>,
}

impl<'a> Told<'a> {
    /// By a rank's own program.
    pub(crate) fn of(program: &'a Program) -> Self {
        let remotes = program.instructions.iter().enumerate().map(|(index, it)| match &it.action {
            Action::Send(sent) => (index, &sent.parts[..]),
            Action::Receive(received) => (index, &received.parts[..]),
            _ => (index, &[][..]),
        });
        Self::with(program, program.rank, remotes)
    }

    /// By the program of another rank of its group, in which it sends and receives these.
    pub(crate) fn with(
        program: &Program,
        rank: u64,
        remotes: impl Iterator<Item = (usize, &'a [Remote])>,
    ) -> Self {
        let repeated = program.repetition();
        let parts = remotes.filter(|it| !it.1.is_empty()).map(|(instruction, remotes)| {
            let origin = program.instructions[instruction].origin;
            let value = Some(origin).filter(|_| !repeated.contains(&instruction));
            Parts { instruction, value, remotes, brought: brought(remotes) }
        });
        Self { rank, parts: parts.collect() }
    }
}

/// All pairs of ranks, and what each rank, in order, sends and receives.
pub(crate) fn crossings(told: &[Told<'_>]) -> (Vec<Pair>, Vec<Crossings>) {
    let mut found = Found::default();
    let pairs: Vec<Vec<PairsOf>> = told.iter().map(|told| found.pairs_of(told)).collect();
    // What comes as one message goes on as one: which does is known when it is known of who sends it. As
    // nothing is passed on by more ranks than there are, so often is enough.
    let mut sent: Vec<Numbers> = Vec::new();
    for _ in 0..=told.len() {
        let before = found.restart();
        sent = told.iter().zip(&pairs).map(|(told, pairs)| found.sent(told, pairs, &before)).collect();
        if before == found.parts {
            break;
        }
    }
    let all = told.iter().zip(&pairs).zip(sent).map(|((told, pairs), sent)| found.all(told, pairs, sent));
    let mut all: Vec<Crossings> = all.collect();
    let Found { mut pairs, .. } = found;
    let sizes = alike(pairs.iter().flat_map(|pair| &pair.sent).map(|end| end.elements));
    let size = |elements: &mut u64| *elements = sizes.get(elements).copied().unwrap_or(*elements);
    pairs
        .iter_mut()
        .flat_map(|pair| pair.sent.iter_mut().chain(&mut pair.received))
        .for_each(|it| size(&mut it.elements));
    all.iter_mut().flat_map(BTreeMap::values_mut).flatten().for_each(|it| size(&mut it.elements));
    (pairs, all)
}

/// By how much sizes may differ and count as one, as a part of them: parts into which rows cannot be cut
/// evenly differ by a row.
const ALIKE: u64 = 256;

/// For each size the one that it counts as: the largest of those that are hardly larger than the smallest.
pub(crate) fn alike(sizes: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
    let mut all: Vec<u64> = sizes.collect();
    all.sort_unstable();
    all.dedup();
    let runs = all.chunk_by({
        let mut first = all.first().copied().unwrap_or(0);
        move |_, &next| {
            let same = next - first <= first / ALIKE;
            first = if same { first } else { next };
            same
        }
    });
    runs.flat_map(|run| run.iter().map(|&it| (it, run.last().copied().unwrap_or(it)))).collect()
}

/// For each part that is sent, of which message of its pair in the instruction it is.
type Numbers = BTreeMap<usize, Vec<usize>>;

/// For each part of an instruction, of which pair it is; of none what a rank sends itself.
type PairsOf = Vec<Option<usize>>;

#[derive(Default)]
struct Found {
    pairs: Vec<Pair>,
    numbers: BTreeMap<(u64, u64, Value), usize>,
    /// For each pair, its parts as the sender has them.
    parts: Vec<VecDeque<Sent>>,
}

/// A part that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    /// Of which message of its pair in the instruction it is.
    number: usize,
    /// How many ranks have passed it on.
    passed: usize,
}

impl Found {
    fn pair(&mut self, from: u64, to: u64, value: Value) -> usize {
        let next = self.pairs.len();
        let pair = *self.numbers.entry((from, to, value)).or_insert(next);
        if pair == next {
            self.pairs.push(Pair { from, to, sent: Vec::new(), received: Vec::new() });
            self.parts.push(VecDeque::new());
        }
        pair
    }

    /// For each instruction of a rank that sends or receives, of which pairs its parts are.
    fn pairs_of(&mut self, told: &Told<'_>) -> Vec<PairsOf> {
        let mut all = Vec::with_capacity(told.parts.len());
        for &Parts { value, remotes, .. } in &told.parts {
            let pair = |remote: &Remote| match remote.way {
                _ if remote.rank == told.rank => None,
                Way::To => Some(self.pair(told.rank, remote.rank, value)),
                Way::From => Some(self.pair(remote.rank, told.rank, value)),
            };
            all.push(remotes.iter().map(pair).collect());
        }
        all
    }

    /// Forgets what is sent; for each pair, what was known of it.
    fn restart(&mut self) -> Vec<VecDeque<Sent>> {
        let empty = vec![VecDeque::new(); self.parts.len()];
        std::mem::replace(&mut self.parts, empty)
    }

    /// What a rank sends in messages: by instruction, for each part its number among those of its pair. For
    /// each pair it is known of which message each part is, or each is one.
    ///
    /// A message is of parts that as many ranks have passed on, so that none waits for itself.
    fn sent(&mut self, told: &Told<'_>, pairs: &[PairsOf], known: &[VecDeque<Sent>]) -> Numbers {
        let mut all = Numbers::new();
        // For each pair how many parts have come.
        let mut come: BTreeMap<usize, usize> = BTreeMap::new();
        for (&Parts { instruction, remotes, ref brought, .. }, pairs) in told.parts.iter().zip(pairs) {
            let mut parts: Vec<Sent> = (0..remotes.len()).map(|number| Sent { number, passed: 0 }).collect();
            for part in (0..remotes.len()).filter(|&part| remotes[part].way == Way::From) {
                let Some(pair) = pairs[part] else { continue };
                let place = come.entry(pair).or_default();
                let told = known.get(pair).and_then(|known| known.get(*place)).copied();
                parts[part] = told.unwrap_or(Sent { number: *place, passed: 0 });
                *place += 1;
            }
            // For each other rank how many messages there are, and the last of those that as many have passed
            // on, with what brought it: from each rank one message.
            let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
            let mut last: BTreeMap<(u64, usize), (usize, BTreeMap<u64, usize>)> = BTreeMap::new();
            for (part, remote) in remotes.iter().enumerate().filter(|it| it.1.way == Way::To) {
                let passed = brought[part].iter().map(|&it| parts[it].passed + 1).max().unwrap_or(0);
                let brought: Vec<(u64, usize)> =
                    brought[part].iter().map(|&it| (remotes[it].rank, parts[it].number)).collect();
                let (number, with) = last.entry((remote.rank, passed)).or_default();
                let other = |it: &(u64, usize)| with.get(&it.0).is_some_and(|number| *number != it.1);
                if with.is_empty() || brought.iter().any(other) {
                    let count = counts.entry(remote.rank).or_default();
                    *number = *count;
                    *count += 1;
                    with.clear();
                }
                with.extend(brought);
                parts[part] = Sent { number: *number, passed };
                if let Some(pair) = pairs[part] {
                    self.parts[pair].push_back(parts[part]);
                }
            }
            all.insert(instruction, parts.into_iter().map(|it| it.number).collect());
        }
        all
    }

    /// What a rank sends and receives, when it is known of all what they send.
    fn all(&mut self, told: &Told<'_>, pairs: &[PairsOf], sent: Numbers) -> Crossings {
        let mut all = Crossings::new();
        for (&Parts { instruction, remotes, ref brought, .. }, pairs) in told.parts.iter().zip(pairs) {
            let mut messages: Vec<Crossed> = Vec::new();
            let mut places: Vec<usize> = vec![0; remotes.len()];
            // What comes is there before what is passed on.
            let mut firsts: BTreeMap<usize, usize> = BTreeMap::new();
            for way in [Way::From, Way::To] {
                for (part, remote) in remotes.iter().enumerate().filter(|it| it.1.way == way) {
                    let pair = pairs[part];
                    let number = match (pair, way) {
                        (Some(pair), Way::From) => {
                            let number = self.parts[pair].pop_front().map_or(0, |it| it.number);
                            number.saturating_sub(*firsts.entry(pair).or_insert(number))
                        }
                        _ => sent.get(&instruction).map_or(0, |numbers| numbers[part]),
                    };
                    let same = |it: &Crossed| it.way == way && it.pair == pair && it.number == number;
                    let place = messages.iter().position(same).filter(|_| pair.is_some());
                    places[part] = place.unwrap_or(messages.len());
                    if place.is_none() {
                        messages.push(Crossed {
                            way,
                            elements: 0,
                            parts: 0,
                            pair,
                            number,
                            after: Vec::new(),
                        });
                    }
                    let message = &mut messages[places[part]];
                    message.elements += remote.strided.elements();
                    message.parts += 1;
                    message.after.extend(brought[part].iter().map(|&it| places[it]));
                    message.after.sort_unstable();
                    message.after.dedup();
                }
            }
            for message in &messages {
                let own = message.after.iter().any(|&it| messages[it].pair.is_none());
                let end = End { instruction, elements: message.elements, parts: message.parts, own };
                let pair = message.pair.map(|pair| &mut self.pairs[pair]);
                match (pair, message.way) {
                    (Some(pair), Way::To) => pair.sent.push(end),
                    (Some(pair), Way::From) => pair.received.push(end),
                    (None, _) => {}
                }
            }
            all.insert(instruction, messages);
        }
        all
    }
}

/// What goes besides all else that a rank sends another: each value that is sent once in a step, for the
/// update. What is sent for micro-batches goes one after another.
type Value = Option<Origin>;

/// For each part which parts before it bring what it passes on: the last that brings just these elements, or
/// all of them.
fn brought(parts: &[Remote]) -> Vec<Vec<usize>> {
    let mut last: BTreeMap<&Strided, usize> = BTreeMap::new();
    let mut came: Vec<usize> = Vec::new();
    let mut brought = Vec::with_capacity(parts.len());
    for (place, part) in parts.iter().enumerate() {
        brought.push(match part.way {
            Way::From => {
                last.insert(&part.strided, place);
                came.push(place);
                Vec::new()
            }
            Way::To => last.get(&part.strided).map_or_else(|| came.clone(), |&it| vec![it]),
        });
    }
    brought
}
