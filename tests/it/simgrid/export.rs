//! Programs as the replaying program reads them: actors, and what each does one after another.
//!
//! A stream of a rank is an actor. What is sent to other stages is carried by an actor for each pair of
//! ranks; a send, a receipt and the start of a turn are actors that only wait and say when they are over.
//! What is over is a latch, by name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use cost_models::collective;
use cost_models::machine::Machine;
use cost_models::topology::{Group, Topology};
use cost_models::units::Bytes;
use cost_models::work;
use lower::{Action, Collective, CollectiveKind, Message, Program, Remote, StorageId, Stream, Way};

/// Times are given to SimGrid in microseconds: it counts no time below 1e-5.
pub(super) const MICROSECONDS: f64 = 1e6;

/// The programs of all ranks.
pub(super) fn text(machine: &Machine, programs: &[Program]) -> String {
    let topology = Topology::of(machine);
    let rate = topology.rate(topology.route(0, 1)[0].0).0;
    let mut text = format!("hosts {}\nrate {}\n", programs.len(), rate / MICROSECONDS);
    let prices = Prices { machine, topology, rate };
    for program in programs {
        for lines in Rank::of(&prices, program).actors() {
            // Writing to a string does not fail.
            let _ = write!(text, "actor {}\n{lines}", program.rank);
        }
    }
    text
}

/// What exchanges take.
struct Prices<'a> {
    machine: &'a Machine,
    topology: Topology,
    /// What every link carries (bytes per second).
    rate: f64,
}

impl Prices<'_> {
    /// The latency of an exchange (microseconds), and what its busiest link carries after that
    /// (bytes).
    fn cost(&self, ranks: &[u64], bytes: u64, price: &dyn Fn(&Group, Bytes) -> f64) -> (f64, f64) {
        let group = self.topology.alone(ranks).unwrap();
        let whole = price(&group, Bytes(bytes));
        let latency = price(&group, Bytes(1)).min(whole);
        (MICROSECONDS * latency, (whole - latency) * self.rate)
    }

    fn between(&self, one: u64, other: u64, bytes: u64) -> (f64, f64) {
        self.cost(&[one, other], bytes, &|group, size| collective::send(self.machine, group, size).0)
    }
}

/// Something on its way to other stages, and the place that it keeps.
struct Sending {
    storage: StorageId,
    place: u64,
    over: String,
}

/// A rank, while it is written down.
struct Rank<'a> {
    prices: &'a Prices<'a>,
    program: &'a Program,
    /// What each instruction takes that meets nobody (seconds).
    alone: Vec<Option<f64>>,
    /// What each of its streams does.
    streams: BTreeMap<usize, String>,
    /// What is carried to each rank of other stages.
    carriers: BTreeMap<u64, String>,
    /// What only waits.
    others: Vec<String>,
    /// What everything of a turn waits for.
    start: Option<String>,
    /// For each event the latch that it is now, and whether it is of something sent.
    events: BTreeMap<usize, (String, bool)>,
    /// What was received in this turn.
    received: Vec<String>,
    sent: Vec<Sending>,
    /// How many messages have gone to a rank, and have come from one.
    messages: BTreeMap<(Way, u64), usize>,
    latches: usize,
}

impl<'a> Rank<'a> {
    fn of(prices: &'a Prices<'a>, program: &'a Program) -> Self {
        let used = program.instructions.iter().map(|it| it.stream);
        let used = used.filter(|it| !matches!(it, Stream::Sending | Stream::Receiving));
        Self {
            prices,
            program,
            alone: simulate::alone(program, prices.machine),
            streams: used.map(|it| (it.number(), String::new())).collect(),
            carriers: BTreeMap::new(),
            others: Vec::new(),
            start: None,
            events: BTreeMap::new(),
            received: Vec::new(),
            sent: Vec::new(),
            messages: BTreeMap::new(),
            latches: 0,
        }
    }

