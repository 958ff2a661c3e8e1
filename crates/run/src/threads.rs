//! Ranks that are threads of this process.

use std::ops::Range;

use crate::failure::Failure;
use crate::mail::Mail;
use crate::meeting::Meeting;
use crate::transport::{GivenUp, Taken, Transport};

/// A rank among threads, in one step.
pub(crate) struct Threads<'a> {
    /// Which rank.
    pub(crate) rank: u64,
    /// For each of its communicators, which meeting it is and which member the rank.
    pub(crate) places: &'a [(usize, usize)],
    /// The meetings of all ranks.
    pub(crate) meetings: &'a [Meeting],
    /// What ranks send each other.
    pub(crate) mail: &'a Mail,
    /// Whether a rank has failed.
    pub(crate) failure: &'a Failure,
    /// For each communicator, in how many rounds the rank has taken part.
    pub(crate) rounds: Vec<usize>,
}

impl Transport for Threads<'_> {
    fn number(&self, communicator: usize) -> usize {
        self.places[communicator].1
    }

    fn put(&mut self, communicator: usize, bytes: &[u8]) -> Result<(), GivenUp> {
        let (meeting, member) = self.places[communicator];
        self.rounds[communicator] += 1;
        self.meetings[meeting].give(member, self.rounds[communicator], bytes, self.failure)
    }

    fn take(
        &mut self,
        communicator: usize,
        _: &[(usize, Range<usize>)],
        takes: Vec<Taken<'_>>,
    ) -> Result<(), GivenUp> {
        let (meeting, _) = self.places[communicator];
        for Taken { member, part, into } in takes {
            let given = self.meetings[meeting].given(member, self.rounds[communicator]);
            into.copy_from_slice(&given[part]);
        }
        Ok(())
    }

    fn send(&mut self, to: u64, bytes: Vec<u8>) -> Option<()> {
        self.mail.send(self.rank, to, bytes)
    }

    fn receive(&mut self, from: u64, _: usize) -> Option<Result<Vec<u8>, GivenUp>> {
        self.mail.take(from, self.rank, self.failure)
    }
}
