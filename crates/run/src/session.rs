//! Programs made ready, and run step by step.

mod beside; // what sessions on the same ranks have once
mod carried; // outputs that become inputs where they are
mod engine; // ranks whose memory is on devices
mod leading; // what the first of several processes asks the others for

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use kernels::Array;
use lower::{Kind, Origin, Port, Preparation, Program};
use planner_ir::{StateKind, Type, ValueId};

use crate::error::{RunError, expect_type};
use crate::failure::Failure;
use crate::free;
use crate::mail::Mail;
use crate::meeting::{Meeting, give_up};
use crate::prepared::Prepared;
use crate::processes::{Ask, Peers, Processes};
use crate::rank::{Feed, Halt, Rank, Report};
use crate::source::{Blocks, Joined, Sources, cut};
use crate::stored::{Stored, port_block, type_of};
use crate::threads::Threads;
use engine::Seat;
use leading::Done;

pub use beside::{alike, held_beside};
pub use carried::{Handed, Moved};
pub use engine::Engine;

/// Programs with their weights and states, ready to run.
///
/// Ranks are threads of this process, or each is a process: then all processes do the same with
/// their sessions, and each has the memory of one rank. What is put together is so in the first one.
pub struct Session {
    /// Of ranks that are elsewhere only the programs.
    pub(crate) ranks: Vec<Rank>,
    /// For each rank, the places in its communicators.
    places: Places,
    meetings: Vec<Meeting>,
    mail: Mail,
    /// Those that have the other ranks.
    pub(crate) processes: Option<Rc<Processes>>,
    /// The inputs that nobody gives: they are at rest.
    pub(crate) kept_inputs: BTreeSet<String>,
    /// The outputs that are not put together.
    pub(crate) kept_outputs: BTreeSet<String>,
    /// The outputs that become inputs after each step, where they are.
    pub(crate) carried: Vec<Moved>,
    /// The number of its program in the record of this process, where there is one.
    recorded: usize,
    /// What has the memory of the ranks that are here, if they are on devices.
    pub(crate) engine: Option<Seat>,
}

/// What a step leaves.
#[derive(Debug)]
pub struct Outcome {
    /// The outputs, by name; nothing in processes that do not lead. Where states have not been changed, those that every rank has whole
    /// and no others are what the program makes.
    pub outputs: BTreeMap<String, Array>,
    /// For each collective and message in the order of the programs, which move it is and what all
    /// ranks together have received from others, for all micro-batches together (bytes).
    pub received: Vec<(Origin, u64)>,
    /// Whether states that last have been changed: they are not where an output is not finite.
    pub updated: bool,
    /// What the step took, without handing in inputs and fetching outputs (seconds).
    pub seconds: f64,
    /// For each instruction, what it took on the rank on which it took longest, for all
    /// micro-batches together (seconds).
    pub instructions: Vec<f64>,
}

/// Runs programs once.
///
/// The programs are ones that `lower::verify` accepts.
pub fn run(programs: Vec<Program>, sources: Sources) -> Result<Outcome, RunError> {
    Session::new(programs, sources.weights)?.step(sources.inputs)
}

impl Session {
    /// Reads weights, computes what is computed once, and gives each rank its blocks: a thread of its
    /// own in each step. Parameters start as the weights of their names, converted; other states start
    /// from zero.
    ///
    /// The programs are ones that `lower::verify` accepts.
    pub fn new(programs: Vec<Program>, weights: &dyn Stored) -> Result<Self, RunError> {
        Self::among(None, None, programs, weights, None)
    }

    /// The same on the ranks of another session, whose blocks of weights and of what is computed from
    /// them are there once for both, where they are the same.
    pub fn beside(other: &Self, programs: Vec<Program>, weights: &dyn Stored) -> Result<Self, RunError> {
        let seat = other.engine.as_ref().map(|seat| seat.beside(other.ranks.len()));
        Self::among(other.processes.clone(), seat, programs, weights, Some(other))
    }

