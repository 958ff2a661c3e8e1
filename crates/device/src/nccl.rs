//! The transport of ranks that are processes with a GPU each: calls of NCCL.
//!
//! All that a rank exchanges, in all plans whose steps take turns, is issued on two streams, one for what runs
//! beside computing, in an order in which ranks cannot wait for each other forever however little a network does
//! at the same time ([`lower::issue_order`]). A stream waits until what is given is there, and the stream of the instruction until the exchange is over.
//!
//! What is sent to other stages is packed into a place of its own where its instruction stands, and issued
//! when its turn has come in that order: right then, or after an exchange that stands before it. There are
//! as many places as the program has of what is sent. What is received comes into a place too, and is
//! unpacked by the instruction's stream.

mod functions; // the functions of the library
mod wires; // the streams that a process exchanges on
mod live; // the communicators that are there, and how they end when all has to end
mod library; // the library, found and called
mod communicators; // those of all programs, made once
mod connection; // what all plans of a process exchange by
mod watch; // what is looked at while the host waits
mod links; // what exchanges take

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kernels::cuda::Work;
use lower::{Action, Collective, CollectiveKind, CommunicatorId, Issued, Message, Program, Way};
use planner_ir::DType;
use run::Processes;

use crate::cache::Loaded;
use crate::error::DeviceError;
use crate::exchange::{self, Exchange, Half, Now, Progress};
use crate::gpu::{Event, Memory, Stream, Timing};
use crate::rank::Rank;
use crate::ready::{Given, Packed};
use functions::{Handle, Unique};
use library::{Collected, Library, Passed};

pub(crate) use connection::Connection;
pub(crate) use links::expect_apart;
pub use links::{Exchanged, Links};

/// How long a rank may take to end once another one has: until it is clear who is lost, and until its
/// communicators are invalid. Who ends ranks leaves them as much.
pub const ENDING: Duration = watch::FIRST.saturating_add(live::LIMIT);

/// What places of messages are multiples of (bytes).
const ALIGNED: u64 = 512;

/// A part of what is sent or received: the instruction, which part.
type Part = (usize, usize);

/// A place of messages: where it is, when something is in it, and when it is free again.
struct Place {
    start: u64,
    filled: Event,
    free: Event,
}

/// The places of a part, and how it is packed or unpacked.
struct Parcel {
    places: Vec<Place>,
    copies: Vec<Packed>,
    elements: u64,
    dtype: DType,
    other: usize,
}

/// The transport of a plan.
pub(crate) struct Nccl {
    connection: Rc<Connection>,
    /// The communicators of this rank's program, by their numbers; none until ranks are connected.
    communicators: Vec<Handle>,
    /// When what is given is there, and when an exchange is over.
    moments: [Event; 2],
    parcels: BTreeMap<Part, Parcel>,
    memory: Option<Memory>,
    /// This rank's exchanges of a step in the order in which they are issued, and which is the next one.
    order: Vec<Issued>,
    next: usize,
    /// What is packed and not yet sent.
    packed: VecDeque<Issued>,
    /// Whether a step is begun and not over.
    inside: bool,
}

/// The version of NCCL by which ranks exchange in this process, or why they cannot: it is not there, or too
/// old.
pub fn nccl(folders: &[PathBuf]) -> Result<String, DeviceError> {
    Library::load(folders).map(|it| it.version)
}

impl Unique {
    /// That of a job: the first rank says how the others find it. All are there now, so that time is short
    /// from here.
    fn told(library: &Library, processes: &Processes) -> Result<Self, DeviceError> {
        let unique = if processes.leads() { Some(library.unique()?) } else { None };
        let said = processes.said(unique.as_ref().map_or(&[][..], |it| &it.0));
        let bytes = said.into_iter().next().unwrap_or_default();
        let unknown = |_| DeviceError::Program("the first rank does not say how to find it".to_owned());
        Ok(Self(bytes.try_into().map_err(unknown)?))
    }
}

impl Nccl {
    /// For the programs of all ranks of a plan, of which this process has one.
    pub(crate) fn new(connection: &Rc<Connection>, programs: &[Program]) -> Result<Self, DeviceError> {
        let stalled = |_| DeviceError::Program("ranks wait for each other forever".to_owned());
        let orders = lower::issue_order(programs).map_err(stalled)?;
        let place = programs.iter().position(|it| it.rank == connection.processes.rank());
        let order = place.and_then(|it| orders.into_iter().nth(it));
        let missing = || DeviceError::Program("this process has no rank".to_owned());
        let gpu = &connection.gpu;
        Ok(Self {
            connection: Rc::clone(connection),
            communicators: Vec::new(),
            moments: [gpu.event(Timing::No)?, gpu.event(Timing::No)?],
            parcels: BTreeMap::new(),
            memory: None,
            order: order.ok_or_else(missing)?,
            next: 0,
            packed: VecDeque::new(),
            inside: false,
        })
    }

