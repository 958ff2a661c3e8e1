//! Times of what ranks that are threads exchange.

use std::time::Instant;

use cost_models::collective;
use cost_models::machine::Machine;
use cost_models::topology::Topology;
use cost_models::units::{Bytes, Seconds};
use kernels::KernelError;
use lower::CollectiveKind;
use run::Exchange;

use super::timing::Effort;
use super::{MeasureFailure, processors};

/// What is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    AllGather,
    ReduceScatter,
    AllReduce,
    Message,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::AllGather, Self::ReduceScatter, Self::AllReduce, Self::Message];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce => "all-reduce",
            Self::Message => "message",
        }
    }

    fn exchange(self) -> Exchange {
        match self {
            Self::AllGather => Exchange::Collective(CollectiveKind::AllGather),
            Self::ReduceScatter => Exchange::Collective(CollectiveKind::ReduceScatter),
            Self::AllReduce => Exchange::Collective(CollectiveKind::AllReduce),
            Self::Message => Exchange::Messages,
        }
    }
}

/// Sizes of values (bytes).
pub(super) const SIZES: [u64; 4] = [1 << 12, 1 << 16, 1 << 20, 1 << 24];
/// Of how many ranks: as few as can be, and as many as share the processors of a small host.
const RANKS: [u64; 2] = [2, 4];

/// How long exchanges are timed together (bytes).
const TOGETHER: u64 = 1 << 21;

/// Of how many ranks exchanges are measured: of those that do not take turns.
pub(super) fn ranks() -> impl Iterator<Item = u64> {
    let most = u64::try_from(processors()).unwrap_or(1).max(RANKS[0]);
    RANKS.into_iter().filter(move |&it| it <= most)
}

/// The time of an exchange of a value of so many bytes (seconds): the shortest of many, each on average over
/// several, one after another.
pub(super) fn time(effort: Effort, kind: Kind, ranks: u64, bytes: u64) -> Result<f64, MeasureFailure> {
    let count = u32::try_from((TOGETHER / bytes.max(1)).clamp(2, 64)).unwrap_or(2);
    let size = |it: u64| usize::try_from(it).map_err(|_| KernelError::Size);
    let (ranks, elements) = (size(ranks)?, size(bytes / 4)?);
    let (start, mut best, mut rounds) = (Instant::now(), f64::INFINITY, 0);
    while effort.goes_on(rounds, start.elapsed().as_secs_f64()) {
        best = best.min(run::exchanges(kind.exchange(), ranks, elements, count)?.seconds);
        rounds += 1;
    }
    Ok(best)
}

/// What it takes on a machine by its prices; nothing if there is no such machine.
pub(super) fn priced(machine: &Machine, kind: Kind, ranks: u64, bytes: u64) -> Option<Seconds> {
    let machine = machine.clone().with_devices(ranks).ok()?;
    let group = Topology::of(&machine).group(&(0..ranks).collect::<Vec<_>>()).ok()?;
    let price = match kind {
        Kind::AllGather => collective::ring_all_gather,
        Kind::ReduceScatter => collective::reduce_scatter,
        Kind::AllReduce => collective::all_reduce,
        Kind::Message => collective::send,
    };
    Some(price(&machine, &group, Bytes(bytes)))
}