    /// The same where each rank is a process: in this one, its own.
    ///
    /// # Panics
    /// If there are not as many processes as programs.
    pub fn of_processes(
        processes: Rc<Processes>,
        programs: Vec<Program>,
        weights: &dyn Stored,
    ) -> Result<Self, RunError> {
        let count = usize::try_from(processes.size());
        assert_eq!(count, Ok(programs.len()), "there is a process for each rank");
        Self::among(Some(processes), None, programs, weights, None)
    }

    pub(crate) fn among(
        processes: Option<Rc<Processes>>,
        engine: Option<Seat>,
        programs: Vec<Program>,
        weights: &dyn Stored,
        other: Option<&Self>,
    ) -> Result<Self, RunError> {
        let (meetings, places) = meetings(&programs)?;
        let mail = Mail::of(programs.iter());
        let own = processes.as_ref().map(|it| it.rank());
        let recorded = processes.as_ref().map_or(0, |processes| {
            let own = programs.iter().find(|it| it.rank == processes.rank());
            let texts = own.map(|own| own.instructions.iter().map(|it| own.show(it)).collect());
            processes.flight.add_program(texts.unwrap_or_default())
        });
        let given = engine.is_some() || other.is_some();
        let is_here = |it: &&Program| !given && own.is_none_or(|own| own == it.rank);
        let here: Vec<[u64; 2]> = programs.iter().filter(is_here).map(|it| [it.resident, it.arena]).collect();
        free::expect(here.len(), free::needed(&here), free::free())?;
        let rank = |program: Program| match own {
            _ if given => Rank::bare(program),
            Some(own) if own != program.rank => Rank::bare(program),
            _ => Rank::new(program),
        };
        let ranks = programs.into_iter().map(rank).collect::<Result<_, _>>()?;
        let mut session = Self {
            ranks,
            places,
            meetings,
            mail,
            processes,
            kept_inputs: BTreeSet::new(),
            kept_outputs: BTreeSet::new(),
            carried: Vec::new(),
            recorded,
            engine,
        };
        if let Some(other) = other.filter(|_| session.engine.is_none()) {
            session.take_over(other);
        }
        session.load(weights)?;
        Ok(session)
    }

    fn load(&mut self, weights: &dyn Stored) -> Result<(), RunError> {
        self.start_states(weights)?;
        for value in self.ports(|program| &program.weights) {
            let mut blocks = Blocks::default();
            for (rank, port) in self.lacking(&value) {
                let type_ = self.ranks[rank].program.buffer(port.buffer).type_.clone();
                let make = || {
                    expect_type(&port.name, &type_of(weights, &port.name)?, &port.type_)?;
                    port_block(weights, &port, &type_)
                };
                self.put(rank, port.buffer, blocks.block(&port, make)?)?;
            }
        }
        // Ranks of a stage share what they prepare.
        let mut stages: Vec<(Arc<[Preparation]>, Vec<usize>)> = Vec::new();
        for (number, rank) in self.ranks.iter().enumerate() {
            let preparation = &rank.program.preparation;
            match stages.iter_mut().find(|(known, _)| known == preparation) {
                Some((_, ranks)) => ranks.push(number),
                None => stages.push((Arc::clone(preparation), vec![number])),
            }
        }
        for (preparation, ranks) in stages {
            self.prepare(weights, &preparation, &ranks)?;
        }
        Ok(())
    }

    /// Gives these ranks their blocks of what they prepare.
    fn prepare(
        &mut self,
        weights: &dyn Stored,
        preparation: &[Preparation],
        ranks: &[usize],
    ) -> Result<(), RunError> {
        let values = self.ports(|program| &program.prepared).into_iter();
        let values: Vec<Vec<(usize, Port)>> = values
            .map(|value| self.lacking(&value).into_iter().filter(|(it, _)| ranks.contains(it)).collect())
            .collect();
        let ports: Vec<&Port> = values.iter().flatten().map(|(_, port)| port).collect();
        let prepared = Prepared::new(weights, preparation, &ports)?;
        for value in &values {
            let mut blocks = Blocks::default();
            for (rank, port) in value {
                let type_ = self.ranks[*rank].program.buffer(port.buffer).type_.clone();
                let block = blocks.block(port, || prepared.block(port, &type_))?;
                self.put(*rank, port.buffer, block)?;
            }
        }
        Ok(())
    }

