//! Bytes between processes, through MPI.
//!
//! Everything is messages between two ranks, which are begun all together and then looked after in
//! turn. A rank that waits lets others have the processor, and ends its wait where a limit says so:
//! collectives of MPI do neither.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::thread;
use std::time::{Duration, Instant};

use super::flight::Flight;
use super::join::JoinError;
use super::link::{Ending, Link};

/// The longest message (bytes): MPI counts in 31 bits.
const LONGEST: usize = 1 << 30;
/// How often a rank looks before it sleeps.
const LOOKS: u32 = 2000;
/// How long it sleeps then, until it looks again.
const NAP: Duration = Duration::from_micros(50);

#[expect(unsafe_code, reason = "MPI is a library in C")]
// SAFETY: as `link.c` has them.
unsafe extern "C" {
    safe fn shardloom_mpi_start() -> c_int;
    safe fn shardloom_mpi_finish();
    safe fn shardloom_mpi_abort(code: c_int) -> !;
    safe fn shardloom_mpi_rank() -> c_int;
    safe fn shardloom_mpi_size() -> c_int;
    fn shardloom_mpi_send(bytes: *const u8, count: c_int, to: c_int, tag: c_int) -> *mut c_void;
    fn shardloom_mpi_receive(bytes: *mut u8, count: c_int, from: c_int, tag: c_int) -> *mut c_void;
    fn shardloom_mpi_done(begun: *mut c_void) -> c_int;
}

/// The way to other processes: MPI from its start to its end.
pub(super) struct Mpi {
    /// What is under way and nobody waits for, and its bytes.
    sending: RefCell<Vec<(Begun, Box<[u8]>)>>,
}

/// A message that is under way.
struct Begun {
    /// From or to whom.
    rank: u64,
    request: *mut c_void,
}

impl Begun {
    /// Begins to send. The bytes have to stay as they are until it is done.
    #[expect(unsafe_code, reason = "MPI is a library in C")]
    fn send(bytes: &[u8], rank: u64, tag: i32) -> Self {
        // SAFETY: MPI reads these bytes, which whoever calls keeps until it is done.
        let request = unsafe { shardloom_mpi_send(bytes.as_ptr(), int(bytes.len()), process(rank), tag) };
        Self { rank, request }
    }

    /// Begins to receive. The bytes have to stay, and nobody may look at them, until it is done.
    #[expect(unsafe_code, reason = "MPI is a library in C")]
    fn receive(bytes: &mut [u8], rank: u64, tag: i32) -> Self {
        let (pointer, count) = (bytes.as_mut_ptr(), int(bytes.len()));
        // SAFETY: MPI writes these bytes, which whoever calls keeps until it is done.
        let request = unsafe { shardloom_mpi_receive(pointer, count, process(rank), tag) };
        Self { rank, request }
    }

    /// Nothing if it is done, and itself if not.
    #[expect(unsafe_code, reason = "MPI is a library in C")]
    fn unless_done(self) -> Option<Self> {
        // SAFETY: the request has been begun and not been freed: what is done is given away here.
        let done = unsafe { shardloom_mpi_done(self.request) };
        (done == 0).then_some(self)
    }
}

impl Mpi {
    pub(super) fn join() -> Result<Self, JoinError> {
        if shardloom_mpi_start() == 0 {
            return Err(JoinError::Started);
        }
        Ok(Self { sending: RefCell::default() })
    }

    /// Frees what has been sent.
    fn forget_sent(&self) {
        let mut sending = self.sending.borrow_mut();
        let all = std::mem::take(&mut *sending);
        let kept = |(begun, bytes): (Begun, Box<[u8]>)| Some((begun.unless_done()?, bytes));
        sending.extend(all.into_iter().filter_map(kept));
    }
}

impl Link for Mpi {
    fn rank(&self) -> u64 {
        u64::try_from(shardloom_mpi_rank()).unwrap_or(0)
    }

    fn size(&self) -> u64 {
        u64::try_from(shardloom_mpi_size()).unwrap_or(1)
    }

    fn exchange(
        &self,
        tag: i32,
        sends: &[(u64, &[u8])],
        receives: Vec<(u64, &mut [u8])>,
        patience: Duration,
        waited: &dyn Fn(&[u64]),
    ) {
        // The bytes are borrowed until this function ends, and it ends when all is done.
        let mut begun = Vec::with_capacity(sends.len() + receives.len());
        for (from, bytes) in receives {
            begun.extend(bytes.chunks_mut(LONGEST).map(|piece| Begun::receive(piece, from, tag)));
        }
        for (to, bytes) in sends {
            begun.extend(bytes.chunks(LONGEST).map(|piece| Begun::send(piece, *to, tag)));
        }
        let (start, mut looks) = (Instant::now(), 0);
        loop {
            begun = begun.into_iter().filter_map(Begun::unless_done).collect();
            self.forget_sent();
            if begun.is_empty() {
                return;
            }
            if start.elapsed() > patience {
                let mut ranks: Vec<u64> = begun.iter().map(|it| it.rank).collect();
                ranks.sort_unstable();
                ranks.dedup();
                waited(&ranks);
            }
            if looks < LOOKS {
                looks += 1;
                thread::yield_now();
            } else {
                thread::sleep(NAP);
            }
        }
    }

    fn send(&self, tag: i32, to: u64, bytes: Vec<u8>) {
        self.forget_sent();
        let mut rest = bytes;
        while !rest.is_empty() {
            let tail = rest.split_off(rest.len().min(LONGEST));
            let piece = rest.into_boxed_slice();
            self.sending.borrow_mut().push((Begun::send(&piece, to, tag), piece));
            rest = tail;
        }
    }

    fn end(&self, ending: &Ending<'_>, flight: &Flight) -> ! {
        flight.ended(Some(ending.words), ending.code);
        flight.leave(ending.code);
        shardloom_mpi_abort(c_int::from(ending.code))
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        while !self.sending.borrow().is_empty() {
            self.forget_sent();
            thread::yield_now();
        }
        shardloom_mpi_finish();
    }
}

/// The number that MPI has for a rank.
fn process(rank: u64) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}

/// A length, which is that of a piece.
fn int(length: usize) -> c_int {
    c_int::try_from(length).unwrap_or(c_int::MAX)
}
