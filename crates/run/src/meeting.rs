//! Ranks that wait for one another, and give up together.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::failure::Failure;
use crate::mail::Mail;
use crate::transport::GivenUp;

/// Wakes everybody who waits in these meetings or for mail, and everybody who will: a rank has failed.
pub(crate) fn give_up(failure: &Failure, meetings: &[Meeting], mail: &Mail) {
    failure.set();
    mail.wake();
    for meeting in meetings {
        // With the lock held, nobody is between looking at the failure and waiting.
        let state = meeting.state();
        meeting.moved.notify_all();
        drop(state);
    }
}

/// The ranks of a communicator.
///
/// In each round every member puts down bytes and then, when all have, looks at those of the
/// others. Rounds use two sets of places in turn: nobody puts bytes into one before all have come
/// to the round after, and so are done with what was there.
pub(crate) struct Meeting {
    /// Who, in the order of their blocks.
    pub(crate) members: Vec<u64>,
    state: Mutex<State>,
    moved: Condvar,
    places: Vec<[RwLock<Vec<u8>>; 2]>,
}

struct State {
    /// How many members have come to this round.
    arrived: usize,
    /// How many rounds are over.
    rounds: u64,
}

impl Meeting {
    pub(crate) fn new(members: Vec<u64>) -> Self {
        let places = members.iter().map(|_| [RwLock::default(), RwLock::default()]).collect();
        let state = Mutex::new(State { arrived: 0, rounds: 0 });
        Self { members, state, moved: Condvar::new(), places }
    }

    /// Puts down what a member gives in a round and waits for the others.
    pub(crate) fn give(
        &self,
        member: usize,
        round: usize,
        bytes: &[u8],
        failure: &Failure,
    ) -> Result<(), GivenUp> {
        let mut place = self.places[member][round % 2].write().unwrap_or_else(PoisonError::into_inner);
        place.clear();
        place.extend_from_slice(bytes);
        drop(place);
        self.wait(failure)
    }

    /// What a member has put down in a round.
    pub(crate) fn given(&self, member: usize, round: usize) -> RwLockReadGuard<'_, Vec<u8>> {
        self.places[member][round % 2].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, failure: &Failure) -> Result<(), GivenUp> {
        let mut state = self.state();
        let round = state.rounds;
        state.arrived += 1;
        if state.arrived == self.members.len() {
            state.arrived = 0;
            state.rounds += 1;
            self.moved.notify_all();
            return Ok(());
        }
        while state.rounds == round {
            if failure.is_set() {
                return Err(GivenUp);
            }
            state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}