    /// The ranks that are here and have some of a value, but have it not at rest yet.
    fn lacking(&self, value: &Held) -> Vec<(usize, Port)> {
        let here = value.ports.iter().filter(|(rank, ..)| self.is_here(*rank));
        let lacking = here.filter(|(rank, _, port)| !self.has(*rank, port.buffer));
        lacking.map(|(rank, _, port)| (*rank, port.clone())).collect()
    }

    /// Runs one step of a program that has no micro-batches.
    pub fn step(&mut self, inputs: &BTreeMap<String, Array>) -> Result<Outcome, RunError> {
        self.train(&[], inputs)
    }

    /// Runs one training step: for each micro-batch its inputs, and the inputs of the step.
    ///
    /// If a rank fails in a micro-batch, states that last are as before.
    pub fn train(
        &mut self,
        micro_batches: &[BTreeMap<String, Array>],
        inputs: &BTreeMap<String, Array>,
    ) -> Result<Outcome, RunError> {
        let outcome = self.trained(micro_batches, inputs)?;
        self.carry()?;
        Ok(outcome)
    }

    fn trained(
        &mut self,
        micro_batches: &[BTreeMap<String, Array>],
        inputs: &BTreeMap<String, Array>,
    ) -> Result<Outcome, RunError> {
        self.make_room(None)?;
        for value in self.ports(|program| program.inputs.iter()) {
            if self.kept_inputs.contains(&value.name) {
                continue;
            }
            for (rank, feed) in self.feeds(&value, inputs)?.into_iter().enumerate() {
                for (buffer, block) in feed {
                    self.put(rank, buffer, block)?;
                }
            }
        }
        let expected =
            self.ranks.first().and_then(|it| it.program.repeated.as_ref()).map_or(0, |it| it.times);
        if u64::try_from(micro_batches.len()) != Ok(expected) {
            return Err(RunError::MicroBatches(micro_batches.len(), expected));
        }
        let repeated = self.ports(|program| program.repeated.iter().flat_map(|it| &it.inputs));
        let mut feeds: Vec<Vec<Feed>> = vec![vec![Feed::new(); micro_batches.len()]; self.ranks.len()];
        for (number, inputs) in micro_batches.iter().enumerate() {
            for value in &repeated {
                for (rank, feed) in self.feeds(value, inputs)?.into_iter().enumerate() {
                    feeds[rank][number].extend(feed);
                }
            }
        }
        let here = self.run_ranks(&feeds)?;
        if !self.leads() {
            return self.followed(here);
        }
        let done = self.reports(here);
        let seconds = done.iter().map(|it| it.seconds).fold(0.0, f64::max);
        let reports: Vec<Report> = done.into_iter().map(|it| it.report).collect();
        let mut instructions = vec![0_f64; reports.iter().map(|it| it.seconds.len()).max().unwrap_or(0)];
        for report in &reports {
            for (longest, &seconds) in instructions.iter_mut().zip(&report.seconds) {
                *longest = longest.max(seconds);
            }
        }
        let updated = reports.iter().all(|report| report.complete);
        let (outputs, received) = (self.outputs()?, self.received(&reports));
        self.go_on(0);
        Ok(Outcome { outputs, received, updated, seconds, instructions })
    }

    /// What a step leaves in a process that does not lead, once the first one has what it asks for.
    fn followed(&self, here: Vec<Done>) -> Result<Outcome, RunError> {
        self.answer(here.first())?;
        let Done { report, seconds } = here.into_iter().next().unwrap_or_default();
        Ok(Outcome {
            outputs: BTreeMap::new(),
            received: Vec::new(),
            updated: report.complete,
            seconds,
            instructions: report.seconds,
        })
    }

