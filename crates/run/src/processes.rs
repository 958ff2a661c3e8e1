//! Ranks that are processes, which a launcher has started.
//!
//! The processes of a step know the programs of all ranks, and each has the memory of its own. The
//! first one leads: it asks the others for what it puts together, and they answer until it lets them
//! go on.

mod link; // how bytes get from process to process
#[cfg(feature = "mpi")]
mod mpi; // through MPI
mod join; // as whom a process joins the others, and why it cannot
mod tcp; // over connections of their own
mod flight; // what a process has done last
mod culprit; // who is the reason where a wait is too long
mod on_device; // what devices of ranks that are processes say and ask

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use flight::Ended;
pub use join::{Interface, JoinError, Joining, MOST_RANKS};

use culprit::{Wait, culprit};
use flight::Flight;
use link::{Ending, Link};

use crate::meeting::Meeting;
use crate::transport::{GivenUp, Taken, Transport};

/// The exit code of a process that panicked.
const PANICKED: u8 = 3;
/// The exit code where ranks have not found each other.
pub const NOT_JOINED: u8 = 4;
/// The exit code where a rank is lost.
pub const LOST: u8 = 5;
/// The exit code where a rank has waited for too long.
pub const WAITED: u8 = 6;

/// What a message is about. Rounds of communicators have the tags that follow.
#[derive(Clone, Copy)]
enum Tag {
    /// It is sent from stage to stage.
    Mail,
    /// The first rank asks.
    Ask,
    /// Another one answers.
    Answer,
    /// The ranks say what they are about to do.
    Said,
    /// A round of the communicator of this number.
    Round(usize),
}

impl Tag {
    fn number(self) -> i32 {
        match self {
            Self::Mail => 0,
            Self::Ask => 1,
            Self::Answer => 2,
            Self::Said => 3,
            // MPI has at least 32767 tags; more communicators than that there are not.
            Self::Round(number) => i32::try_from(number).unwrap_or(i32::MAX).saturating_add(4),
        }
    }
}

/// This process among those that a launcher has started, one for each rank.
///
/// A panic of one ends all.
pub struct Processes {
    link: Box<dyn Link>,
    patience: Duration,
    pub(crate) flight: Arc<Flight>,
}

impl Processes {
    /// Joins the others through MPI. A process that waits for another one longer than the limit says
    /// so and ends all.
    pub fn through_mpi(limit: Duration, ended: Ended) -> Result<Self, JoinError> {
        let flight = Arc::new(Flight::new(ended));
        #[cfg(feature = "mpi")]
        return Ok(Self { link: Box::new(mpi::Mpi::join()?), patience: limit, flight });
        #[cfg(not(feature = "mpi"))]
        {
            // Without MPI nobody waits and nothing ends.
            let _ = (limit, flight);
            Err(JoinError::Absent)
        }
    }

    /// Joins the others over TCP, encrypted. A process that waits for another one longer than the
    /// limit says so and ends all.
    pub fn over_tcp(joining: &Joining, limit: Duration, ended: Ended) -> Result<Self, JoinError> {
        let flight = Arc::new(Flight::new(ended));
        Ok(Self { link: Box::new(tcp::Tcp::join(joining, &flight)?), patience: limit, flight })
    }

    /// Which rank this process is.
    pub fn rank(&self) -> u64 {
        self.link.rank()
    }

    /// How many there are.
    pub fn size(&self) -> u64 {
        self.link.size()
    }

    /// Whether this process is the first one, which prints and writes.
    pub fn leads(&self) -> bool {
        self.rank() == 0
    }

    /// What each process says, in the order of ranks: all of them call this at the same place.
    pub fn said(&self, own: &[u8]) -> Vec<Vec<u8>> {
        // What is said by a process is short.
        let length = u64::try_from(own.len()).unwrap_or(u64::MAX).to_le_bytes();
        let lengths = self.all(&length, vec![vec![0; length.len()]; self.count()]);
        let empty = |length: Vec<u8>| {
            let length = length.try_into().map_or(0, u64::from_le_bytes);
            vec![0; usize::try_from(length).unwrap_or(usize::MAX)]
        };
        self.all(own, lengths.into_iter().map(empty).collect())
    }

    /// Ends all processes with an exit code, for a failure of this one. Where several fail at the same
    /// time, one says why.
    pub fn end(&self, code: u8, words: &str) -> ! {
        self.link.end(&Ending { code, words, culprit: self.rank() }, &self.flight)
    }

    fn count(&self) -> usize {
        usize::try_from(self.size()).unwrap_or(usize::MAX)
    }

    /// What all give to all.
    fn all(&self, own: &[u8], mut given: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let rank = self.rank();
        let sends: Vec<(u64, &[u8])> =
            (0..self.size()).filter(|&to| to != rank).map(|to| (to, own)).collect();
        let mut receives = Vec::new();
        for (from, bytes) in (0..).zip(&mut given) {
            if from == rank {
                bytes.copy_from_slice(own);
            } else {
                receives.push((from, bytes.as_mut_slice()));
            }
        }
        self.exchange(Tag::Said, &sends, receives);
        given
    }

