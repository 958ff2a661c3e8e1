//! What exchanges among ranks that are processes take, each with a GPU of its own.
//!
//! Times are those between two events of one stream, less what two events take, for one of several calls
//! one after another. Issuing a call may take its host longer than the call takes its device, and ranks do
//! not get there at the same time: so the device is given something else to do for as long as issuing took
//! before, and then all ranks meet in a small sum, before the first event. Of each round the slowest rank
//! says how long it took; of all rounds the median of those that count ([`Sample`]), which is the same for
//! all ranks.

use std::rc::Rc;
use std::time::{Duration, Instant};

use planner_ir::DType;
use run::Processes;

use super::functions::{Handle, Unique};
use super::library::{Collected, Library, Passed};
use super::watch::Watch;
use crate::error::DeviceError;
use crate::gpu::{Event, Facts, Gpu, Memory, Priority, Stream, Timing};
use crate::sample::Sample;
use crate::settings::Settings;

/// How often something is done before it is timed, and how often it is timed.
const WARM: usize = 3;
const TIMES: usize = 15;

/// How many calls there are between two events, of how many bytes at most.
const CALLS: [(u64, u32); 3] = [(1 << 20, 10), (1 << 26, 3), (u64::MAX, 1)];

/// What a device writes while its host issues calls (bytes), and how often at most.
const AHEAD: u64 = 64 << 20;
const AHEAD_TIMES: u32 = 500;

/// What is summed where ranks only meet (elements), and the room that it takes (bytes).
const MEETING: u64 = 4;
const ROOM: u64 = 512;

/// The types of what is summed and of what is moved.
const SUMMED: DType = DType::BF16;
const MOVED: DType = DType::U8;

/// What ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// Each gets the sum of what all give.
    AllReduce,
    /// Each gets what all give.
    AllGather,
    /// Each gets its block of the sum.
    ReduceScatter,
    /// Each gives another block to each.
    AllToAll,
    /// All get what the first one gives.
    Broadcast,
    /// Each gives something to the next one, the last to the first.
    Send,
}

impl Exchanged {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::AllReduce, Self::AllGather, Self::ReduceScatter, Self::AllToAll, Self::Broadcast, Self::Send];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Broadcast => "broadcast",
            Self::Send => "send and receive",
        }
    }

    /// What the sizes of it among so many ranks are multiples of (bytes).
    #[must_use]
    pub fn granule(self, ranks: u64) -> u64 {
        match self {
            Self::AllReduce => SUMMED.bytes(),
            Self::ReduceScatter => ranks * SUMMED.bytes(),
            Self::AllGather | Self::AllToAll => ranks,
            Self::Broadcast | Self::Send => 1,
        }
    }
}

/// A set of ranks that exchange with each other.
struct Members {
    handle: Handle,
    /// This rank's place among them, and how many they are.
    place: usize,
    count: usize,
}

/// A GPU and what joins it with those of the other ranks.
pub struct Links {
    // What refers to memory and streams is dropped before them.
    groups: Vec<Option<Members>>,
    handles: Vec<Handle>,
    events: [Event; 2],
    stream: Stream,
    /// What is given, and what is gotten.
    memory: Option<[Memory; 2]>,
    ahead: Memory,
    meeting: Memory,
    /// What two events take, and what writing ahead does (seconds).
    empty: f64,
    writing: f64,
    limit: Duration,
    library: Rc<Library>,
    processes: Rc<Processes>,
    gpu: Rc<Gpu>,
}

/// What happened between two events.
struct Round {
    /// On the device (seconds).
    took: f64,
    /// On the host, which issued it.
    issuing: Duration,
}