    /// For each rank, its blocks of an input.
    fn feeds(&self, value: &Held, inputs: &BTreeMap<String, Array>) -> Result<Vec<Feed>, RunError> {
        let whole = inputs.get(&value.name).ok_or_else(|| RunError::Missing(value.name.clone()))?;
        expect_type(&value.name, whole.type_(), &value.type_)?;
        let mut blocks = Blocks::default();
        let mut feeds = vec![Feed::new(); self.ranks.len()];
        for (rank, _, port) in value.ports.iter().filter(|(rank, ..)| self.is_here(*rank)) {
            let type_ = &self.ranks[*rank].program.buffer(port.buffer).type_;
            feeds[*rank].push((port.buffer, blocks.block(port, || cut(whole, port, type_))?));
        }
        Ok(feeds)
    }

    /// The steps of the ranks here.
    fn run_ranks(&mut self, feeds: &[Vec<Feed>]) -> Result<Vec<Done>, RunError> {
        let start = Instant::now();
        if let Some(processes) = &self.processes {
            processes.flight.step(self.recorded);
        }
        let done = |reports: Vec<Report>| -> Vec<Done> {
            let seconds = start.elapsed().as_secs_f64();
            reports.into_iter().map(|report| Done { report, seconds }).collect()
        };
        if let Some(seat) = &self.engine {
            return Ok(done(seat.step(feeds)?));
        }
        let Some(processes) = self.processes.clone() else {
            return Ok(done(self.run_threads(feeds)?));
        };
        let number = usize::try_from(processes.rank()).unwrap_or(usize::MAX);
        let (meetings, places) = (&self.meetings, &self.places[number]);
        let mut peers = Peers { processes: &processes, places, meetings, given: Vec::new() };
        match self.ranks[number].step(&feeds[number], &mut peers) {
            Ok(report) => Ok(done(vec![report])),
            Err(Halt::Failed(error)) => Err(error),
            // Processes do not give up: they are ended.
            Err(Halt::GivenUp) => Err(RunError::Panicked(processes.rank())),
        }
    }

    /// All ranks' steps, each on a thread if there are several; the first error if there is one.
    fn run_threads(&mut self, feeds: &[Vec<Feed>]) -> Result<Vec<Report>, RunError> {
        let Self { ranks, places, meetings, mail, .. } = self;
        let (meetings, mail) = (&*meetings, &*mail);
        let (failure, first) = (Failure::default(), Mutex::new(None));
        let fail = |error: RunError| {
            if let Ok(mut first) = first.lock() {
                first.get_or_insert(error);
            }
            give_up(&failure, meetings, mail);
        };
        let mut reports = Vec::new();
        thread::scope(|scope| {
            let (failure, fail) = (&failure, &fail);
            let step = |rank: &mut Rank, places: &[(usize, usize)], feeds: &[Feed]| {
                let _alarm = Alarm { rank: rank.program.rank, fail };
                let (rounds, number) = (vec![0; places.len()], rank.program.rank);
                let mut threads = Threads { rank: number, places, meetings, mail, failure, rounds };
                match rank.step(feeds, &mut threads) {
                    Ok(report) => Some(report),
                    Err(Halt::GivenUp) => None,
                    Err(Halt::Failed(error)) => {
                        fail(error);
                        None
                    }
                }
            };
            // A rank that is alone needs no thread of its own: starting one takes longer than many
            // operations do.
            if let ([only], [places], [feeds]) = (ranks.as_mut_slice(), places.as_slice(), feeds) {
                reports.extend(step(only, places, feeds));
                return;
            }
            let ranks = ranks.iter_mut().zip(&*places).zip(feeds);
            // Those that have a thread would wait for one that has none.
            let threads = ranks.map_while(|((rank, places), feeds)| {
                let number = rank.program.rank;
                let thread = thread::Builder::new().spawn_scoped(scope, move || step(rank, places, feeds));
                thread.map_err(|error| fail(RunError::Thread(number, error.to_string()))).ok()
            });
            for thread in threads.collect::<Vec<_>>() {
                // The panic itself is reported by the alarm.
                reports.extend(thread.join().unwrap_or_default());
            }
        });
        let error = first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        match error {
            None => Ok(reports),
            Some(error) => {
                // Some may have been left in the middle of a round.
                self.meetings = self.meetings.iter().map(|it| Meeting::new(it.members.clone())).collect();
                self.mail.clear();
                Err(error)
            }
        }
    }