    /// Sends to some and receives from some, until all of it is done.
    fn exchange(&self, tag: Tag, sends: &[(u64, &[u8])], receives: Vec<(u64, &mut [u8])>) {
        let from: Vec<u64> = receives.iter().map(|it| it.0).collect();
        let waits = !from.is_empty();
        if waits {
            self.flight.waits(from);
        }
        self.link.exchange(tag.number(), sends, receives, self.patience, &|ranks| self.waited(ranks));
        if waits {
            self.flight.goes();
        }
    }

    fn waited(&self, ranks: &[u64]) -> ! {
        let doing = |rank| self.link.doing(rank);
        let host = |rank| self.link.host(rank);
        let wait = Wait { own: self.rank(), ranks, seconds: self.patience.as_secs() };
        let (culprit, words) = culprit(&wait, &doing, &host);
        self.link.end(&Ending { code: WAITED, words: &words, culprit }, &self.flight)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.end(PANICKED, &format!("rank {} panicked", self.rank()));
        }
    }
}

/// What the first rank asks another one for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What it reports of the step.
    Report,
    /// Its block of the output of this number.
    Output(usize),
    /// Its block of the state of this number.
    State(usize),
    /// Nothing more; with a number for the others.
    GoOn(u64),
}

/// How many bytes a question has.
const ASK: usize = 16;

impl Ask {
    fn bytes(self) -> [u8; ASK] {
        // Numbers of ports always fit.
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        let (kind, number) = match self {
            Self::Report => (0, 0),
            Self::Output(port) => (1, number(port)),
            Self::State(port) => (2, number(port)),
            Self::GoOn(number) => (3, number),
        };
        (u128::from(number) << u64::BITS | kind).to_le_bytes()
    }

    fn of(bytes: [u8; ASK]) -> Self {
        let both = u128::from_le_bytes(bytes);
        let number = u64::try_from(both >> u64::BITS).unwrap_or(u64::MAX);
        let port = usize::try_from(number).unwrap_or(usize::MAX);
        match both % 4 {
            0 => Self::Report,
            1 => Self::Output(port),
            2 => Self::State(port),
            _ => Self::GoOn(number),
        }
    }
}

impl Processes {
    /// Asks another rank for so many bytes.
    pub(crate) fn ask(&self, rank: u64, ask: Ask, length: usize) -> Vec<u8> {
        self.exchange(Tag::Ask, &[(rank, &ask.bytes())], Vec::new());
        let mut answer = vec![0; length];
        self.exchange(Tag::Answer, &[], vec![(rank, &mut answer)]);
        answer
    }

    /// Lets the other ranks go on.
    pub(crate) fn go_on(&self, number: u64) {
        let ask = Ask::GoOn(number).bytes();
        let sends: Vec<(u64, &[u8])> = (1..self.size()).map(|rank| (rank, ask.as_slice())).collect();
        self.exchange(Tag::Ask, &sends, Vec::new());
    }

    /// What the first rank asks.
    pub(crate) fn asked(&self) -> Ask {
        let mut ask = [0; ASK];
        self.exchange(Tag::Ask, &[], vec![(0, &mut ask)]);
        Ask::of(ask)
    }

    /// Answers the first rank.
    pub(crate) fn answer(&self, bytes: &[u8]) {
        self.exchange(Tag::Answer, &[(0, bytes)], Vec::new());
    }
}

/// A rank among processes, in one step.
pub(crate) struct Peers<'a> {
    pub(crate) processes: &'a Processes,
    /// For each of its communicators, which one of all ranks' it is and which member the rank.
    pub(crate) places: &'a [(usize, usize)],
    /// The communicators of all ranks.
    pub(crate) meetings: &'a [Meeting],
    /// What has been put down in the last round.
    pub(crate) given: Vec<u8>,
}

impl Transport for Peers<'_> {
    fn begins(&self, instruction: usize, micro_batch: u64) {
        self.processes.flight.begins(instruction, micro_batch);
    }

    fn number(&self, communicator: usize) -> usize {
        self.places[communicator].1
    }

    fn put(&mut self, _: usize, bytes: &[u8]) -> Result<(), GivenUp> {
        self.given.clear();
        self.given.extend_from_slice(bytes);
        Ok(())
    }

    fn take(
        &mut self,
        communicator: usize,
        gives: &[(usize, Range<usize>)],
        takes: Vec<Taken<'_>>,
    ) -> Result<(), GivenUp> {
        let (meeting, own) = self.places[communicator];
        let members = &self.meetings[meeting].members;
        let sends: Vec<(u64, &[u8])> =
            gives.iter().map(|(member, part)| (members[*member], &self.given[part.clone()])).collect();
        let mut receives = Vec::with_capacity(takes.len());
        for Taken { member, part, into } in takes {
            if member == own {
                into.copy_from_slice(&self.given[part]);
            } else {
                receives.push((members[member], into));
            }
        }
        self.processes.exchange(Tag::Round(meeting), &sends, receives);
        Ok(())
    }

    fn send(&mut self, to: u64, bytes: Vec<u8>) -> Option<()> {
        self.processes.link.send(Tag::Mail.number(), to, bytes);
        Some(())
    }

    fn receive(&mut self, from: u64, length: usize) -> Option<Result<Vec<u8>, GivenUp>> {
        let mut bytes = vec![0; length];
        self.processes.exchange(Tag::Mail, &[], vec![(from, &mut bytes)]);
        Some(Ok(bytes))
    }
}
