//! Processes that are connected to each other by TCP, each to each.
//!
//! For each other rank a thread writes and a thread reads. Whoever writes nothing else gives a sign of
//! life, with what its rank does; whoever hears nothing for too long, or finds a connection closed,
//! ends all. Of those that notice, the first rank says so.

mod secure; // a connection that nobody else can read or write
mod frame; // what two processes say to each other
mod door; // a place where ranks come in, and strangers do not
mod call; // how a rank comes to another one
mod rendezvous; // how processes find each other
mod post; // what came and what goes, and who is left

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use post::{Parcel, Post};

use super::flight::{Doing, Flight};
use super::join::{JoinError, Joining};
use super::link::{Ending, Link};

/// The way to other processes.
pub(super) struct Tcp {
    post: Arc<Post>,
}

impl Tcp {
    pub(super) fn join(joining: &Joining, flight: &Arc<Flight>) -> Result<Self, JoinError> {
        Ok(Self { post: rendezvous::join(joining, flight)? })
    }
}

impl Link for Tcp {
    fn rank(&self) -> u64 {
        self.post.rank
    }

    fn size(&self) -> u64 {
        self.post.size()
    }

    fn exchange(
        &self,
        tag: i32,
        sends: &[(u64, &[u8])],
        receives: Vec<(u64, &mut [u8])>,
        patience: Duration,
        waited: &dyn Fn(&[u64]),
    ) {
        for (to, bytes) in sends {
            self.post.send(*to, Parcel::Message(tag, bytes.to_vec()));
        }
        let deadline = Instant::now() + patience;
        let from: Vec<u64> = receives.iter().map(|it| it.0).collect();
        for (number, (rank, into)) in receives.into_iter().enumerate() {
            let Some(bytes) = self.post.take(rank, tag, deadline) else {
                waited(&from[number..]);
                return;
            };
            // Programs that were compared say how many bytes there are.
            assert_eq!(bytes.len(), into.len(), "rank {rank} sends another number of bytes");
            into.copy_from_slice(&bytes);
        }
    }

    fn send(&self, tag: i32, to: u64, bytes: Vec<u8>) {
        self.post.send(to, Parcel::Message(tag, bytes));
    }

    fn doing(&self, rank: u64) -> Option<Doing> {
        self.post.doing(rank)
    }

    fn host(&self, rank: u64) -> Option<String> {
        self.post.host(rank)
    }

    fn end(&self, ending: &Ending<'_>, _: &Flight) -> ! {
        self.post.end(ending)
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        // A panic ends all before this.
        if !thread::panicking() {
            self.post.leave_at_end();
        }
    }
}

#[cfg(test)]
mod tests;