    /// The values of ports, each once, with the ranks that have one.
    pub(crate) fn ports<'a, P: IntoIterator<Item = &'a Port>>(
        &'a self,
        of: impl Fn(&'a Program) -> P,
    ) -> Vec<Held> {
        let mut values: Vec<Held> = Vec::new();
        let mut places: BTreeMap<(Option<StateKind>, Option<ValueId>, String), usize> = BTreeMap::new();
        for (number, rank) in self.ranks.iter().enumerate() {
            for (index, port) in of(&rank.program).into_iter().enumerate() {
                // Stages of a pipeline have numbers of their own for what names say.
                let kind = rank.program.storage(port.buffer).kind;
                let named = matches!(kind, Kind::Input | Kind::Weight | Kind::State(_));
                let key = (kind.state(), (!named).then_some(port.value), port.name.clone());
                let place = *places.entry(key).or_insert_with(|| {
                    let Port { name, type_, .. } = port.clone();
                    values.push(Held { name, type_, ports: Vec::new() });
                    values.len() - 1
                });
                values[place].ports.push((number, index, port.clone()));
            }
        }
        values
    }

    fn outputs(&self) -> Result<BTreeMap<String, Array>, RunError> {
        let mut outputs = BTreeMap::new();
        for value in self.ports(|program| &program.outputs) {
            if self.kept_outputs.contains(&value.name) {
                continue;
            }
            let mut joined = Joined::new(&value.name, &value.type_)?;
            let bytes = |(number, index, port): &(usize, usize, Port)| {
                self.bytes(*number, port, Ask::Output(*index), || self.output_of(*number, port))
            };
            let all = value.ports.iter().map(bytes).collect::<Result<Vec<_>, _>>()?;
            for ((number, _, port), bytes) in value.ports.iter().zip(&all) {
                joined.add(port, self.ranks[*number].program.rank, bytes)?;
            }
            let whole = joined.finish(&value.name)?;
            outputs.insert(value.name, whole);
        }
        Ok(outputs)
    }
}

/// A value that enters or leaves, and the ranks that have some of it.
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) type_: Type,
    /// Which rank, which of its ports, the port.
    pub(crate) ports: Vec<(usize, usize, Port)>,
}

/// Tells the others when a rank panics.
struct Alarm<'a, F: Fn(RunError)> {
    rank: u64,
    fail: &'a F,
}

impl<F: Fn(RunError)> Drop for Alarm<'_, F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.fail)(RunError::Panicked(self.rank));
        }
    }
}

/// For each rank, for each of its communicators, which meeting it is and which member the rank.
type Places = Vec<Vec<(usize, usize)>>;

/// The meetings of all communicators, and the ranks' places in them.
fn meetings(programs: &[Program]) -> Result<(Vec<Meeting>, Places), RunError> {
    let mut meetings = Vec::new();
    let mut numbers: BTreeMap<(usize, &[u64]), usize> = BTreeMap::new();
    let mut places = Vec::new();
    for program in programs {
        let mut own = Vec::new();
        for (communicator, members) in program.communicators.iter().enumerate() {
            let number = *numbers.entry((communicator, members)).or_insert_with(|| {
                meetings.push(Meeting::new(members.clone()));
                meetings.len() - 1
            });
            let member = members.iter().position(|&member| member == program.rank);
            let stranger = || RunError::Program(format!("rank {} is not in its communicator", program.rank));
            own.push((number, member.ok_or_else(stranger)?));
        }
        places.push(own);
    }
    Ok((meetings, places))
}
