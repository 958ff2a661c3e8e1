//! The transport of ranks that are on one GPU: each has streams of its own, and all have one context.
//!
//! Where ranks meet, each says by an event when its stream is there. When all have been issued to that
//! point, each rank's stream waits for those whose inputs it reads, takes what is its own by copies and
//! sums, and then waits until nobody reads its own input any more. Sums are made from the addends in the
//! order of the communicator's ranks, each block of an all-reduce by one rank, as ranks on processors do
//! it. What is sent to other stages is packed into a place of its own for each micro-batch, and read
//! there.
//!
//! This shows what a plan computes, and that what runs at the same time may: not how fast it is on as
//! many GPUs.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use kernels::cuda::{Work, summed};
use lower::{Action, Collective, CollectiveKind, Message, Program, Way};
use planner_ir::DType;

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::exchange::{Exchange, Now, Progress, copies, copy, expect_apart, is_settled, remotes};
use crate::gpu::{Event, Gpu, Memory, Timing};
use crate::rank::Rank;
use crate::ready::{Given, Packed};

/// What places of messages are multiples of (bytes).
const ALIGNED: u64 = 512;

/// What places of operands of kernels are multiples of (bytes).
const OPERANDS: u64 = 16;

/// A part of what a rank sends or receives: the rank, the instruction, which part.
type Part = (usize, usize, usize);

/// What has been sent: which part, and in which of its places it is.
type Sent = (Part, usize);

/// The transport.
pub(crate) struct Together {
    gpu: Rc<Gpu>,
    /// For each rank, the meetings of its communicators, and which member it is.
    places: Vec<Vec<(usize, usize)>>,
    meetings: Vec<Meeting>,
    /// For each rank: when it is where others are met, has read, and has summed.
    moments: Vec<[Event; 3]>,
    /// Sums that ranks make in collectives, by rank and instruction.
    sums: BTreeMap<(usize, usize, usize), Vec<Packed>>,
    /// Copies between buffers and messages, by rank, instruction and part.
    copies: BTreeMap<Part, Vec<Packed>>,
    /// Where messages are, by rank, instruction and part: for each micro-batch.
    messages: BTreeMap<Part, Vec<(u64, Event)>>,
    _memory: Option<Memory>,
    /// What has been sent and not yet received, by who sends and who receives: the sender's place among
    /// ranks, and which message it is.
    mail: BTreeMap<(u64, u64), VecDeque<Sent>>,
    /// How many parts of a receive have been done, for each rank.
    parts: Vec<usize>,
}

/// Ranks that exchange with each other.
struct Meeting {
    /// Which exchange each is at, in the order of blocks.
    there: Vec<Option<Now>>,
    /// Whose exchange has been issued, and who do not know yet.
    issued: Vec<bool>,
}

impl Together {
    /// For ranks that will be on this GPU.
    pub(crate) fn new(gpu: &Rc<Gpu>) -> Self {
        Self {
            gpu: Rc::clone(gpu),
            places: Vec::new(),
            meetings: Vec::new(),
            moments: Vec::new(),
            sums: BTreeMap::new(),
            copies: BTreeMap::new(),
            messages: BTreeMap::new(),
            _memory: None,
            mail: BTreeMap::new(),
            parts: Vec::new(),
        }
    }
}

/// The elements that one member sums in a collective, if it does.
fn summed_by(collective: &Collective, members: usize, member: usize, dtype: DType) -> Option<Range<u64>> {
    let elements = collective.elements;
    let count = u64::try_from(members).unwrap_or(1).max(1);
    let number = u64::try_from(member).unwrap_or(0);
    match collective.kind {
        CollectiveKind::AllReduce => Some(block(elements, count, number, dtype)),
        CollectiveKind::ReduceScatter | CollectiveKind::Combine => {
            Some(number * elements..(number + 1) * elements)
        }
        CollectiveKind::Reduce(root) => (root == member).then_some(0..elements),
        CollectiveKind::AllGather
        | CollectiveKind::AllToAll
        | CollectiveKind::Broadcast(_)
        | CollectiveKind::Dispatch => None,
    }
}