    fn actors(mut self) -> Vec<String> {
        let (program, repetition) = (self.program, self.program.repetition());
        self.stretch(0..repetition.start, 0);
        let parts = program.repeated.as_ref().map_or(&[][..], |it| &it.parts);
        for turn in program.repeated.iter().flat_map(|it| &it.turns) {
            let part = parts[turn.part].instructions.clone();
            self.turn(part.clone(), turn.micro_batch);
            self.stretch(part, turn.micro_batch);
        }
        if parts.len() > 1 {
            self.turn(0..0, 0);
        }
        self.stretch(repetition.end..program.instructions.len(), 0);
        let Self { streams, carriers, others, .. } = self;
        streams.into_values().chain(carriers.into_values()).chain(others).collect()
    }

    fn latch(&mut self) -> String {
        self.latches += 1;
        format!("{}.{}", self.program.rank, self.latches)
    }

    /// Starts a turn: all before it is over, but of what was sent only what keeps a place that it writes.
    fn turn(&mut self, part: Range<usize>, micro_batch: u64) {
        let mut lines = String::new();
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            let over = self.latch();
            let _ = writeln!(lines, "wait {over}");
            let _ = writeln!(self.streams.entry(stream).or_default(), "signal {over}");
        }
        let program = self.program;
        let writes = program.instructions[part].iter().flat_map(|it| it.action.writes());
        let written: BTreeSet<StorageId> = writes.map(|it| program.buffer(it).storage).collect();
        let (awaited, rest): (Vec<Sending>, _) = std::mem::take(&mut self.sent).into_iter().partition(|it| {
            let places = program.storages[it.storage.0].places.max(1);
            written.contains(&it.storage) && micro_batch % places == it.place
        });
        self.sent = rest;
        for over in
            std::mem::take(&mut self.received).into_iter().chain(awaited.into_iter().map(|it| it.over))
        {
            let _ = writeln!(lines, "wait {over}");
        }
        let start = self.latch();
        let _ = writeln!(lines, "signal {start}");
        self.others.push(lines);
        for lines in self.streams.values_mut() {
            let _ = writeln!(lines, "wait {start}");
        }
        self.start = Some(start);
        self.events.retain(|_, (_, sends)| *sends);
    }

    fn stretch(&mut self, instructions: Range<usize>, micro_batch: u64) {
        let program = self.program;
        for index in instructions {
            let instruction = &program.instructions[index];
            let mut lines = String::new();
            for event in &instruction.waits {
                if let Some((latch, _)) = self.events.get(&event.0) {
                    let _ = writeln!(lines, "wait {latch}");
                }
            }
            let sends = instruction.stream == Stream::Sending;
            match &instruction.action {
                Action::Compute(_) | Action::Copy(_) => {
                    let _ = writeln!(lines, "compute {}", MICROSECONDS * self.alone[index].unwrap());
                }
                Action::Collective(it) => self.collective(it, &mut lines),
                Action::Message(it) => self.message(it, &mut lines),
                Action::Send(it) => {
                    let bytes = program.buffer(it.input).type_.dtype.bytes();
                    self.crossing(&it.parts, bytes, &mut lines);
                }
                Action::Receive(it) => {
                    let bytes = program.buffer(it.output).type_.dtype.bytes();
                    self.crossing(&it.parts, bytes, &mut lines);
                }
            }
            let over = self.latch();
            let _ = writeln!(lines, "signal {over}");
            if let Some(event) = instruction.signals {
                self.events.insert(event.0, (over.clone(), sends));
            }
            match instruction.stream {
                Stream::Sending | Stream::Receiving => {
                    let start = self.start.iter().map(|it| format!("wait {it}\n")).collect::<String>();
                    self.others.push(start + &lines);
                }
                stream => self.streams.entry(stream.number()).or_default().push_str(&lines),
            }
            match &instruction.action {
                Action::Send(it) => {
                    let storage = program.buffer(it.input).storage;
                    let place = micro_batch % program.storages[storage.0].places.max(1);
                    self.sent.push(Sending { storage, place, over });
                }
                Action::Receive(_) => self.received.push(over),
                _ => {}
            }
        }
    }

    /// What goes to other stages, or comes: over when everything has come and gone.
    fn crossing(&mut self, parts: &[Remote], size: u64, lines: &mut String) {
        let own = self.program.rank;
        let mut gone = String::new();
        for Remote { way, rank, strided } in parts {
            let count = self.messages.entry((*way, *rank)).or_default();
            *count += 1;
            let (from, to) = if *way == Way::To { (own, *rank) } else { (*rank, own) };
            let over = format!("{from}-{to}.{count}");
            if *way == Way::From {
                let _ = writeln!(lines, "wait {over}");
                continue;
            }
            let (ready, bytes) = (self.latch(), size * strided.elements());
            if *rank == own {
                // To another of its stages: copied, whatever else is on its way.
                let copied = MICROSECONDS * work::copy(&self.prices.machine.device, Bytes(bytes)).0;
                self.others.push(format!("wait {ready}\ncarry {copied} 0 {own}\nsignal {over}\n"));
            } else {
                let (latency, carried) = self.prices.between(own, *rank, bytes);
                let carrier = self.carriers.entry(*rank).or_default();
                let _ = writeln!(carrier, "wait {ready}\ncarry {latency} {carried} {rank}\nsignal {over}");
            }
            let _ = writeln!(lines, "signal {ready}");
            let _ = writeln!(gone, "wait {over}");
        }
        lines.push_str(&gone);
    }

    fn collective(&self, it: &Collective, text: &mut String) {
        let program = self.program;
        let members = program.members(it.communicator);
        let ranks = u64::try_from(members.len()).unwrap();
        let place = members.iter().position(|&rank| rank == program.rank).unwrap();
        let size = program.buffer(it.input).type_.dtype.bytes();
        let Prices { machine, .. } = *self.prices;
        let all = ranks * it.all_elements() * size;
        let cost = |bytes: u64, price: &dyn Fn(&Group, Bytes) -> f64| self.prices.cost(members, bytes, price);
        let (cost, rounds) = match it.kind {
            CollectiveKind::AllGather => {
                let price = |group: &Group, size| collective::ring_all_gather(machine, group, size).0;
                (cost(all, &price), ranks - 1)
            }
            CollectiveKind::ReduceScatter => {
                let price = |group: &Group, size| collective::reduce_scatter(machine, group, size).0;
                (cost(all, &price), ranks - 1)
            }
            CollectiveKind::AllReduce => {
                let price = |group: &Group, size| collective::all_reduce(machine, group, size).0;
                (cost(it.all_elements() * size, &price), 2 * (ranks - 1))
            }
            CollectiveKind::AllToAll => {
                let price = |group: &Group, size| collective::all_to_all(machine, group, size).0;
                (cost(all, &price), ranks - 1)
            }
            CollectiveKind::Dispatch | CollectiveKind::Combine => {
                let rows = it.rows.unwrap().routed;
                let price = |group: &Group, size| collective::routed(machine, group, size, &rows).0;
                (cost(all, &price), ranks - 1)
            }
            CollectiveKind::Broadcast(_) | CollectiveKind::Reduce(_) => {
                let price = |group: &Group, size| collective::broadcast(machine, group, size).0;
                (cost(it.all_elements() * size, &price), ranks - 1)
            }
        };
        let ((latency, carried), name) = (cost, format!("c{}", it.communicator.0));
        let rounds_ = f64::from(u32::try_from(rounds).unwrap());
        let is_exchange =
            matches!(it.kind, CollectiveKind::AllToAll | CollectiveKind::Dispatch | CollectiveKind::Combine);
        if is_exchange {
            let members: Vec<String> = members.iter().map(u64::to_string).collect();
            let _ = writeln!(text, "exchange {name} {latency} {} {}", carried / rounds_, members.join(" "));
            return;
        }
        let count = members.len();
        let (next, previous) = (members[(place + 1) % count], members[(place + count - 1) % count]);
        let carried = carried / rounds_;
        let _ = writeln!(text, "ring {name} {next} {previous} {rounds} {latency} {carried}");
    }

    fn message(&self, it: &Message, text: &mut String) {
        let program = self.program;
        let bytes = program.buffer(it.input).type_.bytes();
        let partner = it.to.first().copied().or((it.from != program.rank).then_some(it.from));
        let (latency, carried) =
            partner.map_or((0.0, 0.0), |partner| self.prices.between(program.rank, partner, bytes));
        let to: Vec<String> = it.to.iter().map(u64::to_string).collect();
        let _ =
            writeln!(text, "message m{} {latency} {carried} {} {}", it.communicator.0, it.from, to.join(" "));
    }
}
