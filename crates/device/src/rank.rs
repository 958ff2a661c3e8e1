//! A rank on a GPU: its memory, its streams, its instructions.
//!
//! A rank has one piece of the device's memory, with what is at rest, the arena of a step, room that
//! kernels need, and constants. Its streams are those of its program, and its events those of the
//! program; besides, each stream has a moment at which turns of repeated parts begin.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kernels::{Array, Tensor, TensorMut};
use lower::{Action, BufferId, Compute, Kind, Program, Region, Storage, StorageId, Stream};

use crate::error::DeviceError;
use crate::gpu::{self, Event, Gpu, Pinned, Priority, Timing};
use crate::ready::{Given, Ready};

/// A rank on a GPU.
pub(crate) struct Rank {
    /// Its place among the programs of the session.
    pub(crate) number: usize,
    pub(crate) program: Program,
    /// What each instruction is.
    pub(crate) works: Vec<Ready>,
    /// Where things are in its memory, and where that starts.
    layout: Layout,
    start: u64,
    /// By the number of the program's streams; those that it does not use are none.
    streams: Vec<Option<gpu::Stream>>,
    /// By the number of the program's events, with the instruction that signals each.
    events: Vec<(Event, usize)>,
    /// For each stream the moment of what came before a turn; that of the compute stream is when the
    /// turn begins.
    turns: Vec<Event>,
    /// When what is sent has left its place: for each storage of which parts are sent, by places, and
    /// whether that has been recorded in this step.
    sent: BTreeMap<StorageId, Vec<(Event, Cell<bool>)>>,
    /// What is fed to micro-batches, and where each block is there: for each micro-batch.
    staging: Pinned,
    feeds: Vec<Vec<(BufferId, std::ops::Range<usize>)>>,
}

/// Where things of a program are in the memory of a rank (bytes from its start).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// By the number of a storage, where it is if it is at rest.
    rest: Vec<u64>,
    arena: u64,
    /// The room that kernels on each stream need.
    rooms: [u64; Stream::ALL.len()],
    /// What products may use, and how much that is.
    workspace: u64,
    workspace_bytes: u64,
    constants: u64,
}

/// What a program needs of a rank's memory.
pub(crate) struct Needs<'a> {
    /// With what it says itself.
    pub(crate) program: &'a Program,
    /// What kernels on each stream need (bytes).
    pub(crate) rooms: [u64; Stream::ALL.len()],
    /// What is known beforehand (bytes).
    pub(crate) constants: u64,
}

/// Everything in a rank's memory starts at a multiple of this (bytes): what the library of products
/// and transports like.
const ALIGNED: u64 = 512;

/// The storages of a program's inputs, and how large they are (bytes).
fn inputs(program: &Program) -> impl Iterator<Item = (StorageId, u64)> {
    let all = (0..program.storages.len()).map(StorageId);
    all.filter(|it| program.storages[it.0].kind == Kind::Input).map(|it| (it, program.extent(it)))
}

impl Layout {
    /// Places for programs of one rank whose steps take turns, with so much for products (bytes); and how
    /// much memory that is (bytes).
    ///
    /// What is at rest lies one after another, what is alike in two programs once; inputs, and what a step needs
    /// besides, lie at the same place for all.
    pub(crate) fn of(needs: &[Needs], workspace: u64) -> (Vec<Self>, u64) {
        let mut end = 0_u64;
        let mut place = |bytes: u64| {
            let start = end;
            end = start.saturating_add(bytes.next_multiple_of(ALIGNED));
            start
        };
        let mut rest: Vec<Vec<u64>> = Vec::with_capacity(needs.len());
        for (number, Needs { program, .. }) in needs.iter().enumerate() {
            let mut known = BTreeMap::new();
            for (earlier, places) in needs[..number].iter().zip(&rest) {
                let shared = run::alike(earlier.program, program).into_iter();
                let start = |buffer: BufferId| places[earlier.program.buffer(buffer).storage.0];
                known.extend(shared.map(|(there, here)| (program.buffer(here).storage.0, start(there))));
            }
            let resident = |it: &Storage| it.kind.region() == Region::Resident && it.kind != Kind::Input;
            let own = |(number, storage): (usize, &Storage)| match known.get(&number) {
                Some(&there) => there,
                None if resident(storage) => place(program.extent(StorageId(number))),
                None => 0,
            };
            rest.push(program.storages.iter().enumerate().map(own).collect());
        }
        let mut most = |of: &dyn Fn(&Needs) -> u64| place(needs.iter().map(of).max().unwrap_or(0));
        let found = most(&|it| inputs(it.program).map(|(_, bytes)| bytes.next_multiple_of(ALIGNED)).sum());
        for (places, it) in rest.iter_mut().zip(needs) {
            let mut start = found;
            for (storage, bytes) in inputs(it.program) {
                places[storage.0] = start;
                start = start.saturating_add(bytes.next_multiple_of(ALIGNED));
            }
        }
        let arena = most(&|it| it.program.arena);
        let rooms = std::array::from_fn(|stream| most(&|it| it.rooms[stream]));
        let shared =
            Self { arena, rooms, workspace: place(workspace), workspace_bytes: workspace, ..Self::default() };
        let layout =
            |(rest, it): (Vec<u64>, &Needs)| Self { rest, constants: place(it.constants), ..shared.clone() };
        let layouts = rest.into_iter().zip(needs).map(layout).collect();
        (layouts, end)
    }
}