/// One of so many blocks that differ by as little as they can where each starts at a place of operands;
/// of few elements the last ones are empty.
fn block(elements: u64, blocks: u64, number: u64, dtype: DType) -> Range<u64> {
    let unit = (OPERANDS / dtype.bytes()).max(1);
    let units = elements.div_ceil(unit);
    let start = |number: u64| (number * (units / blocks) + number.min(units % blocks)) * unit;
    start(number).min(elements)..start(number + 1).min(elements)
}

/// The kernel that a member needs to sum its block.
fn sum(program: &Program, collective: &Collective) -> Work {
    let members = program.members(collective.communicator);
    let Some(member) = members.iter().position(|&it| it == program.rank) else { return Work::default() };
    let dtype = program.buffer(collective.output).type_.dtype;
    let Some(range) = summed_by(collective, members.len(), member, dtype) else { return Work::default() };
    summed(dtype, members.len(), range.end - range.start)
}

/// The kernels that exchanges of these programs need where ranks meet on one GPU: sums, strided copies.
/// Those of other transports are among them.
pub(crate) fn exchanged(programs: &[&Program]) -> Vec<Work> {
    let mut works = Vec::new();
    for program in programs {
        for instruction in &program.instructions {
            if let Action::Collective(collective) = &instruction.action {
                works.extend(collective.each().map(|it| sum(program, &it)));
            }
        }
    }
    works.extend(copies(programs));
    works
}

impl Exchange for Together {
    fn works(&self, programs: &[&Program]) -> Vec<Work> {
        exchanged(programs)
    }

    fn captures(&self) -> bool {
        true
    }

    fn prepare(&mut self, ranks: &[Rank], loaded: &Loaded) -> Result<(), DeviceError> {
        self.parts = vec![0; ranks.len()];
        self.meet(ranks)?;
        let mut end = 0;
        let mut places: Vec<(Part, Vec<u64>)> = Vec::new();
        for (rank, it) in ranks.iter().enumerate() {
            let moment = || self.gpu.event(Timing::No);
            self.moments.push([moment()?, moment()?, moment()?]);
            let program = &it.program;
            let repeated = program.repetition();
            for (number, instruction) in program.instructions.iter().enumerate() {
                if let Action::Collective(collective) = &instruction.action {
                    for (part, one) in collective.each().enumerate() {
                        expect_apart(it, number, &one)?;
                        let packed = Packed::all(&sum(program, &one), loaded)?;
                        self.sums.insert((rank, number, part), packed);
                    }
                }
                let Some((buffer, parts)) = remotes(&instruction.action) else { continue };
                let dtype = program.buffer(buffer).type_.dtype;
                let times = program.repeated.as_ref().filter(|_| repeated.contains(&number));
                let times = times.map_or(1, |it| it.times);
                for (part, remote) in parts.iter().enumerate() {
                    let work = copy(remote, dtype);
                    self.copies.insert((rank, number, part), Packed::all(&work, loaded)?);
                    if remote.way == Way::To {
                        let size = remote.strided.elements().saturating_mul(dtype.bytes());
                        let starts = (0..times).map(|_| {
                            let start = end;
                            end = start + size.next_multiple_of(ALIGNED);
                            start
                        });
                        places.push(((rank, number, part), starts.collect()));
                    }
                }
            }
        }
        let memory = self.gpu.memory(end)?;
        for (key, starts) in places {
            let place = |start: u64| Ok((memory.start + start, self.gpu.event(Timing::No)?));
            let all = starts.into_iter().map(place).collect::<Result<_, DeviceError>>()?;
            self.messages.insert(key, all);
        }
        self._memory = Some(memory);
        Ok(())
    }

    fn issue(&mut self, ranks: &[Rank], now: Now, given: &mut Given) -> Result<Progress, DeviceError> {
        match &ranks[now.rank].program.instructions[now.instruction].action {
            Action::Collective(_) | Action::Message(_) => self.meet_others(ranks, now, given),
            Action::Send(sent) => {
                for part in 0..sent.parts.len() {
                    self.send(ranks, now, part, given)?;
                }
                Ok(Progress::Issued)
            }
            Action::Receive(received) => {
                // What has been done already is not done again.
                while self.parts[now.rank] < received.parts.len() {
                    let part = self.parts[now.rank];
                    if received.parts[part].way == Way::To {
                        self.send(ranks, now, part, given)?;
                    } else if !self.receive(ranks, now, part, given)? {
                        return Ok(Progress::Waiting);
                    }
                    self.parts[now.rank] += 1;
                }
                self.parts[now.rank] = 0;
                Ok(Progress::Issued)
            }
            Action::Compute(_) | Action::Copy(_) => Ok(Progress::Issued),
        }
    }
}