    /// Room for everything that goes between stages.
    fn make_places(&mut self, rank: &Rank, loaded: &Loaded) -> Result<(), DeviceError> {
        let program = &rank.program;
        let mut end = 0_u64;
        let mut starts = Vec::new();
        for (number, instruction) in program.instructions.iter().enumerate() {
            let Some((buffer, parts)) = exchange::remotes(&instruction.action) else { continue };
            let dtype = program.buffer(buffer).type_.dtype;
            let sends =
                matches!(instruction.action, Action::Send(_)) && program.repetition().contains(&number);
            let places = if sends { program.storage(buffer).places.max(1) } else { 1 };
            for (part, remote) in parts.iter().enumerate() {
                let elements = remote.strided.elements();
                let all = (0..places).map(|_| {
                    let start = end;
                    end += elements.saturating_mul(dtype.bytes()).next_multiple_of(ALIGNED);
                    start
                });
                starts.push(all.collect::<Vec<u64>>());
                let copies = Packed::all(&exchange::copy(remote, dtype), loaded)?;
                let other = usize::try_from(remote.rank).unwrap_or(usize::MAX);
                let parcel = Parcel { places: Vec::new(), copies, elements, dtype, other };
                self.parcels.insert((number, part), parcel);
            }
        }
        let Connection { gpu, wires, .. } = &*self.connection;
        let memory = gpu.memory(end)?;
        for (parcel, starts) in self.parcels.values_mut().zip(starts) {
            for start in starts {
                let [filled, free] = [gpu.event(Timing::No)?, gpu.event(Timing::No)?];
                wires.waited.record(&free)?;
                parcel.places.push(Place { start: memory.start + start, filled, free });
            }
        }
        self.memory = Some(memory);
        Ok(())
    }

    /// The communicator of a number of the program.
    fn communicator(&self, of: CommunicatorId) -> Result<Handle, DeviceError> {
        let missing = || DeviceError::Program("an exchange without a communicator".to_owned());
        self.communicators.get(of.0).copied().ok_or_else(missing)
    }

    /// Gives a part of what goes between stages to another rank, or takes it.
    fn pass(&self, parcel: &Parcel, message: Passed) -> Result<(), DeviceError> {
        let Connection { library, wires, .. } = &*self.connection;
        library.pass(self.connection.communicators()?.world, parcel.dtype, &[message], &wires.waited)
    }

    /// An exchange as the order of issuing has it.
    fn issued(rank: &Rank, now: Now, part: usize) -> Issued {
        let repeated = rank.program.repetition().contains(&now.instruction);
        Issued { instruction: now.instruction, part, micro_batch: repeated.then_some(now.micro_batch) }
    }

    /// Expects that an exchange is the next one.
    fn expect(&self, issued: &Issued) -> Result<(), DeviceError> {
        if self.order.get(self.next) == Some(issued) {
            return Ok(());
        }
        Err(DeviceError::Program(format!(
            "{issued:?} is to be issued, and the next one in the order is {:?}",
            self.order.get(self.next)
        )))
    }

    /// The place of a part for a micro-batch.
    fn place(&self, issued: &Issued) -> Result<(&Parcel, &Place), DeviceError> {
        let lost = || DeviceError::Program("what goes between stages has no place".to_owned());
        let parcel = self.parcels.get(&(issued.instruction, issued.part)).ok_or_else(lost)?;
        let count = u64::try_from(parcel.places.len()).unwrap_or(1).max(1);
        let number = usize::try_from(issued.micro_batch.unwrap_or(0) % count).unwrap_or(0);
        Ok((parcel, parcel.places.get(number).ok_or_else(lost)?))
    }

    /// Where ranks meet: a wire waits for the instruction's stream, and that for what is exchanged.
    fn meet(&mut self, rank: &Rank, now: Now) -> Result<(), DeviceError> {
        self.expect(&Self::issued(rank, now, 0))?;
        let instruction = &rank.program.instructions[now.instruction];
        let stream = rank.stream(instruction.stream)?;
        let wire = self.connection.wires.of(instruction.stream == lower::Stream::Beside);
        stream.record(&self.moments[0])?;
        wire.wait(&self.moments[0])?;
        match &instruction.action {
            Action::Collective(it) => it.each().try_for_each(|it| self.collect(rank, now, &it, wire))?,
            Action::Message(it) => self.message(rank, now, it, wire)?,
            _ => {}
        }
        wire.record(&self.moments[1])?;
        stream.wait(&self.moments[1])?;
        self.next += 1;
        self.send_due()
    }