impl Rank {
    /// A rank whose memory starts there; of its instructions nothing is ready yet.
    pub(crate) fn new(
        gpu: &Rc<Gpu>,
        number: usize,
        program: &Program,
        layout: Layout,
        start: u64,
    ) -> Result<Self, DeviceError> {
        let used: BTreeSet<Stream> = program.instructions.iter().map(|it| it.stream).collect();
        let stream = |it: Stream| {
            let priority = if it == Stream::Compute { Priority::Low } else { Priority::High };
            let is_used = it == Stream::Compute || used.contains(&it);
            is_used.then(|| gpu.stream(priority)).transpose()
        };
        let event = || gpu.event(Timing::No);
        let all = program.instructions.iter().enumerate();
        let signals: BTreeMap<usize, usize> =
            all.filter_map(|(number, it)| Some((it.signals?.0, number))).collect();
        let events = signals.last_key_value().map_or(0, |(last, _)| last + 1);
        let signalled = |it: usize| Ok((event()?, signals.get(&it).copied().unwrap_or(usize::MAX)));
        let mut sent = BTreeMap::new();
        for instruction in &program.instructions {
            if let Action::Send(it) = &instruction.action {
                let storage = program.buffer(it.input).storage;
                let places = program.storages[storage.0].places.max(1);
                let all = (0..places).map(|_| Ok((event()?, Cell::new(false))));
                sent.insert(storage, all.collect::<Result<_, DeviceError>>()?);
            }
        }
        let (staging, feeds) = staging(gpu, program)?;
        Ok(Self {
            number,
            program: program.clone(),
            works: Vec::new(),
            layout,
            start,
            streams: Stream::ALL.into_iter().map(stream).collect::<Result<_, _>>()?,
            events: (0..events).map(signalled).collect::<Result<_, DeviceError>>()?,
            turns: Stream::ALL.into_iter().map(|_| event()).collect::<Result<_, _>>()?,
            sent,
            staging,
            feeds,
        })
    }

    /// A stream.
    pub(crate) fn stream(&self, stream: Stream) -> Result<&gpu::Stream, DeviceError> {
        let missing = || DeviceError::Program(format!("there is no stream {}", stream.name()));
        self.streams.get(stream.number()).and_then(Option::as_ref).ok_or_else(missing)
    }

    /// Where a buffer is while a micro-batch has its turn.
    pub(crate) fn address(&self, buffer: BufferId, micro_batch: u64) -> u64 {
        let storage = self.program.buffer(buffer).storage;
        let Storage { kind, offset, .. } = self.program.storages[storage.0];
        let start = self.program.start(storage, micro_batch);
        self.start
            + match kind.region() {
                Region::Resident => self.layout.rest[storage.0] + start - offset,
                Region::Step => self.layout.arena + start,
            }
    }

    /// How large a buffer is (bytes).
    pub(crate) fn bytes(&self, buffer: BufferId) -> u64 {
        self.program.buffer(buffer).type_.bytes()
    }

