//! How long exchanges take among ranks that are threads, as steps have them.

use std::thread;
use std::time::Instant;

use kernels::{Array, KernelError};
use lower::CollectiveKind;
use planner_ir::{DType, Type};

use crate::collective::{Member, Stop, Target};
use crate::error::RunError;
use crate::failure::Failure;
use crate::mail::Mail;
use crate::meeting::{Meeting, give_up};
use crate::threads::Threads;

/// What ranks exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A collective operation on a value.
    Collective(CollectiveKind),
    /// Each rank gives the next one a value.
    Messages,
}

/// Exchanges that were done.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// How long one took, on average (seconds).
    pub seconds: f64,
    /// What the first rank has received in each (bytes).
    pub received: u64,
}

/// Does so many exchanges of a value of 32-bit numbers among so many ranks, one after another.
///
/// The value is the whole of it: what an all-gather gives each rank, and what a reduce-scatter takes of
/// each. Of elements that cannot be split evenly the last are left out.
///
/// # Errors
///
/// If a kernel fails, or a thread cannot be started.
pub fn exchanges(what: Exchange, ranks: usize, elements: usize, count: u32) -> Result<Timed, RunError> {
    let failed = |error| RunError::Whole("a timed exchange".to_owned(), error);
    let meeting = [Meeting::new((0..ranks).filter_map(|rank| u64::try_from(rank).ok()).collect())];
    let (mail, failure) = (Mail::default(), Failure::default());
    let of_rank = |number: usize| {
        let done = rank(what, number, elements, count, (&meeting, &mail, &failure));
        if done.is_err() {
            give_up(&failure, &meeting, &mail);
        }
        done
    };
    let of_rank = &of_rank;
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(ranks);
        for number in 0..ranks {
            match thread::Builder::new().spawn_scoped(scope, move || of_rank(number)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that have one would wait for it.
                    give_up(&failure, &meeting, &mail);
                    return Err(RunError::Thread(meeting[0].members[number], error.to_string()));
                }
            }
        }
        let mut first = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(timed)) => first = first.or(Some(timed)),
                Ok(Err(Stop::Kernel(error))) => return Err(failed(error)),
                Ok(Err(Stop::GivenUp)) => {}
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        first.ok_or_else(|| failed(KernelError::Size))
    })
}

/// One rank's part.
fn rank(
    what: Exchange,
    number: usize,
    elements: usize,
    count: u32,
    (meetings, mail, failure): (&[Meeting; 1], &Mail, &Failure),
) -> Result<Timed, Stop> {
    let members = meetings[0].members.as_slice();
    let places = [(0, number)];
    let own = members[number];
    let transport = &mut Threads { rank: own, places: &places, meetings, mail, failure, rounds: vec![0] };
    let mut member = Member { transport, communicator: 0, members, number, given: 0, received: 0 };
    let array = |elements: usize| {
        let elements = u64::try_from(elements).map_err(|_| KernelError::Size)?;
        Array::zeros(Type::new(DType::F32, [elements]))
    };
    let part = elements / members.len();
    let whole = part * members.len();
    let (given, got) = match what {
        Exchange::Collective(CollectiveKind::AllGather) => (part, whole),
        Exchange::Collective(CollectiveKind::ReduceScatter) => (whole, part),
        _ => (whole, whole),
    };
    let (input, mut output, mut scratch) = (array(given)?, array(got)?, array(0)?);
    let before = members[(number + members.len() - 1) % members.len()];
    let after = members[(number + 1) % members.len()];
    let mut one = || {
        member.received = 0;
        member.give(input.bytes())?;
        match what {
            Exchange::Collective(kind) => {
                let bytes = output.bytes_mut();
                member.get(kind, Target { dtype: DType::F32, bytes, scratch: &mut scratch })?;
            }
            Exchange::Messages => member.get_from(&[after], before, output.bytes_mut())?,
        }
        Ok::<u64, Stop>(member.received)
    };
    // The first one touches memory that was never touched.
    let mut received = one()?;
    let start = Instant::now();
    for _ in 0..count {
        received = one()?;
    }
    Ok(Timed { seconds: start.elapsed().as_secs_f64() / f64::from(count.max(1)), received })
}

#[cfg(test)]
mod tests;