    fn collect(&self, rank: &Rank, now: Now, it: &Collective, wire: &Stream) -> Result<(), DeviceError> {
        let on = self.communicator(it.communicator)?;
        let library = &self.connection.library;
        let place = |buffer| rank.address(buffer, now.micro_batch);
        let dtype = rank.program.buffer(it.output).type_.dtype;
        let (input, output) = (place(it.input), place(it.output));
        let all = Collected { input, output, elements: it.elements, dtype };
        match it.kind {
            // A host does not know which rows go: all of them do.
            CollectiveKind::AllGather | CollectiveKind::Dispatch => library.all_gather(on, &all, wire),
            CollectiveKind::AllReduce => library.all_reduce(on, &all, wire),
            CollectiveKind::ReduceScatter if exchange::is_settled(it.kind, input, output) => {
                let members = rank.program.members(it.communicator).iter();
                let bytes = it.elements.saturating_mul(dtype.bytes());
                let own = members.zip((input..).step_by(usize::try_from(bytes).unwrap_or(1).max(1)));
                let own = own.filter(|(member, _)| **member == rank.program.rank).map(|it| it.1).next();
                let own = own.ok_or_else(|| DeviceError::Program("a rank is no member".to_owned()))?;
                library.reduce_scatter(on, &Collected { output: own, ..all }, wire)?;
                if own == output { Ok(()) } else { wire.copy(output, own, bytes) }
            }
            CollectiveKind::ReduceScatter | CollectiveKind::Combine => library.reduce_scatter(on, &all, wire),
            CollectiveKind::Broadcast(root) => library.broadcast(on, root, &all, wire),
            CollectiveKind::Reduce(root) => library.reduce(on, root, &all, wire),
            CollectiveKind::AllToAll => {
                let members = rank.program.members(it.communicator);
                let bytes = it.elements.saturating_mul(dtype.bytes());
                let mut messages = Vec::new();
                for (number, (member, offset)) in members.iter().zip((0..).map(|it| it * bytes)).enumerate() {
                    if *member == rank.program.rank {
                        wire.copy(output + offset, input + offset, bytes)?;
                    } else {
                        messages.push(Passed::To(input + offset, it.elements, number));
                        messages.push(Passed::From(output + offset, it.elements, number));
                    }
                }
                library.pass(on, dtype, &messages, wire)
            }
        }
    }

    fn message(&self, rank: &Rank, now: Now, it: &Message, wire: &Stream) -> Result<(), DeviceError> {
        let members = rank.program.members(it.communicator);
        let type_ = &rank.program.buffer(it.output).type_;
        let (elements, dtype) = (type_.elements(), type_.dtype);
        let place = |buffer| rank.address(buffer, now.micro_batch);
        let stranger = || DeviceError::Program("a message goes to a rank that is not met".to_owned());
        let member = |of: u64| members.iter().position(|it| *it == of).ok_or_else(stranger);
        let mut messages = Vec::new();
        for &to in &it.to {
            messages.push(Passed::To(place(it.input), elements, member(to)?));
        }
        if it.from == rank.program.rank {
            wire.copy(place(it.output), place(it.input), type_.bytes())?;
        } else {
            messages.push(Passed::From(place(it.output), elements, member(it.from)?));
        }
        self.connection.library.pass(self.communicator(it.communicator)?, dtype, &messages, wire)
    }

    /// Packs a part of a buffer, to be sent.
    fn pack(&mut self, rank: &Rank, now: Now, part: usize, given: &mut Given) -> Result<(), DeviceError> {
        let issued = Self::issued(rank, now, part);
        let (parcel, place) = self.place(&issued)?;
        let buffers = exchange::remotes(&rank.program.instructions[now.instruction].action);
        let buffer =
            buffers.map(|it| it.0).ok_or_else(|| DeviceError::Program("nothing is sent".to_owned()))?;
        let kept = |other: &&Issued| {
            (other.instruction, other.part) == (issued.instruction, issued.part)
                && self.place(other).is_ok_and(|it| it.1.start == place.start)
        };
        if let Some(other) = self.packed.iter().find(kept) {
            return Err(DeviceError::Program(format!(
                "{issued:?} is packed over {other:?}, which is not sent"
            )));
        }
        let stream = rank.stream(rank.program.instructions[now.instruction].stream)?;
        stream.wait(&place.free)?;
        given.operands.clear();
        given.operands.push(rank.address(buffer, now.micro_batch));
        given.results.clear();
        given.results.push(place.start);
        parcel.copies.iter().try_for_each(|copy| copy.launch(stream, given))?;
        stream.record(&place.filled)?;
        self.packed.push_back(issued);
        Ok(())
    }

