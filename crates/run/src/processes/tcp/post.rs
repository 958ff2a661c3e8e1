//! What has come from other processes and what goes to them, and which of them are left.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::process::exit;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::Frame;
use super::secure::{Opener, Sealer, is_end, is_late};
use crate::processes::LOST;
use crate::processes::flight::{Doing, Flight};
use crate::processes::join::Joining;
use crate::processes::link::Ending;

/// The longest time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// In how many parts of the time after which a rank counts as lost it gives signs of life.
const BEATS: u32 = 4;

/// How long a process that ends all waits until the others have heard of it.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long a rank that fails lets those before it speak first, which may have failed alike.
const FAILED_TOO: Duration = Duration::from_millis(300);

/// What goes to another process.
pub(super) enum Parcel {
    /// A message with a tag.
    Message(i32, Vec<u8>),
    /// All processes end, with an exit code.
    Abort(u8),
    /// Nothing more.
    Goodbye,
}

/// What is known of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It has not come yet.
    Awaited,
    /// It lives.
    Here,
    /// It has said that it will say nothing more.
    Left,
    /// It has said that all end, with what exit code.
    Ended(u8),
    /// It is gone without a word.
    Lost,
}

/// What is known of all other processes.
struct State {
    /// What has come and was not taken, by rank and tag.
    came: BTreeMap<(u64, i32), VecDeque<Vec<u8>>>,
    fates: Vec<Fate>,
    /// The names of their hosts.
    hosts: Vec<String>,
    /// The ways to those that have come.
    goes: Vec<Option<Sender<Parcel>>>,
    doing: Vec<Option<Doing>>,
    /// For which processes all that was to be written is written.
    written: Vec<bool>,
    /// Whether this process is about to end: by one thread.
    ends: bool,
}

/// What comes and goes.
pub(super) struct Post {
    pub(super) rank: u64,
    silence: Duration,
    flight: Arc<Flight>,
    state: Mutex<State>,
    moved: Condvar,
}

impl Post {
    /// One for a rank whom no other one has reached yet.
    pub(super) fn open(joining: &Joining, flight: &Arc<Flight>) -> Arc<Self> {
        let count = place(joining.size);
        let mut fates = vec![Fate::Awaited; count];
        fates[place(joining.rank)] = Fate::Left;
        let state = State {
            came: BTreeMap::new(),
            fates,
            hosts: vec![joining.host.clone(); count],
            goes: (0..count).map(|_| None).collect(),
            doing: vec![None; count],
            written: vec![true; count],
            ends: false,
        };
        Arc::new(Self {
            rank: joining.rank,
            silence: joining.silence,
            flight: Arc::clone(flight),
            state: Mutex::new(state),
            moved: Condvar::new(),
        })
    }

    /// Starts to write to a rank and to read what it writes: from now on both have to give signs of life.
    pub(super) fn add(self: &Arc<Self>, rank: u64, opener: Opener, sealer: Sealer) -> io::Result<()> {
        let rank = place(rank);
        opener.let_wait()?;
        let (sender, receiver) = mpsc::channel();
        let mut state = self.state();
        state.goes[rank] = Some(sender);
        state.fates[rank] = Fate::Here;
        state.written[rank] = false;
        drop(state);
        let (reads, writes) = (Arc::clone(self), Arc::clone(self));
        thread::Builder::new().spawn(move || writes.write(rank, sealer, &receiver))?;
        thread::Builder::new().spawn(move || reads.read(rank, opener))?;
        Ok(())
    }

    /// The first rank that has not come, if there is one.
    pub(super) fn awaited(&self) -> Option<u64> {
        (0..).zip(&self.state().fates).find(|it| *it.1 == Fate::Awaited).map(|it| it.0)
    }

    /// Whether a rank has yet to come.
    pub(super) fn awaits(&self, rank: u64) -> bool {
        self.state().fates.get(place(rank)) == Some(&Fate::Awaited)
    }