impl Together {
    /// Who meets whom.
    fn meet(&mut self, ranks: &[Rank]) -> Result<(), DeviceError> {
        let mut known: BTreeMap<(usize, &[u64]), usize> = BTreeMap::new();
        for rank in ranks {
            let mut own = Vec::new();
            for (communicator, members) in rank.program.communicators.iter().enumerate() {
                let lost = || {
                    DeviceError::Program(format!(
                        "rank {} exchanges with ranks that are not here: {members:?}",
                        rank.program.rank
                    ))
                };
                if !members.iter().all(|it| ranks.iter().any(|rank| rank.program.rank == *it)) {
                    return Err(lost());
                }
                let member = members.iter().position(|it| *it == rank.program.rank).ok_or_else(lost)?;
                let count = members.len();
                let meetings = &mut self.meetings;
                let number = *known.entry((communicator, members)).or_insert_with(|| {
                    meetings.push(Meeting { there: vec![None; count], issued: vec![false; count] });
                    meetings.len() - 1
                });
                own.push((number, member));
            }
            self.places.push(own);
        }
        Ok(())
    }

    /// A rank is at an exchange; when all are there, it is issued for all.
    fn meet_others(&mut self, ranks: &[Rank], now: Now, given: &mut Given) -> Result<Progress, DeviceError> {
        let action = &ranks[now.rank].program.instructions[now.instruction].action;
        let nowhere = || DeviceError::Program("an exchange without a communicator".to_owned());
        let communicator = action.communicator().ok_or_else(nowhere)?;
        let &(number, member) = self.places[now.rank].get(communicator.0).ok_or_else(nowhere)?;
        let meeting = &mut self.meetings[number];
        if std::mem::take(&mut meeting.issued[member]) {
            return Ok(Progress::Issued);
        }
        if meeting.there[member].is_none() {
            stream(ranks, now)?.record(&self.moments[now.rank][0])?;
            meeting.there[member] = Some(now);
        }
        let Some(all) = meeting.there.iter().copied().collect::<Option<Vec<Now>>>() else {
            return Ok(Progress::Waiting);
        };
        meeting.there.fill(None);
        meeting.issued.fill(true);
        meeting.issued[member] = false;
        match action {
            Action::Collective(it) => {
                (0..=it.further.len()).try_for_each(|part| self.collect(ranks, &all, part, given))?;
            }
            _ => self.pass(ranks, &all)?,
        }
        Ok(Progress::Issued)
    }

    /// Each takes the input of the rank that its message comes from.
    fn pass(&self, ranks: &[Rank], all: &[Now]) -> Result<(), DeviceError> {
        let place = |rank: u64| all.iter().position(|it| ranks[it.rank].program.rank == rank);
        let mut sources = Vec::with_capacity(all.len());
        for &now in all {
            let Message { from, .. } = message(ranks, now)?;
            let stranger = || DeviceError::Program(format!("a message comes from rank {from}, not met"));
            sources.push(place(*from).ok_or_else(stranger)?);
        }
        for (&now, &source) in all.iter().zip(&sources) {
            let (own, other) = (message(ranks, now)?, message(ranks, all[source])?);
            let stream = stream(ranks, now)?;
            if all[source] != now {
                stream.wait(&self.moments[all[source].rank][0])?;
            }
            let from = ranks[all[source].rank].address(other.input, all[source].micro_batch);
            let bytes = ranks[now.rank].bytes(own.output);
            stream.copy(ranks[now.rank].address(own.output, now.micro_batch), from, bytes)?;
            stream.record(&self.moments[now.rank][1])?;
        }
        for (reader, &source) in sources.iter().enumerate() {
            if reader != source {
                stream(ranks, all[source])?.wait(&self.moments[all[reader].rank][1])?;
            }
        }
        Ok(())
    }