    /// Sends what is packed and has its turn.
    fn send_due(&mut self) -> Result<(), DeviceError> {
        while let Some(issued) = self.order.get(self.next).copied() {
            let Some(number) = self.packed.iter().position(|it| *it == issued) else { return Ok(()) };
            let (parcel, place) = self.place(&issued)?;
            self.connection.wires.waited.wait(&place.filled)?;
            let message = Passed::To(place.start, parcel.elements, parcel.other);
            self.pass(parcel, message)?;
            self.connection.wires.waited.record(&place.free)?;
            self.packed.remove(number);
            self.next += 1;
        }
        Ok(())
    }

    /// Takes what another rank sends, and unpacks it.
    fn take(&mut self, rank: &Rank, now: Now, part: usize, given: &mut Given) -> Result<(), DeviceError> {
        let issued = Self::issued(rank, now, part);
        self.expect(&issued)?;
        let (parcel, place) = self.place(&issued)?;
        let buffers = exchange::remotes(&rank.program.instructions[now.instruction].action);
        let buffer =
            buffers.map(|it| it.0).ok_or_else(|| DeviceError::Program("nothing is received".to_owned()))?;
        let stream = rank.stream(rank.program.instructions[now.instruction].stream)?;
        self.connection.wires.waited.wait(&place.free)?;
        let message = Passed::From(place.start, parcel.elements, parcel.other);
        self.pass(parcel, message)?;
        self.connection.wires.waited.record(&place.filled)?;
        stream.wait(&place.filled)?;
        given.operands.clear();
        given.operands.push(place.start);
        given.results.clear();
        given.results.push(rank.address(buffer, now.micro_batch));
        parcel.copies.iter().try_for_each(|copy| copy.launch(stream, given))?;
        stream.record(&place.free)?;
        self.next += 1;
        self.send_due()
    }

    fn issue_one(&mut self, rank: &Rank, now: Now, given: &mut Given) -> Result<(), DeviceError> {
        match &rank.program.instructions[now.instruction].action {
            Action::Collective(_) | Action::Message(_) => self.meet(rank, now),
            Action::Send(sent) => {
                for part in 0..sent.parts.len() {
                    self.pack(rank, now, part, given)?;
                    self.send_due()?;
                }
                Ok(())
            }
            Action::Receive(received) => {
                for (part, remote) in received.parts.iter().enumerate() {
                    if remote.way == Way::From {
                        self.take(rank, now, part, given)?;
                    } else {
                        self.expect(&Self::issued(rank, now, part))?;
                        self.pack(rank, now, part, given)?;
                        self.send_due()?;
                    }
                }
                Ok(())
            }
            Action::Compute(_) | Action::Copy(_) => Ok(()),
        }
    }
}

impl Exchange for Nccl {
    fn works(&self, programs: &[&Program]) -> Vec<Work> {
        exchange::copies(programs)
    }

    // Nobody has measured what NCCL does in graphs, and the tests' library knows none.
    fn captures(&self) -> bool {
        false
    }

    fn prepare(&mut self, ranks: &[Rank], loaded: &Loaded) -> Result<(), DeviceError> {
        let missing = || DeviceError::Program("this process has no rank".to_owned());
        let rank = ranks.first().ok_or_else(missing)?;
        for (number, instruction) in rank.program.instructions.iter().enumerate() {
            if let Action::Collective(collective) = &instruction.action {
                collective.each().try_for_each(|it| exchange::expect_apart(rank, number, &it))?;
            }
        }
        self.make_places(rank, loaded)?;
        self.connection.connect()?;
        self.communicators = self.connection.communicators()?.of(&rank.program)?;
        Ok(())
    }

    fn begins(&mut self, half: Half) {
        if half == Half::First {
            self.next = 0;
            self.packed.clear();
        }
        self.inside = true;
    }

    fn issue(&mut self, ranks: &[Rank], now: Now, given: &mut Given) -> Result<Progress, DeviceError> {
        self.connection.processes.begins(now.instruction, now.micro_batch);
        let watch = Rc::clone(&self.connection.watch);
        // Others would wait for what is not issued any more.
        self.issue_one(&ranks[now.rank], now, given).unwrap_or_else(|error| watch.failed(&error));
        Ok(Progress::Issued)
    }

    fn ends(&mut self, half: Half) -> Result<(), DeviceError> {
        self.connection.wires.synchronize()?;
        self.inside = false;
        let last = half == Half::Guarded;
        if last && self.next < self.order.len() {
            return Err(DeviceError::Program("a step ends before all has been exchanged".to_owned()));
        }
        Ok(())
    }

    fn leaves(&mut self) {
        if self.inside || std::thread::panicking() {
            self.connection.library.live.end();
        }
    }
}