    /// Names the host of a rank.
    pub(super) fn set_host(&self, rank: u64, host: String) {
        if let Some(it) = self.state().hosts.get_mut(place(rank)) {
            *it = host;
        }
    }

    /// The name of the host of a rank.
    pub(super) fn host(&self, rank: u64) -> Option<String> {
        self.state().hosts.get(place(rank)).cloned()
    }

    /// How many ranks there are.
    pub(super) fn size(&self) -> u64 {
        u64::try_from(self.state().fates.len()).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is so, or the time is over.
    fn wait<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
        until: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let mut state = state;
        while !until(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.moved.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// Sends, without waiting.
    pub(super) fn send(&self, to: u64, parcel: Parcel) {
        // Where a connection is gone, the thread that has noticed ends this process.
        let _ = self.state().goes.get(place(to)).and_then(Option::as_ref).map(|it| it.send(parcel));
    }

    /// The next message of a rank with a tag; nothing if it does not come in time.
    pub(super) fn take(&self, from: u64, tag: i32, deadline: Instant) -> Option<Vec<u8>> {
        let key = (from, tag);
        let has_come = |state: &State| state.came.get(&key).is_some_and(|it| !it.is_empty());
        self.wait(self.state(), deadline, has_come).came.get_mut(&key)?.pop_front()
    }

    /// What a rank has last said that it does.
    pub(super) fn doing(&self, rank: u64) -> Option<Doing> {
        self.state().doing.get(place(rank)).copied().flatten()
    }

    /// Sends to all that have come.
    pub(super) fn send_all(&self, parcel: impl Fn() -> Parcel) {
        (0..self.size()).for_each(|rank| self.send(rank, parcel()));
    }

    /// What a thread does that writes.
    fn write(&self, rank: usize, mut sealer: Sealer, parcels: &Receiver<Parcel>) {
        let beat = BEAT.min(self.silence / BEATS);
        // A rank that takes nothing for so long gives no sign of life either.
        let _ = sealer.set_silence(Some(self.silence));
        let mut step = || -> io::Result<bool> {
            match parcels.recv_timeout(beat) {
                Ok(Parcel::Message(tag, bytes)) => sealer.message(tag, &bytes).map(|()| true),
                Ok(Parcel::Abort(code)) => sealer.abort(code).map(|()| false),
                Ok(Parcel::Goodbye) => sealer.goodbye().map(|()| false),
                Err(RecvTimeoutError::Timeout) => sealer.beat(self.flight.doing()).map(|()| true),
                Err(RecvTimeoutError::Disconnected) => Ok(false),
            }
        };
        loop {
            match step() {
                Ok(true) => {}
                // One that takes nothing is lost, though it may still say something.
                Err(error) if is_late(&error) => return self.gone(rank, self.broken(rank, &error)),
                // What is broken is noticed by the thread that reads: there may be last words.
                Ok(false) | Err(_) => break,
            }
        }
        sealer.finish();
        self.state().written[rank] = true;
        self.moved.notify_all();
    }

    /// What a thread does that reads.
    fn read(&self, rank: usize, mut opener: Opener) {
        let from = u64::try_from(rank).unwrap_or(u64::MAX);
        let fate = match opener.set_silence(Some(self.silence)) {
            Err(error) => self.broken(rank, &error),
            Ok(()) => loop {
                match opener.next(usize::MAX) {
                    Ok(Frame::Message(tag, bytes)) => {
                        self.state().came.entry((from, tag)).or_default().push_back(bytes);
                        self.moved.notify_all();
                    }
                    Ok(Frame::Beat(doing)) => self.state().doing[rank] = Some(doing),
                    Ok(Frame::Abort(code)) => break Ok(Fate::Ended(code)),
                    Ok(Frame::Goodbye) => break Ok(Fate::Left),
                    Err(error) => break self.broken(rank, &error),
                }
            },
        };
        self.gone(rank, fate);
    }

    /// A rank will say nothing more, for a reason, or for another one in words.
    fn gone(&self, rank: usize, fate: Result<Fate, String>) {
        let mut state = self.state();
        state.fates[rank] = *fate.as_ref().unwrap_or(&Fate::Lost);
        self.moved.notify_all();
        let ends = state.ends;
        state.ends = ends || fate != Ok(Fate::Left);
        drop(state);
        match fate {
            Ok(Fate::Ended(code)) if !ends => self.follow(code),
            Err(words) if !ends => {
                let culprit = u64::try_from(rank).unwrap_or(u64::MAX);
                self.end_first(&Ending { code: LOST, words: &words, culprit })
            }
            _ => {}
        }
    }

    /// What is said of a rank whose connection is of no use any more.
    fn broken(&self, rank: usize, error: &io::Error) -> Result<Fate, String> {
        let host = self.state().hosts[rank].clone();
        Err(match () {
            _ if is_late(error) => {
                let seconds = self.silence.as_secs_f64();
                format!("rank {rank} on `{host}` has given no sign of life for {seconds} s")
            }
            _ if is_end(error) => format!("rank {rank} on `{host}` is gone: its connection has ended"),
            _ => format!("rank {rank} on `{host}` cannot be understood: {error}"),
        })
    }

    /// Ends this process, since another one has said so. That one has said why.
    fn follow(&self, code: u8) -> ! {
        self.flight.ended(None, code);
        self.part(code)
    }

    /// Tells all others that all end, and ends this process. Those who follow tell it too: whoever sees their
    /// connections end before he has heard of the end of all would take them for lost.
    fn part(&self, code: u8) -> ! {
        self.send_all(|| Parcel::Abort(code));
        // What is written may still be on its way: whoever has got it closes the connection.
        drop(self.wait(self.state(), Instant::now() + LAST_WORDS, State::nobody_is_left));
        self.flight.leave(code);
        exit(i32::from(code))
    }

    /// Ends all processes. Of those that notice that they have to the first one says why: others wait
    /// for it to speak.
    pub(super) fn end(&self, ending: &Ending<'_>) -> ! {
        if std::mem::replace(&mut self.state().ends, true) {
            // Another thread ends this process.
            loop {
                thread::park();
            }
        }
        self.end_first(ending)
    }

    /// The same in the thread that is the first to end this process.
    fn end_first(&self, &Ending { code, words, culprit }: &Ending<'_>) -> ! {
        let (own, culprit) = (place(self.rank), place(culprit));
        let said = |state: &State| {
            state.fates.iter().find_map(|it| if let Fate::Ended(code) = it { Some(*code) } else { None })
        };
        let is_first = |state: &State| {
            let mut before = state.fates[..own].iter().enumerate();
            before.all(|(rank, fate)| rank == culprit || *fate != Fate::Here)
        };
        let limit = if culprit == own { FAILED_TOO } else { LAST_WORDS };
        let decided = |state: &State| said(state).is_some() || is_first(state);
        let state = self.wait(self.state(), Instant::now() + limit, decided);
        let said = said(&state);
        drop(state);
        if let Some(code) = said {
            self.follow(code);
        }
        self.flight.ended(Some(words), code);
        self.part(code)
    }

    /// Says goodbye, and waits until all others have, for so long.
    fn leave(&self, limit: Duration) {
        self.send_all(|| Parcel::Goodbye);
        drop(self.wait(self.state(), Instant::now() + limit, State::nobody_is_left));
    }

    /// The same at the end of a job.
    pub(super) fn leave_at_end(&self) {
        self.leave(self.silence);
    }

    /// The same where ranks do not fit together.
    pub(super) fn leave_at_once(&self) {
        self.leave(LAST_WORDS);
    }
}

/// The place of a rank in a list of all.
pub(super) fn place(rank: u64) -> usize {
    usize::try_from(rank).unwrap_or(usize::MAX)
}

impl State {
    /// Whether all has been written and nobody else will say anything.
    fn nobody_is_left(&self) -> bool {
        self.written.iter().zip(&self.fates).all(|(written, fate)| *written && *fate != Fate::Here)
    }
}