    /// Lets everybody wait for the others' moments of that kind.
    fn join(&self, ranks: &[Rank], all: &[Now], moment: usize) -> Result<(), DeviceError> {
        for &now in all {
            for other in all.iter().filter(|it| it.rank != now.rank) {
                stream(ranks, now)?.wait(&self.moments[other.rank][moment])?;
            }
        }
        Ok(())
    }

    fn record(&self, ranks: &[Rank], all: &[Now], moment: usize) -> Result<(), DeviceError> {
        all.iter().try_for_each(|&now| stream(ranks, now)?.record(&self.moments[now.rank][moment]))
    }

    /// One of the exchanges of a collective, of which all members are there.
    fn collect(
        &self,
        ranks: &[Rank],
        all: &[Now],
        part: usize,
        given: &mut Given,
    ) -> Result<(), DeviceError> {
        self.join(ranks, all, 0)?;
        let mut inputs = Vec::with_capacity(all.len());
        let mut outputs = Vec::with_capacity(all.len());
        let mut sums = false;
        for &now in all {
            let it = collective(ranks, now, part)?;
            inputs.push(ranks[now.rank].address(it.input, now.micro_batch));
            outputs.push(ranks[now.rank].address(it.output, now.micro_batch));
        }
        for (member, &now) in all.iter().enumerate() {
            let it = collective(ranks, now, part)?;
            let dtype = ranks[now.rank].program.buffer(it.output).type_.dtype;
            let size = dtype.bytes();
            let block = it.elements * size;
            let (stream, to) = (stream(ranks, now)?, outputs[member]);
            let from =
                |other: usize, number: usize| inputs[other] + u64::try_from(number).unwrap_or(0) * block;
            let into = |number: usize| to + u64::try_from(number).unwrap_or(0) * block;
            sums |= it.kind == CollectiveKind::AllReduce;
            match it.kind {
                CollectiveKind::AllGather | CollectiveKind::Dispatch => {
                    (0..all.len()).try_for_each(|other| stream.copy(into(other), from(other, 0), block))?;
                }
                CollectiveKind::AllToAll => {
                    (0..all.len())
                        .try_for_each(|other| stream.copy(into(other), from(other, member), block))?;
                }
                CollectiveKind::Broadcast(root) => stream.copy(to, from(root, 0), block)?,
                CollectiveKind::AllReduce
                | CollectiveKind::ReduceScatter
                | CollectiveKind::Reduce(_)
                | CollectiveKind::Combine => {
                    let Some(range) = summed_by(&it, all.len(), member, dtype) else { continue };
                    let start = range.start * size;
                    given.operands.clear();
                    given.operands.extend(inputs.iter().map(|input| input + start));
                    given.results.clear();
                    let settled = is_settled(it.kind, inputs[member], to);
                    let apart = if it.kind == CollectiveKind::AllReduce || settled { start } else { 0 };
                    given.results.push(to + apart);
                    let kernels = self.sums.get(&(now.rank, now.instruction, part));
                    kernels.into_iter().flatten().try_for_each(|sum| sum.launch(stream, given))?;
                }
            }
        }
        self.record(ranks, all, 1)?;
        self.join(ranks, all, 1)?;
        if sums {
            self.gather(ranks, all, part, &outputs)?;
        }
        self.settle(ranks, all, part, (&inputs, &outputs))
    }

    /// Takes blocks of sums from their places in the inputs to where these start; all have read them.
    fn settle(
        &self,
        ranks: &[Rank],
        all: &[Now],
        part: usize,
        (inputs, outputs): (&[u64], &[u64]),
    ) -> Result<(), DeviceError> {
        for (member, &now) in all.iter().enumerate() {
            let it = collective(ranks, now, part)?;
            let dtype = ranks[now.rank].program.buffer(it.output).type_.dtype;
            let (input, output) = (inputs[member], outputs[member]);
            if let Some(range) = summed_by(&it, all.len(), member, dtype)
                && is_settled(it.kind, input, output)
                && range.start > 0
            {
                let (start, bytes) = (range.start * dtype.bytes(), (range.end - range.start) * dtype.bytes());
                stream(ranks, now)?.copy(output, input + start, bytes)?;
            }
        }
        Ok(())
    }