impl Links {
    /// The GPU of this rank, connected with those of all others; that takes no longer than a limit, or all
    /// processes end. All ranks call this, with the same sets of ranks, each of which is timed by itself.
    pub fn open(
        settings: &Settings,
        processes: &Rc<Processes>,
        limit: Duration,
        groups: &[Vec<Vec<u64>>],
    ) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(&settings.libraries, settings.gpu)?;
        expect_apart(&gpu, processes)?;
        let library = Rc::new(Library::load(&settings.libraries)?);
        let live = library.live.clone();
        processes.before_end(Box::new(move |code| live.end_with(code)));
        let watch = Rc::new(Watch::new(&library, processes, limit));
        let looks = Rc::clone(&watch);
        gpu.watch(Box::new(move |waiting| looks.look(waiting)));
        let unique = Unique::told(&library, processes)?;
        let own = processes.rank();
        let world =
            library.join(unique, own, processes.size(), limit)?.unwrap_or_else(|| watch.not_connected(limit));
        let mut handles = vec![world];
        let mut made = Vec::new();
        for apart in groups {
            let color = apart.iter().position(|members| members.contains(&own));
            let members = color.map_or(&[][..], |it| apart[it].as_slice());
            let place = members.iter().position(|it| *it == own).unwrap_or(0);
            let handle =
                library.split(world, color, place, limit)?.unwrap_or_else(|| watch.not_connected(limit));
            handles.extend(color.map(|_| handle));
            made.push(color.map(|_| Members { handle, place, count: members.len() }));
        }
        let (stream, meeting) = (gpu.stream(Priority::High)?, gpu.memory(ROOM)?);
        let mut links = Self {
            groups: made,
            handles,
            events: [gpu.event(Timing::Yes)?, gpu.event(Timing::Yes)?],
            stream,
            memory: None,
            ahead: gpu.memory(AHEAD)?,
            meeting,
            empty: 0.0,
            writing: 0.0,
            limit,
            library,
            processes: Rc::clone(processes),
            gpu,
        };
        links.stream.fill(links.meeting.start, 0, links.meeting.bytes)?;
        links.meet(world)?;
        links.stream.synchronize()?;
        watch.connected();
        links.empty = links.typical(&|_| Ok(()))?;
        let write = |it: &Self| it.stream.fill(it.ahead.start, 0, it.ahead.bytes);
        links.writing = (links.typical(&write)? - links.empty).max(1e-9);
        Ok(links)
    }

    /// What is known of the GPU.
    pub fn facts(&self) -> &Facts {
        &self.gpu.facts
    }

    /// Takes the memory that is timed with: as much as every rank has room for twice, and no more than
    /// `most` (bytes); how much that is.
    pub fn take_memory(&mut self, most: u64) -> Result<u64, DeviceError> {
        /// What the library may need later, as a part of what is free.
        const SPARED: u64 = 8;
        self.memory = None;
        let free = self.gpu.free_memory()?;
        let own = (free - free / SPARED) / 2;
        let all = self.processes.said(&own.to_le_bytes());
        let all = all.into_iter().filter_map(|it| it.try_into().ok().map(u64::from_le_bytes));
        let room = all.min().unwrap_or(0).min(most) / ROOM * ROOM;
        let memory = [self.gpu.memory(room)?, self.gpu.memory(room)?];
        for it in &memory {
            self.stream.fill(it.start, 0, it.bytes)?;
        }
        self.stream.synchronize()?;
        self.memory = Some(memory);
        Ok(room)
    }

    /// The time of an exchange of a value of so many bytes, a multiple of its granule, among the ranks of a
    /// set: a value is the result of a gathering, the operand of a scattering, what each rank of an
    /// all-to-all holds, and one message. All ranks call this, those of no set too; all get the same.
    pub fn time(&self, what: Exchanged, bytes: u64, group: usize) -> Result<Sample, DeviceError> {
        let lost = || DeviceError::Program("a set of ranks that is not there is timed".to_owned());
        let calls = CALLS.iter().find(|it| bytes <= it.0).map_or(1, |it| it.1);
        let mut times = Vec::new();
        if let Some(members) = self.groups.get(group).ok_or_else(lost)? {
            let mut issuing = Duration::ZERO;
            for round in 0..WARM + TIMES {
                let it = self.round(members, what, bytes, calls, issuing)?;
                if round < WARM {
                    issuing = issuing.max(it.issuing);
                } else {
                    times.push(it.took / f64::from(calls));
                }
            }
        }
        let own: Vec<u8> = times.iter().flat_map(|it| it.to_le_bytes()).collect();
        let mut slowest = vec![0.0_f64; TIMES];
        for said in self.processes.said(&own) {
            for (slowest, it) in slowest.iter_mut().zip(said.chunks_exact(8)) {
                *slowest = slowest.max(it.try_into().map_or(0.0, f64::from_le_bytes));
            }
        }
        let none = || DeviceError::Program("the device's events give no times".to_owned());
        Sample::of(&slowest).filter(|it| it.seconds > 0.0).ok_or_else(none)
    }

    /// The host goes ahead, all meet, and then there are so many calls between two events.
    fn round(
        &self,
        members: &Members,
        what: Exchanged,
        bytes: u64,
        calls: u32,
        issuing: Duration,
    ) -> Result<Round, DeviceError> {
        let mut written = 0.0;
        for _ in 0..AHEAD_TIMES {
            if written > 2.0 * issuing.as_secs_f64() {
                break;
            }
            self.stream.fill(self.ahead.start, 0, self.ahead.bytes)?;
            written += self.writing;
        }
        self.meet(members.handle)?;
        self.stream.record(&self.events[0])?;
        let start = Instant::now();
        (0..calls).try_for_each(|_| self.issue(members, what, bytes))?;
        let issuing = start.elapsed();
        self.stream.record(&self.events[1])?;
        Ok(Round { took: (self.between()? - self.empty).max(0.0), issuing })
    }

    /// The typical time of something on this device alone (seconds).
    fn typical(&self, issue: &dyn Fn(&Self) -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            self.stream.record(&self.events[0])?;
            issue(self)?;
            self.stream.record(&self.events[1])?;
            times.push(self.between()?);
        }
        Ok(Sample::of(&times).map_or(0.0, |it| it.seconds))
    }

    /// The time between both events (seconds). The host waits where it looks at what goes wrong.
    fn between(&self) -> Result<f64, DeviceError> {
        self.stream.synchronize()?;
        self.events[1].since(&self.events[0])
    }

    fn meet(&self, on: Handle) -> Result<(), DeviceError> {
        let (start, elements) = (self.meeting.start, MEETING);
        let sum = Collected { input: start, output: start, elements, dtype: SUMMED };
        self.library.all_reduce(on, &sum, &self.stream)
    }

    /// One call.
    fn issue(&self, members: &Members, what: Exchanged, bytes: u64) -> Result<(), DeviceError> {
        let missing = || DeviceError::Program("there is no memory to exchange".to_owned());
        let [from, to] = self.memory.as_ref().ok_or_else(missing)?;
        if bytes > from.bytes {
            return Err(missing());
        }
        let Members { handle, place, count } = *members;
        let ranks = u64::try_from(count).unwrap_or(1).max(1);
        let (library, stream) = (&self.library, &self.stream);
        let all = |bytes: u64, dtype: DType| Collected {
            input: from.start,
            output: to.start,
            elements: bytes / dtype.bytes(),
            dtype,
        };
        match what {
            Exchanged::AllReduce => library.all_reduce(handle, &all(bytes, SUMMED), stream),
            Exchanged::AllGather => library.all_gather(handle, &all(bytes / ranks, MOVED), stream),
            Exchanged::ReduceScatter => library.reduce_scatter(handle, &all(bytes / ranks, SUMMED), stream),
            Exchanged::Broadcast => library.broadcast(handle, 0, &all(bytes, MOVED), stream),
            Exchanged::AllToAll => {
                // As programs are: what stays is copied.
                let part = bytes / ranks;
                let mut messages = Vec::new();
                for (member, offset) in (0..count).zip((0..).map(|it| it * part)) {
                    if member == place {
                        stream.copy(to.start + offset, from.start + offset, part)?;
                    } else {
                        messages.push(Passed::To(from.start + offset, part, member));
                        messages.push(Passed::From(to.start + offset, part, member));
                    }
                }
                library.pass(handle, MOVED, &messages, stream)
            }
            Exchanged::Send => {
                let [next, last] = [(place + 1) % count, (place + count - 1) % count];
                let messages = [Passed::To(from.start, bytes, next), Passed::From(to.start, bytes, last)];
                library.pass(handle, MOVED, &messages, stream)
            }
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.library.live.end();
            return;
        }
        self.library.give_back(self.handles.iter().copied(), self.limit);
    }
}

/// Refuses a GPU that another rank has too: all ranks find the same.
pub(crate) fn expect_apart(gpu: &Gpu, processes: &Processes) -> Result<(), DeviceError> {
    let all = processes.said(&gpu.identity()?);
    for (rank, identity) in all.iter().enumerate() {
        if let Some(first) = all[..rank].iter().position(|it| it == identity) {
            return Err(DeviceError::Program(format!(
                "ranks {first} and {rank} have the same GPU ({}): start as many ranks on a host as it has \
                 GPUs, and let each see all of them, or its own (`CUDA_VISIBLE_DEVICES`)",
                gpu.facts.name
            )));
        }
    }
    Ok(())
}