    /// The bytes of a buffer, fetched by a stream.
    pub(crate) fn fetched(&self, buffer: BufferId, service: &gpu::Stream) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; usize::try_from(self.bytes(buffer)).unwrap_or(usize::MAX)];
        service.get(self.address(buffer, 0), &mut bytes)?;
        Ok(bytes)
    }

    /// Where the room of kernels on a stream is.
    pub(crate) fn room(&self, stream: Stream) -> u64 {
        self.start + self.layout.rooms[stream.number()]
    }

    /// Where products may write, and how much (bytes).
    pub(crate) fn workspace(&self) -> (u64, u64) {
        (self.start + self.layout.workspace, self.layout.workspace_bytes)
    }

    /// Where constants are.
    pub(crate) fn constants(&self) -> u64 {
        self.start + self.layout.constants
    }

    /// Takes what is fed to micro-batches in the next step.
    pub(crate) fn feed(&mut self, feeds: &[run::Feed]) -> Result<(), DeviceError> {
        for state in self.sent.values().flatten() {
            state.1.set(false);
        }
        let staging = self.staging.bytes_mut();
        for (places, feed) in self.feeds.iter().zip(feeds) {
            for (buffer, block) in feed {
                let place = places.iter().find(|it| it.0 == *buffer).map(|it| it.1.clone());
                let to = place.and_then(|place| staging.get_mut(place));
                let fits = to.filter(|to| to.len() == block.bytes().len());
                let unlike = || DeviceError::Program(format!("what is fed to b{} does not fit", buffer.0));
                fits.ok_or_else(unlike)?.copy_from_slice(block.bytes());
            }
        }
        Ok(())
    }

    /// Begins a turn, or what follows several parts: it waits for everything before it, but for what is
    /// sent to others; of that only for what keeps a place that is written. A turn's inputs are copied
    /// to where they are read.
    pub(crate) fn begin(
        &self,
        micro_batch: u64,
        instructions: std::ops::Range<usize>,
        fed: bool,
    ) -> Result<(), DeviceError> {
        let compute = self.stream(Stream::Compute)?;
        let others = || Stream::ALL.into_iter().filter(|it| *it != Stream::Compute);
        for stream in others().filter(|it| *it != Stream::Sending) {
            if let Some(other) = &self.streams[stream.number()] {
                other.record(&self.turns[stream.number()])?;
                compute.wait(&self.turns[stream.number()])?;
            }
        }
        for (storage, places) in &self.sent {
            let writes = |number: usize| {
                let writes = self.program.instructions[number].action.writes();
                writes.into_iter().any(|it| self.program.buffer(it).storage == *storage)
            };
            let count = u64::try_from(places.len()).unwrap_or(1).max(1);
            let place = usize::try_from(micro_batch % count).unwrap_or(0);
            let feeds = self.feeds.first().filter(|_| fed).into_iter().flatten();
            let is_fed = feeds.into_iter().any(|it| self.program.buffer(it.0).storage == *storage);
            if places[place].1.get() && (is_fed || instructions.clone().any(writes)) {
                compute.wait(&places[place].0)?;
            }
        }
        if fed {
            let place = usize::try_from(micro_batch).unwrap_or(usize::MAX);
            for (buffer, range) in self.feeds.get(place).into_iter().flatten() {
                compute.copy_in(self.address(*buffer, 0), &self.staging, range.clone())?;
            }
        }
        let begun = &self.turns[Stream::Compute.number()];
        compute.record(begun)?;
        for stream in others() {
            if let Some(other) = &self.streams[stream.number()] {
                other.wait(begun)?;
            }
        }
        Ok(())
    }

    /// Lets an instruction's stream wait for what the instruction waits for, of the instructions from
    /// that one on: what is before them is over.
    pub(crate) fn wait(&self, number: usize, since: usize) -> Result<(), DeviceError> {
        let instruction = &self.program.instructions[number];
        let stream = self.stream(instruction.stream)?;
        let awaited = instruction.waits.iter().map(|event| &self.events[event.0]);
        awaited.filter(|it| it.1 >= since).try_for_each(|it| stream.wait(&it.0))
    }

    /// Records that an instruction has been issued.
    pub(crate) fn signal(&self, number: usize, micro_batch: u64) -> Result<(), DeviceError> {
        let instruction = &self.program.instructions[number];
        let stream = self.stream(instruction.stream)?;
        if let Some(event) = instruction.signals {
            stream.record(&self.events[event.0].0)?;
        }
        if let Action::Send(it) = &instruction.action
            && let Some(places) = self.sent.get(&self.program.buffer(it.input).storage)
        {
            let count = u64::try_from(places.len()).unwrap_or(1).max(1);
            let (event, recorded) = &places[usize::try_from(micro_batch % count).unwrap_or(0)];
            stream.record(event)?;
            recorded.set(true);
        }
        Ok(())
    }

    /// Says where the values of a launch on a stream are.
    pub(crate) fn give(
        &self,
        given: &mut Given,
        on: Stream,
        operands: &[BufferId],
        results: &[BufferId],
        micro_batch: u64,
    ) {
        let address = |&buffer: &BufferId| self.address(buffer, micro_batch);
        given.operands.clear();
        given.operands.extend(operands.iter().map(address));
        given.results.clear();
        given.results.extend(results.iter().map(address));
        given.room = self.room(on);
    }

    /// Issues what an instruction is, but for exchanges.
    pub(crate) fn work(&self, number: usize, micro_batch: u64, given: &mut Given) -> Result<(), DeviceError> {
        let on = self.program.instructions[number].stream;
        let stream = self.stream(on)?;
        let address = |buffer: BufferId| self.address(buffer, micro_batch);
        match &self.works[number] {
            Ready::Nothing | Ready::Exchange => Ok(()),
            Ready::Kernels(kernels) => {
                self.give(given, on, &kernels.operands, &kernels.results, micro_batch);
                kernels.launches.iter().try_for_each(|launch| launch.launch(stream, given))
            }
            Ready::Product(product) => {
                self.give(given, on, &product.operands, &product.results, micro_batch);
                product.issue(self.workspace(), stream, given)
            }
            Ready::Copy { from, to } => stream.copy(address(*to), address(*from), self.bytes(*to)),
            Ready::Known(known) => {
                known.iter().try_for_each(|(from, to)| stream.copy(address(*to), *from, self.bytes(*to)))
            }
            Ready::Zero(to) => stream.fill(address(*to), 0, self.bytes(*to)),
            Ready::Host => self.on_host(number, micro_batch),
        }
    }

    /// Computes an operation on the host: waits for its operands, and puts its results on the device.
    fn on_host(&self, number: usize, micro_batch: u64) -> Result<(), DeviceError> {
        let instruction = &self.program.instructions[number];
        let Action::Compute(compute) = &instruction.action else { return Ok(()) };
        let stream = self.stream(instruction.stream)?;
        let mut operands = Vec::with_capacity(compute.operands.len());
        for block in &compute.operands {
            let mut array = self.zeros(compute, block.buffer)?;
            stream.get(self.address(block.buffer, micro_batch), array.bytes_mut())?;
            operands.push(array);
        }
        for (made, to) in self.computed(compute, &operands)? {
            stream.put(self.address(to, micro_batch), made.bytes())?;
        }
        Ok(())
    }

    /// The results of an operation, and where they go.
    pub(crate) fn computed(
        &self,
        compute: &Compute,
        operands: &[Array],
    ) -> Result<Vec<(Array, BufferId)>, DeviceError> {
        let given = compute.operands.iter().zip(operands);
        let given: Vec<Tensor> =
            given.map(|(block, it)| Tensor { spans: &block.spans, ..it.tensor() }).collect();
        let mut made = Vec::with_capacity(compute.results.len());
        for block in &compute.results {
            made.push((self.zeros(compute, block.buffer)?, block.buffer));
        }
        let results = made.iter_mut().zip(&compute.results);
        let mut results: Vec<TensorMut> =
            results.map(|((it, _), block)| TensorMut { spans: &block.spans, ..it.tensor_mut() }).collect();
        let failed = |error| DeviceError::Host(compute.name.to_string(), error);
        kernels::compute(&compute.op, &given, &mut results).map_err(failed)?;
        Ok(made)
    }

    fn zeros(&self, compute: &Compute, buffer: BufferId) -> Result<Array, DeviceError> {
        let failed = |error| DeviceError::Host(compute.name.to_string(), error);
        Array::zeros(self.program.buffer(buffer).type_.clone()).map_err(failed)
    }

    /// Lets all streams wait for an event.
    pub(crate) fn follow(&self, event: &Event) -> Result<(), DeviceError> {
        self.streams.iter().flatten().try_for_each(|stream| stream.wait(event))
    }

    /// Lets another stream wait for all streams.
    pub(crate) fn lead(&self, other: &gpu::Stream) -> Result<(), DeviceError> {
        for (stream, event) in self.streams.iter().zip(&self.turns) {
            if let Some(stream) = stream {
                stream.record(event)?;
                other.wait(event)?;
            }
        }
        Ok(())
    }
}

/// Where inputs of micro-batches stay on the host until they are copied.
type Staging = (Pinned, Vec<Vec<(BufferId, std::ops::Range<usize>)>>);

fn staging(gpu: &Rc<Gpu>, program: &Program) -> Result<Staging, DeviceError> {
    let Some(repeated) = &program.repeated else { return Ok((gpu.pinned(0)?, Vec::new())) };
    let mut end = 0_usize;
    let mut feeds = Vec::new();
    for _ in 0..repeated.times {
        let mut places = Vec::new();
        for port in &repeated.inputs {
            let bytes = usize::try_from(program.buffer(port.buffer).type_.bytes()).unwrap_or(usize::MAX);
            places.push((port.buffer, end..end.saturating_add(bytes)));
            end = end.saturating_add(bytes.next_multiple_of(64));
        }
        feeds.push(places);
    }
    Ok((gpu.pinned(end)?, feeds))
}