    /// Each takes the blocks that others have summed.
    fn gather(&self, ranks: &[Rank], all: &[Now], part: usize, outputs: &[u64]) -> Result<(), DeviceError> {
        for (member, &now) in all.iter().enumerate() {
            let it = collective(ranks, now, part)?;
            let dtype = ranks[now.rank].program.buffer(it.output).type_.dtype;
            let size = dtype.bytes();
            for other in (0..all.len()).filter(|&other| other != member) {
                let Some(range) = summed_by(&it, all.len(), other, dtype) else { continue };
                let (start, bytes) = (range.start * size, (range.end - range.start) * size);
                stream(ranks, now)?.copy(outputs[member] + start, outputs[other] + start, bytes)?;
            }
        }
        self.record(ranks, all, 2)?;
        self.join(ranks, all, 2)
    }

    /// Packs a part of a buffer, and sends it.
    fn send(&mut self, ranks: &[Rank], now: Now, part: usize, given: &mut Given) -> Result<(), DeviceError> {
        let rank = &ranks[now.rank];
        let lost = || DeviceError::Program("what is sent has no place".to_owned());
        let (buffer, parts) = remotes(&rank.program.instructions[now.instruction].action).ok_or_else(lost)?;
        let key = (now.rank, now.instruction, part);
        let places = self.messages.get(&key).ok_or_else(lost)?;
        let place = usize::try_from(now.micro_batch).unwrap_or(0) % places.len().max(1);
        let (message, packed) = places.get(place).ok_or_else(lost)?;
        given.operands.clear();
        given.operands.push(rank.address(buffer, now.micro_batch));
        given.results.clear();
        given.results.push(*message);
        let stream = stream(ranks, now)?;
        let copies = self.copies.get(&key);
        copies.into_iter().flatten().try_for_each(|copy| copy.launch(stream, given))?;
        stream.record(packed)?;
        let queue = self.mail.entry((rank.program.rank, parts[part].rank)).or_default();
        queue.push_back((key, place));
        Ok(())
    }

    /// Takes what a rank has sent, if it has: whether it has.
    fn receive(
        &mut self,
        ranks: &[Rank],
        now: Now,
        part: usize,
        given: &mut Given,
    ) -> Result<bool, DeviceError> {
        let rank = &ranks[now.rank];
        let lost = || DeviceError::Program("what is received has no place".to_owned());
        let (buffer, parts) = remotes(&rank.program.instructions[now.instruction].action).ok_or_else(lost)?;
        let queue = self.mail.entry((parts[part].rank, rank.program.rank)).or_default();
        let Some((key, place)) = queue.pop_front() else { return Ok(false) };
        let (message, packed) = self.messages.get(&key).and_then(|it| it.get(place)).ok_or_else(lost)?;
        let stream = stream(ranks, now)?;
        stream.wait(packed)?;
        given.operands.clear();
        given.operands.push(*message);
        given.results.clear();
        given.results.push(rank.address(buffer, now.micro_batch));
        let copies = self.copies.get(&(now.rank, now.instruction, part));
        copies.into_iter().flatten().try_for_each(|copy| copy.launch(stream, given))?;
        Ok(true)
    }
}

/// The stream of an exchange.
fn stream(ranks: &[Rank], now: Now) -> Result<&crate::gpu::Stream, DeviceError> {
    let rank = &ranks[now.rank];
    rank.stream(rank.program.instructions[now.instruction].stream)
}

/// One of the exchanges of a collective.
fn collective(ranks: &[Rank], now: Now, part: usize) -> Result<Collective, DeviceError> {
    let one = match &ranks[now.rank].program.instructions[now.instruction].action {
        Action::Collective(it) => it.each().nth(part),
        _ => None,
    };
    one.ok_or_else(|| DeviceError::Program("ranks meet in different exchanges".to_owned()))
}

fn message(ranks: &[Rank], now: Now) -> Result<&Message, DeviceError> {
    match &ranks[now.rank].program.instructions[now.instruction].action {
        Action::Message(it) => Ok(it),
        _ => Err(DeviceError::Program("ranks meet in different exchanges".to_owned())),
    }
}
